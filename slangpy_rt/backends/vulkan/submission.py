"""Records work of the Vulkan backend in command buffers, and submits them.

Work is recorded in the open command buffer, which is submitted when it has 64 commands or a caller waits for them: a
submission takes as long as several launches. Each of eight command buffers owns a part of a mapped ring, which holds
the argument blocks and small uploads recorded with it. Both are used again once the timeline semaphore, which counts
submissions, shows that the GPU is done. Inside a command buffer, a barrier comes only before work that reads or
writes what earlier work wrote, or writes what earlier work read.

An interrupt may come between any two steps here. So the notes about a command buffer are changed before the command
buffer itself, and on the safe side: they may show more commands and fewer bindings than there are, and conflicts that
need no barrier. The result of each driver call that must not be made twice is noted in the same step of C as the call
(``extend(starmap(...))``). The next call of a method finishes a submission that was interrupted.

Several queues of this class may share one ``VkQueue``; how many there are depends on the driver. No arrays are
allocated here.
"""

from __future__ import annotations

import ctypes
import threading
from itertools import starmap
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue
from slangpy_rt.backends.vulkan.commands import VkCommands
from slangpy_rt.backends.vulkan.device import RING, Block
from slangpy_rt.backends.vulkan.timeline import Timeline
from slangpy_rt.core.errors import DeviceError, SlangPyRtError

FRAME_BYTES = 1 << 20  # 64 argument blocks of 16 KiB
BATCH = 64  # the most commands in a submission
_FRAMES = 8  # command buffers; so the host is at most 512 launches ahead of the GPU
_DONE = [0]  # ``Submission.results`` after VK_SUCCESS


