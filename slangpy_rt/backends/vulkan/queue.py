"""A queue of the Vulkan backend: an open command buffer, its submissions, and marks among them.

Work is recorded into the open command buffer and submitted when 64 commands wait or somebody waits for them: a
submission costs as much as several launches. Each of eight command buffers owns a part of a mapped ring that
holds the argument blocks and small uploads recorded with it; both are used again once the timeline semaphore, which
counts submissions, says that the GPU is done. Inside a command buffer, a barrier comes only before work that touches
what earlier work wrote, or writes what it touched.

An interrupt may come between any two steps here. So what is known of a command buffer is changed before the command
buffer is, towards more work, more barriers and fewer things bound; and each call of the driver that must not be made
twice is noted in the same step (``noted``). A submission that was interrupted is finished by whatever comes next.

Several of these may share one ``VkQueue``, whose number is the driver's. It refuses to allocate memory for arrays.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Mark, Queue, Recording, Shared
from slangpy_rt.backends.extras import ExportedMark, SignallingMark
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.device import RING, Block
from slangpy_rt.backends.vulkan.recording import VulkanRecording
from slangpy_rt.backends.vulkan.timeline import Timeline
from slangpy_rt.core.errors import DeviceError, SlangPyRtError, UnsupportedError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.target import KernelInfo

FRAME_BYTES = 1 << 20  # 64 argument blocks of 16 KiB
_BATCH = 64  # commands in a submission
_FRAMES = 8  # command buffers in flight, so the host runs at most 512 launches ahead
_DONE = [0]  # results of a submission: VK_SUCCESS
_STAMPS = 1 << 16  # of the clock, in use at a time; half a MiB


class VulkanQueue(Queue):
    """Work in order on one ``VkQueue``.

    Parameters
    ----------
    handle : Any
        The ``VkQueue``.
    lock : threading.Lock
        That of the backend: a ``VkQueue`` and the command pool take one caller at a time. Methods that begin with
        "locked" are called with it.

    Attributes
    ----------
    ring : Block
        Mapped memory, for what is recorded now.
    """

    deferred = True

    def __init__(self, backend: Backend, commands: VkCommands, handle: Any, lock: threading.Lock) -> None:
        super().__init__(backend)
        self._commands = commands
        self._device = device = commands.device
        self._queue = handle
        self._lock = lock
        ffi = device.ffi
        self._handles = commands.allocate(_FRAMES)
        self._frames = [_Frame(k, self._handles) for k in range(_FRAMES)]
        # The one that gathers, or goes to the device.
        self._frame = self._frames[0]
        self.ring = device.allocate(_FRAMES * FRAME_BYTES, RING)
        device.on_close(device.release, self.ring)
        self._ring_address = self.ring.address
        self._bytes = device.bytes(self.ring)
        self.timeline = Timeline(device)
        self.closed = self.leaving = False
        # The last submission, or the attempt.
        self._sent = _Submission(0)
        self._sent.results.append(0)
        # The open command buffer: its handle (None while there is none), commands so far, unused part of the ring,
        # last pipeline, and for each buffer address since the last barrier whether it was written.
        self._command: Any = None
        self._pending = self._top = self._end = 0
        self._bound: Kernel | None = None
        # The argument block of a prepared launch, where one came last.
        self._pushed: Any = None
        self._touched: dict[int, bool] = {}
        # Semaphores that the next submission waits for, with their values.
        self._awaited: dict[Any, int] = {}
        # Counts the waits for other APIs, which set it.
        self._foreign: Timeline | None = None
        self._foreign_value = 0
        self._stamps: Any = None
        self._free_stamps: list[_Stamp] = []
        self._stamps_made = 0

        self._push = ffi.new("uint64_t*")
        self._signal = ffi.new("uint64_t*")
        self._region = ffi.new("VkBufferCopy*")
        # 1: VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT.
        self._begin_info = device.struct("VkCommandBufferBeginInfo", flags=1)
        self._values_info = device.struct(
            "VkTimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._signal
        )
        self._submit_info = device.struct(
            "VkSubmitInfo",
            pNext=self._values_info,
            commandBufferCount=1,
            signalSemaphoreCount=1,
            pSignalSemaphores=self.timeline.handle,
        )
        self._cmd_bind, self._cmd_push = commands.bind, commands.push
        self._cmd_dispatch, self._cmd_barrier = commands.dispatch, commands.barrier
        self._vk_submit = commands.submit
        self._layout, self._between = commands.layout, commands.between
        self._open()

    @property
    def value(self) -> int:
        """Submissions so far; a timeline semaphore counts those that are done."""
        sent = self._sent
        return sent.value if sent.results == _DONE else sent.value - 1

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        # One flat function: a Python call costs as much as recording a command.
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
                    self._cmd_barrier(command, *self._between)
                    touched.clear()
                    for buffer, writes in zip(buffers, written):  # noqa: B905
                        touched[buffer.address] = writes or touched.get(buffer.address, False)
                    break
                touched[address] = writes
            if kernel is not self._bound:
                assert isinstance(kernel, VulkanKernel)
                self._bound = None
                self._cmd_bind(command, 1, kernel.pipeline)  # 1: VK_PIPELINE_BIND_POINT_COMPUTE
                self._bound = kernel
            self._pushed = None
            self._cmd_push(command, self._layout, COMPUTE, 0, 8, self._push)
            self._cmd_dispatch(command, *groups)
            if self._pending >= _BATCH:
                self.locked_submit()

    def prepare(self, dispatch: Dispatch) -> Callable[[], None]:
        """A launch to be repeated often, its argument block in device memory."""
        kernel, groups, args, buffers = dispatch
        assert isinstance(kernel, VulkanKernel)
        block = self.backend.alloc(len(args))
        self.backend.upload(block, 0, memoryview(args))
        push = self._device.ffi.new("uint64_t*", block.address)
        pipeline, layout, touched = kernel.pipeline, self._layout, self._touched
        uses: dict[int, bool] = {block.address: False}
        for buffer, writes in zip(buffers, kernel.info.written, strict=True):
            uses[buffer.address] = writes or uses.get(buffer.address, False)
        pairs = tuple(uses.items())
        lock, barrier, push_constants, run_groups = self._lock, self._cmd_barrier, self._cmd_push, self._cmd_dispatch
        between = self._between

        def run(_kept: object = (block, buffers)) -> None:
            with lock:
                if self.closed:
                    self.require_open()
                command = self._command
                if command is None:
                    command = self._open()
                self._pending += 1
                for address, writes in pairs:
                    if address in touched and (writes or touched[address]):
                        barrier(command, *between)
                        touched.clear()
                        touched.update(uses)
                        break
                    touched[address] = writes
                if self._pushed is not push:
                    self._pushed = None
                    if kernel is not self._bound:
                        self._bound = None
                        self._cmd_bind(command, 1, pipeline)
                        self._bound = kernel
                    push_constants(command, layout, COMPUTE, 0, 8, push)
                    self._pushed = push
                run_groups(command, *groups)
                if self._pending >= _BATCH:
                    self.locked_submit()

        return run

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, VulkanRecording)
        with self._lock:
            if self.closed:
                self.require_open()
            use = recording.use
            if use.home is not self:
                # Its argument blocks were written there, or are still read there.
                self.locked_wait(use.home, use.home.locked_submit())
                use.home = self
            self.locked_submit(alone=False)
            # Before it is so: after an interrupt too, nobody takes its command buffer too early.
            use.value = self.value + 1
            self._send(_Submission(self.value + 1), use.command, "submitting a list")

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        with self._lock:
            self.require_open()
            self.locked_order(src.address, False)
            self.locked_order(dst.address, True)
            to, from_ = dst.chunk, src.chunk
            self.locked_copy(from_.block, from_.offset + src_offset, to.block, to.offset + dst_offset, nbytes)

    def mark(self, timed: bool = False) -> Mark:
        with self._lock:
            self.require_open()
            if self._command is None:
                self._open()
            if not timed:
                return VulkanMark(self, self.value + (self._pending > 0 or bool(self._awaited)))
            mark = VulkanMark(self, self.value + 1)
            self._take_stamp(mark)
            # What comes later does not begin before that.
            self.locked_barrier()
            self._pending += 1
            self._commands.reset(self._command, self._stamps, mark.stamp.number, 1)
            # 0x2000: BOTTOM_OF_PIPE, after all that was recorded before.
            self._commands.stamp(self._command, 0x2000, self._stamps, mark.stamp.number)
            if self._pending >= _BATCH:
                self.locked_submit()
            return mark

    def wait(self, mark: Mark) -> None:
        if not isinstance(mark, VulkanMark):
            with self._lock:
                self.require_open()
                if self._foreign is None:
                    self._foreign = Timeline(self._device)
                foreign = self._foreign
                self._foreign_value = value = self._foreign_value + 1
            assert isinstance(mark, SignallingMark)
            mark.signal(foreign.shared, value)
            with self._lock:
                self.locked_submit(alone=False)
                self._awaited[foreign.handle[0]] = value
            return
        with self._lock:
            self.require_open()
            other = mark.queue
            if other is not self:
                other.locked_reach(mark.value)
                self.locked_wait(other, mark.value)

    def label(self, title: str) -> None:
        with self._lock:
            self.require_open()
            self._commands.label(self._command or self._open(), title)

    def unlabel(self) -> None:
        with self._lock:
            self.require_open()
            self._commands.unlabel(self._command or self._open())

    def sync(self) -> None:
        with self.backend.inside[threading.get_ident()]:
            with self._lock:
                if self.closed:
                    self.require_open()
                value = self.locked_submit()
            # Without the lock, so that other threads can queue work meanwhile.
            self.timeline.wait(value)

    def require_open(self) -> None:
        """Raise DeviceError when the backend is closed; a daemon thread ends here when the process does."""
        if self.leaving and threading.current_thread().daemon:
            raise SystemExit
        if self.closed:
            raise DeviceError("vulkan: the device is closed; open a new one")

    def reach(self, value: int) -> None:
        """Submit what a mark of that value is behind."""
        with self._lock:
            self.require_open()
            self.locked_reach(value)

    def time_of(self, stamp: int) -> float:
        """Seconds that the clock showed, of work that is done."""
        device, out = self._device, self._device.ffi.new("uint64_t*")
        # 1 | 2: VK_QUERY_RESULT_64_BIT, _WAIT_BIT.
        read = device.lib.vkGetQueryPoolResults
        with self._lock:
            self.require_open()
            result = read(device.handle, self._stamps, stamp, 1, 8, out, 8, 3)
        device.check(result, "reading the device's clock")
        return float(out[0] & device.clock_mask) * device.clock_seconds

    def passed(self, value: int) -> bool:
        """Whether a submission is done; asking does not wait."""
        with self._lock:
            self.require_open()
            return self.timeline.passed(value)

    # With the lock.

    def locked_wait(self, other: VulkanQueue, value: int) -> None:
        """Let what is recorded from now on wait for a submission of another queue."""
        if value > other.timeline.reached:
            self.locked_submit(alone=False)
            semaphore = other.timeline.handle[0]
            self._awaited[semaphore] = max(value, self._awaited.get(semaphore, 0))

    def locked_reach(self, value: int) -> None:
        """Submit until ``value`` is on its way."""
        if value > self.value:
            self.locked_submit()

    def locked_submit(self, alone: bool = True) -> int:
        """Submit what is recorded; return the timeline value that says it is done.

        Waits for other queues are submitted ``alone`` too, when nothing is recorded.
        """
        if self._command is None:
            self._open()
        if self._pending or (alone and self._awaited):
            # From here on nothing more is recorded there.
            self._frame.leaving = True
            self._command = None
            self._open()
        sent = self._sent
        return sent.value if sent.results == _DONE else sent.value - 1

    def locked_barrier(self) -> None:
        """Let all that is recorded from now on see what was before."""
        self._cmd_barrier(self._command or self._open(), *self._between)
        self._touched.clear()

    def locked_order(self, address: int, writes: bool) -> None:
        """Put a barrier before a copy if earlier work conflicts with it."""
        if self._command is None:
            self._open()
        seen = self._touched.get(address)
        if seen or (writes and seen is not None):
            self.locked_barrier()
        self._touched[address] = writes or self._touched.get(address, False)

    def locked_reserve(self, nbytes: int) -> int:
        """Claim a part of the ring; submits when the frame's part is used up."""
        if self._command is None:
            self._open()
        if self._top + nbytes > self._end:
            self.locked_submit()
        start = self._top
        self._top = start + (nbytes + 15 & -16)
        return start

    def locked_write(self, block: Block, at: int, address: int, nbytes: int) -> None:
        """Copy host memory, a few bytes, through the ring to a block."""
        start = self.locked_reserve(nbytes)
        ctypes.memmove(self.ring.host + start, address, nbytes)
        self.locked_copy(self.ring, start, block, at, nbytes)

    def locked_copy(self, src: Block, src_offset: int, dst: Block, dst_offset: int, nbytes: int) -> None:
        """Record a copy."""
        region = self._region
        region.srcOffset, region.dstOffset, region.size = src_offset, dst_offset, nbytes
        command = self._command or self._open()
        self._pending += 1
        self._commands.copy(command, src.handle, dst.handle, 1, region)
        if self._pending >= _BATCH:
            self.locked_submit()

    def locked_fill(self, block: Block, at: int, nbytes: int) -> None:
        """Record zeros, in whole words."""
        command = self._command or self._open()
        self._pending += 1
        self._commands.fill(command, block.handle, at, nbytes, 0)
        if self._pending >= _BATCH:
            self.locked_submit()

    def locked_next(self) -> int:
        """The timeline value of what is recorded next."""
        if self._command is None:
            self._open()
        return self.value + 1

    def locked_settle(self, value: int) -> None:
        """Wait for what was promised for a submission, which an interrupt may have kept from being recorded."""
        self.locked_reach(value)
        self.timeline.wait(min(value, self.value))

    def _open(self) -> Any:
        """Send the command buffer that is to leave, and open the next: each step once, also after an interrupt."""
        # Written out where it runs at each wait: a Python call costs as much as one of the driver's.
        check, frame = self._device.check, self._frame
        if frame.leaving:
            try:
                ended = frame.ended
                if not ended:
                    # Queue order alone makes nothing visible, neither to the next submission nor to the host.
                    self._cmd_barrier(frame.command, *self._commands.last)
                    ended.extend(starmap(self._commands.end, ((frame.command,),)))
                if ended[0]:
                    check(ended[0], "ending a command buffer")
                sent = frame.sent
                if sent is None:
                    sent = frame.sent = _Submission(self.value + 1)
                if not sent.results:
                    self._send(sent, frame.pointer, "submitting work")
                if sent.results[0]:
                    check(sent.results[0], "submitting work")
            except SlangPyRtError:
                # Its work is lost, and it is begun again.
                frame.reset()
                raise
            frame.value = sent.value
            frame = self._frames[(frame.index + 1) % _FRAMES]
            frame.reset()
            self._frame = frame
        if not frame.begun:
            # The GPU may still have it.
            if frame.value > self.timeline.reached:
                self.timeline.wait(frame.value)
            frame.begun.extend(starmap(self._commands.begin, ((frame.command, self._begin_info),)))
        if frame.begun[0]:
            check(frame.begun.pop(), "beginning a command buffer")
        self._top = frame.index * FRAME_BYTES
        self._end = self._top + FRAME_BYTES
        self._bound = self._pushed = None
        self._pending = 0
        self._touched.clear()
        self._command = frame.command
        return frame.command

    def _send(self, sent: _Submission, command: Any, what: str) -> None:
        """Submit a command buffer after what is awaited."""
        ffi, info, values = self._device.ffi, self._submit_info, self._values_info
        info.pCommandBuffers = command
        self._signal[0] = sent.value
        count = len(self._awaited)
        info.waitSemaphoreCount = values.waitSemaphoreValueCount = count
        kept: tuple[Any, ...] = ()
        if count:
            semaphores = ffi.new("VkSemaphore[]", list(self._awaited))
            reached = ffi.new("uint64_t[]", list(self._awaited.values()))
            # 0x10000: ALL_COMMANDS.
            stages = ffi.new("uint32_t[]", [0x10000] * count)
            info.pWaitSemaphores, info.pWaitDstStageMask = semaphores, stages
            values.pWaitSemaphoreValues = reached
            kept = semaphores, reached, stages
        # Not done until it has a result: ``value`` stays what it was.
        self._sent = sent
        sent.results.extend(starmap(self._vk_submit, ((self._queue, 1, info, ffi.NULL),)))
        del kept
        if sent.results[0]:
            self._device.check(sent.results[0], what)
        self._awaited.clear()

    def _take_stamp(self, mark: VulkanMark) -> None:
        """Give a mark a place for a time."""
        device = self._device
        if not device.clock_mask:
            raise UnsupportedError("vulkan: this device has no clock that its work can be timed by")
        if self._stamps is None:
            # 2: VK_QUERY_TYPE_TIMESTAMP.
            info = device.struct("VkQueryPoolCreateInfo", queryType=2, queryCount=_STAMPS)
            out = device.ffi.new("VkQueryPool*")
            create = device.lib.vkCreateQueryPool
            device.check(create(device.handle, info, device.ffi.NULL, out), "creating a query pool")
            device.on_close(device.lib.vkDestroyQueryPool, device.handle, out[0], device.ffi.NULL)
            self._stamps = out[0]
        free = self._free_stamps
        if not free and self._stamps_made < _STAMPS:
            number = self._stamps_made
            self._stamps_made = number + 1
            free.append(_Stamp(number, free))
        try:
            # From the list to the mark in one step: an interrupt finds the place in one of them.
            for mark.stamp in iter(free.pop, None):
                break
        except IndexError:
            raise UnsupportedError(
                f"vulkan: a queue remembers {_STAMPS} points in time; drop events, timers and profiles, or take "
                "profiles of fewer calls"
            ) from None


