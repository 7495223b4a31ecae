"""Where a kernel's tensors lie, and the device that works there; copies for a device that works elsewhere."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.device import Device
from slangpy_rt.interop import create_torch_device
from slangpy_rt.interop.torch_memory import lies_on
from slangpy_rt.slangtorch.errors import TensorError

_ALIGNMENT = 256


def default_device(index: int) -> Device:
    """Return the device for tensors on a GPU of this index, or for those in host memory where it is -1.

    Raises
    ------
    UnsupportedError
        If there is none.
    """
    return _opened(index, os.getpid())


@cache
def _opened(index: int, process: int) -> Device:
    """Open a device once a process: a forked one has none of its parent's."""
    return create_torch_device("cpu") if index < 0 else create_torch_device("cuda", index=index)


def host_device(device: Device | None) -> Device:
    """Return the device on which host functions run: the CPU, or where it has no compiler the one of the kernels."""
    try:
        return default_device(-1)
    except UnsupportedError:
        return device or default_device(torch.cuda.current_device())


def device_of(where: str, tensors: Sequence[tuple[int, torch.Tensor]]) -> Device:
    """Return the device that works where a kernel's tensors lie.

    Raises
    ------
    TensorError
        If they lie in several places.
    """
    places = {tensor.device for _, tensor in tensors}
    if len(places) > 1:
        listed = " and ".join(sorted(map(str, places)))
        raise TensorError(f"{where}: its tensors are on {listed}; move them to one device with .to(...).")
    if not places:
        return default_device(torch.cuda.current_device() if torch.cuda.is_available() else -1)
    place = places.pop()
    if place.type not in ("cpu", "cuda"):
        raise TensorError(f"{where}: its tensors are on {place}; move them to a CUDA device or to the CPU.")
    return default_device(-1 if place.type == "cpu" else place.index)


def check_places(where: str, device: Device, tensors: Sequence[tuple[int, torch.Tensor]]) -> bool:
    """Return whether a device works in the tensors' own memory; False if they have to be copied to it.

    Raises
    ------
    TensorError
        If they lie on a GPU of which the device does not see the memory.
    """
    here = [lies_on(device, tensor) for _, tensor in tensors]
    if all(here):
        return True
    for _, tensor in tensors:
        if tensor.device.type != "cpu":
            raise TensorError(f"{where}: a tensor is on {tensor.device}; {device!r} does not work there.")
    return False


class Copies:
    """The memory of tensors on a device that does not work where they lie.

    Tensors of one storage lie in the copy as they do in the storage, so that what they share they share there.

    Parameters
    ----------
    device : Device
        Where the copy is made.
    tensors : sequence of (int, torch.Tensor)
        Places in an argument block, which get the addresses in the copy.
    block : list
        That argument block.
    """

    def __init__(self, device: Device, tensors: Sequence[tuple[int, torch.Tensor]], block: list[Any]) -> None:
        spans: dict[int, tuple[int, int]] = {}
        for _, tensor in tensors:
            if tensor.numel():
                low = tensor.data_ptr()
                reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
                high = low + (reach + 1) * tensor.element_size()
                key = tensor.untyped_storage().data_ptr()
                known = spans.get(key, (low, high))
                spans[key] = min(low, known[0]), max(high, known[1])
        at, offsets = 0, {}
        for key, (low, high) in spans.items():
            offsets[key] = at
            at = -(-(at + high - low) // _ALIGNMENT) * _ALIGNMENT
        self.buffer: Buffer = device.alloc(at)
        self._device = device
        self._parts = [(offsets[key], _bytes_at(low, high - low)) for key, (low, high) in spans.items()]
        # The arrays above look at the tensors' memory.
        self._owners = [tensor for _, tensor in tensors]
        for offset, array in self._parts:
            device.upload(self.buffer, self.buffer.address + offset, array)
        for place, tensor in tensors:
            if tensor.numel():
                key = tensor.untyped_storage().data_ptr()
                block[place] = self.buffer.address + offsets[key] + tensor.data_ptr() - spans[key][0]

    def bring_back(self) -> None:
        """Wait for the device's work, and copy what it wrote into the tensors."""
        for offset, array in self._parts:
            self._device.download(self.buffer, self.buffer.address + offset, array)


def _bytes_at(address: int, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    found: np.ndarray[Any, np.dtype[np.uint8]] = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
    return found
