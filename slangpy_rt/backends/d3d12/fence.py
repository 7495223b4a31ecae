"""A fence that counts the submissions of a queue, and waits for them."""

from __future__ import annotations

import functools
import time

from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import D3D12Device

# The time of some small copies. Threads of vkd3d-proton hand submissions on: a round trip took 200 us on an H200.
_SPIN_SECONDS = 250e-6
_REMOVED = 2**64 - 1  # what a fence shows once the device is removed


class Fence:
    """An ``ID3D12Fence``, which lives as long as its device. Any number of threads may wait at a time.

    Attributes
    ----------
    handle : Any
        The fence.
    reached : int
        A value that it is known to have reached.
    """

    def __init__(self, device: D3D12Device) -> None:
        # 1: D3D12_FENCE_FLAG_SHARED.
        self.handle = device.make("ID3D12Fence", "CreateFence", 0, int(device.exports), what="making a fence")
        self.reached = 0
        self._device = device

    @functools.cached_property
    def shared(self) -> Shared:
        """The fence for other APIs to open; only for a device that exports."""
        return self._device.shared(self.handle, 0)

    def wait(self, value: int) -> None:
        """Wait until the fence has reached ``value``; other Python threads run meanwhile."""
        if value <= self.reached:
            return
        # Waking a thread takes as long as a small copy. A device on the same cores is not polled.
        end = 0.0 if self._device.is_software else time.perf_counter() + _SPIN_SECONDS
        while not self.passed(value):
            if time.perf_counter() < end:
                continue
            # Without an event it returns when the value is reached, or the device is removed.
            status = self.handle.table.SetEventOnCompletion(self.handle, value, FFI.NULL)
            self._device.check(status, "waiting for the device")

    def passed(self, value: int) -> bool:
        """Tell whether the fence has reached ``value``; asking does not wait."""
        if value > self.reached:
            seen = int(self.handle.table.GetCompletedValue(self.handle))
            if seen == _REMOVED:
                status = self._device.handle.table.GetDeviceRemovedReason(self._device.handle)
                # DXGI_ERROR_DEVICE_REMOVED if the device does not say why.
                self._device.check(min(status, -1) if status < 0 else 0x887A0005 - 2**32, "waiting for the device")
            self.reached = max(self.reached, seen)
        return value <= self.reached
