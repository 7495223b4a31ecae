"""A queue of the Vulkan backend: prepared launches, replays and copies as commands of its submissions.

Interrupts are handled as ``submission.py`` describes. No arrays are allocated here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Recording
from slangpy_rt.backends.pipelines import PipelineKernel
from slangpy_rt.backends.single import FEW
from slangpy_rt.backends.submission import Submission
from slangpy_rt.backends.submissions import BATCH
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.mark import Clock
from slangpy_rt.backends.vulkan.recording import VulkanRecording
from slangpy_rt.backends.vulkan.submission import VkSubmissions


class VulkanQueue(VkSubmissions):
    """A queue whose work runs in order on one ``VkQueue``; it has the parameters of ``VkSubmissions``."""

    def __init__(self, backend: Backend, commands: VkCommands, handle: Any, lock: threading.Lock) -> None:
        super().__init__(backend, commands, handle, lock)
        self._layout = commands.layout
        self._clock = Clock(self, commands)

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
                if not self._pending and kernel.alone >= FEW and self._hold(kernel, groups, args, buffers):
                    return
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

    def _begin_label(self, command: Any, title: str) -> None:
        self._commands.label(command, title)

    def _end_label(self, command: Any) -> None:
        self._commands.unlabel(command)
