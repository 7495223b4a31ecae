"""What command buffers of a device are recorded with: Vulkan functions, the layout of all pipelines, and barriers.

Nothing here holds a command buffer or a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.backends.vulkan.heap import Heap

COMPUTE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT

# VkPipelineStageFlagBits: 0x800 COMPUTE_SHADER, 0x1000 TRANSFER, 0x4000 HOST.
_WORK, _WORK_AND_HOST = 0x1800, 0x5800
# VkAccessFlagBits: 0x20 SHADER_READ, 0x40 SHADER_WRITE, 0x800 TRANSFER_READ, 0x1000 TRANSFER_WRITE,
# 0x2000 HOST_READ.
_WRITES, _ANY, _ANY_AND_HOST = 0x1040, 0x1860, 0x3860


class VkCommands:
    """The Vulkan functions and the pipeline layout with which command buffers of one device are recorded.

    Attributes
    ----------
    bind, push, dispatch, barrier, copy, fill, stamp, reset, begin, end, submit
        Function pointers of the device.
    labels : bool
        Whether ``label`` and ``unlabel`` do anything.
    layout : Any
        ``VkPipelineLayout`` of all kernels: a push constant of 8 bytes, the address of the argument block.
    pool : Any
        ``VkCommandPool`` of all command buffers. One thread at a time may record in them.
    heap : Heap or None
        The descriptors of textures, once there are any; each command buffer binds them.
    between, kernels, last : tuple
        Arguments of ``barrier`` after the command buffer: for a barrier between any work, between two kernels, and at
        the end of a command buffer, after which the host too reads what was written.
    """

    def __init__(self, device: VkDevice) -> None:
        ffi, fetch = device.ffi, device.function
        self.device = device
        self.heap: Heap | None = None
        self.bind = fetch("vkCmdBindPipeline")
        self.push = fetch("vkCmdPushConstants")
        self.dispatch = fetch("vkCmdDispatch")
        self.barrier = fetch("vkCmdPipelineBarrier")
        self.copy = fetch("vkCmdCopyBuffer")
        self.fill = fetch("vkCmdFillBuffer")
        self.stamp = fetch("vkCmdWriteTimestamp")
        self.reset = fetch("vkCmdResetQueryPool")
        self.begin = fetch("vkBeginCommandBuffer")
        self.end = fetch("vkEndCommandBuffer")
        self.submit = fetch("vkQueueSubmit")
        self._labels = device.label_functions()
        self.labels = self._labels is not None

        pushed = ffi.new("VkPushConstantRange*", (COMPUTE, 0, 8))
        out = ffi.new("VkPipelineLayout*")
        info = device.struct("VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=pushed)
        create = device.lib.vkCreatePipelineLayout
        device.check(create(device.handle, info, ffi.NULL, out), "creating a pipeline layout")
        self.layout = out[0]
        device.on_close(device.lib.vkDestroyPipelineLayout, device.handle, self.layout, ffi.NULL)

        # 2: VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT; beginning a command buffer again resets it.
        info = device.struct("VkCommandPoolCreateInfo", flags=2, queueFamilyIndex=device.family)
        pool = ffi.new("VkCommandPool*")
        create = device.lib.vkCreateCommandPool
        device.check(create(device.handle, info, ffi.NULL, pool), "creating a command pool")
        self.pool = pool[0]
        device.on_close(device.lib.vkDestroyCommandPool, device.handle, self.pool, ffi.NULL)

        between = device.struct("VkMemoryBarrier", srcAccessMask=_WRITES, dstAccessMask=_ANY)
        self.between = (_WORK, _WORK, 0, 1, between, 0, ffi.NULL, 0, ffi.NULL)
        kernels = device.struct("VkMemoryBarrier", srcAccessMask=0x40, dstAccessMask=0x60)
        self.kernels = (0x800, 0x800, 0, 1, kernels, 0, ffi.NULL, 0, ffi.NULL)
        last = device.struct("VkMemoryBarrier", srcAccessMask=_WRITES, dstAccessMask=_ANY_AND_HOST)
        self.last = (_WORK, _WORK_AND_HOST, 0, 1, last, 0, ffi.NULL, 0, ffi.NULL)

    def heap_of(self, queues: Sequence[Any]) -> Heap:
        """Return the descriptors; the first call makes them, and binds them in the open command buffers of queues.

        The caller holds the backend's lock.
        """
        if self.heap is None:
            self.heap = Heap(self.device)
            for queue in queues:
                queue.locked_bind_heap()
        return self.heap

    def label(self, command: Any, title: str) -> None:
        """Begin a part of a command buffer that profilers and validation layers show under a title."""
        if self._labels is not None:
            name = self.device.ffi.new("char[]", title.encode())
            self._labels[0](command, self.device.struct("VkDebugUtilsLabelEXT", pLabelName=name))

    def unlabel(self, command: Any) -> None:
        """End the part that ``label`` began last."""
        if self._labels is not None:
            self._labels[1](command)

    def allocate(self, count: int) -> Any:
        """Return an array of ``count`` new command buffers."""
        device = self.device
        out = device.ffi.new("VkCommandBuffer[]", count)
        info = device.struct("VkCommandBufferAllocateInfo", commandPool=self.pool, commandBufferCount=count)
        allocate = device.lib.vkAllocateCommandBuffers
        device.check(allocate(device.handle, info, out), "allocating command buffers")
        return out
