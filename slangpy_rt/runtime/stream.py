"""Streams, events and timers: queues beside the device's own, points in their order, and the time that work takes.

Calls on different streams that touch the same array wait for each other, in the order of the program. Events order
work with what the package does not know of: other libraries' streams, the host, the clock.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Buffer, Kernel, Mark
from slangpy_rt.backends.extras import foreign_streams
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, a_device, but_of
from slangpy_rt.runtime.lane import Lane
from slangpy_rt.runtime.waiting import reached


class Stream:
    """A queue of its own on a device, made by ``Device.stream()``; its work may run beside that of other streams.

    ``f.stream(s)(...)`` calls a function on it. Calls that touch the same array wait for each other, whichever
    streams they are on. On the CPU a call is done when it returns, on a stream too.

    Attributes
    ----------
    device : Device
        The device of the queue.
    """

    def __init__(self, device: DeviceCore, lane: Lane | None = None) -> None:
        self.device = a_device("Stream", device)
        if lane is not None and not isinstance(lane, Lane):
            raise BindError(f"Stream: {in_words(lane)} is no queue of a device; make streams with device.stream().")
        self._order = order = device.order
        # The next stream takes over this one's queue, unless another library owns it.
        taken: list[Lane] = []
        self._give = partial(order.idle.extend, taken)
        self._lane = lane or order.take(taken, device.backend.open_queue)

    __del__ = finalizer("_give")

    @property
    def handle(self) -> int | None:
        """The driver's handle: the ``CUstream`` on CUDA, else None."""
        return self._lane.queue.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol by which CUDA libraries hand each other streams: version 0 and the ``CUstream``."""
        if self.handle is None:
            raise BindError(f"{self!r}: it is no CUDA stream.")
        return 0, self.handle

    def record(self) -> Event:
        """Make a new event at the point that the stream has come to."""
        return Event(self.device).record(self)

    def wait(self, other: Event | Stream | DeviceCore) -> None:
        """Let work queued here from now on wait for an event, or for all present work of a stream or the device."""
        if isinstance(other, Event):
            other.wait(self)
            return
        device = self.device
        device.check_open()
        lane = self._order.main if other is device else getattr(other, "_lane", None)
        if lane is None or getattr(other, "device", other) is not device:
            raise BindError(
                f"Stream.wait: {in_words(other)} is no event, no stream and not the device of {self!r}"
                f"{but_of(other, device)}."
            )
        with self._order.lock:
            self._lane.wait_all(lane)

    def synchronize(self) -> None:
        """Wait until the stream's work is done, and show the lines that it printed.

        Raises
        ------
        DeviceLostError
            If its work failed.
        """
        self.device.check_open()
        # This puts marks behind the work; they are reached after the wait, and the references can be dropped.
        self._order.drop_done()
        self._lane.queue.sync()
        self._order.drop_done()
        self.device.show_printed()

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        """Queue a kernel; as ``Queue.launch``, for the rest of the package."""
        device = self.device
        if device.closed:
            device.check_open()
        self._order.launch(self._lane, device.queue_launch(self._lane.queue), kernel, groups, args, buffers)

    def __repr__(self) -> str:
        which = "the device's own queue" if self._lane is self._order.main else f"number {self.number}"
        return f"<Stream on {self.device.name}, {which}>"

    @property
    def number(self) -> int:
        """The stream's number on its device; 0 is the device's own queue."""
        number: int = self._order.lanes.index(self._lane)
        return number


class Event:
    """A point in the order of a stream, made by ``Device.event()`` or ``Stream.record()``.

    ``await event`` waits without holding up the event loop of asyncio.
    """

    def __init__(self, device: DeviceCore) -> None:
        self.device = a_device("Event", device)
        self._mark: Mark | None = None

    def record(self, stream: Stream | None = None) -> Event:
        """Move the event to the present end of a stream, or of the device's own queue, and return it."""
        lane = lane_of(self.device, "Event.record", stream)
        with self.device.order.lock:
            self._mark = lane.queue.mark(timed=True)
        return self

    def wait(self, stream: Stream | None = None) -> None:
        """Let work queued from now on, on a stream or the device's own queue, wait for this event, not the host."""
        lane = lane_of(self.device, "Event.wait", stream)
        with self.device.order.lock:
            lane.queue.wait(self._reached("wait"))

    def synchronize(self) -> None:
        """Wait on the host until all work before the event is done."""
        self.device.check_open()
        self._reached("synchronize").sync()

    @property
    def done(self) -> bool:
        """Whether all work before the event is done; reading this does not wait."""
        self.device.check_open()
        return self._reached("done").done

    def elapsed(self, later: Event) -> float:
        """Return the seconds from this event to a later one, by the device's clock; waits for both."""
        self.device.check_open()
        if not isinstance(later, Event) or later.device is not self.device:
            raise BindError(
                f"Event.elapsed: {in_words(later)} is no event of {self.device!r}{but_of(later, self.device)}."
            )
        first, last = self._reached("elapsed"), later._reached("elapsed")
        first.sync()
        last.sync()
        return last.since(first)

    def __await__(self) -> Generator[Any, None, None]:
        return reached(self._reached("await")).__await__()

    def __repr__(self) -> str:
        if self.device.closed:
            return "<Event of a closed device>"
        state = "not recorded" if self._mark is None else "done" if self._mark.done else "pending"
        return f"<Event on {self.device.name}, {state}>"

    def _reached(self, method: str) -> Mark:
        if self._mark is None:
            raise BindError(f"Event.{method}: this event was not recorded; call record() first.")
        return self._mark


