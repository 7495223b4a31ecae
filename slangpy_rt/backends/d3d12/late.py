"""Reads arrays while the host does other things: copies to mapped buffers, one for each read."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import READBACK, D3D12Device, Memory, free_all
from slangpy_rt.backends.d3d12.submission import D3D12Submissions
from slangpy_rt.backends.stamps import StampedMark
from slangpy_rt.core.interrupts import finalizer


class LateCopies:
    """The copies of one queue; called with its lock, and no interrupt may stop ``begin``."""

    def __init__(self, device: D3D12Device, queue: D3D12Submissions) -> None:
        self._device = device
        self._queue = queue
        self._kept: set[Memory] = set()
        self._retired: deque[tuple[Memory, int]] = deque()
        device.on_close(free_all, device, self._kept)

    def begin(self, src: Buffer, nbytes: int) -> tuple[StampedMark, LateCopy]:
        """Queue a copy of a buffer's first bytes; return when it is done, and what then reads them."""
        queue = self._queue
        # In the order in which they were dropped: one that is not done yet leaves the ones after it for later.
        while self._retired and queue.timeline.passed(min(self._retired[0][1], queue.value)):
            memory, _ = self._retired.popleft()
            self._kept.discard(memory)
            self._device.free(memory)
        memory = self._device.allocate(nbytes, READBACK)
        self._kept.add(memory)
        value = queue.locked_next()
        copy = LateCopy(queue, memory, nbytes)
        copy.give = partial(self._retired.append, (memory, value))
        queue.locked_copy(src.chunk.memory, src.chunk.offset, memory, 0, nbytes)
        return StampedMark(queue, value), copy


class LateCopy:
    """Copies the bytes to host memory once they are there; its memory goes with it."""

    __slots__ = ("_memory", "_nbytes", "_queue", "give")

    give: Callable[[], Any]

    __del__ = finalizer("give")

    def __init__(self, queue: D3D12Submissions, memory: Memory, nbytes: int) -> None:
        self._queue = queue
        self._memory = memory
        self._nbytes = nbytes

    def __call__(self, dst: memoryview) -> None:
        data = FFI.from_buffer(dst, require_writable=True)
        with self._queue.lock:
            self._queue.require_open()
            ctypes.memmove(int(FFI.cast("uintptr_t", data)), self._memory.host, self._nbytes)
