"""Marks in a Vulkan queue, and the time stamps of timed ones."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Mark, Shared
from slangpy_rt.backends.extras import ExportedMark
from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.backends.vulkan.submission import Submissions
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import finalizer

_STAMPS = 1 << 16  # time stamps of a queue that may be in use at a time, in half a MiB


class VulkanMark(ExportedMark):
    """The end of a submission of a queue. A timed mark has a time stamp in that submission.

    Attributes
    ----------
    queue, value
        The queue, and the timeline value that the submission signals.
    clock, stamp
        The time stamp of a timed mark, and the pool that it is in.
    """

    __slots__ = ("clock", "queue", "stamp", "value")

    clock: Clock
    stamp: _Stamp
    __del__ = finalizer("stamp.give")

    def __init__(self, queue: Submissions, value: int) -> None:
        self.queue = queue
        self.value = value

    @property
    def done(self) -> bool:
        queue = self.queue
        if self.value > queue.value:
            queue.reach(self.value)
        return queue.passed(self.value)

    def sync(self) -> None:
        queue = self.queue
        with queue.backend.inside[threading.get_ident()]:
            queue.reach(self.value)
            queue.timeline.wait(self.value)

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, VulkanMark)
        return self.clock.time_of(self.stamp.number) - earlier.clock.time_of(earlier.stamp.number)

    def shared(self) -> tuple[Shared, int]:
        self.queue.reach(self.value)
        return self.queue.timeline.shared, self.value


class Clock:
    """The time stamps of one queue. ``take`` is called with the backend's lock, ``time_of`` without.

    Attributes
    ----------
    pool : Any
        The ``VkQueryPool``; None before the first timed mark.
    """

    def __init__(self, queue: Submissions, device: VkDevice, lock: threading.Lock) -> None:
        self.pool: Any = None
        self._queue = queue
        self._device = device
        self._lock = lock
        self._free: list[_Stamp] = []
        self._made = 0

    def time_of(self, stamp: int) -> float:
        """Return the seconds that the device's clock showed at a stamp; wait until the stamp is written."""
        device, out = self._device, self._device.ffi.new("uint64_t*")
        # 1 | 2: VK_QUERY_RESULT_64_BIT, _WAIT_BIT.
        read = device.lib.vkGetQueryPoolResults
        with self._lock:
            self._queue.require_open()
            result = read(device.handle, self.pool, stamp, 1, 8, out, 8, 3)
        device.check(result, "reading the device's clock")
        return float(out[0] & device.clock_mask) * device.clock_seconds

    def take(self, mark: VulkanMark) -> None:
        """Give a mark a free place in the query pool.

        Raises
        ------
        UnsupportedError
            If the device has no clock, or ``_STAMPS`` marks hold one.
        """
        mark.clock = self
        device = self._device
        if not device.clock_mask:
            raise UnsupportedError("vulkan: this device has no clock that its work can be timed by; time on the host")
        if self.pool is None:
            # 2: VK_QUERY_TYPE_TIMESTAMP.
            info = device.struct("VkQueryPoolCreateInfo", queryType=2, queryCount=_STAMPS)
            out = device.ffi.new("VkQueryPool*")
            create = device.lib.vkCreateQueryPool
            device.check(create(device.handle, info, device.ffi.NULL, out), "creating a query pool")
            device.on_close(device.lib.vkDestroyQueryPool, device.handle, out[0], device.ffi.NULL)
            self.pool = out[0]
        free = self._free
        if not free and self._made < _STAMPS:
            number = self._made
            self._made = number + 1
            free.append(_Stamp(number, free))
        try:
            # The place moves from the list to the mark in one step, so that an interrupt finds it in one of them.
            for mark.stamp in iter(free.pop, None):
                break
        except IndexError:
            raise UnsupportedError(
                f"vulkan: a queue remembers {_STAMPS} points in time; drop events, timers and profiles, or take "
                "profiles of fewer calls"
            ) from None


class _Stamp:
    """A place in a query pool for one time stamp; ``give`` returns it to the list of free ones."""

    __slots__ = ("give", "number")

    def __init__(self, number: int, free: list[_Stamp]) -> None:
        self.number = number
        self.give = partial(free.append, self)
