"""Copies between host memory and memory of Vulkan and D3D12 devices, and clears the latter.

Device memory that the host cannot address is copied through stages, which it can. Uploads of up to ``SMALL_UPLOAD``
bytes go through the ring of ``submissions.py`` instead. Nothing here calls a driver.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.device_memory import MemoryDevice
from slangpy_rt.backends.host_blocks import HostBlocks
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.core.interrupts import Crew, apart

SMALL_UPLOAD = 64 << 10  # the most bytes that go through the ring; sixteen such uploads fill a frame
_STAGE_BYTES = 16 << 20  # on an H200, 64 MiB go up in 3.0 ms; in pieces of 8 MiB in 5.2, of 4 MiB in 5.4
_STAGES = 4
_COPY_BYTES = 1 << 20  # the least that a thread copies: it takes 100 us, and starting the thread on it about 30


class Copies:
    """Copies large amounts of bytes and writes zeros in the order of one queue; called with that queue's lock.

    Parameters
    ----------
    kind : object
        What the device's ``allocate`` takes for stages: memory that the host reads and writes fast.
    hosts : HostBlocks, optional
        Memory of the host that the device copies to by itself.
    """

    def __init__(self, device: MemoryDevice, queue: Submissions, kind: Any, hosts: HostBlocks | None = None) -> None:
        self._queue = queue
        self._hosts = hosts
        self._stages = _Stages(device, queue, kind)
        self._threads = min(8, os.cpu_count() or 1)
        self._crew: Crew | None = None
        self._zeros = ctypes.create_string_buffer(4)

    def upload(self, dst: Buffer, at: int, address: int, nbytes: int) -> None:
        """Copy host memory at ``address`` to byte ``at`` of a buffer's block; it may change once this returns."""
        memory, queue = dst.chunk.memory, self._queue
        if memory.host:
            queue.timeline.wait(queue.locked_submit())
            self._move(memory.host + at, address, nbytes)
            return
        queue.locked_order(dst.address, True)
        for done in range(0, nbytes, _STAGE_BYTES):
            size = min(_STAGE_BYTES, nbytes - done)
            stage = self._stages.take()
            self._move(stage.memory.host, address + done, size)
            stage.value = queue.locked_next()
            queue.locked_copy(stage.memory, 0, memory, at + done, size)
            queue.locked_submit()

    def download(self, src: Buffer, at: int, address: int, nbytes: int) -> None:
        """Copy from byte ``at`` of a buffer's block to host memory at ``address``, after all work of the queue."""
        memory, queue = src.chunk.memory, self._queue
        if memory.host:
            queue.timeline.wait(queue.locked_submit())
            self._move(address, memory.host + at, nbytes)
            return
        queue.locked_order(src.address, False)
        found = self._hosts.find(address, nbytes) if self._hosts is not None else None
        if found is not None:
            queue.locked_copy(memory, at, *found, nbytes)
            queue.timeline.wait(queue.locked_submit())
            return
        flying: deque[tuple[_Stage, int, int]] = deque()
        for done in range(0, nbytes, _STAGE_BYTES):
            if len(flying) == _STAGES:
                self._land(address, *flying.popleft())
            size = min(_STAGE_BYTES, nbytes - done)
            stage = self._stages.take()
            stage.value = queue.locked_next()
            queue.locked_copy(memory, at + done, stage.memory, 0, size)
            queue.locked_submit()
            flying.append((stage, done, size))
        while flying:
            self._land(address, *flying.popleft())

    def clear(self, dst: Buffer, at: int, nbytes: int) -> None:
        """Record zeros for ``nbytes`` bytes from byte ``at`` of a buffer's block on."""
        queue, zeros = self._queue, ctypes.addressof(self._zeros)
        # A fill writes whole words of 4 bytes; the bytes before and after them are copied.
        head = min(-at & 3, nbytes)
        tail = nbytes - head & 3
        words = nbytes - head - tail
        if head:
            queue.locked_write(dst, at, zeros, head)
        if words:
            queue.locked_order(dst.address, True)
            queue.locked_fill(dst.chunk.memory, at + head, words)
        if tail:
            queue.locked_write(dst, at + nbytes - tail, zeros, tail)

    def close(self) -> None:
        """End the threads."""
        if self._crew is not None:
            self._crew.close()

    def _land(self, address: int, stage: _Stage, done: int, size: int) -> None:
        self._queue.timeline.wait(stage.value)
        self._move(address + done, stage.memory.host, size)

    def _move(self, dst: int, src: int, nbytes: int) -> None:
        """Copy host memory, a large amount by several threads: calls by ``ctypes`` release the GIL."""
        parts = min(self._threads, nbytes // _COPY_BYTES)
        if parts < 2:
            ctypes.memmove(dst, src, nbytes)
            return
        # Whole pages, so that no two threads share one.
        step = -(-nbytes // parts) + 4095 & -4096
        try:
            if self._crew is None:
                apart(self._start_crew)
        except RuntimeError:
            # Python starts no thread, because the process has too many, or because it ends.
            ctypes.memmove(dst, src, nbytes)
            return
        own, *others = [
            partial(ctypes.memmove, dst + at, src + at, min(step, nbytes - at)) for at in range(0, nbytes, step)
        ]
        assert self._crew is not None
        self._crew.run(own, others)

    def _start_crew(self) -> None:
        self._crew = Crew(self._threads - 1)


class _Stages:
    """Mapped buffers for copies, used in turn."""

    def __init__(self, device: MemoryDevice, queue: Submissions, kind: Any) -> None:
        self._device = device
        self._queue = queue
        self._kind = kind
        self._stages: deque[_Stage] = deque()

    def take(self) -> _Stage:
        """Return one that the device is done with: a new one, or of ``_STAGES`` the one used longest ago."""
        if len(self._stages) < _STAGES:
            stage = _Stage(self._device.keep(_STAGE_BYTES, self._kind))
            self._stages.append(stage)
        else:
            stage = self._stages[0]
            self._queue.locked_finish(stage.value)
            self._stages.rotate(-1)
        return stage


class _Stage:
    """A mapped buffer for copies, and the timeline value after which it is free."""

    __slots__ = ("memory", "value")

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.value = 0
