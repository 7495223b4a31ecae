"""Views: which part of an array's memory an index picks. It works on layouts and reads no memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from slangpy_rt.arrays.layout import Layout, dense_strides, layout_of
from slangpy_rt.core.checks import is_callers
from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.core.shapes import Shape, as_shape, contiguous, is_whole, whole_numbers
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words


def field(where: str, layout: Layout, name: str) -> tuple[SlangType, Shape, Shape, int]:
    """Return one field of an array's structs: its type, the shape, the strides and the byte offset.

    Raises
    ------
    IndexError
        If there is no such field.
    """
    element = layout.element
    found = next((f.type for f in element.fields if f.name == name), None) if element.kind == "struct" else None
    fields = layout.numpy_dtype.fields
    if found is None or fields is None:
        has = ", ".join(f.name for f in element.fields) if element.kind == "struct" else "no fields"
        raise IndexError(f"{where}: '{name}' is no field of '{element.name}', which has {has}.")
    # Strides of structs are in bytes. Structs are aligned as their fields are, so that these divide.
    stored = storage(found)
    assert stored is not None, found
    unit = NUMPY_OF[stored.scalar].itemsize
    strides = tuple(step // unit for step in layout.strides[: len(layout.shape)])
    return found, layout.shape, strides + dense_strides(found, ()), fields[name][1]


def picked(where: str, layout: Layout, key: Any) -> tuple[SlangType, Shape, Shape, int]:
    """Return the part of an array that integers, slices, ``None`` and ``...`` pick.

    Returns
    -------
    tuple
        The element type, the shape, the strides and the byte offset.

    Raises
    ------
    IndexError
        If an index is out of range, or is of another kind.
    """
    if key is None:
        return layout.element, (1, *layout.shape), (0, *layout.strides), 0
    if type(key) is int and layout.shape and -layout.shape[0] <= key < layout.shape[0]:
        start = key % layout.shape[0] * layout.strides[0] * layout.unit
        return layout.element, layout.shape[1:], layout.strides[1:], start
    keys = key if isinstance(key, tuple) else (key,)
    # To NumPy a bool is a mask, and what it picks is a copy.
    if not all(k is None or k is ... or type(k) is slice or is_whole(k) for k in keys):
        raise IndexError(f"{where}: only integers, slices, None and ... index a device array, not {in_words(key)}.")
    item = layout.unit
    outer, inner = layout.strides[: len(layout.shape)], layout.strides[len(layout.shape) :]
    # NumPy computes the view, of an array of this shape and these strides over a single scalar, which nothing reads.
    base = np.zeros(item, np.uint8)
    model = np.lib.stride_tricks.as_strided(base, layout.shape, tuple(s * item for s in outer))
    try:
        # With ``...`` NumPy returns a view; without, integers for all dimensions would read memory that is not there.
        found = model[keys if any(k is ... for k in keys) else (*keys, ...)]
    except (TypeError, ValueError) as error:  # a slice of wrong numbers
        if is_callers(error):
            raise
        raise IndexError(f"{where}: {in_words(key)} is no index: {error}.") from None
    start = found.__array_interface__["data"][0] - model.__array_interface__["data"][0]
    return layout.element, found.shape, tuple(s // item for s in found.strides) + inner, start


def seen_as(where: str, layout: Layout, shape: Any, strides: Any, offset: Any) -> tuple[Layout, int]:
    """Return the layout of other elements of an array's memory, and the byte offset of the first of them.

    Parameters
    ----------
    strides : sequence of int or None
        In elements; None for all elements in row-major order.
    offset : int
        In elements.

    Raises
    ------
    ShapeError
        If the array is not contiguous, or the view's elements are not among the array's.
    """
    new, size = as_shape(where, shape), prod(layout.shape)
    summary = f"{layout.kind.__name__}<{layout.element.name}> of shape {layout.shape}"
    if not layout.contiguous:
        raise ShapeError(f"{where}: {summary} is a non-contiguous view; copy it first.")
    whole = strides is None and is_whole(offset) and offset == 0
    if whole and prod(new) != size:
        raise ShapeError(f"{where}: {summary} cannot be seen as shape {new}; the numbers of elements must agree.")
    if whole:
        kind, element = layout.kind, layout.element
        return layout_of(layout.device, kind, element, new, None, layout.aligned, own=layout.own), 0
    steps = contiguous(new) if strides is None else whole_numbers(strides)
    if steps is None or len(steps) != len(new):
        raise ShapeError(f"{where}: strides is {in_words(strides)}; a whole number for each of {new} was expected.")
    if not is_whole(offset):
        raise ShapeError(f"{where}: offset is {in_words(offset)}; a whole number of elements was expected.")
    reach = [(n - 1) * step for n, step in zip(new, steps, strict=True)]
    low, high = (int(offset) + sum(f(0, r) for r in reach) for f in (min, max))
    if not 0 <= int(offset) <= size or (0 not in new and not 0 <= low <= high < size):
        raise ShapeError(
            f"{where}: shape {new}, strides {in_words(steps)} and offset {in_words(offset)} reach from element "
            f"{in_words(low)} to {in_words(high)}; "
            f"{summary} has elements 0 to {size - 1}."
        )
    stored = storage(layout.element)
    assert stored is not None, layout.element
    inner = layout.strides[len(layout.shape) :]
    start = int(offset) * layout.numpy_dtype.itemsize
    for n in stored.dims:
        start *= n
    scaled = tuple(step * dense_strides(layout.element, (1,))[0] for step in steps)
    aligned = layout.aligned and start % 32 == 0
    return layout_of(layout.device, layout.kind, layout.element, new, scaled + inner, aligned), start
