"""Arrays as arguments: NumPy arrays and device arrays, passed element by element, whole, as bytes, or as an address.

``bind`` decides which of these a parameter takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.bound import CONVERTED, EXACT, PROMOTED, Bound, fit_of
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.device_packers import ArrayPacker
from slangpy_rt.arguments.host_packers import HostCopyPacker, HostViewPacker
from slangpy_rt.arguments.nested_packers import ConvertedPacker
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.value_packers import ValuePacker
from slangpy_rt.arrays.layout import same_walk
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.bfloat16 import bits_of
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.dtypes import (
    BFLOAT16,
    NUMPY_OF,
    Storage,
    atomic_of,
    cast,
    convertible,
    holds_own_container,
    is_bfloat16,
    is_own_bfloat16,
    scalars_of,
    storage,
)
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.shapes import Shape, contiguous
from slangpy_rt.core.structs import as_struct_array, dtype_text
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import how_to_arrange, how_to_convert, in_words
from slangpy_rt.runtime.core import another

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

# Host values of up to this many scalars are stored in the argument block: two float4x4.
_MAX_VALUE_SCALARS = 32


def bind_array(
    where: str,
    device: DeviceCore,
    name: str,
    type_: SlangType,
    stored: Storage,
    access: str,
    value: Any,
    whole: bool = False,
) -> Bound:
    """Bind an array; ``whole`` if the function takes all of it, and so has to name the type that it holds."""
    check_scalars(where, device, stored)
    if not isinstance(value, NDBuffer):
        if type_ is BFLOAT16:
            return _bind_bits(where, device, name, type_, stored, access, value)
        if isinstance(value, np.ndarray) and is_bfloat16(value.dtype) and not whole:
            return _bind_host_bfloat16(where, device, name, type_, stored, access, value)
        return _bind_host(where, device, name, type_, stored, access, value)
    layout, inner = value.layout, stored.dims
    if layout.device is not device:
        raise BindError(f"{where} is on {another(layout.device, device)}; the module runs on {device!r}.")
    if layout.element is BFLOAT16 and whole and type_ is not BFLOAT16:
        raise BindError(
            f"{where} is {in_words(value)}, which functions take whole as 'Tensor<bfloat16, N>' and the like, and "
            f"element by element as float; '{type_.name}' was expected."
        )
    via = _widened(where, type_) if layout.element is BFLOAT16 and type_ is not BFLOAT16 else ""
    if via:
        stored = replace(stored, scalar=layout.scalar, dtype=layout.numpy_dtype)
    elif not _holds(layout.element, type_) or layout.numpy_dtype != stored.dtype:
        if type_.kind == layout.element.kind == "struct" and type_.name == layout.element.name:
            raise BindError(
                f"{where} is {in_words(value)} of another '{type_.name}': of before an edit, or of another module. "
                f"Make it anew with dtype={_as_dtype(type_)}."
            )
        converted = type_.kind in ("scalar", "vector", "matrix") and layout.element.shape == type_.shape
        convert = (
            f"Convert it, array.astype('{type_.name}'), or make it with dtype={_as_dtype(type_)}."
            if converted and access == "in" and isinstance(value, Tensor)
            else f"Make it with dtype={_as_dtype(type_)}, or convert it on the host with from_numpy(...)."
        )
        raise BindError(
            f"{where} is {in_words(value)}; '{type_.name}' was expected, and device data is not converted. {convert}"
        )
    outer = _split(where, type_, layout.full_shape, inner, value)
    strides = layout.strides[: len(outer)]
    # Of an array without elements PyTorch gives any strides.
    if inner and 0 not in outer and not same_walk(inner, layout.strides[len(outer) :], stored.step):
        raise BindError(f"{where} is a view whose '{type_.name}' elements have gaps; copy it first.")
    host = "tensor" if isinstance(value, Tensor) else "ndbuffer"
    return Bound(
        name, type_, stored.scalar, stored.count, access, "array", outer, strides, layout.aligned, host,
        ArrayPacker(), PROMOTED if via else EXACT, struct=stored.struct, via=via,
        own=layout.nbytes if layout.own else 0,
    )  # fmt: skip


def bind_bytes(where: str, scope: Scope, param: Param, value: Any) -> Bound:
    """Bind an array of any element type as bytes, for a ByteAddressBuffer."""
    type_, device = param.type, scope.device
    access = "inout" if type_.name.startswith("RW") else "in"
    if isinstance(value, NDBuffer):
        if value.device is not device:
            raise BindError(f"{where} is on {another(value.device, device)}; the module runs on {device!r}.")
        dense, nbytes, host = value.is_contiguous, value.nbytes, "tensor" if isinstance(value, Tensor) else "ndbuffer"
        packer: Packer = ArrayPacker()
    elif isinstance(value, np.ndarray):
        dense, nbytes, host = value.flags.c_contiguous, value.nbytes, "numpy"
        if access != "in" and not value.flags.writeable:
            raise BindError(f"{where} is {in_words(value)} and would be written to; pass a writable array.")
        shared = "zero_copy" in device.caps.features
        packer = HostViewPacker(device, np.asarray) if shared else HostCopyPacker(device, np.asarray, access, 0)
    else:
        raise BindError(f"{where} is {in_words(value)}; '{type_.name}' takes a Tensor, an NDBuffer or a NumPy array.")
    if not dense:
        raise BindError(f"{where} is a non-contiguous view; '{type_.name}' takes bytes that follow each other.")
    view = (nbytes,), (1,)
    return Bound(param.name, type_, "uint8_t", 1, access, "tensor", (), (), True, host, packer, view=view)


def bind_pointer(where: str, scope: Scope, param: Param, value: Any) -> Bound:
    """Bind an array's address, or a number that is one."""
    type_ = param.type
    assert type_.element is not None
    if "pointers" not in scope.device.caps.features:
        raise UnsupportedError(
            f"{where} is a pointer, which {scope.device.info} does not have; declare a RWTensor or a "
            "RWStructuredBuffer instead."
        )
    if isinstance(value, (bool, float)) or not isinstance(value, (NDBuffer, np.ndarray, int, np.integer)):
        raise BindError(f"{where} is {in_words(value)}; '{type_.name}' takes an array or an address.")
    if not isinstance(value, (NDBuffer, np.ndarray)):
        packer: Packer = ValuePacker(where, type_, "uint64_t")
        return Bound(param.name, type_, "pointer", 1, "in", "pointer", (), (), True, "", packer)
    element = element_of(scope, type_.element)
    stored = stored_as(where, element)
    kind = dtype_text(stored.dtype) if element is not BFLOAT16 else element.name
    fits = is_bfloat16 if element is BFLOAT16 else stored.dtype.__eq__
    if isinstance(value, np.ndarray) and not fits(value.dtype):
        raise BindError(f"{where} is {in_words(value)}; '{type_.name}' takes an array of {kind}.")
    access = "inout" if may_write(type_) else "in"
    bound = bind_array(where, scope.device, param.name, element, stored, access, value, whole=True)
    dense = value.layout.contiguous if isinstance(value, NDBuffer) else value.flags.c_contiguous
    if not dense:
        raise BindError(f"{where} is a non-contiguous view; '{type_.name}' takes elements that follow each other.")
    check_native(where, scope.device, element, f"'{type_.name}'")
    packer = bound.packer.in_device_memory() if isinstance(bound.packer, HostCopyPacker) else bound.packer
    return replace(bound, type=type_, mode="pointer", shape=(), strides=(), packer=packer)


