"""Jobs: compilations that one call has begun in several threads, and which end with it after an interrupt.

Python interrupts the main thread alone, which waits for the others. What a thread waits for, such as a compiler in a
process of its own, is told to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slangpy_rt.core.errors import CompileError


class Jobs:
    """The compilations of some threads, each of which has called ``enter``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._stops: list[Callable[[], Any]] = []

    def enter(self) -> None:
        """Count what this thread compiles from now on among these jobs."""
        _OWN.jobs = self

    def stop(self) -> None:
        """Stop what is being compiled; what begins later raises CompileError."""
        with self._lock:
            self._stopped = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def _begin(self, stop: Callable[[], Any]) -> None:
        with self._lock:
            if self._stopped:
                raise CompileError("the compilation was stopped by an interrupt.")
            self._stops.append(stop)

    def _end(self, stop: Callable[[], Any]) -> None:
        with self._lock:
            self._stops.remove(stop)


class _Own(threading.local):
    """The jobs that the thread's compilations belong to."""

    jobs: Jobs | None = None


_OWN = _Own()


@contextmanager
def stoppable(stop: Callable[[], Any]) -> Iterator[None]:
    """Let the thread's jobs, if it has any, call ``stop`` while the block runs.

    Raises
    ------
    CompileError
        If they have been stopped already.
    """
    jobs = _OWN.jobs
    if jobs is None:
        yield
        return
    jobs._begin(stop)
    try:
        yield
    finally:
        jobs._end(stop)
