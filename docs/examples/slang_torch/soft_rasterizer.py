"""Paint a fox with soft triangles, by a kernel that was written for slang-torch and its ``.bwd``.

Run it from anywhere, on any device:

    python docs/examples/slang_torch/soft_rasterizer.py [--device cpu] [--steps 300] [--size 96] [--out FOLDER]

The triangles start at random, soft and gray. Each step moves their corners and changes their colors, and they become
sharper and sharper. It writes the picture on its way (``soft_rasterizer.png``), and prints the loss of the first and
the last step. It needs PyTorch and Pillow.
"""

from __future__ import annotations

import time

import torch
from common import HERE, moments, parse_options, save_strip, say
from PIL import Image, ImageDraw

import slangpy_rt.slangtorch as slangtorch

TRIANGLES = 24
BLOCK = 16
RATE = 0.015
SOFT, SHARP = 0.04, 0.005  # of the picture's width: over so much an edge falls off, at first and at last

# The fox: three corners and a color. Those of its left half are there again at its right.
SIDES = [
    ((0.10, 0.06), (0.45, 0.34), (0.13, 0.52), (226, 104, 37)),  # an ear
    ((0.16, 0.17), (0.33, 0.33), (0.17, 0.44), (70, 44, 40)),
    ((0.13, 0.46), (0.50, 0.26), (0.50, 0.92), (238, 126, 48)),  # the face
    ((0.06, 0.56), (0.30, 0.52), (0.50, 0.92), (250, 243, 232)),
    ((0.25, 0.485), (0.38, 0.56), (0.31, 0.585), (40, 34, 40)),  # an eye
]
MIDDLE = [
    ((0.33, 0.30), (0.67, 0.30), (0.50, 0.66), (248, 150, 70)),
    ((0.43, 0.80), (0.57, 0.80), (0.50, 0.92), (40, 34, 40)),  # the nose
]


def main() -> None:
    """Move the triangles for so many steps."""
    options = parse_options(__doc__, steps=300, size=96)
    size = options.size
    module = slangtorch.loadModule(
        HERE / "soft_rasterizer.slang", defines={"TRIANGLES": TRIANGLES}, device=options.device
    )
    launch = {"blockSize": (BLOCK, BLOCK, 1), "gridSize": (-(-size // BLOCK), -(-size // BLOCK), 1)}
    wanted = _fox(size).to(options.place)
    random = torch.Generator().manual_seed(1)
    centres = 0.15 + 0.7 * torch.rand(TRIANGLES, 1, 2, generator=random)
    corners = centres + 0.12 * torch.randn(TRIANGLES, 3, 2, generator=random)
    colors = torch.full((1 + TRIANGLES, 3), 0.6)
    colors[0] = 0.9
    corners, colors = corners.to(options.place), colors.to(options.place)
    # A launch adds gradients to these, which the optimizer reads.
    corners.grad, colors.grad = torch.zeros_like(corners), torch.zeros_like(colors)
    image = corners.new_empty(size, size, 3)
    optimizer = torch.optim.Adam([{"params": [corners], "lr": RATE}, {"params": [colors], "lr": 2 * RATE}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    strip, losses = [], []
    shown = moments(options.steps, 0, 0.1, 0.3, 1)
    started = time.perf_counter()
    for step in range(options.steps):
        softness = SOFT * (SHARP / SOFT) ** (step / options.steps)
        module.paint(scene=module.Scene(corners, colors), softness=softness, image=image).launchRaw(**launch)
        difference = image - wanted
        losses.append((difference**2).mean().item())
        strip += [image.clone()] * shown.count(step)
        optimizer.zero_grad(set_to_none=False)
        scene = module.Scene(corners=(corners, corners.grad), colors=(colors, colors.grad))
        gradient = 2 * difference / difference.numel()
        module.paint.bwd(scene=scene, softness=softness, image=(image, gradient)).launchRaw(**launch)
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - started
    save_strip(options.out / "soft_rasterizer.png", [*strip, wanted])
    say(options, seconds, losses)


def _fox(size: int) -> torch.Tensor:
    """The picture to paint, with smooth edges."""
    fine = 8 * size
    picture = Image.new("RGB", (fine, fine), (196, 219, 214))
    draw = ImageDraw.Draw(picture)
    for *corners, color in SIDES:
        for mirror in (False, True):
            draw.polygon([(fine * (1 - x if mirror else x), fine * y) for x, y in corners], color)
    for *corners, color in MIDDLE:
        draw.polygon([(fine * x, fine * y) for x, y in corners], color)
    small = picture.resize((size, size), Image.Resampling.BOX)
    return torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).view(size, size, 3) / 255


if __name__ == "__main__":
    main()
