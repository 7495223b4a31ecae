"""Arguments: which Python values fit which Slang parameters, and how each reaches the kernel.

``signature`` tells calls apart, ``bind`` decides once for a signature, a ``Feed`` moves the value at every
call. Nothing here knows of other arguments; what they have to agree on is decided in ``plan``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.backends.base import Buffer
from slangpy_rt.broadcast import contiguous
from slangpy_rt.dtypes import NUMPY_OF, SLANG_OF, convertible, flatten
from slangpy_rt.errors import BindError, UnsupportedError
from slangpy_rt.layout import same_walk
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.tensor import Tensor
from slangpy_rt.types import Param, SlangType

if TYPE_CHECKING:
    from slangpy_rt.device import Device

Shape = tuple[int, ...]
ARRAYS = frozenset({Tensor, NDBuffer})

# Host values up to this many scalars travel in the argument block: two float4x4.
_MAX_VALUE_SCALARS = 32


@dataclass(frozen=True)
class call_id:
    """Stands for the index of the current element in the call's shape.

    An ``int`` parameter takes it in calls of one dimension, ``int2`` in two, ``int3`` in three. As in
    textures, ``x`` counts the last dimension.
    """


@dataclass(frozen=True)
class grid:
    """Like ``call_id``, and gives the call its shape.

    Parameters
    ----------
    shape : tuple of int
        The call's dimensions, the slowest first.
    """

    shape: Shape

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        items = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if not items or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in items):
            raise BindError(f"grid: a shape is made of whole numbers of at least 0, not {shape!r}.")
        object.__setattr__(self, "shape", tuple(int(n) for n in items))


class Feed(ABC):
    """Moves one argument's value into the block of a call."""

    @abstractmethod
    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        """Append what the block packs for this argument, and the buffers that the kernel touches."""

    def finish(self, value: Any, buffer: Buffer) -> None:  # noqa: B027 - most have nothing to bring back
        """Bring back what the kernel wrote, for host arrays on devices with memory of their own."""


class ArrayFeed(Feed):
    """A Tensor or NDBuffer: its address."""

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.address)
        buffers.append(value.buffer)


class IndexFeed(Feed):
    """call_id and grid: nothing; the kernel knows."""

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        pass


class ValueFeed(Feed):
    """A scalar, vector or matrix: its scalars, in the block itself."""

    def __init__(self, where: str, type_: SlangType, scalar: str, count: int) -> None:
        self._where = where
        self._type = type_
        self._scalar = scalar
        self._count = count
        dtype = NUMPY_OF[scalar]
        self._bounds = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else None

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        scalars = [value] if type(value) in _NUMBERS else np.asarray(value).ravel().tolist()
        for x in scalars:
            if self._bounds is not None and not self._bounds[0] <= x <= self._bounds[1]:
                raise BindError(
                    f"{self._where} is {x}, which does not fit '{self._type.name}' "
                    f"({self._bounds[0]} to {self._bounds[1]})."
                )
        block += scalars


class HostViewFeed(Feed):
    """A NumPy array used in place, on a device that shares the host's memory."""

    def __init__(self, device: Device, dtype: npt.DTypeLike, convert: bool) -> None:
        self._wrap = device.backend.wrap
        self._dtype = dtype
        self._convert = convert

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        array = np.ascontiguousarray(value, self._dtype) if self._convert else value
        address = array.__array_interface__["data"][0]
        buffer = self._wrap(address, array.nbytes, array)
        assert buffer is not None
        block.append(address)
        buffers.append(buffer)


class HostCopyFeed(Feed):
    """A NumPy array copied to the device for the call, and back if the kernel writes it."""

    def __init__(self, device: Device, dtype: npt.DTypeLike, access: str) -> None:
        self._device = device
        self._dtype = dtype
        self._access = access

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        array = np.ascontiguousarray(value, self._dtype)
        buffer = self._device.alloc(array.nbytes)
        if self._access != "out":
            self._device.upload(buffer, buffer.address, array)
        block.append(buffer.address)
        buffers.append(buffer)

    def finish(self, value: Any, buffer: Buffer) -> None:
        if self._access == "in":
            return
        if value.flags.c_contiguous:
            self._device.download(buffer, buffer.address, value)
        else:
            host = np.empty(value.shape, value.dtype)
            self._device.download(buffer, buffer.address, host)
            value[...] = host


