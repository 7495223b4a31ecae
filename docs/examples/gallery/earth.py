"""Draw the earth: a sphere of triangles, and a map of the world as a texture on it.

python docs/examples/gallery/earth.py [--device cpu] [--size 320] [--steps 3]

The map is a file of the package pyvista, of which nothing is imported: pip install --no-deps pyvista. It is by Solar
System Scope, CC BY 4.0.
"""

from __future__ import annotations

import numpy as np
from common import Clock, asset, load, options, save
from PIL import Image

import slangpy_rt as spy

AROUND = 128  # corners around the equator
SUN = np.array([0.6, 0.35, 0.8])


def main() -> None:
    """Draw the earth from as many sides as there are steps, and look how far it is off rays by NumPy."""
    o = options(__doc__, 320, 3)
    world = np.asarray(Image.open(asset("pyvista", "examples", "2k_earth_daymap.jpg")).convert("RGB"))
    turns = (0.25 + 2 * np.pi * np.arange(o.steps) / o.steps + np.pi).astype(np.float32)
    faces, count = sphere()

    # The earth in eight lines.
    device = spy.create_device(o.device)
    module = load(device, "earth")
    texture = spy.Texture.from_numpy(device, world, mips=True)
    earth = texture.with_sampler({"wrap": ("repeat", "clamp"), "mip": "linear"})
    draw = module.lit.raster(module.project, (o.size, o.size))
    corners = spy.Tensor.arange(device, count, dtype="int")
    pictures = draw(corner=corners, around=AROUND, turn=turns[:, None], map=earth, sun=SUN, _faces=faces).numpy()

    with Clock(device) as clock:
        draw(corner=corners, around=AROUND, turn=turns[:, None], map=earth, sun=SUN, _faces=faces)
    save(o.out / "earth.jpg", *pictures[..., :3])
    wanted = by_rays(world / 255, float(turns[0]), o.size)
    psnr = -10 * np.log10(np.mean((pictures[0, ..., :3] - wanted) ** 2))
    print(
        f"{device.info}: {o.steps} pictures of {o.size} x {o.size}, {len(faces)} triangles, in "
        f"{clock.seconds:.3f} s, PSNR {psnr:.1f} dB beside 16 rays a pixel"
    )


def sphere() -> tuple[np.ndarray, int]:
    """Triangles between corners on a sphere, two for each cell, and how many corners there are."""
    k = np.arange((AROUND // 2 + 1) * (AROUND + 1)).reshape(AROUND // 2 + 1, AROUND + 1)
    a, b, c, d = (x.ravel() for x in (k[:-1, :-1], k[:-1, 1:], k[1:, :-1], k[1:, 1:]))
    return np.concatenate([np.stack([a, b, c], -1), np.stack([b, d, c], -1)]).astype(np.int32), k.size


def by_rays(world: np.ndarray, turn: float, size: int) -> np.ndarray:
    """The same picture by NumPy: 16 rays a pixel meet a sphere, and take the texel there."""
    at = (np.arange(4 * size) + 0.5) / (2 * size) - 1
    x, y = np.meshgrid(at / 3.4, -at / 3.4)
    # The ray (x, y, -1) * t from (0, 0, 4): the first t at which it is at a distance of 1 from the middle.
    a, b = x * x + y * y + 1, 4.0
    under = b * b - 15 * a
    t = (b - np.sqrt(np.maximum(under, 0))) / a
    normal = np.stack([x * t, y * t, 4 - t], -1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    u = (np.arctan2(normal[..., 0], normal[..., 2]) + turn) / (2 * np.pi) % 1
    v = np.arccos(np.clip(normal[..., 1], -1, 1)) / np.pi
    rows, columns = world.shape[:2]
    color = world[np.minimum((v * rows).astype(int), rows - 1), np.minimum((u * columns).astype(int), columns - 1)]
    light = np.maximum(normal @ (SUN / np.linalg.norm(SUN)), 0) + 0.05
    found = np.where((under > 0)[..., None], color * light[..., None], 0)
    return found.reshape(size, 4, size, 4, 3).mean((1, 3))


if __name__ == "__main__":
    main()
