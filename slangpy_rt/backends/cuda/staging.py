"""Copies between ordinary host memory and a CUDA device, through a ring of page-locked slots.

The device reads and writes page-locked memory at the full speed of the bus (55 GB/s, while one thread copies
10 GB/s). So a large copy is cut into chunks: several threads copy some between host memory and slots while the device
copies others. Nothing here allocates device memory or decides in what order copies are made.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import memmove

from slangpy_rt.backends.cuda.driver import check, driver, query
from slangpy_rt.core.interrupts import apart

CHUNK = 2 << 20  # the size of a slot: 38 us on the bus, more than Python needs to begin the next copy
SLOTS = 16  # 32 MiB page-locked at most; each slot is made when first needed, in about 0.5 ms
INLINE = 512 << 10  # the most that the calling thread copies: 50 us, about the time to wake another thread
THREADS = min(16, os.cpu_count() or 1)
_AHEAD = SLOTS // 2  # in an upload, threads fill one half of the ring while the device reads the other
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_Copy = Callable[[int, int, list[tuple[int, int]], int, list[Future[None]]], None]


class Staging:
    """The ring of one stream. Callers have made the device's context current."""

    def __init__(self, context: int, stream: int) -> None:
        self._cu = driver()
        self._context = context
        self._stream = stream
        self._lock = threading.Lock()
        self._slots: list[tuple[int, int]] = []
        self._pool: ThreadPoolExecutor | None = None
        # The turn, which counts slots from 0 on (the slot is ``turn % SLOTS``), and the bytes of the slot in use.
        # They are one tuple, so that an interrupt finds both changed or neither. The event of a slot marks the end of
        # the slot's use on the stream.
        self._place = 0, 0

    def upload(self, device: int, host: int, nbytes: int) -> None:
        """Queue a copy to the device; the host memory may change once this returns."""
        if nbytes > INLINE and self._by_threads(self._upload_pieces, device, host, nbytes):
            return
        with self._lock:
            for start, size in _pieces(nbytes):
                at = self._room(size)
                memmove(at, host + start, size)
                status = self._cu.cuMemcpyHtoDAsync_v2(device + start, at, size, self._stream)
                check(status, "a copy to the device")

    def download(self, host: int, device: int, nbytes: int, direct: bool = False) -> None:
        """Copy from the device after all queued work on the stream; the copy is done when this returns.

        If ``direct``, the host memory is page-locked, and the copy needs no slots.
        """
        if direct:
            check(self._cu.cuMemcpyDtoHAsync_v2(host, device, nbytes, self._stream), "a copy from the device")
            check(self._cu.cuStreamSynchronize(self._stream), "waiting for queued work")
            return
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
        """End the threads and free the page-locked memory; the stream must be idle."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
            for at, event in self._slots:
                self._cu.cuEventDestroy_v2(event)
                self._cu.cuMemFreeHost(at)
            self._slots.clear()

    def _by_threads(self, copy: _Copy, device: int, host: int, nbytes: int) -> bool:
        """Copy through slots that threads fill or empty; return False if Python starts no thread for that."""
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
                # After an error no thread may still use memory that the caller can then free.
                for job in jobs:
                    if not job.cancel():
                        job.exception()

    def _upload_pieces(
        self, device: int, host: int, pieces: list[tuple[int, int]], first: int, jobs: list[Future[None]]
    ) -> None:
        """Copy to the device through the slots from turn ``first`` on; append the jobs of threads to ``jobs``."""

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
        """Copy from the device through the slots from turn ``first`` on; append the jobs of threads to ``jobs``."""

        def drain(slot: tuple[int, int], start: int, size: int) -> None:
            check(self._cu.cuEventSynchronize(slot[1]), "a copy from the device")
            memmove(host + start, slot[0], size)

        for i, (start, size) in enumerate(pieces):
            if i >= SLOTS:
                jobs[i - SLOTS].result()
            at, event = slot = self._slot(first + i)
            # No wait for an upload that may still read the slot: it is earlier on the same stream.
            status = self._cu.cuMemcpyDtoHAsync_v2(at, device + start, size, self._stream)
            check(status or self._cu.cuEventRecord(event, self._stream), "a copy from the device")
            jobs.append(self._begin(drain, slot, start, size))
        for job in jobs[-SLOTS:]:
            job.result()

    def _room(self, nbytes: int) -> int:
        """Reserve ``nbytes`` <= ``CHUNK`` bytes of a slot, and return their host address.

        It waits for the slot's last use if the slot is a new one.
        """
        if self._place[1] + nbytes > CHUNK:
            self._open_turn()
        turn, used = self._place
        at, event = self._slot(turn)
        if not used:
            check(self._cu.cuEventSynchronize(event), "waiting for an earlier copy")
        self._place = turn, used + (nbytes + 255) // 256 * 256
        return at + used

    def _open_turn(self) -> int:
        """Record the event of a slot in use, go on to the next slot, and return the turn of an unused slot."""
        turn, used = self._place
        if used:
            check(self._cu.cuEventRecord(self._slot(turn)[1], self._stream), "marking a copy")
            turn += 1
            self._place = turn, 0
        return turn

    def _enter(self) -> None:
        check(self._cu.cuCtxSetCurrent(self._context), "entering the context")

    def _slot(self, turn: int) -> tuple[int, int]:
        """Return the host address and the event of the slot for a turn."""
        index = turn % SLOTS
        if index >= len(self._slots):
            apart(self._make_slots, index + 1)
        return self._slots[index]

    def _make_slots(self, count: int) -> None:
        self._enter()
        while len(self._slots) < count:
            event = query(self._cu.cuEventCreate, "uintptr_t *", _NO_TIMING, what="creating an event")
            try:
                at = query(self._cu.cuMemHostAlloc, "uintptr_t *", CHUNK, 0, what="page-locking host memory")
            except BaseException:
                self._cu.cuEventDestroy_v2(event)
                raise
            self._slots.append((at, event))

    def _begin(
        self, job: Callable[[tuple[int, int], int, int], None], slot: tuple[int, int], start: int, size: int
    ) -> Future[None]:
        """Have another thread run a job on a slot; raise _NoThreadError if Python starts no thread."""
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
    """Return start and size, in bytes, of the pieces of a copy; all but the last are as large as a slot."""
    return [(start, min(CHUNK, nbytes - start)) for start in range(0, nbytes, CHUNK)]
