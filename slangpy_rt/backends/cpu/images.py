"""Images of the CPU: memory, and records that tell kernels where it is.

``shaders/cpu_textures.slang`` and ``shaders/_spy_textures.hpp`` read them.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from slangpy_rt.backends.base import Backend, Buffer
from slangpy_rt.backends.images import MOST_LEVELS, Image, ImageDesc, Images, SamplerDesc
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.formats import Format

_KINDS = {"unorm": 0, "unorm_srgb": 1, "float": 3, "uint": 4, "sint": 4}
_HALF = 2
# struct _spy_Image and struct _spy_Level.
_HEAD, _LEVEL = struct.Struct("<4iQq48s"), struct.Struct("<Q4i2q")
_RECORD = _HEAD.size + MOST_LEVELS * _LEVEL.size
# What Slang's C++ has for Sampler2D: a texture, and a sampler. SPIR-V has 8 bytes for it, the texture's, so that the
# texture's record ends with the sampler.
_PAIR = struct.Struct("<2Q")
# Behind the levels: the sampler, and the texel that atomic operations change which are out of bounds.
_OWN = struct.Struct("<Q16x")
# struct _spy_Sampler.
_SAMPLER = struct.Struct("<6i3f")
_WRAPS = ("repeat", "mirror", "clamp", "border")
_MIPS = ("none", "nearest", "linear")
_BORDERS = ("transparent", "black", "white")
# As many as every Vulkan device takes, so that programs run there too.
_MOST_SAMPLERS = 1024


class CpuImages(Backend, Images):
    """The part of the CPU's backend that keeps images. A handle is the address of a record."""

    pointed = True

    _turn: Any
    _curve: Any = None
    _samplers: dict[SamplerDesc, Buffer]

    def create_image(self, desc: ImageDesc) -> CpuImage:
        self.require_open()
        sizes = [desc.nbytes(level) for level in range(desc.levels)]
        memory = self.alloc(desc.layers * sum(-(-n // 16) * 16 for n in sizes))
        image = CpuImage(self, 0, memory.nbytes, desc)
        at, image.places = memory.address, []
        for n in sizes:
            image.places.append(at)
            at += desc.layers * (-(-n // 16) * 16)
        image.chunk, image.records = (memory,), {}
        image.address = self.image_handle(image, None, False, None)
        return image

    def image_handle(self, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        assert isinstance(image, CpuImage)
        found = image.records.get((level, sampler))
        if found is None:
            how = 0 if sampler is None else self.sampler_handle(sampler)
            data = self._record(image, level) + _OWN.pack(how)
            record = self.alloc(_PAIR.size + len(data))
            if how:
                data = _PAIR.pack(record.address + _PAIR.size, how) + data
            ctypes.memmove(record.address, data, len(data))
            found = image.records.setdefault((level, sampler), record)
        return found.address

    def sampler_handle(self, desc: SamplerDesc) -> int:
        self.require_open()
        with self._turn:
            if desc not in self._samplers:
                if len(self._samplers) >= _MOST_SAMPLERS:
                    raise UnsupportedError(
                        f"device {self.name}: it has {_MOST_SAMPLERS} different samplers, and there can be no more; "
                        "make fewer and use them again."
                    )
                data = _SAMPLER.pack(
                    desc.filter == "linear", _MIPS.index(desc.mip), *map(_WRAPS.index, desc.wrap),
                    _BORDERS.index(desc.border), desc.bias, desc.least, desc.most,
                )  # fmt: skip
                record = self.alloc(len(data))
                ctypes.memmove(record.address, data, len(data))
                self._samplers[desc] = record
            return self._samplers[desc].address

    def copy_image(self, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
        assert isinstance(image, CpuImage)
        nbytes = image.desc.nbytes(level)
        there, here = image.places[level] + layer * (-(-nbytes // 16) * 16), buffer.address + offset
        with self._turn:
            self.require_open()
            ctypes.memmove(*((there, here) if into else (here, there)), nbytes)

    def _record(self, image: CpuImage, level: int | None) -> bytes:
        desc = image.desc
        levels = range(desc.levels) if level is None else (level,)
        half = desc.format.kind == "float" and desc.format.dtype.itemsize == 2
        kind = _HALF if half else _KINDS[desc.format.kind]
        if self._curve is None:
            self._curve = _srgb_curve()
        out = _HEAD.pack(
            kind, desc.format.channels, len(levels), desc.layers, self._curve.ctypes.data, desc.format.nbytes,
            _borders(desc.format),
        )  # fmt: skip
        for k in levels:
            x, y, z = desc.size(k)
            row = x * desc.format.nbytes
            step = y * row if desc.dims == "3d" else -(-desc.nbytes(k) // 16) * 16
            out += _LEVEL.pack(image.places[k], x, y, z, 0, row, step)
        return out.ljust(_RECORD, b"\0")


class CpuImage(Image):
    """An image in host memory.

    Attributes
    ----------
    places : list of int
        The address of each level.
    records : dict of Buffer
        The records of all levels (None) and of single ones, by level and sampler.
    """

    __slots__ = ("places", "records")

    places: list[int]
    records: dict[tuple[int | None, SamplerDesc | None], Buffer]


def _srgb_curve() -> Any:
    """Return the linear light of each byte of the sRGB curve (IEC 61966-2-1), as float32."""
    c = np.arange(256) / 255.0
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4).astype(np.float32)


def _borders(format: Format) -> bytes:
    """Return a texel of transparent black, one of opaque black and one of opaque white, in 16 bytes each."""
    one = 255 if format.kind.startswith("unorm") else 1
    colors = np.array([[0, 0, 0, 0], [0, 0, 0, one], [one, one, one, one]], format.dtype)
    return b"".join(color[: format.channels].tobytes().ljust(16, b"\0") for color in colors)
