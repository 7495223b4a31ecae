"""Two discs of stars pass each other: all pairs attract, step by step, and the energy has to stay what it was.

python docs/examples/gallery/nbody.py [--device cpu] [--size 240] [--steps 600]
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save

import slangpy_rt as spy

STARS, SOFT, TIME = 1024, 0.05, 0.01


def disc(random: np.random.Generator, center: list[float], speed: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Stars that go around a heavy one, in places and speeds."""
    radius = 0.15 + 0.85 * np.sqrt(random.random(STARS))
    angle = 2 * np.pi * random.random(STARS)
    radius[0] = 0
    around = np.sqrt(radius**2 / (radius**2 + SOFT**2) ** 1.5)
    flat = 0.02 * random.standard_normal(STARS)
    at = np.stack([radius * np.cos(angle), radius * np.sin(angle), flat], 1)
    going = np.stack([-around * np.sin(angle), around * np.cos(angle), 0 * angle], 1)
    return at + center, going + speed


def main() -> None:
    """Run the simulation, and print how much the energy changed."""
    o = options(__doc__, 240, 600)
    device = spy.create_device(o.device)
    module = load(device, "nbody")
    random = np.random.default_rng(4)
    discs = [disc(random, [-1.4, -0.5, 0], [0.45, 0, 0]), disc(random, [1.4, 0.5, 0], [-0.45, 0, 0])]
    places, speeds = (np.concatenate(part).astype(np.float32) for part in zip(*discs, strict=True))
    weights = np.full(2 * STARS, 0.1 / STARS, np.float32)
    weights[[0, STARS]] = 1
    at, speed = (spy.Tensor.from_numpy(device, a, dtype="float3") for a in (places, speeds))
    masses = spy.Tensor.from_numpy(device, weights)
    pulls = spy.Tensor.empty_like(at)

    def total() -> float:
        return float(module.energy(at, speed, masses, at, masses, SOFT).to_numpy().sum(dtype=np.float64))

    def draw() -> np.ndarray:
        counts = spy.Tensor.zeros(device, (o.size, o.size), "int")
        module.splat(at, counts, 6.0)
        return module.glow(counts).to_numpy()

    def step(commands: spy.CommandList, time: float) -> None:
        module.pull.append_to(commands, at, at, masses, SOFT, _result=pulls)
        module.move.append_to(commands, at, speed, pulls, time)

    commands = device.command_list()
    step(commands, TIME)
    before, frames = total(), []
    draw()  # compiled before the clock starts
    with Clock(device) as clock:
        for k in range(o.steps):
            if k % max(o.steps // 3, 1) == 0:
                frames.append(draw())
            commands.submit()
    frames = [*frames[:3], draw()]
    change = abs(total() / before - 1)
    save(o.out / "nbody.jpg", *frames)
    print(f"{device.info}: {o.steps} steps of {2 * STARS} stars in {clock.seconds:.2f} s, energy off by {change:.4f}")


if __name__ == "__main__":
    main()
