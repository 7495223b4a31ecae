"""Find out how a knot is turned and where it is from its outline alone: pictures of triangles have gradients there.

python docs/examples/gallery/silhouette.py [--device cpu] [--size 160] [--steps 150]
"""

from __future__ import annotations

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


def main() -> None:
    """Look for the pose by Adam's rule."""
    o = options(__doc__, 160, 150)
    device = spy.create_device(o.device)
    module = load(device, "silhouette")
    corners, normals, faces = knot()
    body = {
        "at": spy.Tensor.from_numpy(device, corners, "float3"),
        "normal": spy.Tensor.from_numpy(device, normals, "float3"),
        "_faces": faces,
    }
    axis, shift = (spy.Tensor.zeros(device, 1, "float3").with_grads() for _ in range(2))
    size = (o.size, o.size)
    outline = module.outline.raster(module.project, size)
    lit = module.lit.raster(module.project, size, background=(0.1, 0.11, 0.15))

    def place(pose: np.ndarray) -> None:
        for part, numbers in ((axis, pose[:3]), (shift, pose[3:])):
            part.copy_from(numbers[None].astype(np.float32))

    def show(color: tuple[float, float, float]) -> np.ndarray:
        return lit(**body, axis=axis, shift=shift, color=color).to_numpy()

    place(WANTED)
    wanted, goal = outline(**body, axis=axis, shift=shift), show((0.3, 0.5, 0.9))
    pose, mean, square = START.copy(), np.zeros(6), np.zeros(6)
    frames, losses = [], []
    with Clock(device) as clock:
        for step in range(o.steps):
            place(pose)
            if step in (0, o.steps // 10, o.steps // 3):
                frames.append(show((0.9, 0.55, 0.2)))
            picture = outline(**body, axis=axis, shift=shift).with_grads()
            difference = picture - wanted
            losses.append(float((difference * difference).mean()))
            picture.grad[...] = difference
            for part in (axis, shift):
                part.grad.clear()
            outline.bwds(**body, axis=axis, shift=shift, _result=picture)
            slope = np.concatenate([axis.grad.to_numpy(), shift.grad.to_numpy()], axis=None)
            mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
            rate = 0.05 * (1 - step / o.steps)
            pose = pose - rate * mean / (1 - 0.8 ** (step + 1)) / np.sqrt(square / (1 - 0.95 ** (step + 1)) + 1e-12)
    place(pose)
    save(o.out / "silhouette.jpg", *frames, show((0.9, 0.55, 0.2)), goal)
    off = np.abs(pose - WANTED).max()
    print(
        f"{device.info}: {len(faces)} triangles, {o.steps} steps in {clock.seconds:.2f} s, "
        f"loss {losses[0]:.4f} to {losses[-1]:.6f}, pose off by {off:.4f}"
    )


if __name__ == "__main__":
    main()
