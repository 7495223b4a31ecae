"""A floor of photographs to the horizon: without smaller levels of the texture, with them, and by many rays a pixel.

python docs/examples/gallery/floor.py [--device cpu] [--size 300] [--steps 16]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Clock, load, options, photograph, save

import slangpy_rt as spy


def curved(light: np.ndarray) -> np.ndarray:
    """Numbers of a picture from linear light (IEC 61966-2-1)."""
    c = np.clip(light[..., :3], 0, 1)
    return np.where(c <= 0.0031308, 12.92 * c, 1.055 * np.maximum(c, 1e-9) ** (1 / 2.4) - 0.055)


def decibels(found: np.ndarray, wanted: np.ndarray) -> float:
    """The peak signal-to-noise ratio."""
    return float(-10 * np.log10(np.mean((found - wanted) ** 2)))


def main() -> None:
    """Draw the three pictures, and print how far the first two are from the third."""
    o = options(__doc__, 300, 16)
    device = spy.create_device(o.device)
    module = load(device, "floor")
    photo = spy.Texture.from_numpy(device, (photograph(256) * 255).astype(np.uint8), mips=True, srgb=True)
    how = device.create_sampler(filter="linear", mip="linear", wrap="mirror")

    def draw(sharp: bool, rays: int) -> Any:
        return module.mean(spy.grid((o.size, o.size)), o.size, photo, how, sharp, rays, _result="texture")

    draw(True, 1)  # compiled before the clock starts
    with Clock(device) as clock:
        plain, levels = draw(True, 1), draw(False, 1)
    fine = curved(draw(True, o.steps).to_numpy())
    plain, levels = curved(plain.to_numpy()), curved(levels.to_numpy())
    save(o.out / "floor.jpg", plain, levels, fine)
    print(
        f"{device.info}: 2 pictures of {o.size} x {o.size} in {clock.seconds:.3f} s, beside {o.steps**2} rays a "
        f"pixel PSNR {decibels(plain, fine):.1f} dB without levels, {decibels(levels, fine):.1f} dB with them"
    )


if __name__ == "__main__":
    main()
