"""Ends the work of backends as the process ends, before the exit handlers of drivers run."""

from __future__ import annotations

import atexit
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial


class Leaves(ABC):
    """A backend that waits for its work as the process ends."""

    @abstractmethod
    def leave(self) -> None:
        """Wait for all work. Daemon threads, which may still run, end at their next call of the backend."""


def leave_at_exit(backend: Leaves) -> Callable[[], None]:
    """Register a call of ``backend.leave`` for the end of the process; return the function registered.

    The registration does not keep the backend alive, and does nothing once the backend is gone.
    """
    leave = partial(_leave, weakref.ref(backend))
    atexit.register(leave)
    return leave


def _leave(backend: weakref.ref[Leaves]) -> None:
    found = backend()
    if found is not None:
        found.leave()