def may_write(type_: SlangType) -> bool:
    """Return whether a kernel may write through a parameter of a type that takes a whole array or its address."""
    if type_.kind == "pointer":
        return access_of(type_) not in ("Read", "Immutable")
    found = container(type_)
    return type_.name == "RWByteAddressBuffer" if found is None else found[2]


def element_of(scope: Scope, type_: SlangType) -> SlangType:
    """Return the type of elements behind a parameter: with its fields, BFLOAT16 for our own, T for ``Atomic<T>``."""
    found = atomic_of(type_) or scope.struct(type_)
    return BFLOAT16 if is_own_bfloat16(found) else found


def access_of(type_: SlangType) -> str:
    """Return the access that a pointer's type allows: ``"ReadWrite"``, ``"Read"`` or ``"Immutable"``."""
    # The arguments of the pointer itself follow those of the type it points to: Ptr<Ptr<T, ...>, Access.Read, ...>.
    written = type_.name.endswith(">")
    return type_.name.rpartition("Access.")[2].partition(",")[0] if written else "ReadWrite"


def as_tensor(where: str, bound: Bound, type_: SlangType, rank: int) -> Bound:
    """Bind an array's last dimensions whole; the call runs along the dimensions before them.

    Arguments of mode ``"value"`` are refused, because a view needs an address.
    """
    if bound.mode != "array":
        raise BindError(f"{where} has no dimensions; '{type_.name}' takes an array.")
    packer = bound.packer.in_device_memory() if isinstance(bound.packer, HostCopyPacker) else bound.packer
    outer = len(bound.shape) - rank
    return replace(
        bound, type=type_, mode="tensor", packer=packer, shape=bound.shape[:outer], strides=bound.strides[:outer],
        view=(bound.shape[outer:], bound.strides[outer:]),
    )  # fmt: skip


