"""Arrays of other libraries by protocol: DLPack and the CUDA array interface, in host memory or on a CUDA GPU.

On a GPU, a call runs on the stream that the array names in its interface, as CuPy's and Numba's do. Where it names
none, as JAX's, its library lets the device's own queue wait until it is ready, and the array is kept until the call
is done with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slangpy_rt.backends.base import Buffer
from slangpy_rt.dtypes import SLANG_OF, scalar_type
from slangpy_rt.errors import BindError
from slangpy_rt.feeds import Feed
from slangpy_rt.interop.dlpack import CUDA, Import
from slangpy_rt.tensor import Tensor

if TYPE_CHECKING:
    from slangpy_rt.device import Device

_HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory that the CPU reads
_MANAGED = 13  # kDLCUDAManaged
# What the interface calls the default streams: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
_LEGACY, _PER_THREAD = 1, 2


class Foreign:
    """What values of one type of another library are to a call."""

    def on(self, device: Device, value: Any) -> Any:
        """A NumPy array, or a Tensor of the device that the array lies on, in the same memory.

        Raises
        ------
        BindError
            If its memory cannot be had, or the device does not work there.
        """
        kind, index = _place(value)
        if kind in _HOST:
            return _as_numpy(value)
        if kind not in (CUDA, _MANAGED) or device.name != "cuda" or (index is not None and device.index != index):
            where = f"CUDA GPU {index}" if kind == CUDA else f"a device of DLPack's type {kind}"
            raise BindError(
                f"{_described(value)} on {where}; {device!r} does not work there; bring it to the host first."
            )
        typestr, shape, strides, address = _facts(device, value)
        dtype = np.dtype(typestr)
        if dtype not in SLANG_OF:
            raise BindError(f"{_described(value)} of dtype {dtype}; Slang has no such element type.")
        element = scalar_type(SLANG_OF[dtype])
        layout = device.layout(Tensor, element, shape, strides, address % 32 == 0)
        return Tensor.of(layout, device.guest, address)

    def signature(self, value: Any) -> Any:
        """What tells calls apart."""
        kind, index = _place(value)
        if kind in _HOST:
            array = _as_numpy(value)
            return type(value), array.dtype, array.shape, array.strides, array.flags.writeable, array.flags.aligned
        told = _interface(value)
        if told is None:
            return type(value), kind, index, getattr(value, "dtype", None), tuple(getattr(value, "shape", ()))
        place = told["data"][0] % 32, told["data"][1]
        return type(value), index, told["typestr"], told["shape"], told.get("strides"), *place

    def feed(self, device: Device, value: Any, access: str) -> Feed | None:
        """How it reaches the kernel; None for host memory.

        Raises
        ------
        BindError
            If it would be written to and must not be.
        """
        if _place(value)[0] in _HOST:
            return None
        told = _interface(value)
        read_only = told["data"][1] if told is not None else False
        if access != "in" and (read_only or type(value).__module__.partition(".")[0] in ("jax", "jaxlib")):
            raise BindError(f"{_described(value)} that must not be changed, and would be written to.")
        return InterfaceFeed(device) if told is not None and told.get("stream") is not None else CapsuleFeed(device)


class InterfaceFeed(Feed):
    """An array that names the stream on which it is worked on."""

    buffers = 1
    lasting = False

    def __init__(self, device: Device) -> None:
        self._guest = device.guest
        self.stream = _stream_of

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.__cuda_array_interface__["data"][0])
        buffers.append(self._guest)


class CapsuleFeed(Feed):
    """An array whose library orders its work for the device's own queue, by DLPack."""

    buffers = 1
    lasting = False
    returns = True

    def __init__(self, device: Device) -> None:
        self._device = device

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        taken = _taken(self._device, value)
        block.append(taken.address)
        buffers.append(KeptBuffer(self._device, taken))

    def finish(self, value: Any, buffers: Sequence[Buffer]) -> None:
        order = self._device.order
        with order.lock:
            for lane in order.lanes:
                lane.hold(buffers[0])


class KeptBuffer(Buffer):
    """Memory of another library that goes back to it with this object."""

    __slots__ = ("owner",)

    def __init__(self, device: Device, owner: Import) -> None:
        super().__init__(device.backend, owner.address, 0)
        self.owner = owner

    def __del__(self, _exiting: Any = None) -> None:
        """Nothing goes back to the device."""


def tensor_from(device: Device, value: Any) -> Tensor:
    """A Tensor in the memory of another library's array, which it keeps.

    The device's own queue waits for what that library does with the array at this moment. How later work of both is
    ordered is up to the caller.

    Raises
    ------
    BindError
        If the device does not work in that memory.
    """
    found = Foreign().on(device, value)
    if isinstance(found, np.ndarray):
        if "zero_copy" not in device.caps.features:
            raise BindError(f"{_described(value)} in host memory; copy it with Tensor.from_numpy(device, array).")
        buffer = device.backend.wrap(found.__array_interface__["data"][0], found.nbytes or 1, (found, value))
        assert buffer is not None
        unit = found.itemsize
        strides = tuple(s // unit for s in found.strides)
        layout = device.layout(Tensor, scalar_type(SLANG_OF[found.dtype]), found.shape, strides)
        return Tensor.of(layout, buffer, buffer.address)
    kept = KeptBuffer(device, _taken(device, value))
    made: Tensor = Tensor.of(found.layout, kept, kept.address)
    return made


def _taken(device: Device, value: Any) -> Import:
    """Its memory, once the device's own queue waits for what its library does there."""
    stream = device.backend.queue.handle or _LEGACY
    try:
        try:
            capsule = value.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:  # libraries from before version 1.0 take no max_version
            capsule = value.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise BindError(f"{_described(value)}, whose memory DLPack cannot share ({error}).") from None
    return Import(capsule)


def _facts(device: Device, value: Any) -> tuple[str, tuple[int, ...], tuple[int, ...] | None, int]:
    """Element type, shape, strides in elements (None if dense) and address."""
    told = _interface(value)
    if told is None:
        taken = _taken(device, value)
        return taken.typestr, taken.shape, taken.strides, taken.address
    unit = np.dtype(told["typestr"]).itemsize
    steps = told.get("strides")
    strides = None if steps is None else tuple(s // unit for s in steps)
    return told["typestr"], tuple(told["shape"]), strides, told["data"][0]


def _stream_of(value: Any) -> int:
    stream = value.__cuda_array_interface__["stream"]
    return 0 if stream == _LEGACY else int(stream)


def _interface(value: Any) -> dict[str, Any] | None:
    """Its CUDA array interface, if it has one that says all that a call has to know."""
    told = getattr(value, "__cuda_array_interface__", None)
    return told if told is not None and told.get("mask") is None and "stream" in told else None


def _place(value: Any) -> tuple[int, int | None]:
    """Where it lies, as DLPack says it: kind and number of the device."""
    if hasattr(value, "__dlpack_device__"):
        kind, index = value.__dlpack_device__()
        return int(kind), index
    return CUDA, None


def _as_numpy(value: Any) -> Any:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise BindError(
            f"{_described(value)}, which DLPack cannot share as host memory ({error}); bring it to the host first."
        ) from None


def _described(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"
