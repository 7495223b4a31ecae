"""Records work of the D3D12 backend in command lists, and submits them, as ``backends/submissions.py`` describes.

Inside a command list, a barrier comes only before work that reads or writes what earlier work wrote, or writes what
earlier work read. Buffers are in the state COMMON when a command list begins, and the first use of one in a kernel or
a copy gives it the state that this use needs. A copy puts buffers that kernels of the list have used into the states
of a copy, and leaves them in the state for kernels: these changes of state order it with the work around it.
"""

from __future__ import annotations

import threading
from functools import partial
from operator import methodcaller
from typing import Any

from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import HANDLE_SHIFT, UPLOAD, ZEROS, D3D12Device, Memory
from slangpy_rt.backends.d3d12.fence import Fence
from slangpy_rt.backends.stamps import StampedQueue
from slangpy_rt.backends.submissions import BATCH, FRAME_BYTES, FRAMES, Frame, Submission
from slangpy_rt.core.interrupts import in_one_step

COMPUTE = 2  # D3D12_COMMAND_LIST_TYPE_COMPUTE
# D3D12_RESOURCE_STATES: UNORDERED_ACCESS, COPY_DEST, COPY_SOURCE.
_KERNELS, _TO, _FROM = 0x8, 0x400, 0x800
_ALL_PARTS = 0xFFFFFFFF
_CALL = methodcaller("__call__")


class D3D12Submissions(StampedQueue):
    """A queue that records commands in command lists, and submits them.

    Attributes
    ----------
    native : Any
        The ``ID3D12CommandQueue``.
    """

    ring: Memory
    timeline: Fence

    def __init__(self, backend: Backend, device: D3D12Device, lock: threading.Lock) -> None:
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
        self._open()

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

    def locked_order(self, address: int, writes: bool) -> None:
        """Do nothing: changes of state order copies."""

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


def _frame(device: D3D12Device, index: int) -> Frame:
    """Make a command list with its allocator."""
    allocator = device.make(
        "ID3D12CommandAllocator", "CreateCommandAllocator", COMPUTE, what="making a command allocator"
    )
    create = partial(device.make, "ID3D12GraphicsCommandList", "CreateCommandList", 0, COMPUTE)
    command = create(allocator, FFI.NULL, what="making a command list")
    # It is made open.
    device.check(command.table.Close(command), "ending a command list")
    return Frame(index, command, FFI.new("void *[]", [command]), allocator)


def _changes(changes: list[tuple[Memory, int, int]]) -> Any:
    """Return barriers that change the states of buffers."""
    return FFI.new(
        "D3D12_RESOURCE_BARRIER[]",
        [(0, 0, (memory.handle, _ALL_PARTS, before, after)) for memory, before, after in changes],
    )


def begin_event(command: Any, title: str) -> None:
    """Begin a part of a command list that PIX shows under a title."""
    text = title.encode() + b"\0"
    # 1: the text is ANSI.
    command.table.BeginEvent(command, 1, text, len(text))
