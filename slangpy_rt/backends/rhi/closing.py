"""Closes a device of slang-rhi: for its owner, or before slangpy closes it."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.rhi.heap import Heap
from slangpy_rt.backends.rhi.queue import Submissions
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.memory import give_back_freed


def release(submissions: Submissions, open_: list[Submissions], leave: Callable[[], None], heap: Heap) -> None:
    """Wait for queued work, free the memory that it may have used, and close the device."""
    with submissions.lock:
        if submissions.closed:
            return
        submissions.enter()
        try:
            submissions.wait(submissions.submit())
        finally:
            submissions.close()
            atexit.unregister(leave)
            # A reference cycle: the list refers to the device, whose callback refers to the list.
            open_.clear()
            heap.close()
            submissions.device.close()
            give_back_freed()


def end(open_: list[Submissions], _: Any) -> None:
    """Wait for a device's work and refuse more: slangpy closes the device next, and running work would crash it."""
    # Checked before the lock, which another thread may have held when this process was forked.
    for submissions in open_:
        if not submissions.closed:
            apart(submissions.end)
    open_.clear()
