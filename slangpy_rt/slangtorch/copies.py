"""Copies: copies of a call's tensors on a device that cannot use their memory."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from slangpy_rt.backends.base import Buffer
from slangpy_rt.device import Device

_ALIGNMENT = 256


class Copies:
    """Copies of tensors in one buffer of a device that cannot use the tensors' own memory.

    Tensors that overlap, of one storage or of several over the same memory, overlap in the buffer too.

    Parameters
    ----------
    device : Device
        The device that the copies are made on.
    tensors : sequence of torch.Tensor
        The tensors.
    places : sequence of int
        For each tensor, the index of its address in the block.
    block : list
        The argument block, into which the addresses of the copies are written.
    """

    def __init__(self, device: Device, tensors: Sequence[Any], places: Sequence[int], block: list[Any]) -> None:
        spans = sorted(_span(tensor) for tensor in tensors if tensor.numel())
        # Overlapping spans have one copy, which is found by its first address.
        merged: list[list[int]] = []
        for low, high in spans:
            if merged and low < merged[-1][1]:
                merged[-1][1] = max(high, merged[-1][1])
            else:
                merged.append([low, high])
        at, offsets = 0, []
        for low, high in merged:
            offsets.append(at)
            at = -(-(at + high - low) // _ALIGNMENT) * _ALIGNMENT
        self.buffer: Buffer = device.alloc(at)
        self._device = device
        self._parts = [(to, _bytes_at(low, high - low)) for to, (low, high) in zip(offsets, merged, strict=True)]
        # The arrays above are views of the tensors' memory, which has to stay alive.
        self._owners = list(tensors)
        for offset, array in self._parts:
            device.upload(self.buffer, self.buffer.address + offset, array)
        begins = [low for low, _ in merged]
        for place, tensor in zip(places, tensors, strict=True):
            if tensor.numel():
                address = tensor.data_ptr()
                k = bisect_right(begins, address) - 1
                block[place] = self.buffer.address + offsets[k] + address - begins[k]

    def bring_back(self) -> None:
        """Wait for the device's work, and copy the buffer's contents to the tensors."""
        for offset, array in self._parts:
            self._device.download(self.buffer, self.buffer.address + offset, array)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the address of a tensor's first byte, and the address after its last byte."""
    first = tensor.data_ptr()
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (reach + 1) * tensor.element_size()


def _bytes_at(address: int, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    found: np.ndarray[Any, np.dtype[np.uint8]] = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
    return found
