"""Allocates memory of a D3D12 device: blocks of large buffers, each of which has one descriptor."""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.blocks import SMALL, SizeClasses
from slangpy_rt.backends.d3d12.device import DEVICE, HANDLE_SHIFT, D3D12Device, Memory, free_all
from slangpy_rt.backends.d3d12.submission import D3D12Submissions
from slangpy_rt.core.errors import OutOfMemoryError

_SLAB = 64 << 20


class D3D12Buffer(Buffer):
    """A buffer whose memory is a block of ``Heap``."""

    __slots__ = ()


class Heap:
    """The device memory of one backend; methods are called with the backend's lock.

    Parameters
    ----------
    queues : sequence of D3D12Submissions
        All queues of the backend.
    """

    def __init__(self, device: D3D12Device, queues: Sequence[D3D12Submissions]) -> None:
        self._device = device
        self._queues = queues
        self._allocated: set[Memory] = set()
        self.blocks = SizeClasses(self._allocate, SMALL, _SLAB)
        # A function and no method: a method would keep ``self`` and the queues alive as long as the device.
        device.on_close(free_all, device, self._allocated)

    def grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block of ``size`` bytes. No interrupt may stop it."""
        if self.blocks.grow(size, buffer):
            # The blocks have other addresses than those that had the memory before, by which conflicts are found.
            for queue in self._queues:
                queue.locked_barrier()

    def _allocate(self, size: int) -> tuple[int, Memory]:
        device = self._device
        try:
            memory = device.allocate(size, DEVICE)
        except OutOfMemoryError:
            self._give_back()
            memory = device.allocate(size, DEVICE)
        self._allocated.add(memory)
        return memory.number << HANDLE_SHIFT, memory

    def _give_back(self) -> None:
        """Free memory without a block in use, once all queued work is done."""
        for queue, value in [(queue, queue.locked_submit()) for queue in self._queues]:
            queue.timeline.wait(value)
        for _, memory in self.blocks.drop():
            self._allocated.remove(memory)
            self._device.free(memory)
