"""Loads kernels as compute pipelines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from slangpy_rt.backends import pipelines
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.backends.vulkan.heap import Heap
from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.target import KernelInfo

# VK_ERROR_UNKNOWN and VK_ERROR_INVALID_SHADER_NV. Mesa returns the first for SPIR-V that it cannot read.
_REFUSED = (-13, -1000012000)


class Pipelines(pipelines.Pipelines):
    """The pipelines of one device.

    Parameters
    ----------
    commands : VkCommands
        Has the ``VkPipelineLayout`` of pipelines.
    queues : list
        The backend's queues.
    lock : threading.Lock
        The backend's lock.
    """

    before = (1,)  # VK_PIPELINE_BIND_POINT_COMPUTE

    def __init__(self, device: VkDevice, commands: VkCommands, queues: list[Any], lock: threading.Lock) -> None:
        super().__init__(partial(_destroy, device))
        self._device = device
        self._commands = commands
        self._queues = queues
        self._backend_lock = lock
        self._create = device.lib.vkCreateComputePipelines
        device.on_close(_destroy, device, self.all)

    def maker(self, binary: bytes, info: KernelInfo) -> Callable[[], Any]:
        heap = self._commands.heap_of(self._queues) if info.textures else None
        return partial(self._make, binary, info, heap)

    def _make(self, binary: bytes, info: KernelInfo, heap: Heap | None) -> Any:
        device, ffi = self._device, self._device.ffi
        code = ffi.new("uint32_t[]", len(binary) // 4)
        ffi.memmove(code, binary, len(binary))
        name = ffi.new("char[]", info.entry.encode())
        module = ffi.new("VkShaderModule*")
        shader = device.struct("VkShaderModuleCreateInfo", codeSize=len(binary), pCode=code)
        result = device.lib.vkCreateShaderModule(device.handle, shader, ffi.NULL, module)
        device.check(result, f"loading the SPIR-V of kernel {info.entry}")
        layout = heap.layout if heap is not None else self._commands.layout
        create = device.struct("VkComputePipelineCreateInfo", layout=layout)
        stage = device.struct("VkPipelineShaderStageCreateInfo", stage=COMPUTE, module=module[0], pName=name)
        create.stage = stage[0]
        pipeline = ffi.new("VkPipeline*")
        result = self._create(device.handle, ffi.NULL, 1, create, ffi.NULL, pipeline)
        device.lib.vkDestroyShaderModule(device.handle, module[0], ffi.NULL)
        if result in _REFUSED:
            raise CompileError(
                f"vulkan: the driver of {device.description} refused the SPIR-V of {info.title} ({result}). It may "
                "use what the driver lacks, or an instruction that Slang gets wrong: take parts of the function away "
                "to find it, or use a device of another type."
            )
        device.check(result, f"creating a pipeline for kernel {info.entry}")
        self.all.add(pipeline[0])
        if device.is_software:
            self._run_empty(pipeline[0], layout, heap)
        return pipeline[0]

    def _run_empty(self, pipeline: Any, layout: Any, heap: Heap | None) -> None:
        """Launch no groups of a pipeline, and wait: Mesa's llvmpipe compiles at the first launch, for minutes maybe.

        Otherwise the first result would be waited for, with no word about it, and no interrupt could end the wait.
        """
        device, ffi, lib, commands = self._device, self._device.ffi, self._device.lib, self._commands
        handle, null = device.handle, self._device.ffi.NULL
        pool, fence, command = ffi.new("VkCommandPool*"), ffi.new("VkFence*"), ffi.new("VkCommandBuffer*")
        told = device.struct("VkCommandPoolCreateInfo", queueFamilyIndex=device.family)
        device.check(lib.vkCreateCommandPool(handle, told, null, pool), "creating a command pool")
        try:
            told = device.struct("VkFenceCreateInfo")
            device.check(lib.vkCreateFence(handle, told, null, fence), "creating a fence")
            told = device.struct("VkCommandBufferAllocateInfo", commandPool=pool[0], commandBufferCount=1)
            device.check(lib.vkAllocateCommandBuffers(handle, told, command), "allocating a command buffer")
            device.check(commands.begin(command[0], device.struct("VkCommandBufferBeginInfo")), "beginning it")
            if heap is not None:
                heap.bind(command[0])
            commands.bind(command[0], *self.before, pipeline)
            commands.push(command[0], layout, COMPUTE, 0, 8, ffi.new("uint64_t*"))
            commands.dispatch(command[0], 0, 1, 1)
            device.check(commands.end(command[0]), "ending it")
            submitted = device.struct("VkSubmitInfo", commandBufferCount=1, pCommandBuffers=command)
            with self._backend_lock:
                result = commands.submit(device.queues[0], 1, submitted, fence[0])
            device.check(result, "submitting an empty launch")
            # 2**64 - 1 ns: without a time limit.
            device.check(lib.vkWaitForFences(handle, 1, fence, 1, 2**64 - 1), "waiting for an empty launch")
        finally:
            lib.vkDestroyFence(handle, fence[0], null)
            lib.vkDestroyCommandPool(handle, pool[0], null)


def _destroy(device: VkDevice, found: Iterable[Any]) -> None:
    for pipeline in found:
        device.lib.vkDestroyPipeline(device.handle, pipeline, device.ffi.NULL)
