"""Keeps the arrays of a user's function apart from the result of a product: kernels read them while they write it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.overlap import Walk
from slangpy_rt.linalg.own_arrays import OwnArrays
from slangpy_rt.linalg.plan import meet
from slangpy_rt.linalg.user_functions import UserFunction

Range = tuple[int, int]


def apart(function: UserFunction, ranges: Mapping[str, Range], commands: CommandList | None) -> Mapping[str, Any]:
    """Return the values of a function's uniforms, with copies of those arrays that share memory with ``out``.

    Parameters
    ----------
    ranges : mapping
        The addresses of the first byte, and of the byte behind the last one, of the product's arrays by name.

    Raises
    ------
    BindError
        If an array that the function may write to shares memory with one of the product's, or one that is not copied
        here shares memory with ``out``.
    """
    found = dict(function.values)
    for name, value in found.items():
        writes = function.writes(name)
        for array in _arrays_in(value):
            with_others = [other for other, bytes_ in ranges.items() if meet(range_of(array), bytes_)]
            if writes and with_others:
                raise BindError(
                    f"matmul: uniform '{name}' of activation '{function.name}' shares memory with {with_others[0]}, "
                    "and the function may write to it; pass memory of its own."
                )
            if "out" not in with_others:
                continue
            if array is not value or (isinstance(array, NDBuffer) and array.layout.element.name not in NUMPY_OF):
                raise BindError(
                    f"matmul: an array in uniform '{name}' of activation '{function.name}' shares memory with out; "
                    "pass a copy of it."
                )
            if isinstance(array, NDBuffer):
                found[name] = OwnArrays().copied(array, commands)
            else:
                found[name] = array.copy() if isinstance(array, np.ndarray) else array.detach().clone()
    return found


def _arrays_in(value: Any) -> Iterator[Any]:
    """Yield the arrays in a uniform's value, those in dicts, lists and tuples included."""
    torch = sys.modules.get("torch")
    if isinstance(value, (NDBuffer, np.ndarray)) or (torch is not None and isinstance(value, torch.Tensor)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _arrays_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays_in(item)


def range_of(array: Any) -> Range:
    """Return the addresses of an array's first byte and of the byte behind its last."""
    if isinstance(array, NDBuffer):
        layout = array.layout
        at, shape, size = array.address, layout.full_shape, layout.numpy_dtype.itemsize
        strides = tuple([s * layout.unit for s in layout.strides])
    elif isinstance(array, np.ndarray):
        at, shape, size = array.__array_interface__["data"][0], array.shape, array.itemsize
        strides = array.strides
    else:
        at, shape, size = array.data_ptr(), tuple(array.shape), array.element_size()
        strides = tuple([s * size for s in array.stride()])
    low, high = (0, 0) if 0 in shape else Walk(strides, (), size).span(shape)
    return at + low, at + high
