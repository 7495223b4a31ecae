"""Work that is recorded in lists of commands and submitted: what queues of Vulkan and D3D12 have in common.

Work is recorded in the open list of commands, which is submitted when it has 64 of them or a caller waits: a
submission takes as long as several launches. Each of eight lists owns a part of a mapped ring, which holds the
argument blocks and small uploads recorded with it. Both are used again once the timeline, which counts submissions,
shows that the device is done.

A kernel that was often the only command of a submission has a ``Single``, a list that is recorded already. Its next
launch in an empty list is held: ``locked_submit`` submits that list, and whatever else is queued before that records
the launch in the open list first. So a caller that waits after each launch has nothing recorded.

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
from itertools import starmap
from typing import Any, Protocol

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue, Shared
from slangpy_rt.backends.frame import Frame
from slangpy_rt.backends.single import FEW, MISFIT, SINGLE_BYTES, Single
from slangpy_rt.backends.submission import Submission
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
        # Recorded lists with one launch, the next of them that gets another kernel, and the launch that is held, with
        # its kernel and its buffers' addresses: while there is one, no list is open, and it counts as pending.
        self._singles: list[Single] = []
        self._turn = 0
        self._held: tuple[Single, Kernel, list[int]] | None = None

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        # One function without helpers: a Python call takes as long as recording a command.
        with self._lock:
            if self.closed:
                self.require_open()
            if not self._pending and kernel.alone >= FEW and self._hold(kernel, groups, args, buffers):  # type: ignore[attr-defined]
                return
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
        if self._command is not None:
            # An interrupt may have come between the opening of the list that has the launch, and this.
            self._held = None
        elif self._held is not None:
            self._send_held()
        else:
            self._open()
        if self._pending or (alone and self._awaited):
            if self._pending == 1 and self._bound is not None and self._singles:
                self._bound.alone += 1  # type: ignore[attr-defined]
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
        if self._held is not None:
            self._record_held(frame.command)
        self._command = frame.command
        self._held = None
        return frame.command

    def _hold(self, kernel: Any, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> bool:
        """Hold a launch that would be the first command of a list; return whether its kernel has a single for it."""
        # An interrupt may have stopped the opening of the list that gets an earlier launch.
        if self._held is not None:
            return False
        single = kernel.single
        if len(args) <= SINGLE_BYTES and (single is None or single.owner is not kernel.info):
            single = self._new_single(kernel, groups)
            if single is None:
                return False
        if single is None or single.groups != groups or self._singles[single.index] is not single:
            kernel.single, kernel.alone = None, MISFIT
            return False
        # The device may still run the list.
        if single.value > self.timeline.reached:
            return False
        if args != single.args:
            single.args = None
            self._bytes[single.start : single.start + len(args)] = args
            single.args = args
        single.sent, single.recorded = None, []
        # Whatever is queued from here on opens a list, and so comes after this launch.
        self._command = None
        self._pending = 1
        # Addresses and not buffers: memory that is freed now serves later work, as after any launch.
        self._held = single, kernel, [buffer.address for buffer in buffers]
        return True

    def _new_single(self, kernel: Any, groups: tuple[int, int, int]) -> Single | None:
        """Record the list of a single for a kernel; return None if the device may still run it."""
        single = self._singles[self._turn]
        if single.value > self.timeline.reached:
            return None
        self._turn = (self._turn + 1) % len(self._singles)
        single.owner = single.args = None
        self._record_single(single, kernel, groups)
        single.groups, single.owner = groups, kernel.info
        kernel.single = single
        return single

    def _send_held(self) -> None:
        """Submit the list of the launch that is held. It is submitted once, also if an interrupt stopped a call."""
        assert self._held is not None
        single = self._held[0]
        sent = single.sent
        if sent is None:
            sent = single.sent = Submission(self.value + 1)
        try:
            if not sent.results:
                single.value = sent.value
                self._send(sent, single.pointer, "submitting work")
            if sent.results[-1]:
                self._check(sent.results[-1], "submitting work")
        finally:
            if sent.results:
                self._pending = 0
                self._held = None

    def _record_held(self, command: Any) -> None:
        """Record the launch that is held in a list that was just begun, since other work follows it."""
        assert self._held is not None
        single, kernel, addresses = self._held
        # An interrupt may have stopped the call that submitted it.
        if single.sent is None or not single.sent.results:
            single.value = self.value + 1
            self._pending = 1
            kernel.alone = 0  # type: ignore[attr-defined]
            touched, written = self._touched, kernel.info.written
            for address, writes in zip(addresses, written, strict=False):
                touched[address] = writes or touched.get(address, False)
            if not single.recorded:
                assert single.groups is not None
                self._cmd_bind(command, *kernel.bound)  # type: ignore[attr-defined]
                self._push[0] = self._ring_address + single.start
                self._cmd_push(command, *self._pushing)
                single.recorded.extend(starmap(self._cmd_dispatch, ((command, *single.groups),)))
            self._bound = kernel

    def _record_single(self, single: Single, kernel: Any, groups: tuple[int, int, int]) -> None:
        """Record a launch, with its argument block at ``single.start``, in the list of a single."""

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
