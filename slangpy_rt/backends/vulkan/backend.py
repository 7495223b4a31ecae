"""The Vulkan backend: SPIR-V kernels that get the device address of their arguments as a push constant.

This file implements the contract with the parts in the other files. Since a queue is in order, later work may use
freed memory at once; memory that the host writes in place is used again only after the next ``sync_all``.

It presents no images and compiles nothing: the driver gets Slang's SPIR-V unchanged. Descriptors are bound once there
are textures or samplers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from slangpy_rt.backends.base import Buffer, Dispatch, Recording
from slangpy_rt.backends.extras import HostResults, packed_blocks
from slangpy_rt.backends.host_blocks import HostBlocks
from slangpy_rt.backends.images import Image, ImageDesc, Images, SamplerDesc
from slangpy_rt.backends.staged_copies import Copies
from slangpy_rt.backends.submitting import SubmittingBackend
from slangpy_rt.backends.vulkan.commands import VkCommands
from slangpy_rt.backends.vulkan.device import DEVICE, STAGING, VkDevice
from slangpy_rt.backends.vulkan.host_memory import import_host
from slangpy_rt.backends.vulkan.images import VkImages
from slangpy_rt.backends.vulkan.instance import find_fault
from slangpy_rt.backends.vulkan.kernel import Pipelines
from slangpy_rt.backends.vulkan.queue import VulkanQueue
from slangpy_rt.backends.vulkan.recording import Recorder, VulkanRecording
from slangpy_rt.core.interrupts import apart


class VulkanBackend(SubmittingBackend, Images, HostResults):
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

    queue: VulkanQueue
    memory: ClassVar[Sequence[int]] = DEVICE  # for tests: STAGED acts like a discrete GPU

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        device = VkDevice(index, debug)
        super().__init__(device, partial(_close, device), ("spirv", "spirv_1_5", "pointer"), (self.memory, STAGING))
        self._commands = VkCommands(device)
        self._pipelines = Pipelines(device, self._commands, self._queues, self._lock)
        self._images = VkImages(device, self._commands)
        self._recorder = Recorder(self._commands)
        self.queue = self.open_queue()
        self.hosts = HostBlocks(self._entered, partial(import_host, device), device.release, self.sync_all)
        device.on_close(_release_hosts, device, self.hosts.all)
        self._copies = Copies(device, self.queue, STAGING, self.hosts)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return find_fault()

    def toolchain(self) -> str:
        return "spirv"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def _make_queue(self, number: int) -> VulkanQueue:
        # There may be only one ``VkQueue``.
        handles = self._device.queues
        return VulkanQueue(self, self._commands, handles[number % len(handles)], self._lock)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._lock:
            self.require_open()
            yield

    def _shut(self) -> None:
        self.hosts.close()
        super()._shut()

    def create_image(self, desc: ImageDesc) -> Image:
        return apart(self._create_image, desc)

    def _create_image(self, desc: ImageDesc) -> Image:
        with self._lock:
            self.require_open()
            return self._images.create(self, desc, self._queues)

    def image_handle(self, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        return apart(self._image_handle, image, level, writes, sampler)

    def _image_handle(self, *what: Any) -> int:
        with self._lock:
            self.require_open()
            return self._images.number(*what)

    def sampler_handle(self, desc: SamplerDesc) -> int:
        return apart(self._sampler_handle, desc)

    def _sampler_handle(self, desc: SamplerDesc) -> int:
        with self._lock:
            self.require_open()
            self._commands.heap_of(self._queues)
            return self._images.sampler(desc)[1]

    def copy_image(self, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
        queue, block = self.queue, buffer.chunk
        with self._lock:
            self.require_open()
            queue.locked_order(buffer.address, not into)
            queue.locked_order(image.address, into)
            queue.locked_order_again(buffer.address, not into)
            self._images.copy(queue, image, level, layer, block.memory, block.offset + offset, into)

    def _grow(self, size: int, buffer: Any) -> None:
        with self._lock:
            self._images.sweep(self._queues)
        super()._grow(size, buffer)

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


def _release_hosts(device: VkDevice, hosts: dict[int, Any]) -> None:
    while hosts:
        device.release(hosts.popitem()[1][0])


def _close(device: VkDevice) -> None:
    """Wait for all work, and destroy the device."""
    device.lib.vkDeviceWaitIdle(device.handle)
    device.close()
