"""Parts of device memory blocks, handed out and taken back in well under a microsecond.

Sizes are rounded up to four classes an octave (at most a quarter is lost), each with a list of free chunks;
big sizes get a block of their own. Chunks are never split or joined: a block whose chunks are all free is
emptied as a whole. The heap refuses to wait: it knows nothing of the queue, so its owner calls ``recycle``
and ``trim`` only when that is safe.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from slangpy_rt.backends._vk_device import Block, VkDevice

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
        Append a chunk to give it back: work queued before may still use it, work queued later may get it
        again. Appending is atomic and takes no lock, so a garbage collection may do it anywhere.
    """

    def __init__(self, device: VkDevice, purpose: Sequence[int]) -> None:
        self.freed: deque[Chunk] = deque()
        self._device = device
        self._purpose = purpose
        self._free: defaultdict[int, list[Chunk]] = defaultdict(list)
        self._arenas: list[_Arena] = []
        self._arena: _Arena | None = None

    def take(self, nbytes: int) -> Chunk | None:
        """Hand out at least ``nbytes`` bytes at a 256-byte aligned address; None asks for ``grow``."""
        if self.freed:
            self._collect()
        size = _size_class(nbytes)
        free = self._free[size]
        while free:
            chunk = free.pop()
            if chunk.epoch == chunk.arena.epoch:
                chunk.arena.live += 1
                return chunk
        arena = self._arena
        if arena is None or arena.top + size > arena.block.size or size > _OWN_BLOCK:
            return None
        return arena.cut(size)

    def grow(self, nbytes: int) -> Chunk:
        """Allocate a block and hand out at least ``nbytes`` bytes of it.

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
        return arena.cut(size)

    def recycle(self, nbytes: int) -> Chunk | None:
        """Empty a shared block that nobody uses and hand out a part of it; None if there is no such block.

        Its memory then goes out in other pieces than before, so queued work that uses the old ones must be
        ordered before any later work.
        """
        size = _size_class(nbytes)
        if size > _OWN_BLOCK:
            return None
        for arena in self._arenas:
            if arena.live == 0 and arena.block.size == _BLOCK + ALIGN:
                arena.clear()
                self._arena = arena
                return arena.cut(size)
        return None

    def idle(self) -> int:
        """Bytes of blocks in which nothing is in use."""
        self._collect()
        return sum(arena.block.size for arena in self._arenas if arena.live == 0)

    def trim(self) -> None:
        """Give blocks in which nothing is in use back to the driver; no queued work may use them."""
        self._collect()
        for arena in self._arenas:
            if arena.live == 0:
                arena.clear()
                self._device.release(arena.block)
        self._arenas = [arena for arena in self._arenas if arena.live]
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
        while self.freed:
            chunk = self.freed.popleft()
            chunk.arena.live -= 1
            self._free[chunk.size].append(chunk)


class Chunk:
    """A part of a block.

    Attributes
    ----------
    arena, epoch
        Whose it is, and how often that had been emptied when this was cut.
    block : Block
        What it is a part of.
    offset, size : int
        Where it lies in the block, in bytes.
    address : int
        Device address of its first byte.
    """

    __slots__ = ("address", "arena", "block", "epoch", "offset", "size")

    def __init__(self, arena: _Arena, offset: int, size: int) -> None:
        self.arena = arena
        self.block = arena.block
        self.epoch = arena.epoch
        self.offset = offset
        self.address = arena.block.address + offset
        self.size = size


class _Arena:
    """A block with the end of its used part, its number of chunks in use and of times it was emptied."""

    __slots__ = ("block", "epoch", "live", "top")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.epoch = self.live = 0
        self.top = -block.address % ALIGN

    def cut(self, size: int) -> Chunk:
        chunk = Chunk(self, self.top, size)
        self.top += size
        self.live += 1
        return chunk

    def clear(self) -> None:
        self.epoch += 1
        self.top = -self.block.address % ALIGN


def _size_class(nbytes: int) -> int:
    if nbytes > _OWN_BLOCK:
        return -(-nbytes // _PAGE) * _PAGE
    shift = max((nbytes - 1).bit_length() - 3, 8)
    return ((nbytes - 1 >> shift) + 1) << shift
