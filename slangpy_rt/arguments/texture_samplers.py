"""Which sampler each texture of a call is looked up with, and which samplers a call does not take.

On devices where a texture's number names its sampler too, a sampler that is an argument by itself has no number. It
belongs to the textures of the call that have none of their own, if it is the only one; a sampler that belongs to no
texture is refused, so that none is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.nested_packers import ConvertedPacker
from slangpy_rt.arguments.texture_packers import SamplerPacker, TexturePacker
from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.images import Images, SamplerDesc
from slangpy_rt.core.errors import BindError, UnsupportedError


def pair_samplers(title: str, backend: Backend, every: Sequence[Bound]) -> None:
    """Give the textures of a call their samplers, where the backend is ``paired``.

    Parameters
    ----------
    title : str
        The function, for messages.
    every : sequence of Bound
        Uniforms, arguments and the result, in the order of the block.

    Raises
    ------
    UnsupportedError
        If a sampler belongs to no texture, or to which one cannot be told.
    """
    if not isinstance(backend, Images) or not backend.paired:
        return
    leaves = [leaf for b in every for leaf in b.leaves]
    given = [(leaf, desc) for leaf in leaves if (desc := _sampler_of(leaf)) is not None]
    alone = given[0][1] if len({desc for _, desc in given}) == 1 else None
    used: set[SamplerDesc] = set()
    for leaf in leaves:
        if not isinstance(leaf.packer, TexturePacker) or leaf.mode != "handle" or leaf.texture is None:
            continue
        if leaf.access != "in":
            continue
        found = leaf.texture.sampler or alone
        if found is not None:
            leaf.packer.pair(found)
            used.add(found)
    for leaf, desc in given:
        if desc not in used:
            raise UnsupportedError(
                f"{title}: argument '{leaf.name}': a texture of this device holds its own sampler. Give the texture "
                f"that the function samples with it this one: texture.with_sampler({leaf.name})."
            )


def refuse_blending(title: str, leaves: Sequence[Bound]) -> None:
    """Refuse a sampler that blends texels, in a call whose textures all hold whole numbers.

    Drivers give any number there (Vulkan 1.3, ``VUID-vkCmdDispatch-magFilter-04553`` and ``mipmapMode-04770``).

    Raises
    ------
    BindError
        If there is one.
    """
    read = [leaf for leaf in leaves if leaf.texture is not None and leaf.mode == "handle" and leaf.access == "in"]
    if not read or any(leaf.texture.desc.format.filters for leaf in read if leaf.texture is not None):
        return
    for leaf in leaves:
        packer = _packer_of(leaf)
        if packer is not None and packer.blends:
            raise BindError(
                f"{title}: argument '{leaf.name}' is a sampler that blends, and the texels of '{read[0].name}' are "
                "whole numbers, of which there are no means; pass filter='nearest' and mip='nearest'."
            )


def _sampler_of(leaf: Bound) -> SamplerDesc | None:
    packer = _packer_of(leaf)
    return None if packer is None else packer.desc


def _packer_of(leaf: Bound) -> SamplerPacker | None:
    packer = leaf.packer.inner if isinstance(leaf.packer, ConvertedPacker) else leaf.packer
    return packer if isinstance(packer, SamplerPacker) else None
