"""D3D12 and Metal through slang-rhi, which the slangpy package contains; also Vulkan and CUDA, to test this backend.

Kernels are Slang programs, which slang-rhi compiles for its device. On Metal, Vulkan and CUDA a kernel gets a pointer
to its argument block, as in the vulkan backend. D3D12 has no pointers: there an address is the index of a bindless
descriptor, shifted left by 40 bits, plus an offset in bytes (``shaders/_spy_handles.slang``); ``RhiVulkanHandles``
does so on Vulkan, for tests. ``apis.py`` has a class for each API, ``device.py`` opens devices and describes them,
``queue.py`` submits work, and ``cuda.py`` has what is different about that on CUDA.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Mark, Recording
from slangpy_rt.backends.extras import LateReads, Records
from slangpy_rt.backends.leaving import Leaves, leave_at_exit
from slangpy_rt.backends.rhi.closing import end, release
from slangpy_rt.backends.rhi.device import Opened, open_device, package_version, why_missing
from slangpy_rt.backends.rhi.heap import STAGE, ZEROS, Heap, RhiBuffer
from slangpy_rt.backends.rhi.images import RhiImages
from slangpy_rt.backends.rhi.program import Programs, RhiKernel
from slangpy_rt.backends.rhi.queue import RhiQueue, RhiRecording, Submissions
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.interrupts import Release, apart, finalizer, has_daemons
from slangpy_rt.core.target import KernelInfo

# Blocks up to this many bytes are parts of larger buffers: making one of slang-rhi's buffers takes 5 us.
_SMALL = 1 << 20
_STEP = 256
_SLAB = 8 << 20
# More bytes are uploaded through a buffer that host and device address: 64 MiB in 9 ms, not 33 (lavapipe, 2 cores).
_STAGED = 1 << 20


class RhiBackend(RhiImages, Backend, Records, LateReads, Leaves):
    """A device of slang-rhi: the base of ``RhiVulkan`` and the classes of the other APIs.

    Parameters
    ----------
    index : int
        The number of the adapter, in the order of the API.
    debug : bool
        Whether slang-rhi's validation and the API's debug layers are on.
    deterministic : bool
        Without effect: a launch always divides its work in the same way.

    Raises
    ------
    UnsupportedError, DeviceError
        If the machine has no such API or adapter; if the device does not open.
    """

    compilers = ("slang-rhi", "slang-rhi")
    kind: ClassVar[str]
    format: ClassVar[str]
    profile: ClassVar[str] = ""
    entry: ClassVar[str] = "pointer"
    submissions: ClassVar[type[Submissions]] = Submissions

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        self._opened: Opened = open_device(self.name, self.kind, index, debug, self.entry)
        self.target = target_of(self.format, self.profile, self.entry, self._opened.caps, program=True)
        self.caps, self.description = self._opened.caps, self._opened.description
        handles = self.entry == "handle"
        self._submissions = self.submissions(self._opened, self.name, handles)
        self._lock = self._submissions.lock
        self._ready = self._submissions.ready
        self._programs = Programs(self._opened, handles)
        self._heap = Heap(self._opened, self._submissions, self.name, handles, _SMALL, _SLAB)
        self._takes = self._heap.blocks.takes
        self.queue = self.open_queue()
        self._leave = leave_at_exit(self)
        # slangpy may close it too: it closes all devices as the process ends, and a program may do it earlier.
        open_ = [self._submissions]
        self._opened.device.register_device_close_callback(partial(end, open_))
        # Also releases a device that was freed without ``close``; at the end of the process ``leave`` is enough.
        self._release = Release(partial(release, self._submissions, open_, self._leave, self._heap))

    __del__ = finalizer("_release.drop")

    @classmethod
    def why_unavailable(cls) -> str | None:
        return why_missing(cls.kind)

    def toolchain(self) -> str:
        return f"slangpy {package_version()} {self.kind}"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def load(self, binary: bytes, info: KernelInfo) -> RhiKernel:
        return apart(self._load_program, json.loads(binary), info)

    def _load_program(self, program: dict[str, Any], info: KernelInfo) -> RhiKernel:
        with self._lock:
            self._submissions.require_open()
            self._submissions.enter()
            try:
                return self._programs.load(program, info)
            except RuntimeError as error:
                raise CompileError(f"device {self.name}: kernel {info.title} was refused: {error}") from None

    def alloc(self, nbytes: int) -> RhiBuffer:
        step = _STEP if nbytes <= _SMALL else _SMALL
        size = nbytes + step - 1 & -step
        buffer = RhiBuffer.__new__(RhiBuffer)
        try:
            # Queued work may still use the block; what is queued next runs after that work. The block moves from the
            # list to the buffer in one step, so that an interrupt finds it in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            apart(self._grow, size, buffer)
        buffer.backend = self
        buffer.address = buffer.chunk.address
        buffer.nbytes = size
        return buffer

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, RhiBuffer)
        data = np.frombuffer(src, np.uint8)
        if not data.size:
            return
        memory, at = dst.chunk.memory, dst.chunk.offset + offset
        # slang-rhi's Python binding refuses read-only arrays.
        data = data if data.flags.writeable else data.copy()
        with self._lock:
            if data.size <= _STAGED:
                encoder = self._submissions.encoder()
                encoder.upload_buffer_data(memory, at, data)
                encoder.set_buffer_state(memory, self._ready)
                self._submissions.queued()
                return
            for done in range(0, data.size, STAGE):
                piece = data[done : done + STAGE]
                stage = self._heap.staging()
                stage.buffer.copy_from_numpy(piece)
                encoder = self._submissions.encoder()
                # Set before the copy is encoded, so that after an interrupt too the stage is not reused too early.
                stage.batch = self._submissions.batch
                encoder.copy_buffer(memory, at + done, stage.buffer, 0, piece.size)
                encoder.set_buffer_state(memory, self._ready)
                self._submissions.submit()

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, RhiBuffer)
        data = np.frombuffer(dst, np.uint8)
        memory, at = src.chunk.memory, src.chunk.offset + offset
        for done in range(0, data.size, STAGE):
            size = min(STAGE, data.size - done)
            # ``to_numpy`` copies a whole buffer, so that buffers of each power of two are kept.
            whole = max(1 << (size - 1).bit_length(), 256)
            with self._lock:
                kept = self._heap.backs.setdefault(whole, [])
                back = kept.pop() if kept else self._heap.make(whole, "read_back")
                encoder = self._submissions.encoder()
                encoder.copy_buffer(back, 0, memory, at + done, size)
                encoder.set_buffer_state(memory, self._ready)
                value = self._submissions.submit()
            self._submissions.wait(value)
            with self._lock:
                self._submissions.require_open()
                data[done : done + size] = back.to_numpy().view(np.uint8).ravel()[:size]
                kept.append(back)

    def read_later(self, src: Buffer, nbytes: int) -> tuple[Mark, Callable[[memoryview], None]]:
        assert isinstance(src, RhiBuffer)
        memory = src.chunk.memory
        with self._lock:
            back = self._heap.make(nbytes, "read_back")
            encoder = self._submissions.encoder()
            encoder.copy_buffer(back, 0, memory, src.chunk.offset, nbytes)
            encoder.set_buffer_state(memory, self._ready)
            mark = self._submissions.mark(False)

        def read(dst: memoryview) -> None:
            with self._lock:
                self._submissions.require_open()
                np.frombuffer(dst, np.uint8)[:] = back.to_numpy().view(np.uint8).ravel()[:nbytes]

        return mark, read

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        assert isinstance(dst, RhiBuffer)
        memory, at = dst.chunk.memory, dst.chunk.offset + offset
        with self._lock:
            zeros = self._heap.zeros()
            encoder = self._submissions.encoder()
            for done in range(0, nbytes, ZEROS):
                encoder.copy_buffer(memory, at + done, zeros, 0, min(ZEROS, nbytes - done))
            encoder.set_buffer_state(memory, self._ready)
            self._submissions.queued()

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        # slang-rhi submits a command buffer only once, so that each replay encodes the launches again.
        return RhiRecording(list(dispatches), waits)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        recording.dispatches[place] = dispatch

    def open_queue(self) -> RhiQueue:
        """Return another object for slang-rhi's one queue: work of all such queues runs in the order of the calls."""
        return RhiQueue(self, self._submissions)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Whether the device was closed, by ``close`` or by slangpy."""
        return self._submissions.closed

    def require_open(self) -> None:
        self._submissions.require_open()

    def close(self) -> None:
        apart(self._close)

    def _close(self) -> None:
        try:
            self._release()
        finally:
            self._heap.close()
            self._programs.close()

    def leave(self) -> None:
        # No work may be running when slangpy ends.
        submissions = self._submissions
        # Checked before the lock, which another thread may have held when this process was forked.
        if submissions.closed:
            return
        with self._lock:
            self._release.keep()
            if submissions.closed or submissions.lost:
                return
            submissions.submit()
            if has_daemons():
                submissions.closed = submissions.leaving = True
            submissions.leave()

    def abandon(self) -> None:
        self._submissions.closed = True
        self._release.detach()

    def _grow(self, size: int, buffer: RhiBuffer) -> None:
        with self._lock:
            self._submissions.require_open()
            self._heap.blocks.grow(size, buffer)
