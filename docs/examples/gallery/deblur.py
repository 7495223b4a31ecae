"""Sharpen a photograph that was blurred by a moving camera: PyTorch's Adam, through a blur that is written in Slang.

    python docs/examples/gallery/deblur.py [--device cpu] [--size 240] [--steps 150]

The picture is a ``torch.Tensor``, and the call a part of PyTorch's graph. Differences of neighbours are kept small.
"""

from __future__ import annotations

import torch
from common import Clock, load, options, photograph, save

import slangpy_rt as spy

LENGTH, NOISE = 15, 0.005


def main() -> None:
    """Blur a photograph, add noise, and look for the picture that would give the same."""
    o = options(__doc__, 240, 150)
    device = spy.create_torch_device(o.device)
    module = load(device, "deblur")
    where = torch.device("cuda" if torch.cuda.is_available() and "NVIDIA" in device.info else "cpu")
    clean = torch.from_numpy(photograph(o.size)).to(where)
    pixels = spy.grid((o.size, o.size))
    torch.manual_seed(1)
    blurred = module.blur(clean, pixels, LENGTH)
    blurred = blurred + NOISE * torch.randn_like(blurred)

    sharp = blurred.clone().requires_grad_()
    optimizer = torch.optim.Adam([sharp], lr=0.02)
    with Clock(device) as clock:
        for _ in range(o.steps):
            optimizer.zero_grad()
            rough = sharp.diff(dim=0).abs().mean() + sharp.diff(dim=1).abs().mean()
            loss = ((module.blur(sharp, pixels, LENGTH) - blurred) ** 2).mean() + 4e-4 * rough
            loss.backward()
            optimizer.step()
    before, after = (float(-10 * ((p - clean) ** 2).mean().log10()) for p in (blurred, sharp.detach()))
    save(o.out / "deblur.jpg", *(p.detach().cpu() for p in (blurred, sharp, clean)))
    print(f"{device.info}: {o.steps} steps in {clock.seconds:.2f} s, PSNR {before:.2f} to {after:.2f} dB")


if __name__ == "__main__":
    main()
