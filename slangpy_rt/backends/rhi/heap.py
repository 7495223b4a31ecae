"""Allocates memory of a device of slang-rhi: blocks for arrays, and buffers for copies from and to the host."""

from __future__ import annotations

from collections import deque
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.blocks import ALIGN, SizeClasses
from slangpy_rt.backends.images import SamplerDesc
from slangpy_rt.backends.rhi.device import DESCRIPTORS, Opened
from slangpy_rt.backends.rhi.memory import OFFSET_MASK, Stage, pack_address
from slangpy_rt.backends.rhi.queue import Submissions
from slangpy_rt.core.errors import DeviceError, OutOfMemoryError

# Bytes of a buffer for uploads, which the host writes and the device reads; there are two, used in turn.
STAGE = 16 << 20
ZEROS = 1 << 20
_FIRST = 256


class RhiBuffer(Buffer):
    """A buffer whose memory is a block of the heap."""

    __slots__ = ()


class Heap:
    """The buffers of slang-rhi that a backend has; its methods are called with the backend's lock.

    Parameters
    ----------
    handles : bool
        Whether addresses are descriptors' indices and offsets.
    small, slab : int
        As in ``SizeClasses``.

    Attributes
    ----------
    blocks : SizeClasses
        The blocks of device memory.
    backs : dict
        Unused buffers for copies to the host, by size.
    samplers : dict
        The samplers of the device.
    """

    def __init__(
        self, opened: Opened, submissions: Submissions, name: str, handles: bool, small: int, slab: int
    ) -> None:
        self._name = name
        self._opened = opened
        self._device = opened.device
        self._submissions = submissions
        self._handles = handles
        self.blocks = SizeClasses(self._allocate, small, slab)
        self.backs: dict[int, list[Any]] = {}
        self.samplers: dict[SamplerDesc, Any] = {}
        self._stages: deque[Stage] = deque()
        self._zeros: Any = None
        # Address 0 means that there is no array, so no array may have the first descriptor: this buffer takes it.
        self._first = self.make(_FIRST, "device_local") if handles else None
        if self._first is not None:
            self._first.descriptor_handle_rw  # noqa: B018

    def make(self, nbytes: int, kind: str) -> Any:
        """Make a buffer, as ``Opened.memory`` does; if no memory is left, free unused blocks and try again."""
        self._submissions.enter()
        try:
            return self._opened.memory(nbytes, kind)
        except OutOfMemoryError:
            self._give_back()
        return self._opened.memory(nbytes, kind)

    def _give_back(self) -> None:
        """Wait for all work, and free unused blocks."""
        self._submissions.wait(self._submissions.submit())
        self.blocks.drop()
        self.backs.clear()
        self._device.wait()

    def staging(self) -> Stage:
        """Return a buffer for uploads that the device no longer uses; wait for its last use if necessary."""
        if len(self._stages) < 2:
            stage = Stage(self.make(STAGE, "upload"))
            self._stages.append(stage)
        else:
            stage = self._stages[0]
            if stage.batch is not None:
                self._submissions.wait(self._submissions.number(stage.batch, waits=True))
            self._stages.rotate(-1)
        return stage

    def zeros(self) -> Any:
        """Return a buffer of ``ZEROS`` zero bytes."""
        self._submissions.require_open()
        zeros = self._zeros or self.make(ZEROS, "device_local")
        if self._zeros is None:
            self._submissions.encoder().clear_buffer(zeros)
            self._zeros = zeros
        return zeros

    def close(self) -> None:
        """Drop all references to buffers; no work may be running."""
        self.blocks.close()
        self._stages.clear()
        self.backs.clear()
        self.samplers.clear()
        self._zeros = self._first = None

    def _allocate(self, size: int) -> tuple[int, Any]:
        if self._handles and size > OFFSET_MASK:
            raise OutOfMemoryError(
                f"device {self._name}: {size:,} bytes are more than an array may have here, which is less than "
                "4 GiB. Use smaller ones."
            )
        # Addresses made of descriptors are multiples of ALIGN; those of a driver need not be.
        buffer = self.make(size if self._handles else size + ALIGN, "device_local")
        address = pack_address(self._descriptor(buffer)) if self._handles else buffer.device_address
        if not address:
            raise DeviceError(f"device {self._name}: memory came at address 0, which stands for no array.")
        return address, buffer

    def _descriptor(self, buffer: Any) -> int:
        try:
            return int(buffer.descriptor_handle_rw.value)
        except RuntimeError:
            self._give_back()
        try:
            return int(buffer.descriptor_handle_rw.value)
        except RuntimeError:
            raise OutOfMemoryError(
                f"device {self._name}: {DESCRIPTORS:,} arrays of more than 1 MiB are the most that it takes. Free "
                "some, or use fewer and larger ones."
            ) from None
