"""Copies between ordinary host memory and a CUDA device, through a ring of page-locked slots.

The device reads and writes page-locked memory at the full speed of the bus (55 GB/s where one thread copies
10 GB/s), so large copies are cut into chunks that several threads move in or out of slots while the bus
carries the others. Nothing here allocates device memory or decides in what order copies are made.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import memmove

from slangpy_rt.backends.cuda.driver import check, driver, query
from slangpy_rt.core.interrupts import apart

CHUNK = 2 << 20  # the size of a slot: 38 us on the bus, more than Python needs to hand out the next
SLOTS = 16  # 32 MiB page-locked at most; each slot is made when first needed, in about 0.5 ms
INLINE = 512 << 10  # copied by the calling thread: 50 us, about what waking another costs
THREADS = min(16, os.cpu_count() or 1)
_AHEAD = SLOTS // 2  # uploads: half of the ring fills while the other half drains
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_Copy = Callable[[int, int, list[tuple[int, int]], int, list[Future[None]]], None]


class Staging:
    """The ring of one stream. Every caller has the device's context current."""

    def __init__(self, context: int, stream: int) -> None:
        self._cu = driver()
        self._context = context
        self._stream = stream
        self._lock = threading.Lock()
        self._slots: list[tuple[int, int]] = []
        self._pool: ThreadPoolExecutor | None = None
        # Slot in use, counted without wrapping round, and how many of its bytes are taken: both change in one step.
        # An event marks the end of a slot's use on the stream.
        self._place = 0, 0

    def upload(self, device: int, host: int, nbytes: int) -> None:
        """Queue a copy to the device; the host memory may change once this returns."""
        # Threads read the caller's memory meanwhile.
        if nbytes > INLINE and self._by_threads(self._upload_pieces, device, host, nbytes):
            return
        with self._lock:
            for start, size in _pieces(nbytes):
                at = self._room(size)
                memmove(at, host + start, size)
                status = self._cu.cuMemcpyHtoDAsync_v2(device + start, at, size, self._stream)
                check(status, "a copy to the device")

    def download(self, host: int, device: int, nbytes: int) -> None:
        """Copy from the device after all queued work."""
        if nbytes > INLINE and self._by_threads(self._download_pieces, device, host, nbytes):
            return
        with self._lock:
            for start, size in _pieces(nbytes):
                at = self._room(size)
                status = self._cu.cuMemcpyDtoHAsync_v2(at, device + start, size, self._stream)
                check(status, "a copy from the device")
                check(self._cu.cuStreamSynchronize(self._stream), "waiting for queued work")
                memmove(host + start, at, size)

    def close(self) -> None:
        """Give page-locked memory back; the stream is idle."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
            for at, event in self._slots:
                self._cu.cuEventDestroy_v2(event)
                self._cu.cuMemFreeHost(at)
            self._slots.clear()

    def _by_threads(self, copy: _Copy, device: int, host: int, nbytes: int) -> bool:
        """Copy through slots that threads fill or empty; False if Python starts no thread, and all is left to do."""
        try:
            apart(self._copy_pieces, copy, device, host, _pieces(nbytes))
        except _NoThreadError:
            return False
        return True

    def _copy_pieces(self, copy: _Copy, device: int, host: int, pieces: list[tuple[int, int]]) -> None:
        with self._lock:
            self._enter()
            first = self._open_turn()
            jobs: list[Future[None]] = []
            self._place = first + len(pieces), 0
            try:
                copy(device, host, pieces, first, jobs)
            finally:
                # After an error no thread may go on with memory that the caller can free.
                for job in jobs:
                    if not job.cancel():
                        job.exception()

    def _upload_pieces(
        self, device: int, host: int, pieces: list[tuple[int, int]], first: int, jobs: list[Future[None]]
    ) -> None:
        """Copy to the device by slots from turn ``first`` on; ``jobs`` gets what threads were given to do."""

        def fill(slot: tuple[int, int], start: int, size: int) -> None:
            check(self._cu.cuEventSynchronize(slot[1]), "waiting for an earlier copy")
            memmove(slot[0], host + start, size)

        for i in range(len(pieces) + _AHEAD):
            if i >= _AHEAD:
                (start, size), (at, event) = pieces[i - _AHEAD], self._slot(first + i - _AHEAD)
                jobs[i - _AHEAD].result()
                status = self._cu.cuMemcpyHtoDAsync_v2(device + start, at, size, self._stream)
                check(status or self._cu.cuEventRecord(event, self._stream), "a copy to the device")
            if i < len(pieces):
                jobs.append(self._begin(fill, self._slot(first + i), *pieces[i]))

    def _download_pieces(
        self, device: int, host: int, pieces: list[tuple[int, int]], first: int, jobs: list[Future[None]]
    ) -> None:
        """Copy from the device by slots from turn ``first`` on; ``jobs`` gets what threads were given to do."""

        def drain(slot: tuple[int, int], start: int, size: int) -> None:
            check(self._cu.cuEventSynchronize(slot[1]), "a copy from the device")
            memmove(host + start, slot[0], size)

        for i, (start, size) in enumerate(pieces):
            if i >= SLOTS:
                jobs[i - SLOTS].result()
            at, event = slot = self._slot(first + i)
            # No wait for an upload that still reads the slot: it is ahead on the same stream.
            status = self._cu.cuMemcpyDtoHAsync_v2(at, device + start, size, self._stream)
            check(status or self._cu.cuEventRecord(event, self._stream), "a copy from the device")
            jobs.append(self._begin(drain, slot, start, size))
        for job in jobs[-SLOTS:]:
            job.result()

    def _room(self, nbytes: int) -> int:
        """Count the page-locked bytes that nothing queued uses."""
        if self._place[1] + nbytes > CHUNK:
            self._open_turn()
        turn, used = self._place
        at, event = self._slot(turn)
        if not used:
            check(self._cu.cuEventSynchronize(event), "waiting for an earlier copy")
        self._place = turn, used + (nbytes + 255) // 256 * 256
        return at + used

    def _open_turn(self) -> int:
        """Mark the end of the slot in use, go on to the next and return its turn."""
        turn, used = self._place
        if used:
            check(self._cu.cuEventRecord(self._slot(turn)[1], self._stream), "marking a copy")
            turn += 1
            self._place = turn, 0
        return turn

    def _enter(self) -> None:
        check(self._cu.cuCtxSetCurrent(self._context), "entering the context")

    def _slot(self, turn: int) -> tuple[int, int]:
        """Return address and event of a slot."""
        index = turn % SLOTS
        if index >= len(self._slots):
            apart(self._make_slots, index + 1)
        return self._slots[index]

    def _make_slots(self, count: int) -> None:
        self._enter()
        while len(self._slots) < count:
            event = query(self._cu.cuEventCreate, "uintptr_t *", _NO_TIMING, what="creating an event")
            at = query(self._cu.cuMemHostAlloc, "uintptr_t *", CHUNK, 0, what="page-locking host memory")
            self._slots.append((at, event))

    def _begin(
        self, job: Callable[[tuple[int, int], int, int], None], slot: tuple[int, int], start: int, size: int
    ) -> Future[None]:
        """Let another thread run a job on a slot."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                THREADS, "slangpy_rt-copy", initializer=self._cu.cuCtxSetCurrent, initargs=(self._context,)
            )
        try:
            return self._pool.submit(job, slot, start, size)
        except RuntimeError as error:
            raise _NoThreadError from error


class _NoThreadError(Exception):
    """Python starts no thread, because the process has too many, or because it ends."""


def _pieces(nbytes: int) -> list[tuple[int, int]]:
    """Return start and size of the pieces of a copy, each as large as a slot but for the last."""
    return [(start, min(CHUNK, nbytes - start)) for start in range(0, nbytes, CHUNK)]
