"""Texels in host memory: arrays as a texture takes them, and smaller levels of an image. No device is used here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.srgb import decoded, encoded
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.formats import CHANNELS, Format
from slangpy_rt.core.wording import in_words

Array = npt.NDArray[Any]
# Dimensions of one layer, slowest first.
RANKS = {"1d": 1, "2d": 2, "3d": 3, "cube": 2}


def native(array: Array) -> Array:
    """Return an array whose numbers are in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def with_channels(where: str, array: Array, rank: int, opaque: int) -> Array:
    """Return an array with a last dimension of 1, 2 or 4 channels; three become four, the last of them ``opaque``.

    Raises
    ------
    ShapeError
        If it has not that many dimensions, or other channels.
    """
    if array.ndim == rank:
        return array[..., None]
    if array.ndim != rank + 1:
        raise ShapeError(
            f"{where}: {in_words(array)}; {rank} dimensions of texels were expected, or {rank + 1} with 1 to 4 "
            "channels in the last one."
        )
    channels = array.shape[-1]
    if channels == 3:
        last = np.full((*array.shape[:-1], 1), opaque, array.dtype)
        return np.concatenate([array, last], axis=-1)
    if channels not in CHANNELS:
        raise ShapeError(
            f"{where}: {in_words(array)}; its last dimension counts channels, of which there are 1 to 4."
        )
    return array


def converted(where: str, array: Array, format: Format) -> Array:
    """Return texels as a format stores them, C-contiguous.

    Raises
    ------
    BindError
        If the numbers are not those of the format.
    ShapeError
        If there are other channels.
    """
    if array.dtype != format.dtype:
        raise BindError(
            f"{where}: {in_words(array)}; {format.name} holds numbers of dtype {format.dtype}: pass "
            f"array.astype(numpy.{format.dtype})."
        )
    if array.shape[-1] != format.channels:
        raise ShapeError(f"{where}: {in_words(array)}; {format.name} has {format.channels} channels.")
    return np.ascontiguousarray(array.astype(format.dtype, copy=False))


def smaller(texels: Array, format: Format, axes: int) -> Array:
    """Return the next smaller level of an image: means of the texels that each of its texels covers.

    Parameters
    ----------
    texels : ndarray
        Of shape ``(..., channels)``, as the format stores them; the ``axes`` dimensions before the last are halved.
    format : Format
        Means of ``unorm_srgb`` are those of the light; whole numbers keep one texel of each group.
    """
    if not format.filters:
        for k in range(axes):
            texels = np.take(texels, np.arange(max(texels.shape[~k - 1] // 2, 1)) * 2, axis=~k - 1)
        return texels
    light = _light(texels, format)
    for k in range(axes):
        light = _halved(light, light.ndim - 2 - k)
    return _stored(light, format)


def _halved(light: Array, axis: int) -> Array:
    """Return means along an axis of n texels: n // 2 of them, each over n / (n // 2) texels."""
    n = light.shape[axis]
    if n == 1:
        return light
    m = n // 2
    light = np.moveaxis(light, axis, 0)
    if n % 2 == 0:
        out = 0.5 * (light[0::2] + light[1::2])
    else:
        # Of 2 m + 1 texels each of m texels covers 2 + 1 / m: parts of three.
        k = np.arange(m).reshape(-1, *[1] * (light.ndim - 1))
        out = ((m - k) * light[0:-1:2] + m * light[1::2] + (k + 1) * light[2::2]) / n
    return np.moveaxis(out, 0, axis)


def _light(texels: Array, format: Format) -> Array:
    if format.kind == "float":
        return texels.astype(np.float64)
    light = texels / 255.0
    if format.kind == "unorm_srgb":
        light[..., :3] = decoded(light[..., :3])
    return light


def _stored(light: Array, format: Format) -> Array:
    if format.kind == "float":
        return light.astype(format.dtype)
    if format.kind == "unorm_srgb":
        light[..., :3] = encoded(light[..., :3])
    found: Array = np.rint(np.clip(light, 0, 1) * 255).astype(np.uint8)
    return found
