"""Fly around a motorcycle: a photograph whose distances are known is a sheet of triangles, seen from other places.

python docs/examples/gallery/motorcycle.py [--device cpu] [--size 320] [--steps 16]

The photographs and distances are those of scikit-image: the stereo pair "Motorcycle" of Middlebury 2014. The view
from the place of the right camera is compared with the right photograph. Besides motorcycle.jpg it writes
motorcycle.gif.
"""

from __future__ import annotations

import numpy as np
from common import Clock, asset, load, options, save, save_gif
from PIL import Image

import slangpy_rt as spy

APART, BASELINE = 31.086, 0.193001  # as in motorcycle.slang
STEEP = 2.0  # between neighbours with disparities farther apart there is no triangle


def main() -> None:
    """Draw the sheet from the right camera and from places on a circle."""
    o = options(__doc__, 320, 16)
    left, right = (
        np.asarray(Image.open(asset("skimage", "data", f"motorcycle_{side}.png")).convert("RGB"), np.float32) / 255
        for side in ("left", "right")
    )
    with np.load(asset("skimage", "data", "motorcycle_disp.npz")) as file:
        disparity = file["arr_0"]
    rows, columns = disparity.shape
    faces = sheet(disparity)

    device = spy.create_device(o.device)
    module = load(device, "motorcycle")
    body = {
        "corner": spy.Tensor.arange(device, disparity.size, dtype="int"),
        "extent": (columns, rows),
        "disparity": spy.Tensor.from_numpy(device, np.where(np.isfinite(disparity), disparity, 0).ravel()),
        "_faces": spy.Tensor.from_numpy(device, faces),
        "photo": spy.Image(spy.Tensor.from_numpy(device, left, "float3"), wrap="clamp"),
    }

    def drawn(rows: int, columns: int, place: tuple[float, ...], turn: float = 0, shift: float = 0) -> np.ndarray:
        draw = module["color"].raster(module.project, (rows, columns), antialias=False)
        found: np.ndarray = draw(**body, **{"from": place, "turn": turn, "shift": shift}).numpy()
        return found

    other = drawn(rows, columns, (BASELINE, 0, 0), shift=APART)
    there = other[..., 3] == 1
    frames = []
    with Clock(device) as clock:
        for angle in 2 * np.pi * np.arange(o.steps) / o.steps:
            place = 0.25 * np.sin(angle), 0.12 * np.cos(angle) - 0.05, 0.3
            frames.append(drawn(o.size, o.size * 3 // 2, place, 0.08 * np.sin(angle))[..., :3])
    save_gif(o.out / "motorcycle.gif", [frame[::2, ::2] for frame in frames], colors=32)
    edge = o.size // 4
    save(o.out / "motorcycle.jpg", *(frames[k][:, edge : edge + o.size] for k in (0, o.steps // 4, 3 * o.steps // 4)))
    moved, still = (decibels((picture - right)[there]) for picture in (other[..., :3], left))
    print(
        f"{device.info}: {len(faces)} triangles, {o.steps} pictures in {clock.seconds:.2f} s; {there.mean():.0%} of "
        f"the right photograph PSNR {moved:.1f} dB, {still:.1f} dB by the left one as it is"
    )


def decibels(difference: np.ndarray) -> float:
    """The peak signal-to-noise ratio."""
    return float(-10 * np.log10(np.mean(difference**2)))


def sheet(disparity: np.ndarray) -> np.ndarray:
    """Triangles between pixels whose disparities are known and close to each other."""
    k = np.arange(disparity.size).reshape(disparity.shape)
    a, b, c, d = (x.ravel() for x in (k[:-1, :-1], k[:-1, 1:], k[1:, :-1], k[1:, 1:]))
    faces = np.concatenate([np.stack([a, b, c], -1), np.stack([b, d, c], -1)])
    at = disparity.ravel()[faces]
    with np.errstate(invalid="ignore"):
        return faces[np.isfinite(at).all(1) & (np.ptp(at, axis=1) < STEEP)].astype(np.int32)


if __name__ == "__main__":
    main()
