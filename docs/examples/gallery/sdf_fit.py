"""Discs that melt into one another become a heart: the derivative of a picture in a signed distance, and Adam.

python docs/examples/gallery/sdf_fit.py [--device cpu] [--size 160] [--steps 300]
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save

import slangpy_rt as spy

DISCS, EDGE, RATE = 24, 0.02, 0.01


def main() -> None:
    """Fit the discs, and print the mean loss of the first and the last step."""
    o = options(__doc__, 160, 300)
    device = spy.create_device(o.device)
    module = load(device, "sdf_fit")
    line = (np.arange(o.size, dtype=np.float32) + 0.5) / o.size * 2 - 1
    x, y = np.meshgrid(line, -line)
    at = spy.Tensor.from_numpy(device, np.stack([x, y], -1), dtype="float2")
    wanted = module.heart(at)

    random = np.random.default_rng(2)
    centers = random.uniform(-0.6, 0.6, (DISCS, 2))
    start = np.concatenate([centers, np.full((DISCS, 1), 0.06)], 1).astype(np.float32)
    discs = spy.Tensor.from_numpy(device, start, dtype="float3").with_grads()
    mean, variance = spy.Tensor.zeros_like(discs), spy.Tensor.zeros_like(discs)
    # The mean over all pixels is the sum of losses that count 1/n each.
    share = spy.Tensor.full(device, wanted.shape, 1 / wanted.size)
    losses = spy.Tensor.empty_like(wanted).with_grads(grad_in=share)

    def fit(count: int) -> None:
        discs.grad.clear()
        module.loss.bwds(at, wanted, discs, EDGE, _result=losses)
        module.step(discs, discs.grad, mean, variance, RATE, count)

    def error() -> float:
        return float(module.loss(at, wanted, discs, EDGE).mean())

    frames, first = [], error()
    with Clock(device) as clock:
        for k in range(o.steps):
            if k in (0, o.steps // 20, o.steps // 5):
                frames.append(module.cover(at, discs, EDGE).to_numpy())
            fit(k + 1)
    frames += [module.cover(at, discs, EDGE).to_numpy(), wanted.to_numpy()]
    save(o.out / "sdf_fit.jpg", *frames)
    print(f"{device.info}: {o.steps} steps in {clock.seconds:.2f} s, loss {first:.4f} to {error():.5f}")


if __name__ == "__main__":
    main()