def stored_as(where: str, type_: SlangType) -> Storage:
    found = storage(type_)
    if is_own_bfloat16(type_):
        raise UnsupportedError(
            f"{where}: '{type_.name}' is the type of elements of whole arrays; declare float, which takes and "
            "returns arrays of bfloat16 element by element."
        )
    if found is None and holds_own_container(type_):
        raise UnsupportedError(
            f"{where}: '{type_.name}' holds a whole array, and there are no arrays of such structs; pass one dict, "
            "whose other fields may be arrays that the call runs along."
        )
    if found is None:
        raise UnsupportedError(
            f"{where}: parameters of type '{type_.name}' are not supported; scalars, vectors, matrices, arrays, "
            "enums, structs of these, pointers, Tensor, RWTensor, NDBuffer, (RW)StructuredBuffer and "
            "(RW)ByteAddressBuffer are."
        )
    return found


def check_scalars(where: str, device: DeviceCore, stored: Storage) -> None:
    """Refuse a type that the device cannot load from memory; a struct, if that is so for one of its fields."""
    if not stored.struct:
        check_scalar(where, device, stored.scalar)
        return
    for scalar in sorted(scalars_of(stored.dtype)):
        check_scalar(where, device, scalar)


def check_scalar(where: str, device: DeviceCore, scalar: str) -> None:
    if scalar not in device.caps.scalars:
        raise UnsupportedError(f"{where}: {device.info} has no '{scalar}' in memory.")


def check_native(where: str, device: DeviceCore, element: SlangType, what: str) -> None:
    """Refuse a struct whose layout behind a pointer, in Slang's code for this device, differs from that in arrays."""
    target = device.backend.target
    for path, field in _scalars_of(element):
        odd = None
        if target.bool_bytes != 1 and field.scalar == "bool":
            odd = f"{target.bool_bytes} bytes"
        if target.aligned_vectors and field.shape:
            n, half = field.shape[-1], field.scalar == "half"
            if n in (2, 4) or half:
                odd = f"multiples of {4 if half else n * NUMPY_OF[field.scalar].itemsize} bytes"
        if odd:
            raise UnsupportedError(
                f"{where}: on {device.name}, {what} finds '{path}' of type '{field.name}' at {odd}, and arrays of "
                f"'{element.name}' keep it elsewhere; use scalars or vectors of 3, or pass the struct itself."
            )
    if target.fills_padding and (found := _in_padding(element)):
        raise UnsupportedError(
            f"{where}: on {device.name}, {what} finds '{found}' in the padding at the end of the struct before it, "
            f"and arrays of '{element.name}' keep it elsewhere; put fields in place of the padding, or pass the "
            "struct itself."
        )


def _widened(where: str, type_: SlangType) -> str:
    """Return the name of the Slang struct that loads and stores bfloat16 elements as ``type_``."""
    if type_.scalar != "float" or type_.kind not in ("scalar", "vector"):
        raise BindError(
            f"{where} is an array of bfloat16, which goes where functions take or return floats and vectors of "
            f"floats; '{type_.name}' was expected."
        )
    return "_spy_bfloat16" if type_.kind == "scalar" else f"_spy_bfloat16s<{type_.shape[0]}>"


def _holds(element: SlangType, type_: SlangType) -> bool:
    """Return whether an array of ``element`` can be bound as one of ``type_``, whose dimensions are its last ones."""
    if element.name == type_.name or (type_.kind == "array" and type_.element and _holds(element, type_.element)):
        return True
    return element.kind in ("scalar", "enum") and element.scalar == type_.scalar and type_ is not BFLOAT16


