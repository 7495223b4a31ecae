"""A queue of the Vulkan backend: launches, copies and marks as commands of its submissions.

Interrupts are handled as ``submission.py`` describes. No arrays are allocated here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Mark, Recording
from slangpy_rt.backends.extras import SignallingMark
from slangpy_rt.backends.pipelines import PipelineKernel
from slangpy_rt.backends.submissions import BATCH, Submission
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.mark import Clock, VulkanMark
from slangpy_rt.backends.vulkan.recording import VulkanRecording
from slangpy_rt.backends.vulkan.submission import VkSubmissions
from slangpy_rt.backends.vulkan.timeline import Timeline
from slangpy_rt.core.interrupts import apart


class VulkanQueue(VkSubmissions):
    """A queue whose work runs in order on one ``VkQueue``; it has the parameters of ``VkSubmissions``."""

    def __init__(self, backend: Backend, commands: VkCommands, handle: Any, lock: threading.Lock) -> None:
        super().__init__(backend, commands, handle, lock)
        self._push = commands.device.ffi.new("uint64_t*")
        self._cmd_bind, self._cmd_push, self._cmd_dispatch = commands.bind, commands.push, commands.dispatch
        self._layout = commands.layout
        self._clock = Clock(self, commands.device, lock)
        # A semaphore that other APIs set, and the last value that one of them was told to set.
        self._foreign: Timeline | None = None
        self._foreign_value = 0

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
                assert isinstance(kernel, PipelineKernel)
                self._bound = None
                self._cmd_bind(command, 1, kernel.pipeline)  # 1: VK_PIPELINE_BIND_POINT_COMPUTE
                self._bound = kernel
            self._pushed = None
            self._cmd_push(command, self._layout, COMPUTE, 0, 8, self._push)
            self._cmd_dispatch(command, *groups)
            if self._pending >= BATCH:
                self.locked_submit()

    def prepare(self, dispatch: Dispatch) -> Callable[[], None]:
        """Return a function that makes one launch, to be called often. The argument block is uploaded once, here."""
        kernel, groups, args, buffers = dispatch
        assert isinstance(kernel, PipelineKernel)
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
                if self._pending >= BATCH:
                    self.locked_submit()

        return run

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, VulkanRecording)
        with self._lock:
            if self.closed:
                self.require_open()
            use = recording.use
            if use.home is not self:
                use.move(self)
            self.locked_submit(alone=False)
            # Set before the submission, so that after an interrupt too the command buffer is not reused too early.
            use.value = self.value + 1
            self._send(Submission(self.value + 1), use.command, "submitting a list")

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        with self._lock:
            self.require_open()
            self.locked_order(src.address, False)
            self.locked_order(dst.address, True)
            # A barrier before the write to ``dst`` has removed the note that the copy reads ``src``.
            self._touched.setdefault(src.address, False)
            to, from_ = dst.chunk, src.chunk
            self.locked_copy(from_.memory, from_.offset + src_offset, to.memory, to.offset + dst_offset, nbytes)

    def mark(self, timed: bool = False) -> Mark:
        with self._lock:
            self.require_open()
            if self._command is None:
                self._open()
            if not timed:
                return VulkanMark(self, self.value + (self._pending > 0 or bool(self._awaited)))
            mark = VulkanMark(self, self.value + 1)
            clock = self._clock
            clock.take(mark)
            # The barrier keeps work after the mark from beginning before the work before it has ended.
            self.locked_barrier()
            self._pending += 1
            self._commands.reset(self._command, clock.pool, mark.stamp.number, 1)
            # 0x2000: BOTTOM_OF_PIPE, after all that was recorded before.
            self._commands.stamp(self._command, 0x2000, clock.pool, mark.stamp.number)
            if self._pending >= BATCH:
                self.locked_submit()
            return mark

    def wait(self, mark: Mark) -> None:
        if not isinstance(mark, VulkanMark):
            assert isinstance(mark, SignallingMark)
            apart(self._wait_for, mark)
            return
        with self._lock:
            self.require_open()
            other = mark.queue
            if other is not self:
                other.locked_reach(mark.value)
                self.locked_wait(other, mark.value)

    def _wait_for(self, mark: SignallingMark) -> None:
        # The lock is held until the other API is told: a semaphore's values must be set in increasing order.
        with self._lock:
            self.require_open()
            if self._foreign is None:
                self._foreign = Timeline(self._device)
            value = self._foreign_value + 1
            mark.signal(self._foreign.shared, value)
            self._foreign_value = value
            self.locked_submit(alone=False)
            self._awaited[self._foreign.handle[0]] = value

    def label(self, title: str) -> None:
        with self._lock:
            self.require_open()
            self._commands.label(self._command or self._open(), title)

    def unlabel(self) -> None:
        with self._lock:
            self.require_open()
            self._commands.unlabel(self._command or self._open())
