"""Buffers of the Vulkan backend, and what is done where its heap has no room."""

from __future__ import annotations

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.shared_pool import SharedPool
from slangpy_rt.backends.vulkan.device import STAGING, VkDevice
from slangpy_rt.backends.vulkan.heap import Heap
from slangpy_rt.backends.vulkan.submission import Submissions
from slangpy_rt.core.errors import OutOfMemoryError


class VulkanBuffer(Buffer):
    """A buffer whose memory is a chunk of the heap."""

    __slots__ = ()


def grow(device: VkDevice, heap: Heap, queue: Submissions, buffer: Buffer, nbytes: int) -> None:
    """Allocate from the driver, after reusing what is idle if that is a lot or all there is; with the lock."""
    if heap.take(buffer, nbytes):
        return
    if heap.recycle(nbytes):
        # The block is cut anew, at addresses that the queue's ``_touched`` does not know.
        queue.locked_barrier()
    else:
        _allocate(device, heap, queue, nbytes)
    heap.take(buffer, nbytes)


def add_slab(device: VkDevice, pool: SharedPool, nbytes: int) -> bool:
    """Add the slab for a size that has none; whether it had none. With the lock, not to be interrupted."""
    size = pool.missing(nbytes)
    if size:
        block = device.allocate(size, STAGING)
        device.on_close(device.release, block)
        pool.add(nbytes, block, block.address, memoryview(device.bytes(block)))
    return size > 0


def _allocate(device: VkDevice, heap: Heap, queue: Submissions, nbytes: int) -> None:
    if heap.idle() > device.heap_bytes // 4:
        queue.timeline.wait(queue.locked_submit())
        heap.trim()
    try:
        heap.grow(nbytes)
        return
    except OutOfMemoryError:
        queue.timeline.wait(queue.locked_submit())
        heap.trim()
    try:
        heap.grow(nbytes)
    except OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"vulkan: no room for {nbytes} bytes; free arrays or use smaller ones. {error}"
        ) from None
