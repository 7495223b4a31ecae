"""Guests: calls on arrays of another library, which run on the stream that it works on, in its order.

Kernels that touch this device's memory as well go through the order of its queues. The stream may be gone with the
next call: nothing is asked of it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slangpy_rt.backends.base import Buffer, Kernel, Queue

if TYPE_CHECKING:
    from slangpy_rt.device import Device
    from slangpy_rt.runtime.stream import Stream


class Guests:
    """How to launch on one stream of another library.

    Attributes
    ----------
    direct : callable
        As ``Queue.launch``, for kernels that touch no memory of the device.
    """

    def __init__(self, device: Device, queue: Queue) -> None:
        self._device = device
        self._own = queue is device.backend.queue
        self._queue = queue
        self.direct = device.launch if self._own else device.queue_launch(queue)

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        """As ``Queue.launch``, for any kernel."""
        guest = self._device.guest
        if self._own or all(buffer is guest for buffer in buffers):
            self.direct(kernel, groups, args, buffers)
            return
        self.stream().launch(kernel, groups, args, buffers)
        self._device.order.part(self._queue)

    def stream(self) -> Stream:
        """The stream, for what is not a launch; the device's queues are ordered from here on."""
        return self._device.stream_on(self._queue)
