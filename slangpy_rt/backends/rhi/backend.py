"""D3D12 and Metal, and Vulkan and CUDA to try it on, through slang-rhi as the slangpy package has it.

Kernels come as Slang programs, which slang-rhi compiles for its device. On Metal, Vulkan and CUDA they find their
arguments behind one pointer, as on our own Vulkan. D3D12 has no pointers: there an address is the index of a bindless
descriptor, shifted by 40 bits, plus bytes (``shaders/_spy_handles.slang``); ``RhiVulkanHandles`` tries that on
Vulkan. ``_rhi_device.py`` opens devices and says what they can do, ``_rhi_memory.py`` has the parts that memory is
cut into, ``_rhi_queue.py`` the way of work to the device, and ``_rhi_cuda.py`` what is different about it on CUDA.

It shares no memory with other APIs or the host, and takes no streams.
"""

from __future__ import annotations

import atexit
import functools
import json
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Mark
from slangpy_rt.backends.rhi.cuda import CudaSubmissions
from slangpy_rt.backends.rhi.device import DESCRIPTORS, Opened, open_device, package_version, why_missing
from slangpy_rt.backends.rhi.memory import OFFSET_MASK, Block, Memory, Stage, pack_address
from slangpy_rt.backends.rhi.queue import RhiKernel, RhiQueue, RhiRecording, Submissions
from slangpy_rt.core.errors import CompileError, DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import Release, apart, finalizer, has_daemons
from slangpy_rt.core.target import KernelInfo, target_of

if TYPE_CHECKING:
    from slangpy_rt.backends.base import Dispatch, Recording

# Blocks up to this many bytes are cut from larger ones: making one of slang-rhi's buffers costs 5 us.
_SMALL = 1 << 20
_STEP = 256
_SLAB = 8 << 20
# Beyond this, host memory goes through a buffer that both sides see: 64 MiB in 9 ms, not 33 (lavapipe, 2 cores).
_STAGED = 1 << 20
# Most bytes of such a buffer; two of them take turns.
_STAGE = 16 << 20
_ZEROS = 1 << 20
# Compiler sessions that are kept: each has 20 MB, and a new one takes 0.3 s.
_SESSIONS = 8


