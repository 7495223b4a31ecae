"""Asynchronous copies to the host: an array's contents at one moment, fetched piece by piece.

The array is copied on the device first, so that later work may change it. Nothing here copies to the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.backends.base import Backend, Buffer, Mark, SharedBuffer
from slangpy_rt.backends.extras import LateReads, MappedMemory, no_mapped_memory
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError
from slangpy_rt.runtime.lane import Lane
from slangpy_rt.runtime.queues import Order
from slangpy_rt.runtime.waiting import pause, reached

if TYPE_CHECKING:
    from collections.abc import Coroutine

# The calling thread copies each piece to the host array, in about 50 us.
_PIECE = 512 << 10
_BLOCKS = 4


class Transfers:
    """The downloads of one device: a queue of their own and a few blocks of memory that both sides address."""

    def __init__(self, backend: Backend, order: Order) -> None:
        self._backend = backend
        self._alloc_shared = backend.alloc_shared if isinstance(backend, MappedMemory) else no_mapped_memory
        self._order = order
        # One lane, after the first download.
        self._lanes: list[Lane] = []
        self._free: deque[SharedBuffer] = deque()
        # Pieces of copies that were cancelled.
        self._late: deque[_Piece] = deque()
        self._made = 0

    def fetch(self, buffer: Buffer, offset: int, array: npt.NDArray[Any]) -> Coroutine[Any, Any, None]:
        """Queue a copy of the contents on the device; return a coroutine that writes them to a host array."""
        nbytes = array.nbytes
        snapshot = self._backend.alloc(nbytes)
        order = self._order
        if not self._lanes:
            order.take(self._lanes, self._backend.open_queue)
        lane = self._lanes[0]
        with order.lock:
            order.order_use(order.main, (buffer,), (False,))
            order.main.queue.copy(snapshot, 0, buffer, offset, nbytes)
            lane.wait_all(order.main)
            host = array.reshape(-1).view(np.uint8).data
            if not self._made:
                if isinstance(self._backend, LateReads):
                    return self._fetch_whole(host, *self._backend.read_later(snapshot, nbytes))
                block = self._alloc_shared(_PIECE)
                if block is None:
                    raise UnsupportedError("numpy_async: this device has no memory that the host addresses too.")
                self._made = 1
                self._free.append(block)
        return self._fetch(snapshot, host, lane)

    async def _fetch_whole(self, host: memoryview, mark: Mark, read: Callable[[memoryview], None]) -> None:
        """Copy all at once, on devices whose host and kernels share no memory."""
        await reached(mark)
        read(host)

    async def _fetch(self, snapshot: Buffer, host: memoryview, lane: Lane) -> None:
        flying: deque[_Piece] = deque()
        try:
            for start in range(0, len(host), _PIECE):
                block = self._block()
                while block is None:
                    if flying:
                        await self._land(host, flying)
                    else:
                        await pause()  # other copies use all blocks
                    block = self._block()
                size = min(_PIECE, len(host) - start)
                with self._order.lock:
                    lane.queue.copy(block, 0, snapshot, start, size)
                    flying.append(_Piece(snapshot, block, lane.queue.mark(), start, size))
            while flying:
                await self._land(host, flying)
        finally:
            # The device may still write to blocks of a cancelled copy.
            self._late.extend(flying)

    async def _land(self, host: memoryview, flying: deque[_Piece]) -> None:
        piece = flying[0]
        await reached(piece.mark)
        piece.block.read(np.frombuffer(host, np.uint8, piece.size, piece.start))
        flying.popleft()
        self._free.append(piece.block)

    def _block(self) -> SharedBuffer | None:
        """Return an unused block; None if all blocks are in use."""
        if self._late and self._late[0].mark.done:
            return self._late.popleft().block
        try:
            return self._free.popleft()
        except IndexError:
            pass
        if self._made == _BLOCKS:
            return None
        block = self._alloc_shared(_PIECE)
        if block is None:
            raise OutOfMemoryError("numpy_async: the device has no memory left that the host addresses too.")
        self._made += 1
        return block


class _Piece(NamedTuple):
    """A piece of a snapshot on its way into a block."""

    snapshot: Buffer
    block: SharedBuffer
    mark: Mark
    start: int
    size: int
