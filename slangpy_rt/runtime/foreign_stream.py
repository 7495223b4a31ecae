"""ForeignStream: launches on another library's stream, in the order of that stream.

Launches that use buffers of this device are ordered with the device's other queues. The library may destroy the
stream after a call, so that only a call on that stream uses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.base import Buffer, Kernel, Queue
from slangpy_rt.backends.extras import foreign_streams
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.runtime.stream import Stream


class ForeignStream:
    """Launches on one stream of another library.

    Attributes
    ----------
    queue : Queue
        The stream as a queue of the backend.
    direct : callable
        As ``Queue.launch``, for kernels that touch no memory of the device.
    """

    def __init__(self, device: DeviceCore, queue: Queue) -> None:
        self._device = device
        self._own = queue is device.backend.queue
        self.queue = queue
        self.direct = device.launch if self._own else device.queue_launch(queue)

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        """Launch any kernel, with the parameters of ``Queue.launch``."""
        placeholder = self._device.placeholder
        if self._own or all(buffer is placeholder for buffer in buffers):
            self.direct(kernel, groups, args, buffers)
            return
        self.stream().launch(kernel, groups, args, buffers)
        self._device.order.release_stream(self.queue)

    def stream(self) -> Stream:
        """Return the stream as a Stream, for copies and waits; from here on the device's queues are ordered."""
        device = self._device
        lane = device.order.adopt(self.queue, temporary=not self._own)
        device.begin_order()
        return Stream(device, lane)


def foreign_stream(device: DeviceCore, handle: int) -> ForeignStream:
    """Return the ForeignStream of the stream that another library works on, by its handle."""
    found: ForeignStream | None = device.foreign_streams.get(handle)
    if found is None:
        device.check_open()
        streams = foreign_streams(device.backend)
        with device.lock:
            found = device.foreign_streams[handle] = ForeignStream(device, streams.foreign_queue(handle))
    return found
