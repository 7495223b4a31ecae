"""A backend whose queues are ``Submissions``: what the backends of Vulkan and D3D12 have in common.

Since a queue is in order, later work may use freed memory at once; memory that the host writes in place is used again
only after the next ``sync_all``. Nothing here calls a driver.
"""

from __future__ import annotations

import atexit
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Shared, SharedBuffer
from slangpy_rt.backends.blocks import size_class
from slangpy_rt.backends.builds import Build, Builds
from slangpy_rt.backends.device_memory import DeviceBuffer, DeviceMemory
from slangpy_rt.backends.extras import ExportsMemory, MappedMemory, Records
from slangpy_rt.backends.leaving import Leaves, leave_at_exit
from slangpy_rt.backends.pipelines import PipelineKernel, Pipelines, require_fit
from slangpy_rt.backends.staged_copies import SMALL_UPLOAD, Copies
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.interrupts import Release, apart, finalizer, has_daemons
from slangpy_rt.core.target import KernelInfo


class SubmittingBackend(Backend, Records, MappedMemory, ExportsMemory, Leaves):
    """One device. A backend sets ``queue``, ``_copies`` and ``_pipelines`` as it is made.

    Parameters
    ----------
    device : Any
        The open device: a ``MemoryDevice`` with ``caps``, ``description`` and ``messages``; where it ``exports``, its
        ``share`` returns a buffer's memory for other APIs.
    close : callable
        Waits for the device's work and closes it; it does not refer to the backend.
    target : tuple of str
        Format, profile and kind of addresses, as ``target_of`` takes them.
    kinds : sequence
        The kinds of memory, as ``DeviceMemory`` takes them.
    """

    __del__ = finalizer("_release.drop")

    queue: Submissions
    _copies: Copies
    _pipelines: Pipelines

    def __init__(
        self, device: Any, close: Callable[[], None], target: tuple[str, str, str], kinds: Sequence[Any]
    ) -> None:
        self._device = device
        self._builds = Builds(f"the driver of {device.description}", CONFIG.build_seconds)
        self._release = Release(partial(self._builds.after, close))
        self._leave = leave_at_exit(self)
        self.target = target_of(*target, device.caps)
        self.caps, self.description, self.messages = device.caps, device.description, device.messages
        self._lock = threading.Lock()
        self._queues: list[Submissions] = []
        self._memory = DeviceMemory(self.name, device, kinds, self._queues)
        # Used by ``alloc`` only: it saves an attribute look-up in the path of every call.
        self._takes = self._memory.blocks.takes
        self._shared = self._memory.shared

    def load(self, binary: bytes, info: KernelInfo) -> PipelineKernel:
        require_fit(self.name, info)
        with self.inside[threading.get_ident()]:
            # Another thread that waited for the same pipeline may have taken it.
            while True:
                build = apart(self._begin_load, binary, info)
                self._builds.wait(build, self.require_open)
                kernel = apart(self._end_load, build, info)
                if kernel is not None:
                    return kernel

    def _begin_load(self, binary: bytes, info: KernelInfo) -> Build:
        with self._lock:
            self.require_open()
            self._pipelines.sweep(self._queues)
            key = binary, info.entry, bool(info.textures)
            return self._builds.begin(key, self._pipelines.maker(binary, info))

    def _end_load(self, build: Build, info: KernelInfo) -> PipelineKernel | None:
        with self._lock:
            self.require_open()
            made = self._builds.take(build)
            return self._pipelines.kernel(info, *made) if made else None

    def alloc(self, nbytes: int) -> DeviceBuffer:
        size = size_class(nbytes)
        buffer = DeviceBuffer.__new__(DeviceBuffer)
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

    def _grow(self, size: int, buffer: DeviceBuffer) -> None:
        with self._lock:
            self.require_open()
            self._memory.grow(size, buffer)

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        return self._shared.take(self, nbytes) or self._shared.find(self, nbytes, self._add_slab)

    def _add_slab(self, nbytes: int) -> bool:
        with self._lock:
            self.require_open()
            return self._memory.add_slab(nbytes)

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        nbytes = src.nbytes
        if not nbytes:
            return
        ffi = self._device.ffi
        address = int(ffi.cast("uintptr_t", ffi.from_buffer(src)))
        at = dst.chunk.offset + offset
        with self._lock:
            self.require_open()
            if nbytes <= SMALL_UPLOAD:
                self.queue.locked_write(dst, at, address, nbytes)
            else:
                self._copies.upload(dst, at, address, nbytes)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        ffi = self._device.ffi
        data = ffi.from_buffer(dst, require_writable=True)
        with self._lock:
            self.require_open()
            self._copies.download(src, src.chunk.offset + offset, int(ffi.cast("uintptr_t", data)), dst.nbytes)

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        with self._lock:
            self.require_open()
            self._copies.clear(dst, dst.chunk.offset + offset, nbytes)

    def share(self, buffer: Buffer) -> tuple[Shared, int] | None:
        if not self._device.exports or not isinstance(buffer, DeviceBuffer):
            return None
        return self._device.share(buffer.chunk.memory), buffer.chunk.offset

    def open_queue(self) -> Any:
        return apart(self._open_queue)

    def _open_queue(self) -> Any:
        with self._lock:
            if self._queues:
                self.require_open()
            queue = self._make_queue(len(self._queues))
            self._queues.append(queue)
        return queue

    @abstractmethod
    def _make_queue(self, number: int) -> Submissions:
        """Make a queue; ``number`` counts those before it."""

    def require_open(self) -> None:
        self.queue.require_open()

    def abandon(self) -> None:
        self.closed = True
        self._release.detach()

    def sync_all(self) -> None:
        shared, queues = self._shared, self._queues
        retired = shared.retired()
        with self.inside[threading.get_ident()]:
            # All queues submit before any is waited for, so that they run at the same time.
            with self._lock:
                if self.closed:
                    self.require_open()
                values = [queue.locked_submit() for queue in queues]
            # Another thread may have opened a queue since, whose work is not waited for.
            for queue, value in zip(queues, values, strict=False):
                if value > queue.timeline.reached:
                    queue.timeline.wait(value)
        shared.reuse(retired)

    def close(self) -> None:
        # Released before ``inside.wait``: a thread inside may need the lock to submit the work that it waits for.
        with self._lock:
            self.closed = True
            for queue in self._queues:
                queue.closed = True
        self.inside.wait()
        apart(self._close)

    def _close(self) -> None:
        self._builds.after(self._shut)

    def _shut(self) -> None:
        """Wait for the device's work and release the device; nothing is being compiled for it."""
        with self._lock:
            if not self._release.alive:
                return
            self._memory.close()
            atexit.unregister(self._leave)
            try:
                self._finish()
            finally:
                self._copies.close()
                self._release()

    def leave(self) -> None:
        with self._lock:
            # Code that runs later may still use the device, and the end of the process releases everything anyway.
            self._release.keep()
            if self.closed:
                return
            # Work may wait for what the driver compiles, which nothing stops.
            building = self._builds.running
            if not building:
                self._finish()
            if building or has_daemons():
                # They may still call the queues.
                self.closed = True
                for queue in self._queues:
                    queue.closed = queue.leaving = True

    def _finish(self) -> None:
        """Submit all work, and wait for it."""
        for queue in self._queues:
            queue.timeline.wait(queue.locked_submit())
