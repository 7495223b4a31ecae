"""Loads kernels as compute pipelines."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from slangpy_rt.backends import pipelines
from slangpy_rt.backends.pipelines import PipelineKernel
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.device import VkDevice
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
    """

    def __init__(self, device: VkDevice, commands: VkCommands, queues: list[Any]) -> None:
        super().__init__(partial(_destroy, device))
        self._device = device
        self._commands = commands
        self._queues = queues
        device.on_close(_destroy, device, self.all)

    def load(self, binary: bytes, info: KernelInfo) -> PipelineKernel:
        device, ffi = self._device, self._device.ffi
        code = ffi.new("uint32_t[]", len(binary) // 4)
        ffi.memmove(code, binary, len(binary))
        name = ffi.new("char[]", info.entry.encode())
        module = ffi.new("VkShaderModule*")
        shader = device.struct("VkShaderModuleCreateInfo", codeSize=len(binary), pCode=code)
        result = device.lib.vkCreateShaderModule(device.handle, shader, ffi.NULL, module)
        device.check(result, f"loading the SPIR-V of kernel {info.entry}")
        layout = self._commands.heap_of(self._queues).layout if info.textures else self._commands.layout
        create = device.struct("VkComputePipelineCreateInfo", layout=layout)
        stage = device.struct("VkPipelineShaderStageCreateInfo", stage=COMPUTE, module=module[0], pName=name)
        create.stage = stage[0]
        pipeline = ffi.new("VkPipeline*")
        result = device.lib.vkCreateComputePipelines(device.handle, ffi.NULL, 1, create, ffi.NULL, pipeline)
        device.lib.vkDestroyShaderModule(device.handle, module[0], ffi.NULL)
        if result in _REFUSED:
            raise CompileError(
                f"vulkan: the driver of {device.description} refused the SPIR-V of {info.title} ({result}). It may "
                "use what the driver lacks, or an instruction that Slang gets wrong: take parts of the function away "
                "to find it, or use a device of another type."
            )
        device.check(result, f"creating a pipeline for kernel {info.entry}")
        return self.kernel(info, pipeline[0], 1)  # 1: VK_PIPELINE_BIND_POINT_COMPUTE


def _destroy(device: VkDevice, found: Iterable[Any]) -> None:
    for pipeline in found:
        device.lib.vkDestroyPipeline(device.handle, pipeline, device.ffi.NULL)
