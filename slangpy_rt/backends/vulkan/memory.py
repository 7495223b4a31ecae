"""Memory of a Vulkan device: blocks that are used again, and blocks that the host addresses too."""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.blocks import ALIGN, SizeClasses
from slangpy_rt.backends.shared_pool import SharedPool
from slangpy_rt.backends.vulkan.device import STAGING, Block, VkDevice
from slangpy_rt.backends.vulkan.submission import Submissions
from slangpy_rt.core.errors import OutOfMemoryError

_SLAB = 64 << 20
# A driver allows some 4,096 allocations, so that only large blocks are one each. A slab loses at most a quarter of
# itself to a last block that does not fit.
_SMALL = 16 << 20
_PAGE = 2 << 20  # what drivers round an allocation to on a discrete GPU


class Memory:
    """The memory that a backend has from the driver; its methods are called with the backend's lock.

    Parameters
    ----------
    purpose : sequence of int
        Memory properties, the best first.
    queues : sequence of Submissions
        All queues of the backend.

    Attributes
    ----------
    blocks : SizeClasses
        Device memory.
    shared : SharedPool
        Mapped memory.
    """

    def __init__(self, device: VkDevice, purpose: Sequence[int], queues: Sequence[Submissions]) -> None:
        self._device = device
        self._purpose = purpose
        self._queues = queues
        self._allocated: set[Block] = set()
        self.blocks = SizeClasses(self._allocate, _SMALL, _SLAB)
        self.shared = SharedPool()
        # Not a method: the device outlives the backend, whose queues this has.
        device.on_close(_release_all, device, self._allocated)

    def grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block; not to be interrupted."""
        if self.blocks.grow(size, buffer):
            # The queues know what work uses by addresses, and these were none of them.
            for queue in self._queues:
                queue.locked_barrier()

    def add_slab(self, nbytes: int) -> bool:
        """Add the slab for a size that has none to ``shared``; whether it had none. Not to be interrupted."""
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
        """Get memory from the driver; idle memory is freed first if there is much of it or the driver has no more."""
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


def size_class(nbytes: int) -> int:
    """Round a size up: to one of four sizes an octave, so that at most a quarter is lost, or else to whole pages."""
    if nbytes > _SMALL:
        return -(-nbytes // _PAGE) * _PAGE
    shift = max((nbytes - 1).bit_length() - 3, 8)
    return ((nbytes - 1 >> shift) + 1) << shift
