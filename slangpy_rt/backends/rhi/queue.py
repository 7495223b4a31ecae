"""Submits work to a device of slang-rhi: launches and copies gather in one command encoder at a time.

They are submitted once there are enough of them, or a caller waits. Argument blocks of one submission lie in frames
of memory, which the host fills. All queues are one. Arrays are not made here.
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
from slangpy_rt.core.errors import DeviceError, DeviceLostError, UnsupportedError
from slangpy_rt.core.interrupts import finalizer, noted

if TYPE_CHECKING:
    from slangpy_rt.backends.rhi.device import Opened

# Argument blocks of one submission; a longer block has one of its own.
_FRAME = 64 << 10
# Launches and copies that gather before the device gets them.
_MOST = 16
# Thread groups that make a launch long enough to begin with it at once.
_LONG = 4096
# Submissions whose commands slang-rhi keeps.
_FLYING = 16
_QUERIES = 256
_FINISH = operator.methodcaller("finish")
_END = operator.methodcaller("end")


class Submissions:
    """The work that a device was given, and the work that gathers for it.

    All methods but ``reached`` and ``wait`` are called with the lock.

    Attributes
    ----------
    lock : context manager
        Held around each call of slang-rhi. One thread may take it several times.
    closed : bool
        Whether the device takes nothing more.
    leaving : bool
        Whether the process is about to end, so that daemon threads stop here.
    lost : str
        Why the device refused work, for good.
    barriers : bool
        Whether launches need barriers to run one after the other.
    ready : object
        The state in which kernels and copies find memory.
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
        # Submissions are counted: the last that is done, as far as is known, and the last that nobody needs any more.
        self._done = self._retired = -1
        # The batch that gathers, or was sent last. Who encodes work learns from it when that is done.
        self.batch: Batch | None = None
        # The open compute pass of the encoder, at most one: launches that wait for nothing share it.
        self._pass: list[Any] = []
        self._pending = 0
        self._frame: Frame | None = None
        self._idle: list[Frame] = []
        self._flying: deque[Batch] = deque()
        self._send: Callable[[Any], int] = opened.device.submit_command_buffer
        self._pools: list[Any] = []
        # Queries that no mark has.
        self._queries: list[_Query] = []
        # What a kernel takes: the address of its argument block, or the index of a descriptor and an offset.
        self._word = np.zeros(1, np.uint64)
        self._words = self._word.view(np.uint32)

    def enter(self) -> None:
        """Make the thread ready that is about to call slang-rhi."""

    @property
    def last(self) -> int:
        """The number of the last submission; -1 before the first."""
        return next((batch.numbers[0] for batch in reversed(self._flying) if batch.numbers), self._retired)

    def encoder(self, waits: bool = True) -> Any:
        """Return the encoder that gathers work; what comes next ``waits`` for what is in it, or may run beside it."""
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
        """Count what was encoded, and submit once it is enough, or at once where it takes long."""
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
            self.launch(dispatch.kernel, dispatch.groups, dispatch.args, waits)  # type: ignore[arg-type]

    def submit(self, waits: bool = True) -> int:
        """Send what gathered; returns the number of the submission with which it is done.

        It waits for an earlier one where slang-rhi keeps too many, unless ``waits`` says that it must not.
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
            # No step of Python's lies between these three, so that Ctrl-C comes before all of them or after.
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
        """Return a mark. A timed one submits nothing, so that the device does not idle between two of them.

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
        # From the list to the mark in one step: an interrupt finds the query in one of them.
        for mark.query in iter(self._queries.pop, None):
            break
        encoder.write_timestamp(mark.query.pool, mark.query.place)
        self.queued()
        return mark

    def number(self, batch: Batch, waits: bool) -> int:
        """Return the number of a batch, which is sent if it has not been; ``waits`` as for ``submit``."""
        if not batch.numbers:
            with self.lock:
                self.submit(waits)
        return batch.numbers[0]

    def seconds(self, query: _Query) -> float:
        """Return the time of the device's clock at a timed mark."""
        with self.lock:
            self.require_open()
            return float(query.pool.get_timestamp_result(query.place))

    def reached(self, value: int) -> bool:
        """Tell whether a submission is done, and all before it."""
        if self._done < value:
            with self.lock:
                self.require_open()
                if self._done < value and self._is_done(value):
                    self._done = value
        return self._done >= value

    def wait(self, value: int) -> None:
        """Wait until a submission is done.

        slang-rhi's own waits keep Python's lock, so this asks again and again.
        """
        pause = 0.0
        while not self.reached(value):
            # Threads that wait for a short kernel are back at once, others cost nothing.
            time.sleep(pause)
            pause = min(pause + 2e-6, 2e-4)

    def require_open(self) -> None:
        """Raise if the device is closed or lost; end daemon threads once the process ends."""
        if self.leaving and threading.current_thread().daemon:
            raise SystemExit
        # slangpy is torn down with Python's modules, whoever still uses its devices.
        if self.closed or sys.is_finalizing():
            raise DeviceError(f"device {self._name}: this device is closed; open a new one.")
        if self.lost:
            raise DeviceLostError(
                f"device {self._name}: work was refused ({self.lost}). This process cannot use the device any more; "
                "start a new one."
            )

    def leave(self) -> None:
        """Wait for all that was sent, as the process ends."""
        if self.last >= 0:
            self.device.wait()

    def end(self) -> None:
        """Wait for all that was sent, and close; without the lock. The device is somebody else's to close."""
        with self.lock:
            if not self.closed:
                try:
                    self.enter()
                    self.leave()
                finally:
                    self.close()

    def close(self) -> None:
        """Let go what slang-rhi made; nothing is in flight."""
        self.closed = True
        self._pools.clear()
        self._frame = self.batch = None
        self._pass.clear()
        self._idle.clear()
        self._flying.clear()

    def _sent(self) -> None:
        """Note that a submission has its number; for derived classes."""

    def _is_done(self, value: int) -> bool:
        return bool(self.device.is_submit_finished(value))

    def _end_pass(self) -> None:
        if self._pass:
            any(map(_END, map(list.pop, (self._pass,))))

    def _place(self, args: bytes) -> int:
        """Copy an argument block to a frame; returns where the device will find it."""
        frame, size = self._frame, len(args)
        if frame is None or frame.used + size > frame.size:
            frame = self._next_frame(size)
        at = frame.used
        frame.data[at : at + size] = args
        frame.used = at + size + 63 & -64
        return frame.address + at

    def _next_frame(self, size: int) -> Frame:
        """Return a frame with room for an argument block."""
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
    """A queue that stands for the one queue of slang-rhi."""

    deferred = True

    def __init__(self, backend: Backend, submissions: Submissions) -> None:
        super().__init__(backend)
        self._submissions = submissions
        self._lock = submissions.lock

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._lock:
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
        """Do nothing: what was queued earlier, on whichever queue, runs earlier."""

    def sync(self) -> None:
        with self._lock:
            value = self._submissions.submit()
        self._submissions.wait(value)


class Batch:
    """Work that goes to the device together.

    Attributes
    ----------
    encoder
        The command encoder.
    frames : list of Frame
        Its argument blocks.
    numbers : list of int
        The number of its submission, once it has been sent.
    """

    __slots__ = ("encoder", "frames", "numbers")

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self.frames: list[Frame] = []
        self.numbers: list[int] = []


class _Query:
    """A place in a pool of slang-rhi for one time, in use by one mark; ``give`` takes it back."""

    __slots__ = ("give", "place", "pool")

    def __init__(self, pool: Any, place: int, free: list[_Query]) -> None:
        self.pool = pool
        self.place = place
        self.give = partial(free.append, self)


class RhiMark(Mark):
    """The end of a batch, if there was one. A timed mark lies somewhere in it, and has a query."""

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
    """A recording that says which launches wait for earlier ones."""

    __slots__ = ("waits",)

    def __init__(self, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]]) -> None:
        super().__init__(dispatches)
        # A barrier orders all that is before it: a launch needs another if it waits for one since the last barrier.
        self.waits: list[bool] = []
        last = -1
        for k, before in enumerate(waits):
            needs = k == 0 or max(before, default=-1) >= last
            self.waits.append(needs)
            last = k if needs else last
