"""CUDA backend: one device, its primary context and streams, through the driver library.

Arguments are a by-value kernel parameter; what Slang emits is compiled by NVRTC, which a process that finds
its kernels in the cache never loads. Memory is ordinary device memory from a caching allocator. Device
settings are never changed, and no stream of another library is waited for unless it was handed over.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Recording, Shared, SharedBuffer
from slangpy_rt.backends.cuda.context import keep_current
from slangpy_rt.backends.cuda.driver import (
    FFI_CUDA,
    NO_DEVICE,
    OUT_OF_MEMORY,
    check,
    driver,
    query,
)
from slangpy_rt.backends.cuda.external import uuid_of
from slangpy_rt.backends.cuda.graph import CudaGraph, Graphs
from slangpy_rt.backends.cuda.queue import MAX_ARGUMENTS, NON_BLOCKING, CudaKernel, CudaQueue, Events
from slangpy_rt.backends.cuda.staging import Staging
from slangpy_rt.backends.shared_pool import LARGEST, PooledBuffer, SharedPool
from slangpy_rt.core.errors import CompileError, DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import Release, apart, finalizer
from slangpy_rt.core.target import Caps, KernelInfo, target_of

_SCALARS = frozenset(
    {"bool", "int8_t", "int16_t", "int", "int64_t", "uint8_t", "uint16_t", "uint", "uint64_t"}
    | {"half", "float", "double"}
)
_FEATURES = frozenset({"wave", "group_shared", "atomic_float", "pointers"})
_MAX_GROUPS = (2**31 - 1, 65535, 65535)

# -w: Slang's prelude alone causes hundreds of warnings about vector types that CUDA 13 deprecates.
_FLAGS = ("--std=c++17", "-w")
# Types that the prelude knows only when told to; Slang's CUDA text uses them without telling it.
_HEADER_TYPES = {
    b"__half": "-DSLANG_CUDA_ENABLE_HALF=1",
    b"__nv_bfloat16": "-DSLANG_CUDA_ENABLE_BF16=1",
    b"__nv_fp8": "-DSLANG_CUDA_ENABLE_FP8=1",
}

# Up to _SMALL, blocks are multiples of 512 bytes cut from slabs; above, each is an allocation of its own in
# multiples of 2 MiB, which is the driver's own granularity.
_SMALL = 1 << 20
_SMALL_STEP = 512
_LARGE_STEP = 2 << 20
_SLAB = 8 << 20

_SHARED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
# Modules that wait together to be unloaded: that waits for the device.
_MANY_RETIRED = 64
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR

_NULL = FFI_CUDA.NULL
# What makes the context current.
_ENTERING = (
    "_load", "_open_shared", "upload", "download", "clear", "_open_queue", "guest_queue", "update", "record", "sync",
    "_add_slab", "_grow",
)  # fmt: skip
_bytes_at = FFI_CUDA.from_buffer


class CudaBackend(Backend):
    """An NVIDIA GPU.

    Parameters
    ----------
    index : int
        Which device, in the driver's order.
    debug : bool
        Wait after each launch, so that an error names the kernel that caused it.
    stream : int, optional
        A ``CUstream`` of another library for what would go to a new one.

    Attributes
    ----------
    stream : int
        The ``CUstream`` that all work goes to; it does not wait for the legacy default stream.

    Raises
    ------
    DeviceError
        If there is no driver or no such device.
    """

    name = "cuda"
    queue: CudaQueue
    __del__ = finalizer("_release.drop")

    def __init__(self, index: int = 0, *, debug: bool = False, stream: int | None = None) -> None:
        if reason := self.why_unavailable():
            raise DeviceError(f"device cuda: {reason}.")
        cu = self._cu = driver()
        count = query(cu.cuDeviceGetCount, "int *", what="counting devices")
        if not 0 <= index < count:
            raise DeviceError(f"device cuda: there is no device {index}; this machine has 0 to {count - 1}.")
        self._device = query(cu.cuDeviceGet, "int *", index, what="opening the device")
        major, minor = (
            query(cu.cuDeviceGetAttribute, "int *", attribute, self._device, what="asking for its capability")
            for attribute in (_MAJOR, _MINOR)
        )
        name = FFI_CUDA.new("char[256]")
        check(cu.cuDeviceGetName(name, 256, self._device), "asking for its name")
        memory = query(cu.cuDeviceTotalMem_v2, "size_t *", self._device, what="asking for its memory")

        # From 8.0 on, tensor cores multiply TF32.
        features = _FEATURES | {"cooperative_matrix"} if major >= 8 else _FEATURES
        self.caps = Caps(_MAX_GROUPS, _SCALARS, features, 32, dlpack_device=2)
        self.target = target_of("cuda", "", "value", self.caps)
        self.description = (
            f"{FFI_CUDA.string(name).decode()}, compute capability {major}.{minor}, {memory / 2**30:.0f} GiB"
        )
        self._arch = f"sm_{major}{minor}"
        self._debug = debug
        self._released = False
        self._closing = threading.Lock()
        self._context = query(cu.cuDevicePrimaryCtxRetain, "uintptr_t *", self._device, what="creating a context")
        before = query(cu.cuCtxGetCurrent, "uintptr_t *", what="asking for the current context")
        self._several = count > 1
        if self._several:
            keep_current(self, self._context, _ENTERING)
        self._enter()
        self._events = Events(self._context, self.inside)
        self._graphs = Graphs()
        self._own_streams: list[int] = []
        self._queues: list[CudaQueue] = []
        # On streams of other libraries, which may be gone.
        self._guests: list[CudaQueue] = []
        queue = self.open_queue(stream)
        self.queue, self.stream = queue, queue.handle
        # One Python call less in the path of every call.
        self.launch, self.replay = queue.launch, queue.replay  # type: ignore[method-assign]
        self._staging = Staging(self._context, self.stream)
        self._memset = cu.cuMemsetD8Async
        self._modules: set[int] = set()
        # Those of kernels that nobody has any more; the device may still run them.
        self._retired: deque[int] = deque()
        # Guards growth only. Free lists are popped and appended in single steps, because ``free`` runs from
        # the garbage collector at any moment, also while this thread holds the lock.
        self._lock = threading.Lock()
        self._free: dict[int, list[_Block]] = {}
        self._takes: dict[int, Iterator[_Block]] = {}
        self._allocations: set[int] = set()
        self._slab = self._slab_end = 0
        self._shared = SharedPool()
        self._shared_slabs: list[int] = []
        self._release = Release(
            partial(
                _give_back, self._device, self._context, self._staging, self._graphs, self._events, self._modules,
                self._allocations, self._shared_slabs, self._own_streams,
            )
        )  # fmt: skip
        if self._several:
            check(cu.cuCtxSetCurrent(before), "leaving the context")

    def require_open(self) -> None:
        if self.closed:
            raise DeviceError("device cuda: this device is closed; open a new one.")

    @classmethod
    def why_unavailable(cls) -> str | None:
        try:
            cu = driver()
        except OSError:
            return "no NVIDIA driver: the CUDA driver library (libcuda.so.1, nvcuda.dll) was not found"
        count = FFI_CUDA.new("int *")
        status = cu.cuInit(0) or cu.cuDeviceGetCount(count)
        if status == NO_DEVICE or (not status and not count[0]):
            return "the NVIDIA driver sees no device; CUDA_VISIBLE_DEVICES may hide it"
        try:
            check(status, "starting the driver")
        except DeviceError as error:
            return str(error).removeprefix("device cuda: ")
        return None

    def toolchain(self) -> str:
        # By file name, because loading NVRTC takes 0.1 s and importing importlib.metadata 0.02.
        wheels = [w.name for p in sys.path for w in Path(p).glob("nvidia_cuda_nvrtc*.dist-info")]
        return f"nvrtc {' '.join(wheels) or nvrtc_version()} {self._arch} {' '.join(_FLAGS)}"

    def compile(self, code: bytes, entry: str) -> bytes:
        return nvrtc_compile(code, self._arch)

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        if info.args_size > MAX_ARGUMENTS:
            raise UnsupportedError(
                f"device cuda: kernel {info.entry!r} has {info.args_size} bytes of arguments, at most "
                f"{MAX_ARGUMENTS} fit; pass large values as arrays."
            )
        return apart(self._load, binary, info)

    def _load(self, binary: bytes, info: KernelInfo) -> Kernel:
        with self.inside[threading.get_ident()]:
            self.require_open()
            return self._load_module(binary, info)

    def _load_module(self, binary: bytes, info: KernelInfo) -> Kernel:
        self._enter()
        what = f"loading kernel {info.entry!r}"
        module = query(self._cu.cuModuleLoadData, "uintptr_t *", binary, what=what)
        self._modules.add(module)
        entry = info.entry.encode()
        function = query(self._cu.cuModuleGetFunction, "uintptr_t *", module, entry, what=what)
        if len(self._retired) >= _MANY_RETIRED:
            check(self._cu.cuCtxSynchronize(), "waiting for queued work")
            for _ in range(len(self._retired)):
                gone = self._retired.popleft()
                self._modules.discard(gone)
                self._cu.cuModuleUnload(gone)
        return CudaKernel(info, function, partial(self._retired.append, module))

    def alloc(self, nbytes: int) -> Buffer:
        if nbytes <= _SMALL:
            size = (nbytes + _SMALL_STEP - 1) & -_SMALL_STEP
        else:
            size = (nbytes + _LARGE_STEP - 1) & -_LARGE_STEP
        buffer = Buffer.__new__(Buffer)
        try:
            # A block may still be in use by queued work; whatever is queued next runs after that. From the list to
            # the buffer in one step: an interrupt finds the block in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            apart(self._grow, size, buffer)
        buffer.backend = self
        buffer.address = buffer.chunk.address
        buffer.nbytes = size
        return buffer

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        return self._shared.take(self, nbytes) or self._find_shared(nbytes)

    def open_shared(self, shared: Shared, offset: int, nbytes: int, owner: Any) -> Buffer | None:
        if shared.gpu != uuid_of(self._device):
            return None
        memory = apart(self._open_shared, shared)
        return ForeignBuffer(self, memory.address + offset, nbytes, (owner, memory))

    def _open_shared(self, shared: Shared) -> Any:
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            return self._events.externals.memory(shared)

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        data = _bytes_at(src)
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            self._staging.upload(dst.address + offset, int(FFI_CUDA.cast("uintptr_t", data)), len(data))

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        data = _bytes_at(dst, require_writable=True)
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            self._staging.download(int(FFI_CUDA.cast("uintptr_t", data)), src.address + offset, len(data))

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            status = self._memset(dst.address + offset, 0, nbytes, self.stream)
        check(status, f"clearing {nbytes:,} bytes")

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        self.queue.launch(kernel, groups, args, buffers)

    def open_queue(self, handle: int | None = None) -> CudaQueue:
        """A new stream, or one of the same context that another library made.

        Raises
        ------
        DeviceError
            If that stream is of another device or context.
        """
        return apart(self._open_queue, handle)

    def _open_queue(self, handle: int | None) -> CudaQueue:
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            own = handle is None
            if handle is None:
                handle = query(self._cu.cuStreamCreate, "uintptr_t *", NON_BLOCKING, what="creating a stream")
                self._own_streams.append(handle)
            known = next((q for q in self._queues if q.handle == handle), None)
            if known is not None:
                return known
            queue = self._queue(handle, own)
            self._queues.append(queue)
            return queue

    def guest_queue(self, handle: int) -> CudaQueue:
        """As ``open_queue``; its work is waited for by waiting for the whole context."""
        with self.inside[threading.get_ident()]:
            self.require_open()
            found = next((q for q in (*self._queues, *self._guests) if q.handle == handle), None)
            if found is None:
                found = self._queue(handle, own=False)
                self._guests.append(found)
            return found

    def abandon(self) -> None:
        self.closed = self._released = True
        self._release.detach()
        for queue in (*self._queues, *self._guests):
            queue.abandon()

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        return self.queue.record(dispatches, waits)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, CudaGraph)
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            recording.update(place, dispatch)

    def replay(self, recording: Recording) -> None:
        self.queue.replay(recording)

    def sync(self) -> None:
        retired = self._shared.retired()
        for queue in list(self._queues):
            queue.sync()
        if self._guests:
            with self.inside[threading.get_ident()]:
                self.require_open()
                self._enter()
                check(self._cu.cuCtxSynchronize(), "waiting for queued work")
        self._shared.reuse(retired)

    def close(self) -> None:
        self.closed = True
        for queue in (*self._queues, *self._guests):
            queue.close()
        self.inside.wait()
        # The main thread's current context is not touched, because another thread does it.
        apart(self._close)
        self._leave()

    def _close(self) -> None:
        with self._closing:
            if self._released:
                return
            self._shared.close()
            self._free, self._takes = {}, {}
            self._release()
            self._released = True

    def _leave(self) -> None:
        """Leave no context current that is gone. One that other libraries hold stays: they take it for the GPU."""
        cu = self._cu
        if _current() == self._context:
            flags, active = FFI_CUDA.new("unsigned int *"), FFI_CUDA.new("int *")
            if cu.cuDevicePrimaryCtxGetState(self._device, flags, active) or not active[0]:
                cu.cuCtxSetCurrent(0)

    def _queue(self, handle: int, own: bool) -> CudaQueue:
        self._enter()
        # 0, 1 and 2 are the default streams of whatever context is current.
        if handle > 2:
            context = self._context_of(handle)
            if context != self._context:
                raise DeviceError("device cuda: that stream is of another device or context.")
        queue = CudaQueue(self, self._context, handle, self._events, self._graphs, own, self._debug)
        if self._several:
            queue.keep_current()
        return queue

    def _enter(self) -> None:
        """Make the context current; other libraries may have changed it since the last call."""
        check(self._cu.cuCtxSetCurrent(self._context), "entering the context")

    def _context_of(self, stream: int) -> int:
        out = FFI_CUDA.new("uintptr_t *")
        check(self._cu.cuStreamGetCtx(stream, out), "asking a stream for its context")
        return int(out[0])

    def _find_shared(self, nbytes: int) -> PooledBuffer | None:
        """A block of a size that has none free: from its first slab, or one that a wait sets free."""
        if nbytes > LARGEST:
            return None
        pool = self._shared
        if not (pool.missing(nbytes) and apart(self._add_slab, nbytes)):
            self.require_open()
            if pool.freed:
                self.sync()
        return pool.take(self, nbytes)

    def _add_slab(self, nbytes: int) -> bool:
        cu, pool = self._cu, self._shared
        with self.inside[threading.get_ident()], self._lock:
            self.require_open()
            size = pool.missing(nbytes)
            if size:
                self._enter()
                host = query(cu.cuMemHostAlloc, "uintptr_t *", size, _SHARED, what="page-locking host memory")
                self._shared_slabs.append(host)
                what = "mapping host memory"
                address = query(cu.cuMemHostGetDevicePointer_v2, "uintptr_t *", host, 0, what=what)
                pool.add(nbytes, None, address, memoryview(FFI_CUDA.buffer(FFI_CUDA.cast("char *", host), size)))
        return size > 0

    def _grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block; not to be interrupted."""
        with self.inside[threading.get_ident()], self._lock:
            self.require_open()
            self._enter()
            free = self._free.setdefault(size, [])
            self._takes.setdefault(size, iter(free.pop, None))
            if size > _SMALL:
                buffer.chunk = _Block(self._allocate(size), free)
                return
            if self._slab + size > self._slab_end:
                self._slab = self._allocate(_SLAB)
                self._slab_end = self._slab + _SLAB
            self._slab += size
            buffer.chunk = _Block(self._slab - size, free)

    def _allocate(self, nbytes: int) -> int:
        """Memory from the driver, cached blocks being given back when there is no other."""
        out = FFI_CUDA.new("uintptr_t *")
        status = self._cu.cuMemAlloc_v2(out, nbytes)
        if status == OUT_OF_MEMORY:
            self.sync()
            for size, blocks in self._free.items():
                while size > _SMALL and blocks:
                    address = blocks.pop().address
                    self._allocations.remove(address)
                    check(self._cu.cuMemFree_v2(address), "giving memory back")
            status = self._cu.cuMemAlloc_v2(out, nbytes)
        if status == OUT_OF_MEMORY:
            free, total = FFI_CUDA.new("size_t *"), FFI_CUDA.new("size_t *")
            check(self._cu.cuMemGetInfo_v2(free, total), "asking for free memory")
            raise OutOfMemoryError(
                f"device cuda: {nbytes:,} bytes could not be allocated; {free[0]:,} of {total[0]:,} bytes "
                "are free. Free some arrays or use smaller ones."
            )
        check(status, f"allocating {nbytes:,} bytes")
        self._allocations.add(int(out[0]))
        return int(out[0])


