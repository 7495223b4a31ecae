"""RhiImages: textures and samplers of slang-rhi, which kernels find by its bindless descriptors.

Only devices whose arrays are reached by descriptors have them, as D3D12's are: kernels of slang-rhi's Vulkan that get
a pointer to their arguments end the process when they use one. Textures are in the state of a resource that shaders
read; a launch that writes to one changes that, and changes it back. slang-rhi does not see which textures a kernel
uses, so that each batch of work keeps them. Texels are copied by the host.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.images import Image, ImageDesc, Images, SamplerDesc
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import apart

_WRAPS = {"repeat": "wrap", "mirror": "mirror_repeat", "clamp": "clamp_to_edge", "border": "clamp_to_border"}
_BORDERS = {"transparent": (0, 0, 0, 0), "black": (0, 0, 0, 1), "white": (1, 1, 1, 1)}
_FILTERS = {"nearest": "point", "linear": "linear", "none": "point"}
# No buffer has such an address: descriptors' indices have 24 bits above 40 bits of an offset.
_ADDRESSES = itertools.count(1 << 64)
# The descriptors to ask for.
TEXTURES, SAMPLERS = 1 << 14, 1024


class RhiImages(Images):
    """The part of ``RhiBackend`` that keeps images."""

    def create_image(self: Any, desc: ImageDesc) -> Image:
        found: Image = apart(self._create_image, desc)
        return found

    def image_handle(self: Any, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        found: int = apart(self._image_handle, image, level, writes, sampler)
        return found

    def sampler_handle(self: Any, desc: SamplerDesc) -> int:
        found: int = apart(self._sampler_handle, desc)
        return found

    def copy_image(self: Any, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
        desc = image.desc
        data = np.empty(desc.nbytes(level), np.uint8)
        if into:
            self.download(buffer, offset, data.data)
            with self._lock:
                # Work that was encoded before comes first.
                self._submissions.submit()
                texels = data.view(desc.format.dtype).reshape(_shape(desc, level))
                image.chunk.texture.copy_from_numpy(texels, layer, level)
            return
        with self._lock:
            self._submissions.submit()
            data[:] = np.ascontiguousarray(image.chunk.texture.to_numpy(layer, level)).view(np.uint8).ravel()
        self.upload(buffer, offset, data.data)

    def _create_image(self: Any, desc: ImageDesc) -> Image:
        spy, device = self._opened.slangpy, self._opened.device
        use = spy.TextureUsage
        usage = use.shader_resource | use.copy_source | use.copy_destination
        usage |= use.unordered_access if desc.writable else use.none
        with self._lock:
            self._submissions.require_open()
            self._submissions.enter()
            try:
                texture = device.create_texture(
                    type=getattr(spy.TextureType, f"texture_{desc.dims}{'_array' * desc.array}"),
                    format=getattr(spy.Format, desc.format.name), width=desc.width, height=desc.height,
                    depth=desc.depth, array_length=desc.layers // (6 if desc.dims == "cube" else 1),
                    mip_count=desc.levels, usage=usage, default_state=spy.ResourceState.shader_resource,
                )  # fmt: skip
            except (RuntimeError, MemoryError) as error:
                raise OutOfMemoryError(
                    f"device {self.name}: a texture of {desc.format.name} could not be made ({error}). Free some "
                    "textures or use smaller ones."
                ) from None
        nbytes = desc.layers * sum(desc.nbytes(k) for k in range(desc.levels))
        image = Image(self, next(_ADDRESSES), nbytes, desc)
        image.chunk = Chunk(texture)
        return image

    def _image_handle(self: Any, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        if sampler is not None:
            raise UnsupportedError(
                f"device {self.name}: slang-rhi's Sampler2D is not supported; declare a Texture2D and a SamplerState."
            )
        chunk: Chunk = image.chunk
        with self._lock:
            self._submissions.require_open()
            self._submissions.enter()
            if level not in chunk.views:
                one = {"mip": level, "mip_count": 1}
                chunk.views[level] = chunk.texture if level is None else chunk.texture.create_view(**one)
            view = chunk.views[level]
            return int((view.descriptor_handle_rw if writes else view.descriptor_handle_ro).value)

    def _sampler_handle(self: Any, desc: SamplerDesc) -> int:
        spy = self._opened.slangpy
        with self._lock:
            self._submissions.require_open()
            self._submissions.enter()
            if desc not in self._heap.samplers:
                if len(self._heap.samplers) >= SAMPLERS:
                    raise UnsupportedError(
                        f"device {self.name}: it has {SAMPLERS} different samplers, and there can be no more; make "
                        "fewer and use them again."
                    )
                how = getattr(spy.TextureFilteringMode, _FILTERS[desc.filter])
                x, y, z = (getattr(spy.TextureAddressingMode, _WRAPS[w]) for w in desc.wrap)
                most = 0.0 if desc.mip == "none" else desc.most
                self._heap.samplers[desc] = self._opened.device.create_sampler(
                    min_filter=how, mag_filter=how, mip_filter=getattr(spy.TextureFilteringMode, _FILTERS[desc.mip]),
                    address_u=x, address_v=y, address_w=z, mip_lod_bias=desc.bias, max_anisotropy=desc.anisotropy,
                    border_color=spy.float4(*_BORDERS[desc.border]), min_lod=min(desc.least, most), max_lod=most,
                )  # fmt: skip
            return int(self._heap.samplers[desc].descriptor_handle.value)


class Chunk:
    """The objects of slang-rhi of an image: the texture, and views of it by level, None for all levels."""

    __slots__ = ("texture", "views")

    def __init__(self, texture: Any) -> None:
        self.texture = texture
        self.views: dict[int | None, Any] = {}


def _shape(desc: ImageDesc, level: int) -> tuple[int, ...]:
    """Return the shape of a layer as slangpy takes it: without dimensions that the texture lacks, channels last."""
    x, y, z = desc.size(level)
    inner = {"1d": (x,), "2d": (y, x), "3d": (z, y, x), "cube": (y, x)}[desc.dims]
    return inner if desc.format.channels == 1 else (*inner, desc.format.channels)
