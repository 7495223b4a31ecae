"""Shapes: NumPy's broadcasting rule, and the merging of dimensions that every argument walks with one stride.

Functions here take tuples of integers, which ``as_shape`` makes of a user's shape. Strides are in any unit, which is
the same for all strides of one argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from slangpy_rt.core.checks import is_callers
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.core.wording import in_words

Shape = tuple[int, ...]
MOST_DIMENSIONS = 32  # as of NumPy before 2.0
_MOST_ELEMENTS = 2**53  # an int64_t counts their bytes, if an element has less than 1 KiB


def broadcast(function: str, shapes: Sequence[tuple[str, Shape]]) -> Shape:
    """Return the call shape of arguments, by NumPy's rule: aligned right, a dimension of 1 stretches.

    Parameters
    ----------
    function : str
        For the error message.
    shapes : sequence of (str, tuple of int)
        Name and call dimensions of each argument.

    Raises
    ------
    ShapeError
        If two dimensions differ and neither is 1.
    """
    rank = max([len(shape) for _, shape in shapes], default=0)
    call = [1] * rank
    chosen = [""] * rank
    for name, shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if call[d] == 1:
                if size != 1:
                    call[d], chosen[d] = size, name
            elif size not in (1, call[d]):
                other = next(s for n, s in shapes if n == chosen[d])
                raise ShapeError(
                    f"{function}: argument '{name}' of shape {shape} does not broadcast with argument "
                    f"'{chosen[d]}' of shape {other}.\n"
                    "Shapes are matched from the right; two dimensions must be equal, or one of them 1."
                )
    return tuple(call)


def spread(name: str, shape: Shape, mapped: tuple[int, ...] | None, rank: int) -> Shape:
    """Return an argument's sizes along the call's dimensions: its own, or spread over ``rank`` dimensions by a map.

    Raises
    ------
    ShapeError
        If a map puts two dimensions of different sizes on one.
    """
    if mapped is None:
        return shape
    out = [1] * rank
    for size, d in zip(shape, mapped, strict=True):
        if size != 1 and out[d] not in (1, size):
            raise ShapeError(
                f"'{name}' of shape {shape} is mapped by {mapped}: call dimension {d} is both {out[d]} and {size}."
            )
        out[d] = size if size != 1 else out[d]
    return tuple(out)


def align(shape: Shape, strides: Shape, call: Shape, mapped: tuple[int, ...] | None = None) -> Shape:
    """Return the strides of an argument along each call dimension, 0 where it is broadcast."""
    if mapped is None:
        if shape == call and 1 not in shape:
            return strides
        own = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
        return (*[0] * (len(call) - len(shape)), *own)
    out = [0] * len(call)
    for size, stride, d in zip(shape, strides, mapped, strict=True):
        out[d] += stride if size != 1 else 0
    return tuple(out)


@dataclass(frozen=True)
class Coalesced:
    """A call shape of fewest dimensions, at least one, with each argument's strides along them."""

    shape: Shape
    strides: tuple[Shape, ...]


def coalesce(call: Shape, strides: Sequence[Shape]) -> Coalesced:
    """Merge adjacent dimensions that every argument walks through with one stride.

    This is the rule of NumPy's and PyTorch's iterators: dimensions d and d+1 merge when
    ``stride[d] == stride[d+1] * shape[d+1]`` for all arguments; dimensions of size 1 go.
    """
    kept = [d for d, size in enumerate(call) if size != 1]
    shape: list[int] = []
    columns: list[list[int]] = []
    for d in kept:
        here = [s[d] for s in strides]
        if shape and columns[-1] == [inner * call[d] for inner in here]:
            shape[-1] *= call[d]
            columns[-1] = here
        else:
            shape.append(call[d])
            columns.append(here)
    if not shape:
        shape, columns = [1], [[0] * len(strides)]
    return Coalesced(tuple(shape), tuple([tuple([c[k] for c in columns]) for k in range(len(strides))]))


def contiguous(shape: Shape, unit: int = 1) -> Shape:
    """Return the row-major strides of an array whose elements are ``unit`` apart."""
    strides = []
    for size in reversed(shape):
        strides.append(unit)
        unit *= max(size, 1)
    return tuple(reversed(strides))


def is_whole(index: Any) -> bool:
    """Tell whether a value is a whole number of Python or NumPy, and no bool."""
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool)


def whole_numbers(value: Any) -> Shape | None:
    """Return one whole number, or a sequence of them, as a tuple; None for anything else.

    Of a sequence longer than a shape may be, one number more than the limit is returned, which callers refuse.
    """
    if is_whole(value):
        return (int(value),)
    try:
        items = tuple(islice(value, MOST_DIMENSIONS + 1))
    except TypeError as error:
        if is_callers(error):
            raise
        return None
    return tuple([int(n) for n in items]) if all(map(is_whole, items)) else None


def as_shape(where: str, shape: int | Sequence[int]) -> Shape:
    """Return a shape as a tuple.

    Raises
    ------
    ShapeError
        If it is not made of whole numbers of at least 0, or has too many dimensions or elements.
    """
    items = whole_numbers(shape)
    if items is None or (items and min(items) < 0):
        raise ShapeError(f"{where}: a shape is made of whole numbers of at least 0, not {in_words(shape)}.")
    if len(items) > MOST_DIMENSIONS or prod(n for n in items if n) > _MOST_ELEMENTS:
        raise ShapeError(
            f"{where}: {in_words(shape)} has more than {MOST_DIMENSIONS} dimensions or {_MOST_ELEMENTS} elements."
        )
    return items
