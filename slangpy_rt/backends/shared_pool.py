"""A pool of small blocks of memory that host and device both address; taking a block takes less than a microsecond.

Sizes are powers of two. Each size has one slab, which is cut into blocks when the size is first asked for, so that
the pool is bounded. It calls no driver. A freed block is retired until the backend reports that it has waited for all
queued work, in a wait that began after the block was freed.
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

    Blocks leave the pool (``take``) and come back to it (``SharedBlock.give``) in single steps under the GIL. Neither
    needs a lock, so that the garbage collector may free a buffer at any moment.

    Attributes
    ----------
    freed : deque of callable
        For each block that was given back, the function that puts it into its list again.
    """

    def __init__(self) -> None:
        self.freed: deque[Callable[[], Any]] = deque()
        # The list for a size has the index ``(size - 1).bit_length()``; sizes up to ALIGN share a list.
        least, most = (ALIGN - 1).bit_length(), (LARGEST - 1).bit_length()
        smallest: list[SharedBlock] = []
        self._free = [smallest] * (least + 1) + [[] for _ in range(most - least)]
        self._takes: list[Iterator[SharedBlock]] = [iter(free.pop, None) for free in self._free]
        self._cut: set[int] = set()
        self._views: list[memoryview] = []
        self._reusing = threading.Lock()

    def take(self, backend: Backend, nbytes: int) -> PooledBuffer | None:
        """Return a buffer of at least ``nbytes`` > 0 bytes, at most ``LARGEST``; None if no such block is free."""
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
        """Return a buffer of a size that has no free block: from a new slab, or after a wait for queued work.

        Parameters
        ----------
        add_slab : callable
            Takes the number of bytes, calls ``add`` if the size has no slab yet, and returns whether it had none. It
            is called so that no interrupt stops it.

        Returns
        -------
        PooledBuffer or None
            None if ``nbytes`` is more than ``LARGEST``, or all blocks of the size are in use.
        """
        if nbytes > LARGEST:
            return None
        if not (self.missing(nbytes) and apart(add_slab, nbytes)):
            backend.require_open()
            if self.freed:
                backend.sync_all()
        return self.take(backend, nbytes)

    def missing(self, nbytes: int) -> int:
        """Return the number of bytes of the slab that ``add`` needs for this size; 0 if the size has its slab."""
        size = _size_class(nbytes)
        if size in self._cut:
            return 0
        return min(_SLAB, _MOST_BLOCKS * size) + ALIGN

    def add(self, nbytes: int, memory: Any, address: int, view: memoryview) -> None:
        """Cut a slab into blocks for ``nbytes`` bytes. One thread at a time calls this, and no interrupt stops it.

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
        # Reversed, because blocks are taken from the end of the list: so the slab is used from its beginning on.
        blocks = [SharedBlock(memory, address + at, at, view[at : at + size]) for at in reversed(starts)]
        for block in blocks:
            block.give = partial(self.freed.append, partial(free.append, block))
        self._cut.add(size)
        self._views += [block.view for block in blocks]
        free.extend(blocks)

    def retired(self) -> Callable[[], Any] | None:
        """Mark the blocks freed so far, if any; after a wait for all queued work, ``reuse`` takes the mark."""
        if not self.freed:
            return None
        mark: Callable[[], Any] = partial(bool)
        self.freed.append(mark)
        return mark

    def reuse(self, mark: Callable[[], Any] | None) -> None:
        """Make the blocks before a mark available again."""
        if mark is None:
            return
        with self._reusing:
            # Another thread, whose wait began later, may have made these available already.
            if mark in self.freed:
                # All blocks move in one step of C, so that an interrupt finds each in one list.
                any(map(_CALL, iter(self.freed.popleft, mark)))

    def close(self) -> None:
        """Refuse further requests, and release the views. No block may be in use.

        A call of ``find`` that waits in another thread then gets no block either.
        """
        self._takes = []
        for view in self._views:
            # A view cannot be released while a NumPy array uses its memory.
            with suppress(BufferError):
                view.release()


class SharedBlock:
    """A part of a slab.

    Attributes
    ----------
    memory : object
        The object that was passed to ``SharedPool.add`` for the slab.
    offset, nbytes : int
        Its place in the slab and its size, in bytes.
    address : int
        Device address of its first byte.
    view : memoryview
        Its bytes.
    give : callable
        A function of C that gives the block back to the pool.
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