@dataclass(frozen=True)
class Bound:
    """An argument with every question of its own answered.

    Attributes
    ----------
    mode : str
        ``"value"``, ``"array"`` (elementwise), ``"tensor"`` (whole) or ``"index"``.
    shape, strides : tuple of int
        Call dimensions of an array, strides in scalars; of a tensor those of the view.
    host : str
        What kind of result it asks for: ``"tensor"``, ``"ndbuffer"``, ``"numpy"`` or ``""``.
    """

    name: str
    type: SlangType
    scalar: str
    count: int
    access: str
    mode: str
    shape: Shape
    strides: Shape
    aligned: bool
    host: str
    feed: Feed


def signature(value: Any) -> Any:
    """A hashable value that is equal for arguments which one prepared call can serve."""
    sign = _SIGNERS.get(type(value))
    if sign is not None:
        return sign(value)
    if isinstance(value, NDBuffer):
        return value.layout
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, type):
        return value
    # Subclasses of what is accepted: numpy.memmap, named tuples, floats with a unit.
    for base in (np.ndarray, list, tuple, float, int):
        if isinstance(value, base):
            return type(value), _SIGNERS[base](value)
    return _refused()


def bind(where: str, device: Device, param: Param, value: Any) -> Bound:
    """Fit a value to a parameter.

    Parameters
    ----------
    where : str
        ``"add(float a, float b): argument 'a'"``, the start of every message.

    Raises
    ------
    BindError
        If it does not fit.
    UnsupportedError
        If the parameter's type, or the device, has no way to take it.
    """
    type_ = param.type
    if isinstance(value, (call_id, grid)):
        return _bind_index(where, param, value)
    container = _container(type_)
    if container is not None:
        element, rank, writable = container
        flat = _flat(where, element)
        bound = _bind_array(where, device, param.name, element, flat, "inout" if writable else "in", value)
        if len(bound.shape) != rank:
            raise BindError(
                f"{where} has {len(bound.shape)} dimensions of '{element.name}'; '{type_.name}' takes {rank}."
            )
        return _as_tensor(bound, type_)
    flat = _flat(where, type_)
    if isinstance(value, (NDBuffer, np.ndarray, list, tuple)):
        return _bind_array(where, device, param.name, type_, flat, param.direction, value)
    if param.direction != "in":
        raise BindError(
            f"{where} is '{param.direction}' and would be written to; pass an array instead of {value!r}."
        )
    return _bind_scalar(where, device, param.name, type_, flat, value)


def bind_result(where: str, device: Device, type_: SlangType, value: Any) -> Bound:
    """Fit an array given as ``_result`` to the function's return type."""
    if not isinstance(value, (NDBuffer, np.ndarray)):
        raise BindError(f"{where}: pass a Tensor, an NDBuffer, a NumPy array, or one of their types, not {value!r}.")
    return _bind_array(where, device, "_result", type_, _flat(where, type_), "out", value)


def _bind_index(where: str, param: Param, value: Any) -> Bound:
    type_ = param.type
    rank = type_.shape[0] if type_.kind == "vector" else 1
    if type_.scalar not in ("int", "uint") or type_.kind not in ("scalar", "vector") or param.direction != "in":
        raise BindError(f"{where} is an index; it takes an 'int', 'int2', 'int3' parameter, not '{type_.name}'.")
    shape: Shape = ()
    if isinstance(value, grid):
        shape = value.shape
        if len(shape) != rank:
            raise BindError(f"{where} is {value!r} of {len(shape)} dimensions; '{type_.name}' counts {rank}.")
    return Bound(
        param.name, type_, type_.scalar, rank, "in", "index", shape, contiguous(shape), True, "", IndexFeed()
    )


def _bind_scalar(
    where: str, device: Device, name: str, type_: SlangType, flat: tuple[str, Shape], value: Any
) -> Bound:
    scalar, inner = flat
    source = value.dtype if isinstance(value, np.generic) else np.dtype(type(value))
    # A Python number has no width of its own: 3 fits a uint8_t, 0.5 a half.
    kinds = {"f": "iufb", "i": "iub", "u": "iub", "b": "b"}[NUMPY_OF[scalar].kind]
    if source.kind not in kinds:
        raise BindError(
            f"{where} is {value!r} of type {type(value).__name__}, which does not convert to '{type_.name}'."
        )
    if type_.kind == "array":
        raise BindError(f"{where} is {value!r}; '{type_.name}' takes {inner[0]} values in a list or an array.")
    count = int(np.prod(inner, dtype=int))
    if count == 1:
        feed: Feed = ValueFeed(where, type_, scalar, 1)
    else:
        feed = _SplatFeed(where, type_, scalar, count)
    _check_scalar(where, device, scalar)
    return Bound(name, type_, scalar, count, "in", "value", (), (), True, "", feed)


