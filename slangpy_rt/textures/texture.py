"""Texture: an image on a device, and how one is described. It calls no functions of modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.layout import Laid
from slangpy_rt.backends.images import Image, ImageDesc
from slangpy_rt.core.checks import flag, short_tracebacks, whole
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.formats import format_named, format_of
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, a_device
from slangpy_rt.textures.copies import copied_from, copied_to, read, write
from slangpy_rt.textures.description import MOST_LAYERS, create_image, describe, dims_of
from slangpy_rt.textures.layout import TextureLayout, TextureUse, UsedTexture, layout_of, shape_of, use_of
from slangpy_rt.textures.sampler import images_of, sampler_of
from slangpy_rt.textures.texels import RANKS, converted, native, smaller, with_channels


@short_tracebacks("from_numpy", "to_numpy", "copy_from", "copy_to", "mip", "generate_mips", "with_sampler")
class Texture(Laid):
    """An image on a device, for ``Texture2D`` and ``RWTexture2D`` parameters, or texel by texel for ``float4`` ones.

    ``Texture.from_numpy`` and ``Device.create_texture`` make textures; functions sample them with a ``Sampler``.
    """

    __slots__ = ("_uses", "address", "buffer", "layout")

    # As of arrays: where kernels find it that read it whole or texel by texel, and its memory.
    address: int
    buffer: Image
    layout: TextureLayout
    # What ``used`` returned.
    _uses: dict[TextureUse, UsedTexture]

    def __init__(self) -> None:
        raise BindError("Texture: make one with Texture.from_numpy(device, array) or device.create_texture(...).")

    @classmethod
    def of(cls, layout: TextureLayout, image: Image) -> Texture:
        """Make a texture of a layout and an image; nothing is checked."""
        texture = cls.__new__(cls)
        texture.layout = layout
        texture.buffer = image
        texture._uses = {}
        return texture

    @classmethod
    def from_numpy(
        cls,
        device: DeviceCore,
        array: Any,
        mips: bool = False,
        srgb: bool = False,
        format: Any = None,
        type: str = "2d",
        usage: Any = None,
    ) -> Texture:
        """Make a texture with the texels of an array.

        Parameters
        ----------
        device : Device
            The device that it lies on.
        array : array_like
            Of shape ``(height, width)`` or ``(height, width, channels)`` with 1 to 4 channels; of three channels it
            becomes four, with an alpha of 1. Of other types depth, layers or faces come first:
            ``(depth, height, width, channels)``, ``(layers, height, width)``, ``(6, height, width, channels)``.
            Of dtype float16, float32, or an integer of 8, 16 or 32 bits; 0 to 255 of uint8 are read as 0 to 1 unless
            ``format`` says ``"rgba8_uint"``.
        mips : bool
            Whether to make all smaller levels too, each the mean of the one before.
        srgb : bool
            Whether the bytes are on the sRGB curve, as in pictures; functions then read linear light.
        format : str, optional
            The texel format, ``"rgba8_unorm"``; by the array unless given.
        type : str
            ``"1d"``, ``"2d"``, ``"3d"``, ``"cube"``, ``"1d_array"``, ``"2d_array"`` or ``"cube_array"``.
        usage : str or sequence of str, optional
            As of ``Device.create_texture``.

        Raises
        ------
        BindError
            If the array holds other numbers.
        ShapeError
            If it has another shape.
        UnsupportedError
            If the device has no such textures.
        OutOfMemoryError
            If the device cannot hold it.
        """
        where = "Texture.from_numpy"
        device = a_device(where, device)
        srgb, mips = flag(where, "srgb", srgb), flag(where, "mips", mips)
        dims, layered = dims_of(where, type)
        outer = layered or dims == "cube"
        asked = None if format is None else format_named(where, format)
        if srgb and asked is not None and asked.kind != "unorm_srgb":
            raise BindError(f"{where}: srgb=True beside format={asked.name!r}; leave one of them out.")
        data = native(as_array(f"{where}: array", array))
        opaque = 255 if data.dtype == np.uint8 and (asked is None or asked.filters) else 1
        data = with_channels(where, data, RANKS[dims] + outer, opaque)
        found = asked or format_of(where, data.dtype, data.shape[-1], srgb)
        data = converted(where, data, found)
        layers = data.shape[0] if outer else 1
        depth, height, width = (1, 1, 1, *data.shape[outer:-1])[-3:]
        desc = describe(where, device, found, dims, width, height, depth, layers, layered, 0 if mips else 1, usage)
        made = create(where, device, desc)
        made._fill(data if outer else data[None])
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "address":
            # Found when a kernel first reads it, as descriptors of Vulkan are few.
            self.address = self.used(use_of(self.device, False)).address
            return self.address
        if name in ("with_grads", "grad", "grad_in", "grad_out"):
            raise AttributeError(
                f"Texture.{name}: a texture has no gradients; sample a Tensor instead, spy.Image(tensor)."
            )
        raise AttributeError(f"'Texture' object has no attribute '{name}'", name=name, obj=self)

    @property
    def device(self) -> DeviceCore:
        """The device that the texture lies on."""
        return self.layout.device

    @property
    def format(self) -> str:
        """The texel format: ``"rgba8_unorm"``."""
        return self.layout.desc.format.name

    @property
    def type(self) -> str:
        """The kind of texture: ``"2d"``, ``"cube_array"``."""
        desc = self.layout.desc
        return desc.dims + "_array" * desc.array

    @property
    def width(self) -> int:
        """The number of texels along x, of the first level."""
        return self.layout.desc.size(self.layout.level or 0)[0]

    @property
    def height(self) -> int:
        """The number of texels along y, of the first level."""
        return self.layout.desc.size(self.layout.level or 0)[1]

    @property
    def depth(self) -> int:
        """The number of texels along z, of the first level."""
        return self.layout.desc.size(self.layout.level or 0)[2]

    @property
    def array_length(self) -> int:
        """The number of layers; a cube counts as one."""
        desc = self.layout.desc
        return desc.layers // 6 if desc.dims == "cube" else desc.layers

    @property
    def mip_count(self) -> int:
        """The number of levels."""
        return self.layout.desc.levels if self.layout.level is None else 1

    @property
    def shape(self) -> Shape:
        """The texels as the dimensions of a call: ``(height, width)``; depth, layers or faces come first."""
        return self.layout.shape

    @property
    def nbytes(self) -> int:
        """The bytes of all texels."""
        desc, level = self.layout.desc, self.layout.level
        return desc.layers * sum(desc.nbytes(k) for k in (range(desc.levels) if level is None else (level,)))

    @property
    def sampler(self) -> Any:
        """The ``SamplerDesc`` of the sampler that ``with_sampler`` gave it, or None."""
        return self.layout.sampler

    @property
    def slang_type(self) -> SlangType:
        """The Slang type of a texel, as functions take it: ``float4``."""
        format = self.layout.desc.format
        return element_type("Texture", f"{format.seen}{format.channels if format.channels > 1 else ''}")

    @property
    def summary(self) -> str:
        """The texture in words: ``"Texture of 512 x 256 rgba8_unorm texels"``."""
        x, y, z = self.layout.desc.size(self.layout.level or 0)
        sizes = {"1d": (x,), "2d": (x, y), "3d": (x, y, z), "cube": (x, y)}[self.layout.desc.dims]
        layers = f", {self.array_length} layers" if self.layout.desc.array else ""
        kind = {"1d": "line", "2d": "", "3d": "volume", "cube": "cube"}[self.layout.desc.dims]
        return f"Texture of {' x '.join(map(str, sizes))} {self.format} texels{layers}{f' ({kind})' if kind else ''}"

    def __repr__(self) -> str:
        level = "" if self.layout.level is None else f", level {self.layout.level}"
        sampler = "" if self.layout.sampler is None else ", with a sampler"
        return f"{self.summary}{level}{sampler} on {self.device.name!r}"

    def __copy__(self) -> Texture:
        """Return another texture of the same memory."""
        return self.of(self.layout, self.buffer)

    def __reduce__(self) -> tuple[Any, ...]:
        from slangpy_rt.textures.pickled import state_of, texture_of_state

        return texture_of_state, state_of(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the texels of the largest level for NumPy, in the shape that ``from_numpy`` takes."""
        if copy is False:
            raise ValueError(f"{self.summary} becomes a NumPy array by a copy; copy=False asks for none.")
        desc = self.layout.desc
        layered = desc.array or desc.dims == "cube"
        found = np.stack([self.to_numpy(layer=k) for k in range(desc.layers)]) if layered else self.to_numpy()
        return found if dtype is None else found.astype(dtype)

    def _repr_png_(self) -> bytes | None:
        """Return a PNG of the largest level of a plain texture, for notebooks; None if there is none to show."""
        from slangpy_rt.arrays.picture import SMALLEST, png

        desc = self.layout.desc
        plain = desc.dims == "2d" and not desc.array and desc.format.channels != 2 and desc.format.dtype.char in "Bef"
        return png(self.to_numpy(), SMALLEST) if plain and not self.device.closed else None

    def used(self, use: TextureUse) -> UsedTexture:
        """Return the texture as an argument of a kernel, and remember it."""
        found = self._uses.get(use)
        if found is None:
            self.device.check_open()
            backend = images_of("Texture", self.device)
            level = self.layout.level
            if use.writes and level is None:
                level = 0
            handle = backend.image_handle(self.buffer, level, use.writes, use.sampler)
            found = self._uses[use] = UsedTexture(handle, self.buffer)
        return found

    def to_numpy(self, mip: int = 0, layer: int = 0) -> npt.NDArray[Any]:
        """Return the texels of one layer of a level, after all work that was queued.

        Parameters
        ----------
        mip : int
            The level.
        layer : int
            The layer; of cubes each face counts, in the order +x, -x, +y, -y, +z, -z.

        Returns
        -------
        ndarray
            Of shape ``(height, width, channels)``; without the last dimension if there is one channel, with the depth
            first of a volume.
        """
        level, layer = self._place("Texture.to_numpy", mip, layer)
        desc = self.layout.desc
        inner = shape_of(desc._replace(array=False, dims="2d" if desc.dims == "cube" else desc.dims), level)
        texels = np.empty((*inner, desc.format.channels), desc.format.dtype)
        read(self.device, self.buffer, level, layer, texels)
        return texels[..., 0] if desc.format.channels == 1 else texels

    numpy = to_numpy

    def copy_from(self, source: Any, mip: int = 0, layer: int = 0) -> Texture:
        """Copy texels into one layer of a level: of a texture, a Tensor, an NDBuffer or an array of the host.

        Parameters
        ----------
        source : Texture, Tensor, NDBuffer or array_like
            Texels as ``to_numpy`` returns them; a Tensor of vectors such as ``float4`` too, and the first level of a
            texture. Numbers are not converted: they are those that the format stores.
        mip, layer : int
            As of ``to_numpy``.

        Raises
        ------
        BindError
            If it holds other numbers, or lies on another device.
        ShapeError
            If it has another shape.
        """
        where = "Texture.copy_from"
        level, layer = self._place(where, mip, layer)
        copied_from(where, self, level, layer, source)
        return self

    def copy_to(self, array: Any, mip: int = 0, layer: int = 0) -> None:
        """Copy the texels of one layer of a level into a Tensor or NDBuffer on the same device, without the host.

        Parameters
        ----------
        array : Tensor or NDBuffer
            An array of the shape that ``to_numpy`` returns, or of vectors; contiguous. Numbers are not converted.
        mip, layer : int
            As of ``to_numpy``.

        Raises
        ------
        BindError
            If it is no such array, or lies on another device.
        ShapeError
            If it has another shape, or other numbers.
        """
        level, layer = self._place("Texture.copy_to", mip, layer)
        copied_to("Texture.copy_to", self, level, layer, array)

    def mip(self, level: int) -> Texture:
        """Return a view of one level, which functions take as a texture of that level alone."""
        found, _ = self._place("Texture.mip", level, 0)
        return self.of(layout_of(self.device, self.layout.desc, found, self.layout.sampler), self.buffer)

    def generate_mips(self) -> Texture:
        """Make all levels but the first anew, each of the means of the one before, as ``from_numpy`` does.

        The means are computed on the host: in light of the sRGB curve, and of odd sizes by the parts that each texel
        covers. Of whole numbers one in four is kept.

        Raises
        ------
        BindError
            If the texture is a view of one level.
        """
        if self.layout.level is not None:
            raise BindError("Texture.generate_mips: this is a view of one level; call it on the texture itself.")
        desc = self.layout.desc
        inner = shape_of(desc._replace(array=True), 0)
        texels = np.empty((*inner, desc.format.channels), desc.format.dtype)
        for layer in range(desc.layers):
            read(self.device, self.buffer, 0, layer, texels[layer])
        self._fill(texels, 1)
        return self

    def with_sampler(self, sampler: Any) -> Texture:
        """Return the same texture with a sampler, for ``Sampler2D`` parameters.

        On CUDA, where textures are looked up by samplers of their own, it is also how ``Texture2D`` parameters of one
        call get different samplers.

        Parameters
        ----------
        sampler : Sampler or dict
            A sampler, or the arguments of ``Device.create_sampler``.

        Raises
        ------
        BindError
            If it is no sampler, of another device, or blends texels that are whole numbers.
        """
        where = "Texture.with_sampler"
        found = sampler_of(where, self.device, sampler)
        if found.device is not self.device:
            raise BindError(f"{where}: the sampler is of {found.device!r}, the texture of {self.device!r}.")
        if found.desc.blends and not self.layout.desc.format.filters:
            raise BindError(
                f"{where}: the sampler blends, and the texels of {in_words(self)} are whole numbers, of which there "
                "are no means; pass filter='nearest' and mip='nearest'."
            )
        return self.of(layout_of(self.device, self.layout.desc, self.layout.level, found.desc), self.buffer)

    def _place(self, where: str, mip: Any, layer: Any) -> tuple[int, int]:
        desc, view = self.layout.desc, self.layout.level
        level = whole(where, "mip", mip, 0, (desc.levels if view is None else 1) - 1)
        return (level if view is None else view), whole(where, "layer", layer, 0, desc.layers - 1)

    def _fill(self, texels: npt.NDArray[Any], first: int = 0) -> None:
        """Write levels from ``first`` on; the texels are those of the first level, layers first."""
        desc = self.layout.desc
        for level in range(desc.levels):
            if level >= first:
                for layer in range(desc.layers):
                    write(self.device, self.buffer, level, layer, texels[layer])
            if level + 1 < desc.levels:
                texels = smaller(texels, desc.format, RANKS[desc.dims])


