"""Records work of the D3D12 backend in command lists, and submits them.

Work is recorded in the open command list, which is submitted when it has 64 commands or a caller waits for them. Each
of eight command lists has an allocator and a part of a mapped ring, which holds the argument blocks and small uploads
recorded with it. All are used again once the fence, which counts submissions, shows that the device is done. Inside a
command list, a barrier comes only before work that reads or writes what earlier work wrote, or writes what earlier
work read.

Buffers are in the state COMMON when a command list begins, and the first use of one in a kernel or a copy gives it
the state that this use needs. A copy puts buffers that kernels of the list have used into the states of a copy, and
leaves them in the state for kernels: these changes of state order it with the work around it.

An interrupt may come between any two steps here. What must happen once is one step of C together with the note that
it did (``extend(map(...))``, ``in_one_step``), and the next call of a method finishes a submission that was
interrupted.
"""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from operator import methodcaller
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import UPLOAD, D3D12Device, Memory
from slangpy_rt.backends.d3d12.fence import Fence
from slangpy_rt.core.errors import DeviceError, SlangPyRtError
from slangpy_rt.core.interrupts import in_one_step

FRAME_BYTES = 1 << 20  # 64 argument blocks of 16 KiB
BATCH = 64  # the most commands in a submission
_FRAMES = 8  # command lists; so the host is at most 512 launches ahead of the device
COMPUTE = 2  # D3D12_COMMAND_LIST_TYPECOMPUTE
# D3D12_RESOURCE_STATES: UNORDERED_ACCESS, COPY_DEST, COPY_SOURCE.
_KERNELS, _TO, _FROM = 0x8, 0x400, 0x800
_ALL_PARTS = 0xFFFFFFFF
_CALL = methodcaller("__call__")


class Submissions(Queue):
    """A queue that records commands in command lists, and submits them.

    Parameters
    ----------
    lock : threading.Lock
        The backend's lock. Methods whose names begin with "locked" are called with it.

    Attributes
    ----------
    native : Any
        The ``ID3D12CommandQueue``.
    lock : threading.Lock
        The parameter.
    ring : Memory
        Mapped memory for argument blocks and small uploads, ``FRAME_BYTES`` for each command list.
    fence : Fence
        Counts the submissions that are done.
    leaving : bool
        Whether the process ends, so that daemon threads end at their next call.
    """

    deferred = True

    def __init__(self, backend: Backend, device: D3D12Device, lock: threading.Lock) -> None:
        super().__init__(backend)
        self._device = device
        self.lock = self._lock = lock
        told = FFI.new("D3D12_COMMAND_QUEUE_DESC *", (COMPUTE, 0, 0, 0))
        self.native = device.make("ID3D12CommandQueue", "CreateCommandQueue", told, what="making a queue")
        self.fence = Fence(device, self.native)
        self.ring = device.keep(_FRAMES * FRAME_BYTES, UPLOAD)
        self._bytes = FFI.buffer(FFI.cast("char *", self.ring.host), _FRAMES * FRAME_BYTES)
        self._frames = [Frame(device, k) for k in range(_FRAMES)]
        self._frame = self._frames[0]
        self.closed = self.leaving = False
        self._sent = Submission(0)
        self._sent.results += [None, 0]
        # The open command list: the object (None while there is none), the number of commands, the unused part of the
        # ring, the kernel that is set, addresses used since the last barrier with whether they were written, and the
        # buffers of D3D12 that are in the state for kernels.
        self._command: Any = None
        self._pending = self._top = self._end = 0
        self._bound: Kernel | None = None
        self._touched: dict[int, bool] = {}
        self._used: set[Memory] = set()
        self._between = device.between
        self._open()

    @property
    def value(self) -> int:
        """The number of submissions so far; the fence counts those that are done."""
        sent = self._sent
        return sent.value if sent.made else sent.value - 1

    def require_open(self) -> None:
        """Raise DeviceError when the backend is closed; a daemon thread ends here when the process does."""
        if self.leaving and threading.current_thread().daemon:
            raise SystemExit
        if self.closed:
            raise DeviceError("d3d12: the device is closed; open a new one")

    def reach(self, value: int) -> None:
        """Submit all work before the mark with that value."""
        with self._lock:
            self.require_open()
            self.locked_reach(value)

    def passed(self, value: int) -> bool:
        """Tell whether a submission is done; asking does not wait."""
        with self._lock:
            self.require_open()
            return self.fence.passed(value)

    def locked_wait(self, other: Submissions, value: int) -> None:
        """Make work that is recorded from now on wait for a submission of another queue."""
        if value > other.fence.reached:
            self.locked_submit()
            status = self.native.table.Wait(self.native, other.fence.handle, value)
            self._device.check(status, "waiting for another queue")

    def locked_reach(self, value: int) -> None:
        """Submit the recorded work, unless the submission with that value has been made."""
        if value > self.value:
            self.locked_submit()

    def locked_submit(self) -> int:
        """Submit the recorded commands; return the value of the last submission."""
        if self._command is None:
            self._open()
        if self._pending:
            # From here on nothing more is recorded in this command list, also after an interrupt.
            self._frame.leaving = True
            self._command = None
            self._open()
        return self.value

    def locked_barrier(self) -> None:
        """Make the writes of all earlier kernels visible to later ones."""
        command = self._command or self._open()
        command.table.ResourceBarrier(command, 1, self._between)
        self._touched.clear()

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
        ctypes.memmove(self.ring.host + start, address, nbytes)
        self.locked_copy(self.ring, start, dst.chunk.memory, at, nbytes)

    def locked_copy(self, src: Memory, src_offset: int, dst: Memory, dst_offset: int, nbytes: int) -> None:
        """Record a copy from one buffer of D3D12 to another; offsets are in bytes."""
        command = self._command or self._open()
        table, used = command.table, self._used
        moved = [(memory, state) for memory, state in ((src, _FROM), (dst, _TO)) if memory.moves]
        ins = _changes([(memory, _KERNELS, state) for memory, state in moved if memory in used])
        outs = _changes([(memory, state, _KERNELS) for memory, state in moved])
        self._pending += 1
        steps = [partial(table.CopyBufferRegion, command, dst.handle, dst_offset, src.handle, src_offset, nbytes)]
        if len(ins):
            steps.insert(0, partial(table.ResourceBarrier, command, len(ins), ins))
        if len(outs):
            steps += [partial(table.ResourceBarrier, command, len(outs), outs)]
            steps += [partial(used.add, memory) for memory, _ in moved]
        in_one_step(*steps)
        if self._pending >= BATCH:
            self.locked_submit()

    def locked_next(self) -> int:
        """Return the value of the submission that the next command will be part of."""
        if self._command is None:
            self._open()
        return self.value + 1

    def locked_finish(self, value: int) -> None:
        """Wait for a submission. Return at once if an interrupt kept its work from being recorded."""
        self.locked_reach(value)
        self.fence.wait(min(value, self.value))

    def _open(self) -> Any:
        """Submit the frame's command list if it is ``leaving``, begin the next one and return it.

        Each step happens once, also if an interrupt stopped an earlier call.
        """
        device, frame = self._device, self._frame
        if frame.leaving:
            try:
                command = frame.command
                if not frame.ended:
                    # Written for the next submission, whichever queue makes it.
                    command.table.ResourceBarrier(command, 1, self._between)
                    frame.ended.extend(map(_CALL, (partial(command.table.Close, command),)))
                device.check(frame.ended[0], "ending a command list")
                if frame.sent is None:
                    frame.sent = Submission(self.value + 1)
                self._send(frame.sent, frame.pointer)
            except SlangPyRtError:
                # The recorded work is lost, and the command list is used again.
                frame.reset()
                raise
            frame.value = frame.sent.value
            frame = self._frames[(frame.index + 1) % _FRAMES]
            frame.reset()
            self._frame = frame
        if not frame.begun:
            # The device may still run the last submission of this command list.
            self.fence.wait(frame.value)
            frame.begin()
        for status in frame.begun:
            if status < 0:
                frame.begun.clear()
                device.check(status, "beginning a command list")
        command = frame.command
        command.table.SetDescriptorHeaps(command, 1, device.heap)
        command.table.SetComputeRootSignature(command, device.root)
        self._top = frame.index * FRAME_BYTES
        self._end = self._top + FRAME_BYTES
        self._bound = None
        self._pending = 0
        self._touched.clear()
        self._used.clear()
        self._command = command
        return command

    def _send(self, sent: Submission, pointer: Any) -> None:
        """Submit a command list, unless that was done."""
        if not sent.results:
            native, table = self.native, self.native.table
            # Until it is made, ``value`` does not count it.
            self._sent = sent
            execute = partial(table.ExecuteCommandLists, native, 1, pointer)
            sent.results.extend(map(_CALL, (execute, partial(table.Signal, native, self.fence.handle, sent.value))))
        self._device.check(sent.results[1], "submitting work")
        self._device.read_messages()


