"""Feeds of textures and samplers: the numbers by which kernels find them. They move no data."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arguments.feed import Feed
from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.images import SamplerDesc


class TextureFeed(Feed):
    """A texture: the number of all its levels, or of the one that a kernel writes.

    Parameters
    ----------
    writes : bool
        Whether the kernel writes to it.
    sampler : SamplerDesc or None
        The sampler that the number names besides.
    """

    buffers = 1

    def __init__(self, writes: bool, sampler: SamplerDesc | None = None) -> None:
        self._writes = writes
        self._sampler = sampler

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.handle(self._writes, self._sampler))
        buffers.append(value.image)


class SamplerFeed(Feed):
    """A sampler: its number."""

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.handle)