def _bind_host_bfloat16(
    where: str,
    device: DeviceCore,
    name: str,
    type_: SlangType,
    stored: Storage,
    access: str,
    value: npt.NDArray[Any],
) -> Bound:
    """Bind a NumPy array of ml_dtypes' bfloat16 by its bits; a single element converts as other numbers do."""
    if access == "in" and (value.ndim <= len(stored.dims) or type_.scalar != "float"):
        return _bind_host(where, device, name, type_, stored, access, value)
    via, narrow = _widened(where, type_), replace(stored, scalar=BFLOAT16.scalar, dtype=NUMPY_OF[BFLOAT16.scalar])
    bound = _bind_host(where, device, name, type_, narrow, access, _bits_of(value))
    return replace(bound, packer=ConvertedPacker(_bits_of, bound.packer, access != "in"), fit=PROMOTED, via=via)


def _bits_of(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return value.view(NUMPY_OF[BFLOAT16.scalar])


def _bind_bits(
    where: str, device: DeviceCore, name: str, type_: SlangType, stored: Storage, access: str, value: Any
) -> Bound:
    """Bind host data for a function that takes a whole array of bfloat16: it converts to what is only read."""
    if isinstance(value, np.ndarray) and is_bfloat16(value.dtype):
        bound = _bind_host(where, device, name, type_, stored, access, _bits_of(value))
        return replace(bound, packer=ConvertedPacker(_bits_of, bound.packer, access != "in"))
    if access != "in":
        raise BindError(f"{where} is {in_words(value)} and would be written to; pass an array of dtype bfloat16.")

    def convert(v: Any) -> npt.NDArray[Any]:
        return bits_of(where, as_array(where, v), listed=not isinstance(v, np.ndarray))

    bound = _bind_host(where, device, name, type_, stored, access, convert(value))
    return replace(bound, packer=ConvertedPacker(convert, bound.packer, False), fit=CONVERTED)


def _bind_host(
    where: str,
    device: DeviceCore,
    name: str,
    type_: SlangType,
    stored: Storage,
    access: str,
    value: Any,
) -> Bound:
    """Bind host data: a NumPy array, or a list or tuple that converts to one."""
    scalar, inner, dtype = stored.scalar, stored.dims, stored.dtype
    is_array = isinstance(value, np.ndarray)
    array = as_array(where, value)
    convert: Callable[[Any], npt.NDArray[Any]]
    if stored.struct and array.dtype.names is not None and access == "in" and array.dtype != dtype:
        as_struct_array(where, dtype, array)

        def convert(v: Any) -> npt.NDArray[Any]:
            return as_struct_array(where, dtype, v)
    else:
        _check_dtype(where, type_, dtype, access, array, is_array, value)

        def convert(v: Any) -> npt.NDArray[Any]:
            v = np.asarray(v)
            return np.asarray(v, None, "C") if v.dtype is dtype else cast(where, type_.name, v, dtype, not is_array)

    if access != "in" and not (is_array and array.flags.writeable):
        raise BindError(f"{where} is {in_words(value)} and would be written to; pass a writable array.")
    outer = _split(where, type_, array.shape, inner, value)
    alike = array.dtype if is_array else _list_dtype(array.dtype)
    fit = fit_of(alike, dtype)
    own_type = getattr(value, "slang_type", None)
    host = "numpy" if is_array and own_type is None else ""
    if not outer and access == "in" and stored.count <= _MAX_VALUE_SCALARS and not stored.struct:
        packer: Packer = ValuePacker(where, type_, scalar)
        return Bound(name, type_, scalar, stored.count, access, "value", (), (), True, host, packer, fit)
    shared = "zero_copy" in device.caps.features
    own = _usable_strides(array, stored, len(outer)) if shared and is_array else None
    strides = (contiguous(array.shape, stored.step) if own is None else own)[: len(outer)]
    if shared and (own is not None or access == "in"):
        packer = HostViewPacker(device, np.asarray if own is not None else convert)
    else:
        # Devices in host memory copy only arrays whose elements have gaps inside, such as float3 in Fortran order.
        as_it_is = (
            not shared and is_array and array.dtype == dtype and array.dtype.isnative and array.flags.c_contiguous
        )
        packer = HostCopyPacker(device, np.asarray if as_it_is else convert, access)
    return Bound(
        name, type_, scalar, stored.count, access, "array", outer, strides, True, host, packer, fit,
        struct=stored.struct,
    )  # fmt: skip


def _usable_strides(array: npt.NDArray[Any], stored: Storage, outer: int) -> Shape | None:
    """Return the strides, in scalars, of a host array that kernels can use where it lies; None if they cannot."""
    dtype = stored.dtype
    if array.dtype != dtype or not array.dtype.isnative or not array.flags.aligned:
        return None
    if [s for s in array.strides if s % dtype.alignment]:
        return None
    # NumPy gives an empty array strides of 0.
    if not array.size:
        return contiguous(array.shape, stored.step)
    unit = NUMPY_OF[stored.scalar].itemsize
    own = tuple([s // unit for s in array.strides])
    return own if outer == len(own) or same_walk(stored.dims, own[outer:], stored.step) else None


def _check_dtype(
    where: str,
    type_: SlangType,
    dtype: np.dtype[Any],
    access: str,
    array: npt.NDArray[Any],
    is_array: bool,
    value: Any,
) -> None:
    if access != "in":
        if array.dtype != dtype:
            name = dtype.name if dtype.names is None else dtype_text(dtype)
            raise BindError(
                f"{where} is {in_words(value)}, which does not convert to '{type_.name}'; it must be an array of "
                f"dtype {name}."
            )
        return
    if not is_array and array.dtype.kind in "iu" and dtype.kind in "iu":
        # Refused here and not by the packer, so that an overload of a wider type takes the list.
        cast(where, type_.name, array, dtype, listed=True)
        return
    fine = array.dtype == dtype
    if not fine and dtype.names is None:
        fine = convertible(array.dtype, dtype) or (not is_array and not array.size)
    if not fine:
        if dtype.names is not None:
            how = f"pass a structured array with the fields {', '.join(dtype.names)}"
        else:
            how = how_to_convert(array.dtype, dtype, is_array)
        raise BindError(f"{where} is {in_words(value)}, which does not convert to '{type_.name}'; {how}.")


def _split(where: str, type_: SlangType, shape: Shape, inner: Shape, value: Any) -> Shape:
    """Return the dimensions of an array before those of its elements; the call runs along them."""
    outer = shape[: len(shape) - len(inner)] if len(inner) <= len(shape) else None
    if outer is None or shape[len(outer) :] != inner:
        told = value.summary if isinstance(value, NDBuffer) else value
        raise BindError(
            f"{where} is {in_words(told)}; '{type_.name}' needs the last dimension{'s' if len(inner) > 1 else ''} "
            f"to be {' x '.join(map(str, inner))}.{how_to_arrange(shape, inner)}"
        )
    return outer


def _list_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype by which a list of Python numbers is ranked among overloads: int or float of 32 bits."""
    return np.dtype({"i": "i4", "f": "f4"}.get(dtype.kind, dtype))


def _scalars_of(type_: SlangType, path: str = "") -> list[tuple[str, SlangType]]:
    if type_.kind == "struct":
        return [pair for f in type_.fields for pair in _scalars_of(f.type, f"{path}.{f.name}".lstrip("."))]
    if type_.kind == "array" and type_.element is not None:
        return _scalars_of(type_.element, path)
    return [(path, type_)] if path else []


def _in_padding(type_: SlangType) -> str:
    """Return the path of the first field that would lie elsewhere if structs ended with their last field."""
    stored = storage(type_)
    return _filled(type_, stored.dtype, "")[0] if stored is not None else ""


def _filled(type_: SlangType, dtype: np.dtype[Any], path: str) -> tuple[str, int]:
    """Return that path, and the bytes of the type up to the end of its last field."""
    if type_.kind == "array" and type_.element is not None:
        item, dims = dtype.subdtype or (dtype, ())
        inner = np.dtype((item, dims[1:])) if len(dims) > 1 else item
        found, size = _filled(type_.element, inner, path)
        return found, inner.itemsize * (type_.shape[0] - 1) + size
    if type_.kind != "struct":
        return "", dtype.itemsize
    assert dtype.fields is not None
    end = 0
    for field in type_.fields:
        inner, offset = dtype.fields[field.name][:2]
        name = f"{path}.{field.name}".lstrip(".")
        alignment = (inner.base if inner.subdtype else inner).alignment
        if -(-end // alignment) * alignment != offset:
            return name, 0
        found, size = _filled(field.type, inner, name)
        if found:
            return found, 0
        end = offset + size
    return "", end


def _as_dtype(type_: SlangType) -> str:
    return f"module.{type_.name}" if type_.kind == "struct" else repr(type_.name)
