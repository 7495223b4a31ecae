"""The CUDA backend: one device, its primary context and streams, through the driver library.

The argument block is a by-value kernel parameter, and NVRTC compiles the CUDA text that Slang emits. Memory is
ordinary device memory from a caching allocator. Device settings are never changed. Streams of other libraries are
waited for only if a program passed them, or where the whole context has to be waited for, as in ``close``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Recording, Shared, SharedBuffer
from slangpy_rt.backends.cuda.compile import nvrtc_toolchain
from slangpy_rt.backends.cuda.context import current, keep_current, leave
from slangpy_rt.backends.cuda.device import give_back, open_gpu, why_missing
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver
from slangpy_rt.backends.cuda.events import Events
from slangpy_rt.backends.cuda.external import is_of
from slangpy_rt.backends.cuda.graph import CudaGraph, Graphs
from slangpy_rt.backends.cuda.images import IMAGES, CudaImages, Freed
from slangpy_rt.backends.cuda.kernel import Modules, require_fit
from slangpy_rt.backends.cuda.memory import ForeignBuffer, Memory
from slangpy_rt.backends.cuda.nvrtc_process import begin_nvrtc, compile_apart
from slangpy_rt.backends.cuda.occupancy import CudaOccupancy
from slangpy_rt.backends.cuda.queue import CudaQueue
from slangpy_rt.backends.cuda.staging import Staging
from slangpy_rt.backends.cuda.streams import Streams
from slangpy_rt.backends.cuda.tensor_map import CudaTensorMaps
from slangpy_rt.backends.extras import ForeignStreams, HostResults, ImportsMemory, MappedMemory, Records
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.interrupts import Release, apart, finalizer
from slangpy_rt.core.target import KernelInfo

# Up to _SMALL, blocks are multiples of 512 bytes cut from slabs; above, each is an allocation of its own in
# multiples of 2 MiB, which is the driver's own granularity.
_SMALL, _SMALL_STEP = 1 << 20, 512
_LARGE_STEP, _SLAB = 2 << 20, 8 << 20

# Methods that make the context current; with several GPUs they are wrapped so that they restore the previous one.
_ENTERING = ("_load", "_open_shared", "upload", "download", "clear", "_open_queue", "foreign_queue", "update",
             "record", "sync_all", "tensor_map", "resident_threads", *IMAGES)  # fmt: skip
_bytes_at = FFI_CUDA.from_buffer


class CudaBackend(Backend, Records, MappedMemory, HostResults, ImportsMemory, ForeignStreams, CudaTensorMaps,
                  CudaOccupancy, CudaImages):  # fmt: skip
    """An NVIDIA GPU.

    Parameters
    ----------
    index : int
        The number of the device, in the driver's order.
    debug : bool
        Wait after each launch, so that an error names the kernel that caused it.
    deterministic : bool
        Without effect: a launch always divides its work in the same way.
    stream : int, optional
        A ``CUstream`` of another library, which takes all work; without it the backend makes a stream.
    owner : object, optional
        What keeps that stream alive.

    Attributes
    ----------
    stream : int
        The ``CUstream`` of ``queue``. If the backend made it, it does not wait for the legacy default stream.

    Raises
    ------
    UnsupportedError, DeviceError
        If there is no driver or no such device; if the driver fails, or ``stream`` is of another device.
    """

    name = "cuda"
    compilers = ("NVRTC", "the driver")
    queue: CudaQueue
    begin_compiler = staticmethod(begin_nvrtc)
    __del__ = finalizer("_release.drop")

    def __init__(
        self,
        index: int = 0,
        *,
        debug: bool = False,
        deterministic: bool = False,
        stream: int | None = None,
        owner: Any = None,
    ) -> None:
        opened = open_gpu(index)
        cu = self._cu = driver()
        self._device, self._context, self._arch = opened.device, opened.context, opened.arch
        self.caps, self.description = opened.caps, opened.description
        self.target = target_of("cuda", "", "value", self.caps)
        self._closing, self._released = threading.Lock(), False
        before = current()
        if opened.several:
            keep_current(self, self._context, _ENTERING)
        self._events = Events(self._context, self.inside)
        self._graphs, self._modules, self._images = Graphs(), Modules(), Freed()
        self._memory = Memory(self, self._context, _SMALL, _SLAB, opened.several)
        # Used by ``alloc`` only: it saves an attribute look-up in the path of every call.
        self._takes = self._memory.blocks.takes
        self._shared, self.hosts = self._memory.shared, self._memory.hosts
        self._streams = Streams(self, self._context, self._events, self._graphs, opened.several, debug)
        give = partial(
            give_back, self._device, self._context, self._graphs, self._events, self._modules.all,
            self._memory.allocations, self._memory.slabs, self._streams.own, self._images.live,
        )  # fmt: skip
        try:
            self._enter()
            self.queue = self.open_queue() if stream is None else self.open_stream(stream, owner)
        except BaseException:
            give()
            cu.cuCtxSetCurrent(before)
            raise
        self.stream = self.queue.handle
        self._staging, self._memset = Staging(self._context, self.stream), cu.cuMemsetD8Async
        self._release = Release(partial(give, self._staging))
        if opened.several:
            check(cu.cuCtxSetCurrent(before), "leaving the context")

    @classmethod
    def why_unavailable(cls) -> str | None:
        return why_missing()

    def toolchain(self) -> str:
        return nvrtc_toolchain(self._arch)

    def compile(self, code: bytes, entry: str) -> bytes:
        return compile_apart(code, self._arch)

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        require_fit(info)
        return apart(self._load, binary, info)

    def _load(self, binary: bytes, info: KernelInfo) -> Kernel:
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            return self._modules.load(binary, info)

    def alloc(self, nbytes: int) -> Buffer:
        if nbytes <= _SMALL:
            size = (nbytes + _SMALL_STEP - 1) & -_SMALL_STEP
        else:
            size = (nbytes + _LARGE_STEP - 1) & -_LARGE_STEP
        buffer = Buffer.__new__(Buffer)
        try:
            # Queued work may still use the block; what is queued next runs after that work. The block moves from the
            # list to the buffer in one step, so that an interrupt finds it in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            apart(self._memory.grow, size, buffer)
        buffer.backend = self
        buffer.address = buffer.chunk.address
        buffer.nbytes = size
        return buffer

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

    def close(self) -> None:
        self.closed = True
        self._streams.close()
        self.inside.wait()
        # In another thread, so that the main thread's current context does not change.
        apart(self._close)
        leave(self._device, self._context)

    def _close(self) -> None:
        with self._closing:
            if self._released:
                return
            self._memory.close()
            self._release()
            self._released = True

    def open_queue(self) -> CudaQueue:
        return apart(self._open_queue, None, None)

    def _open_queue(self, handle: int | None, owner: Any) -> CudaQueue:
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            return self._streams.open(handle, owner)

    def sync_all(self) -> None:
        retired = self._shared.retired()
        self._streams.sync()
        self._shared.reuse(retired)

    def abandon(self) -> None:
        self.closed = self._released = True
        self._release.detach()
        self._streams.abandon()

    def open_stream(self, handle: int, owner: Any = None) -> CudaQueue:
        return apart(self._open_queue, handle, owner)

    def foreign_queue(self, handle: int) -> CudaQueue:
        with self.inside[threading.get_ident()]:
            self.require_open()
            return self._streams.foreign(handle)

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        return self.queue.record(dispatches, waits)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, CudaGraph)
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            recording.update(place, dispatch)

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        return self._shared.take(self, nbytes) or self._shared.find(self, nbytes, self._memory.add_slab)

    def open_shared(self, shared: Shared, offset: int, nbytes: int, owner: Any) -> Buffer | None:
        if not is_of(shared, self._device):
            return None
        memory = apart(self._open_shared, shared)
        return ForeignBuffer(self, memory.address + offset, nbytes, (owner, memory))

    def _open_shared(self, shared: Shared) -> Any:
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            return self._events.externals.memory(shared)

    def _enter(self) -> None:
        check(self._cu.cuCtxSetCurrent(self._context), "entering the context")
