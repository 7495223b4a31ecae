"""PyTorch's tensors on a CUDA GPU for a Vulkan device on the same GPU.

The driver does not open PyTorch's memory in Vulkan: tensors are copied on the GPU, to and from Vulkan memory that
CUDA can use too. Semaphores order the copies; the host does not wait for them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.arguments.packer import Packer, Region
from slangpy_rt.arrays.exported import capsule
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.errors import BindError, SlangPyRtError
from slangpy_rt.device import Device
from slangpy_rt.interop.torch_types import check_plain, element_of, tensor_in_words
from slangpy_rt.runtime.foreign_stream import foreign_stream
from slangpy_rt.runtime.lane import Lane
from slangpy_rt.runtime.stream import lane_of

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class Bridge:
    """Copies between a Vulkan device and PyTorch's tensors on one CUDA GPU.

    Attributes
    ----------
    index : int
        CUDA's number of the GPU.
    """

    def __init__(self, device: DeviceCore, index: int) -> None:
        self._device = device
        self._cuda = Device("cuda", index=index)
        self.index = index

    def send(self, value: torch.Tensor) -> Tensor:
        """Copy a tensor to the Vulkan device."""
        check_plain(value)
        array = Tensor(self._device, element_of(value), tuple(value.shape))
        if value.numel():
            # In one go, so that no other thread marks the stream in between.
            with self._cuda.order.lock:
                self._seen(array, True).copy_(value)
        return array

    def fetch(self, array: Tensor, out: torch.Tensor) -> None:
        """Copy an array of the Vulkan device to a tensor."""
        if not out.numel():
            return
        lane = self._lane()
        with self._cuda.order.lock:
            out.copy_(self._seen(array, False))
            # The memory must not be reused before the copy is done.
            lane.keep_until_done(array.buffer)
        # Frees large buffers whose work is done, without a wait.
        self._device.order.drop_done()

    def close(self) -> None:
        """Close the CUDA device that the copies go through."""
        self._cuda.close()

    def _seen(self, array: Tensor, written: bool) -> torch.Tensor:
        """Make a PyTorch tensor in an array's memory; PyTorch's stream waits for the Vulkan device's work on it."""
        seen = array.share(self._cuda)
        lane = self._lane()
        self._cuda.order.order_use(lane, (seen.buffer,), (written,))
        found: torch.Tensor = torch.utils.dlpack.from_dlpack(capsule(seen, -1, None, None, None))
        return found

    def _lane(self) -> Lane:
        stream = foreign_stream(self._cuda, torch._C._cuda_getCurrentRawStream(self.index)).stream()
        return lane_of(self._cuda, "Bridge", stream)


class StagedPacker(Packer):
    """A tensor that is copied to the Vulkan device, and back if the kernel writes it."""

    buffers = 1
    private = True
    lasting = False

    def __init__(self, device: DeviceCore, sample: torch.Tensor, access: str) -> None:
        self._device = device
        self._access = access
        self._layout = layout_of(device, Tensor, element_of(sample), tuple(sample.shape))
        self.returns = access != "in"
        self.brings = int(self.returns)

    def partial(self) -> StagedPacker:
        """Return the packer for a tensor of which the kernel writes only a part: all of it is copied first."""
        whole = copy.copy(self)
        whole._access = "inout"
        return whole

    def regions(self, value: torch.Tensor) -> list[Region]:
        unit = value.element_size()
        strides = tuple(s * unit for s in value.stride())
        return [Region(value.data_ptr(), tuple(value.shape), strides, unit)] if value.numel() else []

    def pack(self, value: torch.Tensor, block: list[Any], buffers: list[Buffer]) -> None:
        if self._access == "out":
            buffer = self._device.alloc(self._layout.nbytes)
        else:
            buffer = bridge_of(self._device, value).send(value).buffer
        block.append(buffer.address)
        buffers.append(buffer)

    def bring_back(self, value: torch.Tensor, buffers: Sequence[Buffer]) -> None:
        array = Tensor.of(self._layout, buffers[0], buffers[0].address)
        bridge_of(self._device, value).fetch(array, value)


def bridge_of(device: DeviceCore, value: torch.Tensor) -> Bridge:
    """Return the Bridge between a tensor's GPU and a Vulkan device; the first call makes it.

    Raises
    ------
    BindError
        If the device is on another GPU.
    """
    with device.order.lock:
        found = device.once("bridge", partial(_opened, device, value.device.index), Bridge.close)
    if found.index != value.device.index:
        raise BindError(
            f"{tensor_in_words(value)}; {device!r} works on GPU {found.index}. Use tensor.to('cuda:{found.index}')."
        )
    return found


def bridge_on(device: DeviceCore) -> Bridge:
    """Return the bridge that ``bridge_of`` made for a device earlier."""
    return device.once("bridge", _missing)


def _opened(device: DeviceCore, index: int) -> Bridge:
    made = Bridge(device, index)
    try:
        # Raises if memory cannot be shared.
        Tensor(device, "float", 1).share(made._cuda)
    except SlangPyRtError:
        made.close()
        raise
    return made


def _missing() -> Bridge:
    raise AssertionError("a result on the GPU is made after the arguments were copied there")
