"""Small blocks of memory that host and device both address, handed out in well under a microsecond.

Sizes are powers of two, each with one slab that is cut up when the size is first asked for, so the pool is
bounded. It talks to no driver: a block that is given back stays retired until its owner, which knows of the
queues, says that a wait that began later is over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any

from slangpy_rt.backends.base import Backend, SharedBuffer
from slangpy_rt.core.interrupts import apart

ALIGN = 256
LARGEST = 1 << 20
# Slabs of 64 KiB to 4 MiB; a process that asks for every size has 32 MiB in all.
_SLAB = 4 << 20
_MOST_BLOCKS = 256  # blocks of one size: so many arguments may be in use before a call waits
_CALL = methodcaller("__call__")


class SharedPool:
    """All blocks of shared memory of one backend.

    Every method but ``find``, ``add`` and ``close`` is made of single steps under the GIL, so that neither ``take``
    nor a garbage collection that gives back needs a lock.

    Attributes
    ----------
    freed : deque of callable
        For each block that was given back, the function that puts it into its list again.
    """

    def __init__(self) -> None:
        self.freed: deque[Callable[[], Any]] = deque()
        # By the bit length of the size less one; sizes up to ALIGN share a list.
        least, most = (ALIGN - 1).bit_length(), (LARGEST - 1).bit_length()
        smallest: list[SharedBlock] = []
        self._free = [smallest] * (least + 1) + [[] for _ in range(most - least)]
        self._takes: list[Iterator[SharedBlock]] = [iter(free.pop, None) for free in self._free]
        self._cut: set[int] = set()
        self._views: list[memoryview] = []
        self._reusing = threading.Lock()

    def take(self, backend: Backend, nbytes: int) -> PooledBuffer | None:
        """Hand out at least ``nbytes`` > 0 bytes, or None."""
        buffer = PooledBuffer.__new__(PooledBuffer)
        try:
            # From the list to the buffer in one step: an interrupt finds the block in one of them.
            for buffer.chunk in self._takes[(nbytes - 1).bit_length()]:
                break
        except IndexError:
            return None
        chunk = buffer.chunk
        buffer.backend = backend
        buffer.address = chunk.address
        buffer.nbytes = chunk.nbytes
        buffer.view = chunk.view
        return buffer

    def find(self, backend: Backend, nbytes: int, add_slab: Callable[[int], bool]) -> PooledBuffer | None:
        """Hand out a block of a size that has none free: from its first slab, or one that a wait sets free.

        Parameters
        ----------
        add_slab : callable
            Adds the slab of a size, if there is none, and says whether there was none; nothing interrupts it.
        """
        if nbytes > LARGEST:
            return None
        if not (self.missing(nbytes) and apart(add_slab, nbytes)):
            backend.require_open()
            if self.freed:
                backend.sync_all()
        return self.take(backend, nbytes)

    def missing(self, nbytes: int) -> int:
        """Return how many bytes the slab to ``add`` for this size has; 0 if there is one already."""
        size = _size_class(nbytes)
        if size in self._cut:
            return 0
        return min(_SLAB, _MOST_BLOCKS * size) + ALIGN

    def add(self, nbytes: int, memory: Any, address: int, view: memoryview) -> None:
        """Cut a slab into blocks for ``nbytes`` bytes; for one caller at a time, whom no interrupt stops.

        Parameters
        ----------
        memory : object
            The owner's object for the slab, which its blocks hold.
        address : int
            Device address of its first byte.
        view : memoryview
            All of its bytes.
        """
        size = _size_class(nbytes)
        free = self._free[(size - 1).bit_length()]
        starts = range(-address % ALIGN, len(view) - size + 1, size)
        # Reversed: a list gives out its last first, and memory is used from the start.
        blocks = [SharedBlock(memory, address + at, at, view[at : at + size]) for at in reversed(starts)]
        for block in blocks:
            block.give = partial(self.freed.append, partial(free.append, block))
        self._cut.add(size)
        self._views += [block.view for block in blocks]
        free.extend(blocks)

    def retired(self) -> Callable[[], Any]:
        """Mark the blocks returned so far, for ``reuse`` once a later wait for all queued work is over."""
        mark: Callable[[], Any] = partial(bool)
        self.freed.append(mark)
        return mark

    def reuse(self, mark: Callable[[], Any]) -> None:
        """Make the blocks before a mark available again."""
        with self._reusing:
            # Another thread, whose wait began later, may have made these available already.
            if mark in self.freed:
                # One step: an interrupt finds each block in one place.
                any(map(_CALL, iter(self.freed.popleft, mark)))

    def close(self) -> None:
        """Refuse further requests, also when a wait in another thread ends later; no block is in use."""
        self._takes = []
        for view in self._views:
            # An array made of a view keeps it.
            with suppress(BufferError):
                view.release()


class SharedBlock:
    """A part of a slab.

    Attributes
    ----------
    memory : object
        The slab, as its owner named it.
    offset, nbytes : int
        Its place in the slab and its size, in bytes.
    address : int
        Device address of its first byte.
    view : memoryview
        Its bytes.
    give : callable
        Gives the block back to the pool.
    """

    __slots__ = ("address", "give", "memory", "nbytes", "offset", "view")

    give: Callable[[], None]

    def __init__(self, memory: Any, address: int, offset: int, view: memoryview) -> None:
        self.memory = memory
        self.offset = offset
        self.nbytes = len(view)
        self.address = address
        self.view = view


class PooledBuffer(SharedBuffer):
    """A SharedBuffer whose memory is a block of a ``SharedPool``."""

    __slots__ = ()


def _size_class(nbytes: int) -> int:
    return max(ALIGN, 1 << (nbytes - 1).bit_length())
