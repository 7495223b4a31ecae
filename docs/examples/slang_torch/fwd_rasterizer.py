"""Find out how a gem is turned and where it is, by kernels that were written for slang-torch and their ``.fwd``.

Run it from anywhere, on any device:

    python docs/examples/slang_torch/fwd_rasterizer.py [--device cpu] [--steps 20] [--size 128] [--out FOLDER]

A pose has six numbers and a picture thousands, so the forward derivative gives the whole Jacobian in six launches,
and the Levenberg-Marquardt method needs few steps. It writes the gem on its way, and below it the derivatives of the
last picture in five of the numbers (``fwd_rasterizer.png``), and prints the loss of the first and the last step. It
needs PyTorch and Pillow.
"""

from __future__ import annotations

import colorsys
import itertools
import time
from typing import Any

import torch
from common import HERE, moments, parse_options, save_strip, say

import slangpy_rt.slangtorch as slangtorch

BLOCK = 16
FACES = 20
START = (0.0, 0.0, 0.0, -0.25, 0.2, -0.6)
WANTED = (0.45, -0.5, 0.25, 0.15, -0.1, 0.3)


class Renderer:
    """Pictures of a mesh, and their derivatives in its pose. Edges are as soft as a pixel is wide.

    Parameters
    ----------
    module : SlangTorchModule
    mesh : module.Mesh
    size : int
        Rows and columns of a picture.
    """

    def __init__(self, module: Any, mesh: Any, size: int) -> None:
        self._module, self._mesh, self._size = module, mesh, size

    def picture(self, pose: torch.Tensor) -> torch.Tensor:
        """Of shape ``(size, size, 3)``."""
        return self._run("", pose)[0]

    def jacobian(self, pose: torch.Tensor) -> torch.Tensor:
        """What a picture changes with each number of its pose: of shape ``(6, size, size, 3)``."""
        directions = torch.eye(6, device=pose.device)
        return torch.stack([self._run("fwd", (pose, direction))[1] for direction in directions])

    def _run(self, which: str, pose: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A picture and its tangent. The tangent of what the first kernel writes is what the second one reads."""
        mesh, size = self._mesh, self._size
        corners = mesh.vertices.new_zeros(2, len(mesh.vertices), 2)
        image = mesh.vertices.new_zeros(2, size, size, 3)
        project, paint = self._module.project, self._module.paint
        if which == "fwd":
            project, paint = project.fwd, paint.fwd
        groups = -(-size // BLOCK)
        project(pose=pose, mesh=mesh, corners=tuple(corners)).launchRaw(blockSize=(32, 1, 1), gridSize=(1, 1, 1))
        paint(mesh=mesh, corners=tuple(corners), softness=1 / size, image=tuple(image)).launchRaw(
            blockSize=(BLOCK, BLOCK, 1), gridSize=(groups, groups, 1)
        )
        return image[0], image[1]


def main() -> None:
    """Look for the pose in so many steps."""
    options = parse_options(__doc__, steps=20, size=128)
    module = slangtorch.loadModule(HERE / "fwd_rasterizer.slang", defines={"FACES": FACES}, device=options.device)
    renderer = Renderer(module, module.Mesh(*(part.to(options.place) for part in _gem())), options.size)
    wanted = renderer.picture(torch.tensor(WANTED, device=options.place))
    pose = torch.tensor(START, device=options.place)
    image, damping = renderer.picture(pose), 1e-2
    strip, losses = [], []
    shown = moments(options.steps, 0, 0.2, 0.4, 1)
    started = time.perf_counter()
    for step in range(options.steps):
        residual = (image - wanted).flatten()
        loss = float((residual**2).mean())
        losses.append(loss)
        jacobian = renderer.jacobian(pose)
        strip += [image] * shown.count(step)
        rows = jacobian.flatten(1).double()
        square, slope = rows @ rows.T, rows @ residual.double()
        for _ in range(8):
            move = torch.linalg.solve(square + damping * torch.diag(square.diag()), slope)
            tried = pose - move.float()
            result = renderer.picture(tried)
            if float(((result - wanted) ** 2).mean()) < loss:
                pose, image, damping = tried, result, damping / 4
                break
            damping *= 4
    seconds = time.perf_counter() - started
    save_strip(options.out / "fwd_rasterizer.png", [*strip, wanted], list(0.5 + 0.1 * jacobian[:5]))
    say(options, seconds, losses)
    print("pose", [round(n, 3) for n in pose.tolist()], "wanted", list(WANTED))


def _gem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """An icosahedron: vertices, faces, and colors that go round with the direction of the face."""
    golden = (1 + 5**0.5) / 2
    vertices = []
    for a, b in itertools.product((-1.0, 1.0), (-golden, golden)):
        vertices += [(0, a, b), (a, b, 0), (b, 0, a)]
    points = torch.tensor(vertices)
    faces = []
    for corners in itertools.combinations(range(12), 3):
        a, b, c = points[list(corners)]
        # Edges are 2 long.
        if all(abs(float((p - q).norm()) - 2) < 1e-3 for p, q in ((a, b), (b, c), (c, a))):
            outside = float(torch.linalg.cross(b - a, c - a) @ a) > 0
            faces.append(corners if outside else corners[::-1])
    # Hues are far apart on neighbours; light comes from above on the left.
    normals = torch.stack([points[list(face)].mean(dim=0) for face in faces])
    light = 0.8 + 0.2 * normals @ torch.tensor([-0.5, 0.6, 0.6]) / normals.norm(dim=1)
    colors = [colorsys.hsv_to_rgb(golden * k % 1, 0.6, bright) for k, bright in enumerate(light.tolist())]
    return 0.72 * points, torch.tensor(faces, dtype=torch.int32), torch.tensor(colors)


if __name__ == "__main__":
    main()
