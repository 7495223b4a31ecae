"""Two beams of electrons pass through each other, and become whirls: particles that give their charge to a grid.

python docs/examples/gallery/plasma.py [--device cpu] [--size 240] [--steps 400]
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save

import slangpy_rt as spy

ELECTRONS, CELLS, TIME = 200_000, 256, 0.1
# Two lengths of the wave that grows fastest, for beams of speed 1 in a plasma of frequency 1: k = sqrt(3/8).
LENGTH = 2 * 2 * np.pi / np.sqrt(3 / 8)
WIDTH = LENGTH / CELLS


def field_of(density: np.ndarray) -> np.ndarray:
    """The field of the charges, by Gauss's law; ions that do not move make the whole neutral."""
    waves = np.fft.rfft(1 - density)
    k = 2 * np.pi * np.fft.rfftfreq(CELLS, WIDTH)
    waves[0] = 0
    waves[1:] /= 1j * k[1:]
    return np.fft.irfft(waves, CELLS).astype(np.float32)


def main() -> None:
    """Run the simulation, and print by how much the energy and NumPy's density differ."""
    o = options(__doc__, 240, 400)
    device = spy.create_device(o.device)
    module = load(device, "plasma")
    random = np.random.default_rng(1)
    places = (random.random(ELECTRONS) * CELLS * 0.999999).astype(np.float32)
    speeds = (np.where(np.arange(ELECTRONS) % 2, 1, -1) + 0.05 * random.standard_normal(ELECTRONS)).astype(np.float32)
    x, v = (spy.Tensor.from_numpy(device, a) for a in (places, speeds))
    density = spy.Tensor.zeros(device, CELLS)
    field = spy.Tensor.zeros(device, CELLS)
    charge = CELLS / ELECTRONS

    def deposited() -> np.ndarray:
        density.clear()
        module.deposit(x, charge, density)
        return density.to_numpy()

    def energy() -> float:
        moving = float(module.kinetic(v).sum()) * LENGTH / ELECTRONS
        return moving + 0.5 * WIDTH * float((field_of(deposited()).astype(np.float64) ** 2).sum())

    def draw() -> np.ndarray:
        counts = spy.Tensor.zeros(device, (o.size, o.size), "int")
        module.splat(x, v, counts, CELLS, 3.0)
        return module.glow(counts, ELECTRONS / o.size**2).to_numpy()

    left = np.floor(places).astype(int)
    want = np.bincount(left % CELLS, (1 - (places - left)) * charge, CELLS)
    want += np.bincount((left + 1) % CELLS, (places - left) * charge, CELLS)
    far = float(np.abs(deposited() - want).max())

    before, frames = energy(), []
    with Clock(device) as clock:
        for k in range(o.steps):
            if k % max(o.steps // 4, 1) == 0:
                frames.append(draw())
            field.copy_from_numpy(field_of(deposited()))
            module.push(x, v, field, TIME, WIDTH)
    frames = [*frames[1:4], draw()]
    change = abs(energy() / before - 1)
    save(o.out / "plasma.jpg", *frames)
    print(
        f"{device.info}: {o.steps} steps of {ELECTRONS} electrons in {clock.seconds:.2f} s, "
        f"energy off by {change:.4f}, density off NumPy by {far:.1e}"
    )


if __name__ == "__main__":
    main()
