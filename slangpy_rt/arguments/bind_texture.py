"""Textures and samplers as arguments: whole, for parameters of their own types, or texel by texel.

``bind`` decides which of these a parameter takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.bound import CONVERTED, EXACT, Bound
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.nested_packers import ConvertedPacker
from slangpy_rt.arguments.texture_packers import SamplerPacker, TexturePacker
from slangpy_rt.arguments.texture_types import SAMPLER, TextureType, texture_type
from slangpy_rt.backends.images import ImageDesc
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.formats import CHANNELS, FORMATS
from slangpy_rt.core.shapes import Shape, contiguous
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import another
from slangpy_rt.textures.description import describe
from slangpy_rt.textures.sampler import Sampler, images_of, sampler_of
from slangpy_rt.textures.texture import Texture, create

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

_KINDS = {"1d": "1D", "2d": "2D", "3d": "3D", "cube": "Cube"}
# By the scalar of a function's result, the format of one channel.
_RESULTS = {
    "float": "32_float", "half": "16_float", "uint": "32_uint", "int": "32_sint", "uint16_t": "16_uint",
    "int16_t": "16_sint", "uint8_t": "8_uint", "int8_t": "8_sint",
}  # fmt: skip
_VECTORS = {"float": ("float", "half"), "uint": ("uint",), "int": ("int",)}


def bind_resource(where: str, device: DeviceCore, param: Param, value: Any) -> Bound:
    """Bind a texture or a sampler to a parameter that takes it whole.

    Raises
    ------
    BindError
        If the value is no such texture or sampler, or of another device.
    UnsupportedError
        If the device has no textures, or no such parameters.
    """
    type_ = param.type
    images_of(where, device)
    if param.direction != "in":
        raise UnsupportedError(f"{where}: '{type_.name}' is '{param.direction}'; declare it without that word.")
    if type_.name == SAMPLER:
        return _bind_sampler(where, device, param, value)
    wanted = texture_type(type_)
    assert wanted is not None
    if not isinstance(value, Texture):
        named = value.get("_type") if isinstance(value, dict) else None
        words = f"the value of a struct '{named}'" if isinstance(named, str) else in_words(value)
        raise BindError(f"{where} is {words}; '{type_.name}' takes a Texture, as Texture.from_numpy makes.")
    check_texture(where, device, value, wanted, type_.name)
    access = "inout" if wanted.writes else "in"
    sampler, via = value.layout.sampler if wanted.combined else None, ""
    if wanted.combined:
        if sampler is None:
            raise BindError(f"{where} is {in_words(value)} without a sampler; pass texture.with_sampler(...).")
        via = "*" if images_of(where, device).pointed else ""
    packer = TexturePacker(device, wanted.writes, sampler)
    return Bound(
        param.name, type_, "uint64_t", 1, access, "handle", (), (), True, "", packer, via=via, texture=value.layout
    )


def bind_texels(where: str, device: DeviceCore, name: str, type_: SlangType, access: str, value: Texture) -> Bound:
    """Bind a texture whose texels are the elements of a call, one for each run of the function.

    Raises
    ------
    BindError
        If its texels are no such values, or must not be written.
    UnsupportedError
        If the device has no textures.
    """
    images_of(where, device)
    desc = value.layout.desc
    seen, own = (
        f"{scalar}{desc.format.channels if desc.format.channels > 1 else ''}"
        for scalar in (desc.format.seen, desc.format.own)
    )
    as_half = access == "in" and type_.name == seen.replace("float", "half")
    if type_.name not in (seen, own) and not as_half:
        change = (
            "Copy the texels, tensor.copy_from(texture), and pass the Tensor."
            if container(type_) is not None or type_.kind == "pointer"
            else "Change the parameter's type, or the texture's format."
        )
        raise BindError(
            f"{where} is {in_words(value)}, whose texels are '{seen}'{f' or {own!r}' if own != seen else ''}; "
            f"'{type_.name}' was expected. {change}"
        )
    if desc.dims == "cube":
        raise BindError(f"{where} is {in_words(value)}; a call runs over the texels of lines, planes and volumes.")
    writes = access != "in"
    kind = f"{'RW' * writes}Texture{_KINDS[desc.dims]}{'Array' * desc.array}<{'*' if type_.name == seen else seen}>"
    wanted = TextureType(writes, False, desc.dims, desc.array, desc.format.seen, desc.format.channels)
    check_texture(where, device, value, wanted, type_.name)
    packer = TexturePacker(device, writes)
    shape = value.layout.shape
    return Bound(
        name, type_, type_.scalar, desc.format.channels, access, "texel", shape, contiguous(shape), True, "", packer,
        via=kind, texture=value.layout, fit=EXACT if type_.name == seen else CONVERTED,
    )  # fmt: skip


def texture_maker(where: str, device: DeviceCore, type_: SlangType, shape: Shape) -> Callable[[], Texture]:
    """Return a function that makes textures for the results of a call of that shape.

    Raises
    ------
    BindError
        If there are no such texels, or textures of no such shape.
    """
    channels = (type_.shape or (1,))[0]
    if type_.scalar not in _RESULTS or type_.kind not in ("scalar", "vector") or channels not in CHANNELS:
        raise BindError(
            f"{where}: _result='texture' holds values of {', '.join(_RESULTS)}, or vectors of 2 or 4 of them, not "
            f"'{type_.name}'."
        )
    if not 1 <= len(shape) <= 3:
        raise BindError(
            f"{where}: _result='texture' takes a call of one to three dimensions; this one has {len(shape)}."
        )
    format = FORMATS[f"{CHANNELS[channels]}{_RESULTS[type_.scalar]}"]
    if not images_of(where, device).stores(format):
        raise UnsupportedError(
            f"{where}: _result='texture' of '{type_.name}' is {format.name}, and kernels of this device write "
            f"channels of 32 bits; return '{format.seen}{channels if channels > 1 else ''}', or leave _result out."
        )
    x, y, z = (*shape[::-1], 1, 1)[:3]
    desc = describe(f"{where}: _result='texture'", device, format, f"{len(shape)}d", x, y, z, 1, False, 1, None)
    return partial(create, where, device, desc)


def check_texture(where: str, device: DeviceCore, value: Texture, wanted: TextureType, name: str) -> None:
    """Refuse a texture of another device, of other dimensions or texels, or one that kernels must not write."""
    desc = value.layout.desc
    if value.device is not device:
        raise BindError(f"{where} is on {another(value.device, device)}; the module runs on {device!r}.")
    if (desc.dims, desc.array) != (wanted.dims, wanted.array):
        fitting = f"Texture{_KINDS[desc.dims]}{'Array' * desc.array}"
        raise BindError(f"{where} is {in_words(value)}, which goes where functions take '{fitting}', not '{name}'.")
    if wanted.scalar not in _VECTORS[desc.format.seen]:
        raise BindError(
            f"{where} is {in_words(value)}, whose texels are read as {desc.format.seen}; '{name}' reads "
            f"'{wanted.scalar}'."
        )
    if wanted.writes:
        check_writable(where, value, wanted, name)


def check_writable(where: str, value: Texture, wanted: TextureType, name: str) -> None:
    """Refuse a texture that kernels must not write, or whose texels have other channels than they write."""
    desc: ImageDesc = value.layout.desc
    if not desc.writable:
        how = (
            f"no device writes the sRGB curve; make it {desc.format.name.removesuffix('_srgb')}"
            if not desc.format.stores
            else _how_to_write(value)
        )
        raise BindError(f"{where} is {in_words(value)}, which kernels must not write: {how}.")
    if wanted.scalar == "half" and not images_of(where, value.device).stores(FORMATS["r16_float"]):
        raise BindError(
            f"{where}: '{name}' writes channels of 16 bits, and kernels of this device write channels of 32; declare "
            "it with float."
        )
    if wanted.channels != desc.format.channels:
        raise BindError(
            f"{where} is {in_words(value)} of {desc.format.channels} channels; '{name}' writes {wanted.channels}."
        )


def _how_to_write(value: Texture) -> str:
    """Return what to do with a texture of a format that could be written, and that kernels must not write."""
    format = value.layout.desc.format
    if images_of("Texture", value.device).stores(format):
        return "make it with usage='unordered_access'"
    return f"this device writes channels of 32 bits, such as {CHANNELS[format.channels]}32_float"


def _bind_sampler(where: str, device: DeviceCore, param: Param, value: Any) -> Bound:
    if isinstance(value, dict):
        # Equal descriptions are one sampler, so that each call finds it again.
        made = sampler_of(where, device, value)
        inner = SamplerPacker(made.layout)
        packer: Any = ConvertedPacker(lambda v: sampler_of(where, device, v), inner, False)
    elif isinstance(value, Sampler):
        if value.device is not device:
            raise BindError(f"{where} is on {another(value.device, device)}; the module runs on {device!r}.")
        packer = SamplerPacker(value.layout)
    else:
        raise BindError(
            f"{where} is {in_words(value)}; '{param.type.name}' takes a Sampler, as device.create_sampler() makes, "
            "or a dict of its parameters."
        )
    return Bound(param.name, param.type, "uint64_t", 1, "in", "handle", (), (), True, "", packer)
