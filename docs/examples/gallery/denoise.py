"""Take the noise out of a photograph: non-local means, a function of one pixel that looks at the whole picture.

    python docs/examples/gallery/denoise.py [--device cpu] [--size 240] [--steps 7]

``--steps`` is how far from a pixel others are looked at.
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, photograph, save

import slangpy_rt as spy

NOISE = 0.1


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Peak signal to noise ratio in dB, of values from 0 to 1."""
    return float(-10 * np.log10(np.mean((a - b) ** 2)))


def main() -> None:
    """Add noise, take it away, and print what is left of it."""
    o = options(__doc__, 240, 7)
    device = spy.create_device(o.device)
    module = load(device, "denoise")
    clean = photograph(o.size)
    noisy = clean + NOISE * np.random.default_rng(5).standard_normal(clean.shape).astype(np.float32)
    picture = spy.Tensor.from_numpy(device, noisy, dtype="float3")
    pixels = spy.grid((o.size, o.size))
    module.denoise(picture, pixels, 0, NOISE)
    with Clock(device) as clock:
        result = module.denoise(picture, pixels, o.steps, NOISE)
    denoised = result.to_numpy()
    save(o.out / "denoise.jpg", noisy, denoised, clean)
    before, after = psnr(noisy, clean), psnr(denoised, clean)
    print(f"{device.info}: {o.size} x {o.size} pixels in {clock.seconds:.2f} s, PSNR {before:.2f} to {after:.2f} dB")


if __name__ == "__main__":
    main()