class _SplatFeed(ValueFeed):
    """One number for every scalar of a vector or matrix, as Slang converts it."""

    def feed(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        super().feed(np.full(self._count, value), block, buffers)


def _bind_array(
    where: str,
    device: Device,
    name: str,
    type_: SlangType,
    flat: tuple[str, Shape],
    access: str,
    value: Any,
) -> Bound:
    scalar, inner = flat
    count = int(np.prod(inner, dtype=int))
    _check_scalar(where, device, scalar)
    if isinstance(value, NDBuffer):
        layout = value.layout
        if layout.device is not device:
            raise BindError(f"{where} lives on {layout.device!r}; the module runs on {device!r}.")
        if layout.scalar != scalar or (layout.element.shape and layout.element.shape != inner):
            raise BindError(
                f"{where} is a {value.summary}; '{type_.name}' was expected, and device data is not converted. "
                f"Make it with dtype='{type_.name}', or convert it on the host with from_numpy(...)."
            )
        outer = _split(where, type_, layout.full_shape, inner, value.summary)
        strides = layout.strides[: len(outer)]
        if not same_walk(inner, layout.strides[len(outer) :]):
            raise BindError(f"{where} is a view whose '{type_.name}' elements have gaps; copy it first.")
        host = "tensor" if isinstance(value, Tensor) else "ndbuffer"
        return Bound(name, type_, scalar, count, access, "array", outer, strides, layout.aligned, host, ArrayFeed())
    return _bind_host(where, device, name, type_, flat, access, value)


def _bind_host(
    where: str,
    device: Device,
    name: str,
    type_: SlangType,
    flat: tuple[str, Shape],
    access: str,
    value: Any,
) -> Bound:
    """Host data: an array, or a list or tuple that makes one."""
    scalar, inner = flat
    count = int(np.prod(inner, dtype=int))
    is_array = isinstance(value, np.ndarray)
    # Not by its class: numpy.ma takes 15 ms to import.
    if is_array and hasattr(value, "mask"):
        raise BindError(f"{where} is a masked array, and Slang knows no masks; pass array.filled(value).")
    try:
        array = np.asarray(value)
    except ValueError:
        raise BindError(f"{where} is a list with rows of different lengths: {value!r}.") from None
    what = f"an array of dtype {array.dtype} and shape {array.shape}" if is_array else f"{value!r}"
    dtype = NUMPY_OF[scalar]
    ok = (
        array.dtype == dtype
        if access != "in"
        else convertible(array.dtype, dtype) or (not is_array and _list_fits(array, dtype))
    )
    if not ok:
        if access != "in":
            how = f"it must be an array of dtype {dtype.name}"
        else:
            how = f"pass array.astype(numpy.{dtype.name})" if is_array else f"make it an array of dtype {dtype.name}"
        raise BindError(f"{where} is {what}, which does not convert to '{type_.name}'; {how}.")
    if access != "in" and not (is_array and array.flags.writeable):
        raise BindError(f"{where} is {what} and would be written to; pass a writable array.")
    outer = _split(where, type_, array.shape, inner, what)
    host = "numpy" if is_array else ""
    if not outer and access == "in" and count <= _MAX_VALUE_SCALARS:
        feed: Feed = ValueFeed(where, type_, scalar, count)
        return Bound(name, type_, scalar, count, access, "value", (), (), True, host, feed)
    dense = contiguous(array.shape)
    if "zero_copy" not in device.caps.features:
        feed = HostCopyFeed(device, dtype, access)
        return Bound(name, type_, scalar, count, access, "array", outer, dense[: len(outer)], True, host, feed)
    item = array.itemsize
    # NumPy gives an empty array strides of 0.
    own = tuple(s // item for s in array.strides) if array.size else dense
    usable = (
        array.dtype == dtype
        and array.dtype.isnative
        and all(s % item == 0 for s in array.strides)
        and array.__array_interface__["data"][0] % item == 0
        and same_walk(inner, own[len(outer) :])
        and is_array
    )
    if not usable and access != "in":
        raise BindError(f"{where} is {what}, whose elements do not lie on '{scalar}' boundaries; copy it first.")
    strides = own if usable else dense
    feed = HostViewFeed(device, dtype, not usable)
    return Bound(name, type_, scalar, count, access, "array", outer, strides[: len(outer)], True, host, feed)


def _as_tensor(bound: Bound, type_: SlangType) -> Bound:
    """An array argument handed over whole; a value becomes impossible, because a view needs an address."""
    if bound.mode != "array":
        raise BindError(f"argument '{bound.name}': '{type_.name}' takes an array with dimensions.")
    return Bound(
        bound.name, type_, bound.scalar, bound.count, bound.access, "tensor", bound.shape, bound.strides,
        bound.aligned, bound.host, bound.feed,
    )  # fmt: skip


def _container(type_: SlangType) -> tuple[SlangType, int, bool] | None:
    """Element, rank and writability of a parameter that takes a whole array."""
    head = type_.name.partition("<")[0]
    if type_.kind != "struct" or head not in ("Tensor", "RWTensor", "NDBuffer") or len(type_.arguments) != 2:
        return None
    element, rank = type_.arguments
    assert isinstance(element, SlangType) and isinstance(rank, int), type_
    return element, rank, head != "Tensor"


def _flat(where: str, type_: SlangType) -> tuple[str, Shape]:
    flat = flatten(type_)
    if flat is None:
        raise UnsupportedError(
            f"{where}: parameters of type '{type_.name}' are not supported; scalars, vectors, matrices, arrays "
            "of scalars, Tensor, RWTensor and NDBuffer are."
        )
    return flat


def _split(where: str, type_: SlangType, shape: Shape, inner: Shape, what: str) -> Shape:
    """The call dimensions of an array's shape, once the element's own are taken off its end."""
    outer = shape[: len(shape) - len(inner)] if len(inner) <= len(shape) else None
    if outer is None or shape[len(outer) :] != inner:
        raise BindError(
            f"{where} is {what}; '{type_.name}' needs the last dimension{'s' if len(inner) > 1 else ''} to be "
            f"{' x '.join(map(str, inner))}."
        )
    return outer


def _check_scalar(where: str, device: Device, scalar: str) -> None:
    if scalar not in device.caps.scalars:
        raise UnsupportedError(f"{where}: {device.info} has no '{scalar}' in memory.")


def _list_fits(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whole numbers in a list have no width: they fit an integer type that holds each of them."""
    if array.dtype.kind not in "iu" or dtype.kind not in "iu" or array.size == 0:
        return array.size == 0
    bounds = np.iinfo(dtype)
    return bool(bounds.min <= int(array.min()) and int(array.max()) <= bounds.max)


def _refused() -> Any:
    """A signature like no other: no prepared call has it, and ``bind`` says what is wrong with the value."""
    return object()


def _sign_array(value: npt.NDArray[Any]) -> Any:
    address = value.__array_interface__["data"][0] if value.size else 0
    return (np.ndarray, value.dtype, value.shape, value.strides, value.flags.writeable, address % 8)


def _sign_sequence(value: Any) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:
        return _refused()
    if array.dtype not in SLANG_OF:
        return _refused()
    if array.dtype.kind not in "iu" or array.size == 0:
        return ("list", array.dtype, array.shape)
    # Whole numbers in a list have no width: what tells calls apart is which integer types hold them all.
    low, high = int(array.min()), int(array.max())
    fits = tuple(low >= np.iinfo(d).min and high <= np.iinfo(d).max for d in SLANG_OF if d.kind in "iu")
    return ("list", array.dtype, array.shape, fits)


def _sign_text(value: str) -> Any:
    # Not itself: a key of keyword arguments ends in their names.
    return "str", value


def _itself(value: Any) -> Any:
    return value


_NUMBERS = frozenset({int, float, bool})
_SIGNERS: dict[type, Callable[[Any], Any]] = {
    float: type,
    int: type,
    bool: type,
    type(None): _itself,
    str: _sign_text,
    call_id: _itself,
    grid: _itself,
    np.ndarray: _sign_array,
    list: _sign_sequence,
    tuple: _sign_sequence,
}
