"""Fit a soft shape to a picture of a star, by a kernel that was written for slang-torch and its ``.bwd``.

Run it from anywhere, on any device:

    python docs/examples/fit_shape.py [--device cpu] [--steps 200] [--size 128] [--out FOLDER]

It writes the shape on its way next to the picture (``fit_shape.png``), and prints the error at the first and the last
step. It needs PyTorch and Pillow.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

import slangpy_rt.slangtorch as slangtorch

HERE = Path(__file__).parent
HARMONICS = 15
RATE = 0.01
SNAPSHOTS = (1, 10, 30)  # steps before which the strip shows the shape; then the last


def draw_with(module: Any) -> Any:
    """An operation of PyTorch's autograd around the kernel ``draw``."""

    class Draw(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, shape: torch.Tensor, size: int) -> torch.Tensor:
            image = shape.new_empty(size, size)
            module.draw(shape=shape, image=image).launchTotal(blockSize=(16, 16, 1), totalSize=(size, size, 1))
            ctx.save_for_backward(shape, image)
            return image

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
            shape, image = ctx.saved_tensors
            found = torch.zeros_like(shape)
            # The kernel takes the gradient of what it stores and leaves zeros, so it gets a copy.
            pair = module.DiffTensorView(image, gradient.clone())
            module.draw.bwd(shape=(shape, found), image=pair).launchTotal(
                blockSize=(16, 16, 1), totalSize=(*image.shape, 1)
            )
            return found, None

    return Draw.apply


def main() -> None:
    """Fit the shape for so many steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or cuda")
    parser.add_argument("--steps", type=int, default=200, help="how many steps")
    parser.add_argument("--size", type=int, default=128, help="rows and columns of the picture")
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    place = torch.device("cuda" if options.device == "cuda" else "cpu")
    module = slangtorch.loadModule(
        HERE / "fit_shape.slang", defines={"HARMONICS": HARMONICS, "SHARPNESS": 120.0}, device=options.device
    )
    draw = draw_with(module)
    wanted = _star(options.size).to(place)
    # A circle: centre, radius, and harmonics of 0.
    shape = torch.zeros(3 + 2 * HARMONICS)
    shape[:3] = torch.tensor([0.5, 0.5, 0.2])
    shape = shape.to(place).requires_grad_()
    optimizer = torch.optim.Adam([shape], lr=RATE)
    strip, errors = [], []
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        image = draw(shape, options.size)
        error = ((image - wanted) ** 2).mean()
        error.backward()
        errors.append(error.item())
        strip += [image.detach()] if step in SNAPSHOTS else []
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5 ** (4 * step / options.steps)
        optimizer.step()
    seconds = time.perf_counter() - started
    strip += [draw(shape, options.size).detach(), wanted]
    options.out.mkdir(parents=True, exist_ok=True)
    pixels = (torch.cat([picture.cpu() for picture in strip], dim=1) * 255 + 0.5).to(torch.uint8)
    Image.fromarray(pixels.numpy()).save(options.out / "fit_shape.png")
    print(f"{options.device}: {options.steps} steps in {seconds:.1f} s, error {errors[0]:.4f} to {errors[-1]:.4f}")


def _star(size: int) -> torch.Tensor:
    """A star with five points, whose edges are smooth."""
    fine = 8 * size
    picture = Image.new("L", (fine, fine))
    corners = []
    for k in range(10):
        angle, reach = math.pi * (k / 5 - 0.45), (0.38, 0.19)[k % 2] * fine
        corners.append((0.54 * fine + reach * math.cos(angle), 0.52 * fine + reach * math.sin(angle)))
    ImageDraw.Draw(picture).polygon(corners, fill=255)
    small = picture.resize((size, size), Image.Resampling.BOX)
    return torch.tensor(list(small.tobytes()), dtype=torch.float32).view(size, size) / 255


if __name__ == "__main__":
    main()
