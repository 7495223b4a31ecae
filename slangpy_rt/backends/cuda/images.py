"""CudaImages: mipmapped arrays, and the texture and surface objects by which kernels find them.

A texture object holds its sampler, since Slang's CUDA has none. Freed arrays are kept until all streams are done.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver, query
from slangpy_rt.backends.images import Image, ImageDesc, Images, SamplerDesc
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.formats import Format
from slangpy_rt.core.interrupts import apart

# CUarray_format.
_FORMATS = {"u1": 1, "u2": 2, "u4": 3, "i1": 8, "i2": 9, "i4": 10, "f2": 16, "f4": 32}
# CUresourceViewFormat of one channel; of two it is the next number, and of four the one behind that.
_VIEWS = {"u1": 1, "i1": 4, "u2": 7, "i2": 10, "u4": 13, "i4": 16, "f2": 19, "f4": 22}
# CUDA_ARRAY3D_LAYERED, _SURFACE_LDST and _CUBEMAP.
_LAYERED, _SURFACE, _CUBEMAP = 1, 2, 4
# CU_RESOURCE_TYPE_ARRAY and _MIPMAPPED_ARRAY; CU_MEMORYTYPE_DEVICE and _ARRAY.
_ARRAY, _MIPMAPPED = 0, 1
_DEVICE_MEMORY, _ARRAY_MEMORY = 2, 3
# CU_TRSF_READ_AS_INTEGER, _NORMALIZED_COORDINATES, _SRGB and _SEAMLESS_CUBEMAP.
_INTEGER, _NORMALIZED, _SRGB, _SEAMLESS = 1, 2, 16, 64
# CUaddress_mode.
_WRAPS = {"repeat": 0, "clamp": 1, "mirror": 2, "border": 3}
_BORDERS = {"transparent": (0, 0, 0, 0), "black": (0, 0, 0, 1), "white": (1, 1, 1, 1)}
# How a texture is read that the function does not sample.
_PLAIN = SamplerDesc("nearest", "nearest", ("clamp", "clamp", "clamp"), "transparent", 1, 0.0, 0.0, 1000.0)
# So many freed arrays, or bytes of them, are waited for and destroyed at once.
_FEW, _MUCH = 64, 256 << 20
# No memory has such an address.
_FIRST = 1 << 62
_INVALID_VALUE = 1
# Kernels read a texture object's lower bits alone (shaders/_spy_cuda_textures.hpp).
_OBJECT = (1 << 32) - 1

# Methods that make the context current.
IMAGES = ("_create_image", "_image_handle", "_copy_image")


class CudaImages(Images):
    """The part of ``CudaBackend`` that keeps images."""

    paired = True

    def stores(self, format: Format) -> bool:
        # Slang writes surf2Dwrite<float4>(..., x * 16, ...) whatever the format is.
        return format.stores and format.dtype.itemsize == 4

    def create_image(self: Any, desc: ImageDesc) -> Image:
        found: Image = apart(self._create_image, desc)
        return found

    def image_handle(self: Any, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        found: int = apart(self._image_handle, image, level, writes, sampler)
        return found

    def sampler_handle(self, desc: SamplerDesc) -> int:
        return 0

    def copy_image(self: Any, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
        apart(self._copy_image, image, level, layer, buffer, offset, into)

    def _create_image(self: Any, desc: ImageDesc) -> Image:
        self._sweep_images()
        told = FFI_CUDA.new("CUDA_ARRAY3D_DESCRIPTOR *")
        told.width = desc.width
        told.height = desc.height if desc.dims != "1d" else 0
        told.depth = desc.depth if desc.dims == "3d" else desc.layers if desc.array or desc.dims == "cube" else 0
        told.format = _FORMATS[desc.format.dtype.str[1:]]
        told.channels = desc.format.channels
        told.flags = _LAYERED * desc.array | _SURFACE * desc.writable | _CUBEMAP * (desc.dims == "cube")
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            array = FFI_CUDA.new("uintptr_t *")
            status = driver().cuMipmappedArrayCreate(array, told, desc.levels)
            if status == _INVALID_VALUE:
                raise UnsupportedError(
                    f"device cuda: {self.description} has no textures of {desc.format.name} and that size; use a "
                    "smaller one."
                )
            check(status, "creating a texture")
        nbytes = desc.layers * sum(desc.nbytes(k) for k in range(desc.levels))
        image = Image(self, next(_ADDRESSES), nbytes, desc)
        image.chunk = Chunk(int(array[0]), nbytes, self._images.retired)
        self._images.live.add(image.chunk)
        return image

    def _image_handle(self: Any, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        chunk: Chunk = image.chunk
        key = level, writes, sampler
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            if key not in chunk.objects:
                out, cu = FFI_CUDA.new("unsigned long long *"), driver()
                # On an H200 a texture object of one level's array has wrong texels in all layers but the first.
                viewed = level is not None and image.desc.layers > 1 and not writes
                what = FFI_CUDA.new("CUDA_RESOURCE_DESC *")
                if level is None or viewed:
                    what.type, what.of.handle = _MIPMAPPED, chunk.array
                else:
                    what.type, what.of.handle = _ARRAY, _level(chunk.array, level)
                if writes:
                    check(cu.cuSurfObjectCreate(out, what), "creating a surface object")
                else:
                    how = _described(image.desc, sampler or _PLAIN)
                    view = _view(image.desc, level) if level is not None and viewed else FFI_CUDA.NULL
                    check(cu.cuTexObjectCreate(out, what, how, view), "creating a texture object")
                chunk.objects[key] = int(out[0])
            return chunk.objects[key] if writes else _with_facts(chunk.objects[key], image.desc)

    def _copy_image(self: Any, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
        desc = image.desc
        x, y, z = desc.size(level)
        told = FFI_CUDA.new("CUDA_MEMCPY3D *")
        array, memory = (told.dst, told.src) if into else (told.src, told.dst)
        memory.type, memory.device = _DEVICE_MEMORY, buffer.address + offset
        memory.pitch, memory.height = x * desc.format.nbytes, y
        array.type, array.z = _ARRAY_MEMORY, layer
        told.nbytes, told.height, told.depth = x * desc.format.nbytes, y, z
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            array.array = _level(image.chunk.array, level)
            check(driver().cuMemcpy3DAsync_v2(told, self.stream), "copying texels")

    def _sweep_images(self: Any) -> None:
        """Destroy freed arrays once there are many of them; waits for all streams."""
        retired: deque[Chunk] = self._images.retired
        if (len(retired) < _FEW and sum(c.nbytes for c in list(retired)) < _MUCH) or self.captures():
            return
        # Before the wait, so that no other thread takes them, and none comes that the wait is not for.
        taken = _taken(retired)
        self._streams.sync()
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            for chunk in taken:
                self._images.live.discard(chunk)
                destroy(chunk)


_ADDRESSES = itertools.count(_FIRST)


class Freed:
    """The images of a device: all of them, and those of them that are to be destroyed."""

    __slots__ = ("live", "retired")

    def __init__(self) -> None:
        self.live: set[Chunk] = set()
        self.retired: deque[Chunk] = deque()


class Chunk:
    """The driver's objects of an image.

    Attributes
    ----------
    array : int
        The ``CUmipmappedArray``.
    nbytes : int
        Bytes of its texels.
    objects : dict of int
        Its texture and surface objects, by level, access and sampler.
    give : callable
        Adds it to those to be destroyed.
    """

    __slots__ = ("array", "give", "nbytes", "objects")

    def __init__(self, array: int, nbytes: int, retired: deque[Chunk]) -> None:
        self.array = array
        self.nbytes = nbytes
        self.objects: dict[tuple[int | None, bool, SamplerDesc | None], int] = {}
        self.give = partial(retired.append, self)


def _taken(retired: deque[Chunk]) -> list[Chunk]:
    """Take out what a deque holds; others may take from it and add to it meanwhile."""
    taken: list[Chunk] = []
    with suppress(IndexError):
        for _ in range(len(retired)):
            taken.append(retired.popleft())
    return taken


def destroy(chunk: Chunk) -> None:
    """Destroy an image's objects in the current context; statuses are ignored, as on a lost device all calls fail."""
    cu = driver()
    for (_, writes, _), found in chunk.objects.items():
        (cu.cuSurfObjectDestroy if writes else cu.cuTexObjectDestroy)(found)
    cu.cuMipmappedArrayDestroy(chunk.array)


