"""Signatures: two calls whose arguments have equal signatures are served by one prepared call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from itertools import chain
from operator import attrgetter
from traceback import walk_tb
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter, is_plain_sequence
from slangpy_rt.arguments.computed import Generator
from slangpy_rt.arguments.stand_ins import stands_in
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.layout import Laid
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.dtypes import SLANG_OF
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.wording import in_words

ARRAYS = frozenset({Tensor, NDBuffer})


class Signers(dict[type, Callable[[Any], Any]]):
    """Functions that make a value's signature, by its type: ``SIGNERS[type(value)](value)``."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        sign = _signer(kind)
        if len(self) < _MOST:
            self[kind] = sign
        return sign


def signature(value: Any) -> Any:
    """Return a hashable value that is equal for arguments which one prepared call can serve."""
    return SIGNERS[type(value)](value)


def aliased(values: tuple[Any, ...]) -> bool:
    """Return whether two of the values add to gradients in memory that overlaps, by their spans."""
    spans: list[tuple[int, int]] = []
    for value in values:
        if type(value) in ARRAYS:
            # The same as ``_gradient_spans`` does, without a frame for each value.
            grads = value.layout.grads
            if grads is not None and grads.out is not None and not grads.fresh:
                low, high = grads.out.span
                address = value.grad_out.address
                spans.append((address + low, address + high))
        elif type(value) is not float:
            spans += _gradient_spans(value)
    if len(spans) < 2:
        return False
    spans.sort()
    last = spans[0][1]
    for low, high in spans[1:]:
        if last > low:
            return True
        last = high
    return False


def carries_gradients(value: Any) -> bool:
    """Return whether an array, or one in a list, a dict or an object with fields, carries a gradient to add to."""
    return bool(_gradient_spans(value))


def endless(where: str, values: tuple[Any, ...], error: RecursionError) -> BindError:
    """Return the error for arguments that hold themselves, or have more levels than Python's recursion limit.

    Raises
    ------
    RecursionError
        The one that was caught, if it has another cause: an argument's own code, or a caller close to the limit.
    """
    levels = sum(frame.f_globals is globals() for frame, _ in walk_tb(error.__traceback__))
    if levels < _LEVELS:
        raise error
    found = next((v for v in values if isinstance(v, (list, tuple, Mapping))), values)
    return BindError(f"{where}: an argument holds lists or dicts in each other without an end: {in_words(found)}.")


def _signer(kind: type) -> Callable[[Any], Any]:
    """Return the function that makes signatures of values of a type."""
    if issubclass(kind, (NDBuffer, Laid)):
        # Without a frame of Python's.
        return attrgetter("layout")
    if issubclass(kind, np.void):
        return _sign_fields
    if issubclass(kind, np.generic):
        return _dtype
    if issubclass(kind, type):
        return _refused_class
    if issubclass(kind, Generator):
        return kind.key
    if issubclass(kind, Enum):
        return _kind
    stand_in = converter(kind)
    # A stand-in's method is called once a call, after its signature was found to be unknown.
    if isinstance(stand_in, Adapter):
        return stand_in.signature
    if stands_in(kind):
        return _refused
    if stand_in is not None:
        return partial(_sign_stand_in, stand_in)
    if issubclass(kind, DiffPair):
        return lambda value: (kind, signature(value.value), signature(value.grad))
    if issubclass(kind, ValueRef):
        return lambda value: (kind, signature(value.value))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        # A struct parameter takes it as fields by name, other parameters as a row of numbers.
        return lambda value: (_sign_fields(value), _sign_sequence(value))
    if issubclass(kind, Mapping) or hasattr(kind, "__dataclass_fields__"):
        return _sign_fields
    # Subclasses of what is accepted: numpy.memmap, vectors, floats with a unit.
    for base in (np.ndarray, list, tuple, float, int):
        if issubclass(kind, base):
            inner = SIGNERS[base]
            return lambda value: (kind, inner(value))
    return _refused


def _refused(value: Any) -> Any:
    """Return a signature that equals no other: no prepared call has it, and ``bind`` judges the value."""
    return object()


