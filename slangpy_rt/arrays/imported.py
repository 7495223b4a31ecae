"""Memory of other libraries by DLPack and the CUDA array interface, in host memory or on a CUDA GPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.dlpack import CUDA, LEGACY, Import, bits_of_bfloat16
from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.extras import ZeroCopy
from slangpy_rt.core.conversion import DLPACK_ERRORS, check_memory, is_refusal
from slangpy_rt.core.conversion import as_numpy as as_numpy
from slangpy_rt.core.dtypes import BFLOAT16, SLANG_OF, scalar_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.shapes import is_whole
from slangpy_rt.core.wording import class_in_words, in_words

if TYPE_CHECKING:
    from slangpy_rt.core.types import SlangType
    from slangpy_rt.runtime.core import DeviceCore

HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory that the CPU reads
_MANAGED = 13  # kDLCUDAManaged


class Memory(NamedTuple):
    """Where an array of another library lies, and its element type, shape and strides in elements."""

    element: SlangType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    address: int


class CallBuffer(Buffer):
    """Memory of another library during one call. The call's queue keeps this object, which returns it when freed."""

    __slots__ = ("owner",)

    def __init__(self, device: DeviceCore, owner: Import) -> None:
        super().__init__(device.backend, owner.address, 0)
        self.owner = owner


class KeptBuffer(CallBuffer):
    """Memory of another library for a Tensor; it is returned once work queued in the Tensor's lifetime is done."""

    __slots__ = ("__weakref__", "_give")

    # A finalizer may run inside any other method, and cannot ask the driver which work is done.
    __del__ = finalizer("_give")

    def __init__(self, device: DeviceCore, owner: Import) -> None:
        super().__init__(device, owner)
        self._give = partial(device.order.left_over.append, owner)


def memory_of(device: DeviceCore, value: Any) -> Memory:
    """Return the memory of an array on a GPU.

    Raises
    ------
    BindError
        If the device cannot reach it, or Slang has no such element type.
    """
    told = _checked_interface(value)
    if told is None:
        _require_dlpack(value)
    kind, index = place_of(value)
    there = device.caps.dlpack_device == CUDA and index in (None, device.index)
    if kind not in (CUDA, _MANAGED) or not there:
        gpu = "a CUDA GPU" if index is None else f"CUDA GPU {index}"
        where = gpu if kind == CUDA else f"a device of DLPack's type {kind}"
        raise BindError(
            f"{class_in_words(value)} on {where}; {device!r} does not work there; bring it to the host first."
        )
    typestr, shape, strides, address = _facts(device, value, told)
    if typestr == "bfloat16":
        return Memory(BFLOAT16, shape, strides, address)
    dtype = np.dtype(typestr)
    if dtype not in SLANG_OF:
        raise BindError(f"{class_in_words(value)} of dtype {dtype}; Slang has no such element type.")
    return Memory(scalar_type(SLANG_OF[dtype]), shape, strides, address)


