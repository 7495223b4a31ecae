"""The time stamps of a Vulkan queue."""

from __future__ import annotations

from typing import Any

from slangpy_rt.backends.stamps import STAMPS, StampedMark, Stamps
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.backends.vulkan.commands import VkCommands
from slangpy_rt.core.errors import UnsupportedError


class Clock(Stamps):
    """The time stamps of one queue.

    Attributes
    ----------
    pool : Any
        The ``VkQueryPool``; None before the first timed mark.
    """

    def __init__(self, queue: Submissions, commands: VkCommands) -> None:
        super().__init__("vulkan")
        self.pool: Any = None
        self._queue = queue
        self._commands = commands
        self._device = commands.device

    def time_of(self, stamp: int) -> float:
        device, out = self._device, self._device.ffi.new("uint64_t*")
        # 1 | 2: VK_QUERY_RESULT_64_BIT, _WAIT_BIT.
        read = device.lib.vkGetQueryPoolResults
        with self._queue.lock:
            self._queue.require_open()
            result = read(device.handle, self.pool, stamp, 1, 8, out, 8, 3)
        device.check(result, "reading the device's clock")
        return float(out[0] & device.clock_mask) * device.clock_seconds

    def take(self, mark: StampedMark) -> None:
        """Give a mark a free place in the query pool.

        Raises
        ------
        UnsupportedError
            If the device has no clock, or all places are taken.
        """
        mark.clock = self
        device = self._device
        if not device.clock_mask:
            raise UnsupportedError("vulkan: this device has no clock that its work can be timed by; time on the host")
        if self.pool is None:
            # 2: VK_QUERY_TYPE_TIMESTAMP.
            info = device.struct("VkQueryPoolCreateInfo", queryType=2, queryCount=STAMPS)
            out = device.ffi.new("VkQueryPool*")
            create = device.lib.vkCreateQueryPool
            device.check(create(device.handle, info, device.ffi.NULL, out), "creating a query pool")
            device.on_close(device.lib.vkDestroyQueryPool, device.handle, out[0], device.ffi.NULL)
            self.pool = out[0]
        super().take(mark)

    def record(self, number: int, command: Any) -> None:
        self._commands.reset(command, self.pool, number, 1)
        # 0x2000: BOTTOM_OF_PIPE, after all that was recorded before.
        self._commands.stamp(command, 0x2000, self.pool, number)
