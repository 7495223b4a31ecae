"""Arrays of other libraries by protocol: DLPack and the CUDA array interface, in host memory or on a CUDA GPU.

On a GPU, a call runs on the stream that the array names in its interface, as CuPy's and Numba's do. Where it names
none, as JAX's, its library lets the device's own queue wait until it is ready, and the array is kept until the call
is done with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.errors import BindError
from slangpy_rt.feeds import Feed
from slangpy_rt.interop.memory import (
    HOST,
    LEGACY,
    KeptBuffer,
    as_numpy,
    described,
    interface_of,
    memory_of,
    place_of,
    taken,
)
from slangpy_rt.tensor import Tensor

if TYPE_CHECKING:
    from slangpy_rt.device import Device


class Foreign:
    """What values of one type of another library are to a call."""

    def on(self, device: Device, value: Any) -> Any:
        """A NumPy array, or a Tensor of the device that the array lies on, in the same memory.

        Raises
        ------
        BindError
            If its memory cannot be had, or the device does not work there.
        """
        if _place(value)[0] in HOST:
            return as_numpy(value)
        found = memory_of(device, value)
        layout = device.layout(Tensor, found.element, found.shape, found.strides, found.address % 32 == 0)
        return Tensor.of(layout, device.guest, found.address)

    def signature(self, value: Any) -> Any:
        """What tells calls apart; like no other for what ``on`` refuses, which knows how to say it."""
        try:
            kind, index = _place(value)
            array = as_numpy(value) if kind in HOST else None
        except BindError:
            return object()
        if array is not None:
            return type(value), array.dtype, array.shape, array.strides, array.flags.writeable, array.flags.aligned
        told = interface_of(value)
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
        if place_of(value)[0] in HOST:
            return None
        told = interface_of(value)
        read_only = told["data"][1] if told is not None else False
        if access != "in" and (read_only or type(value).__module__.partition(".")[0] in ("jax", "jaxlib")):
            raise BindError(f"{described(value)} that must not be changed, and would be written to.")
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
        found = taken(self._device, value)
        block.append(found.address)
        buffers.append(KeptBuffer(self._device, found))

    def finish(self, value: Any, buffers: Sequence[Buffer]) -> None:
        order = self._device.order
        with order.lock:
            for lane in order.lanes:
                lane.hold(buffers[0])


def _stream_of(value: Any) -> int:
    stream = value.__cuda_array_interface__["stream"]
    return 0 if stream == LEGACY else int(stream)


def _place(value: Any) -> tuple[int, int | None]:
    """``place_of`` an array that has a place: JAX's tracers have none, nor its arrays of several devices."""
    if not hasattr(value, "__dlpack_device__") and not hasattr(value, "__cuda_array_interface__"):
        raise BindError(
            f"{described(value)}, which has no values yet; within jax.jit, jax.grad and jax.vmap a call goes through "
            "jax.pure_callback."
        )
    try:
        return place_of(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise BindError(f"{described(value)}, whose memory DLPack cannot share ({error}).") from None
