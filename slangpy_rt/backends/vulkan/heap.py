"""Parts of device memory blocks, handed out and taken back in well under a microsecond.

Sizes are rounded up to four classes an octave (at most a quarter is lost), each with a list of free chunks;
big sizes get a block of their own. Chunks are never split or joined: a block whose chunks are all free is
emptied as a whole. The heap refuses to wait: it knows nothing of the queue, so its owner calls ``recycle``
and ``trim`` only when that is safe.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.vulkan.device import Block, VkDevice

ALIGN = 256
_BLOCK = 64 << 20
_PAGE = 2 << 20  # what drivers round a block to on a discrete GPU
# A 64 MiB block loses at most a quarter of itself to a last chunk that does not fit.
_OWN_BLOCK = 16 << 20


class Heap:
    """Sub-allocator over the blocks of one device, for one kind of memory.

    Attributes
    ----------
    freed : deque of Chunk
        What buffers gave back.
    """

    def __init__(self, device: VkDevice, purpose: Sequence[int]) -> None:
        self.freed: deque[Chunk] = deque()
        self._device = device
        self._purpose = purpose
        self._free: defaultdict[int, list[Chunk]] = defaultdict(list)
        self._arenas: list[_Arena] = []
        self._arena: _Arena | None = None

    def take(self, buffer: Buffer, nbytes: int) -> bool:
        """Give a buffer its chunk: at least ``nbytes`` bytes, 256-byte aligned; False asks for ``grow``."""
        size, freed = _size_class(nbytes), self.freed
        # From the list to the buffer in one step: an interrupt finds the chunk in one of them.
        if freed:
            if freed[0].size == size:
                for buffer.chunk in iter(freed.popleft, None):
                    return True
            self._collect()
        free = self._free[size]
        if not free:
            arena = self._arena
            if arena is None or arena.top + size > arena.block.size or size > _OWN_BLOCK:
                return False
            arena.cut(size, free, self.freed)
        for buffer.chunk in iter(free.pop, None):
            break
        return True

    def grow(self, nbytes: int) -> None:
        """Allocate a block, from which ``take`` then finds ``nbytes`` bytes; not to be interrupted.

        Raises
        ------
        OutOfMemoryError
            If the device has no room.
        """
        size = _size_class(nbytes)
        own = size > _OWN_BLOCK
        # ALIGN more than asked for, since a driver need not align a block's address.
        arena = _Arena(self._device.allocate((size if own else _BLOCK) + ALIGN, self._purpose))
        self._arenas.append(arena)
        if not own:
            self._arena = arena
        arena.cut(size, self._free[size], self.freed)

    def recycle(self, nbytes: int) -> bool:
        """Empty a shared block that nobody uses, for ``take``; whether there was one; not to be interrupted.

        Its memory then goes out in other pieces than before, so queued work that uses the old ones must be
        ordered before any later work.
        """
        size = _size_class(nbytes)
        if size > _OWN_BLOCK:
            return False
        for arena in self._idle():
            if arena.block.size == _BLOCK + ALIGN:
                self._empty([arena])
                self._arena = arena
                arena.cut(size, self._free[size], self.freed)
                return True
        return False

    def idle(self) -> int:
        """Count the bytes of blocks in which nothing is in use."""
        self._collect()
        return sum(arena.block.size for arena in self._idle())

    def trim(self) -> None:
        """Give blocks in which nothing is in use back to the driver; not to be interrupted.

        No queued work may use them.
        """
        self._collect()
        idle = self._idle()
        self._empty(idle)
        for arena in idle:
            self._arenas.remove(arena)
            self._device.release(arena.block)
        if self._arena not in self._arenas:
            self._arena = None

    def close(self) -> None:
        """Give all blocks back, whether in use or not."""
        for arena in self._arenas:
            self._device.release(arena.block)
        self._arenas.clear()
        self._free.clear()
        self._arena = None

    def _collect(self) -> None:
        freed = self.freed
        while freed:
            # One step: an interrupt finds the chunk in one of the lists.
            any(map(list.append, (self._free[freed[0].size],), map(deque.popleft, (freed,))))

    def _idle(self) -> list[_Arena]:
        """Find the blocks all of whose chunks are free."""
        free = Counter(chunk.arena for chunks in self._free.values() for chunk in chunks)
        return [arena for arena in self._arenas if free[arena] == len(arena.chunks)]

    def _empty(self, arenas: Sequence[_Arena]) -> None:
        """Forget the chunks of blocks in which nothing is in use."""
        for arena in arenas:
            for size in {chunk.size for chunk in arena.chunks}:
                self._free[size] = [chunk for chunk in self._free[size] if chunk.arena is not arena]
            arena.clear()


class Chunk:
    """A part of a block.

    Attributes
    ----------
    arena
        What it was cut from.
    block : Block
        What it is a part of.
    offset, size : int
        Where it lies in the block, in bytes.
    address : int
        Device address of its first byte.
    give : callable
        Takes it back: work queued before may still use it, work queued later may get it again. That is one step of C,
        which a garbage collection may do anywhere.
    """

    __slots__ = ("address", "arena", "block", "give", "offset", "size")

    def __init__(self, arena: _Arena, offset: int, size: int, freed: deque[Chunk]) -> None:
        self.arena = arena
        self.block = arena.block
        self.offset = offset
        self.address = arena.block.address + offset
        self.size = size
        self.give: Callable[[], None] = partial(freed.append, self)


class _Arena:
    """A block with its chunks and the end of its used part."""

    __slots__ = ("block", "chunks", "top")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.chunks: list[Chunk] = []
        self.top = -block.address % ALIGN

    def cut(self, size: int, free: list[Chunk], freed: deque[Chunk]) -> None:
        """Cut a chunk off, which is free."""
        at = self.top
        self.top = at + size
        chunk = Chunk(self, at, size, freed)
        # Both in one step: after an interrupt it is known to both or to none.
        any(map(list.append, (self.chunks, free), repeat(chunk)))

    def clear(self) -> None:
        self.chunks = []
        self.top = -self.block.address % ALIGN


def _size_class(nbytes: int) -> int:
    if nbytes > _OWN_BLOCK:
        return -(-nbytes // _PAGE) * _PAGE
    shift = max((nbytes - 1).bit_length() - 3, 8)
    return ((nbytes - 1 >> shift) + 1) << shift
