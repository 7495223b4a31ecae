"""Learn the picture around a ball from small photographs of it, with smaller levels of the picture and without.

python docs/examples/gallery/repaint.py [--device cpu] [--size 144] [--steps 100]

The picture is scikit-image's "astronaut": Eileen Collins, by NASA, public domain. It has 256 x 256 texels. The
photographs are 12 pictures of the ball of 36 x 36 pixels, each the mean of 16 points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Clock, asset, load, options, save
from earth import AROUND, sphere
from PIL import Image

import slangpy_rt as spy

TEXELS, FINE = 256, 4
SIDES = np.array([[k * 2 * np.pi / 6, tilt] for tilt in (-0.5, 0.6) for k in range(6)], np.float32)
NEW = np.array([0.4 + np.pi, 0.1], np.float32)  # a side of which there is no photograph


def main() -> None:
    """Learn with and without levels, and compare the ball from a new side."""
    o = options(__doc__, 144, 100)
    device = spy.create_device(o.device)
    module = load(device, "repaint")
    with Image.open(asset("skimage", "data", "astronaut.png")) as picture:
        painted = np.asarray(picture.convert("RGB").resize((TEXELS, TEXELS)), np.float32) / 255
    faces, count = sphere()
    ball = {"corner": spy.Tensor.arange(device, count, dtype="int"), "around": AROUND, "_faces": faces}

    few = o.size // 4

    def photographs(sides: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Pictures from some sides, and which of their pixels the ball covers as a whole."""
        size = (rows * FINE, rows * FINE)
        draw = module.plain.raster(module.project, size, background=-1, antialias=False)
        paint = spy.Image(spy.Tensor.from_numpy(device, painted, "float3"), wrap=("repeat", "clamp"))
        shots = np.stack([draw(**ball, side=side, paint=paint, _result="numpy") for side in sides])
        blocks = shots.reshape(len(sides), rows, FINE, rows, FINE, 3)
        return np.maximum(blocks, 0).mean((2, 4)), (blocks.min((2, 4)) >= 0).astype(np.float32)

    (given, inside), ((new,), (clear,)) = photographs(SIDES, few), photographs(NEW[None], o.size)
    wanted, mask = (spy.Tensor.from_numpy(device, a, "float3") for a in (given, inside))
    gray = np.full((TEXELS, TEXELS, 3), 0.5, np.float32)
    parts: dict[bool, np.ndarray] = {}
    with Clock(device) as clock:
        for levels in (False, True):
            paint = spy.Image(
                spy.Tensor.from_numpy(device, gray, "float3").with_grads(), ("repeat", "clamp"), mips=levels
            )
            shade = module["smooth" if levels else "plain"]
            losses = learn(
                shade.raster(module.project, (few, few), antialias=False), ball, paint, wanted, mask, o.steps
            )
            near = module.plain.raster(module.project, (o.size, o.size), antialias=False)
            parts[levels] = near(**ball, side=NEW, paint=paint).to_numpy()
    photo = given[0].repeat(4, 0).repeat(4, 1)
    save(o.out / "repaint.jpg", np.pad(photo, [(0, o.size - 4 * few)] * 2 + [(0, 0)]), parts[False], parts[True], new)
    plain, smooth = (-10 * np.log10(np.mean((parts[levels] - new)[clear > 0] ** 2)) for levels in (False, True))
    print(
        f"{device.info}: 2 x {o.steps} steps of {len(given)} pictures in {clock.seconds:.1f} s, loss {losses[0]:.4f} "
        f"to {losses[-1]:.6f}, a new side {plain:.1f} dB without levels, {smooth:.1f} dB with them"
    )


def learn(
    draw: Any, ball: dict[str, Any], paint: spy.Image, wanted: spy.Tensor, mask: spy.Tensor, steps: int
) -> list[float]:
    """Change the texels until pictures are as wanted; return the mean squared difference of each step."""
    optimizer = spy.optim.Adam([paint.texels], lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.lr = 0.1 * 0.01 ** (step / steps)
        picture = draw(**ball, side=SIDES[:, None], paint=paint).with_grads()
        difference = (picture - wanted) * mask
        losses.append(float((difference * difference).mean().numpy().mean()))
        picture.grad[...] = difference
        draw.bwds(**ball, side=SIDES[:, None], paint=paint, _result=picture)
        paint.backward()
        optimizer.step()
        optimizer.zero_grad()
        paint.update()
    return losses


if __name__ == "__main__":
    main()
