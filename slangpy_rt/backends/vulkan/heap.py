"""The one descriptor set of a device: where kernels find textures and samplers by number.

It is made with the first texture, sampler or kernel that uses one, so that other programs have none. Nothing here
records work beside binding the set.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.core.errors import OutOfMemoryError

# Bindings, as BindlessDescriptorOptions.None has them (shaders/_spy_descriptors.slang). VkDescriptorType has the same
# numbers: SAMPLER, COMBINED_IMAGE_SAMPLER, SAMPLED_IMAGE, STORAGE_IMAGE.
SAMPLER, COMBINED, SAMPLED, STORED = range(4)
_WANTED = (1024, 2048, 16384, 16384)
_COMPUTE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
GENERAL = 1  # VK_IMAGE_LAYOUT_GENERAL


class Heap:
    """Numbered descriptors. Methods are called with the backend's lock.

    Attributes
    ----------
    layout : Any
        ``VkPipelineLayout`` of kernels that use the set; push constants are those of all kernels.
    """

    def __init__(self, device: VkDevice) -> None:
        ffi, lib = device.ffi, device.lib
        self._device = device
        limits = device.textures
        # Each combined descriptor counts as a sampler and as a texture too.
        counts = list(_WANTED)
        while (
            counts[SAMPLER] + counts[COMBINED] > limits.samplers
            or counts[COMBINED] + counts[SAMPLED] > limits.sampled
            or counts[STORED] > limits.stored
            or sum(counts) > limits.all
        ):
            counts = [max(n // 2, 1) for n in counts]
        self._free = [deque(range(n)) for n in counts]
        bindings = ffi.new("VkDescriptorSetLayoutBinding[]", 4)
        # 1: UPDATE_AFTER_BIND, 2: UPDATE_UNUSED_WHILE_PENDING, 4: PARTIALLY_BOUND.
        flags = ffi.new("uint32_t[]", [7] * 4)
        sizes = ffi.new("VkDescriptorPoolSize[]", 4)
        for k, n in enumerate(counts):
            bindings[k].binding = bindings[k].descriptorType = sizes[k].type = k
            bindings[k].descriptorCount = sizes[k].descriptorCount = n
            bindings[k].stageFlags = _COMPUTE
        more = device.struct("VkDescriptorSetLayoutBindingFlagsCreateInfo", bindingCount=4, pBindingFlags=flags)
        # 2: UPDATE_AFTER_BIND_POOL, of the layout and of the pool.
        info = device.struct(
            "VkDescriptorSetLayoutCreateInfo", pNext=more, flags=2, bindingCount=4, pBindings=bindings
        )
        shape = self._made("VkDescriptorSetLayout", lib.vkCreateDescriptorSetLayout, info)
        device.on_close(lib.vkDestroyDescriptorSetLayout, device.handle, shape[0], ffi.NULL)
        info = device.struct("VkDescriptorPoolCreateInfo", flags=2, maxSets=1, poolSizeCount=4, pPoolSizes=sizes)
        pool = self._made("VkDescriptorPool", lib.vkCreateDescriptorPool, info)
        device.on_close(lib.vkDestroyDescriptorPool, device.handle, pool[0], ffi.NULL)
        ask = device.struct(
            "VkDescriptorSetAllocateInfo", descriptorPool=pool[0], descriptorSetCount=1, pSetLayouts=shape
        )
        self._set = ffi.new("VkDescriptorSet*")
        device.check(lib.vkAllocateDescriptorSets(device.handle, ask, self._set), "allocating descriptors")
        pushed = ffi.new("VkPushConstantRange*", (_COMPUTE, 0, 8))
        info = device.struct(
            "VkPipelineLayoutCreateInfo", setLayoutCount=1, pSetLayouts=shape,
            pushConstantRangeCount=1, pPushConstantRanges=pushed,
        )  # fmt: skip
        self.layout = self._made("VkPipelineLayout", lib.vkCreatePipelineLayout, info)[0]
        device.on_close(lib.vkDestroyPipelineLayout, device.handle, self.layout, ffi.NULL)
        self._bind = device.function("vkCmdBindDescriptorSets")

    def bind(self, command: Any) -> None:
        """Bind the set in a command buffer; kernels that do not use it do not disturb it."""
        # 1: VK_PIPELINE_BIND_POINT_COMPUTE.
        self._bind(command, 1, self.layout, 0, 1, self._set, 0, self._device.ffi.NULL)

    def put(self, binding: int, view: Any, sampler: Any) -> int:
        """Write a descriptor, and return its number.

        Raises
        ------
        OutOfMemoryError
            If all numbers are in use.
        """
        device, ffi = self._device, self._device.ffi
        try:
            number = self._free[binding].popleft()
        except IndexError:
            raise OutOfMemoryError(
                f"vulkan: {device.description} has no descriptor left for another texture or sampler; free some, and "
                "use samplers again"
            ) from None
        image = ffi.new("VkDescriptorImageInfo*", {"imageLayout": GENERAL})
        if view is not None:
            image.imageView = view
        if sampler is not None:
            image.sampler = sampler
        entry = device.struct(
            "VkWriteDescriptorSet", dstSet=self._set[0], dstBinding=binding, dstArrayElement=number,
            descriptorCount=1, descriptorType=binding, pImageInfo=image,
        )  # fmt: skip
        device.lib.vkUpdateDescriptorSets(device.handle, 1, entry, 0, ffi.NULL)
        return number

    def give(self, binding: int, number: int) -> None:
        """Take a number back; no queued work may use it."""
        self._free[binding].append(number)

    def _made(self, kind: str, create: Any, info: Any) -> Any:
        out = self._device.ffi.new(f"{kind}*")
        self._device.check(create(self._device.handle, info, self._device.ffi.NULL, out), f"creating a {kind}")
        return out
