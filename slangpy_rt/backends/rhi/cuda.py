"""Finds out when work of slang-rhi on CUDA is done, and makes the right context current.

slang-rhi sets its fences when work is queued, not when it is done (slangpy 0.43.1). So an event is recorded after
each submission on slang-rhi's stream, which is CUDA's default stream. Waits for events release the GIL.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver, query
from slangpy_rt.backends.cuda.events import CudaMark, Events
from slangpy_rt.backends.rhi.queue import Submissions
from slangpy_rt.core.interrupts import Inside, noted

if TYPE_CHECKING:
    from slangpy_rt.backends.base import Mark
    from slangpy_rt.backends.rhi.device import Opened

# The legacy default stream, to which slang-rhi's first queue goes.
_STREAM = 0


class CudaSubmissions(Submissions):
    """Submissions to a CUDA device, with an event after each."""

    # No barriers: a stream runs in order.
    barriers = False

    def __init__(self, opened: Opened, name: str, handles: bool) -> None:
        super().__init__(opened, name, handles)
        cu = driver()
        before = query(cu.cuCtxGetCurrent, "uintptr_t *", what="asking for the current context")
        opened.device.set_cuda_context_current()
        context = query(cu.cuCtxGetCurrent, "uintptr_t *", what="asking for the current context")
        check(cu.cuCtxSetCurrent(before), "leaving the context")
        # With one GPU there is only one primary context, which may stay current.
        self._several = query(cu.cuDeviceGetCount, "int *", what="counting devices") > 1
        if self._several:
            self.lock = ContextLock(context)
        self._context, self._make_current = context, cu.cuCtxSetCurrent
        self._events = Events(context, Inside())
        # The numbers of submissions with the marks after them, and the number of the last submission that has one.
        self._ends: deque[tuple[int, Mark]] = deque()
        self._marked = -1

    def enter(self) -> None:
        self._make_current(self._context)

    def mark(self, timed: bool) -> Mark:
        if not timed:
            return super().mark(timed)
        self.submit()
        self.enter()
        return self._mark(timed)

    def wait(self, value: int) -> None:
        """Wait until a submission is done."""
        with self.lock:
            self.require_open()
            self._sent()
            end = next((mark for number, mark in self._ends if number >= value), None)
        if end is not None:
            end.sync()
        self.reached(value)

    def leave(self) -> None:
        # At its own end slangpy waits in the current context, and prints an error if that is not its device's.
        if self._several:
            self.lock.keeps = True
        self.enter()
        super().leave()

    def close(self) -> None:
        super().close()
        self._ends.clear()
        self._events.close()

    def _sent(self) -> None:
        # Also called before a wait, since an interrupt may have come between a submission and its event.
        if self._marked < self.last:
            self.enter()
            self._ends.append((self.last, self._mark(False)))
            self._marked = self.last

    def _is_done(self, value: int) -> bool:
        self._sent()
        while self._ends and self._ends[0][0] <= value and self._ends[0][1].done:
            self._ends.popleft()
        return not self._ends or self._ends[0][0] > value

    def _mark(self, timed: bool) -> CudaMark:
        mark = CudaMark(self._events)
        self._events.take(mark, timed)
        check(driver().cuEventRecord(mark.event, _STREAM), "recording an event")
        return mark


class ContextLock:
    """A lock that makes a context current while it is held, as slang-rhi requires of its callers.

    Attributes
    ----------
    keeps : bool
        Whether the context stays current afterwards. In a thread that had no context it always does, as with CUDA's
        runtime.
    """

    def __init__(self, context: int) -> None:
        self.keeps = False
        self._lock = threading.RLock()
        self._context = context
        self._before: list[int] = []
        self._found = FFI_CUDA.new("uintptr_t *")
        self._current, self._make_current = driver().cuCtxGetCurrent, driver().cuCtxSetCurrent

    def __enter__(self) -> None:
        taken: list[bool] = []
        try:
            noted(taken, self._lock.acquire)
            self._current(self._found)
            self._before.append(self._found[0])
            self._make_current(self._context)
        except BaseException:  # after an interrupt the lock would otherwise stay taken
            if taken:
                self._lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        before = self._before.pop()
        if before and not self.keeps:
            self._make_current(before)
        self._lock.release()
