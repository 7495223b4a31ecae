"""Host memory as memory of a Vulkan device, by ``VK_EXT_external_memory_host``: copies lead to it directly."""

from __future__ import annotations

from typing import Any

from slangpy_rt.backends.vulkan.device import STAGING, Block, VkDevice
from slangpy_rt.core.errors import UnsupportedError

_HOST_ALLOCATION = 0x80  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT


def import_host(device: VkDevice, address: int, nbytes: int) -> Block:
    """Return host memory as a Block, which ``device.release`` gives back; the memory itself stays the caller's.

    Parameters
    ----------
    device : VkDevice
        The device.
    address, nbytes : int
        The place and the size of the memory, multiples of 4096.

    Raises
    ------
    UnsupportedError
        If the driver lacks the extension, or coherent memory of this kind.
    OutOfMemoryError, DeviceError
        If the driver refuses.
    """
    if not device.imports_hosts:
        raise UnsupportedError(f"vulkan: {device.description} imports no memory of the host")
    ffi, lib, none = device.ffi, device.lib, device.ffi.NULL
    pointer = ffi.cast("void *", address)
    kinds = device.struct("VkMemoryHostPointerPropertiesEXT")
    what = f"importing {nbytes} bytes of the host's memory"
    ask_kinds = device.function("vkGetMemoryHostPointerPropertiesEXT")
    device.check(ask_kinds(device.handle, _HOST_ALLOCATION, pointer, kinds), what)
    external = device.struct("VkExternalMemoryBufferCreateInfo", handleTypes=_HOST_ALLOCATION)
    # VkBufferUsageFlagBits: 0x2 TRANSFER_DST, 0x1 _SRC.
    info = device.struct("VkBufferCreateInfo", pNext=external, size=nbytes, usage=3)
    buffer = ffi.new("VkBuffer*")
    device.check(lib.vkCreateBuffer(device.handle, info, none, buffer), what)
    memory: Any = ffi.new("VkDeviceMemory*")
    try:
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(device.handle, buffer[0], needs)
        kind = device.memory_type(needs.memoryTypeBits & kinds.memoryTypeBits, STAGING)
        if kind is None or needs.size > nbytes:
            raise UnsupportedError(f"vulkan: {device.description} imports no coherent memory of the host")
        given = device.struct("VkImportMemoryHostPointerInfoEXT", handleType=_HOST_ALLOCATION, pHostPointer=pointer)
        ask = device.struct("VkMemoryAllocateInfo", pNext=given, allocationSize=nbytes, memoryTypeIndex=kind)
        device.check(lib.vkAllocateMemory(device.handle, ask, none, memory), what)
        device.check(lib.vkBindBufferMemory(device.handle, buffer[0], memory[0], 0), what)
    except BaseException:
        lib.vkDestroyBuffer(device.handle, buffer[0], none)
        if memory[0] != none:
            lib.vkFreeMemory(device.handle, memory[0], none)
        raise
    block = Block(buffer[0], memory[0], nbytes)
    block.host = address
    return block