class Submissions(Queue):
    """A queue that records commands in command buffers, and submits them.

    Parameters
    ----------
    handle : Any
        The ``VkQueue``.
    lock : threading.Lock
        The backend's lock, since only one thread at a time may use a ``VkQueue`` or the command pool. Methods whose
        names begin with "locked" are called with it.

    Attributes
    ----------
    ring : Block
        Mapped memory for argument blocks and small uploads, ``FRAME_BYTES`` for each command buffer.
    timeline : Timeline
        The semaphore that counts the submissions that are done.
    leaving : bool
        Whether the process ends, so that daemon threads end at their next call.
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
        # The frame in which work is recorded, or that is being submitted.
        self._frame = self._frames[0]
        self.ring = device.allocate(_FRAMES * FRAME_BYTES, RING)
        device.on_close(device.release, self.ring)
        self._ring_address = self.ring.address
        self._bytes = device.bytes(self.ring)
        self.timeline = Timeline(device)
        self.closed = self.leaving = False
        # The last submission, which may not have a result yet.
        self._sent = Submission(0)
        self._sent.results.append(0)
        # The open command buffer: its handle (None while there is none), number of commands, the unused part of the
        # ring, the kernel whose pipeline is bound, and the addresses of buffers used since the last barrier, with
        # whether they were written.
        self._command: Any = None
        self._pending = self._top = self._end = 0
        self._bound: Kernel | None = None
        # The push constant of a prepared launch, if the last launch was one: it need not be pushed again.
        self._pushed: Any = None
        self._touched: dict[int, bool] = {}
        # Semaphores that the next submission waits for, with their values.
        self._awaited: dict[Any, int] = {}
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
        self._cmd_barrier, self._between = commands.barrier, commands.between
        self._vk_submit = commands.submit
        self._open()

    @property
    def value(self) -> int:
        """The number of submissions so far; a timeline semaphore counts those that are done."""
        sent = self._sent
        return sent.value if sent.results == _DONE else sent.value - 1

    def require_open(self) -> None:
        """Raise DeviceError when the backend is closed; a daemon thread ends here when the process does."""
        if self.leaving and threading.current_thread().daemon:
            raise SystemExit
        if self.closed:
            raise DeviceError("vulkan: the device is closed; open a new one")

    def reach(self, value: int) -> None:
        """Submit all work before the mark with that timeline value."""
        with self._lock:
            self.require_open()
            self.locked_reach(value)

    def passed(self, value: int) -> bool:
        """Tell whether a submission is done; asking does not wait."""
        with self._lock:
            self.require_open()
            return self.timeline.passed(value)

    def locked_wait(self, other: Submissions, value: int) -> None:
        """Make work that is recorded from now on wait for a submission of another queue."""
        if value > other.timeline.reached:
            self.locked_submit(alone=False)
            semaphore = other.timeline.handle[0]
            self._awaited[semaphore] = max(value, self._awaited.get(semaphore, 0))

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
            # From here on nothing more is recorded in this command buffer, also after an interrupt.
            self._frame.leaving = True
            self._command = None
            self._open()
        sent = self._sent
        return sent.value if sent.results == _DONE else sent.value - 1

    def locked_barrier(self) -> None:
        """Make the writes of all earlier commands visible to later ones."""
        self._cmd_barrier(self._command or self._open(), *self._between)
        self._touched.clear()

    def locked_order(self, address: int, writes: bool) -> None:
        """Record a barrier if a copy from a buffer, or to it, conflicts with work since the last barrier."""
        if self._command is None:
            self._open()
        seen = self._touched.get(address)
        if seen or (writes and seen is not None):
            self.locked_barrier()
        self._touched[address] = writes or self._touched.get(address, False)

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
        # After the reservation, which may begin a new command buffer, where no buffer has been used yet.
        self.locked_order(dst.address, True)
        ctypes.memmove(self.ring.host + start, address, nbytes)
        self.locked_copy(self.ring, start, dst.chunk.memory, at, nbytes)

    def locked_copy(self, src: Block, src_offset: int, dst: Block, dst_offset: int, nbytes: int) -> None:
        """Record a copy from one block to another; offsets are in bytes."""
        region = self._region
        region.srcOffset, region.dstOffset, region.size = src_offset, dst_offset, nbytes
        command = self._command or self._open()
        self._pending += 1
        self._commands.copy(command, src.handle, dst.handle, 1, region)
        if self._pending >= BATCH:
            self.locked_submit()

    def locked_fill(self, block: Block, at: int, nbytes: int) -> None:
        """Record zeros for ``nbytes`` bytes from ``at`` on, both multiples of 4."""
        command = self._command or self._open()
        self._pending += 1
        self._commands.fill(command, block.handle, at, nbytes, 0)
        if self._pending >= BATCH:
            self.locked_submit()

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
        """Submit the frame's command buffer if it is ``leaving``, begin the next one and return it.

        Each step happens once, also if an interrupt stopped an earlier call.
        """
        # Without helpers, because this runs at each wait: a Python call takes as long as one of the driver.
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
                    sent = frame.sent = Submission(self.value + 1)
                if not sent.results:
                    self._send(sent, frame.pointer, "submitting work")
                if sent.results[0]:
                    check(sent.results[0], "submitting work")
            except SlangPyRtError:
                # The recorded work is lost, and the command buffer is used again.
                frame.reset()
                raise
            frame.value = sent.value
            frame = self._frames[(frame.index + 1) % _FRAMES]
            frame.reset()
            self._frame = frame
        if not frame.begun:
            # The GPU may still run the last submission of this command buffer.
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

    def _send(self, sent: Submission, command: Any, what: str) -> None:
        """Submit a command buffer, which waits for the semaphores in ``_awaited``."""
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
        # Until it has a result, ``value`` does not count it.
        self._sent = sent
        sent.results.extend(starmap(self._vk_submit, ((self._queue, 1, info, ffi.NULL),)))
        del kept
        if sent.results[0]:
            self._device.check(sent.results[0], what)
        self._awaited.clear()


class _Frame:
    """A command buffer with its part of the ring.

    Attributes
    ----------
    index : int
        The number of the command buffer, and of its part of the ring.
    command, pointer : cdata
        The ``VkCommandBuffer``, and a pointer to it.
    value : int
        Timeline value of its last submission.
    leaving : bool
        Whether it is to be submitted, so that nothing more is recorded in it.
    begun, ended : list of int
        The driver's results of beginning and of ending it; empty before that.
    sent : Submission or None
        Its submission; None before that was tried.
    """

    __slots__ = ("begun", "command", "ended", "index", "leaving", "pointer", "sent", "value")

    def __init__(self, index: int, handles: Any) -> None:
        self.index = index
        self.command = handles[index]
        self.pointer = handles + index
        self.value = 0
        self.reset()

    def reset(self) -> None:
        """Reset the frame for another submission."""
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.sent: Submission | None = None
        self.leaving = False


class Submission:
    """The timeline value that a submission signals, and the driver's result in a list, which is empty before."""

    __slots__ = ("results", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.results: list[int] = []
