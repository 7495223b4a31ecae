"""Records work of the Vulkan backend in command buffers, and submits them, as ``backends/submissions.py`` describes.

Inside a command buffer, a barrier comes only before work that reads or writes what earlier work wrote, or writes what
earlier work read. Several queues of this class may share one ``VkQueue``; how many there are depends on the driver.
"""

from __future__ import annotations

import threading
from itertools import starmap
from typing import Any

from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.frame import Frame
from slangpy_rt.backends.single import SINGLE_BYTES, SINGLES, Single
from slangpy_rt.backends.stamps import StampedQueue
from slangpy_rt.backends.submission import Submission
from slangpy_rt.backends.submissions import BATCH, FRAME_BYTES, FRAMES
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.device import RING, Block
from slangpy_rt.backends.vulkan.timeline import Timeline


class VkSubmissions(StampedQueue):
    """A queue that records commands in command buffers, and submits them.

    Parameters
    ----------
    handle : Any
        The ``VkQueue``.
    lock : threading.Lock
        The backend's lock, since only one thread at a time may use a ``VkQueue`` or the command pool.
    """

    ring: Block
    timeline: Timeline

    def __init__(self, backend: Backend, commands: VkCommands, handle: Any, lock: threading.Lock) -> None:
        device, ffi = commands.device, commands.device.ffi
        handles = commands.allocate(FRAMES + SINGLES)
        ring = device.keep(FRAMES * FRAME_BYTES + SINGLES * SINGLE_BYTES, RING)
        frames = [Frame(k, handles[k], handles + k) for k in range(FRAMES)]
        super().__init__(backend, lock, device.check, Timeline(device), ring, frames)
        self._singles = [
            Single(k, handles[FRAMES + k], handles + FRAMES + k, FRAMES * FRAME_BYTES + k * SINGLE_BYTES)
            for k in range(SINGLES)
        ]
        self._commands = commands
        self._device = device
        self._queue = handle
        self._handles = handles
        self._ring_address = ring.address
        self._bytes = device.bytes(ring)
        self._push = ffi.new("uint64_t*")
        self._pushing = (commands.layout, COMPUTE, 0, 8, self._push)
        self._cmd_bind, self._cmd_push, self._cmd_dispatch = commands.bind, commands.push, commands.dispatch
        self._signal = ffi.new("uint64_t*")
        self._region = ffi.new("VkBufferCopy*")
        # 1: VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT.
        self._begin_info = device.struct("VkCommandBufferBeginInfo", flags=1)
        self._single_info = device.struct("VkCommandBufferBeginInfo")
        self._values_info = device.struct(
            "VkTimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._signal
        )
        self._submit_info = device.struct(
            "VkSubmitInfo",
            pNext=self._values_info,
            commandBufferCount=1,
            signalSemaphoreCount=1,
            pSignalSemaphores=self.timeline.handle,
        )
        # Whether the last submission waited for semaphores.
        self._waiting = False
        self._cmd_barrier, self._between = commands.barrier, commands.between
        self._vk_submit = commands.submit
        self._open()

    def locked_wait(self, timeline: Timeline, value: int) -> None:
        if value > timeline.reached:
            self.locked_submit(alone=False)
            semaphore = timeline.handle[0]
            self._awaited[semaphore] = max(value, self._awaited.get(semaphore, 0))

    def locked_barrier(self) -> None:
        self._cmd_barrier(self._command or self._open(), *self._between)
        self._touched.clear()

    def locked_order(self, address: int, writes: bool) -> None:
        if self._command is None:
            self._open()
        seen = self._touched.get(address)
        if seen or (writes and seen is not None):
            self.locked_barrier()
        self._touched[address] = writes

    def locked_order_again(self, address: int, writes: bool) -> None:
        """Note a use that ``locked_order`` noted, in case that a barrier before another use has removed the note."""
        self._touched.setdefault(address, writes)

    def locked_command(self) -> Any:
        """Return the open command buffer, for one more command; ``locked_filled`` comes after it."""
        command = self._command or self._open()
        self._pending += 1
        return command

    def locked_filled(self) -> None:
        """Submit the open command buffer if it holds as many commands as a submission has."""
        if self._pending >= BATCH:
            self.locked_submit()

    def locked_bind_heap(self) -> None:
        """Bind the descriptors of textures in the open command buffer, if there are any."""
        if self._command is not None and self._commands.heap is not None:
            self._commands.heap.bind(self._command)

    def locked_copy(self, src: Block, src_offset: int, dst: Block, dst_offset: int, nbytes: int) -> None:
        region = self._region
        region.srcOffset, region.dstOffset, region.size = src_offset, dst_offset, nbytes
        command = self._command or self._open()
        self._pending += 1
        self._commands.copy(command, src.handle, dst.handle, 1, region)
        if self._pending >= BATCH:
            self.locked_submit()

    def locked_fill(self, memory: Block, at: int, nbytes: int) -> None:
        command = self._command or self._open()
        self._pending += 1
        self._commands.fill(command, memory.handle, at, nbytes, 0)
        if self._pending >= BATCH:
            self.locked_submit()

    def _begin_frame(self, frame: Frame) -> None:
        frame.begun.extend(starmap(self._commands.begin, ((frame.command, self._begin_info),)))

    def _begun(self, frame: Frame) -> None:
        if self._commands.heap is not None:
            self._commands.heap.bind(frame.command)

    def _record_single(self, single: Single, kernel: Any, groups: tuple[int, int, int]) -> None:
        commands, command, check = self._commands, single.command, self._device.check
        check(commands.begin(command, self._single_info), "beginning a list of commands")
        if commands.heap is not None:
            commands.heap.bind(command)
        self._cmd_bind(command, *kernel.bound)
        self._push[0] = self._ring_address + single.start
        self._cmd_push(command, *self._pushing)
        self._cmd_dispatch(command, *groups)
        self._cmd_barrier(command, *commands.last)
        check(commands.end(command), "ending a list of commands")

    def _end_frame(self, frame: Frame) -> None:
        # Queue order alone makes nothing visible, neither to the next submission nor to the host.
        self._cmd_barrier(frame.command, *self._commands.last)
        frame.ended.extend(starmap(self._commands.end, ((frame.command,),)))

    def _send(self, sent: Submission, pointer: Any, what: str) -> None:
        """Submit a command buffer, which waits for the semaphores in ``_awaited``."""
        ffi, info, values = self._device.ffi, self._submit_info, self._values_info
        info.pCommandBuffers = pointer
        self._signal[0] = sent.value
        count = len(self._awaited)
        kept: tuple[Any, ...] = ()
        if count or self._waiting:
            info.waitSemaphoreCount = values.waitSemaphoreValueCount = count
            self._waiting = count > 0
        if count:
            semaphores = ffi.new("VkSemaphore[]", list(self._awaited))
            reached = ffi.new("uint64_t[]", list(self._awaited.values()))
            # 0x10000: ALL_COMMANDS.
            stages = ffi.new("uint32_t[]", [0x10000] * count)
            info.pWaitSemaphores, info.pWaitDstStageMask = semaphores, stages
            values.pWaitSemaphoreValues = reached
            kept = semaphores, reached, stages
        self._sent = sent
        sent.results.extend(starmap(self._vk_submit, ((self._queue, 1, info, ffi.NULL),)))
        del kept
        if sent.results[0]:
            self._device.check(sent.results[0], what)
        if count:
            self._awaited.clear()
