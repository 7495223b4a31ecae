"""What a call means, in NumPy alone: how an argument fits a parameter, and what a call then computes.

Written from the documented rules, so that the library can be held against it. It knows nothing of kernels,
layouts, devices or of the library's own code, from which it takes the public types alone. Where the rules are
silent it raises ``Unspecified``, and the tests leave the case out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import combinations
from typing import Any

import numpy as np
from _model_types import (
    CONVERTED,
    EXACT,
    PROMOTED,
    SPLAT,
    Array,
    CallId,
    Data,
    Fit,
    Grid,
    Mismatch,
    Refused,
    Shape,
    Type,
    Unspecified,
)


def fit(type_: Type, value: Any) -> Fit:
    """How an input parameter takes a value.

    Raises
    ------
    Refused, Mismatch, Unspecified
    """
    if isinstance(value, (range, Grid, CallId)):
        return _fit_index(type_, value)
    if isinstance(value, Data):
        return _fit_host(type_, value.value) if value.on == "numpy" else _fit_device(type_, value)
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return _fit_fields(type_, value)
    if isinstance(value, (str, Enum)):
        return _fit_case(type_, value)
    if isinstance(value, np.ndarray):
        return _fit_host(type_, value)
    if isinstance(value, (bool, int, float, np.generic)):
        return _fit_number(type_, value)
    if isinstance(value, (list, tuple)):
        return _fit_sequence(type_, value)
    raise Refused(f"{value!r} is nothing that Slang takes")


def call_shape(fits: Sequence[Fit]) -> Shape:
    """What the arguments' dimensions broadcast to, by NumPy's rule."""
    try:
        return tuple(np.broadcast_shapes(*(f.shape for f in fits)))
    except ValueError as error:
        raise Mismatch(str(error)) from None


def spread(values: Array, dims: Sequence[int], rank: int) -> Array:
    """An array's leading dimensions where a map puts them: dimension k runs along call dimension ``dims[k]``.

    Two on one call dimension are walked together; those of the call that it lacks become 1. What follows the
    leading dimensions stays last.
    """
    where = list(dims)
    while len(set(where)) < len(where):
        i, j = next((i, j) for i, j in combinations(range(len(where)), 2) if where[i] == where[j])
        a, b = values.shape[i], values.shape[j]
        if a == 1 or b == 1:
            gone = i if a == 1 else j
            values = values[(slice(None),) * gone + (0,)]
        elif a == b:
            # A diagonal that can be written to, which NumPy's cannot.
            shape, steps, gone = list(values.shape), list(values.strides), j
            steps[i] += steps.pop(j)
            del shape[j]
            values = np.lib.stride_tricks.as_strided(values, shape, steps)
        else:
            raise Mismatch(f"dimensions of {a} and {b} are mapped to one")
        del where[gone]
    order = np.argsort(where).tolist()
    inner = range(len(where), values.ndim)
    values = values.transpose(*order, *inner)
    taken = sorted(where)
    return np.expand_dims(values, tuple(d for d in range(rank) if d not in taken))


def indices(type_: Type, shape: Shape) -> Array:
    """What ``call_id()`` gives each element: vectors count the last dimension in x, arrays the first one first.

    A vector of one component more than the call has dimensions holds 0 there.
    """
    wanted = type_.dims[0] if type_.dims else 1
    spare = len(shape) > 0 and type_.kind == "vector" and wanted == len(shape) + 1
    if wanted != len(shape) and not spare:
        raise Refused(f"'{type_.name}' does not count {len(shape)} dimensions")
    each = np.stack(np.meshgrid(*map(np.arange, (1,) * spare + shape), indexing="ij"), -1).astype(type_.dtype)
    return _as_index(type_, each[0] if spare else each)


def _fit_index(type_: Type, value: Any) -> Fit:
    inner = type_.element if type_.kind == "array" and type_.element else type_
    if inner.dtype.kind not in "iu" or inner.kind not in ("scalar", "vector"):
        raise Refused(f"'{type_.name}' is no index")
    if inner.dtype != np.dtype("i4"):
        raise Unspecified("indices of other widths")
    count = type_.dims[0] if type_.dims else 1
    if isinstance(value, CallId):
        return Fit((), None)
    if isinstance(value, range):
        if type_.dims:
            raise Unspecified("a range for a vector") if count == 1 else Refused("a range is of one number each")
        return Fit((len(value),), np.array(value, "i4"))
    if count != len(value.shape):
        raise Refused(f"a grid of {len(value.shape)} dimensions for '{type_.name}'")
    shape = tuple(1 if n == -1 else n for n in value.shape)
    if -1 in value.shape:
        return Fit(shape, None)
    ids = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    return Fit(shape, _as_index(type_, (ids * value.stride + value.offset).astype("i4")))


def _as_index(type_: Type, each: Array) -> Array:
    if not type_.dims:
        return each[..., 0]
    return each[..., ::-1] if type_.kind == "vector" else each


def _fit_number(type_: Type, value: Any) -> Fit:
    if type_.kind == "pointer" and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if value < 0:
            raise Unspecified("a negative address")
        return Fit((), None)
    if type_.kind in ("struct", "tensor", "pointer", "array"):
        raise Refused(f"a number for '{type_.name}'")
    if type_.kind == "matrix":
        raise Unspecified("a number for a matrix")
    if type_.kind == "enum" and isinstance(value, (bool, np.bool_)):
        raise Unspecified("a bool for an enum")
    level = _check_number(type_.dtype, value)
    return Fit((), np.full(type_.dims, value, type_.dtype), SPLAT if type_.dims else level)


def _check_number(dtype: np.dtype[Any], value: Any) -> int:
    """A number of Python has no width: to overloads an int is an int and a float a float."""
    own = np.asarray(value).dtype
    # Numbers of NumPy convert by kind, as those of Python do.
    if own.kind not in {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}[dtype.kind]:
        raise Refused(f"{value!r} does not convert to {dtype}")
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max:
        raise Refused(f"{value!r} does not fit {dtype}")
    if dtype.kind == "f" and abs(float(value)) > float(np.finfo(dtype).max):
        raise Unspecified("a number beyond a float's range")
    if not isinstance(value, np.generic):
        own = np.dtype({"b": "?", "i": "i4"}.get(own.kind, "f4"))
    return _level(own, dtype)


def _level(own: np.dtype[Any], dtype: np.dtype[Any]) -> int:
    if own == dtype:
        return EXACT
    return PROMOTED if np.can_cast(own, dtype, "safe") else CONVERTED


def _fit_sequence(type_: Type, value: Sequence[Any]) -> Fit:
    if type_.kind == "struct" and isinstance(value, tuple):
        if len(value) != len(type_.fields):
            raise Refused(f"{len(value)} values for the fields of '{type_.name}'")
        return _fit_fields(type_, dict(zip((name for name, _ in type_.fields), value, strict=True)))
    if any(isinstance(item, (Mapping, Data)) or dataclasses.is_dataclass(item) for item in value):
        if type_.kind == "struct" and all(isinstance(item, Mapping) for item in value):
            items = [fit(type_, item) for item in value]
            if any(item.shape for item in items):
                raise Unspecified("dicts of arrays in a list")
            return Fit((len(items),), np.stack([_known(item) for item in items]))
        raise Unspecified("a list of arrays")
    if type_.kind == "struct":
        raise Unspecified("a list for a struct")
    if type_.kind == "pointer":
        raise Refused("a pointer to a list")
    try:
        numbers = np.asarray(value)
    except ValueError:
        raise Refused("rows of different lengths") from None
    if numbers.dtype.kind not in "biuf":
        raise Refused(f"{value!r} is no list of numbers")
    if numbers.size == 0:
        raise Unspecified("an empty list")
    level = max(_check_number(type_.dtype, item) for item in numbers.ravel().tolist())
    return _outer(type_, numbers, level)


def _fit_fields(type_: Type, value: Any) -> Fit:
    if type_.kind == "vector" and isinstance(value, Mapping):
        scalar_ = Type(str(type_.dtype), "scalar", type_.dtype)
        fields = tuple((name, scalar_) for name in "xyzw"[: type_.dims[0]])
    elif type_.kind == "struct":
        fields = type_.fields
    elif isinstance(value, tuple):
        return _fit_sequence(type_, tuple(value))
    else:
        raise Refused(f"a struct's value for '{type_.name}'")
    if isinstance(value, Mapping):
        given = dict(value)
    elif isinstance(value, tuple):
        given = dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    else:
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if given.pop("_type", type_.name) != type_.name:
        raise Refused("another struct by its _type")
    if set(given) != {name for name, _ in fields}:
        raise Refused("missing or extra fields")
    fits = [fit(inner, given[name]) for name, inner in fields]
    shape = call_shape(fits)
    if type_.kind == "vector":
        values = np.stack([np.broadcast_to(_known(f), shape) for f in fits], -1)
    else:
        values = np.zeros(shape, type_.dtype)
        for (name, inner), f in zip(fields, fits, strict=True):
            values[name] = _known(f).reshape((1,) * (len(shape) - len(f.shape)) + f.shape + inner.dims)
    return Fit(shape, values, max(f.level for f in fits))


def _fit_case(type_: Type, value: str | Enum) -> Fit:
    if type_.kind != "enum":
        if isinstance(value, int):
            raise Unspecified("an IntEnum for a number")
        raise Refused(f"{value!r} for '{type_.name}'")
    if isinstance(value, Enum):
        return Fit((), np.array(int(value.value), type_.dtype))
    if value not in dict(type_.cases):
        raise Refused(f"'{type_.name}' has no case {value}")
    return Fit((), np.array(dict(type_.cases)[value], type_.dtype))


def _fit_host(type_: Type, value: Array) -> Fit:
    if type_.kind == "pointer":
        raise Unspecified("a pointer to host memory")
    own = value.dtype
    if own.names is not None or type_.kind == "struct":
        return _fit_records(type_, value)
    if own.kind not in "biuf":
        raise Refused(f"{own} has no Slang type")
    if type_.kind == "enum" and own.kind == "b":
        raise Unspecified("a bool for an enum")
    # NumPy's 'same_kind', and whole numbers into floats.
    if not np.can_cast(own, type_.dtype, "same_kind") and not (own.kind in "iu" and type_.dtype.kind == "f"):
        raise Refused(f"{own} does not convert to {type_.dtype}")
    return _outer(type_, value, _level(own.newbyteorder("="), type_.dtype))


def _fit_records(type_: Type, value: Array) -> Fit:
    if type_.kind != "struct" or value.dtype.names is None:
        raise Refused(f"{value.dtype} for '{type_.name}'")
    if set(value.dtype.names) != {name for name, _ in type_.fields}:
        raise Refused("missing or extra fields")
    out = np.zeros(value.shape, type_.dtype)
    for name, inner in type_.fields:
        got = _fit_host(inner, value[name])
        if got.shape != value.shape:
            raise Refused(f"field {name} has other dimensions")
        out[name] = got.values
    return Fit(value.shape, out)


def _fit_device(type_: Type, value: Data) -> Fit:
    held, shape = value.type, value.value.shape
    assert held is not None
    outer = shape[: len(shape) - len(held.dims)]
    wanted = type_.element if type_.kind in ("tensor", "pointer") else type_
    assert wanted is not None
    if type_.kind == "pointer":
        if held.name != wanted.name:
            raise Unspecified("addresses in an array") if held.name == "uint64_t" else Refused("another element")
        if value.views:
            raise Unspecified("a pointer into a view")
        first = value.value.reshape(-1, *held.dims)[0] if value.value.size else None
        return Fit((), first)
    if held.dtype != type_.dtype or "enum" in (held.kind, wanted.kind):
        if "enum" in (held.kind, wanted.kind) and held.dtype == type_.dtype:
            raise Unspecified("an enum's numbers on a device")
        raise Refused("data on a device is not converted")
    if held.name == wanted.name:
        if type_.kind == "tensor":
            return _rows(type_, value.value)
        return Fit(outer, value.value)
    if type_.kind == "tensor":
        raise Unspecified("scalars for a tensor of vectors") if held.kind == "scalar" else Refused("another element")
    # Scalars make vectors, matrices and arrays, and anything makes arrays of itself; nothing is taken apart.
    inside = type_.element
    if held.kind == "scalar" or (type_.kind == "array" and inside and _made_of(inside, held)):
        return _outer(type_, value.value, EXACT)
    raise Refused(f"'{held.name}' for '{type_.name}'")


def _made_of(type_: Type, held: Type) -> bool:
    return type_.name == held.name or (
        type_.kind == "array" and type_.element is not None and _made_of(type_.element, held)
    )


def _outer(type_: Type, values: Array, level: int) -> Fit:
    """Take the type's own dimensions off an array's end."""
    if type_.kind == "tensor":
        return _rows(type_, values.astype(type_.dtype), level)
    n = values.ndim - len(type_.dims)
    if n < 0 or values.shape[n:] != type_.dims:
        raise Refused(f"shape {values.shape} does not end in {type_.dims}")
    return Fit(values.shape[:n], values.astype(type_.dtype), level)


def _rows(type_: Type, values: Array, level: int = EXACT) -> Fit:
    """Take a tensor parameter's dimensions, and those of its element, off an array's end."""
    n = values.ndim - len(type_.dims) - type_.rank
    if n < 0 or values.shape[values.ndim - len(type_.dims) :] != type_.dims:
        raise Refused(f"shape {values.shape} for '{type_.name}'")
    return Fit(values.shape[:n], values, level)


def _known(f: Fit) -> Array:
    if f.values is None:
        raise Unspecified("an index among fields")
    return f.values
