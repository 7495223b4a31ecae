"""Queues of the CPU: a launch is done when ``launch`` returns, and threads share large ones.

Launches of different queues run one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue, Recording
from slangpy_rt.backends.cpu.group_format import HEAD
from slangpy_rt.backends.cpu.kernel import CpuKernel
from slangpy_rt.backends.cpu.threads import Sharing, Threads

# The most pieces of a launch that is divided in the same way each time.
_EVEN_CHUNKS = 64
# Module variables, because attributes of itertools would be looked up in every call.
_chain, _starmap = itertools.chain, itertools.starmap


class CpuQueue(Queue):
    """A queue whose work is done when the call returns.

    Parameters
    ----------
    turn : context manager
        The lock that is held during launches and copies.
    deterministic : bool
        Whether a launch is divided in the same way each time.
    """

    def __init__(
        self, backend: Backend, threads: Threads, turn: AbstractContextManager[Any], deterministic: bool
    ) -> None:
        super().__init__(backend)
        self.closed = False
        self._turn = turn
        self._threads = threads
        self._even = deterministic
        # Whether launches are not timed: there is one thread, or their division must not depend on measured times.
        self._alone = deterministic or threads.count == 1
        # The state that the next large launch uses. After a launch that threads shared it is used up.
        self._sharing: Sharing | None = None

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._turn:
            if self.closed:
                self.backend.require_open()
            count = groups[0]
            if kernel.grouped:  # type: ignore[attr-defined]
                # As ``GroupKernel.range_of`` has it, without a call.
                x, y, z = groups
                count = x * y * z
                past = kernel.past(count, args) if count >= kernel.large else (0, 0)  # type: ignore[attr-defined]
                args = HEAD.pack(x, y, z, *past) + args
            if count <= kernel.probe:  # type: ignore[attr-defined]
                kernel.run(0, count, args)  # type: ignore[attr-defined]
                return
            if self._alone:
                self._run(kernel, count, args)  # type: ignore[arg-type]
                return
            # Removed until the launch ends, so that after an interrupt no later launch finds a used one.
            sharing, self._sharing = self._sharing or self._threads.sharing(kernel), None  # type: ignore[arg-type]
            kept = sharing.kept
            kept[0], kept[1] = kernel, args
            address = kernel.address if count < kernel.large else kernel.streaming_address  # type: ignore[attr-defined]
            first = sharing.at, address, count, args, kernel.coarse  # type: ignore[attr-defined]
            # ``all`` stops at a false result: if ``run_first`` did all the work, the other steps are unused, and the
            # next launch takes them.
            if not all(_chain(_starmap(kernel.run_first, (first,)), sharing.rest)):  # type: ignore[attr-defined]
                self._sharing = sharing

    def replay(self, recording: Recording) -> None:
        with self._turn:
            if self.closed:
                self.backend.require_open()
            for step in recording.steps:  # type: ignore[attr-defined]
                step()

    def close(self) -> None:
        """Refuse further launches; the caller holds the lock ``turn``."""
        self.closed = True
        self._sharing = None

    def _run(self, kernel: CpuKernel, count: int, args: bytes) -> None:
        """Run a launch on the caller's thread, or divided among threads without regard to the time it takes."""
        large = count >= kernel.large
        if not self._even or count <= kernel.enough:
            (kernel.streaming if large else kernel.run)(0, count, args)
            return
        # The pieces depend only on the number of elements, neither on the number of threads nor on measured times.
        chunk = max(kernel.enough, -(-count // _EVEN_CHUNKS))
        sharing = self._threads.sharing(kernel)
        sharing.kept[:], work = (kernel, args), sharing.work
        work.args, work.end, work.chunk = args, count, chunk
        work.run = kernel.streaming_address if large else kernel.address
        work.chunks = -(-count // chunk)
        all(sharing.rest)