class RhiBackend(Backend):
    """A device of slang-rhi. Not itself one: ``RhiVulkan`` and its like are.

    Parameters
    ----------
    index : int
        Which of the API's adapters.
    debug : bool
        Whether slang-rhi's validation and the API's debug layers are on.

    Raises
    ------
    DeviceError
        If there is no such adapter, or the device does not open.
    """

    kind: ClassVar[str]
    format: ClassVar[str]
    profile: ClassVar[str] = ""
    entry: ClassVar[str] = "pointer"
    submissions: ClassVar[type[Submissions]] = Submissions

    def __init__(self, index: int = 0, *, debug: bool = False) -> None:
        self._opened: Opened = open_device(self.name, self.kind, index, debug, self.entry)
        self._device = self._opened.device
        self.target = target_of(self.format, self.profile, self.entry, self._opened.caps, program=True)
        self.caps, self.description = self._opened.caps, self._opened.description
        self._handles = self.entry == "handle"
        self._submissions = self.submissions(self._opened, self.name, self._handles)
        self._lock = self._submissions.lock
        self._ready = self._opened.slangpy.ResourceState.unordered_access
        # By size, what can be had again, and what takes it out.
        self._free: dict[int, list[Block]] = {}
        self._takes: dict[int, Iterator[Block]] = {}
        self._slab: Memory | None = None
        self._slab_at = 0
        self._zeros: Any = None
        self._stages: deque[Stage] = deque()
        self._backs: dict[int, list[Any]] = {}
        self._sessions: dict[str, Any] = {}
        # Address 0 means that there is no array: whatever has the first descriptor must not be one.
        self._first = self._make(_STEP, "device_local") if self._handles else None
        if self._first is not None:
            self._first.descriptor_handle_rw  # noqa: B018
        self.queue = RhiQueue(self)
        self._leave = functools.partial(_leave, weakref.ref(self))
        atexit.register(self._leave)
        # Also who asks slangpy for all its devices may close this one; slangpy does so itself as the process ends.
        open_ = [self._submissions]
        self._device.register_device_close_callback(functools.partial(_end, open_))
        # Also of a device that is dropped; at exit ``leave`` is enough.
        memory = [self._free, self._stages, self._backs, self._first]
        self._release = Release(partial(_release, self._submissions, open_, self._leave, memory))

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
                return self._load(program, info)
            except RuntimeError as error:
                raise CompileError(f"device {self.name}: kernel {info.title} was refused: {error}") from None

    def alloc(self, nbytes: int) -> RhiBuffer:
        if nbytes <= _SMALL:
            size = nbytes + _STEP - 1 & -_STEP
        else:
            size = nbytes + _SMALL - 1 & -_SMALL
        buffer = RhiBuffer.__new__(RhiBuffer)
        try:
            # A block may still be in use by queued work; whatever is queued next runs after that. From the list to
            # the buffer in one step: an interrupt finds the block in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            apart(self._grow, size, buffer)
        block = buffer.chunk
        buffer.backend = self
        buffer.address = block.memory.address + block.offset
        buffer.nbytes = size
        return buffer

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, RhiBuffer)
        data = np.frombuffer(src, np.uint8)
        if not data.size:
            return
        memory, at = dst.chunk.memory.buffer, dst.chunk.offset + offset
        # slang-rhi's binding takes no array that is read-only.
        data = data if data.flags.writeable else data.copy()
        with self._lock:
            if data.size <= _STAGED:
                encoder = self._submissions.encoder()
                encoder.upload_buffer_data(memory, at, data)
                encoder.set_buffer_state(memory, self._ready)
                self._submissions.queued()
                return
            for done in range(0, data.size, _STAGE):
                piece = data[done : done + _STAGE]
                stage = self._staging()
                stage.buffer.copy_from_numpy(piece)
                encoder = self._submissions.encoder()
                # Before it is so: after an interrupt too, nobody writes to it too early.
                stage.batch = self._submissions.batch
                encoder.copy_buffer(memory, at + done, stage.buffer, 0, piece.size)
                encoder.set_buffer_state(memory, self._ready)
                self._submissions.submit()

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, RhiBuffer)
        data = np.frombuffer(dst, np.uint8)
        memory, at = src.chunk.memory.buffer, src.chunk.offset + offset
        for done in range(0, data.size, _STAGE):
            size = min(_STAGE, data.size - done)
            # ``to_numpy`` takes all of a buffer, so that one is kept for each power of two.
            whole = max(1 << (size - 1).bit_length(), 256)
            with self._lock:
                kept = self._backs.setdefault(whole, [])
                back = kept.pop() if kept else self._make(whole, "read_back")
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
        memory = src.chunk.memory.buffer
        with self._lock:
            back = self._make(nbytes, "read_back")
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
        memory, at = dst.chunk.memory.buffer, dst.chunk.offset + offset
        with self._lock:
            self._submissions.require_open()
            zeros = self._zeros or self._make(_ZEROS, "device_local")
            encoder = self._submissions.encoder()
            if self._zeros is None:
                encoder.clear_buffer(zeros)
                self._zeros = zeros
            for done in range(0, nbytes, _ZEROS):
                encoder.copy_buffer(memory, at + done, zeros, 0, min(_ZEROS, nbytes - done))
            encoder.set_buffer_state(memory, self._ready)
            self._submissions.queued()

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        """As ``Queue.copy``."""
        assert isinstance(dst, RhiBuffer) and isinstance(src, RhiBuffer)
        to, at = dst.chunk.memory.buffer, dst.chunk.offset + dst_offset
        with self._lock:
            encoder = self._submissions.encoder()
            encoder.copy_buffer(to, at, src.chunk.memory.buffer, src.chunk.offset + src_offset, nbytes)
            encoder.set_buffer_state(to, self._ready)
            encoder.set_buffer_state(src.chunk.memory.buffer, self._ready)
            self._submissions.queued()

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._lock:
            self._submissions.launch(kernel, groups, args)  # type: ignore[arg-type]

    def replay(self, recording: Recording) -> None:
        with self._lock:
            self._submissions.replay(recording)  # type: ignore[arg-type]

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        """As ``Backend.record``: slang-rhi submits a command buffer once, so that a replay encodes again."""
        return RhiRecording(list(dispatches), waits)

    def open_queue(self, handle: int | None = None) -> RhiQueue:
        """A queue in name: slang-rhi has one, and what is queued on any of them runs in order."""
        if handle is not None:
            raise UnsupportedError(f"device {self.name}: it has no streams of other libraries to take over.")
        return RhiQueue(self)

    def sync(self) -> None:
        with self._lock:
            value = self._submissions.submit()
        self._submissions.wait(value)

    def mark(self, timed: bool) -> Mark:
        """As ``Queue.mark``."""
        with self._lock:
            return self._submissions.mark(timed)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """As ``Backend.closed``."""
        return self._submissions.closed

    def require_open(self) -> None:
        self._submissions.require_open()

    def close(self) -> None:
        apart(self._close)

    def _close(self) -> None:
        try:
            self._release()
        finally:
            self._free = {}
            self._takes = {}
            for kept in (self._sessions, self._stages, self._backs):
                kept.clear()
            self._slab = self._zeros = self._first = None

    def leave(self) -> None:
        """The process ends: nothing may be in flight when slangpy goes.

        Daemon threads, which nothing else stops, stop at their next call.
        """
        submissions = self._submissions
        # Before the lock, which another thread may have held when this process was forked.
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

    def _load(self, program: dict[str, Any], info: KernelInfo) -> RhiKernel:
        session = self._session(program)
        name, text = program["kernel"]
        kernel = session.load_module_from_source(name, program["head"] + text, f"{name}.slang")
        modules = [kernel]
        for other, path, source, _ in program["modules"]:
            if other in program["link"]:
                modules.append(session.load_module_from_source(other, source, path))
        if program["exports"]:
            unique = f"{name}_exports"
            modules.append(
                session.load_module_from_source(unique, program["head"] + program["exports"], f"{unique}.slang")
            )
        conformances = [self._opened.slangpy.TypeConformance(*item) for item in program["conformances"]]
        entry = kernel.entry_point(program["entry"], conformances)
        linked = session.link_program(modules, [entry])
        pipeline = self._device.create_compute_pipeline(linked)
        root = self._device.create_root_shader_object(linked)
        cursor = self._opened.slangpy.ShaderCursor(root).find_entry_point(0)
        block = cursor["_spy_block"] if info.args_size else None
        return RhiKernel(info, pipeline, root, block.dereference() if block is not None and self._handles else block)

    def _session(self, program: dict[str, Any]) -> Any:
        """A compiler session with the program's modules, one for all programs that have the same."""
        key = json.dumps([program["modules"], program["folders"], program["defines"]])
        # The last one used is the last in the dict.
        found = self._sessions.pop(key, None)
        if found is None:
            spy = self._opened.slangpy
            found = self._device.create_slang_session(
                compiler_options={
                    "include_paths": program["folders"],
                    "defines": dict(program["defines"]),
                    "matrix_layout": spy.SlangMatrixLayout.row_major,
                },
                cache_path=self._opened.modules,
            )
            for name, path, text, _ in program["modules"]:
                found.load_module_from_source(name, text, path)
        self._sessions[key] = found
        if len(self._sessions) > _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return found

    def _make(self, nbytes: int, kind: str) -> Any:
        self._submissions.enter()
        try:
            return self._opened.memory(nbytes, kind)
        except OutOfMemoryError:
            self._give_back()
        return self._opened.memory(nbytes, kind)

    def _give_back(self) -> None:
        """Free blocks that nobody has any more, once the device is done with them. Only with the lock."""
        self._submissions.wait(self._submissions.submit())
        for size, blocks in self._free.items():
            if size > _SMALL:
                blocks.clear()
        self._backs.clear()
        self._device.wait()

    def _staging(self) -> Stage:
        """Memory that the host writes and the device is done with. Only with the lock."""
        if len(self._stages) < 2:
            stage = Stage(self._make(_STAGE, "upload"))
            self._stages.append(stage)
        else:
            stage = self._stages[0]
            if stage.batch is not None:
                self._submissions.wait(self._submissions.number(stage.batch, waits=True))
            self._stages.rotate(-1)
        return stage

    def _grow(self, size: int, buffer: RhiBuffer) -> None:
        """Give a buffer a new block; not to be interrupted."""
        with self._lock:
            self._submissions.require_open()
            free = self._free.setdefault(size, [])
            self._takes.setdefault(size, iter(free.pop, None))
            if size > _SMALL:
                buffer.chunk = Block(self._memory(size), 0, free)
                return
            if self._slab is None or self._slab_at + size > _SLAB:
                self._slab, self._slab_at = self._memory(_SLAB), 0
            self._slab_at += size
            buffer.chunk = Block(self._slab, self._slab_at - size, free)

    def _memory(self, size: int) -> Memory:
        if self._handles and size > OFFSET_MASK:
            raise OutOfMemoryError(
                f"device {self.name}: {size:,} bytes are more than an array may have here, which is less than 4 GiB. "
                "Use smaller ones."
            )
        buffer = self._make(size, "device_local")
        address = pack_address(self._descriptor(buffer)) if self._handles else buffer.device_address
        if not address:
            raise DeviceError(f"device {self.name}: memory came at address 0, which stands for no array.")
        return Memory(buffer, address)

    def _descriptor(self, buffer: Any) -> int:
        try:
            return int(buffer.descriptor_handle_rw.value)
        except RuntimeError:
            self._give_back()
        try:
            return int(buffer.descriptor_handle_rw.value)
        except RuntimeError:
            raise OutOfMemoryError(
                f"device {self.name}: {DESCRIPTORS:,} arrays of more than 1 MiB are the most that it takes. Free "
                "some, or use fewer and larger ones."
            ) from None


