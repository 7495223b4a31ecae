"""A fractal solid from four sides: nothing but a function of a pixel, called for all pixels and all sides at once.

    python docs/examples/gallery/fractal.py [--device cpu] [--size 240] [--steps 4]

``--steps`` is the number of sides.
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save

import slangpy_rt as spy


def main() -> None:
    """Draw each side into a part of one picture."""
    o = options(__doc__, 240, 4)
    device = spy.create_device(o.device)
    render = load(device, "fractal").render
    # One angle for each picture; the pixels are the last two dimensions of the call.
    angles = np.linspace(0, np.pi / 3, o.steps, dtype=np.float32)[:, None, None]
    render(spy.grid((8, 8)), 8, angles)
    with Clock(device) as clock:
        pictures = render(spy.grid((o.size, o.size)), o.size, angles)
    pixels = np.asarray(pictures)
    save(o.out / "fractal.jpg", *pixels)
    print(
        f"{device.info}: {o.steps} pictures of {o.size} x {o.size} in {clock.seconds:.2f} s, mean {pixels.mean():.3f}"
    )


if __name__ == "__main__":
    main()
