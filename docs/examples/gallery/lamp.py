"""Find where a lamp is from a picture: rays with soft shadows and mirror images, differentiated.

python docs/examples/gallery/lamp.py [--device cpu] [--size 160] [--steps 40]
"""

from __future__ import annotations

import numpy as np
from common import Clock, load, options, save
from silhouette import knot

import slangpy_rt as spy

WANTED, START = (2.4, 3.0, 2.2), (0.6, 4.2, 3.0)
SAMPLES = 16


def main() -> None:
    """Look for the lamp by Adam's rule."""
    o = options(__doc__, 160, 40)
    device = spy.create_device(o.device)
    module = load(device, "lamp")
    corners, _, faces = knot()
    floor = spy.Mesh([[-9, 0, -9], [-9, 0, 9], [9, 0, 9], [9, 0, -9]], [[0, 1, 2], [0, 2, 3]])
    move = [[1, 0, 0, 0], [0, 1, 0, 1.35], [0, 0, 1, 0]]
    scene = spy.Scene(device, [floor, (spy.Mesh(corners, faces), move)])
    lamp = spy.Tensor.from_numpy(device, np.array([[[START]]], np.float32), "float3").with_grads()

    def picture(samples: int) -> spy.Tensor:
        return module.render(spy.grid((samples, o.size, o.size)), o.size, lamp, scene)

    lamp.copy_from(np.array([[[WANTED]]], np.float32))
    goal = picture(SAMPLES).mean(0)
    lamp.copy_from(np.array([[[START]]], np.float32))
    place, mean, square = np.array(START), np.zeros(3), np.zeros(3)
    frames, losses = [], []
    with Clock(device) as clock:
        for step in range(o.steps):
            lamp.copy_from(place.astype(np.float32)[None, None, None])
            if step in (0, o.steps // 6):
                frames.append(picture(SAMPLES).mean(0).to_numpy())
            samples = picture(2).with_grads()
            difference = samples.mean(0) - goal
            losses.append(float((difference * difference).mean().to_numpy().mean()))
            samples.grad.copy_from(np.broadcast_to(difference.to_numpy(), (2, o.size, o.size, 3)))
            lamp.grad.clear()
            module.render.bwds(spy.grid((2, o.size, o.size)), o.size, lamp, scene, _result=samples)
            slope = lamp.grad.to_numpy().reshape(3)
            mean, square = 0.8 * mean + 0.2 * slope, 0.95 * square + 0.05 * slope**2
            rate = 0.2 * (1 - step / o.steps)
            place = place - rate * mean / (1 - 0.8 ** (step + 1)) / np.sqrt(square / (1 - 0.95 ** (step + 1)) + 1e-20)
    lamp.copy_from(place.astype(np.float32)[None, None, None])
    save(o.out / "lamp.jpg", *(np.clip(f, 0, 1) ** 0.6 for f in (*frames, picture(SAMPLES).mean(0), goal)))
    off = np.abs(place - WANTED).max()
    print(
        f"{device.info}: {scene.count} triangles, {o.steps} steps in {clock.seconds:.2f} s, "
        f"loss {losses[0]:.4f} to {losses[-1]:.5f}, lamp off by {off:.3f}"
    )


if __name__ == "__main__":
    main()
