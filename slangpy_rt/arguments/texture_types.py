"""Parameter types of textures and samplers: what their names say. No value is looked at here."""

from __future__ import annotations

import re
from typing import NamedTuple

from slangpy_rt.core.types import SlangType

_TEXTURE = re.compile(r"(RW)?(Texture|Sampler)(1D|2D|3D|Cube)(Array)?<(?:unorm |snorm )?([a-z]+)([1-4]?)>")
SAMPLER = "SamplerState"


class TextureType(NamedTuple):
    """What the name of a texture type says.

    Attributes
    ----------
    writes : bool
        Whether it is a ``RWTexture``.
    combined : bool
        Whether it is a texture with its sampler, ``Sampler2D``.
    dims : str
        ``"1d"``, ``"2d"``, ``"3d"`` or ``"cube"``.
    array : bool
        Whether functions give the number of a layer.
    scalar : str
        The Slang scalar of a texel.
    channels : int
        How many scalars a texel has.
    """

    writes: bool
    combined: bool
    dims: str
    array: bool
    scalar: str
    channels: int


def texture_type(type_: SlangType) -> TextureType | None:
    """Return what the name of a texture type says; None for other types, such as ``Texture2DMS<float4>``."""
    match = _TEXTURE.fullmatch(type_.name) if type_.kind == "resource" else None
    if match is None:
        return None
    return TextureType(
        bool(match[1]), match[2] == "Sampler", match[3].lower(), bool(match[4]), match[5], int(match[6] or 1)
    )


def is_resource(type_: SlangType) -> bool:
    """Tell whether a parameter takes a texture or a sampler."""
    return type_.kind == "resource" and (type_.name == SAMPLER or texture_type(type_) is not None)
