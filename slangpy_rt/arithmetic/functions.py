"""Functions of arrays that are no methods of theirs: ``cumsum``, ``nonzero``, ``argsort`` and ``sort``."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arithmetic import sorting
from slangpy_rt.arithmetic.scans import plain, scans
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.checks import short_traceback
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words


@short_traceback
def cumsum(array: Tensor, axis: int | None = None) -> Tensor:
    """Return the running sums of an array along an axis, as ``numpy.cumsum``.

    Parameters
    ----------
    array : Tensor
        Numbers, or vectors or matrices, which are added up component by component.
    axis : int, optional
        The dimension that is added up; by default the array is seen as one of a single dimension.

    Returns
    -------
    Tensor
        A new array. Sums of integers are ``int64_t`` or ``uint64_t``; those of half and bfloat16 are kept in float
        and rounded once.

    Raises
    ------
    BindError
        If the elements are structs, or ``axis`` is no whole number.
    ShapeError
        If there is no such axis.
    """
    recorder = RECORDER.get()
    if recorder is not None and isinstance(array, NDBuffer):
        recorded: Tensor = recorder.cumsum(array, axis)
        return recorded
    source = _array("cumsum", array)
    return scans(source).cumsum(source, axis)


@short_traceback
def nonzero(array: Tensor) -> tuple[Tensor, ...]:
    """Return the indices of the elements that are not zero, as ``numpy.nonzero``.

    Parameters
    ----------
    array : Tensor
        Numbers or bools.

    Returns
    -------
    tuple of Tensor
        For each dimension the indices, of type ``int``, in row-major order.

    Raises
    ------
    BindError
        If the elements are no single numbers.
    ShapeError
        If the array has no dimension, or 2^31 elements or more.
    """
    source = _array("nonzero", array)
    return scans(source).coordinates(source)


@short_traceback
def argsort(array: Tensor, axis: int = -1) -> Tensor:
    """Return the indices that sort an array along an axis, as ``numpy.argsort`` with ``kind="stable"``.

    Parameters
    ----------
    array : Tensor
        Numbers or bools.
    axis : int
        The dimension that is sorted.

    Returns
    -------
    Tensor
        Indices of type ``int``, of the array's shape: those of the least numbers first, of equal ones in their order,
        and those of NaN last.

    Raises
    ------
    BindError
        If the elements are no single numbers, or ``axis`` is no whole number.
    ShapeError
        If there is no such axis.
    """
    return sorting.argsort(_array("argsort", array), axis)


@short_traceback
def sort(array: Tensor, axis: int = -1) -> Tensor:
    """Return a new array with the numbers along an axis in rising order, NaN last, as ``numpy.sort``.

    Parameters
    ----------
    array : Tensor
        Numbers or bools.
    axis : int
        The dimension that is sorted.

    Raises
    ------
    BindError, ShapeError
        As ``argsort``.
    """
    recorder = RECORDER.get()
    if recorder is not None and isinstance(array, NDBuffer):
        recorded: Tensor = recorder.sort(array, axis)
        return recorded
    return sorting.sort(_array("sort", array), axis)


def _array(where: str, value: Any) -> Tensor:
    if not isinstance(value, NDBuffer):
        raise BindError(
            f"{where}: array is {in_words(value)}; a Tensor was expected, as Tensor.from_numpy(device, array) is."
        )
    return plain(value)
