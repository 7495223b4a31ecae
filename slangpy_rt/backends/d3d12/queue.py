"""A queue of the D3D12 backend: records work in command lists and submits them, as ``submissions.py`` describes.

Inside a command list, a barrier comes only before work that reads or writes what earlier work wrote, or writes what
earlier work read. Buffers are in the state COMMON when a command list begins, and the first use of one in a kernel or
a copy gives it the state that this use needs. A copy puts buffers that kernels of the list have used into the states
of a copy, and leaves them in the state for kernels: these changes of state order it with the work around it, so that
``locked_order`` has nothing to do.
"""

from __future__ import annotations

import threading
from functools import partial
from operator import methodcaller
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Recording
from slangpy_rt.backends.d3d12.com import COMPUTE, FFI, begin_event, release_all
from slangpy_rt.backends.d3d12.device import HANDLE_SHIFT, SCRATCH, UPLOAD, ZEROS, D3D12Device, Memory
from slangpy_rt.backends.d3d12.fence import Fence
from slangpy_rt.backends.d3d12.mark import Clock
from slangpy_rt.backends.d3d12.recording import D3D12Recording, Recorder
from slangpy_rt.backends.frame import Frame
from slangpy_rt.backends.stamps import StampedQueue
from slangpy_rt.backends.submission import Submission
from slangpy_rt.backends.submissions import BATCH, FRAME_BYTES, FRAMES
from slangpy_rt.core.interrupts import in_one_step

# D3D12_RESOURCE_STATES: UNORDERED_ACCESS, COPY_DEST, COPY_SOURCE.
_KERNELS, _TO, _FROM = 0x8, 0x400, 0x800
_ALL_PARTS = 0xFFFFFFFF
_SCRATCH = 16 << 20
_CALL = methodcaller("__call__")


