"""The sRGB curve, between linear light and the numbers of image files. Functions here take NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def encoded(linear: Array) -> Array:
    """Return numbers from 0 to 1 of linear light as the sRGB curve has them (IEC 61966-2-1)."""
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0) ** (1 / 2.4) - 0.055)


def decoded(shown: Array) -> Array:
    """Return numbers of the sRGB curve, from 0 to 1, as linear light."""
    return np.where(shown <= 0.04045, shown / 12.92, ((np.maximum(shown, 0) + 0.055) / 1.055) ** 2.4)


def curved(image: Array, curve: Any) -> Array:
    """Return an image of shape (height, width, channels) with a curve applied to all channels but alpha."""
    channels = image.shape[-1]
    if channels in (1, 3):
        found: Array = curve(image)
        return found
    out = image.copy()
    out[..., :-1] = curve(image[..., :-1])
    return out