class Frame:
    """A command list with its allocator and its part of the ring.

    Attributes
    ----------
    index : int
        Its number, and that of its part of the ring.
    command, pointer : cdata
        The ``ID3D12GraphicsCommandList``, and a pointer to it.
    value : int
        Value of its last submission.
    leaving : bool
        Whether it is to be submitted, so that nothing more is recorded in it.
    begun, ended : list of int
        The results of beginning and of ending it; empty before that.
    sent : Submission or None
        Its submission; None before that was tried.
    """

    __slots__ = ("_allocator", "begun", "command", "ended", "index", "leaving", "pointer", "sent", "value")

    def __init__(self, device: D3D12Device, index: int) -> None:
        self.index = index
        self.value = 0
        self._allocator = device.make(
            "ID3D12CommandAllocator", "CreateCommandAllocator", COMPUTE, what="making a command allocator"
        )
        self.command = device.make(
            "ID3D12GraphicsCommandList", "CreateCommandList", 0, COMPUTE, self._allocator, FFI.NULL,
            what="making a command list",
        )  # fmt: skip
        self.pointer = FFI.new("void *[]", [self.command])
        # It is made open.
        device.check(self.command.table.Close(self.command), "ending a command list")
        self.reset()

    def reset(self) -> None:
        """Reset the notes for another submission."""
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.sent: Submission | None = None
        self.leaving = False

    def begin(self) -> None:
        """Begin the command list anew; the device no longer uses it."""
        allocator, command = self._allocator, self.command
        steps = partial(allocator.table.Reset, allocator), partial(command.table.Reset, command, allocator, FFI.NULL)
        self.begun.extend(map(_CALL, steps))


class Submission:
    """The value that a submission signals, and the results of its two calls, empty before them."""

    __slots__ = ("results", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.results: list[Any] = []

    @property
    def made(self) -> bool:
        """Whether the fence will reach the value."""
        return len(self.results) == 2 and self.results[1] >= 0


def _changes(changes: list[tuple[Memory, int, int]]) -> Any:
    """Return barriers that change the states of buffers."""
    return FFI.new(
        "D3D12_RESOURCE_BARRIER[]",
        [(0, 0, memory.handle, _ALL_PARTS, before, after) for memory, before, after in changes],
    )
