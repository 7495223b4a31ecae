"""The Vulkan backend: SPIR-V kernels that get the device address of their arguments as a push constant.

Here are memory, copies and kernels; ``_vk_queue.py`` has how work is queued. Since a queue is in order, memory that
was freed goes to later work at once; memory that the host writes in place only after the next ``sync``.

It refuses to bind descriptors, to present images and to compile: Slang's SPIR-V goes to the driver as it is.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Recording, Shared, SharedBuffer
from slangpy_rt.backends.shared_pool import LARGEST, PooledBuffer, SharedPool
from slangpy_rt.backends.vulkan.commands import VkCommands
from slangpy_rt.backends.vulkan.device import DEVICE, STAGING, Block, VkDevice
from slangpy_rt.backends.vulkan.heap import Heap
from slangpy_rt.backends.vulkan.instance import find_fault
from slangpy_rt.backends.vulkan.queue import FRAME_BYTES, VulkanKernel, VulkanQueue
from slangpy_rt.backends.vulkan.recording import Recorder, Use, VulkanRecording, places
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import Crew, Release, apart, finalizer, has_daemons
from slangpy_rt.core.target import KernelInfo, target_of

_SMALL_UPLOAD = 64 << 10  # sixteen of them fill a frame
_STAGE_BYTES = 16 << 20  # on an H200, 64 MiB go up in 3.0 ms; in pieces of 8 MiB in 5.2, of 4 MiB in 5.4
_STAGES = 4
_COPY_BYTES = 1 << 20  # least share of a copying thread; handing it over costs about 30 us, copying 100
_COMPUTE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT


class VulkanBackend(Backend):
    """One Vulkan device.

    Parameters
    ----------
    index : int
        Which device: discrete GPUs come first, then integrated, virtual and software ones.
    debug : bool
        Whether to run under the validation layer, synchronization validation included; what it says
        gathers in ``messages``.

    Raises
    ------
    UnsupportedError
        If the machine lacks the loader or the ``vulkan`` package.
    DeviceError
        If there is no such device, or the driver fails.
    """

    name = "vulkan"
    __del__ = finalizer("_release.drop")

    queue: VulkanQueue
    memory: ClassVar[Sequence[int]] = DEVICE  # for tests: STAGED acts like a discrete GPU

    def __init__(self, index: int = 0, *, debug: bool = False) -> None:
        self._device = device = VkDevice(index, debug)
        self._release = Release(partial(_close_device, device))
        self._leave = functools.partial(_leave, weakref.ref(self))
        atexit.register(self._leave)
        self.target = target_of("spirv", "spirv_1_5", "pointer", device.caps)
        self.caps, self.description, self.messages = device.caps, device.description, device.messages
        self._lock = threading.Lock()
        self._heap = Heap(device, self.memory)
        device.on_close(self._heap.close)
        self._shared = SharedPool()
        self._stages: deque[_Stage] = deque()
        self._threads = min(8, os.cpu_count() or 1)
        self._crew: Crew | None = None
        # Pipelines that are there, those that nobody has any more, and among these those that the GPU may still have,
        # with the queues' values behind it.
        self._pipelines: set[Any] = set()
        self._retired: deque[Any] = deque()
        self._dying: deque[tuple[list[Any], list[tuple[VulkanQueue, int]]]] = deque()
        device.on_close(_destroy, device, self._pipelines)
        self._commands = VkCommands(device)
        self._recorder = Recorder(self._commands)
        self._queues: list[VulkanQueue] = []
        self.queue = queue = self.open_queue()
        # One Python call less in the path of every call.
        self.launch, self.replay = queue.launch, queue.replay  # type: ignore[method-assign]

    @classmethod
    def why_unavailable(cls) -> str | None:
        return find_fault()

    def toolchain(self) -> str:
        return "spirv"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def load(self, binary: bytes, info: KernelInfo) -> VulkanKernel:
        """Create a pipeline, which goes with the kernel.

        Raises
        ------
        UnsupportedError
            If the argument block is too long.
        DeviceError
            If the driver refuses the code.
        """
        if info.args_size > FRAME_BYTES:
            raise UnsupportedError(
                f"vulkan: kernel {info.entry} has {info.args_size} bytes of arguments, at most "
                f"{FRAME_BYTES} fit; pass large arrays as buffers"
            )
        return apart(self._load, binary, info)

    def _load(self, binary: bytes, info: KernelInfo) -> VulkanKernel:
        device, ffi = self._device, self._device.ffi
        code = ffi.new("uint32_t[]", len(binary) // 4)
        ffi.memmove(code, binary, len(binary))
        name = ffi.new("char[]", info.entry.encode())
        with self._lock:
            self.require_open()
            self._sweep()
            module = ffi.new("VkShaderModule*")
            shader = device.struct("VkShaderModuleCreateInfo", codeSize=len(binary), pCode=code)
            result = device.lib.vkCreateShaderModule(device.handle, shader, ffi.NULL, module)
            device.check(result, f"loading the SPIR-V of kernel {info.entry}")
            create = device.struct("VkComputePipelineCreateInfo", layout=self._commands.layout)
            stage = device.struct("VkPipelineShaderStageCreateInfo", stage=_COMPUTE, module=module[0], pName=name)
            create.stage = stage[0]
            pipeline = ffi.new("VkPipeline*")
            result = device.lib.vkCreateComputePipelines(device.handle, ffi.NULL, 1, create, ffi.NULL, pipeline)
            device.lib.vkDestroyShaderModule(device.handle, module[0], ffi.NULL)
            device.check(result, f"creating a pipeline for kernel {info.entry}")
            self._pipelines.add(pipeline[0])
            return VulkanKernel(info, pipeline[0], partial(self._retired.append, pipeline[0]))

    def _sweep(self) -> None:
        """Destroy the pipelines of kernels that are gone, once the GPU is done with them. With the lock."""
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        if retired:
            self._dying.append((retired, [(queue, queue.locked_submit()) for queue in self._queues]))
        while self._dying and all(queue.timeline.passed(value) for queue, value in self._dying[0][1]):
            gone, _ = self._dying.popleft()
            self._pipelines.difference_update(gone)
            _destroy(self._device, gone)

    def alloc(self, nbytes: int) -> VulkanBuffer:
        buffer = VulkanBuffer.__new__(VulkanBuffer)
        with self._lock:
            if self.closed:
                self.require_open()
            found = self._heap.take(buffer, nbytes)
        if not found:
            apart(self._grow, buffer, nbytes)
        chunk = buffer.chunk
        buffer.backend = self
        buffer.address = chunk.address
        buffer.nbytes = nbytes
        return buffer

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        return self._shared.take(self, nbytes) or self._find_shared(nbytes)

    def share(self, buffer: Buffer) -> tuple[Shared, int] | None:
        if not self._device.exports or not isinstance(buffer, VulkanBuffer):
            return None
        return self._device.shared_memory(buffer.chunk.block), buffer.chunk.offset

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, (VulkanBuffer, PooledBuffer))
        ffi, nbytes, block = self._device.ffi, src.nbytes, dst.chunk.block
        if not nbytes:
            return
        data = ffi.from_buffer(src)
        address = int(ffi.cast("uintptr_t", data))
        at = dst.chunk.offset + offset
        with self._lock:
            self.require_open()
            if nbytes <= _SMALL_UPLOAD:
                self.queue.locked_order(dst.address, True)
                self.queue.locked_write(block, at, address, nbytes)
            elif block.host:
                self.queue.timeline.wait(self.queue.locked_submit())
                self._move(block.host + at, address, nbytes)
            else:
                self.queue.locked_order(dst.address, True)
                for done in range(0, nbytes, _STAGE_BYTES):
                    size = min(_STAGE_BYTES, nbytes - done)
                    stage = self._stage()
                    self._move(stage.block.host, address + done, size)
                    stage.value = self.queue.locked_next()
                    self.queue.locked_copy(stage.block, 0, block, at + done, size)
                    self.queue.locked_submit()

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, (VulkanBuffer, PooledBuffer))
        ffi, nbytes, block = self._device.ffi, dst.nbytes, src.chunk.block
        data = ffi.from_buffer(dst, require_writable=True)
        address = int(ffi.cast("uintptr_t", data))
        at = src.chunk.offset + offset
        with self._lock:
            self.queue.require_open()
            if block.host:
                self.queue.timeline.wait(self.queue.locked_submit())
                self._move(address, block.host + at, nbytes)
                return
            self.queue.locked_order(src.address, False)
            flying: deque[tuple[_Stage, int, int]] = deque()
            for done in range(0, nbytes, _STAGE_BYTES):
                if len(flying) == _STAGES:
                    self._land(address, *flying.popleft())
                size = min(_STAGE_BYTES, nbytes - done)
                stage = self._stage()
                stage.value = self.queue.locked_next()
                self.queue.locked_copy(block, at + done, stage.block, 0, size)
                self.queue.locked_submit()
                flying.append((stage, done, size))
            while flying:
                self._land(address, *flying.popleft())

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        assert isinstance(dst, (VulkanBuffer, PooledBuffer))
        at = dst.chunk.offset + offset
        # A fill takes whole words.
        head = min(-at & 3, nbytes)
        tail = nbytes - head & 3
        words = nbytes - head - tail
        if head:
            self.upload(dst, offset, memoryview(bytes(head)))
        if words:
            with self._lock:
                self.queue.require_open()
                self.queue.locked_order(dst.address, True)
                self.queue.locked_fill(dst.chunk.block, at + head, words)
        if tail:
            self.upload(dst, offset + nbytes - tail, memoryview(bytes(tail)))

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        self.queue.launch(kernel, groups, args, buffers)

    def open_queue(self, handle: int | None = None) -> VulkanQueue:
        """A queue of its own on the driver's queues in turn, of which there may be but one."""
        if handle is not None:
            raise UnsupportedError("device vulkan: it has no streams of other libraries to take over.")
        return apart(self._open_queue)

    def _open_queue(self) -> VulkanQueue:
        device = self._device
        with self._lock:
            if self.closed:
                self.require_open()
            queue = VulkanQueue(
                self, self._commands, device.queues[len(self._queues) % len(device.queues)], self._lock
            )
            self._queues.append(queue)
        return queue

    def require_open(self) -> None:
        self.queue.require_open()

    def abandon(self) -> None:
        self.closed = True
        self._release.detach()

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        kept = list(dispatches)
        offsets, size = places(kept)
        blocks = self.alloc(size) if size else None
        if blocks is not None:
            packed = bytearray(size)
            for d, at in zip(kept, offsets, strict=True):
                packed[at : at + len(d.args)] = d.args
            self.upload(blocks, 0, memoryview(packed))
        return apart(self._record, kept, waits, blocks, offsets)

    def _record(
        self, kept: list[Dispatch], waits: Sequence[tuple[int, ...]], blocks: Buffer | None, offsets: list[int]
    ) -> Recording:
        with self._lock:
            self.require_open()
            command = self._recorder.record(kept, waits, 0 if blocks is None else blocks.address, offsets)
            return VulkanRecording(kept, blocks, offsets, Use(command, self.queue), self._recorder.retired)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, VulkanRecording) and recording.blocks is not None
        recording.dispatches[place] = dispatch
        use = recording.use
        if use.home is not self.queue:
            self.queue.wait(use.home.mark())
            use.home = self.queue
        # In order with submissions before and after.
        self.upload(recording.blocks, recording.offsets[place], memoryview(dispatch.args))
        # Behind it, the command buffer is in use nowhere any more.
        use.value = self.queue.value + 1

    def replay(self, recording: Recording) -> None:
        self.queue.replay(recording)

    def sync(self) -> None:
        retired = self._shared.retired()
        with self.inside[threading.get_ident()]:
            queues = list(self._queues)
            # All first, so that they run at the same time.
            with self._lock:
                if self.closed:
                    self.require_open()
                values = [queue.locked_submit() for queue in queues]
            for queue, value in zip(queues, values, strict=True):
                queue.timeline.wait(value)
        self._shared.reuse(retired)

    def close(self) -> None:
        # Who is inside may wait for work that was not sent, or need the lock to get out.
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
            self._shared.close()
            atexit.unregister(self._leave)
            try:
                for queue in self._queues:
                    queue.timeline.wait(queue.locked_submit())
            finally:
                if self._crew is not None:
                    self._crew.close()
                self._release()

    def _stage(self) -> _Stage:
        """Get a staging buffer that the GPU is done with: a new one while there are few, else the oldest."""
        if len(self._stages) < _STAGES:
            stage = _Stage(self._device, self._device.allocate(_STAGE_BYTES, STAGING))
            self._stages.append(stage)
        else:
            stage = self._stages[0]
            self.queue.locked_settle(stage.value)
            self._stages.rotate(-1)
        return stage

    def _land(self, address: int, stage: _Stage, done: int, size: int) -> None:
        self.queue.timeline.wait(stage.value)
        self._move(address + done, stage.block.host, size)

    def _move(self, dst: int, src: int, nbytes: int) -> None:
        """Copy host memory, with several threads when it is much: ``ctypes`` calls release the GIL."""
        parts = min(self._threads, nbytes // _COPY_BYTES)
        if parts < 2:
            ctypes.memmove(dst, src, nbytes)
            return
        # Whole pages, so that no two threads share one.
        step = -(-nbytes // parts) + 4095 & -4096
        try:
            if self._crew is None:
                apart(self._start_crew)
        except RuntimeError:
            # The interpreter goes down and starts no threads any more.
            ctypes.memmove(dst, src, nbytes)
            return
        own, *others = [
            partial(ctypes.memmove, dst + at, src + at, min(step, nbytes - at)) for at in range(0, nbytes, step)
        ]
        assert self._crew is not None
        self._crew.run(own, others)

    def _start_crew(self) -> None:
        # The caller holds the lock.
        self._crew = Crew(self._threads - 1)

    def leave(self) -> None:
        """The process ends: no work may be in flight when the driver's own exit handlers run.

        Daemon threads, which nothing else stops, stop at their next call.
        """
        with self._lock:
            # What ends after this may still use the device, and the process gives everything back anyway.
            self._release.keep()
            if self.closed:
                return
            if has_daemons():
                self.closed = True
                for queue in self._queues:
                    queue.locked_submit()
                    queue.closed = queue.leaving = True
            else:
                for queue in self._queues:
                    queue.locked_submit()
            self._device.lib.vkDeviceWaitIdle(self._device.handle)

    def _find_shared(self, nbytes: int) -> PooledBuffer | None:
        """Get a block of a size that has none free: from its first slab, or one that a wait sets free."""
        if nbytes > LARGEST:
            return None
        pool = self._shared
        if not (pool.missing(nbytes) and apart(self._add_slab, nbytes)):
            self.require_open()
            if pool.freed:
                self.sync()
        return pool.take(self, nbytes)

    def _add_slab(self, nbytes: int) -> bool:
        device, pool = self._device, self._shared
        with self._lock:
            self.require_open()
            size = pool.missing(nbytes)
            if size:
                block = device.allocate(size, STAGING)
                device.on_close(device.release, block)
                pool.add(nbytes, block, block.address, memoryview(device.bytes(block)))
        return size > 0

    def _grow(self, buffer: VulkanBuffer, nbytes: int) -> None:
        """Allocate from the driver, after reusing what is idle if that is a lot or all there is."""
        heap = self._heap
        with self._lock:
            self.require_open()
            if heap.take(buffer, nbytes):
                return
            if heap.recycle(nbytes):
                # The block is cut anew, at addresses that ``_touched`` does not know.
                self.queue.locked_barrier()
            else:
                self._allocate(nbytes)
            heap.take(buffer, nbytes)

    def _allocate(self, nbytes: int) -> None:
        heap = self._heap
        if heap.idle() > self._device.heap_bytes // 4:
            self.queue.timeline.wait(self.queue.locked_submit())
            heap.trim()
        try:
            heap.grow(nbytes)
            return
        except OutOfMemoryError:
            self.queue.timeline.wait(self.queue.locked_submit())
            heap.trim()
        try:
            heap.grow(nbytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"vulkan: no room for {nbytes} bytes; free arrays or use smaller ones. {error}"
            ) from None


class VulkanBuffer(Buffer):
    """A chunk of the heap."""

    __slots__ = ()


class _Stage:
    """A mapped block for transfers, and the timeline value after which it is free."""

    __slots__ = ("block", "value")

    def __init__(self, device: VkDevice, block: Block) -> None:
        device.on_close(device.release, block)
        self.block = block
        self.value = 0


def _destroy(device: VkDevice, pipelines: Iterable[Any]) -> None:
    for pipeline in pipelines:
        device.lib.vkDestroyPipeline(device.handle, pipeline, device.ffi.NULL)


def _leave(backend: weakref.ref[VulkanBackend]) -> None:
    found = backend()
    if found is not None:
        found.leave()


def _close_device(device: VkDevice) -> None:
    device.lib.vkDeviceWaitIdle(device.handle)
    device.close()
