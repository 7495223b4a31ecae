"""A sampler of textures in double precision, by the rules of Vulkan 1.3 (chapter "Texel Operations"), for tests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import slangpy_rt as spy

Array = npt.NDArray[Any]


def blended(device: spy.Device, span: float = 1.0, axes: int = 2, least: float = 3e-6) -> float:
    """How far a linear filter of a device may be from the exact one.

    Hardware rounds the weight of each axis, of the levels too, to 8 bits: Vulkan 1.3, ``subTexelPrecisionBits`` and
    ``mipmapPrecisionBits`` (8 on NVIDIA's and AMD's GPUs); CUDA C++ Programming Guide, "Linear Filtering" (9 bits, 8
    of them behind the point).

    Parameters
    ----------
    span : float
        The largest difference between two texels.
    axes : int
        Along how many axes the filter blends; 0 for a nearest one.
    least : float
        What is allowed where weights have 32 bits: on the CPU and in Mesa's software driver.
    """
    exact = device.name == "cpu" or "llvmpipe" in device.info
    return least if exact else least + axes * span / 256


def decoded(texels: Array, srgb: bool = False) -> Array:
    """What functions read of texels as a format stores them."""
    if texels.dtype != np.uint8:
        return texels.astype(np.float64)
    light = texels / 255.0
    if srgb:
        color = light[..., :3]
        light[..., :3] = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return light


def filled(texels: Array) -> Array:
    """Four channels of texels: green and blue are 0 and alpha is 1 where there are none."""
    out = np.zeros((*texels.shape[:-1], 4))
    out[..., 3] = 1
    out[..., : texels.shape[-1]] = texels
    return out


def sampled(
    levels: Sequence[Array],
    at: Array,
    lod: Array,
    filter: str = "linear",
    mip: str = "linear",
    wrap: str | Sequence[str] = "repeat",
    border: str = "transparent",
    offset: Sequence[int] = (),
) -> Array:
    """Sample levels of shape ``(..., y, x, channels)`` at coordinates ``(n, dims)``, x first; returns ``(n, 4)``."""
    wraps = [wrap] * at.shape[1] if isinstance(wrap, str) else list(wrap)
    d = np.zeros(len(at)) if mip == "none" else np.clip(lod.astype(np.float64), 0, len(levels) - 1)
    if mip == "nearest":
        d = np.ceil(d + 0.5) - 1
    low = np.floor(d).astype(int)
    out = np.zeros((len(at), 4))
    for k, level in enumerate(levels):
        weight = np.where(low == k, 1 - (d - low), 0) + np.where(low == k - 1, d - low, 0)
        if weight.any():
            out += weight[:, None] * _one_level(level, at, filter, wraps, border, offset)
    return out


def faces(directions: Array) -> tuple[Array, Array]:
    """The face of each direction and its place there, by the table of Vulkan 1.3, "Cube Map Face Selection"."""
    x, y, z = directions.astype(np.float64).T
    size = np.abs(directions)
    axis = np.where(
        (size[:, 2] >= size[:, 0]) & (size[:, 2] >= size[:, 1]), 2, np.where(size[:, 1] >= size[:, 0], 1, 0)
    )
    face = 2 * axis + (directions[np.arange(len(x)), axis] < 0)
    across = np.choose(face, [-z, z, x, x, x, -x])
    down = np.choose(face, [-y, -y, z, -z, -y, -y])
    most = np.abs(directions[np.arange(len(x)), axis]).astype(np.float64)
    return face, np.stack([across / most + 1, down / most + 1], -1) / 2


def _one_level(
    level: Array, at: Array, filter: str, wraps: Sequence[str], border: str, offset: Sequence[int]
) -> Array:
    dims = at.shape[1]
    sizes = level.shape[-2::-1][:dims] if dims == level.ndim - 1 else level.shape[:dims][::-1]
    places = [at[:, k].astype(np.float64) * sizes[k] for k in range(dims)]
    shift = [*offset, *[0] * dims][:dims]
    if filter == "nearest":
        return _texels(
            level, [np.floor(p).astype(int) + o for p, o in zip(places, shift, strict=True)], wraps, border
        )
    first = [np.floor(p - 0.5).astype(int) for p in places]
    part = [p - 0.5 - f for p, f in zip(places, first, strict=True)]
    out = np.zeros((len(at), 4))
    for corner in itertools.product((0, 1), repeat=dims):
        weight = np.ones(len(at))
        for c, w in zip(corner, part, strict=True):
            weight *= w if c else 1 - w
        index = [f + c + o for f, c, o in zip(first, corner, shift, strict=True)]
        out += weight[:, None] * _texels(level, index, wraps, border)
    return out


def _texels(level: Array, index: Sequence[Array], wraps: Sequence[str], border: str) -> Array:
    outside = np.zeros(len(index[0]), bool)
    found = []
    for k, (i, mode) in enumerate(zip(index, wraps, strict=False)):
        n = level.shape[-2 - k]
        if mode == "repeat":
            j = i % n
        elif mode == "mirror":
            j = np.where(i % (2 * n) < n, i % (2 * n), 2 * n - 1 - i % (2 * n))
        else:
            j = np.clip(i, 0, n - 1)
        if mode == "border":
            outside |= (i < 0) | (i >= n)
        found.append(j)
    colors = filled(level)[tuple(found[::-1])]
    edge = filled(np.full((1, level.shape[-1]), 0.0 if border != "white" else 1.0))[0]
    if level.shape[-1] == 4:
        edge[3] = 0.0 if border == "transparent" else 1.0
    colors[outside] = edge
    return colors