def _level(array: int, level: int) -> int:
    return query(driver().cuMipmappedArrayGetLevel, "uintptr_t *", array, level, what="finding a level")


def _view(desc: ImageDesc, level: int) -> Any:
    """Return the description of one level of an image, with all its layers."""
    view = FFI_CUDA.new("CUDA_RESOURCE_VIEW_DESC *")
    view.format = _VIEWS[desc.format.dtype.str[1:]] + desc.format.channels // 2
    # Not the level's: the driver refuses other sizes than those of the whole image.
    view.width = desc.width
    view.height = desc.height if desc.dims != "1d" else 0
    view.depth = desc.layers
    view.first_level = view.last_level = level
    view.last_layer = desc.layers - 1
    return view


def _with_facts(found: int, desc: ImageDesc) -> int:
    """Return the number by which kernels find a texture object, its channels and layers.

    ``shaders/_spy_cuda_textures.hpp`` says what its bits are.
    """
    layers = desc.layers // 6 if desc.dims == "cube" else desc.layers
    return found & _OBJECT | (4 - desc.format.channels) << 32 | layers << 34


def _described(desc: ImageDesc, sampler: SamplerDesc) -> Any:
    how = FFI_CUDA.new("CUDA_TEXTURE_DESC *")
    # The driver keeps lines as pictures of one row: a border beside that would be mixed in.
    wraps = (sampler.wrap[0], "clamp", "clamp") if desc.dims == "1d" else sampler.wrap
    how.wraps = [_WRAPS[w] for w in wraps]
    blends = desc.format.filters
    how.filter = int(blends and sampler.filter == "linear")
    how.mip_filter = int(blends and sampler.mip == "linear")
    how.flags = _NORMALIZED | (0 if blends else _INTEGER)
    how.flags |= _SRGB * (desc.format.kind == "unorm_srgb") | _SEAMLESS * (desc.dims == "cube")
    how.anisotropy = sampler.anisotropy
    how.bias = sampler.bias
    if sampler.mip != "none":
        how.least, how.most = sampler.least, sampler.most
    how.border = _BORDERS[sampler.border]
    return how
