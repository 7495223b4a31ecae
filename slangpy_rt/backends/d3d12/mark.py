"""Marks in a D3D12 queue, and the time stamps of timed ones."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Mark
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import READBACK, D3D12Device, Memory
from slangpy_rt.backends.d3d12.submission import Submissions
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import finalizer, in_one_step

_STAMPS = 1 << 16  # time stamps of a queue that may be in use at a time, in half a MiB
_TIMESTAMP = 2  # D3D12_QUERY_TYPE_TIMESTAMP


class D3D12Mark(Mark):
    """The end of a submission of a queue. A timed mark has a time stamp in that submission.

    Attributes
    ----------
    queue, value
        The queue, and the value that its fence has reached after the submission.
    clock, stamp
        The time stamp of a timed mark, and the clock that it is of.
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
            queue.fence.wait(self.value)

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, D3D12Mark)
        return self.clock.time_of(self.stamp.number) - earlier.clock.time_of(earlier.stamp.number)


class Clock:
    """The time stamps of one queue; ``record`` is called with the backend's lock, ``time_of`` without."""

    def __init__(self, queue: Submissions, device: D3D12Device, lock: threading.Lock) -> None:
        self._queue = queue
        self._device = device
        self._lock = lock
        self._queries: Any = None
        self._results: Memory | None = None
        self._seconds = 0.0
        self._free: list[_Stamp] = []
        self._made = 0

    def time_of(self, stamp: int) -> float:
        """Return the seconds that the device's clock showed at a stamp, whose mark is done."""
        with self._lock:
            self._queue.require_open()
            assert self._results is not None
            return ctypes.c_uint64.from_address(self._results.host + 8 * stamp).value * self._seconds

    def record(self, mark: D3D12Mark, command: Any) -> None:
        """Give a mark a free place, and record a time stamp there in a command list.

        Raises
        ------
        UnsupportedError
            If ``_STAMPS`` marks hold one.
        """
        mark.clock = self
        if self._results is None:
            self._prepare()
        assert self._results is not None
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
                f"d3d12: a queue remembers {_STAMPS} points in time; drop events, timers and profiles, or take "
                "profiles of fewer calls"
            ) from None
        table, n, results = command.table, mark.stamp.number, self._results.handle
        in_one_step(
            partial(table.EndQuery, command, self._queries, _TIMESTAMP, n),
            partial(table.ResolveQueryData, command, self._queries, _TIMESTAMP, n, 1, results, 8 * n),
        )

    def _prepare(self) -> None:
        device, native, ticks = self._device, self._queue.native, FFI.new("uint64_t *")
        device.check(native.table.GetTimestampFrequency(native, ticks), "reading the clock's frequency")
        self._seconds = 1 / ticks[0]
        # 1: D3D12_QUERY_HEAP_TYPE_TIMESTAMP.
        told = FFI.new("D3D12_QUERY_HEAP_DESC *", (1, _STAMPS, 0))
        self._queries = device.make("ID3D12QueryHeap", "CreateQueryHeap", told, what="making a heap of queries")
        self._results = device.keep(8 * _STAMPS, READBACK)


class _Stamp:
    """A place for one time stamp; ``give`` returns it to the list of free ones."""

    __slots__ = ("give", "number")

    def __init__(self, number: int, free: list[_Stamp]) -> None:
        self.number = number
        self.give = partial(free.append, self)
