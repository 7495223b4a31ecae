"""Submits work to a device of slang-rhi: launches and copies are encoded into one command encoder at a time.

They are submitted once there are enough of them, or a caller waits. Argument blocks of one submission are in frames
(``memory.py``), which the host fills. All queues share slang-rhi's one queue. No arrays are allocated here.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Mark, Queue, Recording
from slangpy_rt.backends.rhi.memory import HANDLE_SHIFT, OFFSET_MASK, Frame, pack_address
from slangpy_rt.backends.rhi.program import RhiKernel
from slangpy_rt.backends.rhi.textured import TexturedLaunches
from slangpy_rt.core.errors import DeviceError, DeviceLostError, UnsupportedError
from slangpy_rt.core.interrupts import finalizer, noted

if TYPE_CHECKING:
    from slangpy_rt.backends.rhi.device import Opened

# Bytes of a frame, which holds argument blocks of one submission; a longer block has a frame of its own.
_FRAME = 64 << 10
# The most launches and copies in one submission.
_MOST = 16
# A launch of so many thread groups is submitted at once, so that the device begins with it.
_LONG = 4096
# The most submissions that are not known to be done: slang-rhi keeps the commands of each.
_FLYING = 16
_QUERIES = 256
_FINISH = operator.methodcaller("finish")
_END = operator.methodcaller("end")


class Submissions(TexturedLaunches):
    """The submissions of a device, and the work that is encoded for the next one.

    Methods are called with the lock, except for ``number``, ``seconds``, ``reached``, ``wait``, ``require_open`` and
    ``end``.

    Attributes
    ----------
    lock : context manager
        Held around each call of slang-rhi. One thread may take it several times.
    closed : bool
        Whether further work is refused.
    leaving : bool
        Whether the process is about to end, so that daemon threads end at their next call.
    lost : str
        The reason why the device refused work; empty if it did not. It refuses all later work too.
    barriers : bool
        Whether launches need barriers to run one after the other.
    ready : object
        The resource state that memory has between commands.
    batch : Batch or None
        The batch whose work is being encoded, or that was submitted last.
    """

    barriers: ClassVar[bool] = True

    def __init__(self, opened: Opened, name: str, handles: bool) -> None:
        self.lock: Any = threading.RLock()
        self.closed = self.leaving = False
        self.device = opened.device
        self.ready = opened.slangpy.ResourceState.unordered_access
        self._opened = opened
        self._name = name
        self._handles = handles
        self.lost = ""
        # Numbers of submissions: the last that is known to be done, and the last whose frames were taken back.
        self._done = self._retired = -1
        self.batch: Batch | None = None
        # The open compute pass of the encoder, if there is one: launches that wait for nothing share it.
        self._pass: list[Any] = []
        self._pending = 0
        self._frame: Frame | None = None
        self._idle: list[Frame] = []
        self._flying: deque[Batch] = deque()
        self._send: Callable[[Any], int] = opened.device.submit_command_buffer
        self._pools: list[Any] = []
        # Queries that no mark holds.
        self._queries: list[_Query] = []
        # The parameter of a kernel: the address of its argument block, or a descriptor's index and an offset.
        self._word = np.zeros(1, np.uint64)
        self._words = self._word.view(np.uint32)

    def enter(self) -> None:
        """Prepare the calling thread for calls of slang-rhi; for derived classes."""

    @property
    def last(self) -> int:
        """The number of the last submission; -1 before the first."""
        return next((batch.numbers[0] for batch in reversed(self._flying) if batch.numbers), self._retired)

    def encoder(self, waits: bool = True) -> Any:
        """Return the open command encoder, or a new one.

        If ``waits``, what is encoded next runs after what is in the encoder; else both may run at the same time.
        """
        if self.closed or self.lost or sys.is_finalizing():
            self.require_open()
        self.enter()
        self._end_pass()
        batch = self.batch
        if batch is None or batch.numbers:
            self._frame = None
            batch = self.batch = Batch(self.device.create_command_encoder())
            waits = True
        if waits and self.barriers:
            batch.encoder.global_barrier()
        return batch.encoder

    def queued(self, groups: int = 0) -> None:
        """Count a command that was encoded; submit if there are enough, or if it has many thread ``groups``."""
        self._pending += 1
        if self._pending >= _MOST or groups >= _LONG:
            self.submit()

    def launch(self, kernel: RhiKernel, groups: tuple[int, int, int], args: bytes, waits: bool = True) -> None:
        """Encode a launch; ``waits`` as for ``encoder``."""
        if not self._pass or (waits and self.barriers) or self.closed or self.lost or sys.is_finalizing():
            work = noted(self._pass, self.encoder(waits).begin_compute_pass)
        else:
            work = self._pass[0]
            self.enter()
        if kernel.cursor is not None:
            address = self._place(args)
            if self._handles:
                self._words[:] = address >> HANDLE_SHIFT, address & OFFSET_MASK
                kernel.cursor.set_data(self._words)
            else:
                self._word[0] = address
                kernel.cursor.set_data(self._word)
        work.bind_pipeline(kernel.pipeline, kernel.root)
        work.dispatch_compute(groups)
        self.queued(groups[0] * groups[1] * groups[2])

    def replay(self, recording: RhiRecording) -> None:
        """Encode the launches of a recording."""
        for dispatch, waits in zip(recording.dispatches, recording.waits, strict=True):
            if dispatch.kernel.info.textures:
                self.launch_textured(*dispatch)  # type: ignore[arg-type]
                continue
            self.launch(dispatch.kernel, dispatch.groups, dispatch.args, waits)  # type: ignore[arg-type]

    def submit(self, waits: bool = True) -> int:
        """Submit what was encoded; return the number of the submission with which all work so far is done.

        If too many submissions are not done and ``waits`` is true, it waits for the earliest of them.
        """
        self.require_open()
        batch = self.batch
        if batch is None or batch.numbers:
            return self.last
        self.enter()
        self._end_pass()
        for frame in batch.frames:
            frame.memory.copy_from_numpy(frame.array[: frame.used])
        if self.barriers:
            batch.encoder.global_barrier()
        if not self._flying or self._flying[-1] is not batch:
            self._flying.append(batch)
        try:
            # To finish, to submit and to note the number are one step of C, which no interrupt can divide.
            batch.numbers.extend(map(self._send, map(_FINISH, (batch.encoder,))))
        except RuntimeError as error:
            self.lost = str(error)
            self.require_open()
        self._pending = 0
        self._sent()
        if waits and len(self._flying) > _FLYING:
            self.wait(self._flying[0].numbers[0])
        while self._flying and self._flying[0].numbers and self._flying[0].numbers[0] <= self._done:
            self._retired = self._flying[0].numbers[0]
            for frame in self._flying.popleft().frames:
                if frame.size == _FRAME:
                    frame.used = 0
                    self._idle.append(frame)
        return batch.numbers[0]

    def mark(self, timed: bool) -> Mark:
        """Return a mark. For a timed one nothing is submitted, so that the device does not idle between two of them.

        Raises
        ------
        UnsupportedError
            If the device has no clock.
        """
        if not timed:
            self.submit()
            return RhiMark(self, self.batch)
        if not self._opened.timestamps:
            raise UnsupportedError(f"device {self._name}: slang-rhi has no clock of this device; time on the host.")
        if not self._queries:
            pool = self.device.create_query_pool(self._opened.slangpy.QueryType.timestamp, _QUERIES)
            self._pools.append(pool)
            self._queries.extend([_Query(pool, k, self._queries) for k in range(_QUERIES)])
        encoder = self.encoder()
        mark = RhiMark(self, self.batch)
        # The query moves from the list to the mark in one step, so that an interrupt finds it in one of them.
        for mark.query in iter(self._queries.pop, None):
            break
        encoder.write_timestamp(mark.query.pool, mark.query.place)
        self.queued()
        return mark

    def number(self, batch: Batch, waits: bool) -> int:
        """Return the number of a batch's submission; submit it if it has none. ``waits`` is as for ``submit``."""
        if not batch.numbers:
            with self.lock:
                self.submit(waits)
        return batch.numbers[0]

    def seconds(self, query: _Query) -> float:
        """Return the time, in seconds, that the device's clock showed at a timed mark."""
        with self.lock:
            self.require_open()
            return float(query.pool.get_timestamp_result(query.place))

    def reached(self, value: int) -> bool:
        """Tell whether a submission is done, and all before it; asking does not wait."""
        if self._done < value:
            with self.lock:
                self.require_open()
                if self._done < value and self._is_done(value):
                    self._done = value
        return self._done >= value

    def wait(self, value: int) -> None:
        """Wait until a submission is done.

        slang-rhi's own waits hold the GIL, so this polls.
        """
        pause = 0.0
        while not self.reached(value):
            # Pauses grow from 0 to 200 us: a short kernel is noticed at once, and a long wait uses little of the CPU.
            time.sleep(pause)
            pause = min(pause + 2e-6, 2e-4)

    def require_open(self) -> None:
        """Raise DeviceError if the device is closed or lost; end a daemon thread once the process ends."""
        if self.leaving and threading.current_thread().daemon:
            raise SystemExit
        # As Python ends, slangpy is destroyed even if its devices are still in use.
        if self.closed or sys.is_finalizing():
            raise DeviceError(f"device {self._name}: this device is closed; open a new one.")
        if self.lost:
            raise DeviceLostError(
                f"device {self._name}: work was refused ({self.lost}). This process cannot use the device any more; "
                "start a new one."
            )

    def leave(self) -> None:
        """Wait for all submissions, as the process ends."""
        if self.last >= 0:
            self.device.wait()

    def end(self) -> None:
        """Wait for all submissions, and refuse further work; slangpy closes the device afterwards."""
        with self.lock:
            if not self.closed:
                try:
                    self.enter()
                    self.leave()
                finally:
                    self.close()

    def close(self) -> None:
        """Refuse further work, and drop all references to objects of slang-rhi; no work may be running."""
        self.closed = True
        self._pools.clear()
        self._frame = self.batch = None
        self._pass.clear()
        self._idle.clear()
        self._flying.clear()

    def _sent(self) -> None:
        """Do nothing. Derived classes act here after each submission."""

    def _is_done(self, value: int) -> bool:
        return bool(self.device.is_submit_finished(value))

    def _end_pass(self) -> None:
        if self._pass:
            any(map(_END, map(list.pop, (self._pass,))))

    def _place(self, args: bytes) -> int:
        """Copy an argument block to a frame; return the address that it will have on the device."""
        frame, size = self._frame, len(args)
        if frame is None or frame.used + size > frame.size:
            frame = self._next_frame(size)
        at = frame.used
        frame.data[at : at + size] = args
        frame.used = at + size + 63 & -64
        return frame.address + at

    def _next_frame(self, size: int) -> Frame:
        """Add a frame to the batch that can hold an argument block of ``size`` bytes, and return it."""
        if size > _FRAME:
            frame = self._new_frame(size)
        else:
            frame = self._idle.pop() if self._idle else self._new_frame(_FRAME)
        assert self.batch is not None
        self.batch.frames.append(frame)
        self._frame = frame
        return frame

    def _new_frame(self, size: int) -> Frame:
        memory = self._opened.memory(size, "upload")
        address = pack_address(memory.descriptor_handle_ro.value) if self._handles else memory.device_address
        return Frame(memory, address, size)


