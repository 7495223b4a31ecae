"""The way of work to a device of slang-rhi: launches and copies gather in one command encoder at a time.

They go to the device once so many are there, or somebody waits for them. Argument blocks of one submission lie in
frames of memory, which the host fills and which go with it. All queues are one. Arrays are not made here.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from slangpy_rt.backends._rhi_memory import HANDLE_SHIFT, OFFSET_MASK, Frame, pack_address
from slangpy_rt.backends.base import Buffer, Dispatch, Kernel, KernelInfo, Mark, Queue, Recording
from slangpy_rt.errors import DeviceError, DeviceLostError, UnsupportedError

if TYPE_CHECKING:
    from slangpy_rt.backends._rhi_device import Opened
    from slangpy_rt.backends.rhi import RhiBackend

# Argument blocks of one submission; a longer block has one of its own.
_FRAME = 64 << 10
# Launches and copies that gather before the device gets them.
_MOST = 16
# Thread groups that make a launch long enough to begin with it at once.
_LONG = 4096
# Submissions whose commands slang-rhi keeps.
_FLYING = 16
_QUERIES = 256


class Submissions:
    """What a device was given, and what it is about to get.

    All methods but ``reached`` and ``wait`` are called with the lock.

    Attributes
    ----------
    lock : context manager
        Held around all that slang-rhi is asked. One thread may take it several times.
    closed : bool
        Whether the device takes nothing more.
    leaving : bool
        Whether the process is about to end, so that daemon threads stop here.
    last : int
        Number of the last submission; -1 before the first.
    barriers : bool
        Whether launches need barriers to run one after the other.
    """

    barriers: ClassVar[bool] = True

    def __init__(self, opened: Opened, name: str, handles: bool) -> None:
        self.lock: Any = threading.RLock()
        self.closed = self.leaving = False
        self.device = opened.device
        self._opened = opened
        self._name = name
        self._handles = handles
        # Submissions are counted.
        self.last = self._done = -1
        self._encoder: Any = None
        # Of compute, that is open in the encoder: launches that wait for nothing share one.
        self._pass: Any = None
        self._batch = Batch()
        self._pending = 0
        self._lost = ""
        self._frame: Frame | None = None
        self._full: list[Frame] = []
        self._idle: list[Frame] = []
        self._flying: deque[tuple[int, list[Frame]]] = deque()
        self._pools: list[Any] = []
        # Numbers of timestamps that no mark has.
        self._queries: list[int] = []
        # What a kernel takes: the address of its argument block, or the index of a descriptor and an offset.
        self._word = np.zeros(1, np.uint64)
        self._words = self._word.view(np.uint32)

    def enter(self) -> None:
        """Make the thread ready that is about to call slang-rhi."""

    def encoder(self, waits: bool = True) -> Any:
        """The encoder that gathers work; what comes next waits for what is in it unless that may run beside it."""
        if self.closed or sys.is_finalizing():
            self.require_open()
        self.enter()
        self._end_pass()
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = self.device.create_command_encoder()
            self._batch = Batch()
            waits = True
        if waits and self.barriers:
            encoder.global_barrier()
        return encoder

    def queued(self) -> None:
        """Something was encoded: so much goes to the device together."""
        self._pending += 1
        if self._pending >= _MOST:
            self.submit()

    def launch(self, kernel: RhiKernel, groups: tuple[int, int, int], args: bytes, waits: bool = True) -> None:
        """As ``Backend.launch``; ``waits`` as for ``encoder``."""
        work = self._pass
        if work is None or (waits and self.barriers) or self.closed or sys.is_finalizing():
            work = self._pass = self.encoder(waits).begin_compute_pass()
        else:
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
        self._pending += 1
        if self._pending >= _MOST or groups[0] * groups[1] * groups[2] >= _LONG:
            self.submit()

    def replay(self, recording: RhiRecording) -> None:
        """As ``Backend.replay``."""
        for dispatch, waits in zip(recording.dispatches, recording.waits, strict=True):
            self.launch(dispatch.kernel, dispatch.groups, dispatch.args, waits)  # type: ignore[arg-type]

    def submit(self) -> int:
        """Send what gathered; returns the number of the submission with which it is done."""
        self.require_open()
        encoder = self._encoder
        if encoder is None:
            return self.last
        self.enter()
        self._end_pass()
        self._encoder = None
        self._pending = 0
        frames = self._full
        if self._frame is not None:
            frames.append(self._frame)
        self._full, self._frame = [], None
        for frame in frames:
            frame.memory.copy_from_numpy(frame.array[: frame.used])
        if self.barriers:
            encoder.global_barrier()
        try:
            self.last = self._send(encoder.finish())
        except RuntimeError as error:
            self._lost = str(error)
            self.require_open()
        self._batch.number = self.last
        self._flying.append((self.last, frames))
        if len(self._flying) > _FLYING:
            self.wait(self._flying[0][0])
        while self._flying and self._flying[0][0] <= self._done:
            for frame in self._flying.popleft()[1]:
                if frame.size == _FRAME:
                    frame.used = 0
                    self._idle.append(frame)
        return self.last

    def mark(self, timed: bool) -> Mark:
        """As ``Queue.mark``. With a timed one work goes on to gather: between two of them the device does not idle.

        Raises
        ------
        UnsupportedError
            If the device has no clock.
        """
        if not timed:
            return RhiMark(self, Batch(self.submit()), -1)
        if not self._opened.timestamps:
            raise UnsupportedError(f"device {self._name}: slang-rhi has no clock of this device.")
        if not self._queries:
            self._pools.append(self.device.create_query_pool(self._opened.slangpy.QueryType.timestamp, _QUERIES))
            end = len(self._pools) * _QUERIES
            self._queries.extend(range(end - _QUERIES, end))
        query = self._queries.pop()
        self.encoder().write_timestamp(self._pools[query // _QUERIES], query % _QUERIES)
        return RhiMark(self, self._batch, query)

    def number(self, batch: Batch) -> int:
        """The number of a batch, which is sent if it has not been."""
        if batch.number is None:
            with self.lock:
                if batch.number is None:
                    self.submit()
        assert batch.number is not None
        return batch.number

    def seconds(self, query: int) -> float:
        """The device's clock at a timed mark."""
        assert query >= 0
        with self.lock:
            self.require_open()
            return float(self._pools[query // _QUERIES].get_timestamp_result(query % _QUERIES))

    def release(self, query: int) -> None:
        """A timed mark is gone."""
        self._queries.append(query)

    def reached(self, value: int) -> bool:
        """Whether a submission is done, and all before it."""
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
        if self._lost:
            raise DeviceLostError(
                f"device {self._name}: work was refused ({self._lost}). This process cannot use the device any more; "
                "start a new one."
            )

    def leave(self) -> None:
        """Wait for all that was sent, as the process ends."""
        if self.last >= 0:
            self.device.wait()

    def close(self) -> None:
        """Let go what slang-rhi made; nothing is in flight."""
        self.closed = True
        self._pools.clear()
        self._frame = self._encoder = self._pass = None
        self._idle.clear()
        self._flying.clear()

    def _send(self, commands: Any) -> int:
        """Give the device a command buffer; returns the number of the submission."""
        return int(self.device.submit_command_buffers([commands]))

    def _is_done(self, value: int) -> bool:
        return bool(self.device.is_submit_finished(value))

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None

    def _place(self, args: bytes) -> int:
        """Where the device will find an argument block."""
        frame, size = self._frame, len(args)
        if frame is None or frame.used + size > frame.size:
            frame = self._next_frame(size)
        at = frame.used
        frame.data[at : at + size] = args
        frame.used = at + size + 63 & -64
        return frame.address + at

    def _next_frame(self, size: int) -> Frame:
        """A frame with room for an argument block."""
        if self._frame is not None:
            self._full.append(self._frame)
            self._frame = None
        if size > _FRAME:
            self._frame = self._new_frame(size)
        else:
            self._frame = self._idle.pop() if self._idle else self._new_frame(_FRAME)
        return self._frame

    def _new_frame(self, size: int) -> Frame:
        memory = self._opened.memory(size, "upload")
        address = pack_address(memory.descriptor_handle_ro.value) if self._handles else memory.device_address
        return Frame(memory, address, size)


class RhiQueue(Queue):
    """A name for the one queue of slang-rhi."""

    deferred = True
    backend: RhiBackend

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        self.backend.copy(dst, dst_offset, src, src_offset, nbytes)

    def mark(self, timed: bool = False) -> Mark:
        return self.backend.mark(timed)

    def wait(self, mark: Mark) -> None:
        """As ``Queue.wait``: what was queued before runs before."""

    def sync(self) -> None:
        self.backend.sync()


class Batch:
    """Work that goes to the device together; it has a number once it went."""

    __slots__ = ("number",)

    def __init__(self, number: int | None = None) -> None:
        self.number = number


class RhiMark(Mark):
    """The end of a batch. A timed mark lies somewhere in it, and has the number of a query."""

    __slots__ = ("_batch", "_query", "_submissions")

    def __init__(self, submissions: Submissions, batch: Batch, query: int) -> None:
        self._submissions = submissions
        self._batch = batch
        self._query = query

    @property
    def done(self) -> bool:
        return self._submissions.reached(self._submissions.number(self._batch))

    def sync(self) -> None:
        self._submissions.wait(self._submissions.number(self._batch))

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, RhiMark)
        return self._submissions.seconds(self._query) - self._submissions.seconds(earlier._query)

    def __del__(self) -> None:
        if self._query >= 0:
            self._submissions.release(self._query)


class RhiRecording(Recording):
    """Launches with what each waits for."""

    __slots__ = ("waits",)

    def __init__(self, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]]) -> None:
        super().__init__(dispatches)
        # A barrier is for all that is before it: who waits for something behind the last one needs another.
        self.waits: list[bool] = []
        last = -1
        for k, before in enumerate(waits):
            needs = k == 0 or max(before, default=-1) >= last
            self.waits.append(needs)
            last = k if needs else last


class RhiKernel(Kernel):
    """A pipeline, and where it takes the address of its arguments."""

    __slots__ = ("cursor", "pipeline", "root")

    def __init__(self, info: KernelInfo, pipeline: Any, root: Any, cursor: Any) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.root = root
        self.cursor = cursor
