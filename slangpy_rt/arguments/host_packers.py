"""Packers of values in host memory: NumPy arrays in place or copied, and cells of single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.packer import Packer, Region
from slangpy_rt.backends.base import Buffer, SharedBuffer
from slangpy_rt.backends.extras import ZeroCopy
from slangpy_rt.core.addresses import address_of
from slangpy_rt.core.conversion import as_element
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.structs import to_python
from slangpy_rt.core.types import SlangType

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

# The largest array in shared memory: 256 KiB take 74 us there, and 95 us with copies (CUDA, H200); more gain little.
_SHARED_BYTES = 1 << 18


class HostViewPacker(Packer):
    """A NumPy array used in place, on a device that shares the host's memory."""

    buffers = 1
    lasting = False

    def __init__(self, device: DeviceCore, as_array: Callable[[Any], npt.NDArray[Any]]) -> None:
        assert isinstance(device.backend, ZeroCopy)
        self._wrap = device.backend.wrap
        self._as_array = as_array
        # Whether values are used as they are.
        self.plain = as_array is np.asarray

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        array = self._as_array(value)
        address = address_of(array)
        block.append(address)
        buffers.append(self._wrap(address, array.nbytes, array))


class HostCopyPacker(Packer):
    """A NumPy array copied to the device for the call, and back if the kernel writes it.

    A small array that is passed element by element is copied to memory that host and device both address: on an H200,
    add over 1,000 floats takes 34 us with copies to device memory and 22 us without by CUDA, 70 and 36 us by Vulkan.
    """

    buffers = 1
    private = True

    def __init__(
        self,
        device: DeviceCore,
        as_array: Callable[[Any], npt.NDArray[Any]],
        access: str,
        shared_bytes: int = _SHARED_BYTES,
    ) -> None:
        self.lasting = False
        self._device = device
        self._as_array = as_array
        self._access = access
        self._shared_bytes = shared_bytes
        # Prepared calls are dropped when the device closes: no call has to check whether it is open.
        self._alloc_shared = device.alloc_mapped
        self.returns = self.waits = access != "in"
        self.brings = int(self.returns)

    def in_device_memory(self) -> HostCopyPacker:
        """Return the packer that copies to the device's own memory, for an array that threads may read many times."""
        return HostCopyPacker(self._device, self._as_array, self._access, 0)

    def partial(self) -> HostCopyPacker:
        """Return the packer for an array of which the kernel writes a part."""
        return HostCopyPacker(self._device, self._as_array, "inout", self._shared_bytes)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        array = self._as_array(value)
        nbytes = array.nbytes
        if 0 < nbytes <= self._shared_bytes:
            shared: SharedBuffer | None = self._alloc_shared(nbytes)
            if shared is not None:
                if self._access != "out":
                    shared.write(array)
                block.append(shared.address)
                buffers.append(shared)
                return
        buffer = self._device.alloc(nbytes)
        if self._access != "out":
            self._device.upload(buffer, buffer.address, array)
        block.append(buffer.address)
        buffers.append(buffer)

    def regions(self, value: Any) -> list[Region]:
        return [Region(address_of(value), value.shape, value.strides, value.itemsize)] if value.size else []

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        buffer = buffers[0]
        if isinstance(buffer, SharedBuffer):
            buffer.read(value)
        elif value.flags.c_contiguous:
            self._device.download(buffer, buffer.address, value)
        else:
            host = np.empty(value.shape, value.dtype)
            self._device.download(buffer, buffer.address, host)
            value[...] = host


class RefPacker(Packer):
    """A ValueRef, or the gradient in a DiffPair: a cell of device memory, read back after the call.

    With access ``"accumulate"`` the cell starts at zero and is added to the value after the call, because one pair
    may stand for two arguments.
    """

    buffers = 1
    private = True

    def __init__(self, where: str, device: DeviceCore, type_: SlangType, access: str, name: str = "value") -> None:
        stored = storage(type_)
        assert stored is not None, type_
        self.lasting = False
        self._where = where
        self._type = type_
        self._name = name
        self._device = device
        self._dtype = stored.dtype
        self._dims = stored.dims
        self._access = access
        self.returns = access != "in"
        self.brings = int(access in ("out", "inout"))

    def partial(self) -> RefPacker:
        """Return the packer whose cell starts with the value, of which the kernel may write only a part."""
        other = copy(self)
        other._access, other.brings = "inout", 1
        return other

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        buffer = self._device.alloc(prod(self._dims) * self._dtype.itemsize)
        if self._access != "out":
            start = getattr(value, self._name) if self._access != "accumulate" else None
            # A missing gradient counts as zero, and a sum starts at zero.
            cell = (
                np.zeros(self._dims, self._dtype)
                if start is None and (self._name == "grad" or self._access == "accumulate")
                else as_element(self._where, self._type, start)
            )
            self._device.upload(buffer, buffer.address, cell)
        block.append(buffer.address)
        buffers.append(buffer)

    def regions(self, value: Any) -> list[Region]:
        # A pair has two values, its gradient being the second; a GradientRef stands for that gradient.
        pair, second = getattr(value, "_pair", value), self._name == "grad" or hasattr(value, "_pair")
        return [Region(id(pair) + second, (), (), 1)]

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        cell = np.empty(self._dims, self._dtype)
        self._device.download(buffers[0], buffers[0].address, cell)
        before = getattr(value, self._name) if self._access == "accumulate" else None
        if before is not None:
            cell = cell + np.asarray(before, self._dtype)
        setattr(value, self._name, to_python(cell))
