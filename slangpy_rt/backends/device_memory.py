"""Device memory of Vulkan and D3D12: blocks for arrays, and mapped ones that host and device address.

Nothing here calls a driver: the device allocates and releases buffers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.blocks import ALIGN, SMALL, SizeClasses
from slangpy_rt.backends.shared_pool import SharedPool
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.core.errors import OutOfMemoryError
from slangpy_rt.core.interrupts import apart

_SLAB = 64 << 20


class MemoryDevice(ABC):
    """A device that allocates buffers whole.

    Attributes
    ----------
    ffi : Any
        The cffi interface of the driver.
    heap_bytes : int
        Size of the device's memory in bytes.
    """

    ffi: Any
    heap_bytes: int

    @abstractmethod
    def allocate(self, nbytes: int, kind: Any) -> Any:
        """Allocate a buffer; its ``address`` and ``host`` are where device and host find it, 0 if they do not.

        It has ``size`` bytes, which are as many as were asked for or some more.
        """

    @abstractmethod
    def release(self, memory: Any) -> None:
        """Give a buffer back, which no queued work uses."""

    @abstractmethod
    def on_close(self, function: Callable[..., Any], *args: Any) -> None:
        """Register what is done as the device is closed; what was registered last is done first."""

    def keep(self, nbytes: int, kind: Any) -> Any:
        """Allocate a buffer that lives as long as the device."""
        return apart(self._keep, nbytes, kind)

    def _keep(self, nbytes: int, kind: Any) -> Any:
        memory = self.allocate(nbytes, kind)
        self.on_close(self.release, memory)
        return memory

    def bytes(self, memory: Any) -> Any:
        """Return the bytes of a mapped buffer as a writable cffi buffer, which is valid until ``release``."""
        return self.ffi.buffer(self.ffi.cast("char *", memory.host), memory.size)


class DeviceBuffer(Buffer):
    """A buffer whose memory is a block of ``DeviceMemory``."""

    __slots__ = ()


class DeviceMemory:
    """The memory of one backend; methods are called with the backend's lock.

    Parameters
    ----------
    name : str
        The backend's name, for messages.
    kinds : sequence
        What the device's ``allocate`` takes for device memory, and for memory that host and device address.
    queues : sequence of Submissions
        All queues of the backend.

    Attributes
    ----------
    blocks : SizeClasses
        The blocks of device memory.
    shared : SharedPool
        The blocks of mapped memory.
    """

    def __init__(self, name: str, device: MemoryDevice, kinds: Sequence[Any], queues: Sequence[Submissions]) -> None:
        self._name = name
        self._device = device
        self._kind, self._shared_kind = kinds
        self._queues = queues
        self._allocated: set[Any] = set()
        self.blocks = SizeClasses(self._allocate, SMALL, _SLAB)
        self.shared = SharedPool()
        # A function and no method: a method would keep ``self`` and the queues alive as long as the device.
        device.on_close(_release_all, device, self._allocated)

    def grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block of ``size`` bytes. No interrupt may stop it."""
        if self.blocks.grow(size, buffer):
            # Queues compare the addresses of buffers to find conflicts with earlier work, but these blocks have other
            # addresses than the ones that had the memory before.
            for queue in self._queues:
                queue.locked_barrier()

    def add_slab(self, nbytes: int) -> bool:
        """Add the slab for a size to ``shared`` if it has none; return whether it had none. Not to be interrupted."""
        device, pool = self._device, self.shared
        size = pool.missing(nbytes)
        if size:
            memory = device.allocate(size, self._shared_kind)
            self._allocated.add(memory)
            pool.add(nbytes, memory, memory.address, memoryview(device.bytes(memory)))
        return size > 0

    def close(self) -> None:
        """Refuse further requests."""
        self.shared.close()
        self.blocks.close()

    def _allocate(self, size: int) -> tuple[int, Any]:
        """Allocate memory by the driver.

        Unused memory is freed before, if it is more than a quarter of the heap or the driver has no memory left.
        """
        device = self._device
        if self.blocks.idle() > device.heap_bytes // 4:
            self._give_back()
        try:
            memory = device.allocate(size + ALIGN, self._kind)
        except OutOfMemoryError:
            self._give_back()
            try:
                memory = device.allocate(size + ALIGN, self._kind)
            except OutOfMemoryError as error:
                raise OutOfMemoryError(
                    f"{self._name}: no memory for {size} bytes; free arrays or use smaller ones. {error}"
                ) from None
        self._allocated.add(memory)
        return memory.address, memory

    def _give_back(self) -> None:
        """Free memory without a block in use, once all queued work is done."""
        for queue, value in [(queue, queue.locked_submit()) for queue in self._queues]:
            queue.timeline.wait(value)
        for _, memory in self.blocks.drop():
            self._allocated.remove(memory)
            self._device.release(memory)


def _release_all(device: MemoryDevice, allocated: set[Any]) -> None:
    while allocated:
        device.release(allocated.pop())
