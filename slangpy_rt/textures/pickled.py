"""What a pickle holds of a texture: what it is made of, its sampler and its texels; of a view, its one level."""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.arrays.layout import Laid
from slangpy_rt.backends.images import ImageDesc, SamplerDesc
from slangpy_rt.core.checks import flag, whole
from slangpy_rt.core.formats import format_named
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, a_device
from slangpy_rt.runtime.pickling import check_values, damaged, reads
from slangpy_rt.textures.copies import read, write
from slangpy_rt.textures.description import MOST_LAYERS, TYPES, create_image, describe
from slangpy_rt.textures.layout import layout_of, shape_of
from slangpy_rt.textures.sampler import describe as describe_sampler

_WHAT = "a texture"


def state_of(texture: Any) -> tuple[Any, ...]:
    """Return the arguments of ``texture_of_state`` that make an equal texture."""
    desc, level = texture.layout.desc, texture.layout.level
    levels = []
    for k in range(desc.levels) if level is None else (level,):
        texels = np.empty(_level_shape(desc, k), desc.format.dtype)
        for layer in range(desc.layers):
            read(texture.device, texture.buffer, k, layer, texels[layer])
        levels.append(texels)
    sampler = texture.layout.sampler
    usage = None if desc.writable or not desc.format.stores else "shader_resource"
    return (
        type(texture), texture.device, texture.format, desc.dims, (texture.width, texture.height, texture.depth),
        desc.layers, desc.array, usage, None if sampler is None else tuple(sampler), levels,
    )  # fmt: skip


@reads(_WHAT)
def texture_of_state(
    kind: Any,
    device: DeviceCore,
    format: str,
    dims: str,
    size: tuple[int, int, int],
    layers: int,
    array: bool,
    usage: str | None,
    sampler: tuple[Any, ...] | None,
    levels: list[Any],
) -> Any:
    """Make a texture of what ``state_of`` returned, on a device.

    Raises
    ------
    BindError, ShapeError
        If an item is of another type, or they do not agree with each other.
    """
    where = "pickle"
    if not isinstance(kind, type) or not issubclass(kind, Laid):
        raise damaged(_WHAT, f"its class is {in_words(kind)}; Texture was expected")
    device = a_device(where, device)
    name = f"{dims}_array" if flag(where, "array", array) else dims
    if not isinstance(dims, str) or dims.endswith("_array") or name not in TYPES:
        raise damaged(_WHAT, f"its type is {in_words(name)}; one of {', '.join(TYPES)} was expected")
    faces = 6 if dims == "cube" else 1
    layers = whole(where, "layers", layers, faces, MOST_LAYERS * faces)
    if not array and layers != faces:
        raise damaged(_WHAT, f"it has {layers} layers; {faces} were expected of type '{dims}'")
    width, height, depth = size
    if (dims == "1d" and height != 1) or (dims != "3d" and depth != 1):
        raise damaged(_WHAT, f"its size is {in_words(size)}, which no texture of type '{dims}' has")
    if not isinstance(levels, list) or not levels:
        raise damaged(_WHAT, f"its levels are {in_words(levels)}; a list of arrays was expected")
    desc = describe(
        where, device, format_named(where, format), dims, width, height, depth, layers, array, len(levels), usage
    )
    texels = [
        check_values(f"level {k} of a texture", own, desc.format.dtype, _level_shape(desc, k))
        for k, own in enumerate(levels)
    ]
    found = None if sampler is None else _sampler(sampler)
    image = create_image(where, device, desc)
    for k, level in enumerate(texels):
        for layer, own in enumerate(level):
            write(device, image, k, layer, own)
    cls: Any = kind
    return cls.of(layout_of(device, desc, sampler=found), image)


def _level_shape(desc: ImageDesc, level: int) -> tuple[int, ...]:
    """Return the shape of a level's texels in a pickle: layers first, channels last."""
    return (*shape_of(desc._replace(array=True), level), desc.format.channels)


def _sampler(given: Any) -> SamplerDesc:
    own = SamplerDesc(*given)
    return describe_sampler(
        "pickle", own.filter, own.wrap, own.mip, own.anisotropy, own.border, own.bias, own.least, own.most
    )
