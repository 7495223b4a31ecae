"""The D3D12 backend: DXIL kernels that get the place of their argument block as root constants.

This file implements the contract with the parts in the other files. D3D12 has no pointers: an address is the number
of a descriptor, shifted left by 40 bits, plus an offset in bytes (``shaders/_spy_handles.slang``). Since a queue is
in order, later work may use freed memory at once.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Mark, Recording
from slangpy_rt.backends.blocks import size_class
from slangpy_rt.backends.d3d12.adapters import why_unavailable
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.copies import SMALL_BYTES, Copies
from slangpy_rt.backends.d3d12.device import D3D12Device
from slangpy_rt.backends.d3d12.dxc import compile_hlsl, toolchain
from slangpy_rt.backends.d3d12.kernel import Pipelines
from slangpy_rt.backends.d3d12.late import LateCopies
from slangpy_rt.backends.d3d12.memory import D3D12Buffer, Heap
from slangpy_rt.backends.d3d12.queue import D3D12Queue
from slangpy_rt.backends.d3d12.recording import D3D12Recording, Recorder
from slangpy_rt.backends.extras import LateReads, Records
from slangpy_rt.backends.leaving import Leaves, leave_at_exit
from slangpy_rt.backends.pipelines import PipelineKernel, require_fit
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.interrupts import Release, apart, finalizer, has_daemons
from slangpy_rt.core.target import KernelInfo


class D3D12Backend(Backend, Records, LateReads, Leaves):
    """One D3D12 device.

    Parameters
    ----------
    index : int
        The number of the adapter, in DXGI's order; outside of Windows there is only 0.
    debug : bool
        Whether to run with the debug layer; its messages are appended to ``messages``.
    deterministic : bool
        Without effect: a launch always divides its work in the same way.

    Raises
    ------
    UnsupportedError
        If the machine has no library of D3D12, no DXC or no such adapter, or the adapter lacks what kernels need.
    DeviceError
        If the device does not open.
    """

    name = "d3d12"
    __del__ = finalizer("_release.drop")

    queue: D3D12Queue

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        self._device = device = apart(D3D12Device, index, debug)
        self._release = Release(device.close)
        self._leave = leave_at_exit(self)
        self.target = target_of("hlsl", "sm_6_6", "handle", device.caps)
        self.caps, self.description, self.messages = device.caps, device.description, device.messages
        self._lock = threading.Lock()
        self._queues: list[D3D12Queue] = []
        self._heap = Heap(device, self._queues)
        # Used by ``alloc`` only: it saves an attribute look-up in the path of every call.
        self._takes = self._heap.blocks.takes
        self._pipelines = Pipelines(device)
        self._recorder = Recorder(device)
        self.queue = self.open_queue()
        self._copies = Copies(device, self.queue)
        self._late = LateCopies(device, self.queue)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return why_unavailable()

    def toolchain(self) -> str:
        return toolchain()

    def compile(self, code: bytes, entry: str) -> bytes:
        return apart(compile_hlsl, code, entry)

    def load(self, binary: bytes, info: KernelInfo) -> PipelineKernel:
        require_fit(self.name, info)
        return apart(self._load, binary, info)

    def _load(self, binary: bytes, info: KernelInfo) -> PipelineKernel:
        with self._lock:
            self.require_open()
            self._pipelines.sweep(self._queues)
            return self._pipelines.load(binary, info)

    def alloc(self, nbytes: int) -> D3D12Buffer:
        size = size_class(nbytes)
        buffer = D3D12Buffer.__new__(D3D12Buffer)
        try:
            # The block moves from the list to the buffer in one step, so that an interrupt finds it in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            apart(self._grow, size, buffer)
        buffer.backend = self
        buffer.address = buffer.chunk.address
        buffer.nbytes = nbytes
        return buffer

    def _grow(self, size: int, buffer: D3D12Buffer) -> None:
        with self._lock:
            self.require_open()
            self._heap.grow(size, buffer)

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        nbytes = src.nbytes
        if not nbytes:
            return
        address = int(FFI.cast("uintptr_t", FFI.from_buffer(src)))
        chunk = dst.chunk
        with self._lock:
            self.require_open()
            if nbytes <= SMALL_BYTES:
                self.queue.locked_write(dst, chunk.offset + offset, address, nbytes)
            else:
                self._copies.upload(chunk.memory, chunk.offset + offset, address, nbytes)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        data = FFI.from_buffer(dst, require_writable=True)
        chunk = src.chunk
        with self._lock:
            self.require_open()
            address = int(FFI.cast("uintptr_t", data))
            self._copies.download(chunk.memory, chunk.offset + offset, address, dst.nbytes)

    def read_later(self, src: Buffer, nbytes: int) -> tuple[Mark, Callable[[memoryview], None]]:
        return apart(self._read_later, src, nbytes)

    def _read_later(self, src: Buffer, nbytes: int) -> tuple[Mark, Callable[[memoryview], None]]:
        with self._lock:
            self.require_open()
            return self._late.begin(src, nbytes)

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        self.require_open()
        return D3D12Recording(list(dispatches), waits, self._recorder.retired)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, D3D12Recording)
        with self._lock:
            self.require_open()
            recording.change(place, dispatch)

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        with self._lock:
            self.require_open()
            self._copies.clear(dst.chunk.memory, dst.chunk.offset + offset, nbytes)

    def open_queue(self) -> D3D12Queue:
        return apart(self._open_queue)

    def _open_queue(self) -> D3D12Queue:
        with self._lock:
            if self._queues:
                self.require_open()
            queue = D3D12Queue(self, self._device, self._lock, self._recorder)
            self._queues.append(queue)
        return queue

    def require_open(self) -> None:
        self.queue.require_open()

    def abandon(self) -> None:
        self.closed = True
        self._release.detach()

    def sync_all(self) -> None:
        with self.inside[threading.get_ident()]:
            queues = list(self._queues)
            # All queues submit before any is waited for, so that they run at the same time.
            with self._lock:
                self.require_open()
                values = [queue.locked_submit() for queue in queues]
            for queue, value in zip(queues, values, strict=True):
                queue.timeline.wait(value)

    def close(self) -> None:
        # Released before ``inside.wait``: a thread inside may need the lock to submit the work that it waits for.
        with self._lock:
            self.closed = True
            for queue in self._queues:
                queue.closed = True
        self.inside.wait()
        apart(self._close)

    def _close(self) -> None:
        with self._lock:
            if not self._release.alive:
                return
            self._heap.blocks.close()
            atexit.unregister(self._leave)
            try:
                self._finish()
            finally:
                self._release()

    def _finish(self) -> None:
        for queue in self._queues:
            queue.timeline.wait(queue.locked_submit())

    def leave(self) -> None:
        with self._lock:
            # Code that runs later may still use the device, and the end of the process releases everything anyway.
            self._release.keep()
            if self.closed:
                return
            self._finish()
            if has_daemons():
                self.closed = True
                for queue in self._queues:
                    queue.closed = queue.leaving = True
