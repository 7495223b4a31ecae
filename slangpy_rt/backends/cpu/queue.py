"""Launches on the CPU: done when ``launch`` returns, the large ones shared by threads. All queues take turns."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue, Recording
from slangpy_rt.backends.cpu.kernel import PROBE, PROBE_ENOUGH, CpuKernel
from slangpy_rt.backends.cpu.threads import Sharing, Threads

# Pieces of a launch that is divided the same way each time.
_EVEN_CHUNKS = 64
# For the path of every call.
_chain, _starmap, _takewhile = itertools.chain, itertools.starmap, itertools.takewhile


class CpuQueue(Queue):
    """A queue whose work is done when the call returns.

    Parameters
    ----------
    turn : context manager
        Held by whoever works on arrays.
    deterministic : bool
        Whether a launch is divided the same way each time.
    """

    def __init__(
        self, backend: Backend, threads: Threads, turn: AbstractContextManager[Any], deterministic: bool
    ) -> None:
        super().__init__(backend)
        self.closed = False
        self._turn = turn
        self._threads = threads
        self._even = deterministic
        # Whether no launch is shared out by the time that its first elements take.
        self._alone = deterministic or threads.count == 1
        # For the next launch; a new one after each that threads shared.
        self._sharing: Sharing | None = None

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._turn:
            if self.closed:
                self.backend.require_open()
            count = groups[0]
            if count <= PROBE or self._alone:
                self._run(kernel, count, args)  # type: ignore[arg-type]
                return
            # Taken out until the launch ends, so that after an interrupt a used one is not taken again.
            sharing, self._sharing = self._sharing or self._threads.sharing(kernel), None  # type: ignore[arg-type]
            kept = sharing.kept
            kept[0], kept[1] = kernel, args
            first = sharing.at, kernel.address, count, args, kernel.coarse  # type: ignore[attr-defined]
            steps = _chain(_starmap(kernel.run_first, (first,)), sharing.rest)  # type: ignore[attr-defined]
            # ``all`` stops at a false result: without work left to share, the other steps stay for the next launch.
            if not deque(_takewhile(bool, steps), 1):
                self._sharing = sharing

    def replay(self, recording: Recording) -> None:
        with self._turn:
            if self.closed:
                self.backend.require_open()
            for step in recording.steps:  # type: ignore[attr-defined]
                step()

    def close(self) -> None:
        """Launch nothing any more; the caller holds the turn."""
        self.closed = True
        self._sharing = None

    def _run(self, kernel: CpuKernel, count: int, args: bytes) -> None:
        """Run a launch that is shared out by number alone, or not at all."""
        if not self._even or count <= PROBE_ENOUGH:
            kernel.run(0, count, args)
            return
        # In pieces that depend on nothing but their number, neither on threads nor on the time they take.
        chunk = max(PROBE_ENOUGH, -(-count // _EVEN_CHUNKS))
        sharing = self._threads.sharing(kernel)
        sharing.kept[:], work = (kernel, args), sharing.work
        work.run, work.args, work.end, work.chunk = kernel.address, args, count, chunk
        work.chunks = -(-count // chunk)
        deque(_takewhile(bool, sharing.rest), 0)
