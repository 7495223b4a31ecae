"""Arrays of other libraries by protocol: DLPack and the CUDA array interface, in host memory or on a CUDA GPU.

On a GPU, a call runs on the stream that the array's CUDA array interface names, as with CuPy and Numba. For an array
without such an interface, as with JAX, DLPack makes the device's own queue wait until the array is ready, and the
array is kept until the call has finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.arrays.dlpack import LEGACY
from slangpy_rt.arrays.imported import (
    HOST,
    CallBuffer,
    Memory,
    as_numpy,
    interface_of,
    is_read_only,
    memory_of,
    place_of,
    taken,
)
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.checks import is_callers
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import class_in_words

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class ForeignAdapter(Adapter):
    """How a call uses arrays of other libraries by protocol."""

    def __call__(self, value: Any) -> Any:
        """Return the array's host memory as a NumPy array.

        Raises
        ------
        BindError
            If it has none.
        """
        place_of(value)
        return as_numpy(value)

    def on(self, device: DeviceCore, value: Any) -> Any:
        """Return an array in the same memory: a NumPy array in host memory, a Tensor on a GPU.

        Raises
        ------
        BindError
            If the memory cannot be shared, or the device cannot use it.
        """
        if place_of(value)[0] in HOST:
            return as_numpy(value)
        found = memory_of(device, value)
        # Without an interface, the signature does not include the address.
        aligned = interface_of(value) is not None and found.address % 32 == 0
        layout = layout_of(device, Tensor, found.element, found.shape, found.strides, aligned)
        return Tensor.of(layout, device.placeholder, found.address)

    def signature(self, value: Any) -> Any:
        """Return the signature of an array; for one that ``on`` refuses, an object that equals no other signature."""
        try:
            kind, index = place_of(value)
            if kind in HOST:
                array = as_numpy(value)
                return (
                    type(value),
                    array.dtype,
                    array.shape,
                    array.strides,
                    array.flags.writeable,
                    array.flags.aligned,
                )
            told = interface_of(value)
            if told is not None:
                steps = told.get("strides")
                place = told["data"][0] % 32, told["data"][1], steps and tuple(steps)
                return type(value), index, told["typestr"], tuple(told["shape"]), *place
        except BindError:
            return object()
        except (LookupError, TypeError) as error:
            if is_callers(error):
                raise
            return object()
        strides = getattr(value, "strides", None)
        shape = tuple(getattr(value, "shape", ()))
        return type(value), kind, index, getattr(value, "dtype", None), shape, strides and tuple(strides)

    def copied(self, value: Any) -> Any:
        """Return a copy of an array; one on a GPU that has no method ``copy``, or does not change, as it is."""
        if place_of(value)[0] in HOST:
            return as_numpy(value).copy("K")
        return value if is_read_only(value) or not hasattr(value, "copy") else value.copy()

    def packer(self, device: DeviceCore, value: Any, access: str) -> Packer | None:
        """Return the packer that passes an array to the kernel; None for host memory.

        Raises
        ------
        BindError
            If a call with that access would write to an array that must not be changed.
        """
        if access != "in":
            self.check_writable(value)
        if place_of(value)[0] in HOST:
            return None
        if interface_of(value) is not None:
            return InterfacePacker(device)
        if access != "in":
            raise BindError(
                f"{class_in_words(value)}, which names no stream that would wait for what is written; pass a "
                "Tensor, as Tensor.from_dlpack(device, array) is one."
            )
        return CapsulePacker(device, memory_of(device, value))

    def check_writable(self, value: Any) -> None:
        """Refuse an array that must not be changed; only called for arrays that a call would write to.

        Raises
        ------
        BindError
            For JAX's arrays, and others that say that they are read-only.
        """
        if is_read_only(value):
            raise BindError(
                f"{class_in_words(value)} that must not be changed, and would be written to; pass a Tensor, or a "
                "writable array."
            )


class InterfacePacker(Packer):
    """An array whose CUDA array interface names the stream that its library works on."""

    buffers = 1
    lasting = False

    def __init__(self, device: DeviceCore) -> None:
        self._placeholder = device.placeholder
        # A new partial for each packer: packers with the same function are treated as being on the same stream.
        self.streams = (partial(_stream_of),)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.__cuda_array_interface__["data"][0])
        buffers.append(self._placeholder)


class CapsulePacker(Packer):
    """An array for which DLPack makes the device's own queue wait for its library's work."""

    buffers = 1
    lasting = False
    returns = True

    def __init__(self, device: DeviceCore, sample: Memory) -> None:
        self._device = device
        self._strides = sample.strides

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        found = taken(self._device, value)
        if found.strides != self._strides:
            raise BindError(
                f"{class_in_words(value)} with strides {found.strides} instead of {self._strides} as before."
            )
        block.append(found.address)
        buffers.append(CallBuffer(self._device, found))

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        self._device.order.keep_until_done(buffers[0])


def _stream_of(value: Any) -> int:
    # Numba gives None for the default stream too, which waits for other streams as they wait for it.
    stream = value.__cuda_array_interface__.get("stream")
    return 0 if stream in (None, LEGACY) else int(stream)
