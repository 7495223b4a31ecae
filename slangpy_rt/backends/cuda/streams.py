"""Opens queues on streams of a CUDA context: its own, those a program passes, and those of single calls."""

from __future__ import annotations

import threading
from typing import Any

from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.cuda.context import enter
from slangpy_rt.backends.cuda.driver import FFI_CUDA, NON_BLOCKING, check, driver, query
from slangpy_rt.backends.cuda.events import Events
from slangpy_rt.backends.cuda.graph import Graphs
from slangpy_rt.backends.cuda.queue import CudaQueue
from slangpy_rt.core.errors import DeviceError


class Streams:
    """All queues of one backend.

    Parameters
    ----------
    several : bool
        Whether there are several GPUs.
    debug : bool
        As in ``CudaQueue``.

    Attributes
    ----------
    own : list of int
        The ``CUstream`` of each stream that was created here.
    """

    def __init__(
        self, backend: Backend, context: int, events: Events, graphs: Graphs, several: bool, debug: bool
    ) -> None:
        self._backend = backend
        self._context = context
        self._events = events
        self._graphs = graphs
        self._several = several
        self._debug = debug
        self.own: list[int] = []
        self._wait = driver().cuStreamSynchronize
        self._queues: list[CudaQueue] = []
        # Queues of ``foreign``, whose streams may have been destroyed.
        self._foreign: list[CudaQueue] = []

    def open(self, handle: int | None, owner: Any) -> CudaQueue:
        """Open a queue on a new stream, or on that of another library if ``handle`` is given.

        The context is current, and no interrupt may stop it.

        Raises
        ------
        DeviceError
            If the stream is of another device or context.
        """
        own = handle is None
        if handle is None:
            handle = query(driver().cuStreamCreate, "uintptr_t *", NON_BLOCKING, what="creating a stream")
            self.own.append(handle)
        queue = next((q for q in self._queues if q.handle == handle), None)
        if queue is None:
            queue = self._queue(handle, own)
            self._queues.append(queue)
        if owner is not None:
            queue.owner = owner
        return queue

    def foreign(self, handle: int) -> CudaQueue:
        """Return a queue on a stream of another library, which may destroy the stream after a call."""
        found = next((q for q in (*self._queues, *self._foreign) if q.handle == handle), None)
        if found is None:
            found = self._queue(handle, own=False)
            self._foreign.append(found)
        return found

    def sync(self) -> None:
        """Wait for the work of all queues; if ``foreign`` opened any, wait for all work of the context."""
        backend, wait = self._backend, self._wait
        with backend.inside[threading.get_ident()]:
            if backend.closed:
                backend.require_open()
            enter(self._context)
            for queue in self._queues:
                status = wait(queue.handle)
                if status:
                    check(status, "waiting for queued work")
            if self._foreign:
                check(driver().cuCtxSynchronize(), "waiting for queued work")

    def close(self) -> None:
        """Refuse further launches on all queues."""
        for queue in (*self._queues, *self._foreign):
            queue.close()

    def abandon(self) -> None:
        """Refuse further launches on all queues without taking a lock: this process is a forked child."""
        for queue in (*self._queues, *self._foreign):
            queue.abandon()

    def _queue(self, handle: int, own: bool) -> CudaQueue:
        enter(self._context)
        # 0, 1 and 2 are the default streams, which belong to the current context.
        if handle > 2:
            out = FFI_CUDA.new("uintptr_t *")
            check(driver().cuStreamGetCtx(handle, out), "asking a stream for its context")
            if int(out[0]) != self._context:
                raise DeviceError(
                    f"device cuda: the stream {handle:#x} is of another device or context; pass one of this device."
                )
        queue = CudaQueue(self._backend, self._context, handle, self._events, self._graphs, own, self._debug)
        if self._several:
            queue.keep_current()
        return queue
