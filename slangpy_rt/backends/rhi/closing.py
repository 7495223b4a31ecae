"""How a device of slang-rhi is closed: by its owner, by slangpy, and as the process ends."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.rhi.heap import Heap
from slangpy_rt.backends.rhi.queue import Submissions
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.memory import give_back_freed


def release(submissions: Submissions, open_: list[Submissions], leave: Callable[[], None], heap: Heap) -> None:
    """Wait for queued work and give the device back; then the memory goes that the work may have used."""
    with submissions.lock:
        if submissions.closed:
            return
        submissions.enter()
        try:
            submissions.wait(submissions.submit())
        finally:
            submissions.close()
            atexit.unregister(leave)
            # What is in the list would keep the device, which keeps the list.
            open_.clear()
            heap.close()
            submissions.device.close()
            give_back_freed()


def end(open_: list[Submissions], _: Any) -> None:
    """Wait for a device's work and take no more, because slangpy closes the device next and would crash."""
    # Closed ones before the lock, which another thread may have held when this process was forked.
    for submissions in open_:
        if not submissions.closed:
            apart(submissions.end)
    open_.clear()