class RhiQueue(Queue):
    """One of the objects that stand for slang-rhi's one queue."""

    deferred = True

    def __init__(self, backend: Backend, submissions: Submissions) -> None:
        super().__init__(backend)
        self._submissions = submissions
        self._lock = submissions.lock

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._lock:
            if kernel.info.textures:
                self._submissions.launch_textured(kernel, groups, args, buffers)  # type: ignore[arg-type]
            else:
                self._submissions.launch(kernel, groups, args)  # type: ignore[arg-type]

    def replay(self, recording: Recording) -> None:
        with self._lock:
            self._submissions.replay(recording)  # type: ignore[arg-type]

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        to, at = dst.chunk.memory, dst.chunk.offset + dst_offset
        ready = self._submissions.ready
        with self._lock:
            encoder = self._submissions.encoder()
            encoder.copy_buffer(to, at, src.chunk.memory, src.chunk.offset + src_offset, nbytes)
            encoder.set_buffer_state(to, ready)
            encoder.set_buffer_state(src.chunk.memory, ready)
            self._submissions.queued()

    def mark(self, timed: bool = False) -> Mark:
        with self._lock:
            return self._submissions.mark(timed)

    def wait(self, mark: Mark) -> None:
        """Do nothing: work that was queued earlier, on any queue, runs earlier."""

    def sync(self) -> None:
        with self._lock:
            value = self._submissions.submit()
        self._submissions.wait(value)


