"""Blocks of host memory for large results that go to the host; they are used again once the arrays in them are gone.

Each page of a new array is mapped at its first write, which takes longer than the copy. Where a device can copy to
such memory by itself, without stages, it is told of each block once. The memory is Python's own: it stays where
arrays are that outlive the device. Nothing here calls a driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from slangpy_rt.backends.blocks import ALIGN, SizeClasses, size_class
from slangpy_rt.core.errors import SlangPyRtError
from slangpy_rt.core.interrupts import apart, finalizer

# All blocks of a device, but no more than an eighth of the host's memory.
_MOST_BYTES = 1 << 30
# Requests for a size before blocks of it are made. To tell Vulkan of 64 MiB takes 16 ms, as much as three results in
# new arrays take longer. The first request of a call is for the sample that its result is bound with.
_FEW = 2
_PAGE = 4096  # what Vulkan drivers ask that imported memory begins at a multiple of


class HostBlocks:
    """The blocks of one backend.

    Parameters
    ----------
    entered : callable
        Makes a context for what changes the blocks, one thread at a time; it raises DeviceError if the backend is
        closed.
    register : callable, optional
        Makes host memory known to the device; takes its address and size, both multiples of ``_PAGE``, and returns
        the backend's object for it.
    unregister : callable, optional
        Undoes that; takes the object.
    wait : callable, optional
        Waits for all queued work, before ``unregister``.

    Attributes
    ----------
    all : dict
        By the address of each piece of registered memory, the backend's object for it and Python's. The owner of the
        blocks unregisters them as the device is closed.
    """

    def __init__(
        self,
        entered: Callable[[], AbstractContextManager[Any]],
        register: Callable[[int, int], Any] | None = None,
        unregister: Callable[[Any], None] | None = None,
        wait: Callable[[], None] | None = None,
    ) -> None:
        self.all: dict[int, tuple[Any, Any]] = {}
        self._entered = entered
        self._register = register
        self._unregister = unregister
        self._wait = wait
        self._blocks = SizeClasses(self._allocate)
        self._sizes: dict[int, int] = {}
        # Requests by size, while there was no free block.
        self._asked: dict[int, int] = {}
        self._most = min(_MOST_BYTES, _host_bytes() // 8)

    def take(self, nbytes: int) -> HostBlock | None:
        """Return a block of at least ``nbytes`` bytes.

        None if all are in use, or the driver refuses more; also for the first requests for a size.
        """
        size = size_class(nbytes)
        block = HostBlock()
        try:
            # From the list to the block in one step, so that an interrupt finds the memory in one of them.
            for block.chunk in self._blocks.takes[size]:
                break
        except LookupError:
            asked = self._asked[size] = self._asked.get(size, 0) + 1
            if asked <= _FEW or not self._most or not apart(self._grow, size, block):
                return None
        return block

    def find(self, address: int, nbytes: int) -> tuple[Any, int] | None:
        """Return the backend's object for the memory that some bytes are in, and their offset there, or None."""
        for start, size in list(self._sizes.items()):
            if start <= address and address + nbytes <= start + size:
                return self.all[start][0], address - start
        return None

    def close(self) -> None:
        """Refuse further requests."""
        self._most = 0
        self._blocks.close()
        self._sizes.clear()

    def _grow(self, size: int, block: HostBlock) -> bool:
        """Give a block new memory, and tell whether there is some. No interrupt may stop it."""
        if sum(self._sizes.values()) + size > self._most and self._blocks.idle() and self._wait is not None:
            self._wait()
        with self._entered():
            if sum(self._sizes.values()) + size > self._most:
                for address, _ in self._blocks.drop():
                    del self._sizes[address]
                    if self._unregister is not None:
                        self._unregister(self.all[address][0])
                    del self.all[address]
            if sum(self._sizes.values()) + size > self._most:
                return False
            try:
                self._blocks.grow(size, block)
            except (MemoryError, SlangPyRtError):
                # A driver may limit what it is told of; results are then ordinary arrays.
                self._most = 0
                return False
        return True

    def _allocate(self, size: int) -> tuple[int, Any]:
        # NumPy asks the operating system for huge pages.
        nbytes = -(-(size + ALIGN) // _PAGE) * _PAGE
        owner = np.empty(nbytes + _PAGE, np.uint8)
        address = -(-owner.ctypes.data // _PAGE) * _PAGE
        known = None if self._register is None else self._register(address, nbytes)
        self.all[address] = known, owner
        self._sizes[address] = nbytes
        return address, owner


class HostBlock:
    """A block of host memory, which its owner gets back when the last reference is dropped.

    Attributes
    ----------
    address : int
        The host's address of its first byte.
    """

    __slots__ = ("chunk",)

    chunk: Any
    __del__ = finalizer("chunk.give")

    @property
    def address(self) -> int:
        address: int = self.chunk.address
        return address


def _host_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30  # Windows does not tell
