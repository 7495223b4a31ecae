"""Marks and labels in queues of ``Submissions``, and the time stamps of timed marks. Nothing here calls a driver."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Mark, Shared
from slangpy_rt.backends.extras import ExportedMark, SignallingMark
from slangpy_rt.backends.submissions import BATCH, Submissions, Timeline
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import apart, finalizer

STAMPS = 1 << 16  # time stamps of a queue that may be in use at a time, in half a MiB


class StampedMark(ExportedMark):
    """The end of a submission of a queue. A timed mark has a time stamp in that submission.

    Attributes
    ----------
    queue, value
        The queue, and the timeline value that the submission signals.
    clock, stamp
        The time stamp of a timed mark, and the clock that it is of.
    """

    __slots__ = ("clock", "queue", "stamp", "value")

    clock: Stamps
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

    def shared(self) -> tuple[Shared, int]:
        self.queue.reach(self.value)
        return self.queue.timeline.shared, self.value

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, StampedMark)
        return self.clock.time_of(self.stamp.number) - earlier.clock.time_of(earlier.stamp.number)


class StampedQueue(Submissions):
    """A queue with marks and labels.

    A class that derives from it sets ``_clock``, its ``Stamps``, and ``_device``, of which timelines are made.
    """

    _clock: Stamps
    _device: Any
    # A timeline that other APIs set, and the last value that one of them was told to set.
    _foreign: Timeline | None = None
    _foreign_value = 0

    def mark(self, timed: bool = False) -> Mark:
        with self._lock:
            self.require_open()
            command = self._command or self._open()
            if not timed:
                return StampedMark(self, self.value + (self._pending > 0 or bool(self._awaited)))
            mark = StampedMark(self, self.value + 1)
            self._clock.take(mark)
            # The barrier keeps work after the mark from beginning before the work before it has ended.
            self.locked_barrier()
            self._pending += 1
            self._clock.record(mark.stamp.number, command)
            if self._pending >= BATCH:
                self.locked_submit()
            return mark

    def wait(self, mark: Mark) -> None:
        if not isinstance(mark, StampedMark):
            assert isinstance(mark, SignallingMark)
            apart(self._wait_for, mark)
            return
        with self._lock:
            self.require_open()
            other = mark.queue
            if other is not self:
                other.locked_reach(mark.value)
                self.locked_wait(other.timeline, mark.value)

    def _wait_for(self, mark: SignallingMark) -> None:
        # The lock is held until the other API is told: a timeline's values must be set in increasing order.
        with self._lock:
            self.require_open()
            if self._foreign is None:
                self._foreign = type(self.timeline)(self._device)
            value = self._foreign_value + 1
            mark.signal(self._foreign.shared, value)
            self._foreign_value = value
            self.locked_wait(self._foreign, value)

    def label(self, title: str) -> None:
        with self._lock:
            self.require_open()
            self._begin_label(self._command or self._open(), title)

    def unlabel(self) -> None:
        with self._lock:
            self.require_open()
            self._end_label(self._command or self._open())

    @abstractmethod
    def _begin_label(self, command: Any, title: str) -> None:
        """Begin a part of a list of commands that profilers show under a title."""

    @abstractmethod
    def _end_label(self, command: Any) -> None:
        """End the part that ``_begin_label`` began last."""


class Stamps(ABC):
    """The time stamps of one queue. All but ``time_of`` is called with the backend's lock."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._free: list[_Stamp] = []
        self._made = 0

    @abstractmethod
    def time_of(self, stamp: int) -> float:
        """Return the seconds that the device's clock showed at a stamp, whose mark is done."""

    @abstractmethod
    def record(self, number: int, command: Any) -> None:
        """Record the time stamp with a number in a list of commands."""

    def take(self, mark: StampedMark) -> None:
        """Give a mark a free place.

        Raises
        ------
        UnsupportedError
            If ``STAMPS`` marks hold one.
        """
        mark.clock = self
        free = self._free
        if not free and self._made < STAMPS:
            number = self._made
            self._made = number + 1
            free.append(_Stamp(number, free))
        try:
            # The place moves from the list to the mark in one step, so that an interrupt finds it in one of them.
            for mark.stamp in iter(free.pop, None):
                break
        except IndexError:
            raise UnsupportedError(
                f"{self._name}: a queue remembers {STAMPS} points in time; drop events, timers and profiles, or take "
                "profiles of fewer calls"
            ) from None


class _Stamp:
    """A place for one time stamp; ``give`` returns it to the list of free ones."""

    __slots__ = ("give", "number")

    def __init__(self, number: int, free: list[_Stamp]) -> None:
        self.number = number
        self.give = partial(free.append, self)
