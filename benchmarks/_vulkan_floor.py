"""What the Vulkan driver itself takes: a recorded list without commands, submitted and awaited.

Called through the declarations of the ``vulkan`` package alone, so that nothing of the library under test is in it.
"""

from __future__ import annotations

import importlib
from typing import Any

_API_1_2 = 1 << 22 | 2 << 12
_DISCRETE = 2  # VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
_COMPUTE, _GRAPHICS = 2, 1  # VkQueueFlagBits


class VulkanFloor:
    """A queue of the first discrete device, with a timeline semaphore. It stays open until the process ends.

    Raises
    ------
    ImportError, OSError
        If the machine lacks the ``vulkan`` package or the loader.
    RuntimeError
        If the driver refuses a call, or there is no discrete device.
    """

    def __init__(self) -> None:
        found: Any = importlib.import_module("vulkan._vulkan")
        self._ffi, self._vk = ffi, vk = found.ffi, found.lib
        self._none = ffi.NULL
        app = self._struct("ApplicationInfo", "APPLICATION_INFO", apiVersion=_API_1_2)
        info = self._struct("InstanceCreateInfo", "INSTANCE_CREATE_INFO", pApplicationInfo=app)
        instance = self._made("VkInstance", vk.vkCreateInstance, info)
        physical = self._discrete(instance)
        family = self._family(physical)
        one = ffi.new("float*", 1.0)
        ask = self._struct(
            "DeviceQueueCreateInfo", "DEVICE_QUEUE_CREATE_INFO", queueFamilyIndex=family, queueCount=1,
            pQueuePriorities=one,
        )  # fmt: skip
        timelines = self._struct(
            "PhysicalDeviceTimelineSemaphoreFeatures", "PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES",
            timelineSemaphore=1,
        )  # fmt: skip
        info = self._struct(
            "DeviceCreateInfo", "DEVICE_CREATE_INFO", pNext=timelines, queueCreateInfoCount=1, pQueueCreateInfos=ask
        )
        self._device = device = self._made("VkDevice", vk.vkCreateDevice, physical, info)
        queue = ffi.new("VkQueue*")
        vk.vkGetDeviceQueue(device, family, 0, queue)
        self._queue = queue[0]
        kind = self._struct("SemaphoreTypeCreateInfo", "SEMAPHORE_TYPE_CREATE_INFO", semaphoreType=1)  # TIMELINE
        info = self._struct("SemaphoreCreateInfo", "SEMAPHORE_CREATE_INFO", pNext=kind)
        self._semaphore = self._made("VkSemaphore", vk.vkCreateSemaphore, device, info)
        info = self._struct("CommandPoolCreateInfo", "COMMAND_POOL_CREATE_INFO", queueFamilyIndex=family)
        pool = self._made("VkCommandPool", vk.vkCreateCommandPool, device, info)
        info = self._struct(
            "CommandBufferAllocateInfo", "COMMAND_BUFFER_ALLOCATE_INFO", commandPool=pool, commandBufferCount=1
        )
        self._command = ffi.new("VkCommandBuffer*")
        self._check(vk.vkAllocateCommandBuffers(device, info, self._command))
        info = self._struct("CommandBufferBeginInfo", "COMMAND_BUFFER_BEGIN_INFO")
        self._check(vk.vkBeginCommandBuffer(self._command[0], info))
        self._check(vk.vkEndCommandBuffer(self._command[0]))
        self._value, self._seen, self._last = ffi.new("uint64_t*"), ffi.new("uint64_t*"), 0
        semaphores = self._semaphores = ffi.new("VkSemaphore*", self._semaphore)
        self._values = self._struct(
            "TimelineSemaphoreSubmitInfo", "TIMELINE_SEMAPHORE_SUBMIT_INFO", signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=self._value,
        )  # fmt: skip
        self._info = self._struct(
            "SubmitInfo", "SUBMIT_INFO", pNext=self._values, commandBufferCount=1, pCommandBuffers=self._command,
            signalSemaphoreCount=1, pSignalSemaphores=semaphores,
        )  # fmt: skip
        self._submit = self._function("vkQueueSubmit", device)
        self._read = self._function("vkGetSemaphoreCounterValue", device)

    def submit(self) -> None:
        """Submit the list, which signals the next value."""
        self._last += 1
        self._value[0] = self._last
        self._check(self._submit(self._queue, 1, self._info, self._none))

    def sync(self) -> None:
        """Wait for it by polling: the fastest way to wait that the driver has."""
        read, device, semaphore, seen, last = self._read, self._device, self._semaphore, self._seen, self._last
        while seen[0] < last:
            self._check(read(device, semaphore, seen))

    def _discrete(self, instance: Any) -> Any:
        ffi, vk = self._ffi, self._vk
        count = ffi.new("uint32_t*")
        self._check(vk.vkEnumeratePhysicalDevices(instance, count, self._none))
        all_ = ffi.new("VkPhysicalDevice[]", count[0])
        self._check(vk.vkEnumeratePhysicalDevices(instance, count, all_))
        properties = ffi.new("VkPhysicalDeviceProperties*")
        for physical in all_:
            vk.vkGetPhysicalDeviceProperties(physical, properties)
            if properties.deviceType == _DISCRETE:
                return physical
        raise RuntimeError("no discrete Vulkan device")

    def _family(self, physical: Any) -> int:
        ffi, get = self._ffi, self._vk.vkGetPhysicalDeviceQueueFamilyProperties
        count = ffi.new("uint32_t*")
        get(physical, count, self._none)
        families = ffi.new("VkQueueFamilyProperties[]", count[0])
        get(physical, count, families)
        able = [k for k, family in enumerate(families) if family.queueFlags & _COMPUTE]
        return min(able, key=lambda k: bool(families[k].queueFlags & _GRAPHICS))

    def _struct(self, name: str, kind: str, **fields: Any) -> Any:
        kind_number = getattr(self._vk, f"VK_STRUCTURE_TYPE_{kind}")
        return self._ffi.new(f"Vk{name}*", {"sType": kind_number, **fields})

    def _made(self, kind: str, create: Any, *args: Any) -> Any:
        out = self._ffi.new(f"{kind}*")
        self._check(create(*args, self._none, out))
        return out[0]

    def _function(self, name: str, device: Any) -> Any:
        return self._ffi.cast(f"PFN_{name}", self._vk.vkGetDeviceProcAddr(device, name.encode()))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"the Vulkan driver answered with error {status}")
