"""Textures for parameters that sample: which of them take a texture whole, and the sampler that it is looked up by.

The parts are bound in ``bind``; nothing here makes a ``Bound``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slangpy_rt.arguments.scope import Scope
from slangpy_rt.core.types import SlangType
from slangpy_rt.textures.sampler import Sampler, sampler_of
from slangpy_rt.textures.texture import Texture

# The struct of ``shaders/sampling.slang`` that implements ISampled by a texture, and its fields. A user's struct with
# that name and these fields takes the same two.
_NAME = "SampledTexture"
_FIELDS = (("texture", "Texture2D<float4>"), ("sampler", "SamplerState"))


def is_sampled_texture(scope: Scope, type_: SlangType) -> bool:
    """Return whether a type is the struct of a texture and its sampler that ``import sampling;`` brings."""
    if type_.kind != "struct" or type_.name != _NAME:
        return False
    return tuple((f.name, f.type.name) for f in scope.struct(type_).fields) == _FIELDS


def sampled_texture(scope: Scope, interface: str) -> SlangType | None:
    """Return the struct of a texture and its sampler if it implements an interface, and None if it does not.

    Parameters
    ----------
    scope : Scope
        The module. One that does not import ``sampling`` knows no such struct.
    interface : str
        The name of the interface.
    """
    found = _known(scope)
    return found if found is not None and scope.source.conforms(_NAME, interface) else None


def as_sampled(scope: Scope, value: Any) -> Any:
    """Return a texture as the value of a struct for generic parameters, and any other value as it is."""
    if not isinstance(value, Texture) or _known(scope) is None:
        return value
    return {"_type": _NAME, "texture": value}


def with_its_sampler(where: str, value: Texture) -> Callable[[Texture], tuple[Texture, Sampler]]:
    """Return the function that makes a Texture of its layout a Texture with a sampler, and that sampler.

    A texture without a sampler gets the one that repeats it and blends its nearest texels.
    """
    d = value.sampler
    if d is not None:
        given = Sampler(value.device, d.filter, d.wrap, d.mip, d.anisotropy, d.border, d.bias, d.least, d.most)
        return lambda texture: (texture, given)
    plain = sampler_of(where, value.device, {})
    if not value.layout.desc.format.filters:
        # Whole numbers take no such sampler; that the function reads floats is said where the texture is bound.
        return lambda texture: (texture, plain)
    # On devices where a texture's number names its sampler, the texture has to hold this one.
    return lambda texture: (texture.with_sampler(plain), plain)


def _known(scope: Scope) -> SlangType | None:
    found = scope.source.type(_NAME)
    found = getattr(found, "type", found)
    return found if isinstance(found, SlangType) and is_sampled_texture(scope, found) else None
