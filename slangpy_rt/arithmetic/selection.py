"""Selections: the elements of an array at which a mask is true, in a new array."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from slangpy_rt.arithmetic.scan_texts import PUT, TAKE
from slangpy_rt.arithmetic.scans import plain, scans
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.pickled import as_stored
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.dtypes import element_type


def selected(array: Any, mask: Any) -> Tensor:
    """Return the elements of an array at which a mask is true, in row-major order.

    Parameters
    ----------
    array : Tensor
        Elements of any type.
    mask : NDBuffer or numpy.ndarray
        Bools of the shape of the array or of its first dimensions; of the others all elements are taken.

    Returns
    -------
    Tensor
        Of shape (count, *the other dimensions).

    Raises
    ------
    IndexError
        If the mask has another shape, or holds no bools.
    """
    if isinstance(mask, np.ndarray):
        mask = Tensor.from_numpy(array.device, mask)
    return taken(array, places_in(array, mask), len(mask.shape))


def places_in(array: Any, mask: NDBuffer) -> Tensor:
    """Return where a mask of an array is true, counted in row-major order; errors are those of ``selected``."""
    lead = len(mask.shape)
    if mask.dtype.name != "bool" or not lead or array.shape[:lead] != mask.shape:
        raise IndexError(f"Tensor: {mask.summary} is no index of {array.summary}; bools of its first dimensions are.")
    if mask.device is not array.device:
        raise IndexError(f"Tensor: {mask.summary} lies on {mask.device!r}, and {array.summary} on {array.device!r}.")
    return scans(array).nonzero(plain(mask))


def taken(array: Any, places: Tensor, lead: int) -> Tensor:
    """Return the elements of an array at places, which count its first ``lead`` dimensions in row-major order."""
    made: Tensor = Tensor.empty(array.device, (places.shape[0], *array.shape[lead:]), array.dtype)
    if made.size:
        found = scans(array)
        rows = _rows(array.detach(), prod(array.shape[:lead]))
        into = _rows(made, places.shape[0])
        width = rows.shape[1]
        take = found.module("take", TAKE, held=rows.dtype.name)["take"]
        columns = found.numbers(width) if width <= 4096 else Tensor.arange(array.device, width)
        take(rows, places[:, None], columns[None], _result=into)
    return made


def put_back(values: Tensor, places: Tensor, shape: tuple[int, ...], lead: int) -> Tensor:
    """Return an array of zeros of a shape, but for values at places, which ``taken`` would return of it."""
    made: Tensor = Tensor.zeros(values.device, shape, values.dtype)
    if values.size:
        found = scans(values)
        rows, into = _rows(values, places.shape[0]), _rows(made, prod(shape[:lead]))
        width = rows.shape[1]
        columns = found.numbers(width) if width <= 4096 else Tensor.arange(values.device, width)
        put = found.module("put", PUT, held=rows.dtype.name)["put"]
        put(rows, places[:, None], columns[None], into)
    return made


def _rows(array: Any, count: int) -> Any:
    """Return an array as so many rows of scalars, in the same memory if it is contiguous."""
    layout = array.layout
    if layout.numpy_dtype.names is None:
        flat: Any = as_stored(array)
        flat = flat.flatten_dtype() if flat.layout.full_shape != flat.shape else flat
        return flat.reshape(count, -1)
    source = array if layout.contiguous else array.copy()
    words = source.address % 4 == 0 and layout.numpy_dtype.itemsize % 4 == 0
    scalar, unit = ("uint", 4) if words else ("uint8_t", 1)
    shape = (count, layout.nbytes // unit // count)
    seen = layout_of(layout.device, Tensor, element_type("", scalar), shape, None, source.address % 32 == 0)
    return Tensor.of(seen, source.buffer, source.address)
