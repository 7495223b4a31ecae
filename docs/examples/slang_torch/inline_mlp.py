"""Learn a picture of a complex function, by a network inside a kernel that was written for slang-torch.

Run it from anywhere, on any device:

    python docs/examples/slang_torch/inline_mlp.py [--device cpu] [--steps 500] [--size 128] [--out FOLDER]

Each step takes other points of the plane. It writes what the network knows on its way (``inline_mlp.png``), and
prints the loss of the first and the last step. It needs PyTorch and Pillow.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from common import HERE, moments, parse_options, save_strip, say

import slangpy_rt.slangtorch as slangtorch

WIDTH = 16
LAYERS = 3
CORNERS = 33
POINTS = 2048
BLOCK = 128
RATE = 0.02


def network_with(module: Any) -> Any:
    """An operation of PyTorch's autograd around ``evaluate``: of points, features, weights and biases."""

    class Evaluate(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, points: torch.Tensor, features: torch.Tensor, *parameters: torch.Tensor
        ) -> torch.Tensor:
            colors = points.new_empty(len(points), 3)
            ctx.launch = {"blockSize": (BLOCK, 1, 1), "gridSize": (-(-len(points) // BLOCK), 1, 1)}
            layers = [module.Linear(w, b) for w, b in zip(parameters[::2], parameters[1::2], strict=True)]
            module.evaluate(
                grid=module.Grid(features), network=module.MLP(layers), points=points, colors=colors
            ).launchRaw(**ctx.launch)
            ctx.save_for_backward(points, colors, features, *parameters)
            return colors

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
            points, colors, *parameters = ctx.saved_tensors
            found = [torch.zeros_like(each) for each in parameters]
            features, *pairs = zip(parameters, found, strict=True)
            layers = [module.Linear(weights=w, bias=b) for w, b in zip(pairs[::2], pairs[1::2], strict=True)]
            module.evaluate.bwd(
                grid=module.Grid(features=features),
                network=module.MLP(layers=layers),
                points=points,
                colors=(colors, gradient.contiguous()),
            ).launchRaw(**ctx.launch)
            return None, *found

    return Evaluate.apply


def main() -> None:
    """Train the network for so many steps."""
    options = parse_options(__doc__, steps=500, size=128)
    size, place = options.size, options.place
    module = slangtorch.loadModule(
        HERE / "inline_mlp.slang", defines={"WIDTH": WIDTH, "LAYERS": LAYERS}, device=options.device
    )
    network = network_with(module)
    torch.manual_seed(1)
    parameters = [0.1 * torch.randn(CORNERS, CORNERS, WIDTH)]
    for _ in range(LAYERS):
        parameters += [torch.randn(WIDTH, WIDTH) * (2 / WIDTH) ** 0.5, torch.zeros(WIDTH)]
    parameters[-1] += 0.5
    parameters = [each.to(place).requires_grad_() for each in parameters]
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    axis = (torch.arange(size) + 0.5) / size * 2 - 1
    pixels = torch.stack(torch.meshgrid(axis, -axis, indexing="xy"), dim=-1).view(-1, 2).to(place)
    strip, losses = [], []
    shown = moments(options.steps, 0, 0.03, 0.1, 1)
    started = time.perf_counter()
    for step in range(options.steps):
        if step in shown:
            with torch.no_grad():
                strip += [network(pixels, *parameters).view(size, size, 3)] * shown.count(step)
        optimizer.zero_grad()
        points = torch.rand(POINTS, 2, device=place) * 2 - 1
        loss = ((network(points, *parameters) - _field(points)) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - started
    save_strip(options.out / "inline_mlp.png", [*strip, _field(pixels).view(size, size, 3)])
    say(options, seconds, losses)


def _field(points: torch.Tensor) -> torch.Tensor:
    """Colors of a function with three zeros and two poles: their hue is its angle, rings tell how large it is."""
    z = torch.complex(points[:, 0], points[:, 1]) * 1.5
    value = (z * z - 0.6) * (z + 0.3 + 0.9j) / ((z - 0.9j) * (z - 0.9 + 0.7j))
    hue = value.angle()[:, None] + torch.tensor([0, 2.1, 4.2], device=points.device)
    rings = 0.7 + 0.3 * torch.sin(6 * (value.abs() + 0.15).log())
    return (0.6 + 0.4 * torch.cos(hue)) * rings[:, None]


if __name__ == "__main__":
    main()
