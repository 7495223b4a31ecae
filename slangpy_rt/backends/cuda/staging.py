"""Copies between ordinary host memory and a CUDA device, through a ring of page-locked slots.

The device reads and writes page-locked memory at the full speed of the bus (55 GB/s, while one thread copies
10 GB/s). So a large copy is cut into pieces: several threads copy some between host memory and slots while the device
copies others. Each thread has slots of its own and queues its own copies, so that none waits for another. Nothing
here allocates device memory or decides in what order copies are made.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from ctypes import memmove
from typing import Any

from slangpy_rt.backends.cuda.driver import check, driver, query
from slangpy_rt.core.interrupts import apart

CHUNK = 2 << 20  # the size of a slot: 38 us on the bus, more than Python needs to begin the next copy
SLOTS = 16  # 32 MiB page-locked at most; each slot is made when first needed, in about 0.5 ms
INLINE = 512 << 10  # the most that the calling thread copies: 50 us, about the time to wake another thread
# 8 threads copy 64 GB/s on a host with 16 cores, 16 copy 58.
THREADS = min(8, os.cpu_count() or 1)
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
# The place and the size of a piece.
_Piece = tuple[int, int]
# The address and the event of a slot.
_Slot = tuple[int, int]


class Staging:
    """The ring of one stream. Callers have made the device's context current."""

    def __init__(self, context: int, stream: int) -> None:
        self._cu = driver()
        self._context = context
        self._stream = stream
        self._lock = threading.Lock()
        self._slots: list[_Slot] = []
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

    def download(self, host: int, device: int, nbytes: int) -> None:
        """Copy from the device after all queued work on the stream; the copy is done when this returns."""
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

    def _by_threads(self, copy: Callable[..., None], device: int, host: int, nbytes: int) -> bool:
        """Copy through slots that threads fill or empty; return False if Python starts no thread for that."""
        try:
            apart(self._copy_pieces, copy, device, host, nbytes)
        except _NoThreadError:
            return False
        return True

    def _copy_pieces(self, copy: Callable[..., None], device: int, host: int, nbytes: int) -> None:
        # Whole slots, also if that leaves threads without any: to wake a thread takes as long as to copy 0.5 MiB.
        pieces = _pieces(nbytes)
        lanes = min(THREADS, len(pieces))
        with self._lock:
            self._enter()
            self._open_turn()
            self._slot(SLOTS - 1)
            jobs: list[Future[None]] = []
            errors: list[BaseException] = []
            try:
                for k in range(lanes):
                    jobs.append(self._begin(copy, device, host, pieces[k::lanes], self._slots[k::lanes], errors))
            except BaseException as error:
                errors.append(error)
            # Also after an error: no thread may still use memory that the caller can then free.
            wait(jobs)
            if errors:
                first = errors[0]
                errors.clear()
                try:
                    raise first
                finally:
                    # An error refers to this frame, which must not refer to the error: a cycle is freed only later.
                    del first

    def _upload_pieces(
        self, device: int, host: int, pieces: list[_Piece], slots: list[_Slot], errors: list[BaseException]
    ) -> None:
        """Copy pieces to the device through some slots in turn, until a thread notes an error."""
        cu, stream = self._cu, self._stream
        try:
            for k, (start, size) in enumerate(pieces):
                at, event = slots[k % len(slots)]
                if errors:
                    return
                check(cu.cuEventSynchronize(event), "waiting for an earlier copy")
                memmove(at, host + start, size)
                status = cu.cuMemcpyHtoDAsync_v2(device + start, at, size, stream)
                check(status or cu.cuEventRecord(event, stream), "a copy to the device")
        except BaseException as error:
            errors.append(error)

    def _download_pieces(
        self, device: int, host: int, pieces: list[_Piece], slots: list[_Slot], errors: list[BaseException]
    ) -> None:
        """Copy pieces from the device, as ``_upload_pieces`` does to it."""
        cu, stream = self._cu, self._stream
        flying: deque[tuple[_Piece, _Slot]] = deque()

        def land() -> None:
            (start, size), (at, event) = flying.popleft()
            check(cu.cuEventSynchronize(event), "a copy from the device")
            memmove(host + start, at, size)

        try:
            for k, piece in enumerate(pieces):
                slot = slots[k % len(slots)]
                if errors:
                    return
                if len(flying) == len(slots):
                    land()
                # No wait for an upload that may still read the slot: it is earlier on the same stream.
                status = cu.cuMemcpyDtoHAsync_v2(slot[0], device + piece[0], piece[1], stream)
                check(status or cu.cuEventRecord(slot[1], stream), "a copy from the device")
                flying.append((piece, slot))
            while flying and not errors:
                land()
        except BaseException as error:
            errors.append(error)

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

    def _slot(self, turn: int) -> _Slot:
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

    def _begin(self, copy: Callable[..., None], *what: Any) -> Future[None]:
        """Have another thread make copies; raise _NoThreadError if Python starts no thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                THREADS, "slangpy_rt-copy", initializer=self._cu.cuCtxSetCurrent, initargs=(self._context,)
            )
        try:
            return self._pool.submit(copy, *what)
        except RuntimeError as error:
            raise _NoThreadError from error


class _NoThreadError(Exception):
    """Python starts no thread, because the process has too many, or because it ends."""


def _pieces(nbytes: int) -> list[_Piece]:
    """Return start and size, in bytes, of the pieces of a copy; all but the last are as large as a slot."""
    return [(start, min(CHUNK, nbytes - start)) for start in range(0, nbytes, CHUNK)]
