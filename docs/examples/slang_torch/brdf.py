"""Find the color and the roughness of a ball from pictures, by a kernel that was written for slang-torch.

Run it from anywhere, on any device:

    python docs/examples/slang_torch/brdf.py [--device cpu] [--steps 200] [--size 96] [--out FOLDER]

The ball is seen under 18 lights, and its maps have half the resolution of the pictures. It writes the ball on its way
under a light that was none of these, below it the map of its base color, and below that its roughness (``brdf.png``),
and prints the loss of the first and the last step. It needs PyTorch and Pillow.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from common import HERE, moments, parse_options, save_strip, say

import slangpy_rt.slangtorch as slangtorch

LIGHTS = 18
BRIGHTNESS = 3.0
TILES = 45
BLOCK = 16
RATES = 0.04, 0.05  # of the base color and of the roughness


def shade_with(module: Any) -> Any:
    """An operation of PyTorch's autograd around the kernel ``shade``."""

    class Shade(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, maps: torch.Tensor, lights: torch.Tensor, size: int) -> torch.Tensor:
            images = maps.new_zeros(LIGHTS, size, size, 3)
            ctx.launch = {"blockSize": (BLOCK, BLOCK, 1), "gridSize": (-(-size // BLOCK), -(-size // BLOCK), 1)}
            module.shade(maps=maps, lights=lights, brightness=BRIGHTNESS, images=images).launchRaw(**ctx.launch)
            ctx.save_for_backward(maps, lights, images)
            return images

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
            maps, lights, images = ctx.saved_tensors
            found = torch.zeros_like(maps)
            module.shade.bwd(
                maps=(maps, found), lights=lights, brightness=BRIGHTNESS, images=(images, gradient.contiguous())
            ).launchRaw(**ctx.launch)
            return found, None, None

    return Shade.apply


def main() -> None:
    """Find the maps in so many steps."""
    options = parse_options(__doc__, steps=200, size=96)
    size, place = options.size, options.place
    module = slangtorch.loadModule(HERE / "brdf.slang", defines={"LIGHTS": LIGHTS}, device=options.device)
    shade = shade_with(module)
    lights, other = _lights().to(place), torch.tensor([[-0.36, 0.48, 0.8]] * LIGHTS, device=place)
    true = _mosaic(size // 2).to(place)
    wanted = shade(true, lights, size)
    color = torch.full_like(true[..., :3], 0.5).requires_grad_()
    roughness = torch.full_like(true[..., 3:], 0.8).requires_grad_()
    optimizer = torch.optim.Adam([{"params": [color], "lr": RATES[0]}, {"params": [roughness], "lr": RATES[1]}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    way, losses = [], []
    shown = moments(options.steps, 0, 0.03, 0.12, 1)
    started = time.perf_counter()
    for step in range(options.steps):
        optimizer.zero_grad()
        maps = torch.cat([color, roughness], dim=2)
        loss = ((shade(maps, lights, size) - wanted) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        way += [maps.detach()] * shown.count(step)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            color.clamp_(0, 1)
            roughness.clamp_(0.08, 1)
    seconds = time.perf_counter() - started
    way.append(true)
    doubled = [each.repeat_interleave(2, dim=0).repeat_interleave(2, dim=1) for each in way]
    save_strip(
        options.out / "brdf.png",
        [shade(each, other, size)[0] for each in way],
        [each[..., :3].sqrt() for each in doubled],
        [each[..., 3:].expand(-1, -1, 3) for each in doubled],
    )
    say(options, seconds, losses)


def _lights() -> torch.Tensor:
    """Directions, from the eye's to a little behind the ball."""
    found = []
    for k in range(LIGHTS):
        z = 0.95 - 1.1 * k / (LIGHTS - 1)
        angle = 2.4 * k  # the golden angle
        found.append((math.sqrt(1 - z * z) * math.cos(angle), math.sqrt(1 - z * z) * math.sin(angle), z))
    return torch.tensor(found)


def _mosaic(size: int) -> torch.Tensor:
    """Maps of a mosaic: each tile has a color and a roughness, and what is between them is dark and rough."""
    random = torch.Generator().manual_seed(3)
    middles = torch.rand(TILES, 2, generator=random)
    palette = torch.tensor(
        [[0.75, 0.32, 0.12], [0.1, 0.35, 0.5], [0.85, 0.7, 0.4], [0.12, 0.45, 0.35], [0.5, 0.1, 0.15]]
    )
    tiles = torch.cat(
        [
            palette[torch.randint(len(palette), (TILES,), generator=random)],
            torch.tensor([0.28, 0.4, 0.55, 0.75])[torch.randint(4, (TILES, 1), generator=random)],
        ],
        dim=1,
    )
    axis = (torch.arange(size) + 0.5) / size
    points = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1)
    nearest = torch.cdist(points.view(-1, 2), middles).topk(2, largest=False)
    between = nearest.values[:, 1] - nearest.values[:, 0] < 0.02
    found = torch.where(between[:, None], torch.tensor([0.06, 0.06, 0.07, 0.95]), tiles[nearest.indices[:, 0]])
    return found.view(size, size, 4)


if __name__ == "__main__":
    main()
