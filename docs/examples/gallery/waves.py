"""Waves go through two slits and meet behind them; at the right, where much arrives over time.

python docs/examples/gallery/waves.py [--device cpu] [--size 240] [--steps 1200]
"""

from __future__ import annotations

from common import Clock, load, options, save

import slangpy_rt as spy


def main() -> None:
    """Run the simulation, and add up the energy in its second half."""
    o = options(__doc__, 240, 1200)
    device = spy.create_device(o.device)
    module = load(device, "waves")
    pixels = spy.grid((o.size, o.size))
    before, now, after, energy = (spy.Tensor.zeros(device, (o.size, o.size)) for _ in range(4))
    with Clock(device) as clock:
        for k in range(o.steps):
            module.step(now, before, pixels, float(k), _result=after)
            before, now, after = now, after, before
            if k >= o.steps // 2:
                module.add_energy(energy, now)
    heights = energy.to_numpy()
    behind = heights[:, int(0.9 * o.size)]
    save(o.out / "waves.jpg", module.paint(now, pixels, o.size), module.glow(energy, float(behind.mean())))
    bright = float(behind.max() / behind.mean())
    print(
        f"{device.info}: {o.steps} steps in {clock.seconds:.2f} s, the brightest stripe has {bright:.2f} of the mean"
    )


if __name__ == "__main__":
    main()
