"""Pictures: arrays as PNG files, for notebooks. Nothing here knows of devices, and nothing writes a file."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

# Pixels along the longer side: more than a notebook's column shows.
_MAX_SIDE = 1024
_MAGENTA = (255, 0, 255, 255)


def png(array: npt.NDArray[Any]) -> bytes | None:
    """Write an array as a picture in PNG format.

    Floats are linear light from 0 to 1, shown through the sRGB curve; other values are clipped. An alpha channel has
    no curve. Integers are taken as they are. NaN is magenta. Of a picture of more than 1024 pixels a side, only every
    second, third, ... row and column is kept.

    Parameters
    ----------
    array : numpy.ndarray
        Floats or uint8, shape (height, width), (height, width, 3) or (height, width, 4), the top row first.

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
    if pixels.dtype.kind == "f":
        pixels = _quantize(pixels.astype(np.float32))
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def _quantize(linear: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    clipped = np.clip(np.nan_to_num(linear, nan=0, posinf=1, neginf=0), 0, 1)
    # IEC 61966-2-1.
    shown = np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * clipped ** (1 / 2.4) - 0.055)
    if linear.shape[2:] == (4,):
        shown[..., 3] = clipped[..., 3]
    pixels = (shown * 255 + 0.5).astype(np.uint8)
    bad = np.isnan(linear)
    if bad.any():
        if pixels.ndim == 2:
            pixels, bad = np.repeat(pixels[..., None], 3, axis=-1), bad[..., None]
        pixels[bad.any(axis=-1)] = _MAGENTA[: pixels.shape[-1]]
    return pixels