class _Block:
    """Memory from the driver, or a part of it; ``give`` puts it among what can be had again."""

    __slots__ = ("address", "give")

    def __init__(self, address: int, free: list[_Block]) -> None:
        self.address = address
        self.give = partial(free.append, self)


class ForeignBuffer(Buffer):
    """Memory of another API; ``owner`` keeps it."""

    __slots__ = ("owner",)

    def __init__(self, backend: Backend, address: int, nbytes: int, owner: Any) -> None:
        super().__init__(backend, address, nbytes)
        self.owner = owner


def _give_back(
    device: int,
    context: int,
    staging: Staging,
    graphs: Graphs,
    events: Events,
    modules: Iterable[int],
    allocations: Iterable[int],
    slabs: Iterable[int],
    streams: Iterable[int],
) -> None:
    """Give the driver back what a backend had of it, and leave the thread's current context as it was."""
    # Statuses are ignored: a lost device refuses all of this, and there is nothing left to be done.
    cu = driver()
    before = _current()
    cu.cuCtxSetCurrent(context)
    cu.cuCtxSynchronize()
    staging.close()
    graphs.close()
    for module in modules:
        cu.cuModuleUnload(module)
    for address in allocations:
        cu.cuMemFree_v2(address)
    for address in slabs:
        cu.cuMemFreeHost(address)
    events.close()
    for stream in streams:
        cu.cuStreamDestroy_v2(stream)
    cu.cuCtxSetCurrent(before)
    cu.cuDevicePrimaryCtxRelease_v2(device)