def kept_memory(device: DeviceCore, value: Any) -> tuple[Memory, Buffer]:
    """Return an array's memory, and a buffer that keeps it; the device's own queue waits until it is ready.

    Raises
    ------
    BindError
        If the device cannot reach it, Slang has no such element type, or the array must not be changed.
    """
    if not any(hasattr(type(value), name) for name in ("__dlpack__", "__cuda_array_interface__")):
        raise BindError(f"{in_words(value)} is no array of another library: it has no __dlpack__.")
    check_memory(value)
    if is_read_only(value):
        raise BindError(
            f"{class_in_words(value)} that must not be changed, as a Tensor may be; copy it with "
            "Tensor.from_numpy(device, numpy.asarray(array)). Calls take the array itself."
        )
    if place_of(value)[0] not in HOST:
        found = memory_of(device, value)
        kept = KeptBuffer(device, taken(device, value))
        device.order.share_foreign(kept, *kept.owner.extent)
        return found._replace(address=kept.address), kept
    array, element = _on_host(value)
    if not isinstance(device.backend, ZeroCopy):
        raise BindError(f"{class_in_words(value)} in host memory; copy it with Tensor.from_numpy(device, array).")
    if element is None:
        raise BindError(f"{class_in_words(value)} of dtype {array.dtype}; Slang has no such element type.")
    address = array.__array_interface__["data"][0]
    buffer = device.backend.wrap(address, array.nbytes or 1, (array, value))
    strides = tuple(s // array.itemsize for s in array.strides)
    return Memory(element, array.shape, strides, address), buffer


def _on_host(value: Any) -> tuple[npt.NDArray[Any], SlangType | None]:
    """Return an array in host memory as NumPy's, of bfloat16 as its bits, and Slang's type of its elements."""
    bits = bits_of_bfloat16(value) if "bfloat16" in str(getattr(value, "dtype", "")) else None
    if bits is not None:
        return bits, BFLOAT16
    array = as_numpy(value)
    return array, scalar_type(SLANG_OF[array.dtype]) if array.dtype in SLANG_OF else None


def taken(device: DeviceCore, value: Any) -> Import:
    """Take an array's memory by DLPack, after the device's own queue was made to wait for its library's work on it.

    Raises
    ------
    BindError
        If DLPack cannot share the memory.
    """
    _require_dlpack(value)
    check_memory(value)
    stream = device.backend.queue.handle or LEGACY
    try:
        try:
            capsule = value.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:  # libraries from before version 1.0 take no max_version
            capsule = value.__dlpack__(stream=stream)
    except DLPACK_ERRORS as error:
        if not is_refusal(value, error):
            raise
        raise BindError(f"{class_in_words(value)}, whose memory DLPack cannot share ({error}).") from None
    found = Import(capsule)
    order = device.order
    with order.lock:
        order.keep_until_done()
        if device.ordered:
            # The main queue now waits for more work, and queues that wait for the main queue have to wait for it too.
            order.order_use(order.main, (), ())
    return found


def _require_dlpack(value: Any) -> None:
    """Refuse an array without DLPack."""
    if not hasattr(value, "__dlpack__"):
        raise BindError(f"{class_in_words(value)}, which has no __dlpack__ to share its memory by.")


def _facts(
    device: DeviceCore, value: Any, told: dict[str, Any] | None
) -> tuple[str, tuple[int, ...], tuple[int, ...] | None, int]:
    """Return an array's element type, shape, strides in elements (None if dense) and address."""
    if told is None:
        found = taken(device, value)
        return found.typestr, found.shape, found.strides, found.address
    unit = np.dtype(told["typestr"]).itemsize
    steps = told.get("strides")
    strides = None if steps is None else tuple(s // unit for s in steps)
    return told["typestr"], tuple(told["shape"]), strides, told["data"][0]


def interface_of(value: Any) -> dict[str, Any] | None:
    """Return an array's CUDA array interface; None if it has none, or one that does not suffice for a call.

    A mask is not supported, and an interface without a stream is not used if there is DLPack.
    """
    told = getattr(value, "__cuda_array_interface__", None)
    if not isinstance(told, dict) or told.get("mask") is not None:
        return None
    # JAX's interface has no stream; its DLPack takes one.
    return told if "stream" in told or not hasattr(value, "__dlpack__") else None


def _checked_interface(value: Any) -> dict[str, Any] | None:
    """Return an array's CUDA array interface as ``interface_of`` does.

    Raises
    ------
    BindError
        If the attribute is no valid interface.
    """
    whole = getattr(value, "__cuda_array_interface__", None)
    if whole is None:
        return None
    if isinstance(whole, dict):
        shape, strides, data = whole.get("shape"), whole.get("strides"), whole.get("data")
        fine = (
            all(isinstance(n, tuple) and all(map(is_whole, n)) for n in (shape, () if strides is None else strides))
            and _is_dtype(whole.get("typestr"))
            and isinstance(data, tuple)
            and len(data) == 2
            and is_whole(data[0])
        )
        if fine:
            return interface_of(value)
    raise BindError(
        f"{class_in_words(value)}, whose __cuda_array_interface__ is {in_words(whole)}; a dict with shape, typestr "
        "and data was expected, as the CUDA array interface has them."
    )


def _is_dtype(text: Any) -> bool:
    try:
        return isinstance(text, str) and np.dtype(text) is not None
    except TypeError:
        return False


def place_of(value: Any) -> tuple[int, int | None]:
    """Return the DLPack device of an array: its type, and its number, or None if the array does not say.

    Raises
    ------
    BindError
        If it has no device: JAX's tracers have none, nor have its arrays on several devices.
    """
    if hasattr(value, "__dlpack_device__"):
        try:
            kind, index = value.__dlpack_device__()
        except DLPACK_ERRORS as error:
            if not is_refusal(value, error):
                raise
            raise BindError(f"{class_in_words(value)}, whose memory DLPack cannot share ({error}).") from None
        return int(kind), index
    if hasattr(value, "__cuda_array_interface__"):
        return CUDA, None
    if not hasattr(type(value), "__dlpack__"):
        # The class has this property, and reading it raises an AttributeError, which the caller gets unchanged.
        _ = value.__cuda_array_interface__
    raise BindError(
        f"{class_in_words(value)}, which has no values yet; within jax.jit, jax.grad and jax.vmap a call goes "
        "through jax.pure_callback."
    )


def is_read_only(value: Any) -> bool:
    """Tell whether an array says that it must not be changed; JAX's arrays never may be."""
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return True
    if place_of(value)[0] in HOST:
        return not _on_host(value)[0].flags.writeable
    told = _checked_interface(value)
    return told is not None and bool(told["data"][1])
