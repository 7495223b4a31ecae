"""Allocates memory of a Vulkan device: device memory, and mapped memory that host and device address."""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.blocks import ALIGN, SMALL, SizeClasses
from slangpy_rt.backends.shared_pool import SharedPool
from slangpy_rt.backends.vulkan.device import STAGING, Block, VkDevice
from slangpy_rt.backends.vulkan.submission import VkSubmissions
from slangpy_rt.core.errors import OutOfMemoryError

_SLAB = 64 << 20


class Memory:
    """The memory of one backend; methods are called with the backend's lock.

    Parameters
    ----------
    purpose : sequence of int
        Memory properties of device memory, the best first, such as ``DEVICE`` of ``device.py``.
    queues : sequence of VkSubmissions
        All queues of the backend.

    Attributes
    ----------
    blocks : SizeClasses
        The blocks of device memory.
    shared : SharedPool
        The blocks of mapped memory.
    """

    def __init__(self, device: VkDevice, purpose: Sequence[int], queues: Sequence[VkSubmissions]) -> None:
        self._device = device
        self._purpose = purpose
        self._queues = queues
        self._allocated: set[Block] = set()
        self.blocks = SizeClasses(self._allocate, SMALL, _SLAB)
        self.shared = SharedPool()
        # A function and no method: a method would keep ``self`` and the queues alive as long as the device.
        device.on_close(_release_all, device, self._allocated)

    def grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block of ``size`` bytes. No interrupt may stop it."""
        if self.blocks.grow(size, buffer):
            # Queues compare the addresses of buffers to find conflicts with earlier work, but these blocks have other
            # addresses than the ones that had the memory before.
            for queue in self._queues:
                queue.locked_barrier()

    def add_slab(self, nbytes: int) -> bool:
        """Add the slab for a size to ``shared`` if it has none; return whether it had none. Not to be interrupted."""
        device, pool = self._device, self.shared
        size = pool.missing(nbytes)
        if size:
            block = device.allocate(size, STAGING)
            self._allocated.add(block)
            pool.add(nbytes, block, block.address, memoryview(device.bytes(block)))
        return size > 0

    def close(self) -> None:
        """Refuse further requests."""
        self.shared.close()
        self.blocks.close()

    def _allocate(self, size: int) -> tuple[int, Block]:
        """Allocate memory by the driver.

        Unused memory is freed before, if it is more than a quarter of the heap or the driver has no memory left.
        """
        device = self._device
        if self.blocks.idle() > device.heap_bytes // 4:
            self._give_back()
        try:
            block = device.allocate(size + ALIGN, self._purpose)
        except OutOfMemoryError:
            self._give_back()
            try:
                block = device.allocate(size + ALIGN, self._purpose)
            except OutOfMemoryError as error:
                raise OutOfMemoryError(
                    f"vulkan: no room for {size} bytes; free arrays or use smaller ones. {error}"
                ) from None
        self._allocated.add(block)
        return block.address, block

    def _give_back(self) -> None:
        """Free memory without a block in use, once all queued work is done."""
        for queue, value in [(queue, queue.locked_submit()) for queue in self._queues]:
            queue.timeline.wait(value)
        for _, block in self.blocks.drop():
            self._allocated.remove(block)
            self._device.release(block)


class VulkanBuffer(Buffer):
    """A buffer whose memory is a block of ``Memory``."""

    __slots__ = ()


def _release_all(device: VkDevice, allocated: set[Block]) -> None:
    while allocated:
        device.release(allocated.pop())
