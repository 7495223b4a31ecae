"""Keeps the events of a CUDA context, and makes marks of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Mark, Shared
from slangpy_rt.backends.cuda.context import restoring
from slangpy_rt.backends.cuda.driver import FFI_CUDA, NON_BLOCKING, NOT_READY, check, driver, query
from slangpy_rt.backends.cuda.external import Externals
from slangpy_rt.backends.extras import SignallingMark
from slangpy_rt.core.errors import DeviceError
from slangpy_rt.core.interrupts import Inside, apart, finalizer

_TIMED, _UNTIMED = 0, 2  # CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING


class CudaMark(SignallingMark):
    """A mark that holds a CUDA event; ``Events`` gets the event back when the mark is freed."""

    __slots__ = ("_events", "held")

    held: _Event
    __del__ = finalizer("held.give")

    def __init__(self, events: Events) -> None:
        self._events = events

    @property
    def event(self) -> int:
        """The ``CUevent`` of the mark."""
        return self.held.handle

    @property
    def done(self) -> bool:
        status = self._events.ask(driver().cuEventQuery, self.event)
        if status not in (0, NOT_READY):
            check(status, "looking at an event")
        return status == 0

    def sync(self) -> None:
        check(self._events.ask(driver().cuEventSynchronize, self.event), "waiting for an event")

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, CudaMark)
        out = FFI_CUDA.new("float *")
        status = self._events.ask(driver().cuEventElapsedTime, out, earlier.event, self.event)
        check(status, "reading the time of an event")
        return float(out[0]) * 1e-3

    def signal(self, semaphore: Shared, value: int) -> None:
        self._events.signal(self.event, semaphore, value)


class _Event:
    """A ``CUevent``; ``give`` returns it to the list of free events."""

    __slots__ = ("give", "handle")

    def __init__(self, handle: int, free: list[_Event]) -> None:
        self.handle = handle
        self.give = partial(free.append, self)


class Events:
    """The events of one context. Making an event takes 1 us, so they are used again.

    Attributes
    ----------
    externals : Externals
        Semaphores and memory of other APIs.
    free : tuple of two lists
        Events that no mark holds, without and with timing.
    inside : Inside
        Locks of threads that use an event.
    """

    def __init__(self, context: int, inside: Inside) -> None:
        self.externals = Externals()
        self.inside = inside
        self._context = context
        self._closed = False
        # A stream that sets semaphores; ``_bridging`` is held while it is made.
        self._bridge = 0
        self._bridging = threading.Lock()
        self.free: tuple[list[_Event], list[_Event]] = ([], [])
        self._all: list[int] = []

    def require_open(self) -> None:
        """Raise DeviceError once the events are destroyed, or about to be."""
        if self._closed:
            raise DeviceError("device cuda: this device is closed; open a new one.")

    def ask(self, function: Callable[..., int], *args: Any) -> int:
        """Call a function of the driver with the events' context current; restore the context, return the status."""
        cu, found = driver(), FFI_CUDA.new("uintptr_t *")
        with self.inside[threading.get_ident()]:
            self.require_open()
            cu.cuCtxGetCurrent(found)
            cu.cuCtxSetCurrent(self._context)
            try:
                return function(*args)
            finally:
                cu.cuCtxSetCurrent(found[0])

    def take(self, mark: CudaMark, timed: bool) -> None:
        """Give a mark an event that no other mark holds."""
        free = self.free[timed]
        if not free:
            apart(self._make, timed)
        # The event moves from the list to the mark in one step, so that an interrupt finds it in one of them.
        try:
            for mark.held in iter(free.pop, None):
                return
        except IndexError:
            # Another thread took the last free event in between.
            self.take(mark, timed)

    def _make(self, timed: bool) -> None:
        self.require_open()
        check(driver().cuCtxSetCurrent(self._context), "entering the context")
        flags = _TIMED if timed else _UNTIMED
        event = query(driver().cuEventCreate, "uintptr_t *", flags, what="creating an event")
        self._all.append(event)
        self.free[timed].append(_Event(event, self.free[timed]))

    def signal(self, event: int, semaphore: Shared, value: int) -> None:
        """Set a semaphore from ``value - 1`` to ``value`` after an event, on a stream of its own.

        Later work on the event's stream does not delay it.
        """
        apart(restoring(self._signal, self._context), event, semaphore, value)

    def _signal(self, event: int, semaphore: Shared, value: int) -> None:
        cu = driver()
        with self.inside[threading.get_ident()]:
            self.require_open()
            check(cu.cuCtxSetCurrent(self._context), "entering the context")
            with self._bridging:
                if not self._bridge:
                    self._bridge = query(cu.cuStreamCreate, "uintptr_t *", NON_BLOCKING, what="creating a stream")
            check(cu.cuStreamWaitEvent(self._bridge, event, 0), "letting a stream wait for an event")
            # The value before may be set by another device, and a semaphore's value must not fall.
            self.externals.wait(semaphore, value - 1, self._bridge)
            self.externals.signal(semaphore, value, self._bridge)

    def close(self) -> None:
        """Destroy the events once no thread uses one; their context is current."""
        self._closed = True
        self.inside.wait()
        if self._bridge:
            driver().cuStreamSynchronize(self._bridge)
            driver().cuStreamDestroy_v2(self._bridge)
        self.externals.close()
        for event in self._all:
            driver().cuEventDestroy_v2(event)
        self._all.clear()
