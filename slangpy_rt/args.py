"""Signatures: what tells calls apart. Two calls whose arguments sign alike are served by one prepared call."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.binding import converter, is_plain_sequence
from slangpy_rt.dtypes import SLANG_OF
from slangpy_rt.generators import Generator
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.records import fields_of
from slangpy_rt.refs import ValueRef
from slangpy_rt.tensor import Tensor

ARRAYS = frozenset({Tensor, NDBuffer})


def signature(value: Any) -> Any:
    """A hashable value that is equal for arguments which one prepared call can serve."""
    sign = _SIGNERS.get(type(value))
    if sign is not None:
        return sign(value)
    if isinstance(value, NDBuffer):
        return value.layout
    if isinstance(value, np.void):
        return _sign_fields(value)
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, type):
        return value
    if isinstance(value, Generator):
        return value.key()
    if isinstance(value, Enum):
        return Enum, type(value)
    stand_in = converter(value)
    if stand_in is not None:
        return type(value), signature(stand_in(value))
    if isinstance(value, ValueRef):
        return ValueRef, signature(value.value)
    if fields_of(value) is not None:
        return _sign_fields(value)
    # Subclasses of what is accepted: numpy.memmap, vectors, floats with a unit.
    for base in (np.ndarray, list, tuple, float, int):
        if isinstance(value, base):
            return type(value), _SIGNERS[base](value)
    return _refused()


def _refused() -> Any:
    """A signature like no other: no prepared call has it, and ``bind`` says what is wrong with the value."""
    return object()


def _sign_array(value: npt.NDArray[Any]) -> Any:
    address = value.__array_interface__["data"][0] if value.size else 0
    return (np.ndarray, value.dtype, value.shape, value.strides, value.flags.writeable, address % 8)


def _sign_sequence(value: Any) -> Any:
    if not is_plain_sequence(value):
        return ("parts", *[item.layout if type(item) in ARRAYS else signature(item) for item in value])
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


def _sign_fields(value: Any) -> Any:
    fields = fields_of(value)
    assert fields is not None
    return (
        dict,
        *[
            (name, item if name == "_type" else item.layout if type(item) in ARRAYS else signature(item))
            for name, item in fields.items()
        ],
    )


def _sign_text(value: str) -> Any:
    # Not itself: a key of keyword arguments ends in their names.
    return "str", value


def _itself(value: Any) -> Any:
    return value


_SIGNERS: dict[type, Callable[[Any], Any]] = {
    float: type,
    int: type,
    bool: type,
    type(None): _itself,
    str: _sign_text,
    np.ndarray: _sign_array,
    list: _sign_sequence,
    tuple: _sign_sequence,
    dict: _sign_fields,
}