def _current() -> int:
    """The thread's current context; 0 also where the driver refuses to tell, as in a forked process."""
    found = FFI_CUDA.new("uintptr_t *")
    return 0 if driver().cuCtxGetCurrent(found) else int(found[0])


def nvrtc_compile(code: bytes, arch: str) -> bytes:
    """Compile CUDA text to a CUBIN for ``arch``, such as ``"sm_90"``. Needs no device.

    Raises
    ------
    CompileError
        If NVRTC refuses the text or the architecture; the message ends with its log.
    UnsupportedError
        If NVRTC, or a header the text needs, is not installed.
    """
    nvrtc = _nvrtc()
    options = [f"--gpu-architecture={arch}", *_FLAGS]
    # The prelude always names these types; what Slang made of a kernel follows its last #endif.
    body = code.rpartition(b"#endif")[2]
    defines = [flag for name, flag in _HEADER_TYPES.items() if name in body]
    if defines:
        options += [*defines, f"--include-path={_header_directory()}"]
    status, program = nvrtc.nvrtcCreateProgram(code, b"kernel.cu", 0, [], [])
    if status:
        raise DeviceError(f"device cuda: NVRTC could not start: {status.name} ({int(status)})")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [text.encode() for text in options])
        if status:
            log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CompileError(
                f"NVRTC {nvrtc_version()} refused the CUDA text that Slang emitted for {arch} "
                f"({status.name}):\n{log.rstrip(bytes(1)).decode(errors='replace')}"
            )
        cubin = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def nvrtc_version() -> str:
    """Version of the NVRTC that ``nvrtc_compile`` uses, such as ``"13.0"``.

    Raises
    ------
    UnsupportedError
        If NVRTC is not installed.
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


def _nvrtc() -> Any:
    """The bindings of NVRTC, with its library found."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            "device cuda: NVRTC, which compiles kernels, was not found. "
            f"`pip install cuda-python nvidia-cuda-nvrtc`.\n{error}"
        ) from error
    return nvrtc


def _header_directory() -> str:
    """Where cuda_fp16.h and its like are."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory("cudart")
    if not found:
        raise UnsupportedError(
            "device cuda: half needs the header cuda_fp16.h, which was not found. "
            "`pip install nvidia-cuda-runtime`, or install the CUDA toolkit and set CUDA_HOME."
        )
    return str(found)
