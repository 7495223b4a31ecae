"""Learn the marble of a knot from pictures: a network, called for each pixel, gives color and gloss of a place.

python docs/examples/gallery/material.py [--device cpu] [--size 112] [--steps 160]
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save
from silhouette import knot

import slangpy_rt as spy

LEVELS, FEATURES, ENTRIES = 8, 2, 4096  # of the grid, as in material.slang
SIDES = np.array([[k * 2 * np.pi / 6, tilt] for tilt in (-0.8, 0.8) for k in range(6)], np.float32)
NEW = np.array([0.5, 0.1], np.float32)  # a side of which there is no picture
BATCH = 3  # pictures of a step


def main() -> None:
    """Train the network by Adam's rule, and compare the knot from a new side."""
    o = options(__doc__, 112, 160)
    device = spy.create_device(o.device)
    module = load(device, "material")
    corners, normals, faces = knot()
    body = {
        "at": spy.Tensor.from_numpy(device, corners, "float3"),
        "normal": spy.Tensor.from_numpy(device, normals, "float3"),
        "_faces": faces,
    }
    random = np.random.default_rng(1)
    table = random.uniform(-1e-2, 1e-2, (LEVELS * ENTRIES, FEATURES)).astype(np.float32)
    spread = module.deviation(np.arange(module.parameters(), dtype=np.int32))
    weights = (random.standard_normal(len(spread)) * spread).astype(np.float32)
    grid, layers = (spy.Tensor.from_numpy(device, a).with_grads() for a in (table, weights))
    material = {"grid": grid, "layers": layers}

    size = (o.size, o.size)
    draw = module.learned.raster(module.project, size, antialias=False)
    truth = module.marble.raster(module.project, size, antialias=False)
    pictures = truth(**body, side=SIDES[:, None]).to_numpy()
    goal = truth(**body, side=NEW).to_numpy()
    frames, losses = [], []
    optimizer = spy.optim.Adam([grid, layers], lr=0.01)
    with Clock(device) as clock:
        for step in range(o.steps):
            optimizer.lr = 0.01 * 0.1 ** (step / o.steps)
            if step == o.steps // 8:
                frames.append(draw(**body, side=NEW, material=material).to_numpy())
            chosen = random.permutation(len(SIDES))[:BATCH]
            sides = SIDES[chosen][:, None]
            picture = draw(**body, side=sides, material=material).with_grads()
            difference = picture - spy.Tensor.from_numpy(device, pictures[chosen], "float3")
            losses.append(float((difference * difference).mean().numpy().mean()))
            picture.grad[...] = difference * (1 / (BATCH * o.size**2))
            draw.bwds(**body, side=sides, material=material, _result=picture)
            optimizer.step()
            optimizer.zero_grad()
    last = draw(**body, side=NEW, material=material).to_numpy()
    save(o.out / "material.jpg", pictures[0], *frames, last, goal)
    psnr = -10 * np.log10(np.mean((last - goal) ** 2))
    print(
        f"{device.info}: {len(spread) + table.size} numbers, {o.steps} steps of {BATCH} pictures in "
        f"{clock.seconds:.1f} s, loss {losses[0]:.4f} to {losses[-1]:.6f}, a new side {psnr:.1f} dB"
    )


if __name__ == "__main__":
    main()
