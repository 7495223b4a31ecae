"""The optional part of the contract for textures: images, samplers, and the numbers by which kernels find them.

A backend that derives from ``Images`` has ``"textures"`` among ``caps.features``. It knows texels as bytes; what is
in them says the format, which it turns into its driver's number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from slangpy_rt.backends.base import Backend, Buffer
from slangpy_rt.core.formats import Format

# The most levels of an image: the largest has 2^15 - 1 texels each way.
MOST_LEVELS = 15


class ImageDesc(NamedTuple):
    """What an image is made of.

    Attributes
    ----------
    format : Format
        The format of its texels.
    dims : str
        ``"1d"``, ``"2d"``, ``"3d"`` or ``"cube"``.
    width, height, depth : int
        Texels of the largest level; 1 in dimensions that it lacks.
    layers : int
        The number of equal images in it; those of a cube have six faces each, which count as layers.
    array : bool
        Whether functions give the number of a layer.
    levels : int
        The number of levels, each of half the size of the one before.
    writable : bool
        Whether kernels may write to it.
    """

    format: Format
    dims: str
    width: int
    height: int
    depth: int
    layers: int
    array: bool
    levels: int
    writable: bool

    def size(self, level: int) -> tuple[int, int, int]:
        """Return width, height and depth of a level."""
        return max(self.width >> level, 1), max(self.height >> level, 1), max(self.depth >> level, 1)

    def nbytes(self, level: int) -> int:
        """Return the bytes of one layer of a level, without gaps."""
        x, y, z = self.size(level)
        return x * y * z * self.format.nbytes


class SamplerDesc(NamedTuple):
    """How a texture is sampled; the values are those of ``slangpy_rt.textures.Sampler``."""

    filter: str
    mip: str
    wrap: tuple[str, str, str]
    border: str
    anisotropy: int
    bias: float
    least: float
    most: float

    @property
    def blends(self) -> bool:
        """Whether it makes means of texels or of levels, which textures of whole numbers do not have."""
        return "linear" in (self.filter, self.mip)


class Image(Buffer):
    """An image on a device. It is a Buffer, so that launches order it and keep it as they do arrays.

    ``address`` is a number that no other buffer of the device has; kernels do not dereference it.

    Attributes
    ----------
    desc : ImageDesc
        What it is made of.
    """

    __slots__ = ("desc",)

    desc: ImageDesc

    def __init__(self, backend: Backend, address: int, nbytes: int, desc: ImageDesc) -> None:
        super().__init__(backend, address, nbytes)
        self.desc = desc


class Images(ABC):
    """A backend whose kernels read and write images, and sample them.

    Its ``caps.features`` contain ``"textures"``. A handle is a number of 64 bits in the argument block.
    """

    # Whether a handle names an image and a sampler at once, and a sampler by itself has no handle.
    paired: bool = False
    # Whether the handle of a texture with its sampler, ``Sampler2D``, is the address of what Slang takes for it.
    pointed: bool = False

    def stores(self, format: Format) -> bool:
        """Return whether kernels can write texels of a format."""
        return format.stores

    @abstractmethod
    def create_image(self, desc: ImageDesc) -> Image:
        """Create an image, whose contents are undefined. It is freed like a buffer that ``alloc`` returns.

        Raises
        ------
        OutOfMemoryError
            If the device does not have so much memory left.
        UnsupportedError
            If it has no images of that format, size or kind.
        """

    @abstractmethod
    def image_handle(self, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        """Return the handle of all levels of an image, or of one, which kernels then see as level 0.

        Parameters
        ----------
        writes : bool
            Whether the kernel has a ``RWTexture``, which takes one level.
        sampler : SamplerDesc or None
            The sampler that the handle names besides: for ``Sampler2D``, and wherever ``paired``.
        """

    @abstractmethod
    def sampler_handle(self, desc: SamplerDesc) -> int:
        """Return the handle of a sampler; equal descriptions have one. It lives as long as the device.

        Raises
        ------
        UnsupportedError
            If the device has no such sampler, or no room for another one.
        """

    @abstractmethod
    def copy_image(self, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
        """Queue a copy between one layer of a level and a buffer, in order with the device's own queue.

        The bytes in the buffer have no gaps, and begin at ``offset``, a multiple of 16.

        Parameters
        ----------
        into : bool
            Whether the image is written.
        """
