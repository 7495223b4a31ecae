"""Keeps freed blocks of device memory for later requests, in one list for each size; small blocks are parts of slabs.

New memory comes from a function of the lists' owner, and no lock is taken. The owner takes blocks out of ``takes``
directly, since that is in the path of every call, and calls ``grow`` for a size without a free block.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

ALIGN = 256
# For drivers that allow only some 4,096 allocations: blocks up to this size are parts of slabs of 64 MiB. At most a
# quarter of a slab is unused, where the next block does not fit.
SMALL = 16 << 20
PAGE = 2 << 20  # drivers of discrete GPUs round allocations to multiples of this
# The most blocks that are cut from a slab at once, and the most bytes of them. ``grow`` costs its callers some 30 us,
# most of it a change of thread, and a program that keeps all its results would need it at each call.
_AT_ONCE = 16
_AHEAD = 64 << 10


class Holder(Protocol):
    """What holds a block, as buffers do, and gives it back with ``chunk.give`` when it is freed."""

    chunk: Any


class SizeClasses:
    """The free blocks of one backend, in one list for each size.

    Blocks enter and leave a list in single steps of C, because the garbage collector frees buffers at any moment and
    in any thread. Where there are slabs, only one thread at a time may call ``grow`` and ``drop``, and no interrupt
    may stop it.

    Parameters
    ----------
    allocate : callable
        Makes memory of a size, and returns its address and the backend's object for it. Where addresses need not be
        multiples of ``ALIGN``, the memory must be ``ALIGN`` bytes larger.
    small : int
        Blocks up to this size are cut from slabs; 0 for none.
    slab : int
        Bytes of one slab.
    limit : int, optional
        The most bytes that are kept free; without it the owner decides what to give back.

    Attributes
    ----------
    takes : dict
        For each size an iterator that takes a block out of its list: ``for buffer.chunk in takes[size]: break`` moves
        the block to a buffer in one step, so that an interrupt finds it in one of them. LookupError means that no
        block is free, and that ``grow`` is to be called.
    """

    def __init__(
        self, allocate: Callable[[int], tuple[int, Any]], small: int = 0, slab: int = 0, limit: int | None = None
    ) -> None:
        self.takes: dict[int, Iterator[Block]] = {}
        self._free: dict[int, deque[Block]] = {}
        self._allocate = allocate
        self._small = small
        self._slab_size = slab
        self._limit = limit
        self._slabs: list[_Slab] = []
        # The slab that small blocks are cut from.
        self._slab: _Slab | None = None

    def grow(self, size: int, buffer: Holder) -> bool:
        """Give a buffer a new block of ``size`` bytes.

        Returns
        -------
        bool
            Whether the block is cut from a slab whose memory earlier blocks had. Work that was queued on those must
            then be ordered before all later work, because addresses do not show that the two use the same memory.
        """
        free = self._free.get(size)
        if free is None:
            # A full list drops its oldest block; without a limit no list is ever full.
            most = None if self._limit is None else max(1, self._limit // size)
            free = self._free.setdefault(size, deque(maxlen=most))
        self.takes.setdefault(size, iter(free.pop, None))
        if self._limit is not None and self.idle() > self._limit:
            self.drop()
        if size > self._small:
            address, memory = self._allocate(size)
            start = -address % ALIGN
            buffer.chunk = Block(memory, address + start, start, free, None)
            return False
        slab, recut = self._slab, False
        if slab is None or slab.top + size > slab.end:
            slab = next((slab for slab in self._idle_slabs() if self._empty(slab)), None)
            recut = slab is not None
            if slab is None:
                slab = _Slab(*self._allocate(self._slab_size), self._slab_size)
                self._slabs.append(slab)
            self._slab = slab
        buffer.chunk = slab.cut(size, free)
        more = min(_AHEAD // size, _AT_ONCE) - 1
        for _ in range(min(more, (slab.end - slab.top) // size)):
            free.append(slab.cut(size, free))
        return recut

    def idle(self) -> int:
        """Count the bytes that ``drop`` would remove."""
        alone = sum(size * len(blocks) for size, blocks in list(self._free.items()) if size > self._small)
        return alone + self._slab_size * len(self._idle_slabs())

    def drop(self) -> list[tuple[int, Any]]:
        """Remove all memory without a block in use, and return its addresses and objects as ``allocate`` did.

        No queued work may use that memory.
        """
        dropped = []
        for size, blocks in list(self._free.items()):
            if size > self._small:
                with suppress(IndexError):
                    while True:
                        block = blocks.pop()
                        dropped.append((block.address - block.offset, block.memory))
        for slab in self._idle_slabs():
            if self._empty(slab):
                self._slabs.remove(slab)
                dropped.append((slab.address, slab.memory))
        if self._slab not in self._slabs:
            self._slab = None
        return dropped

    def close(self) -> None:
        """Refuse further requests, and drop all blocks."""
        self.takes.clear()
        self._free.clear()
        self._slabs.clear()
        self._slab = None

    def _idle_slabs(self) -> list[_Slab]:
        """Return the slabs all of whose blocks are free."""
        if not self._slabs:
            return []
        # ``list`` copies in one step, while other threads take blocks out.
        free = Counter(block.slab for blocks in list(self._free.values()) for block in list(blocks))
        return [slab for slab in self._slabs if free[slab] == slab.blocks]

    def _empty(self, slab: _Slab) -> bool:
        """Take all blocks of a slab out of the lists. Return False, and leave them, if another thread took one."""
        found = []
        for blocks in list(self._free.values()):
            with suppress(IndexError):
                for _ in range(len(blocks)):
                    block = blocks.popleft()
                    if block.slab is slab:
                        found.append(block)
                    else:
                        blocks.append(block)
        if len(found) == slab.blocks:
            slab.clear()
            return True
        for block in found:
            block.give()
        return False


def size_class(nbytes: int) -> int:
    """Round a size up to that of a block, in bytes.

    Sizes up to ``SMALL`` are rounded to one of four sizes between two powers of two, and to a multiple of 256 bytes;
    for example 5,000 to 5,120. Larger ones are rounded to multiples of ``PAGE``.
    """
    if nbytes > SMALL:
        return -(-nbytes // PAGE) * PAGE
    shift = max((nbytes - 1).bit_length() - 3, 8)
    return ((nbytes - 1 >> shift) + 1) << shift


class Block:
    """A part of a backend's memory.

    Attributes
    ----------
    memory : object
        The memory of ``allocate`` that the block is a part of.
    address : int
        Device address of its first byte.
    offset : int
        Bytes from the beginning of that memory to the block.
    give : callable
        A function of C that puts the block back into its list.
    """

    __slots__ = ("address", "give", "memory", "offset", "slab")

    def __init__(self, memory: Any, address: int, offset: int, free: deque[Block], slab: _Slab | None) -> None:
        self.memory = memory
        self.address = address
        self.offset = offset
        self.give = partial(free.append, self)
        self.slab = slab


class _Slab:
    """Memory that blocks are cut from.

    Attributes
    ----------
    blocks : int
        The number of blocks cut.
    top, end : int
        Bytes from the beginning of the memory to the part that is not cut yet, and to its end.
    """

    __slots__ = ("address", "blocks", "end", "memory", "top")

    def __init__(self, address: int, memory: Any, size: int) -> None:
        self.address = address
        self.memory = memory
        self.blocks = 0
        self.top = -address % ALIGN
        self.end = self.top + size

    def cut(self, size: int, free: deque[Block]) -> Block:
        at, self.top = self.top, self.top + size
        self.blocks += 1
        return Block(self.memory, self.address + at, at, free, self)

    def clear(self) -> None:
        self.blocks = 0
        self.top = -self.address % ALIGN
