"""Marks in queues of ``Submissions``, and places for the time stamps of timed ones. Nothing here calls a driver."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from functools import partial

from slangpy_rt.backends.base import Mark
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import finalizer

STAMPS = 1 << 16  # time stamps of a queue that may be in use at a time, in half a MiB


class StampedMark(Mark):
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

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, StampedMark)
        return self.clock.time_of(self.stamp.number) - earlier.clock.time_of(earlier.stamp.number)


class Stamps(ABC):
    """The time stamps of one queue. ``take`` is called with the backend's lock, ``time_of`` without."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._free: list[_Stamp] = []
        self._made = 0

    @abstractmethod
    def time_of(self, stamp: int) -> float:
        """Return the seconds that the device's clock showed at a stamp, whose mark is done."""

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
