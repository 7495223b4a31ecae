"""Textures of one call that are the same image: what a call writes, no other argument of it may read or write.

One image may be read and written texel by texel, where each run of the function reads and writes one texel. All else
is refused when the call runs, as the layouts do not tell whether two textures are one image.
"""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.texture_packers import TexturePacker
from slangpy_rt.core.shapes import Shape


def keep_apart(title: str, every: Sequence[Bound], rank: int) -> None:
    """Let the packers of a call's textures refuse those that may be in conflict.

    Parameters
    ----------
    title : str
        The function, for messages.
    every : sequence of Bound
        Uniforms, arguments and the result, in the order of the block.
    rank : int
        The dimensions of the call.
    """
    seen: list[tuple[int, Bound]] = []
    at = 0
    for b in every:
        for leaf in b.leaves:
            if isinstance(leaf.packer, TexturePacker):
                found = [(place, other.name) for place, other in seen if _clash(leaf, other, rank)]
                if found:
                    leaf.packer.refuse(f"{title}: '{leaf.name}'", found)
                seen.append((at, leaf))
            at += leaf.packer.buffers


def _clash(a: Bound, b: Bound, rank: int) -> bool:
    """Tell whether two textures must not be one image."""
    if a.access == b.access == "in" or a.texture is None or b.texture is None:
        return False
    if a.texture.desc != b.texture.desc or _levels(a).isdisjoint(_levels(b)):
        return False
    alone = a.mode == b.mode == "texel" and a.shape == b.shape and _dims(a, rank) == _dims(b, rank)
    return not alone or (a.access != "in" and b.access != "in")


def _levels(b: Bound) -> set[int]:
    assert b.texture is not None
    level, count = b.texture.level, b.texture.desc.levels
    if level is not None:
        return {level}
    return {0} if b.access != "in" or b.mode == "texel" else set(range(count))


def _dims(b: Bound, rank: int) -> Shape:
    return tuple(range(rank - len(b.shape), rank)) if b.mapped is None else b.mapped
