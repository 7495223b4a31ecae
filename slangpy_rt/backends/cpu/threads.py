"""The threads that share a large launch on the CPU. Small launches do not use them."""

from __future__ import annotations

import ctypes
import itertools
import threading
from functools import partial
from operator import methodcaller, not_
from typing import Any

from slangpy_rt.backends.cpu.kernel import CpuKernel
from slangpy_rt.core.interrupts import Crew, Gate, Release, apart, finalizer

_CALL = methodcaller("__call__")


class Threads:
    """All threads of one device. They start with the first launch that is shared, and end with this object.

    Attributes
    ----------
    count : int
        The number of threads that take part in a launch, its caller included.
    """

    __del__ = finalizer("_release.drop")

    def __init__(self, count: int) -> None:
        self.count = count
        self._crew: Crew | None = None
        self._gate = Gate()
        self._lock = threading.Lock()
        self._closed = False

    def sharing(self, kernel: CpuKernel) -> Sharing:
        """Return the state for one shared launch. The threads run the code of RUN_LIST in this kernel's library."""
        if self._crew is None:
            apart(self._start)
        assert self._crew is not None
        return Sharing(kernel, self._crew, self.count, self._gate)

    def close(self) -> None:
        """End the threads; no launch may be running."""
        with self._lock:
            self._closed = True
            if self._crew is not None:
                self._release()
                self._crew = None

    def _start(self) -> None:
        with self._lock:
            if self._crew is None and not self._closed:
                crew = Crew(self.count - 1)
                self._release = Release(crew.close)
                self._crew = crew


class Sharing:
    """The state of one launch that threads share.

    Attributes
    ----------
    work : Work
        The launch, as a struct for C.
    home : CpuKernel
        The kernel whose library has the code of ``rest``.
    kept : list of two
        The launch's kernel and argument block, kept alive for threads that begin after the launch has ended.
    at : object
        The address of ``work``.
    rest : iterator
        The steps after the first elements: to hand the launch to the threads, to run the caller's part, and to wait.
        Each step returns a true value.
    """

    def __init__(self, kernel: CpuKernel, crew: Crew, threads: int, gate: Gate) -> None:
        self.work = Work(shares=8 * threads, open=gate.opens[0], gate=gate.opens[1])
        self.at = at = ctypes.byref(self.work)
        self.home = kernel
        self.kept: list[Any] = [None, None]
        kept = self.kept

        def late() -> None:
            # This function refers to ``kernel`` and ``kept``, so that the code and the arguments outlive this call.
            kernel.run_shared(at)
            assert kept

        # ``not_``: putting a job in a queue returns None.
        handed = map(not_, map(_CALL, crew.begin(late, threads - 1)))
        self.rest = itertools.chain(handed, map(_CALL, (partial(kernel.run_shared, at), gate.wait)))


class Work(ctypes.Structure):
    """A launch that threads share: ``SharedRange`` in the C++ of ``kernel.py``."""

    _fields_ = (
        ("run", ctypes.c_void_p), ("args", ctypes.c_char_p), ("end", ctypes.c_int64), ("chunk", ctypes.c_int64),
        ("next", ctypes.c_int64), ("chunks", ctypes.c_int64), ("finished", ctypes.c_int64),
        ("shares", ctypes.c_int64), ("open", ctypes.c_void_p), ("gate", ctypes.c_void_p),
    )  # fmt: skip