class _Frame:
    """A command buffer with its part of the ring.

    Attributes
    ----------
    command, pointer : cdata
        The ``VkCommandBuffer``, and where the driver finds it.
    value : int
        Timeline value of its last submission.
    leaving : bool
        Whether it is to be submitted, and nothing more is recorded.
    begun, ended : list of int
        Results of the driver, once it was begun and ended.
    sent : _Submission or None
        Its submission, once that is attempted.
    """

    __slots__ = ("begun", "command", "ended", "index", "leaving", "pointer", "sent", "value")

    def __init__(self, index: int, handles: Any) -> None:
        self.index = index
        self.command = handles[index]
        self.pointer = handles + index
        self.value = 0
        self.reset()

    def reset(self) -> None:
        """Forget what was done to it."""
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.sent: _Submission | None = None
        self.leaving = False


class _Submission:
    """The timeline value that a submission signals, and its result, once it has one."""

    __slots__ = ("results", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.results: list[int] = []


class _Stamp:
    """A place for a time, in use by one mark; ``give`` takes it back."""

    __slots__ = ("give", "number")

    def __init__(self, number: int, free: list[_Stamp]) -> None:
        self.number = number
        self.give = partial(free.append, self)


class VulkanMark(ExportedMark):
    """A submission of a queue, and where the clock's time is if that was asked for."""

    __slots__ = ("queue", "stamp", "value")

    stamp: _Stamp
    __del__ = finalizer("stamp.give")

    def __init__(self, queue: VulkanQueue, value: int) -> None:
        self.queue = queue
        self.value = value

    @property
    def done(self) -> bool:
        queue = self.queue
        if self.value > queue.value:
            queue.reach(self.value)
        return queue.passed(self.value)

    def sync(self) -> None:
        queue = self.queue
        with queue.backend.inside[threading.get_ident()]:
            queue.reach(self.value)
            queue.timeline.wait(self.value)

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, VulkanMark)
        return self.queue.time_of(self.stamp.number) - earlier.queue.time_of(earlier.stamp.number)

    def shared(self) -> tuple[Shared, int]:
        self.queue.reach(self.value)
        return self.queue.timeline.shared, self.value


class VulkanKernel(Kernel):
    """A compute pipeline; ``give`` takes it back, once the last reference goes."""

    __slots__ = ("give", "pipeline")

    __del__ = finalizer("give")

    def __init__(self, info: KernelInfo, pipeline: Any, give: Callable[[], None]) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.give = give
