"""Loads kernels as compute pipelines, and destroys these once the GPU is done with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.vulkan.commands import COMPUTE
from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.backends.vulkan.submission import FRAME_BYTES, Submissions
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.target import KernelInfo

# VK_ERROR_UNKNOWN and VK_ERROR_INVALID_SHADER_NV. Mesa returns the first for SPIR-V that it cannot read.
_REFUSED = (-13, -1000012000)


class VulkanKernel(Kernel):
    """A compute pipeline; ``give`` adds it to those to be destroyed when the last reference to it is dropped."""

    __slots__ = ("give", "pipeline")

    __del__ = finalizer("give")

    def __init__(self, info: KernelInfo, pipeline: Any, give: Callable[[], None]) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.give = give


class Pipelines:
    """The pipelines of one device. Methods are called with the backend's lock, and no interrupt may stop them.

    Parameters
    ----------
    layout : Any
        ``VkPipelineLayout`` of all pipelines.
    """

    def __init__(self, device: VkDevice, layout: Any) -> None:
        self._device = device
        self._layout = layout
        # All pipelines; those of freed kernels; and groups of these that ``sweep`` found, with the timeline value of
        # each queue after which the GPU no longer uses the group.
        self._all: set[Any] = set()
        self._retired: deque[Any] = deque()
        self._dying: deque[tuple[list[Any], list[tuple[Submissions, int]]]] = deque()
        device.on_close(_destroy, device, self._all)

    def load(self, binary: bytes, info: KernelInfo) -> VulkanKernel:
        """Create a pipeline, which is destroyed with the kernel.

        Raises
        ------
        CompileError
            If the driver refuses the SPIR-V.
        """
        device, ffi = self._device, self._device.ffi
        code = ffi.new("uint32_t[]", len(binary) // 4)
        ffi.memmove(code, binary, len(binary))
        name = ffi.new("char[]", info.entry.encode())
        module = ffi.new("VkShaderModule*")
        shader = device.struct("VkShaderModuleCreateInfo", codeSize=len(binary), pCode=code)
        result = device.lib.vkCreateShaderModule(device.handle, shader, ffi.NULL, module)
        device.check(result, f"loading the SPIR-V of kernel {info.entry}")
        create = device.struct("VkComputePipelineCreateInfo", layout=self._layout)
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
        self._all.add(pipeline[0])
        return VulkanKernel(info, pipeline[0], partial(self._retired.append, pipeline[0]))

    def sweep(self, queues: Sequence[Submissions]) -> None:
        """Destroy the pipelines of freed kernels that the GPU is done with; it does not wait for others."""
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        if retired:
            self._dying.append((retired, [(queue, queue.locked_submit()) for queue in queues]))
        while self._dying and all(queue.timeline.passed(value) for queue, value in self._dying[0][1]):
            gone, _ = self._dying.popleft()
            self._all.difference_update(gone)
            _destroy(self._device, gone)


def require_fit(info: KernelInfo) -> None:
    """Raise UnsupportedError if a kernel's arguments have more than ``FRAME_BYTES`` bytes."""
    if info.args_size > FRAME_BYTES:
        raise UnsupportedError(
            f"vulkan: kernel {info.entry} has {info.args_size} bytes of arguments, at most "
            f"{FRAME_BYTES} fit; pass large arrays as buffers"
        )


def _destroy(device: VkDevice, pipelines: Iterable[Any]) -> None:
    for pipeline in pipelines:
        device.lib.vkDestroyPipeline(device.handle, pipeline, device.ffi.NULL)
