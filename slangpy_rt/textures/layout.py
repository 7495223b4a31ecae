"""TextureLayout: what prepared calls have to know of a texture, and TextureUse, what a kernel does with one.

Two textures of one layout are served by one call.
"""

from __future__ import annotations

from typing import NamedTuple

from slangpy_rt.arrays.layout import interned
from slangpy_rt.backends.images import Image, ImageDesc, SamplerDesc
from slangpy_rt.core.shapes import Shape
from slangpy_rt.runtime.core import DeviceCore


class TextureLayout:
    """Everything of a texture but its memory.

    Attributes
    ----------
    device : DeviceCore
        The device that it lies on.
    desc : ImageDesc
        What its image is made of.
    level : int or None
        The level that a view shows; None for all levels.
    sampler : SamplerDesc or None
        The sampler that it carries.
    shape : tuple of int
        Its texels, as a call over them runs: ``(height, width)``; depth, layers or faces come first.
    """

    __slots__ = ("__weakref__", "desc", "device", "level", "sampler", "shape")

    def __init__(self, device: DeviceCore, desc: ImageDesc, level: int | None, sampler: SamplerDesc | None) -> None:
        self.device = device
        self.desc = desc
        self.level = level
        self.sampler = sampler
        self.shape = shape_of(desc, level or 0)


class TextureUse:
    """What a kernel does with a texture: textures remember by it how they are found. Equal uses are one object.

    Attributes
    ----------
    writes : bool
        Whether the kernel has a ``RWTexture``.
    sampler : SamplerDesc or None
        The sampler that the texture's number names besides.
    """

    __slots__ = ("__weakref__", "sampler", "writes")

    def __init__(self, writes: bool, sampler: SamplerDesc | None) -> None:
        self.writes = writes
        self.sampler = sampler


class UsedTexture(NamedTuple):
    """A texture as an argument of a kernel, with the attributes that arrays have.

    Attributes
    ----------
    address : int
        The number by which the kernel finds it.
    buffer : Image
        Its memory.
    """

    address: int
    buffer: Image


def layout_of(
    device: DeviceCore, desc: ImageDesc, level: int | None = None, sampler: SamplerDesc | None = None
) -> TextureLayout:
    """Return the interned layout of a texture on a device."""
    key = ("texture", desc, level, sampler)
    return interned(device, key, lambda: TextureLayout(device, desc, level, sampler))


def use_of(device: DeviceCore, writes: bool, sampler: SamplerDesc | None = None) -> TextureUse:
    """Return the interned use of textures on a device."""
    key = ("texture use", writes, sampler)
    return interned(device, key, lambda: TextureUse(writes, sampler))


def shape_of(desc: ImageDesc, level: int) -> Shape:
    """Return the texels of a level as the dimensions of a call: the slowest first, x last."""
    x, y, z = desc.size(level)
    inner = {"1d": (x,), "2d": (y, x), "3d": (z, y, x), "cube": (y, x)}[desc.dims]
    return (desc.layers, *inner) if desc.array or desc.dims == "cube" else inner
