"""Work that is recorded in lists of commands and submitted: what queues of Vulkan and D3D12 have in common.

Work is recorded in the open list of commands, which is submitted when it has 64 of them or a caller waits: a
submission takes as long as several launches. Each of eight lists owns a part of a mapped ring, which holds the
argument blocks and small uploads recorded with it. Both are used again once the timeline, which counts submissions,
shows that the device is done.

An interrupt may come between any two steps here. So the notes about a list are changed before the list itself, and on
the safe side: they may show more commands and fewer bindings than there are, and conflicts that need no barrier. The
result of each driver call that must not be made twice is noted in the same step of C as the call
(``extend(map(...))``). The next call of a method finishes a submission that was interrupted.

Nothing here calls a driver. No arrays are allocated here.
"""

from __future__ import annotations

import ctypes
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue, Shared
from slangpy_rt.core.errors import DeviceError, SlangPyRtError

FRAME_BYTES = 1 << 20  # 64 argument blocks of 16 KiB
BATCH = 64  # the most commands in a submission
FRAMES = 8  # lists of commands; so the host is at most 512 launches ahead of the device
_DONE = [0]  # the end of ``Submission.results`` after a success


class Timeline(Protocol):
    """Counts the submissions that are done.

    Attributes
    ----------
    handle : Any
        The driver's object.
    reached : int
        A value that it is known to have reached.
    """

    handle: Any
    reached: int

    @property
    def shared(self) -> Shared:
        """The object for other APIs to open, where the device exports memory."""

    def wait(self, value: int) -> None:
        """Wait until it has reached ``value``."""

    def passed(self, value: int) -> bool:
        """Tell whether it has reached ``value``; asking does not wait."""