class RhiVulkan(RhiBackend):
    """Vulkan, by slang-rhi."""

    name = "rhi-vulkan"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"


class RhiCuda(RhiBackend):
    """CUDA, by slang-rhi."""

    name = "rhi-cuda"
    kind = "cuda"
    format = "cuda"
    submissions = CudaSubmissions


class RhiMetal(RhiBackend):
    """Metal, by slang-rhi."""

    name = "metal"
    kind = "metal"
    format = "metal"


class RhiD3D12(RhiBackend):
    """D3D12, by slang-rhi."""

    name = "d3d12"
    kind = "d3d12"
    format = "hlsl"
    profile = "sm_6_6"
    entry = "handle"


class RhiVulkanHandles(RhiBackend):
    """Vulkan, by slang-rhi, used like D3D12: for tests of what that needs where there is none."""

    name = "rhi-vulkan-handles"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"
    entry = "handle"


class RhiBuffer(Buffer):
    """A block of slang-rhi's memory."""

    __slots__ = ()


def _release(
    submissions: Submissions, open_: list[Submissions], leave: Callable[[], None], memory: list[Any]
) -> None:
    """Wait for queued work and give the device back; then the memory goes that the work may have used."""
    with submissions.lock:
        if submissions.closed:
            return
        submissions.enter()
        try:
            submissions.wait(submissions.submit())
        finally:
            submissions.close()
            atexit.unregister(leave)
            # What is in the list would keep the device, which keeps the list.
            open_.clear()
            memory.clear()
            submissions.device.close()


def _end(open_: list[Submissions], _: Any) -> None:
    """Slangpy is about to close a device: wait for its work and take no more, or slangpy would crash."""
    # Closed ones before the lock, which another thread may have held when this process was forked.
    for submissions in open_:
        if not submissions.closed:
            apart(submissions.end)
    open_.clear()


def _leave(backend: weakref.ref[RhiBackend]) -> None:
    found = backend()
    if found is not None:
        found.leave()
