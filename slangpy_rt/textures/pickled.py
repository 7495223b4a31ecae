"""What a pickle holds of a texture: what it is made of, its sampler and its texels; of a view, its one level."""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.backends.images import SamplerDesc
from slangpy_rt.core.formats import FORMATS
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.textures.copies import read, write
from slangpy_rt.textures.description import create_image, describe
from slangpy_rt.textures.layout import layout_of, shape_of


def state_of(texture: Any) -> tuple[Any, ...]:
    """Return the arguments of ``texture_of_state`` that make an equal texture."""
    desc, level = texture.layout.desc, texture.layout.level
    levels = []
    for k in range(desc.levels) if level is None else (level,):
        inner = shape_of(desc._replace(array=True), k)
        texels = np.empty((*inner, desc.format.channels), desc.format.dtype)
        for layer in range(desc.layers):
            read(texture.device, texture.buffer, k, layer, texels[layer])
        levels.append(texels)
    sampler = texture.layout.sampler
    usage = None if desc.writable or not desc.format.stores else "shader_resource"
    return (
        type(texture), texture.device, texture.format, desc.dims, (texture.width, texture.height, texture.depth),
        desc.layers, desc.array, usage, None if sampler is None else tuple(sampler), levels,
    )  # fmt: skip


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
    """Make a texture of what ``state_of`` returned, on a device."""
    where = "pickle"
    desc = describe(where, device, FORMATS[format], dims, *size, layers, array, len(levels), usage)
    image = create_image(where, device, desc)
    for k, texels in enumerate(levels):
        for layer, own in enumerate(texels):
            write(device, image, k, layer, own)
    return kind.of(layout_of(device, desc, sampler=None if sampler is None else SamplerDesc(*sampler)), image)
