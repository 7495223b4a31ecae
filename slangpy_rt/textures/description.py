"""Checks what a texture is described by, puts it into an ImageDesc, and makes images of it; it makes no textures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slangpy_rt.backends.images import MOST_LEVELS, Image, ImageDesc, Images
from slangpy_rt.core.checks import whole
from slangpy_rt.core.errors import BindError, OutOfMemoryError, ShapeError, UnsupportedError
from slangpy_rt.core.formats import CHANNELS, Format
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.textures.sampler import images_of

TYPES = ("1d", "2d", "3d", "cube", "1d_array", "2d_array", "cube_array")
_USAGES = ("shader_resource", "unordered_access")
# What every device takes: of lines and planes, of volumes, of layers.
_MOST, _MOST_VOLUME, MOST_LAYERS = 16384, 2048, 2048


def describe(
    where: str,
    device: DeviceCore,
    format: Format,
    dims: str,
    width: Any,
    height: Any,
    depth: Any,
    layers: int,
    array: bool,
    levels: Any,
    usage: Any,
) -> ImageDesc:
    """Check what a texture is made of; ``levels`` of 0 are all that there can be."""
    backend = images_of(where, device)
    most = _MOST_VOLUME if dims == "3d" else _MOST
    x = whole(where, "width", width, 1, most)
    y, z = whole(where, "height", height, 1, most), whole(where, "depth", depth, 1, most)
    if dims == "cube" and (x != y or layers % 6):
        raise ShapeError(f"{where}: {layers} faces of {x} x {y} texels; a cube has six of equal width and height.")
    if layers > MOST_LAYERS * (6 if dims == "cube" else 1):
        raise ShapeError(f"{where}: {layers} layers; a texture has at most {MOST_LAYERS}.")
    every = min(max(x, y, z).bit_length(), MOST_LEVELS)
    asked = whole(where, "mip_count", levels, 0, every)
    return ImageDesc(format, dims, x, y, z, layers, array, asked or every, _writable(where, backend, format, usage))


def create_image(where: str, device: DeviceCore, desc: ImageDesc) -> Image:
    """Make an image that was described, whose texels are undefined."""
    device.check_open()
    backend = images_of(where, device)
    try:
        return backend.create_image(desc)
    except OutOfMemoryError:
        # Work that is still queued may hold freed memory.
        device.synchronize()
        return backend.create_image(desc)


def dims_of(where: str, type: Any) -> tuple[str, bool]:
    """Return the dimensions of a type of texture, and whether it has layers.

    Raises
    ------
    BindError
        If there is none of that name.
    """
    name = str.removeprefix(type, "texture_") if isinstance(type, str) else ""
    if name not in TYPES:
        raise BindError(f"{where}: type is {in_words(type)}; one of {', '.join(map(repr, TYPES))} was expected.")
    dims, _, layered = name.partition("_")
    return dims, bool(layered)


def _writable(where: str, backend: Images, format: Format, usage: Any) -> bool:
    """Return whether kernels may write to a texture: as ``usage`` says, or else wherever the format allows it."""
    if usage is None:
        return backend.stores(format)
    names = (usage,) if isinstance(usage, str) else tuple(usage) if isinstance(usage, Iterable) else ("",)
    if not all(isinstance(n, str) and n in _USAGES for n in names):
        raise BindError(
            f"{where}: usage is {in_words(usage)}; {' and '.join(map(repr, _USAGES))} were expected, or one of them."
        )
    if "unordered_access" in names and not format.stores:
        raise UnsupportedError(
            f"{where}: kernels do not write {format.name}, since no device writes the sRGB curve; use "
            f"{format.name.removesuffix('_srgb')}, or leave 'unordered_access' out."
        )
    if "unordered_access" in names and not backend.stores(format):
        raise UnsupportedError(
            f"{where}: kernels of this device write channels of 32 bits, and not {format.name}; use "
            f"{CHANNELS[format.channels]}32_float, or leave 'unordered_access' out."
        )
    return "unordered_access" in names
