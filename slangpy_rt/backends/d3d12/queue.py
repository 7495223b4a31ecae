"""A queue of the D3D12 backend: replays, copies and labels as commands of its submissions.

Interrupts are handled as ``submission.py`` describes. No arrays are allocated here.
"""

from __future__ import annotations

import threading
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Recording
from slangpy_rt.backends.d3d12.device import SCRATCH, D3D12Device, Memory
from slangpy_rt.backends.d3d12.fence import Fence
from slangpy_rt.backends.d3d12.mark import Clock
from slangpy_rt.backends.d3d12.recording import D3D12Recording, Recorder
from slangpy_rt.backends.d3d12.submission import D3D12Submissions, begin_event
from slangpy_rt.backends.submissions import Submission

_SCRATCH = 16 << 20


class D3D12Queue(D3D12Submissions):
    """A queue whose work runs in order on an ``ID3D12CommandQueue`` of its own."""

    def __init__(self, backend: Backend, device: D3D12Device, lock: threading.Lock, recorder: Recorder) -> None:
        super().__init__(backend, device, lock)
        self._clock = Clock(self, self.native, device, lock)
        self._recorder = recorder
        self._scratch: Memory | None = None

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, D3D12Recording)
        with self.backend.inside[threading.get_ident()]:
            while True:
                with self._lock:
                    if self.closed:
                        self.require_open()
                    self.locked_submit()
                    take = self._recorder.take(recording, self)
                    sent = take.sent
                    if take.home.timeline.passed(sent):
                        # Set before the submission, so that after an interrupt too the list is not used too early.
                        take.home, take.value = self, self.value + 1
                        self._send(Submission(self.value + 1), take.pointer, "submitting a list")
                        return
                # It waits without the lock, so that other threads can queue work meanwhile.
                take.home.timeline.wait(sent)

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

    def _make_timeline(self) -> Fence:
        return Fence(self._device)

    def _begin_label(self, command: Any, title: str) -> None:
        begin_event(command, title)

    def _end_label(self, command: Any) -> None:
        command.table.EndEvent(command)
