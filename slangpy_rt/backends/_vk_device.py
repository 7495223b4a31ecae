"""A logical Vulkan device with one compute queue, and memory in whole blocks.

It refuses to record commands, to know of kernels and to hand out parts of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slangpy_rt.backends._vk_instance import ATOMIC_FLOAT, MAINTENANCE_8, VkInstance
from slangpy_rt.backends.base import Caps
from slangpy_rt.errors import OutOfMemoryError, UnsupportedError

_DEVICE_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8  # VkMemoryPropertyFlagBits

# Memory properties by purpose, best first. Cached device memory is the host's own memory, found with software
# drivers and integrated GPUs; a discrete GPU's visible memory is slow to read, so it is left unmapped.
DEVICE = (_DEVICE_LOCAL | _VISIBLE | _COHERENT | _CACHED, _DEVICE_LOCAL)
STAGED = (_DEVICE_LOCAL,)
RING = (_DEVICE_LOCAL | _VISIBLE | _COHERENT, _VISIBLE | _COHERENT)
STAGING = (_VISIBLE | _COHERENT | _CACHED, _VISIBLE | _COHERENT)


class VkDevice:
    """An open device.

    Attributes
    ----------
    ffi, lib, struct, check, on_close, messages
        Those of its ``VkInstance``.
    handle, queue : Any
        ``VkDevice`` and ``VkQueue``.
    family : int
        Queue family of ``queue``.
    caps, description
        As in ``Backend``.
    max_bytes : int
        Largest single allocation in bytes.
    heap_bytes : int
        Size of the largest device-local heap in bytes.
    """

    def __init__(self, index: int, debug: bool) -> None:
        self._instance = instance = VkInstance(debug)
        self.ffi, self.lib, self.messages = instance.ffi, instance.lib, instance.messages
        self.struct, self.check, self.on_close = instance.struct, instance.check, instance.on_close
        try:
            physical = instance.physical(index)
            features, present = instance.features(physical)
            self.family = self._compute_family(physical)
            self.handle = self._open(physical, features, present)
            self.queue = self._queue()
            self._memory = self.ffi.new("VkPhysicalDeviceMemoryProperties*")
            self.lib.vkGetPhysicalDeviceMemoryProperties(physical, self._memory)
            heaps = self._memory.memoryHeaps[0 : self._memory.memoryHeapCount]
            # 1: VK_MEMORY_HEAP_DEVICE_LOCAL_BIT.
            self.heap_bytes = max((int(heap.size) for heap in heaps if heap.flags & 1), default=0)
            self._describe(physical, present)
            self._address_of = self.function("vkGetBufferDeviceAddress")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Wait for the device, then destroy everything in reverse order. Again: nothing."""
        self._instance.close()

    def function(self, name: str) -> Any:
        """Fetch a device-level function pointer, which skips the loader's dispatch."""
        pointer = self.lib.vkGetDeviceProcAddr(self.handle, name.encode())
        return self.ffi.cast(f"PFN_{name}", pointer)

    def allocate(self, nbytes: int, purpose: Sequence[int]) -> Block:
        """Allocate a buffer with memory of its own, mapped if its memory properties ask for host access.

        Raises
        ------
        OutOfMemoryError
            If no fitting memory has room.
        """
        ffi, lib, none = self.ffi, self.lib, self.ffi.NULL
        if nbytes > self.max_bytes:
            raise OutOfMemoryError(
                f"vulkan: {self.description} allows {self.max_bytes} bytes in one piece, not {nbytes}; "
                f"use smaller arrays"
            )
        # VkBufferUsageFlagBits: 0x20000 SHADER_DEVICE_ADDRESS, 0x20 STORAGE, 0x2 TRANSFER_DST, 0x1 _SRC.
        info = self.struct("VkBufferCreateInfo", size=nbytes, usage=0x20023)
        buffer = ffi.new("VkBuffer*")
        self.check(lib.vkCreateBuffer(self.handle, info, none, buffer), f"creating a buffer of {nbytes} bytes")
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(self.handle, buffer[0], needs)
        # 2: VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT.
        addressable = self.struct("VkMemoryAllocateFlagsInfo", flags=2)
        ask = self.struct("VkMemoryAllocateInfo", pNext=addressable, allocationSize=needs.size)
        memory = ffi.new("VkDeviceMemory*")
        result = int(lib.VK_ERROR_OUT_OF_DEVICE_MEMORY)
        for flags in purpose:
            for i in range(self._memory.memoryTypeCount):
                has = self._memory.memoryTypes[i].propertyFlags
                if not needs.memoryTypeBits >> i & 1 or has & flags != flags:
                    continue
                ask.memoryTypeIndex = i
                result = lib.vkAllocateMemory(self.handle, ask, none, memory)
                if result == 0:
                    return self._bind(Block(buffer[0], memory[0], nbytes), bool(flags & _VISIBLE))
                break
        lib.vkDestroyBuffer(self.handle, buffer[0], none)
        self.check(result, f"allocating {nbytes} bytes")
        raise AssertionError("check raises for every result but VK_SUCCESS")

    def bytes(self, block: Block) -> Any:
        """All of a mapped block, as a writable buffer that is valid until its release."""
        return self.ffi.buffer(self.ffi.cast("char*", block.host), block.size)

    def release(self, block: Block) -> None:
        """Give a block back to the driver; no queued work may use it."""
        self.lib.vkDestroyBuffer(self.handle, block.handle, self.ffi.NULL)
        self.lib.vkFreeMemory(self.handle, block.memory, self.ffi.NULL)

    def _bind(self, block: Block, mapped: bool) -> Block:
        ffi, lib = self.ffi, self.lib
        try:
            self.check(lib.vkBindBufferMemory(self.handle, block.handle, block.memory, 0), "binding memory")
            if mapped:
                out = ffi.new("void**")
                # 2**64 - 1: VK_WHOLE_SIZE.
                result = lib.vkMapMemory(self.handle, block.memory, 0, 2**64 - 1, 0, out)
                self.check(result, f"mapping {block.size} bytes")
                block.host = int(ffi.cast("uintptr_t", out[0]))
        except BaseException:
            self.release(block)
            raise
        where = self.struct("VkBufferDeviceAddressInfo", buffer=block.handle)
        block.address = int(self._address_of(self.handle, where))
        return block

    def _open(self, physical: Any, features: Any, present: frozenset[str]) -> Any:
        ffi, lib = self.ffi, self.lib
        priority = ffi.new("float*", 1.0)
        queue = self.struct(
            "VkDeviceQueueCreateInfo", queueFamilyIndex=self.family, queueCount=1, pQueuePriorities=priority
        )
        extensions = [ATOMIC_FLOAT] if "shaderBufferFloat32AtomicAdd" in present else []
        extensions += {MAINTENANCE_8} & present
        info = self.struct(
            "VkDeviceCreateInfo",
            pNext=features,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queue,
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=self._instance.strings(extensions),
        )
        out = ffi.new("VkDevice*")
        self.check(lib.vkCreateDevice(physical, info, ffi.NULL, out), "creating a device")
        self.on_close(lib.vkDestroyDevice, out[0], ffi.NULL)
        return out[0]

    def _compute_family(self, physical: Any) -> int:
        ffi, get = self.ffi, self.lib.vkGetPhysicalDeviceQueueFamilyProperties
        count = ffi.new("uint32_t*")
        get(physical, count, ffi.NULL)
        families = ffi.new("VkQueueFamilyProperties[]", count[0])
        get(physical, count, families)
        for i, family in enumerate(families):
            if family.queueFlags & self.lib.VK_QUEUE_COMPUTE_BIT:
                return i
        raise UnsupportedError("vulkan: the device has no compute queue; pick another device")

    def _queue(self) -> Any:
        out = self.ffi.new("VkQueue*")
        self.lib.vkGetDeviceQueue(self.handle, self.family, 0, out)
        return out[0]

    def _describe(self, physical: Any, present: frozenset[str]) -> None:
        first = self.struct("VkPhysicalDeviceVulkan11Properties")
        second = self.struct("VkPhysicalDeviceVulkan12Properties", pNext=first)
        properties = self.struct("VkPhysicalDeviceProperties2", pNext=second)
        self.lib.vkGetPhysicalDeviceProperties2(physical, properties)
        core = properties.properties
        name, driver, version = (
            self.ffi.string(text).decode() for text in (core.deviceName, second.driverName, second.driverInfo)
        )
        self.description = f"{name}, {driver} {version}".strip()
        if self._instance.unheard:
            self.description += ", without the Vulkan validation layers, which are not installed"
        self.max_bytes = int(first.maxMemoryAllocationSize)
        self.is_software = core.deviceType == self.lib.VK_PHYSICAL_DEVICE_TYPE_CPU
        features = {"group_shared"}
        # 0x20: COMPUTE of VkShaderStageFlagBits. 0x1F: BASIC, VOTE, ARITHMETIC, BALLOT and SHUFFLE of
        # VkSubgroupFeatureFlagBits, which Slang's wave intrinsics compile to.
        if first.subgroupSupportedStages & 0x20 and first.subgroupSupportedOperations & 0x1F == 0x1F:
            features.add("wave")
        if "shaderBufferFloat32AtomicAdd" in present:
            features.add("atomic_float")
        x, y, z = core.limits.maxComputeWorkGroupCount
        self.caps = Caps((x, y, z), _scalars(present), frozenset(features), first.subgroupSize)


class Block:
    """A buffer with memory of its own.

    Attributes
    ----------
    handle, memory : Any
        ``VkBuffer`` and ``VkDeviceMemory``.
    size : int
        Bytes.
    address : int
        Device address of its first byte.
    host : int
        Host address of its first byte, 0 when it is not mapped.
    """

    __slots__ = ("address", "handle", "host", "memory", "size")

    def __init__(self, handle: Any, memory: Any, size: int) -> None:
        self.handle = handle
        self.memory = memory
        self.size = size
        self.address = self.host = 0


def _scalars(present: frozenset[str]) -> frozenset[str]:
    needs = {
        "bool int uint float": set(),
        "int64_t uint64_t": {"shaderInt64"},
        "double": {"shaderFloat64"},
        "int16_t uint16_t": {"shaderInt16", "storageBuffer16BitAccess"},
        "half": {"shaderFloat16", "storageBuffer16BitAccess"},
        "int8_t uint8_t": {"shaderInt8", "storageBuffer8BitAccess"},
    }
    return frozenset(name for names, need in needs.items() if need <= present for name in names.split())
