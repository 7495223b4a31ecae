"""Device memory that was freed and is handed out again: lists of blocks by size, the small ones cut from slabs.

It makes no memory and takes no lock. Who owns the lists takes a block out of ``takes`` by itself, since that is in
the path of every call, and comes here for a size that has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Buffer


class SizeClasses:
    """The free blocks of one backend, each list of one size.

    A list is popped and appended to in single steps of C, because a block is given back by the garbage collector, at
    any moment and in any thread.

    Parameters
    ----------
    allocate : callable
        Makes memory of a size: returns its address and what a backend calls it.
    small : int
        Blocks up to this size are cut from slabs; 0 for none.
    slab : int
        Size of one.
    limit : int, optional
        Bytes that are kept at most; without it the owner gives back what is too much.

    Attributes
    ----------
    free : dict
        By size, the blocks that can be had again.
    takes : dict
        By size, an iterator that takes one out: ``for buffer.chunk in takes[size]: break`` moves a block from the
        list to a buffer in one step, so that an interrupt finds it in one of them. LookupError asks for ``grow``.
    """

    def __init__(
        self, allocate: Callable[[int], tuple[int, Any]], small: int = 0, slab: int = 0, limit: int | None = None
    ) -> None:
        self.free: dict[int, deque[Block]] = {}
        self.takes: dict[int, Iterator[Block]] = {}
        self._allocate = allocate
        self._small = small
        self._slab_size = slab
        self._limit = limit
        # The slab that small blocks are cut from: address, memory, and how much of it is used.
        self._slab: tuple[int, Any] = 0, None
        self._used = slab

    def grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block. Of lists with slabs one caller at a time, whom no interrupt stops."""
        free = self.free.get(size)
        if free is None:
            # Without a limit none is dropped; with one the oldest go when the list is full.
            most = None if self._limit is None else max(1, self._limit // size)
            free = self.free.setdefault(size, deque(maxlen=most))
        self.takes.setdefault(size, iter(free.pop, None))
        if self._limit is not None and self.kept() > self._limit:
            self.drop()
        if size > self._small:
            address, memory = self._allocate(size)
            buffer.chunk = Block(memory, address, 0, free)
            return
        if self._used + size > self._slab_size:
            self._slab, self._used = self._allocate(self._slab_size), 0
        address, memory = self._slab
        at, self._used = self._used, self._used + size
        buffer.chunk = Block(memory, address + at, at, free)

    def kept(self) -> int:
        """Count the bytes that can be had again."""
        return sum(size * len(blocks) for size, blocks in list(self.free.items()))

    def drop(self) -> list[Block]:
        """Take all blocks out that are not parts of slabs; returns them."""
        dropped: list[Block] = []
        for size, blocks in list(self.free.items()):
            if size > self._small:
                try:
                    while True:
                        dropped.append(blocks.pop())
                except IndexError:
                    pass
        return dropped

    def close(self) -> None:
        """Hand out nothing any more, and forget all blocks."""
        self.takes.clear()
        self.free.clear()
        self._slab, self._used = (0, None), self._slab_size


class Block:
    """A part of a backend's memory.

    Attributes
    ----------
    memory : object
        What ``allocate`` made, of which it is a part.
    address : int
        Of its first byte.
    offset : int
        Where in that memory it begins.
    give : callable
        Puts it among those that can be had again; a function of C.
    """

    __slots__ = ("address", "give", "memory", "offset")

    def __init__(self, memory: Any, address: int, offset: int, free: deque[Block]) -> None:
        self.memory = memory
        self.address = address
        self.offset = offset
        self.give = partial(free.append, self)
