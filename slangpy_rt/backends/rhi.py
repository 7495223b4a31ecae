"""D3D12 and Metal, and Vulkan and CUDA to try it on, through slang-rhi as the slangpy package has it.

Kernels come as Slang programs, which slang-rhi compiles for its device. On Metal, Vulkan and CUDA they find their
arguments behind one pointer, as on our own Vulkan. D3D12 has no pointers: there an address is the index of a bindless
descriptor, shifted by 40 bits, plus bytes (``shaders/slangpy_rt_handles.slang``); ``RhiVulkanHandles`` tries that on
Vulkan. Work gathers in one command encoder at a time, and all queues are one. ``_rhi_device.py`` opens devices and
says what they can do, ``_rhi_memory.py`` has the parts that memory is cut into.

It shares no memory with other APIs or the host, and takes no streams.
"""

from __future__ import annotations

import atexit
import functools
import json
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from slangpy_rt.backends._rhi_device import Opened, open_device, package_version, why_missing
from slangpy_rt.backends._rhi_memory import HANDLE_SHIFT, OFFSET_MASK, Block, Frame, Memory, Stage, pack_address
from slangpy_rt.backends.base import Backend, Buffer, Kernel, KernelInfo, Mark, Queue, Target
from slangpy_rt.errors import CompileError, DeviceError, DeviceLostError, OutOfMemoryError, UnsupportedError

if TYPE_CHECKING:
    from slangpy_rt.backends.base import Dispatch, Recording

