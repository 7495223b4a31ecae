"""Fit a closed Bezier curve to a knot, by a kernel that was written for slang-torch and its ``.bwd``.

Run it from anywhere, on any device:

    python docs/examples/slang_torch/bezier.py [--device cpu] [--steps 300] [--size 192] [--out FOLDER]

It draws the curve with its control points on its way (``bezier.png``), and prints the loss of the first and the last
step. It needs PyTorch and Pillow.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from common import HERE, moments, parse_options, save_strip, say
from PIL import Image, ImageDraw

import slangpy_rt.slangtorch as slangtorch

KNOTS = 9
POINTS = 512
BLOCK = 128
RATE = 0.025


def trace_with(module: Any) -> Any:
    """An operation of PyTorch's autograd around the kernel ``trace``."""

    class Trace(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, knots: torch.Tensor) -> torch.Tensor:
            points = knots.new_empty(POINTS, 2)
            module.trace(knots=knots, points=points).launchRaw(
                blockSize=(BLOCK, 1, 1), gridSize=(POINTS // BLOCK, 1, 1)
            )
            ctx.save_for_backward(knots, points)
            return points

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            knots, points = ctx.saved_tensors
            found = torch.zeros_like(knots)
            # The gradients of storeOnce are read and stay, but they have to be in memory without gaps.
            module.trace.bwd(knots=(knots, found), points=(points, gradient.contiguous())).launchRaw(
                blockSize=(BLOCK, 1, 1), gridSize=(POINTS // BLOCK, 1, 1)
            )
            return found

    return Trace.apply


def main() -> None:
    """Fit the curve for so many steps."""
    options = parse_options(__doc__, steps=300, size=192)
    module = slangtorch.loadModule(HERE / "bezier.slang", device=options.device)
    trace = trace_with(module)
    wanted = _trefoil(torch.arange(POINTS) / POINTS).to(options.place)
    # A circle, run through once.
    around = 2 * math.pi * torch.arange(KNOTS) / KNOTS
    outward = torch.stack([torch.sin(around), torch.cos(around)], dim=1)
    onward = torch.stack([torch.cos(around), -torch.sin(around)], dim=1)
    knots = torch.stack([0.6 * outward, 0.15 * onward], dim=1).to(options.place).requires_grad_()
    optimizer = torch.optim.Adam([knots], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    way, losses = [], []
    shown = moments(options.steps, 0, 0.03, 0.08, 1)
    started = time.perf_counter()
    for step in range(options.steps):
        optimizer.zero_grad()
        points = trace(knots)
        loss = ((points - wanted) ** 2).sum(dim=1).mean()
        loss.backward()
        losses.append(loss.item())
        way += [(points.detach(), knots.detach().clone())] * shown.count(step)
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - started
    strip = [_picture(options.size, wanted, *curve) for curve in way]
    save_strip(options.out / "bezier.png", [*strip, _picture(options.size, wanted)])
    say(options, seconds, losses)


def _trefoil(t: torch.Tensor) -> torch.Tensor:
    """A trefoil knot from above: a curve that crosses itself three times."""
    angle = 2 * math.pi * t
    x = torch.sin(angle) + 2 * torch.sin(2 * angle)
    y = torch.cos(angle) - 2 * torch.cos(2 * angle)
    return torch.stack([0.3 * x, 0.3 * y + 0.1], dim=1)


def _picture(
    size: int, wanted: torch.Tensor, points: torch.Tensor | None = None, knots: torch.Tensor | None = None
) -> torch.Tensor:
    """The wanted curve; over it the curve that there is, with its control points."""
    fine = 4 * size
    picture = Image.new("RGB", (fine, fine), (250, 249, 245))
    draw = ImageDraw.Draw(picture)

    def place(point: torch.Tensor) -> tuple[float, float]:
        return fine * (0.5 + 0.5 * float(point[0])), fine * (0.5 - 0.5 * float(point[1]))

    def line(curve: torch.Tensor, width: float, color: tuple[int, int, int]) -> None:
        draw.line([place(point) for point in (*curve, curve[0])], color, round(width * fine), "curve")

    line(wanted.cpu(), 0.035 if points is not None else 0.02, (206, 203, 190) if points is not None else (60, 60, 70))
    if points is not None and knots is not None:
        line(points.cpu(), 0.014, (205, 60, 40))
        for point, handle in knots.cpu():
            draw.line([place(point - handle), place(point + handle)], (60, 100, 160), round(0.005 * fine))
            for end, radius in ((point - handle, 0.009), (point + handle, 0.009), (point, 0.015)):
                x, y = place(end)
                reach = radius * fine
                draw.ellipse((x - reach, y - reach, x + reach, y + reach), (60, 100, 160))
    small = picture.resize((size, size), Image.Resampling.BOX)
    return torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).view(size, size, 3) / 255


if __name__ == "__main__":
    main()