def create_texture(
    device: DeviceCore,
    format: Any,
    width: int,
    height: int | None = None,
    depth: int | None = None,
    array_length: int | None = None,
    mip_count: int = 1,
    type: str | None = None,
    usage: Any = None,
) -> Texture:
    """Make a texture whose texels are undefined; the parameters are those of ``Device.create_texture``."""
    where = "create_texture"
    found = format_named(where, format)
    if type is None:
        type = "3d" if depth is not None else "2d" if height is not None else "1d"
        type += "_array" * (array_length is not None)
    dims, layered = dims_of(where, type)
    for name, value, has in (
        ("height", height, dims != "1d"), ("depth", depth, dims == "3d"), ("array_length", array_length, layered)
    ):  # fmt: skip
        if not has and value not in (None, 1):
            raise BindError(f"{where}: {name} is {in_words(value)}; a texture of type {type!r} has none.")
    count = 1 if array_length is None else array_length
    layers = whole(where, "array_length", count, 1, MOST_LAYERS) * (6 if dims == "cube" else 1)
    y = height if height is not None else width if dims == "cube" else 1
    desc = describe(
        where, device, found, dims, width, y, 1 if depth is None else depth, layers, layered, mip_count, usage
    )
    return create(where, device, desc)


def create(where: str, device: DeviceCore, desc: ImageDesc) -> Texture:
    """Make a texture that was described."""
    return Texture.of(layout_of(device, desc), create_image(where, device, desc))
