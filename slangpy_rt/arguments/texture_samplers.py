"""Which sampler each texture of a call is looked up with, on devices where a texture's number names its sampler too.

There, a sampler that is an argument by itself has no number. It belongs to the textures of the call that have none of
their own, if it is the only one; a sampler that belongs to no texture is refused, so that none is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.nested_feeds import ConvertedFeed
from slangpy_rt.arguments.texture_feeds import SamplerFeed, TextureFeed
from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.images import Images, SamplerDesc
from slangpy_rt.core.errors import UnsupportedError


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
        if not isinstance(leaf.feed, TextureFeed) or leaf.mode != "handle" or leaf.texture is None:
            continue
        if leaf.access != "in":
            continue
        found = leaf.texture.sampler or alone
        if found is not None:
            leaf.feed.pair(found)
            used.add(found)
    for leaf, desc in given:
        if desc not in used:
            raise UnsupportedError(
                f"{title}: argument '{leaf.name}': a texture of this device holds its own sampler. Give the texture "
                f"that the function samples with it this one: texture.with_sampler({leaf.name})."
            )


def _sampler_of(leaf: Bound) -> SamplerDesc | None:
    feed = leaf.feed.inner if isinstance(leaf.feed, ConvertedFeed) else leaf.feed
    return feed.desc if isinstance(feed, SamplerFeed) else None