def _refused_class(value: type) -> Any:
    # As _result a class names a kind; as an argument its signature must not equal that of its instances.
    return type, value


def _sign_array(value: npt.NDArray[Any]) -> Any:
    flags = value.flags
    return np.ndarray, value.dtype, value.shape, value.strides, flags.writeable, flags.aligned


def _sign_sequence(value: Any) -> Any:
    # For a struct parameter, a tuple is one value and a list of tuples is many.
    outer = type(value)
    kinds = set(map(type, value))
    if kinds == _FLOATS:
        return "floats", outer, len(value)
    if not is_plain_sequence(value):
        return ("parts", outer, *[item.layout if type(item) in ARRAYS else signature(item) for item in value])
    try:
        array = np.asarray(value)
    except ValueError:
        return _refused(value)
    if array.dtype not in SLANG_OF:
        return _refused(value)
    level, levels = list(value), [outer]
    for _ in range(array.ndim - 1):
        kinds = set(map(type, level))
        if len(kinds) > 1:  # some tuples and some lists: its calls are not remembered
            return _refused(value)
        levels += kinds
        level = list(chain.from_iterable(level))
    if array.dtype.kind not in "iu" or array.size == 0:
        return ("list", *levels, array.dtype, array.shape)
    # Whole numbers in a list have no width: calls differ by which integer types hold all of them.
    low, high = int(array.min()), int(array.max())
    fits = tuple(low >= np.iinfo(d).min and high <= np.iinfo(d).max for d in SLANG_OF if d.kind in "iu")
    return ("list", *levels, array.dtype, array.shape, fits)


def _sign_dict(value: dict[Any, Any]) -> Any:
    # _type may be a struct or a type of a module, which is compared as it is.
    return (
        dict,
        tuple(value),
        *[
            item.layout
            if type(item) in ARRAYS
            else item
            if name == "_type" and hasattr(item, "slang_type")
            else signature(item)
            for name, item in value.items()
        ],
    )


def _sign_fields(value: Any) -> Any:
    fields = fields_of(value)
    # NumPy's void without fields is bytes.
    return _refused(value) if fields is None else (type(value), _sign_dict(dict(fields)))


def _sign_text(value: str) -> Any:
    # Not the string alone: a key of keyword arguments ends in their names.
    return "str", value


def _sign_stand_in(stand_in: Callable[[Any], Any], value: Any) -> Any:
    try:
        return type(value), signature(stand_in(value))
    except BindError:
        return _refused(value)


def _gradient_spans(value: Any) -> list[tuple[int, int]]:
    """Return for each gradient of a value that is added to its first address, and the address after its last byte."""
    if isinstance(value, NDBuffer):
        grads = value.layout.grads
        # Nothing else uses the memory of a fresh gradient.
        if grads is None or grads.out is None or grads.fresh:
            return []
        low, high = grads.out.span
        address = value.grad_out.address  # type: ignore[attr-defined]
        return [(address + low, address + high)]
    if isinstance(value, (list, tuple)):
        return [span for item in value for span in _gradient_spans(item)]
    if isinstance(value, (bool, int, float, np.ndarray, np.generic, DiffPair, Laid)):
        return []
    stand_in = converter(type(value))
    if isinstance(stand_in, Adapter):
        return []
    if stands_in(type(value)):
        # Its method is called once a call, after the first signature, which equals no other.
        return []
    if stand_in is not None:
        return _gradient_spans(stand_in(value))
    fields = fields_of(value)
    return [] if fields is None else [span for item in fields.values() for span in _gradient_spans(item)]


def _dtype(value: Any) -> Any:
    return value.dtype


def _kind(value: Any) -> Any:
    return type(value)


def _itself(value: Any) -> Any:
    return value


_FLOATS = {float}
# At least so many frames of this file are on Python's stack, of 1,000, if lists that hold each other overflow it.
_LEVELS = 16
# The most types whose functions are remembered.
_MOST = 1024
SIGNERS = Signers({
    float: type,
    int: type,
    bool: type,
    type(None): _itself,
    str: _sign_text,
    np.ndarray: _sign_array,
    list: _sign_sequence,
    tuple: _sign_sequence,
    dict: _sign_dict,
})  # fmt: skip
