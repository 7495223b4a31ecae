"""Makes a timeline semaphore that counts submissions, and waits for its values.

Nothing is submitted here: submissions of a queue signal the values.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.vulkan.device import VkDevice

_SPIN_SECONDS = 100e-6  # the time of two small copies
_SLICE = 100_000_000  # the nanoseconds of one call of the driver that waits, in which no interrupt is raised
_TIMEOUT = 2  # VK_TIMEOUT


class Timeline:
    """A timeline semaphore, destroyed with its device. Any number of threads may wait at a time.

    Attributes
    ----------
    handle : Any
        Pointer to the ``VkSemaphore``.
    reached : int
        A value that the semaphore is known to have reached.
    """

    def __init__(self, device: VkDevice) -> None:
        self.handle = device.ffi.new("VkSemaphore*")
        self.reached = 0
        self._device = device
        self._idle: list[_Wait] = []
        kind = device.struct("VkSemaphoreTypeCreateInfo", semaphoreType=device.lib.VK_SEMAPHORE_TYPE_TIMELINE)
        if device.exports:
            exported = device.struct("VkExportSemaphoreCreateInfo", handleTypes=1)  # OPAQUE_FD
            kind.pNext = exported
        info = device.struct("VkSemaphoreCreateInfo", pNext=kind)
        device.check(
            device.lib.vkCreateSemaphore(device.handle, info, device.ffi.NULL, self.handle), "creating a semaphore"
        )
        device.on_close(device.lib.vkDestroySemaphore, device.handle, self.handle[0], device.ffi.NULL)
        self._read = device.function("vkGetSemaphoreCounterValue")
        self._wait = device.function("vkWaitSemaphores")

    @functools.cached_property
    def shared(self) -> Shared:
        """The semaphore for other APIs to open; only for a device that exports."""
        return self._device.shared_semaphore(self.handle[0])

    def wait(self, value: int) -> None:
        """Wait until the semaphore has reached ``value``."""
        if value <= self.reached:
            return
        try:
            # Used again, because making one takes 3 us.
            memory = self._idle.pop()
        except IndexError:
            memory = _Wait(self._device, self.handle)
        try:
            if not self._spin(memory.seen, value):
                memory.value[0] = value
                # An interrupt is raised between two of the waits. A driver that gives up reports a lost device.
                while (result := self._wait(self._device.handle, memory.info, _SLICE)) == _TIMEOUT:
                    pass
                self._device.check(result, "waiting for the device")
        finally:
            self._idle.append(memory)
        # Another thread may have set a higher value. A lower one does no harm: a later wait only reads it again.
        self.reached = value

    def passed(self, value: int) -> bool:
        """Tell whether the semaphore has reached ``value``; asking does not wait."""
        if value > self.reached:
            device, seen = self._device, self._device.ffi.new("uint64_t*")
            device.check(self._read(device.handle, self.handle[0], seen), "reading a semaphore")
            self.reached = max(self.reached, int(seen[0]))
        return value <= self.reached

    def _spin(self, seen: Any, value: int) -> bool:
        """Poll the semaphore for ``_SPIN_SECONDS``; return whether it has reached ``value``.

        Waking a sleeping thread takes as long as a small copy. A software device is not polled, because its work
        needs the same cores. Each call of the driver releases the GIL.
        """
        device = self._device
        if device.is_software:
            return False
        read, handle, semaphore = self._read, device.handle, self.handle[0]
        end = time.perf_counter() + _SPIN_SECONDS
        while time.perf_counter() < end:
            device.check(read(handle, semaphore, seen), "reading a semaphore")
            if seen[0] >= value:
                return True
        return False


class _Wait:
    """The structs that one thread's wait passes to the driver."""

    __slots__ = ("info", "seen", "value")

    def __init__(self, device: VkDevice, semaphore: Any) -> None:
        self.seen = device.ffi.new("uint64_t*")
        self.value = device.ffi.new("uint64_t*")
        self.info = device.struct("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphore, pValues=self.value)
