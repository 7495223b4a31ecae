"""Find the lamp of a room from what it lights and from the shadows: paths of three bounces, differentiated.

python docs/examples/gallery/room.py [--device cpu] [--size 160] [--steps 60]
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save

import slangpy_rt as spy

PLACE, COLOR = np.array([-1.3, 2.3, 1.0]), np.array([4.6, 3.5, 2.4])
START_PLACE, START_COLOR = np.array([1.3, 1.7, 2.0]), np.array([2.5, 2.5, 2.5])
SAMPLES = 256  # of a pixel, for pictures to look at
FEW = 4  # for a step of the search


def boxes() -> tuple[list[tuple[spy.Mesh, np.ndarray]], np.ndarray]:
    """The instances of the scene, all of one cube, and their colors."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)], np.float32)
    sides = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    cube = spy.Mesh(corners, np.array([[s[0], s[k], s[k + 1]] for s in sides for k in (1, 2)]))
    wood, white = (0.5, 0.32, 0.17), (0.6, 0.58, 0.55)
    rows = [  # center, size, turn around y, color
        ((0, -0.05, 1), (6, 0.1, 6.4), 0, (0.5, 0.34, 0.22)),
        ((0, 3.05, 1), (6, 0.1, 6.4), 0, white),
        ((0, 1.5, -2.05), (6, 3, 0.1), 0, white),
        ((0, 1.5, 4.15), (6, 3, 0.1), 0, white),
        ((-2.55, 1.5, 1), (0.1, 3, 6.4), 0, (0.7, 0.16, 0.1)),
        ((2.55, 1.5, 1), (0.1, 3, 6.4), 0, (0.12, 0.42, 0.45)),
        ((-0.25, 0.86, 0.1), (1.7, 0.07, 0.95), 0.35, wood),
        *(((-0.25 + x, 0.42, 0.1 + z), (0.08, 0.83, 0.08), 0.35, wood) for x, z in _legs(0.75, 0.38, 0.35)),
        ((-0.55, 1.07, 0.12), (0.34, 0.34, 0.34), 0.9, (0.85, 0.55, 0.12)),
        ((1.55, 0.8, -1.1), (0.7, 1.6, 0.7), -0.4, white),
    ]
    items = []
    for center, size, turn, _ in rows:
        c, s = np.cos(turn), np.sin(turn)
        move = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]) * size
        items.append((cube, np.concatenate([move, np.reshape(center, (3, 1))], 1).astype(np.float32)))
    return items, np.array([row[3] for row in rows], np.float32)


def _legs(x: float, z: float, turn: float) -> list[tuple[float, float]]:
    c, s = np.cos(turn), np.sin(turn)
    return [(c * i * x + s * k * z, c * k * z - s * i * x) for i in (-1, 1) for k in (-1, 1)]


def main() -> None:
    """Look for place and color of the lamp by Adam's rule."""
    o = options(__doc__, 160, 60)
    device = spy.create_device(o.device)
    module = load(device, "room")
    items, colors = boxes()
    scene = spy.Scene(device, items)
    paint = spy.Tensor.from_numpy(device, colors, "float3")
    place, color = (spy.Tensor.empty(device, (1, 1, 1), "float3").with_grads() for _ in range(2))
    lamp = {"place": place, "color": color}
    few = [o.size // 2, o.size // 2]  # rows and columns of the pictures of the search

    def picture(samples: int, seed: int, size: list[int]) -> spy.Tensor:
        return module.render(spy.grid((samples, *size)), size, seed, lamp, paint, scene).mean(0)

    def shown() -> np.ndarray:
        return picture(SAMPLES, 0, [o.size, o.size]).numpy()

    def put(at: np.ndarray, light: np.ndarray) -> None:
        place.copy_from(at.astype(np.float32).reshape(1, 1, 1, 3))
        color.copy_from(light.astype(np.float32).reshape(1, 1, 1, 3))

    put(PLACE, COLOR)
    wanted, goal = shown(), picture(SAMPLES, 0, few)
    # The logarithm of the color, so that a step is a part of it.
    unknown = np.concatenate([START_PLACE, np.log(START_COLOR)])
    mean, square = np.zeros(6), np.zeros(6)
    kept = []
    with Clock(device) as clock:
        for step in range(o.steps):
            put(unknown[:3], np.exp(unknown[3:]))
            if step in (0, o.steps // 5):
                kept.append(unknown.copy())
            # Other paths for the difference than for the gradient, so that the noise of one has no part in the other.
            difference = picture(FEW, 2 * step + 1, few) - goal
            paths = spy.Tensor.empty(device, (FEW, *few), "float3").with_grads()
            paths.grad.copy_from(np.broadcast_to(difference.numpy(), (FEW, *few, 3)))
            place.grad.clear()
            color.grad.clear()
            module.render.bwds(spy.grid((FEW, *few)), few, 2 * step + 2, lamp, paint, scene, _result=paths)
            slope = np.concatenate([place.grad.numpy().ravel(), color.grad.numpy().ravel() * np.exp(unknown[3:])])
            mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
            rate = 0.12 * (1 - step / o.steps)
            unknown -= rate * mean / (1 - 0.8 ** (step + 1)) / np.sqrt(square / (1 - 0.95 ** (step + 1)) + 1e-20)
    frames = []
    for found in (*kept, unknown):
        put(found[:3], np.exp(found[3:]))
        frames.append(shown())
    save(o.out / "room.jpg", *(np.clip(f, 0, 1) ** 0.45 for f in (*frames, wanted)))
    # All pictures are of the same random numbers: what differs is the lamp.
    first, last = (float(np.mean((f - wanted) ** 2)) for f in (frames[0], frames[-1]))
    off = np.abs(unknown[:3] - PLACE).max()
    tint = np.abs(np.exp(unknown[3:]) / COLOR - 1).max()
    print(
        f"{device.info}: {scene.count} triangles, {o.steps} steps of {FEW} paths a pixel in {clock.seconds:.1f} s, "
        f"loss {first:.4f} to {last:.7f}, lamp off by {off:.3f}, color by {tint:.3f}"
    )


if __name__ == "__main__":
    main()
