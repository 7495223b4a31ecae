"""Copies: the memory of a call's tensors on a device that does not work where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from slangpy_rt.backends.base import Buffer
from slangpy_rt.device import Device

_ALIGNMENT = 256


class Copies:
    """The memory of tensors on a device that does not work where they lie.

    Tensors of one storage lie in the copy as they do in the storage, so that what they share they share there.

    Parameters
    ----------
    device : Device
        Where the copy is made.
    tensors : sequence of torch.Tensor
        The tensors.
    places : sequence of int
        Where in the block the address of each belongs.
    block : list
        The argument block, which gets their addresses in the copy.
    """

    def __init__(self, device: Device, tensors: Sequence[Any], places: Sequence[int], block: list[Any]) -> None:
        spans: dict[int, tuple[int, int]] = {}
        for tensor in tensors:
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
        self._owners = list(tensors)
        for offset, array in self._parts:
            device.upload(self.buffer, self.buffer.address + offset, array)
        for place, tensor in zip(places, tensors, strict=True):
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
