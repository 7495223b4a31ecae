"""A queue of the D3D12 backend: launches, copies and marks as commands of its submissions.

Interrupts are handled as ``submission.py`` describes. No arrays are allocated here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Mark, Recording
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import DEVICE, D3D12Device, Memory
from slangpy_rt.backends.d3d12.mark import Clock
from slangpy_rt.backends.d3d12.recording import D3D12Recording, Recorder
from slangpy_rt.backends.d3d12.submission import D3D12Submissions
from slangpy_rt.backends.pipelines import PipelineKernel
from slangpy_rt.backends.stamps import StampedMark
from slangpy_rt.backends.submissions import BATCH, Submission

_SCRATCH = 16 << 20


class D3D12Queue(D3D12Submissions):
    """A queue whose work runs in order on an ``ID3D12CommandQueue`` of its own."""

    def __init__(self, backend: Backend, device: D3D12Device, lock: threading.Lock, recorder: Recorder) -> None:
        super().__init__(backend, device, lock)
        # The root constants: the number of the ring's descriptor, and bytes.
        self._place = FFI.new("uint32_t[2]", [self.ring.number, 0])
        self._clock = Clock(self, device, lock)
        self._recorder = recorder
        self._scratch: Memory | None = None

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
            self._place[1] = start
            self._pending += 1
            command, touched, written, used = self._command, self._touched, kernel.info.written, self._used
            table = command.table
            for buffer, writes in zip(buffers, written):  # noqa: B905 (the keyword costs 0.1 us)
                address = buffer.address
                used.add(buffer.chunk.memory)
                if address in touched and (writes or touched[address]):
                    # A barrier of all buffers is one of acceleration structures too.
                    between = buffer.chunk.memory.between if len(used) == 1 else self._between
                    table.ResourceBarrier(command, 1, between)
                    touched.clear()
                    for buffer, writes in zip(buffers, written):  # noqa: B905
                        used.add(buffer.chunk.memory)
                        touched[buffer.address] = writes or touched.get(buffer.address, False)
                    break
                touched[address] = writes
            if kernel is not self._bound:
                assert isinstance(kernel, PipelineKernel)
                self._bound = None
                table.SetPipelineState(command, kernel.pipeline)
                self._bound = kernel
            table.SetComputeRoot32BitConstants(command, 0, 2, self._place, 0)
            table.Dispatch(command, *groups)
            if self._pending >= BATCH:
                self.locked_submit()

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, D3D12Recording)
        with self._lock:
            if self.closed:
                self.require_open()
            self.locked_submit()
            take = self._recorder.take(recording, self)
            # Set before the submission, so that after an interrupt too the command list is not used again too early.
            take.home, take.value = self, self.value + 1
            self._send(Submission(self.value + 1), take.pointer, "submitting a list")

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
                self._scratch = self._device.keep(_SCRATCH, DEVICE)
            for done in range(0, nbytes, _SCRATCH):
                size = min(_SCRATCH, nbytes - done)
                self.locked_copy(from_, at + done, self._scratch, 0, size)
                self.locked_copy(self._scratch, 0, to, place + done, size)

    def mark(self, timed: bool = False) -> Mark:
        with self._lock:
            self.require_open()
            command = self._command or self._open()
            if not timed:
                return StampedMark(self, self.value + (self._pending > 0))
            mark = StampedMark(self, self.value + 1)
            # The barrier keeps work after the mark from beginning before the work before it has ended.
            self.locked_barrier()
            self._pending += 1
            self._clock.record(mark, command)
            if self._pending >= BATCH:
                self.locked_submit()
            return mark

    def wait(self, mark: Mark) -> None:
        assert isinstance(mark, StampedMark)
        with self._lock:
            self.require_open()
            other = mark.queue
            assert isinstance(other, D3D12Submissions)
            if other is not self:
                other.locked_reach(mark.value)
                self.locked_wait(other, mark.value)

    def label(self, title: str) -> None:
        with self._lock:
            self.require_open()
            command, text = self._command or self._open(), title.encode() + b"\0"
            # 1: the text is ANSI, in the format of PIX.
            command.table.BeginEvent(command, 1, text, len(text))

    def unlabel(self) -> None:
        with self._lock:
            self.require_open()
            command = self._command or self._open()
            command.table.EndEvent(command)