class Timer:
    """How long the work queued in a ``with`` block takes on the device; made by ``Device.timer()``.

    Attributes
    ----------
    start, end : Event
        Around the block.
    """

    def __init__(self, device: DeviceCore, stream: Stream | None) -> None:
        self.start = Event(a_device("Timer", device))
        self.end = Event(device)
        self._stream = stream

    @property
    def seconds(self) -> float:
        """The seconds from the first to the last work of the block, by the device's clock; waits for the work.

        Raises
        ------
        BindError
            If no block has ended yet, or another one has begun since.
        """
        if self.end._mark is None:
            raise BindError("Timer.seconds: no block was measured; ask after the end of 'with timer:'.")
        return self.start.elapsed(self.end)

    def __enter__(self) -> Timer:
        self.start.record(self._stream)
        self.end._mark = None
        return self

    def __exit__(self, *error: object) -> None:
        self.end.record(self._stream)

    def __repr__(self) -> str:
        return f"<Timer on {self.start.device.name}>"


def lane_of(device: DeviceCore, where: str, stream: Stream | None) -> Lane:
    """Return the queue of a stream, or the device's own for None.

    Raises
    ------
    BindError
        If it is no stream of this device.
    """
    device.check_open()
    if stream is None:
        return device.order.main
    if not isinstance(stream, Stream) or stream.device is not device:
        raise BindError(
            f"{where}: {in_words(stream)} is no stream of {device!r}{but_of(stream, device)}; make one with its "
            "stream()."
        )
    return stream._lane


def open_stream(device: DeviceCore, external: Any = None) -> Stream:
    """Open a queue beside a device's own, or take one of another library; as ``Device.stream``."""
    device.check_open()
    lane = None
    if external is not None:
        handle = stream_handle("Device.stream", external)
        owner = None if isinstance(external, (int, Stream)) else external
        lane = device.order.adopt(foreign_streams(device.backend).open_stream(handle, owner))
    stream = Stream(device, lane)
    device.begin_order()
    return stream


def stream_handle(where: str, given: Any) -> int:
    """Return the ``CUstream`` of what another library calls a stream, by ``__cuda_stream__`` or as a number.

    Raises
    ------
    BindError
        If it is neither.
    """
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**64:
        return given
    if hasattr(given, "__cuda_stream__"):
        _, handle = given.__cuda_stream__()
        return int(handle)
    # torch's streams before 2.10, and CuPy's
    for name in ("cuda_stream", "ptr"):
        if isinstance(getattr(given, name, None), int):
            return int(getattr(given, name))
    raise BindError(f"{where}: {in_words(given)} is no stream: it has no __cuda_stream__ and is no CUstream number.")