class D3D12Queue(StampedQueue):
    """A queue whose work runs in order on an ``ID3D12CommandQueue`` of its own.

    Attributes
    ----------
    native : Any
        That queue.
    """

    ring: Memory
    timeline: Fence

    def __init__(self, backend: Backend, device: D3D12Device, lock: threading.Lock, recorder: Recorder) -> None:
        told = FFI.new("D3D12_COMMAND_QUEUE_DESC *", (COMPUTE, 0, 0, 0))
        self.native = device.make("ID3D12CommandQueue", "CreateCommandQueue", told, what="making a queue")
        ring = device.keep(FRAMES * FRAME_BYTES, UPLOAD)
        frames = [_frame(device, k) for k in range(FRAMES)]
        super().__init__(backend, lock, device.check, Fence(device), ring, frames)
        device.queues.append((self.native, self.timeline.handle))
        self._device = device
        self._bytes = device.bytes(ring)
        # The root constants: the number of the ring's descriptor, and bytes.
        place = FFI.new("uint32_t[2]", [ring.number, 0])
        self._push, self._pushing = place + 1, (0, 2, place, 0)
        # Addresses of buffers that are in the state for kernels in the open command list, besides those touched.
        self._used: set[int] = set()
        self._clock = Clock(self, self.native, device)
        self._recorder = recorder
        self._scratch: Memory | None = None
        self._open()

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, D3D12Recording)
        with self.backend.inside[threading.get_ident()]:
            while True:
                with self._lock:
                    if self.closed:
                        self.require_open()
                    self.locked_submit()
                    take = self._recorder.take(recording, self)
                    timeline, sent = take.home.timeline, take.sent
                    if timeline.passed(sent):
                        # Set before the submission, so that after an interrupt too the list is not used too early.
                        take.home, take.value = self, self.value + 1
                        self._send(Submission(self.value + 1), take.pointer, "submitting a list")
                        return
                # It waits without the lock, so that other threads can queue work meanwhile.
                timeline.wait(sent)

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        from_, to = src.chunk.memory, dst.chunk.memory
        at, place = src.chunk.offset + src_offset, dst.chunk.offset + dst_offset
        with self._lock:
            self.require_open()
            if from_ is not to:
                self.locked_copy(from_, at, to, place, nbytes)
                return
            # A buffer of D3D12 cannot be in the states of both ends of a copy.
            if self._scratch is None:
                self._scratch = self._device.keep(_SCRATCH, SCRATCH)
            for done in range(0, nbytes, _SCRATCH):
                size = min(_SCRATCH, nbytes - done)
                self.locked_copy(from_, at + done, self._scratch, 0, size)
                self.locked_copy(self._scratch, 0, to, place + done, size)

    def locked_wait(self, timeline: Fence, value: int) -> None:
        if value > timeline.reached:
            self.locked_submit()
            status = self.native.table.Wait(self.native, timeline.handle, value)
            self._device.check(status, "waiting for another queue")

    def locked_barrier(self) -> None:
        command = self._command or self._open()
        self._used.update(self._touched)
        self._cmd_barrier(command, 1, self._device.between)
        self._touched.clear()

    def locked_copy(self, src: Memory, src_offset: int, dst: Memory, dst_offset: int, nbytes: int) -> None:
        command = self._command or self._open()
        used = {address >> HANDLE_SHIFT for address in self._used.union(self._touched)}
        moved = [(memory, state) for memory, state in ((src, _FROM), (dst, _TO)) if memory.kind.moves]
        ins = _changes([(memory, _KERNELS, state) for memory, state in moved if memory.number in used])
        outs = _changes([(memory, state, _KERNELS) for memory, state in moved])
        self._pending += 1
        copy, barrier = command.table.CopyBufferRegion, self._cmd_barrier
        steps = [partial(copy, command, dst.handle, dst_offset, src.handle, src_offset, nbytes)]
        if len(ins):
            steps.insert(0, partial(barrier, command, len(ins), ins))
        if len(outs):
            steps += [partial(barrier, command, len(outs), outs)]
            steps += [partial(self._used.add, memory.address) for memory, _ in moved]
        in_one_step(*steps)
        if self._pending >= BATCH:
            self.locked_submit()

    def locked_fill(self, memory: Memory, at: int, nbytes: int) -> None:
        for done in range(0, nbytes, ZEROS):
            self.locked_copy(self._device.zeros, 0, memory, at + done, min(ZEROS, nbytes - done))

    def _begin_frame(self, frame: Frame) -> None:
        allocator, command = frame.allocator, frame.command
        steps = partial(allocator.table.Reset, allocator), partial(command.table.Reset, command, allocator, FFI.NULL)
        frame.begun.extend(map(_CALL, steps))

    def _begun(self, frame: Frame) -> None:
        command, table = frame.command, frame.command.table
        # Looked up once for each list: it takes as long as a call.
        self._cmd_bind, self._cmd_barrier = table.SetPipelineState, table.ResourceBarrier
        self._cmd_push, self._cmd_dispatch = table.SetComputeRoot32BitConstants, table.Dispatch
        table.SetDescriptorHeaps(command, 1, self._device.heap)
        table.SetComputeRootSignature(command, self._device.root)
        self._used.clear()

    def _end_frame(self, frame: Frame) -> None:
        command = frame.command
        # For the next submission, whichever queue makes it.
        self._cmd_barrier(command, 1, self._device.between)
        frame.ended.extend(map(_CALL, (partial(command.table.Close, command),)))

    def _send(self, sent: Submission, pointer: Any, what: str) -> None:
        native, table = self.native, self.native.table
        self._sent = sent
        execute = partial(table.ExecuteCommandLists, native, 1, pointer)
        sent.results.extend(map(_CALL, (execute, partial(table.Signal, native, self.timeline.handle, sent.value))))
        self._device.check(sent.results[1], what)
        self._device.read_messages()

    def _begin_label(self, command: Any, title: str) -> None:
        begin_event(command, title)

    def _end_label(self, command: Any) -> None:
        command.table.EndEvent(command)


def _frame(device: D3D12Device, index: int) -> Frame:
    """Make a command list, which is closed, with its allocator."""
    command, allocator = device.command_list()
    device.on_close(release_all, (command, allocator))
    device.check(command.table.Close(command), "ending a command list")
    return Frame(index, command, FFI.new("void *[]", [command]), allocator)


def _changes(changes: list[tuple[Memory, int, int]]) -> Any:
    """Return barriers that change the states of buffers."""
    return FFI.new(
        "D3D12_RESOURCE_BARRIER[]",
        [(0, 0, (memory.handle, _ALL_PARTS, before, after)) for memory, before, after in changes],
    )
