"""Copies between host memory and device memory, through buffers that the host addresses, and clears device memory."""

from __future__ import annotations

import ctypes
from collections import deque

from slangpy_rt.backends.d3d12.device import DEVICE, READBACK, UPLOAD, D3D12Device, Memory
from slangpy_rt.backends.d3d12.submission import D3D12Submissions

STAGE_BYTES = 16 << 20
SMALL_BYTES = 64 << 10  # the most bytes that go through the ring; sixteen such uploads fill a frame
_STAGES = 4
_ZEROS = 1 << 20


class Copies:
    """Copies bytes in the order of one queue; called with that queue's lock."""

    def __init__(self, device: D3D12Device, queue: D3D12Submissions) -> None:
        self._device = device
        self._queue = queue
        self._ups = Stages(device, queue, UPLOAD)
        self._downs = Stages(device, queue, READBACK)
        self._zeros: Memory | None = None

    def upload(self, memory: Memory, at: int, address: int, nbytes: int) -> None:
        """Copy host memory at ``address`` to byte ``at`` of a buffer; it may change once this returns."""
        queue = self._queue
        for done in range(0, nbytes, STAGE_BYTES):
            size = min(STAGE_BYTES, nbytes - done)
            stage = self._ups.take()
            ctypes.memmove(stage.memory.host, address + done, size)
            stage.value = queue.locked_next()
            queue.locked_copy(stage.memory, 0, memory, at + done, size)
            queue.locked_submit()

    def download(self, memory: Memory, at: int, address: int, nbytes: int) -> None:
        """Copy from byte ``at`` of a buffer to host memory at ``address``, after all work of the queue."""
        queue = self._queue
        flying: deque[tuple[Stage, int, int]] = deque()
        for done in range(0, nbytes, STAGE_BYTES):
            if len(flying) == _STAGES:
                self._land(address, *flying.popleft())
            size = min(STAGE_BYTES, nbytes - done)
            stage = self._downs.take()
            stage.value = queue.locked_next()
            queue.locked_copy(memory, at + done, stage.memory, 0, size)
            queue.locked_submit()
            flying.append((stage, done, size))
        while flying:
            self._land(address, *flying.popleft())

    def clear(self, memory: Memory, at: int, nbytes: int) -> None:
        """Record zeros for ``nbytes`` bytes from byte ``at`` of a buffer on."""
        if self._zeros is None:
            # Only copied from, so that it needs no changes of state; the driver zeroes new memory.
            self._zeros = self._device.keep(_ZEROS, DEVICE)
            self._zeros.moves = False
        for done in range(0, nbytes, _ZEROS):
            self._queue.locked_copy(self._zeros, 0, memory, at + done, min(_ZEROS, nbytes - done))

    def _land(self, address: int, stage: Stage, done: int, size: int) -> None:
        self._queue.timeline.wait(stage.value)
        ctypes.memmove(address + done, stage.memory.host, size)


class Stages:
    """Mapped buffers for copies in one direction, used in turn."""

    def __init__(self, device: D3D12Device, queue: D3D12Submissions, kind: tuple[int, int]) -> None:
        self._device = device
        self._queue = queue
        self._kind = kind
        self._stages: deque[Stage] = deque()

    def take(self) -> Stage:
        """Return a buffer that the device is done with: a new one, or of ``_STAGES`` the one used longest ago."""
        if len(self._stages) < _STAGES:
            stage = Stage(self._device.keep(STAGE_BYTES, self._kind))
            self._stages.append(stage)
        else:
            stage = self._stages[0]
            self._queue.locked_finish(stage.value)
            self._stages.rotate(-1)
        return stage


class Stage:
    """A mapped buffer for copies, and the value after which it is free."""

    __slots__ = ("memory", "value")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.value = 0