# Blocks up to this many bytes are cut from larger ones: making one of slang-rhi's buffers costs 5 us.
_SMALL = 1 << 20
_STEP = 256
_SLAB = 8 << 20
# Argument blocks of one submission; a longer block has one of its own.
_FRAME = 64 << 10
# Launches and copies that gather before the device gets them.
_MOST = 16
# Thread groups that make a launch long enough to begin with it at once.
_LONG = 4096
# Submissions whose commands slang-rhi keeps.
_FLYING = 16
# Beyond this, host memory goes through a buffer that both sides see: 64 MiB in 9 ms, not 33 (lavapipe, 2 cores).
_STAGED = 1 << 20
# Most bytes of such a buffer; two of them take turns.
_STAGE = 16 << 20
_ZEROS = 1 << 20
_QUERIES = 256


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

    def __init__(self, index: int = 0, *, debug: bool = False) -> None:
        self._opened: Opened = open_device(self.name, self.kind, index, debug, self.entry)
        self._spy, self._device = self._opened.slangpy, self._opened.device
        self.target = Target(self.format, self.profile, self.entry, program=True)
        self.caps, self.description = self._opened.caps, self._opened.description
        self._lock = threading.RLock()
        self._closed = self._leaving = False
        spy = self._spy
        use = spy.BufferUsage
        self._usage = use.unordered_access | use.shader_resource | use.copy_source | use.copy_destination
        self._ready = spy.ResourceState.unordered_access
        # Submissions are counted: the last that is done, as far as is known, and the last there is.
        self._done = self._value = -1
        self._encoder: Any = None
        self._frame: Frame | None = None
        self._idle: list[Frame] = []
        self._flying: deque[tuple[int, list[Frame]]] = deque()
        self._full: list[Frame] = []
        self._pending = 0
        self._free: dict[int, list[Block]] = {}
        self._slab: Memory | None = None
        self._slab_at = 0
        self._zeros: Any = None
        self._stages: deque[Stage] = deque()
        self._backs: dict[int, list[Any]] = {}
        self._sessions: dict[str, Any] = {}
        self._pools: list[Any] = []
        # Numbers of timestamps that no mark has.
        self._queries: list[int] = []
        self._handles = self.entry == "handle"
        # What a kernel takes: the address of its argument block, or the index of a descriptor and an offset.
        self._word = np.zeros(1, np.uint64)
        self._words = self._word.view(np.uint32)
        # Address 0 means that there is no array: whatever has the first descriptor must not be one.
        self._first = self._make(_STEP, spy.MemoryType.device_local) if self._handles else None
        if self._first is not None:
            self._first.descriptor_handle_rw  # noqa: B018
        self.queue = RhiQueue(self)
        self._leave = functools.partial(_leave, weakref.ref(self))
        atexit.register(self._leave)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return why_missing(cls.kind)

    def toolchain(self) -> str:
        return f"slangpy {package_version()} {self.kind}"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def load(self, binary: bytes, info: KernelInfo) -> RhiKernel:
        program = json.loads(binary)
        with self._lock:
            self._require_open()
            try:
                return self._load(program, info)
            except RuntimeError as error:
                raise CompileError(f"device {self.name}: kernel {info.title} was refused: {error}") from None

    def alloc(self, nbytes: int) -> RhiBuffer:
        if nbytes <= _SMALL:
            size = nbytes + _STEP - 1 & -_STEP
        else:
            size = nbytes + _SMALL - 1 & -_SMALL
        try:
            # A block may still be in use by queued work; whatever is queued next runs after that.
            block = self._free[size].pop()
        except (KeyError, IndexError):
            block = self._grow(size)
        return RhiBuffer(self, block, size)

    def free(self, buffer: Buffer) -> None:
        assert isinstance(buffer, RhiBuffer)
        blocks = self._free.get(buffer.nbytes)
        if blocks is not None:  # None once closed
            blocks.append(buffer.block)

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, RhiBuffer)
        data = np.frombuffer(src, np.uint8)
        if not data.size:
            return
        memory, at = dst.block.memory.buffer, dst.block.offset + offset
        # slang-rhi's binding takes no array that is read-only.
        data = data if data.flags.writeable else data.copy()
        with self._lock:
            if data.size <= _STAGED:
                self._begin().upload_buffer_data(memory, at, data)
                self._encoder.set_buffer_state(memory, self._ready)
                self._queued()
                return
            for done in range(0, data.size, _STAGE):
                piece = data[done : done + _STAGE]
                stage = self._staging()
                stage.buffer.copy_from_numpy(piece)
                self._begin().copy_buffer(memory, at + done, stage.buffer, 0, piece.size)
                self._encoder.set_buffer_state(memory, self._ready)
                try:
                    self._submit()
                finally:  # Ctrl-C, while it waits for an earlier one
                    stage.value = self._value

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, RhiBuffer)
        data = np.frombuffer(dst, np.uint8)
        memory, at = src.block.memory.buffer, src.block.offset + offset
        for done in range(0, data.size, _STAGE):
            size = min(_STAGE, data.size - done)
            # ``to_numpy`` takes all of a buffer, so that one is kept for each power of two.
            whole = max(1 << (size - 1).bit_length(), 256)
            with self._lock:
                kept = self._backs.setdefault(whole, [])
                back = kept.pop() if kept else self._make(whole, self._spy.MemoryType.read_back)
                self._begin().copy_buffer(back, 0, memory, at + done, size)
                self._encoder.set_buffer_state(memory, self._ready)
                value = self._submit()
            self.wait(value)
            data[done : done + size] = back.to_numpy().view(np.uint8).ravel()[:size]
            with self._lock:
                kept.append(back)

    def read_later(self, src: Buffer, nbytes: int) -> tuple[Mark, Callable[[memoryview], None]]:
        assert isinstance(src, RhiBuffer)
        memory = src.block.memory.buffer
        with self._lock:
            back = self._make(nbytes, self._spy.MemoryType.read_back)
            self._begin().copy_buffer(back, 0, memory, src.block.offset, nbytes)
            self._encoder.set_buffer_state(memory, self._ready)
            mark = RhiMark(self, self._submit(), -1)

        def read(dst: memoryview) -> None:
            with self._lock:
                self._require_open()
                np.frombuffer(dst, np.uint8)[:] = back.to_numpy().view(np.uint8).ravel()[:nbytes]

        return mark, read

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        assert isinstance(dst, RhiBuffer)
        memory, at = dst.block.memory.buffer, dst.block.offset + offset
        with self._lock:
            fresh = self._zeros is None
            if fresh:
                self._zeros = self._make(_ZEROS, self._spy.MemoryType.device_local)
            encoder = self._begin()
            if fresh:
                encoder.clear_buffer(self._zeros)
            for done in range(0, nbytes, _ZEROS):
                encoder.copy_buffer(memory, at + done, self._zeros, 0, min(_ZEROS, nbytes - done))
            encoder.set_buffer_state(memory, self._ready)
            self._queued()

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        """As ``Queue.copy``."""
        assert isinstance(dst, RhiBuffer) and isinstance(src, RhiBuffer)
        to, at = dst.block.memory.buffer, dst.block.offset + dst_offset
        with self._lock:
            encoder = self._begin()
            encoder.copy_buffer(to, at, src.block.memory.buffer, src.block.offset + src_offset, nbytes)
            encoder.set_buffer_state(to, self._ready)
            encoder.set_buffer_state(src.block.memory.buffer, self._ready)
            self._queued()

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._lock:
            self._dispatch(kernel, groups, args, True)  # type: ignore[arg-type]
            if groups[0] * groups[1] * groups[2] >= _LONG:
                self._submit()
            else:
                self._queued()

    def replay(self, recording: Recording) -> None:
        with self._lock:
            for dispatch, waits in zip(recording.dispatches, recording.waits, strict=True):  # type: ignore[attr-defined]
                self._dispatch(dispatch.kernel, dispatch.groups, dispatch.args, waits)  # type: ignore[arg-type]
                self._pending += 1
                if self._pending >= _MOST:
                    self._submit()
            self._queued()

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        """As ``Backend.record``: slang-rhi submits a command buffer once, so that a replay encodes again."""
        from slangpy_rt.backends._rhi_device import RhiRecording

        return RhiRecording(list(dispatches), waits)

    def open_queue(self, handle: int | None = None) -> RhiQueue:
        """A queue in name: slang-rhi has one, and what is queued on any of them runs in order."""
        if handle is not None:
            raise UnsupportedError(f"device {self.name}: it has no streams of other libraries to take over.")
        return RhiQueue(self)

    def sync(self) -> None:
        with self._lock:
            value = self._submit()
        self.wait(value)

    def wait(self, value: int) -> None:
        """Wait until a submission is done.

        slang-rhi's own waits keep Python's lock, so this asks again and again.
        """
        pause = 0.0
        while not self.reached(value):
            # Threads that wait for a short kernel are back at once, others cost nothing.
            time.sleep(pause)
            pause = min(pause + 2e-6, 2e-4)

    def reached(self, value: int) -> bool:
        """Whether a submission is done, and all before it."""
        if self._done < value:
            with self._lock:
                self._require_open()
                if self._done < value and self._device.is_submit_finished(value):
                    self._done = value
        return self._done >= value

    def mark(self, timed: bool) -> RhiMark:
        """As ``Queue.mark``.

        Raises
        ------
        UnsupportedError
            If the device has no clock.
        """
        with self._lock:
            self._require_open()
            if not timed:
                return RhiMark(self, self._submit(), -1)
            if not self._opened.timestamps:
                raise UnsupportedError(f"device {self.name}: slang-rhi has no clock of this device.")
            if not self._queries:
                self._pools.append(self._device.create_query_pool(self._spy.QueryType.timestamp, _QUERIES))
                end = len(self._pools) * _QUERIES
                self._queries.extend(range(end - _QUERIES, end))
            query = self._queries.pop()
            self._begin().write_timestamp(self._pools[query // _QUERIES], query % _QUERIES)
            return RhiMark(self, self._submit(), query)

    def seconds(self, query: int) -> float:
        """The device's clock at a timed mark."""
        assert query >= 0
        with self._lock:
            self._require_open()
            return float(self._pools[query // _QUERIES].get_timestamp_result(query % _QUERIES))

    def release(self, query: int) -> None:
        """A timed mark is gone."""
        self._queries.append(query)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self.wait(self._submit())
            finally:
                self._closed = True
                self._free = {}
                for kept in (self._sessions, self._stages, self._backs):
                    kept.clear()
                self._pools.clear()
                self._frame = self._slab = self._zeros = self._encoder = self._first = None
                atexit.unregister(self._leave)
                self._idle.clear()
                self._flying.clear()
                self._device.close()

    def leave(self) -> None:
        """The process ends: nothing may be in flight when slangpy goes.

        Daemon threads, which nothing else stops, stop at their next call.
        """
        # Before the lock, which another thread may have held when this process was forked.
        if self._closed:
            return
        with self._lock:
            if self._closed:
                return
            value = self._submit()
            if any(thread.daemon for thread in threading.enumerate()):
                self._closed = self._leaving = True
            if value >= 0:
                self._device.wait()

    def abandon(self) -> None:
        self._closed = True

    def _load(self, program: dict[str, Any], info: KernelInfo) -> RhiKernel:
        session = self._session(program)
        name, text = program["kernel"]
        kernel = session.load_module_from_source(name, text, f"{name}.slang")
        modules = [kernel]
        for other, path, source, _ in program["modules"]:
            if other in program["link"]:
                modules.append(session.load_module_from_source(other, source, path))
        if program["exports"]:
            unique = f"{name}_exports"
            modules.append(session.load_module_from_source(unique, program["exports"], f"{unique}.slang"))
        conformances = [self._spy.TypeConformance(*item) for item in program["conformances"]]
        entry = kernel.entry_point(program["entry"], conformances)
        linked = session.link_program(modules, [entry])
        pipeline = self._device.create_compute_pipeline(linked)
        root = self._device.create_root_shader_object(linked)
        cursor = self._spy.ShaderCursor(root).find_entry_point(0)
        block = cursor["block"] if info.args_size else None
        return RhiKernel(info, pipeline, root, block.dereference() if block is not None and self._handles else block)

    def _session(self, program: dict[str, Any]) -> Any:
        """A compiler session with the program's modules, one for all programs that have the same."""
        key = json.dumps([program["modules"], program["folders"], program["defines"]])
        found = self._sessions.get(key)
        if found is None:
            spy = self._spy
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
        return found

    def _make(self, nbytes: int, memory: Any) -> Any:
        # slang-rhi's views count words.
        size = nbytes + 3 & -4
        usage, use = self._usage, self._spy.BufferUsage
        if memory == self._spy.MemoryType.upload:
            usage = use.shader_resource | use.copy_source
        elif memory == self._spy.MemoryType.read_back:
            usage = use.copy_destination
        told: dict[str, Any] = {"size": size, "usage": usage, "memory_type": memory}
        if memory == self._spy.MemoryType.device_local:
            told["default_state"] = self._ready
        try:
            return self._device.create_buffer(**told)
        except (RuntimeError, MemoryError):
            self._give_back()
        try:
            return self._device.create_buffer(**told)
        except (RuntimeError, MemoryError) as error:
            raise OutOfMemoryError(
                f"device {self.name}: {nbytes:,} bytes could not be allocated ({error}). Free some arrays or use "
                "smaller ones."
            ) from None

    def _give_back(self) -> None:
        """Free blocks that nobody has any more, once the device is done with them. Only with the lock."""
        self.wait(self._submit())
        for size, blocks in self._free.items():
            if size > _SMALL:
                blocks.clear()
        self._backs.clear()
        self._device.wait()

    def _staging(self) -> Stage:
        """Memory that the host writes and the device is done with. Only with the lock."""
        if len(self._stages) < 2:
            stage = Stage(self._make(_STAGE, self._spy.MemoryType.upload))
        else:
            stage = self._stages.popleft()
            self.wait(stage.value)
        self._stages.append(stage)
        return stage

    def _grow(self, size: int) -> Block:
        """A new block."""
        with self._lock:
            self._require_open()
            self._free.setdefault(size, [])
            if size > _SMALL:
                return Block(self._memory(size), 0)
            if self._slab is None or self._slab_at + size > _SLAB:
                self._slab, self._slab_at = self._memory(_SLAB), 0
            self._slab_at += size
            return Block(self._slab, self._slab_at - size)

    def _memory(self, size: int) -> Memory:
        if self._handles and size > OFFSET_MASK:
            raise OutOfMemoryError(
                f"device {self.name}: {size:,} bytes are more than an array may have here, which is less than 4 GiB. "
                "Use smaller ones."
            )
        buffer = self._make(size, self._spy.MemoryType.device_local)
        address = pack_address(buffer.descriptor_handle_rw.value) if self._handles else buffer.device_address
        if not address:
            raise DeviceError(f"device {self.name}: memory came at address 0, which stands for no array.")
        return Memory(buffer, address)

    def _new_frame(self, size: int) -> Frame:
        buffer = self._make(size, self._spy.MemoryType.upload)
        address = pack_address(buffer.descriptor_handle_ro.value) if self._handles else buffer.device_address
        return Frame(buffer, address, size)

    def _begin(self) -> Any:
        """The encoder, behind what is in it. Only with the lock."""
        if self._closed or sys.is_finalizing():
            self._require_open()
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = self._device.create_command_encoder()
        encoder.global_barrier()
        return encoder

    def _dispatch(self, kernel: RhiKernel, groups: tuple[int, int, int], args: bytes, waits: Any) -> None:
        if self._closed or sys.is_finalizing():
            self._require_open()
        # First, since for want of memory it may submit.
        address = self._place(args) if kernel.cursor is not None else 0
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = self._device.create_command_encoder()
            encoder.global_barrier()
        elif waits:
            encoder.global_barrier()
        if kernel.cursor is not None:
            if self._handles:
                self._words[:] = address >> HANDLE_SHIFT, address & OFFSET_MASK
                kernel.cursor.set_data(self._words)
            else:
                self._word[0] = address
                kernel.cursor.set_data(self._word)
        work = encoder.begin_compute_pass()
        work.bind_pipeline(kernel.pipeline, kernel.root)
        work.dispatch_compute(groups)
        work.end()

    def _place(self, args: bytes) -> int:
        """Where the device will find an argument block."""
        frame, size = self._frame, len(args)
        if frame is None or frame.used + size > frame.size:
            if frame is not None:
                self._full.append(frame)
                self._frame = None
            if size > _FRAME:
                frame = self._new_frame(size)
            elif self._idle:
                frame = self._idle.pop()
            else:
                frame = self._new_frame(_FRAME)
            self._frame = frame
        at = frame.used
        frame.data[at : at + size] = args
        frame.used = at + size + 63 & -64
        return frame.address + at

    def _queued(self) -> None:
        """Something was queued: so much goes to the device together."""
        self._pending += 1
        if self._pending >= _MOST:
            self._submit()

    def _submit(self) -> int:
        """Send what gathered; returns the number of the submission that it is done with. Only with the lock."""
        self._require_open()
        encoder = self._encoder
        if encoder is None:
            return self._value
        self._encoder = None
        self._pending = 0
        frames = self._full
        if self._frame is not None:
            frames.append(self._frame)
        self._full, self._frame = [], None
        for frame in frames:
            frame.memory.copy_from_numpy(frame.array[: frame.used])
        encoder.global_barrier()
        try:
            self._value = self._device.submit_command_buffers([encoder.finish()])
        except RuntimeError as error:
            raise DeviceLostError(
                f"device {self.name}: work was refused ({error}). This process cannot use the device any more; start "
                "a new one."
            ) from None
        self._flying.append((self._value, frames))
        if len(self._flying) > _FLYING:
            self.wait(self._flying[0][0])
        while self._flying and self._flying[0][0] <= self._done:
            for frame in self._flying.popleft()[1]:
                if frame.size == _FRAME:
                    frame.used = 0
                    self._idle.append(frame)
        return self._value

    def _require_open(self) -> None:
        if self._leaving and threading.current_thread().daemon:
            raise SystemExit
        # slangpy is torn down with Python's modules, whoever still uses its devices.
        if self._closed or sys.is_finalizing():
            raise DeviceError(f"device {self.name}: this device is closed; open a new one.")


class RhiVulkan(RhiBackend):
    """Vulkan, by slang-rhi."""

    name = "rhi-vulkan"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"


class RhiCuda(RhiBackend):
    """CUDA, by slang-rhi.

    slang-rhi (of slangpy 0.43.1) wants its context to be current to whoever calls, and says at once that a submission
    is done, which may take long: only its own wait is right, and that keeps Python's lock.
    """

    name = "rhi-cuda"
    kind = "cuda"
    format = "cuda"

    def reached(self, value: int) -> bool:
        """Whether a submission is done; waits for it, since there is no way to ask."""
        if self._done < value:
            with self._lock:
                self._require_open()
                self._device.set_cuda_context_current()
                self._device.wait()
                self._done = max(self._done, value)
        return True

    def _load(self, program: dict[str, Any], info: KernelInfo) -> RhiKernel:
        self._device.set_cuda_context_current()
        return super()._load(program, info)

    def _make(self, nbytes: int, memory: Any) -> Any:
        self._device.set_cuda_context_current()
        return super()._make(nbytes, memory)

    def _begin(self) -> Any:
        self._device.set_cuda_context_current()
        return super()._begin()

    def _dispatch(self, kernel: RhiKernel, groups: tuple[int, int, int], args: bytes, waits: Any) -> None:
        self._device.set_cuda_context_current()
        super()._dispatch(kernel, groups, args, waits)

    def _submit(self) -> int:
        self._device.set_cuda_context_current()
        return super()._submit()


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


class RhiQueue(Queue):
    """A name for the one queue of slang-rhi."""

    deferred = True
    backend: RhiBackend

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        self.backend.copy(dst, dst_offset, src, src_offset, nbytes)

    def mark(self, timed: bool = False) -> Mark:
        return self.backend.mark(timed)

    def wait(self, mark: Mark) -> None:
        """As ``Queue.wait``: what was queued before runs before."""

    def sync(self) -> None:
        self.backend.sync()


class RhiMark(Mark):
    """The end of a submission, and of a timed mark the number of its query."""

    __slots__ = ("_backend", "_query", "_value")

    def __init__(self, backend: RhiBackend, value: int, query: int) -> None:
        self._backend = backend
        self._value = value
        self._query = query

    @property
    def done(self) -> bool:
        return self._backend.reached(self._value)

    def sync(self) -> None:
        self._backend.wait(self._value)

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, RhiMark)
        return self._backend.seconds(self._query) - self._backend.seconds(earlier._query)

    def __del__(self) -> None:
        if self._query >= 0:
            self._backend.release(self._query)


class RhiKernel(Kernel):
    """A pipeline, and where it takes the address of its arguments."""

    __slots__ = ("cursor", "pipeline", "root")

    def __init__(self, info: KernelInfo, pipeline: Any, root: Any, cursor: Any) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.root = root
        self.cursor = cursor


class RhiBuffer(Buffer):
    """A block of slang-rhi's memory."""

    __slots__ = ("block",)

    def __init__(self, backend: RhiBackend, block: Block, nbytes: int) -> None:
        super().__init__(backend, block.memory.address + block.offset, nbytes)
        self.block = block


def _leave(backend: weakref.ref[RhiBackend]) -> None:
    found = backend()
    if found is not None:
        found.leave()