class Batch:
    """Work that is submitted together.

    Attributes
    ----------
    encoder
        The command encoder.
    frames : list of Frame
        The memory of its argument blocks.
    numbers : list of int
        The number of its submission; empty before that.
    kept : list
        The textures that its work uses.
    """

    __slots__ = ("encoder", "frames", "kept", "numbers")

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self.frames: list[Frame] = []
        self.numbers: list[int] = []
        self.kept: list[Any] = []


class _Query:
    """A time stamp in a query pool of slang-rhi; ``give`` returns it to the list of free ones."""

    __slots__ = ("give", "place", "pool")

    def __init__(self, pool: Any, place: int, free: list[_Query]) -> None:
        self.pool = pool
        self.place = place
        self.give = partial(free.append, self)


class RhiMark(Mark):
    """The end of a batch; without a batch there was no work. A timed mark is inside of its batch, and has a query."""

    __slots__ = ("_batch", "_submissions", "query")

    query: _Query
    __del__ = finalizer("query.give")

    def __init__(self, submissions: Submissions, batch: Batch | None) -> None:
        self._submissions = submissions
        self._batch = batch

    @property
    def done(self) -> bool:
        self._submissions.require_open()
        return self._batch is None or self._submissions.reached(self._submissions.number(self._batch, waits=False))

    def sync(self) -> None:
        self._submissions.require_open()
        if self._batch is not None:
            self._submissions.wait(self._submissions.number(self._batch, waits=True))

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, RhiMark)
        return self._submissions.seconds(self.query) - self._submissions.seconds(earlier.query)


class RhiRecording(Recording):
    """A recording that notes which launches wait for earlier ones.

    Attributes
    ----------
    waits : list of bool
        For each launch, whether a barrier has to come before it.
    """

    __slots__ = ("waits",)

    def __init__(self, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]]) -> None:
        super().__init__(dispatches)
        # A barrier orders all launches before it with all after it. So a launch needs one only if it waits for a
        # launch that came after the last barrier.
        self.waits: list[bool] = []
        last = -1
        for k, before in enumerate(waits):
            needs = k == 0 or max(before, default=-1) >= last
            self.waits.append(needs)
            last = k if needs else last
