"""The Vulkan backend: SPIR-V kernels that get the device address of their arguments as a push constant.

Work is recorded into an open command buffer and submitted when 64 commands wait or somebody waits for them: a
submission costs as much as several launches. Each of eight command buffers owns a part of a mapped ring that
holds the argument blocks and small uploads recorded with it; both are reused once the timeline semaphore,
which counts submissions, says that the GPU is done. Since the queue is in order, memory that was freed goes
to later work at once; memory that the host writes in place only after the next ``sync``. Inside a command
buffer, a barrier comes only before work that touches what earlier work wrote, or writes what it touched.

It refuses to bind descriptors, to present images, to use more than one queue and to compile: Slang's SPIR-V
goes to the driver as it is.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from slangpy_rt.backends._shared_pool import LARGEST, PooledBuffer, SharedBlock, SharedPool
from slangpy_rt.backends._vk_device import DEVICE, RING, STAGING, Block, VkDevice
from slangpy_rt.backends._vk_heap import Chunk, Heap
from slangpy_rt.backends._vk_instance import find_fault
from slangpy_rt.backends._vk_recording import VulkanRecording, places
from slangpy_rt.backends._vk_timeline import Timeline
from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, KernelInfo, Recording, SharedBuffer, Target
from slangpy_rt.errors import DeviceError, OutOfMemoryError, UnsupportedError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_BATCH = 64  # commands in a submission
_FRAMES = 8  # command buffers in flight, so the host runs at most 512 launches ahead
_FRAME_BYTES = 1 << 20  # 64 argument blocks of 16 KiB
_SMALL_UPLOAD = 64 << 10  # sixteen of them fill a frame
_STAGE_BYTES = 16 << 20  # on an H200, 64 MiB go up in 3.0 ms; in pieces of 8 MiB in 5.2, of 4 MiB in 5.4
_STAGES = 4
_COPY_BYTES = 1 << 20  # least share of a copying thread; handing it over costs about 30 us, copying 100

# VkPipelineStageFlagBits: 0x800 COMPUTE_SHADER, 0x1000 TRANSFER, 0x4000 HOST.
_WORK, _WORK_AND_HOST = 0x1800, 0x5800
# VkAccessFlagBits: 0x20 SHADER_READ, 0x40 SHADER_WRITE, 0x800 TRANSFER_READ, 0x1000 TRANSFER_WRITE,
# 0x2000 HOST_READ.
_WRITES, _ANY, _ANY_AND_HOST = 0x1040, 0x1860, 0x3860
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
    memory: ClassVar[Sequence[int]] = DEVICE  # for tests: STAGED acts like a discrete GPU

    # The open command buffer: its handle, commands so far, unused part of the ring, last pipeline, and for
    # each buffer address since the last barrier whether it was written.
    _command: Any
    _pending: int
    _top: int
    _end: int
    _bound: Kernel | None
    _touched: dict[int, bool]
    _between: tuple[Any, ...]

    def __init__(self, index: int = 0, *, debug: bool = False) -> None:
        self._device = device = VkDevice(index, debug)
        self._release = weakref.finalize(self, _close_device, device)
        self.target = Target("spirv", "spirv_1_5", "pointer")
        self.caps, self.description, self.messages = device.caps, device.description, device.messages
        self._lock = threading.Lock()
        self._closed = False
        self._heap = Heap(device, self.memory)
        device.on_close(self._heap.close)
        self._shared = SharedPool()
        self._stages: list[_Stage] = []
        self._threads = min(8, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None
        self._fetch_functions()
        self._create_layout()
        self._create_queue_state()
        self._begin()

    @classmethod
    def why_unavailable(cls) -> str | None:
        return find_fault()

    def toolchain(self) -> str:
        return "spirv"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def load(self, binary: bytes, info: KernelInfo) -> VulkanKernel:
        """Create a pipeline, which lives until the backend closes.

        Raises
        ------
        UnsupportedError
            If the argument block is too long.
        DeviceError
            If the driver refuses the code.
        """
        if info.args_size > _FRAME_BYTES:
            raise UnsupportedError(
                f"vulkan: kernel {info.entry} has {info.args_size} bytes of arguments, at most "
                f"{_FRAME_BYTES} fit; pass large arrays as buffers"
            )
        device, ffi = self._device, self._device.ffi
        code = ffi.new("uint32_t[]", len(binary) // 4)
        ffi.memmove(code, binary, len(binary))
        name = ffi.new("char[]", info.entry.encode())
        with self._lock:
            self._require_open()
            module = ffi.new("VkShaderModule*")
            shader = device.struct("VkShaderModuleCreateInfo", codeSize=len(binary), pCode=code)
            result = device.lib.vkCreateShaderModule(device.handle, shader, ffi.NULL, module)
            device.check(result, f"loading the SPIR-V of kernel {info.entry}")
            create = device.struct("VkComputePipelineCreateInfo", layout=self._layout)
            stage = device.struct("VkPipelineShaderStageCreateInfo", stage=_COMPUTE, module=module[0], pName=name)
            create.stage = stage[0]
            pipeline = ffi.new("VkPipeline*")
            result = device.lib.vkCreateComputePipelines(device.handle, ffi.NULL, 1, create, ffi.NULL, pipeline)
            device.lib.vkDestroyShaderModule(device.handle, module[0], ffi.NULL)
            device.check(result, f"creating a pipeline for kernel {info.entry}")
            device.on_close(device.lib.vkDestroyPipeline, device.handle, pipeline[0], ffi.NULL)
        return VulkanKernel(info, pipeline[0])

    def alloc(self, nbytes: int) -> VulkanBuffer:
        with self._lock:
            if self._closed:
                self._require_open()
            chunk = self._heap.take(nbytes) or self._grow(nbytes)
        return VulkanBuffer(self, nbytes, chunk)

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        chunk = self._shared.take(nbytes) or self._find_shared(nbytes)
        return None if chunk is None else PooledBuffer(self, chunk)

    def free(self, buffer: Buffer) -> None:
        if type(buffer) is VulkanBuffer:
            self._heap.freed.append(buffer.chunk)
        else:
            assert isinstance(buffer, PooledBuffer)
            self._shared.freed.append(buffer.chunk)

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, (VulkanBuffer, PooledBuffer))
        ffi, nbytes, block = self._device.ffi, src.nbytes, dst.chunk.block
        if not nbytes:
            return
        data = ffi.from_buffer(src)
        address = int(ffi.cast("uintptr_t", data))
        at = dst.chunk.offset + offset
        with self._lock:
            self._require_open()
            if nbytes <= _SMALL_UPLOAD:
                start = self._reserve(nbytes)
                ctypes.memmove(self._ring.host + start, address, nbytes)
                self._order(dst.address, True)
                self._copy(self._ring, start, block, at, nbytes)
            elif block.host:
                self._timeline.wait(self._submit())
                self._move(block.host + at, address, nbytes)
            else:
                self._order(dst.address, True)
                for done in range(0, nbytes, _STAGE_BYTES):
                    size = min(_STAGE_BYTES, nbytes - done)
                    stage = self._stage()
                    self._move(stage.block.host, address + done, size)
                    self._copy(stage.block, 0, block, at + done, size)
                    stage.value = self._submit()

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, (VulkanBuffer, PooledBuffer))
        ffi, nbytes, block = self._device.ffi, dst.nbytes, src.chunk.block
        data = ffi.from_buffer(dst, require_writable=True)
        address = int(ffi.cast("uintptr_t", data))
        at = src.chunk.offset + offset
        with self._lock:
            self._require_open()
            if block.host:
                self._timeline.wait(self._submit())
                self._move(address, block.host + at, nbytes)
                return
            self._order(src.address, False)
            flying: deque[tuple[_Stage, int, int]] = deque()
            for done in range(0, nbytes, _STAGE_BYTES):
                if len(flying) == _STAGES:
                    self._land(address, *flying.popleft())
                size = min(_STAGE_BYTES, nbytes - done)
                stage = self._stage()
                self._copy(block, at + done, stage.block, 0, size)
                stage.value = self._submit()
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
                self._require_open()
                self._order(dst.address, True)
                self._cmd_fill(self._command, dst.chunk.block.handle, at + head, words, 0)
                self._count()
        if tail:
            self.upload(dst, offset + nbytes - tail, memoryview(bytes(tail)))

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        # One flat function: a Python call costs as much as recording a command.
        with self._lock:
            if self._closed:
                self._require_open()
            size = len(args)
            start = self._top
            if start + size > self._end:
                start = self._reserve(size)
            # 16: the largest alignment of a Slang scalar or vector.
            self._top = start + (size + 15 & -16)
            self._bytes[start : start + size] = args
            self._push[0] = self._ring_address + start
            command, touched, written = self._command, self._touched, kernel.info.written
            for buffer, writes in zip(buffers, written):  # noqa: B905 (the keyword costs 0.1 us)
                address = buffer.address
                if address in touched and (writes or touched[address]):
                    self._cmd_barrier(command, *self._between)
                    touched.clear()
                    for buffer, writes in zip(buffers, written):  # noqa: B905
                        touched[buffer.address] = writes or touched.get(buffer.address, False)
                    break
                touched[address] = writes
            if kernel is not self._bound:
                assert isinstance(kernel, VulkanKernel)
                self._cmd_bind(command, 1, kernel.pipeline)  # 1: VK_PIPELINE_BIND_POINT_COMPUTE
                self._bound = kernel
            self._cmd_push(command, self._layout, _COMPUTE, 0, 8, self._push)
            self._cmd_dispatch(command, *groups)
            self._pending += 1
            if self._pending == _BATCH:
                self._submit()

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        kept = list(dispatches)
        offsets, size = places(kept)
        blocks = self.alloc(size) if size else None
        if blocks is not None:
            packed = bytearray(size)
            for d, at in zip(kept, offsets, strict=True):
                packed[at : at + len(d.args)] = d.args
            self.upload(blocks, 0, memoryview(packed))
        with self._lock:
            self._require_open()
            command = self._command_buffer()
            # 4: VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, since it may be submitted again while it runs.
            begin = self._device.struct("VkCommandBufferBeginInfo", flags=4)
            self._device.check(self._vk_begin(command[0], begin), "beginning a command buffer")
            bound, ordered = None, 0
            for k, (d, at, before) in enumerate(zip(kept, offsets, waits, strict=True)):
                # One barrier is for all that was recorded before it.
                if any(w >= ordered for w in before):
                    self._cmd_barrier(command[0], *self._kernels_between)
                    ordered = k
                if d.kernel is not bound:
                    bound = d.kernel
                    self._cmd_bind(command[0], 1, bound.pipeline)  # type: ignore[attr-defined]
                assert blocks is not None
                self._push[0] = blocks.address + at
                self._cmd_push(command[0], self._layout, _COMPUTE, 0, 8, self._push)
                self._cmd_dispatch(command[0], *d.groups)
            self._cmd_barrier(command[0], *self._last)
            self._device.check(self._vk_end(command[0]), "ending a command buffer")
        return VulkanRecording(kept, command, blocks, offsets, self._retired)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, VulkanRecording) and recording.blocks is not None
        recording.dispatches[place] = dispatch
        # In order with submissions before and after.
        self.upload(recording.blocks, recording.offsets[place], memoryview(dispatch.args))

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, VulkanRecording)
        with self._lock:
            if self._closed:
                self._require_open()
            self._submit()
            self._signal[0] = self._value + 1
            self._submit_info.pCommandBuffers = recording.command
            self._device.check(
                self._vk_submit(self._device.queue, 1, self._submit_info, self._device.ffi.NULL), "submitting a list"
            )
            self._value += 1
            recording.value = self._value

    def sync(self) -> None:
        retired = self._shared.retired()
        try:
            with self._lock:
                self._require_open()
                value = self._submit()
            # Without the lock, so that other threads can queue work meanwhile.
            self._timeline.wait(value)
        except BaseException:
            self._shared.freed.extend(retired)
            raise
        self._shared.reuse(retired)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._shared.close()
            try:
                self._timeline.wait(self._submit())
            finally:
                if self._pool is not None:
                    self._pool.shutdown()
                self._release()

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceError("vulkan: the device is closed; open a new one")

    def _fetch_functions(self) -> None:
        fetch = self._device.function
        self._cmd_bind = fetch("vkCmdBindPipeline")
        self._cmd_push = fetch("vkCmdPushConstants")
        self._cmd_dispatch = fetch("vkCmdDispatch")
        self._cmd_barrier = fetch("vkCmdPipelineBarrier")
        self._cmd_copy = fetch("vkCmdCopyBuffer")
        self._cmd_fill = fetch("vkCmdFillBuffer")
        self._vk_begin = fetch("vkBeginCommandBuffer")
        self._vk_end = fetch("vkEndCommandBuffer")
        self._vk_submit = fetch("vkQueueSubmit")

    def _create_layout(self) -> None:
        device, ffi = self._device, self._device.ffi
        self._push = ffi.new("uint64_t*")
        pushed = ffi.new("VkPushConstantRange*", (_COMPUTE, 0, 8))
        out = ffi.new("VkPipelineLayout*")
        info = device.struct("VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=pushed)
        device.check(
            device.lib.vkCreatePipelineLayout(device.handle, info, ffi.NULL, out),
            "creating a pipeline layout",
        )
        self._layout = out[0]
        device.on_close(device.lib.vkDestroyPipelineLayout, device.handle, self._layout, ffi.NULL)

    def _create_queue_state(self) -> None:
        device, ffi, lib = self._device, self._device.ffi, self._device.lib
        # 2: VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT; beginning a command buffer again resets it.
        info = device.struct("VkCommandPoolCreateInfo", flags=2, queueFamilyIndex=device.family)
        pool = ffi.new("VkCommandPool*")
        device.check(lib.vkCreateCommandPool(device.handle, info, ffi.NULL, pool), "creating a command pool")
        device.on_close(lib.vkDestroyCommandPool, device.handle, pool[0], ffi.NULL)
        self._command_pool = pool[0]
        self._retired: list[tuple[int, Any]] = []
        self._commands = ffi.new("VkCommandBuffer[]", _FRAMES)
        info = device.struct("VkCommandBufferAllocateInfo", commandPool=pool[0], commandBufferCount=_FRAMES)
        device.check(lib.vkAllocateCommandBuffers(device.handle, info, self._commands), "allocating command buffers")
        self._ring = device.allocate(_FRAMES * _FRAME_BYTES, RING)
        device.on_close(device.release, self._ring)
        self._ring_address = self._ring.address
        self._bytes = device.bytes(self._ring)
        self._timeline = Timeline(device)

        self._frame = 0
        self._frame_values = [0] * _FRAMES
        self._value = 0
        self._touched = {}
        self._signal = ffi.new("uint64_t*")
        self._region = ffi.new("VkBufferCopy*")
        # Argument lists of vkCmdPipelineBarrier after its command buffer.
        between = device.struct("VkMemoryBarrier", srcAccessMask=_WRITES, dstAccessMask=_ANY)
        self._between = (_WORK, _WORK, 0, 1, between, 0, ffi.NULL, 0, ffi.NULL)
        # Of a recording, where there are kernels alone. 0x800: COMPUTE_SHADER; 0x20 and 0x40: SHADER_READ and _WRITE.
        kernels = device.struct("VkMemoryBarrier", srcAccessMask=0x40, dstAccessMask=0x60)
        self._kernels_between = (0x800, 0x800, 0, 1, kernels, 0, ffi.NULL, 0, ffi.NULL)
        last = device.struct("VkMemoryBarrier", srcAccessMask=_WRITES, dstAccessMask=_ANY_AND_HOST)
        self._last = (_WORK, _WORK_AND_HOST, 0, 1, last, 0, ffi.NULL, 0, ffi.NULL)
        # 1: VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT.
        self._begin_info = device.struct("VkCommandBufferBeginInfo", flags=1)
        self._timeline_info = device.struct(
            "VkTimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._signal
        )
        self._submit_info = device.struct(
            "VkSubmitInfo",
            pNext=self._timeline_info,
            commandBufferCount=1,
            signalSemaphoreCount=1,
            pSignalSemaphores=self._timeline.handle,
        )

    def _command_buffer(self) -> Any:
        """One for a recording: that of a recording which is gone and done, or a new one."""
        device = self._device
        for k, (value, command) in enumerate(self._retired):
            if value <= self._timeline.reached:
                del self._retired[k]
                return command
        command = device.ffi.new("VkCommandBuffer[]", 1)
        info = device.struct("VkCommandBufferAllocateInfo", commandPool=self._command_pool, commandBufferCount=1)
        device.check(device.lib.vkAllocateCommandBuffers(device.handle, info, command), "allocating a command buffer")
        return command

    def _begin(self) -> None:
        """Open the current frame's command buffer, which the GPU must have finished."""
        self._command = self._commands[self._frame]
        self._top = self._frame * _FRAME_BYTES
        self._end = self._top + _FRAME_BYTES
        self._bound = None
        self._pending = 0
        self._touched.clear()
        self._device.check(self._vk_begin(self._command, self._begin_info), "beginning a command buffer")

    def _submit(self) -> int:
        """Submit what is recorded; return the timeline value that says it is done."""
        if not self._pending:
            return self._value
        device = self._device
        # Queue order alone makes nothing visible, neither to the next submission nor to the host.
        self._cmd_barrier(self._command, *self._last)
        self._signal[0] = self._value + 1
        self._submit_info.pCommandBuffers = self._commands + self._frame
        try:
            device.check(self._vk_end(self._command), "ending a command buffer")
            device.check(self._vk_submit(device.queue, 1, self._submit_info, device.ffi.NULL), "submitting work")
            self._value += 1
            self._frame_values[self._frame] = self._value
            self._frame = (self._frame + 1) % _FRAMES
            self._timeline.wait(self._frame_values[self._frame])
        finally:
            # After a failure too: recording into a command buffer that is not open is undefined.
            self._begin()
        return self._value

    def _barrier(self) -> None:
        self._cmd_barrier(self._command, *self._between)
        self._touched.clear()

    def _order(self, address: int, writes: bool) -> None:
        """Put a barrier before a copy if earlier work conflicts with it."""
        seen = self._touched.get(address)
        if seen or (writes and seen is not None):
            self._barrier()
        self._touched[address] = writes or self._touched.get(address, False)

    def _reserve(self, nbytes: int) -> int:
        """Claim a part of the ring; submits when the frame's part is used up."""
        if self._top + nbytes > self._end:
            self._submit()
        start = self._top
        self._top = start + (nbytes + 15 & -16)
        return start

    def _copy(self, src: Block, src_offset: int, dst: Block, dst_offset: int, nbytes: int) -> None:
        region = self._region
        region.srcOffset, region.dstOffset, region.size = src_offset, dst_offset, nbytes
        self._cmd_copy(self._command, src.handle, dst.handle, 1, region)
        self._count()

    def _count(self) -> None:
        self._pending += 1
        if self._pending == _BATCH:
            self._submit()

    def _stage(self) -> _Stage:
        """Get a staging buffer that the GPU is done with: a new one while there are few, else the oldest."""
        if len(self._stages) < _STAGES:
            block = self._device.allocate(_STAGE_BYTES, STAGING)
            self._device.on_close(self._device.release, block)
            stage = _Stage(block)
        else:
            stage = self._stages.pop(0)
            self._timeline.wait(stage.value)
        self._stages.append(stage)
        return stage

    def _land(self, address: int, stage: _Stage, done: int, size: int) -> None:
        self._timeline.wait(stage.value)
        self._move(address + done, stage.block.host, size)

    def _move(self, dst: int, src: int, nbytes: int) -> None:
        """Copy host memory, with several threads when it is much: ``ctypes`` calls release the GIL."""
        parts = min(self._threads, nbytes // _COPY_BYTES)
        if parts < 2:
            ctypes.memmove(dst, src, nbytes)
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads)
        # Whole pages, so that no two threads share one.
        step = -(-nbytes // parts) + 4095 & -4096
        for job in [
            self._pool.submit(ctypes.memmove, dst + at, src + at, min(step, nbytes - at))
            for at in range(0, nbytes, step)
        ]:
            job.result()

    def _find_shared(self, nbytes: int) -> SharedBlock | None:
        """Get a block of a size that has none free: from its first slab, or one that a wait sets free."""
        if nbytes > LARGEST:
            return None
        device, pool = self._device, self._shared
        with self._lock:
            self._require_open()
            size = pool.missing(nbytes)
            if size:
                block = device.allocate(size, STAGING)
                device.on_close(device.release, block)
                pool.add(nbytes, block, block.address, memoryview(device.bytes(block)))
        if not size and pool.freed:
            self.sync()
        return pool.take(nbytes)

    def _grow(self, nbytes: int) -> Chunk:
        """Allocate from the driver, after reusing what is idle if that is a lot or all there is."""
        heap = self._heap
        chunk = heap.recycle(nbytes)
        if chunk is not None:
            # The block is cut anew, at addresses that ``_touched`` does not know.
            self._barrier()
            return chunk
        if heap.idle() > self._device.heap_bytes // 4:
            self._timeline.wait(self._submit())
            heap.trim()
        try:
            return heap.grow(nbytes)
        except OutOfMemoryError:
            self._timeline.wait(self._submit())
            heap.trim()
        try:
            return heap.grow(nbytes)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"vulkan: no room for {nbytes} bytes; free arrays or use smaller ones. {error}"
            ) from None


class VulkanBuffer(Buffer):
    """A chunk of the heap."""

    __slots__ = ("chunk",)

    def __init__(self, backend: Backend, nbytes: int, chunk: Chunk) -> None:
        self.backend = backend
        self.address = chunk.address
        self.nbytes = nbytes
        self.chunk = chunk


class VulkanKernel(Kernel):
    """A compute pipeline."""

    __slots__ = ("pipeline",)

    def __init__(self, info: KernelInfo, pipeline: Any) -> None:
        super().__init__(info)
        self.pipeline = pipeline


class _Stage:
    """A mapped block for transfers, and the timeline value after which it is free."""

    __slots__ = ("block", "value")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.value = 0


def _close_device(device: VkDevice) -> None:
    device.lib.vkDeviceWaitIdle(device.handle)
    device.close()
