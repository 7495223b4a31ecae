"""The Vulkan backend: SPIR-V kernels that get the device address of their arguments as a push constant.

This file implements the contract with the parts in the other files. Since a queue is in order, later work may use
freed memory at once; memory that the host writes in place is used again only after the next ``sync_all``.

It binds no descriptors, presents no images and compiles nothing: the driver gets Slang's SPIR-V unchanged.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Recording, Shared, SharedBuffer
from slangpy_rt.backends.blocks import size_class
from slangpy_rt.backends.extras import ExportsMemory, MappedMemory, Records, packed_blocks
from slangpy_rt.backends.leaving import Leaves, leave_at_exit
from slangpy_rt.backends.pipelines import PipelineKernel, require_fit
from slangpy_rt.backends.shared_pool import PooledBuffer
from slangpy_rt.backends.targets import target_of
from slangpy_rt.backends.vulkan.closing import close_device, stop
from slangpy_rt.backends.vulkan.commands import VkCommands
from slangpy_rt.backends.vulkan.copies import SMALL_UPLOAD, Copies
from slangpy_rt.backends.vulkan.device import DEVICE, VkDevice
from slangpy_rt.backends.vulkan.instance import find_fault
from slangpy_rt.backends.vulkan.kernel import Pipelines
from slangpy_rt.backends.vulkan.memory import Memory, VulkanBuffer
from slangpy_rt.backends.vulkan.queue import VulkanQueue
from slangpy_rt.backends.vulkan.recording import Recorder, VulkanRecording
from slangpy_rt.core.interrupts import Release, apart, finalizer
from slangpy_rt.core.target import KernelInfo


class VulkanBackend(Backend, Records, MappedMemory, ExportsMemory, Leaves):
    """One Vulkan device.

    Parameters
    ----------
    index : int
        The number of the device: discrete GPUs come first, then integrated, virtual and software ones.
    debug : bool
        Whether to run with the validation layer, synchronization validation included; its messages are
        appended to ``messages``.
    deterministic : bool
        Without effect: a launch always divides its work in the same way.

    Raises
    ------
    UnsupportedError
        If the machine lacks the loader, the ``vulkan`` package or such a device.
    DeviceError
        If there is no driver, or it fails.
    """

    name = "vulkan"
    __del__ = finalizer("_release.drop")

    queue: VulkanQueue
    memory: ClassVar[Sequence[int]] = DEVICE  # for tests: STAGED acts like a discrete GPU

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        self._device = device = VkDevice(index, debug)
        self._release = Release(partial(close_device, device))
        self._leave = leave_at_exit(self)
        self.target = target_of("spirv", "spirv_1_5", "pointer", device.caps)
        self.caps, self.description, self.messages = device.caps, device.description, device.messages
        self._lock = threading.Lock()
        self._queues: list[VulkanQueue] = []
        self._memory = Memory(device, self.memory, self._queues)
        # Used by ``alloc`` only: it saves an attribute look-up in the path of every call.
        self._takes = self._memory.blocks.takes
        self._shared = self._memory.shared
        self._commands = VkCommands(device)
        self._pipelines = Pipelines(device, self._commands.layout)
        self._recorder = Recorder(self._commands)
        self.queue = self.open_queue()
        self._copies = Copies(device, self.queue)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return find_fault()

    def toolchain(self) -> str:
        return "spirv"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def load(self, binary: bytes, info: KernelInfo) -> PipelineKernel:
        require_fit(self.name, info)
        return apart(self._load, binary, info)

    def _load(self, binary: bytes, info: KernelInfo) -> PipelineKernel:
        with self._lock:
            self.require_open()
            self._pipelines.sweep(self._queues)
            return self._pipelines.load(binary, info)

    def alloc(self, nbytes: int) -> VulkanBuffer:
        size = size_class(nbytes)
        buffer = VulkanBuffer.__new__(VulkanBuffer)
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

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        return self._shared.take(self, nbytes) or self._shared.find(self, nbytes, self._add_slab)

    def share(self, buffer: Buffer) -> tuple[Shared, int] | None:
        if not self._device.exports or not isinstance(buffer, VulkanBuffer):
            return None
        return self._device.shared_memory(buffer.chunk.memory), buffer.chunk.offset

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, (VulkanBuffer, PooledBuffer))
        ffi, nbytes = self._device.ffi, src.nbytes
        if not nbytes:
            return
        address = int(ffi.cast("uintptr_t", ffi.from_buffer(src)))
        at = dst.chunk.offset + offset
        with self._lock:
            self.require_open()
            if nbytes <= SMALL_UPLOAD:
                self.queue.locked_write(dst, at, address, nbytes)
            else:
                self._copies.upload(dst, at, address, nbytes)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, (VulkanBuffer, PooledBuffer))
        ffi = self._device.ffi
        data = ffi.from_buffer(dst, require_writable=True)
        with self._lock:
            self.queue.require_open()
            self._copies.download(src, src.chunk.offset + offset, int(ffi.cast("uintptr_t", data)), dst.nbytes)

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        assert isinstance(dst, (VulkanBuffer, PooledBuffer))
        with self._lock:
            self.require_open()
            self._copies.clear(dst, dst.chunk.offset + offset, nbytes)

    def open_queue(self) -> VulkanQueue:
        """Open a queue. Queues share the device's ``VkQueue`` objects, of which there may be only one."""
        return apart(self._open_queue)

    def _open_queue(self) -> VulkanQueue:
        device = self._device
        with self._lock:
            if self.closed:
                self.require_open()
            handle = device.queues[len(self._queues) % len(device.queues)]
            queue = VulkanQueue(self, self._commands, handle, self._lock)
            self._queues.append(queue)
        return queue

    def require_open(self) -> None:
        self.queue.require_open()

    def abandon(self) -> None:
        self.closed = True
        self._release.detach()

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        kept = list(dispatches)
        offsets, packed = packed_blocks(kept)
        blocks = self.alloc(len(packed)) if packed else None
        if blocks is not None:
            self.upload(blocks, 0, memoryview(packed))
        return apart(self._record, kept, waits, blocks, offsets)

    def _record(self, *what: Any) -> Recording:
        with self._lock:
            self.require_open()
            return self._recorder.recording(self.queue, *what)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, VulkanRecording) and recording.blocks is not None
        recording.dispatches[place] = dispatch
        use = recording.use
        with self._lock:
            self.require_open()
            use.move(self.queue)
        # The upload is in order with earlier and later replays.
        self.upload(recording.blocks, recording.offsets[place], memoryview(dispatch.args))
        # The upload follows all earlier replays, so that the command buffer is unused once the upload is done.
        use.value = self.queue.value + 1

    def sync_all(self) -> None:
        retired = self._shared.retired()
        with self.inside[threading.get_ident()]:
            queues = list(self._queues)
            # All queues submit before any is waited for, so that they run at the same time.
            with self._lock:
                if self.closed:
                    self.require_open()
                values = [queue.locked_submit() for queue in queues]
            for queue, value in zip(queues, values, strict=True):
                queue.timeline.wait(value)
        self._shared.reuse(retired)

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
            self._memory.close()
            atexit.unregister(self._leave)
            try:
                for queue in self._queues:
                    queue.timeline.wait(queue.locked_submit())
            finally:
                self._copies.close()
                self._release()

    def leave(self) -> None:
        with self._lock:
            # Code that runs later may still use the device, and the end of the process releases everything anyway.
            self._release.keep()
            if self.closed:
                return
            self.closed = stop(self._device, self._queues)

    def _add_slab(self, nbytes: int) -> bool:
        with self._lock:
            self.require_open()
            return self._memory.add_slab(nbytes)

    def _grow(self, size: int, buffer: VulkanBuffer) -> None:
        with self._lock:
            self.require_open()
            self._memory.grow(size, buffer)
