"""A photograph is developed: white balance, contrast by its histogram, sharper edges; and so by NumPy.

python docs/examples/gallery/develop.py [--device cpu] [--size 300] [--steps 20]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Clock, load, options, photograph, save

import slangpy_rt as spy

BINS, CONTRAST, SHARPEN = 256, 0.5, 1.2
WEIGHTS = np.array([0.2126, 0.7152, 0.0722])


def develop(module: Any, picture: spy.Tensor) -> spy.Tensor:
    """The picture, developed: nothing but 256 counts leaves the device."""
    device = picture.device
    light = module.light(picture)
    gains = 1 / light.mean(axis=(0, 1)).to_numpy()
    module.balance(light, gains / (gains @ WEIGHTS))
    counts = spy.Tensor.zeros(device, BINS, "int")
    module.count(light, counts)
    ranks = np.cumsum(counts.to_numpy()) / light.size
    flat = module.contrast(light, spy.Tensor.from_numpy(device, ranks.astype(np.float32)), CONTRAST)
    return module.shown(module.sharpen(spy.grid(flat.shape), flat, SHARPEN, _result="tensor"))


def by_numpy(picture: np.ndarray) -> np.ndarray:
    """The same in doubles."""
    s = picture.astype(np.float64)
    light = np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)
    gains = 1 / light.mean(axis=(0, 1))
    light *= gains / (gains @ WEIGHTS)
    before = np.maximum(light @ WEIGHTS, 1e-6)
    bins = np.clip((np.sqrt(np.clip(before, 0, 1)) * BINS).astype(int), 0, BINS - 1)
    rank = (np.cumsum(np.bincount(bins.ravel(), minlength=BINS)) / bins.size)[bins]
    flat = light * ((before + CONTRAST * (rank**2 - before)) / before)[..., None]
    wide = np.pad(flat, ((2, 2), (2, 2), (0, 0)), "edge")
    rows, columns = flat.shape[:2]
    mean = sum(wide[y : y + rows, x : x + columns] for y in range(5) for x in range(5)) / 25
    c = flat + SHARPEN * (flat - mean)
    return np.where(c <= 0.0031308, 12.92 * c, 1.055 * np.maximum(c, 1e-9) ** (1 / 2.4) - 0.055)


def main() -> None:
    """Develop the photograph ``--steps`` times, and print how far it is from what NumPy makes."""
    o = options(__doc__, 300, 20)
    device = spy.create_device(o.device)
    module = load(device, "develop")
    faded = 0.25 + 0.45 * photograph(o.size) ** 1.2 * np.array([1.0, 0.85, 0.6], np.float32)
    picture = spy.Tensor.from_numpy(device, faded, dtype="float3")
    found = develop(module, picture)  # compiled before the clock starts
    with Clock(device) as clock:
        for _ in range(o.steps):
            found = develop(module, picture)
    want = by_numpy(faded)
    far = np.abs(found.to_numpy() - want)
    save(o.out / "develop.jpg", faded, found.to_numpy())
    print(
        f"{device.info}: {o.steps} times {o.size} x {o.size} pixels in {clock.seconds:.2f} s, "
        f"off NumPy by {far.mean():.1e}, contrast {faded.std():.3f} to {found.to_numpy().std():.3f}"
    )


if __name__ == "__main__":
    main()
