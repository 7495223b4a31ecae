"""Opens a logical Vulkan device with compute queues of one family, and allocates memory in whole blocks.

It records no commands, knows no kernels, and does not divide blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.device_memory import MemoryDevice
from slangpy_rt.backends.vulkan.instance import (
    ATOMIC_FLOAT,
    BFLOAT16,
    COOPERATIVE_MATRIX,
    DOT_PRODUCT,
    EXTERNAL,
    HOST_MEMORY,
    MAINTENANCE_8,
    TEXTURES,
    VkInstance,
)
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError
from slangpy_rt.core.target import LAVAPIPE_NESTING, Caps

_LAVAPIPE = 13  # VK_DRIVER_ID_MESA_LLVMPIPE
_NVIDIA = 4  # VK_DRIVER_ID_NVIDIA_PROPRIETARY
_OPAQUE_FD = 1  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_ and VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT
_QUEUES = 8  # the most ``VkQueue`` objects; further queues of the backend share them
_DEVICE_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8  # VkMemoryPropertyFlagBits

# Memory properties for a purpose, the best first. Device memory that is cached is the host's own memory, as software
# drivers and integrated GPUs have it. A discrete GPU's visible memory is slow for the host to read, so it is not
# mapped.
DEVICE = (_DEVICE_LOCAL | _VISIBLE | _COHERENT | _CACHED, _DEVICE_LOCAL)
STAGED = (_DEVICE_LOCAL,)
RING = (_DEVICE_LOCAL | _VISIBLE | _COHERENT, _VISIBLE | _COHERENT)
STAGING = (_VISIBLE | _COHERENT | _CACHED, _VISIBLE | _COHERENT)


class VkDevice(MemoryDevice):
    """An open device.

    Attributes
    ----------
    ffi, lib, struct, check, messages
        Attributes and methods of its ``VkInstance``.
    handle : Any
        The ``VkDevice``.
    queues : list
        The ``VkQueue`` objects.
    family : int
        The index of their queue family.
    clock_seconds, clock_mask : float, int
        The seconds of one tick of time stamps, and the mask of their valid bits; 0 without a clock.
    caps, description
        As in ``Backend``.
    uuid : bytes
        The GPU's UUID, which is the same in every API.
    exports : bool
        Whether other APIs can open its memory and semaphores.
    imports_hosts : bool
        Whether ``import_host`` may be called for it.
    max_bytes : int
        Largest single allocation in bytes.
    heap_bytes : int
        Size of the largest device-local heap in bytes.
    is_software : bool
        Whether the device is a CPU, as Mesa's lavapipe is.
    physical : Any
        The ``VkPhysicalDevice``.
    textures : TextureLimits
        What it has of textures.
    """

    def __init__(self, index: int, debug: bool) -> None:
        self._instance = instance = VkInstance(debug)
        self.ffi, self.lib, self.messages = instance.ffi, instance.lib, instance.messages
        self.struct, self.check = instance.struct, instance.check
        try:
            physical = instance.physical(index)
            features, present = instance.features(physical)
            self.family, self._queue_count, bits = self._compute_family(physical)
            self.clock_mask = (1 << bits) - 1
            self.physical = physical
            self.handle = self._open(physical, features, present)
            self.queues = [self._queue(k) for k in range(self._queue_count)]
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
        """Wait for the device, then destroy everything in reverse order. A second call does nothing."""
        self._instance.close()

    def on_close(self, function: Callable[..., Any], *args: Any) -> None:
        self._instance.on_close(function, *args)

    def label_functions(self) -> tuple[Any, Any] | None:
        """Return the functions that begin and end a label in a command buffer; None if labels are switched off."""
        if not CONFIG.labels:
            return None
        find = self._instance.function
        return find("vkCmdBeginDebugUtilsLabelEXT"), find("vkCmdEndDebugUtilsLabelEXT")

    def function(self, name: str) -> Any:
        """Return a device-level function pointer, whose calls do not go through the loader."""
        pointer = self.lib.vkGetDeviceProcAddr(self.handle, name.encode())
        return self.ffi.cast(f"PFN_{name}", pointer)

    def allocate(self, nbytes: int, purpose: Sequence[int]) -> Block:
        """Allocate a buffer with memory of its own, which is mapped if its memory properties include host access.

        ``purpose`` is ``DEVICE``, ``STAGED``, ``RING`` or ``STAGING``.

        Raises
        ------
        OutOfMemoryError
            If no suitable memory has so many bytes left, or the device allows no allocation of this size.
        """
        ffi, lib, none = self.ffi, self.lib, self.ffi.NULL
        if nbytes > self.max_bytes:
            raise OutOfMemoryError(
                f"vulkan: {self.description} allows {self.max_bytes} bytes in one piece, not {nbytes}; "
                f"use smaller arrays"
            )
        # VkBufferUsageFlagBits: 0x20000 SHADER_DEVICE_ADDRESS, 0x20 STORAGE, 0x2 TRANSFER_DST, 0x1 _SRC.
        info = self.struct("VkBufferCreateInfo", size=nbytes, usage=0x20023)
        # Blocks of RING and STAGING are not exported, because arrays that other APIs open are not in them.
        exported = self.exports and purpose[0] & _DEVICE_LOCAL and purpose is not RING
        if exported:
            shared_buffer = self.struct("VkExternalMemoryBufferCreateInfo", handleTypes=_OPAQUE_FD)
            info.pNext = shared_buffer
        buffer = ffi.new("VkBuffer*")
        self.check(lib.vkCreateBuffer(self.handle, info, none, buffer), f"creating a buffer of {nbytes} bytes")
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(self.handle, buffer[0], needs)
        # 2: VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT.
        addressable = self.struct("VkMemoryAllocateFlagsInfo", flags=2)
        if exported:
            shared_memory = self.struct("VkExportMemoryAllocateInfo", handleTypes=_OPAQUE_FD)
            addressable.pNext = shared_memory
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
                    block = Block(buffer[0], memory[0], nbytes, needs.size)
                    return self._bind(block, bool(flags & _VISIBLE))
                break
        lib.vkDestroyBuffer(self.handle, buffer[0], none)
        self.check(result, f"allocating {nbytes} bytes")
        raise AssertionError("check raises for every result but VK_SUCCESS")

    def memory_type(self, among: int, purpose: Sequence[int]) -> int | None:
        """Return the index of the best memory type for a purpose among those whose bits are set; None without one."""
        for flags in purpose:
            for i in range(self._memory.memoryTypeCount):
                if among >> i & 1 and self._memory.memoryTypes[i].propertyFlags & flags == flags:
                    return i
        return None

    def share(self, block: Block) -> Shared:
        """Return a block's memory for other APIs to open; only for a device that ``exports``."""
        if block.shared is None:
            info = self.struct("VkMemoryGetFdInfoKHR", memory=block.memory, handleType=_OPAQUE_FD)
            block.shared = self._shared("vkGetMemoryFdKHR", info, block.nbytes)
        return block.shared

    def shared_semaphore(self, semaphore: Any) -> Shared:
        """Return a semaphore, which was created for export, for other APIs to open."""
        info = self.struct("VkSemaphoreGetFdInfoKHR", semaphore=semaphore, handleType=_OPAQUE_FD)
        return self._shared("vkGetSemaphoreFdKHR", info, 0)

    def _shared(self, name: str, info: Any, nbytes: int) -> Shared:
        get = self.function(name)

        def open() -> int:
            out = self.ffi.new("int*")
            self.check(get(self.handle, info, out), "sharing with another API")
            return int(out[0])

        return Shared(self.uuid, nbytes, open)

    def memory_for(self, needs: Any, what: str) -> Any:
        """Allocate device memory for an image, and return it.

        Raises
        ------
        OutOfMemoryError
            If no suitable memory has so many bytes left.
        """
        memory, result = self.ffi.new("VkDeviceMemory*"), int(self.lib.VK_ERROR_OUT_OF_DEVICE_MEMORY)
        for i in range(self._memory.memoryTypeCount):
            has = self._memory.memoryTypes[i].propertyFlags
            if needs.memoryTypeBits >> i & 1 and has & _DEVICE_LOCAL:
                ask = self.struct("VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=i)
                result = self.lib.vkAllocateMemory(self.handle, ask, self.ffi.NULL, memory)
                break
        self.check(result, what)
        return memory[0]

    def release(self, block: Block) -> None:
        """Free a block; no queued work may use it."""
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
        count = self._queue_count
        priorities = ffi.new("float[]", [1.0] * count)
        queue = self.struct(
            "VkDeviceQueueCreateInfo", queueFamilyIndex=self.family, queueCount=count, pQueuePriorities=priorities
        )
        extensions = [ATOMIC_FLOAT] if "shaderBufferFloat32AtomicAdd" in present else []
        extensions += [COOPERATIVE_MATRIX] if "cooperativeMatrix" in present else []
        extensions += [DOT_PRODUCT] if "shaderIntegerDotProduct" in present else []
        extensions += {MAINTENANCE_8, BFLOAT16, HOST_MEMORY, *EXTERNAL} & present
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

    def _compute_family(self, physical: Any) -> tuple[int, int, int]:
        """Return index, number of queues to use and valid bits of time stamps of a queue family for compute."""
        ffi, get = self.ffi, self.lib.vkGetPhysicalDeviceQueueFamilyProperties
        count = ffi.new("uint32_t*")
        get(physical, count, ffi.NULL)
        families = ffi.new("VkQueueFamilyProperties[]", count[0])
        get(physical, count, families)
        computing = [i for i, family in enumerate(families) if family.queueFlags & self.lib.VK_QUEUE_COMPUTE_BIT]
        # Families without graphics first: on NVIDIA only their queues run at the same time.
        computing.sort(key=lambda i: families[i].queueFlags & self.lib.VK_QUEUE_GRAPHICS_BIT)
        for i in computing:
            return i, min(families[i].queueCount, _QUEUES), int(families[i].timestampValidBits)
        raise UnsupportedError("vulkan: the device has no compute queue; pick another device")

    def _queue(self, index: int) -> Any:
        out = self.ffi.new("VkQueue*")
        self.lib.vkGetDeviceQueue(self.handle, self.family, index, out)
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
        self.clock_seconds = float(core.limits.timestampPeriod) * 1e-9
        self.uuid = bytes(self.ffi.buffer(first.deviceUUID))
        self.max_bytes = int(first.maxMemoryAllocationSize)
        self.is_software = core.deviceType == self.lib.VK_PHYSICAL_DEVICE_TYPE_CPU
        self.imports_hosts = HOST_MEMORY in present
        # Not on a CPU: Mesa's software driver would keep all memory in files to export it.
        self.exports = set(EXTERNAL) <= present and not self.is_software
        features = {"group_shared", "pointers"}
        # 0x20: COMPUTE of VkShaderStageFlagBits. 0x1F: BASIC, VOTE, ARITHMETIC, BALLOT and SHUFFLE of
        # VkSubgroupFeatureFlagBits, which Slang's wave intrinsics compile to.
        if first.subgroupSupportedStages & 0x20 and first.subgroupSupportedOperations & 0x1F == 0x1F:
            features.add("wave")
        if "shaderBufferFloat32AtomicAdd" in present:
            features.add("atomic_float")
        if present >= TEXTURES:
            features.add("textures")
        self.textures = TextureLimits(
            "samplerAnisotropy" in present,
            "imageCubeArray" in present,
            min(second.maxPerStageDescriptorUpdateAfterBindSamplers, second.maxDescriptorSetUpdateAfterBindSamplers),
            min(
                second.maxPerStageDescriptorUpdateAfterBindSampledImages,
                second.maxDescriptorSetUpdateAfterBindSampledImages,
            ),
            min(
                second.maxPerStageDescriptorUpdateAfterBindStorageImages,
                second.maxDescriptorSetUpdateAfterBindStorageImages,
            ),
            second.maxPerStageUpdateAfterBindResources,
        )
        # shaders/mlp_cooperative.slang needs waves of 32 lanes, and 20 KiB of group-shared memory besides 8 KiB of
        # other uses; shaders/matmul_cooperative.slang needs 40 KiB in all.
        room = core.limits.maxComputeSharedMemorySize >> 10
        needed = {"cooperativeMatrix", "shaderFloat16", "vulkanMemoryModel"}
        if "wave" in features and first.subgroupSize == 32 and needed <= present:
            enabled = {"half": "shaderFloat16", "int8_t": "shaderInt8", "bfloat16": BFLOAT16}
            tiles = {element for element in self._instance.tiles(physical) if enabled[element] in present}
            if room >= 45 and "half" in tiles:
                features.add("cooperative_matrix")
            if room >= 40:
                features.update(f"tiles_{element}" for element in tiles)
        if second.driverID == _NVIDIA:
            features.add("barriers_of_present")
        x, y, z = core.limits.maxComputeWorkGroupCount
        nesting = LAVAPIPE_NESTING if second.driverID == _LAVAPIPE else Caps.nesting
        self.caps = Caps((x, y, z), _scalars(present), frozenset(features), first.subgroupSize, nesting=nesting)


class TextureLimits(NamedTuple):
    """What a device has of textures: optional features, and the most descriptors that kernels see at once."""

    anisotropy: bool
    cube_arrays: bool
    samplers: int
    sampled: int
    stored: int
    all: int


class Block:
    """A buffer with memory of its own.

    Attributes
    ----------
    handle, memory : Any
        ``VkBuffer`` and ``VkDeviceMemory``.
    size : int
        Bytes of the buffer.
    address : int
        Device address of its first byte.
    host : int
        Host address of its first byte, 0 when it is not mapped.
    nbytes : int
        Bytes of the memory, which may be more than the buffer's.
    shared : Shared or None
        The memory as ``share`` returned it; None before that.
    """

    __slots__ = ("address", "handle", "host", "memory", "nbytes", "shared", "size")

    def __init__(self, handle: Any, memory: Any, size: int, nbytes: int | None = None) -> None:
        self.handle = handle
        self.memory = memory
        self.size = size
        self.address = self.host = 0
        self.nbytes = size if nbytes is None else nbytes
        self.shared: Shared | None = None


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