class Submissions(Queue):
    """A queue that records commands in lists, and submits them.

    A class that derives from it sets ``_bytes``, the ring as a cffi buffer, and ``_cmd_bind``, ``_cmd_push`` and
    ``_cmd_dispatch``: functions that take a list of commands and the kernel's ``bound``, ``_pushing``, or numbers of
    groups. ``_push[0]`` is where a launch puts the place of its argument block: ``_ring_address`` and an offset.

    Parameters
    ----------
    lock : threading.Lock
        The backend's lock. Methods whose names begin with "locked" are called with it.
    check : callable
        Raises an exception if a driver's status is an error; takes the status, and what was done.
    timeline : Timeline
        Counts the submissions that are done.
    ring : object
        Mapped memory for argument blocks and small uploads, ``FRAME_BYTES`` for each list; ``host`` is its address.
    frames : list of Frame
        The lists of commands.

    Attributes
    ----------
    lock, timeline, ring
        The parameters.
    leaving : bool
        Whether the process ends, so that daemon threads end at their next call.
    """

    deferred = True

    _bytes: Any
    _cmd_bind: Any
    _cmd_push: Any
    _cmd_dispatch: Any
    _push: Any
    _pushing: tuple[Any, ...]
    _ring_address = 0

    def __init__(
        self, backend: Backend, lock: threading.Lock, check: Any, timeline: Any, ring: Any, frames: list[Frame]
    ) -> None:
        super().__init__(backend)
        self.lock = self._lock = lock
        self._check = check
        self.timeline = timeline
        self.ring = ring
        self._frames = frames
        # The frame in which work is recorded, or that is being submitted.
        self._frame = frames[0]
        self.closed = self.leaving = False
        # The last submission, which may not have a result yet.
        self._sent = Submission(0)
        self._sent.results.append(0)
        # The open list: its handle (None while there is none), number of commands, the unused part of the ring, the
        # kernel whose pipeline is bound, and the addresses of buffers used since the last barrier, with whether they
        # were written.
        self._command: Any = None
        self._pending = self._top = self._end = 0
        self._bound: Kernel | None = None
        self._touched: dict[int, bool] = {}
        # What a prepared launch pushed, if the last launch was one: it need not be pushed again.
        self._pushed: Any = None
        # What the next submission waits for, with values, where a wait is part of a submission.
        self._awaited: dict[Any, int] = {}

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        # One function without helpers: a Python call takes as long as recording a command.
        with self._lock:
            if self.closed:
                self.require_open()
            if self._command is None:
                self._open()
            size = len(args)
            start = self._top
            if start + size > self._end:
                start = self.locked_reserve(size)
            # 16: the largest alignment of a Slang scalar or vector.
            self._top = start + (size + 15 & -16)
            self._bytes[start : start + size] = args
            self._push[0] = self._ring_address + start
            self._pending += 1
            command, touched, written = self._command, self._touched, kernel.info.written
            for buffer, writes in zip(buffers, written):  # noqa: B905 (the keyword costs 0.1 us)
                address = buffer.address
                if address in touched and (writes or touched[address]):
                    self.locked_barrier()
                    for buffer, writes in zip(buffers, written):  # noqa: B905
                        touched[buffer.address] = writes or touched.get(buffer.address, False)
                    break
                touched[address] = writes
            if kernel is not self._bound:
                self._bound = None
                self._cmd_bind(command, *kernel.bound)  # type: ignore[attr-defined]
                self._bound = kernel
            self._pushed = None
            self._cmd_push(command, *self._pushing)
            self._cmd_dispatch(command, *groups)
            if self._pending >= BATCH:
                self.locked_submit()

    @property
    def value(self) -> int:
        """The number of submissions so far; a timeline counts those that are done."""
        sent = self._sent
        return sent.value if sent.results[-1:] == _DONE else sent.value - 1

    def require_open(self) -> None:
        """Raise DeviceError when the backend is closed; a daemon thread ends here when the process does."""
        if self.leaving and threading.current_thread().daemon:
            raise SystemExit
        if self.closed:
            raise DeviceError(f"{self.backend.name}: the device is closed; open a new one")

    def reach(self, value: int) -> None:
        """Submit all work before the mark with that timeline value."""
        with self._lock:
            self.require_open()
            self.locked_reach(value)

    def passed(self, value: int) -> bool:
        """Tell whether a submission is done; asking does not wait."""
        with self._lock:
            self.require_open()
            found: bool = self.timeline.passed(value)
            return found

    def sync(self) -> None:
        with self.backend.inside[threading.get_ident()]:
            with self._lock:
                if self.closed:
                    self.require_open()
                value = self.locked_submit()
            # It waits without the lock, so that other threads can queue work meanwhile.
            self.timeline.wait(value)

    def locked_reach(self, value: int) -> None:
        """Submit the recorded work, unless the submission with that timeline value has been made."""
        if value > self.value:
            self.locked_submit()

    def locked_submit(self, alone: bool = True) -> int:
        """Submit the recorded commands; return the timeline value of the last submission.

        If nothing is recorded, waits for other queues are submitted only if ``alone`` is true.
        """
        if self._command is None:
            self._open()
        if self._pending or (alone and self._awaited):
            # From here on nothing more is recorded in this list, also after an interrupt.
            self._frame.leaving = True
            self._command = None
            self._open()
        sent = self._sent
        return sent.value if sent.results[-1:] == _DONE else sent.value - 1

    @abstractmethod
    def locked_barrier(self) -> None:
        """Make the writes of all earlier commands visible to later ones."""

    @abstractmethod
    def locked_wait(self, timeline: Any, value: int) -> None:
        """Make work that is recorded from now on wait until a timeline has reached ``value``."""

    def locked_reserve(self, nbytes: int) -> int:
        """Reserve ``nbytes`` of the ring and return their offset; submit first if the frame's part is used up."""
        if self._command is None:
            self._open()
        if self._top + nbytes > self._end:
            self.locked_submit()
        start = self._top
        self._top = start + (nbytes + 15 & -16)
        return start

    def locked_write(self, dst: Buffer, at: int, address: int, nbytes: int) -> None:
        """Copy host memory through the ring to byte ``at`` of a buffer's block; ``nbytes`` <= ``FRAME_BYTES``."""
        start = self.locked_reserve(nbytes)
        # After the reservation, which may begin a new list, where no buffer has been used yet.
        self.locked_order(dst.address, True)
        ctypes.memmove(self.ring.host + start, address, nbytes)
        self.locked_copy(self.ring, start, dst.chunk.memory, at, nbytes)

    def locked_order(self, address: int, writes: bool) -> None:
        """Order a copy from a buffer, or to it, after work that it conflicts with, unless ``locked_copy`` does so."""

    @abstractmethod
    def locked_copy(self, src: Any, src_offset: int, dst: Any, dst_offset: int, nbytes: int) -> None:
        """Record a copy from one piece of memory to another; offsets are in bytes."""

    @abstractmethod
    def locked_fill(self, memory: Any, at: int, nbytes: int) -> None:
        """Record zeros for ``nbytes`` bytes from ``at`` on, both multiples of 4."""

    def locked_next(self) -> int:
        """Return the timeline value of the submission that the next command will be part of."""
        if self._command is None:
            self._open()
        return self.value + 1

    def locked_finish(self, value: int) -> None:
        """Wait for a submission. Return at once if an interrupt kept its work from being recorded."""
        self.locked_reach(value)
        self.timeline.wait(min(value, self.value))

    def _open(self) -> Any:
        """Submit the frame's list if it is ``leaving``, begin the next one and return it.

        Each step happens once, also if an interrupt stopped an earlier call.
        """
        check, frame = self._check, self._frame
        if frame.leaving:
            try:
                if not frame.ended:
                    self._end_frame(frame)
                if frame.ended[0]:
                    check(frame.ended[0], "ending a list of commands")
                sent = frame.sent
                if sent is None:
                    sent = frame.sent = Submission(self.value + 1)
                if not sent.results:
                    self._send(sent, frame.pointer, "submitting work")
                if sent.results[-1]:
                    check(sent.results[-1], "submitting work")
            except SlangPyRtError:
                # The recorded work is lost, and the list is used again.
                frame.reset()
                raise
            frame.value = sent.value
            frame = self._frames[(frame.index + 1) % FRAMES]
            frame.reset()
            self._frame = frame
        if not frame.begun:
            # The device may still run the last submission of this list.
            if frame.value > self.timeline.reached:
                self.timeline.wait(frame.value)
            self._begin_frame(frame)
        for status in frame.begun:
            if status:
                frame.begun = []
                check(status, "beginning a list of commands")
        self._top = frame.index * FRAME_BYTES
        self._end = self._top + FRAME_BYTES
        self._bound = self._pushed = None
        self._pending = 0
        self._touched.clear()
        self._begun(frame)
        self._command = frame.command
        return frame.command

    @abstractmethod
    def _begin_frame(self, frame: Frame) -> None:
        """Begin a frame's list, and note the results in ``frame.begun`` in the same step of C."""

    def _begun(self, frame: Frame) -> None:
        """Reset what is noted about the open list; it may be called twice for one list."""

    @abstractmethod
    def _end_frame(self, frame: Frame) -> None:
        """End a frame's list so that later ones and the host see what it wrote, and note the result likewise."""

    @abstractmethod
    def _send(self, sent: Submission, pointer: Any, what: str) -> None:
        """Submit a list, and note the results in ``sent.results`` in the same step of C; the last one counts.

        ``_sent`` is set before. Until it has a result, ``value`` does not count it.
        """


class Frame:
    """A list of commands with its part of the ring.

    Attributes
    ----------
    index : int
        Its number, and that of its part of the ring.
    command, pointer, allocator : Any
        The driver's object, a pointer to it, and what its memory is from, if the driver tells these apart.
    value : int
        Timeline value of its last submission.
    leaving : bool
        Whether it is to be submitted, so that nothing more is recorded in it.
    begun, ended : list of int
        The driver's results of beginning and of ending it; empty before that.
    sent : Submission or None
        Its submission; None before that was tried.
    """

    __slots__ = ("allocator", "begun", "command", "ended", "index", "leaving", "pointer", "sent", "value")

    def __init__(self, index: int, command: Any, pointer: Any, allocator: Any = None) -> None:
        self.index = index
        self.command = command
        self.pointer = pointer
        self.allocator = allocator
        self.value = 0
        self.reset()

    def reset(self) -> None:
        """Reset the frame for another submission."""
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.sent: Submission | None = None
        self.leaving = False


class Submission:
    """The timeline value that a submission signals, and the driver's results in a list, which is empty before."""

    __slots__ = ("results", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.results: list[Any] = []
