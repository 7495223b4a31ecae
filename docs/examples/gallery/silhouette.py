"""Find out how a knot is turned and where it is from its outline alone: pictures of triangles have gradients there.

python docs/examples/gallery/silhouette.py [--device cpu] [--size 160] [--steps 150]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from common import Clock, load, options, save

import slangpy_rt as spy

WANTED = np.array([0.5, -0.7, 0.4, 0.2, -0.1, 0.3])
START = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def knot(around: int = 240, section: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A tube along a trefoil: corners, normals and triangles."""
    t = 2 * np.pi * np.arange(around) / around
    middle = np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], 1) * 0.42
    along = np.roll(middle, -1, 0) - np.roll(middle, 1, 0)
    side = np.cross(along, [0, 0, 1])
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(side, along)
    up /= np.linalg.norm(up, axis=1, keepdims=True)
    angle = 2 * np.pi * np.arange(section) / section
    normals = side[:, None] * np.cos(angle)[:, None] + up[:, None] * np.sin(angle)[:, None]
    corners = middle[:, None] + 0.24 * normals
    k = np.arange(around * section).reshape(around, section)
    a, b = k, np.roll(k, -1, 0)
    c, d = np.roll(a, -1, 1), np.roll(b, -1, 1)
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([b, d, c], -1).reshape(-1, 3)])
    return *(x.reshape(-1, 3).astype(np.float32) for x in (corners, normals)), faces.astype(np.int32)


class Search:
    """The search for the pose of a body by Adam's rule: turns about three axes, and a shift.

    Parameters
    ----------
    device : Device
        Where pictures are drawn.
    size : int
        Their rows and columns.
    corners, normals, faces : numpy.ndarray
        The body.

    Attributes
    ----------
    losses : list of float
        The mean squared difference of outlines at each step.
    """

    def __init__(
        self, device: spy.Device, size: int, corners: np.ndarray, normals: np.ndarray, faces: np.ndarray
    ) -> None:
        module = load(device, "silhouette")
        self._body = {
            "at": spy.Tensor.from_numpy(device, corners, "float3"),
            "normal": spy.Tensor.from_numpy(device, normals, "float3"),
            "_faces": faces,
        }
        self._parts = [spy.Tensor.zeros(device, 1, "float3").with_grads() for _ in range(2)]
        self._outline = module.outline.raster(module.project, (size, size))
        self._lit = module.lit.raster(module.project, (size, size), background=(0.1, 0.11, 0.15))
        self.losses: list[float] = []

    def place(self, pose: np.ndarray) -> dict[str, Any]:
        """Arguments for a pose."""
        for part, numbers in zip(self._parts, (pose[:3], pose[3:]), strict=True):
            part.copy_from(numbers[None].astype(np.float32))
        return self._body | dict(zip(("axis", "shift"), self._parts, strict=True))

    def show(self, pose: np.ndarray, color: tuple[float, float, float]) -> np.ndarray:
        """A picture of the body in a color."""
        found: np.ndarray = self._lit(**self.place(pose), color=color).to_numpy()
        return found

    def outline(self, pose: np.ndarray) -> spy.Tensor:
        """The body's outline."""
        found: spy.Tensor = self._outline(**self.place(pose))
        return found

    def poses(self, wanted: spy.Tensor, start: np.ndarray, steps: int, rate: float = 0.05) -> Iterator[np.ndarray]:
        """The pose before each step, and the last one."""
        pose, mean, square = start.copy(), np.zeros(6), np.zeros(6)
        for step in range(steps):
            yield pose
            given = self.place(pose)
            picture = self._outline(**given).with_grads()
            difference = picture - wanted
            self.losses.append(float((difference * difference).mean()))
            picture.grad[...] = difference
            for part in self._parts:
                part.grad.clear()
            self._outline.bwds(**given, _result=picture)
            slope = np.concatenate([part.grad.to_numpy() for part in self._parts], axis=None)
            mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
            size = rate * (1 - step / steps)
            pose = pose - size * mean / (1 - 0.8 ** (step + 1)) / np.sqrt(square / (1 - 0.95 ** (step + 1)) + 1e-12)
        yield pose


def main() -> None:
    """Look for the pose, and print how far off it is."""
    o = options(__doc__, 160, 150)
    device = spy.create_device(o.device)
    body = knot()
    search = Search(device, o.size, *body)
    wanted, goal = search.outline(WANTED), search.show(WANTED, (0.3, 0.5, 0.9))
    frames = []
    with Clock(device) as clock:
        for step, pose in enumerate(search.poses(wanted, START, o.steps)):
            if step in (0, o.steps // 10, o.steps // 3, o.steps):
                frames.append(search.show(pose, (0.9, 0.55, 0.2)))
    save(o.out / "silhouette.jpg", *frames, goal)
    print(
        f"{device.info}: {len(body[2])} triangles, {o.steps} steps in {clock.seconds:.2f} s, "
        f"loss {search.losses[0]:.4f} to {search.losses[-1]:.6f}, pose off by {np.abs(pose - WANTED).max():.4f}"
    )


if __name__ == "__main__":
    main()
