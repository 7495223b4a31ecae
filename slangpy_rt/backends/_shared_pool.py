"""Small blocks of memory that host and device both address, handed out in well under a microsecond.

Sizes are powers of two, each with one slab that is cut up when the size is first asked for, so the pool is
bounded. It refuses to wait and to talk to a driver: a block that is given back stays retired until its owner,
which knows of the queue, says that a wait that began later is over.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from slangpy_rt.backends.base import Backend, SharedBuffer

ALIGN = 256
LARGEST = 1 << 20
# Slabs of 64 KiB to 4 MiB: 32 MiB together, should one process ever ask for every size.
_SLAB = 4 << 20
_MOST_BLOCKS = 256  # arguments of one size that wait at a time before somebody has to


class SharedPool:
    """All blocks of one backend.

    Every method but ``add`` and ``close`` is made of single steps under the GIL, so that neither ``take`` nor a
    garbage collection that gives back needs a lock.

    Attributes
    ----------
    freed : deque of SharedBlock
        Append a block to give it back.
    """

    def __init__(self) -> None:
        self.freed: deque[SharedBlock] = deque()
        # By the bit length of the size less one; sizes up to ALIGN share a list.
        smallest: list[SharedBlock] = []
        least, most = (ALIGN - 1).bit_length(), (LARGEST - 1).bit_length()
        self._free = [smallest] * (least + 1) + [[] for _ in range(most - least)]
        self._cut: set[int] = set()

    def take(self, nbytes: int) -> SharedBlock | None:
        """Hand out at least ``nbytes`` > 0 bytes, or None."""
        try:
            return self._free[(nbytes - 1).bit_length()].pop()
        except IndexError:
            return None

    def missing(self, nbytes: int) -> int:
        """Bytes of the slab to ``add`` for this size: 0 if there is one."""
        size = _size_class(nbytes)
        if size in self._cut:
            return 0
        return min(_SLAB, _MOST_BLOCKS * size) + ALIGN

    def add(self, nbytes: int, memory: Any, address: int, view: memoryview) -> None:
        """Cut a slab into blocks for ``nbytes`` bytes; for one caller at a time.

        Parameters
        ----------
        memory : object
            What the owner calls the slab; its blocks carry it.
        address : int
            Device address of its first byte.
        view : memoryview
            All of its bytes.
        """
        size = _size_class(nbytes)
        starts = range(-address % ALIGN, len(view) - size + 1, size)
        # Reversed: a list gives out its last first, and memory is used from the start.
        blocks = [SharedBlock(memory, address + at, at, view[at : at + size]) for at in reversed(starts)]
        self._cut.add(size)
        self._free[(size - 1).bit_length()].extend(blocks)

    def retired(self) -> list[SharedBlock]:
        """Blocks that were given back, for ``reuse`` once a wait for all queued work, begun after this, is over."""
        blocks = []
        try:
            while True:
                blocks.append(self.freed.popleft())
        except IndexError:
            return blocks

    def reuse(self, blocks: list[SharedBlock]) -> None:
        """Let retired blocks be handed out again."""
        free = self._free
        if free:
            for block in blocks:
                free[(block.nbytes - 1).bit_length()].append(block)

    def close(self) -> None:
        """Hand out nothing any more, also when a wait in another thread ends later."""
        self._free = []


class SharedBlock:
    """A part of a slab.

    Attributes
    ----------
    block : object
        The slab, as its owner named it.
    offset, nbytes : int
        Where it lies in the slab, in bytes.
    address : int
        Device address of its first byte.
    view : memoryview
        Its bytes.
    """

    __slots__ = ("address", "block", "nbytes", "offset", "view")

    def __init__(self, block: Any, address: int, offset: int, view: memoryview) -> None:
        self.block = block
        self.offset = offset
        self.nbytes = len(view)
        self.address = address
        self.view = view


class PooledBuffer(SharedBuffer):
    """A block in use; its backend gives ``chunk`` back to the pool."""

    __slots__ = ("chunk",)

    def __init__(self, backend: Backend, chunk: SharedBlock) -> None:
        self.backend = backend
        self.address = chunk.address
        self.nbytes = chunk.nbytes
        self.view = chunk.view
        self.chunk = chunk


def _size_class(nbytes: int) -> int:
    return max(ALIGN, 1 << (nbytes - 1).bit_length())
