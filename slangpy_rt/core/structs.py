"""Structs on the host: NumPy's structured arrays, filled from a user's data and turned into Python values.

Functions here take values of NumPy and Python; none knows devices or Slang.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.dtypes import cast, convertible
from slangpy_rt.core.errors import BindError, ShapeError

Array = npt.NDArray[Any]


def fill_struct_array(where: str, shape: tuple[int, ...], dtype: np.dtype[Any], source: Array) -> Array:
    """Return a structured array of a shape, filled from another one by field names, or from scalars in field order.

    Raises
    ------
    BindError
        If the fields differ in name, or do not convert.
    ShapeError
        If flat data does not have as many scalars.
    """
    if source.dtype.names is not None:
        return as_struct_array(where, dtype, source)
    columns = leaves(dtype)
    needed = scalar_count(dtype)
    if source.shape not in ((prod(shape) * needed,), (*shape, needed)):
        raise ShapeError(
            f"{where}: data of shape {source.shape} does not fill structs of shape {shape}, which hold "
            f"{needed} scalars each: {', '.join('.'.join(path) for path, _, _ in columns)}."
        )
    for path, scalar, _ in columns:
        if not convertible(source.dtype, scalar):
            raise BindError(
                f"{where}: data of dtype {source.dtype} does not convert to {scalar} of {'.'.join(path)}."
            )
    out = np.zeros(shape, dtype)
    _fill_fields(where, out, np.ascontiguousarray(source).reshape(*shape, needed), "")
    return out


def as_struct_array(where: str, dtype: np.dtype[Any], source: Array) -> Array:
    """Return a structured array as another structured dtype, field by field by name.

    Raises
    ------
    BindError
        If the fields differ in name or dimensions, or do not convert.
    """
    out = np.zeros(source.shape, dtype)
    _copy_fields(where, out, source, "")
    return out


def scalar_count(dtype: np.dtype[Any]) -> int:
    """Return how many scalars one struct has."""
    return sum(prod(dims) for _, _, dims in leaves(dtype))


def leaves(dtype: np.dtype[Any]) -> list[tuple[tuple[str, ...], np.dtype[Any], tuple[int, ...]]]:
    """Return the path, scalar and dimensions of every field that is no struct."""
    found: list[tuple[tuple[str, ...], np.dtype[Any], tuple[int, ...]]] = []
    for name in dtype.names or ():
        base, dims = _base(dtype[name])
        if base.names is None:
            found.append(((name,), base, dims))
        else:
            found += [((name, *path), scalar, dims + inner) for path, scalar, inner in leaves(base)]
    return found


def to_python(value: Any) -> Any:
    """Return a structured scalar as a dict, an array of structs as a list, and a NumPy number as a Python number.

    Fields are treated likewise. Arrays of numbers stay arrays.
    """
    if isinstance(value, np.ndarray) and value.dtype.names is not None and value.ndim:
        return [to_python(item) for item in value]
    if value.dtype.names is not None:
        item = value[()]
        return {name: to_python(np.asarray(item[name])) for name in value.dtype.names}
    return value.item() if value.ndim == 0 else value


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as Python code that makes it, structs as ``align=True`` lays them out."""
    if dtype.names is None:
        return f"'{dtype.name}'"
    fields = []
    for name in dtype.names:
        base, dims = _base(dtype[name])
        fields.append(f"('{name}', {dtype_text(base)}{f', {dims}' if dims else ''})")
    return f"numpy.dtype([{', '.join(fields)}], align=True)"


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """Return the fields by name of a dict, a dataclass, a named tuple or a structured scalar; None for others."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if hasattr(type(value), "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in type(value).__dataclass_fields__}
    if isinstance(value, np.void) and value.dtype.names is not None:
        return {name: value[name] for name in value.dtype.names}
    return None


def _fill_fields(where: str, out: Array, flat: Array, path: str) -> int:
    """Set the fields of structs from their scalars, which come last in ``flat``; return how many were used."""
    at = 0
    for name in out.dtype.names or ():
        inner = f"{path}.{name}" if path else name
        base, dims = _base(out.dtype[name])
        if base.names is None:
            scalars = flat[..., at : at + prod(dims)].reshape(out.shape + dims)
            out[name][...] = cast(f"{where}: {inner}", base.name, scalars, base)
            at += prod(dims)
            continue
        for place in np.ndindex(*dims):
            at += _fill_fields(where, out[name][(..., *place)], flat[..., at:], inner)
    return at


def _copy_fields(where: str, out: Array, source: Array, path: str) -> None:
    names, given = out.dtype.names or (), source.dtype.names or ()
    missing, extra = [n for n in names if n not in given], [n for n in given if n not in names]
    if missing or extra:
        told = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)}, which the struct has not"
        raise BindError(f"{where}: the structured data{path and f' of {path}'} {told}; expected {', '.join(names)}.")
    for name in names:
        inner = f"{path}.{name}" if path else name
        to, of = out[name], source[name]
        if (to.dtype.names is None) != (of.dtype.names is None) or to.shape != of.shape:
            raise BindError(f"{where}: field {inner} is {source.dtype[name]}; {out.dtype[name]} was expected.")
        if to.dtype.names is not None:
            _copy_fields(where, to, of, inner)
        elif convertible(of.dtype, to.dtype):
            to[...] = cast(f"{where}: field {inner}", to.dtype.name, of, to.dtype)
        else:
            raise BindError(f"{where}: field {inner} of dtype {of.dtype} does not convert to {to.dtype}.")


def _base(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    return dtype.subdtype or (dtype, ())
