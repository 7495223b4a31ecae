"""Find out how an aeroplane lies in the air from its outline alone.

python docs/examples/gallery/airplane.py [--device cpu] [--size 160] [--steps 150]

The aeroplane is a file of the package pyvista, of which nothing is imported: pip install --no-deps pyvista. Besides
airplane.jpg it writes airplane.gif: the search on the left, the outline on the right.
"""

from __future__ import annotations

import numpy as np
from common import Clock, asset, options, save, save_gif
from silhouette import Search

import slangpy_rt as spy

WANTED = np.array([0.9, 0.5, -0.3, 0.15, -0.2, 0.4])
START = np.array([0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
FRAMES = 30  # of the animation


def main() -> None:
    """Look for the pose, and print how far off it is."""
    o = options(__doc__, 160, 150)
    corners, faces = read_ply()
    device = spy.create_device(o.device)
    search = Search(device, o.size, corners, normals_of(corners, faces), faces)
    wanted = search.outline(WANTED)
    goal = wanted.to_numpy()
    frames, shown = [], sorted({int(o.steps * (k / FRAMES) ** 1.5) for k in range(FRAMES + 1)})
    with Clock(device) as clock:
        for step, pose in enumerate(search.poses(wanted, START, o.steps)):
            if step in shown:
                frames.append(search.show(pose, (0.75, 0.78, 0.85)))
    right = np.repeat(goal[..., None], 3, axis=2)
    save_gif(o.out / "airplane.gif", [np.concatenate([f, right], 1) for f in [*frames, *[frames[-1]] * 8]], colors=32)
    strip = [frames[k] for k in (0, len(frames) // 3, -1)]
    save(o.out / "airplane.jpg", *strip, goal)
    print(
        f"{device.info}: {len(faces)} triangles, {o.steps} steps in {clock.seconds:.2f} s, "
        f"loss {search.losses[0]:.4f} to {search.losses[-1]:.6f}, pose off by {np.abs(pose - WANTED).max():.4f}"
    )


def read_ply() -> tuple[np.ndarray, np.ndarray]:
    """The corners and triangles of the aeroplane, in the middle and about 3 long."""
    lines = asset("pyvista", "examples", "airplane.ply").read_text().splitlines()
    counts = [int(line.split()[-1]) for line in lines if line.startswith("element")]
    first = lines.index("end_header") + 1
    corners = np.array([line.split() for line in lines[first : first + counts[0]]], np.float32)
    faces = np.array([line.split() for line in lines[first + counts[0] :][: counts[1]]], np.int32)[:, 1:]
    low, high = corners.min(0), corners.max(0)
    return (corners - (low + high) / 2) * (3 / (high - low).max()), faces


def normals_of(corners: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Of each corner the mean of its triangles' normals, by their areas."""
    a, b, c = np.moveaxis(corners[faces], 1, 0)
    found = np.zeros_like(corners)
    for k in range(3):
        np.add.at(found, faces[:, k], np.cross(b - a, c - a))
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


if __name__ == "__main__":
    main()
