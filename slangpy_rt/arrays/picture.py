"""Pictures: arrays as PNG files, for notebooks. Nothing here knows of devices, and nothing writes a file."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.srgb import encoded
from slangpy_rt.core.types import SlangType

# Pixels along the longer side: more than a notebook's column shows.
_MAX_SIDE = 1024
# Pixels along the longer side of a picture in a notebook: single ones can be seen, and it is no speck.
SMALLEST = 256
_MAGENTA = (255, 0, 255, 255)


def is_image(element: SlangType, shape: tuple[int, ...]) -> bool:
    """Return whether an array shows as a picture.

    Its numbers are of type ``float``, ``half``, ``bfloat16``, ``double`` or ``uint8_t``. It has two dimensions, of
    vectors of 3 or 4 or of numbers; or three, of which the last one is 1, 3 or 4. If its elements are numbers, it has
    8 rows and columns at least.
    """
    if element.kind != "storage" and element.scalar not in ("float", "half", "double", "uint8_t"):
        return False
    if element.kind == "vector":
        return len(shape) == 2 and element.shape in ((3,), (4,))
    channels = shape[2:] in ((), (1,), (3,), (4,))
    return element.kind in ("scalar", "storage") and len(shape) >= 2 and channels and min(shape[:2]) >= 8


def png(array: npt.NDArray[Any], least: int = 1) -> bytes | None:
    """Write an array as a picture in PNG format.

    Floats are linear light from 0 to 1, shown through the sRGB curve; other values are clipped. An alpha channel has
    no curve. Integers are taken as they are. NaN is magenta. Of a picture of more than 1024 pixels a side, only every
    second, third, ... row and column is kept.

    Parameters
    ----------
    array : numpy.ndarray
        Floats or uint8, shape (height, width), or (height, width, 1, 3 or 4), the top row first.
    least : int
        Pixels that the longer side has at least: those of a smaller picture become squares.

    Returns
    -------
    bytes or None
        None without Pillow, or for an array without pixels.
    """
    try:
        from PIL import Image
    except ImportError:
        return None
    if array.size == 0:
        return None
    step = -(-max(array.shape[:2]) // _MAX_SIDE)
    pixels = array[::step, ::step]
    if pixels.shape[2:] == (1,):
        pixels = pixels[..., 0]
    if pixels.dtype.kind == "f":
        pixels = _quantize(pixels.astype(np.float32))
    times = -(-least // max(pixels.shape[:2]))
    if times > 1:
        pixels = pixels.repeat(times, axis=0).repeat(times, axis=1)
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def _quantize(linear: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    clipped = np.clip(np.nan_to_num(linear, nan=0, posinf=1, neginf=0), 0, 1)
    shown = encoded(clipped)
    if linear.shape[2:] == (4,):
        shown[..., 3] = clipped[..., 3]
    pixels = (shown * 255 + 0.5).astype(np.uint8)
    bad = np.isnan(linear)
    if bad.any():
        if pixels.ndim == 2:
            pixels, bad = np.repeat(pixels[..., None], 3, axis=-1), bad[..., None]
        pixels[bad.any(axis=-1)] = _MAGENTA[: pixels.shape[-1]]
    return pixels
