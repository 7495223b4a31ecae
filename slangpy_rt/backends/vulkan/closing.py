"""Ends the work of a Vulkan device as the device is closed, and as the process ends."""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.core.interrupts import has_daemons


def close_device(device: VkDevice) -> None:
    """Wait for all work, and destroy the device."""
    device.lib.vkDeviceWaitIdle(device.handle)
    device.close()


def stop(device: VkDevice, queues: Sequence[Submissions]) -> bool:
    """Submit and wait for all work as the process ends; the caller holds the backend's lock.

    Returns
    -------
    bool
        Whether the queues refuse further work: if there are daemon threads, which may still call them.
    """
    daemons = has_daemons()
    for queue in queues:
        queue.locked_submit()
        queue.closed = queue.leaving = daemons
    device.lib.vkDeviceWaitIdle(device.handle)
    return daemons
