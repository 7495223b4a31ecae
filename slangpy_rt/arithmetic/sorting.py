"""Sorting: the order of numbers along an axis, by their bits, and the numbers in that order."""

from __future__ import annotations

from math import prod
from typing import Any

from slangpy_rt.arithmetic.elementwise import scalar_of
from slangpy_rt.arithmetic.reductions import with_last
from slangpy_rt.arithmetic.scan_texts import SORT
from slangpy_rt.arithmetic.scans import Scans, by_parts, parts_of, scans
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import is_whole
from slangpy_rt.core.wording import in_words

# Zeros of both signs are equal, and NaN comes last, whatever its bits are.
_FLOAT = """if (isnan(x))
        return {bits}(-1);
    let b = bit_cast<{bits}>(x == 0 ? {held}(0) : x);
    return (b >> {top}) != 0 ? ~b : b | {bits}(1) << {top};"""
# By the scalar: the bits that are compared, how many there are, and the key.
_KEYS = {
    "bool": ("uint", 4, "return x ? 1 : 0;"),
    "int8_t": ("uint", 8, "return uint(int(x) + 0x80);"),
    "uint8_t": ("uint", 8, "return uint(x);"),
    "int16_t": ("uint", 16, "return uint(int(x) + 0x8000);"),
    "uint16_t": ("uint", 16, "return uint(x);"),
    "int": ("uint", 32, "return uint(x) ^ 0x80000000u;"),
    "uint": ("uint", 32, "return x;"),
    "int64_t": ("uint64_t", 64, "return uint64_t(x) ^ uint64_t(1) << 63;"),
    "uint64_t": ("uint64_t", 64, "return x;"),
    "half": ("uint", 32, "return key(float(x));"),
    "float": ("uint", 32, _FLOAT.format(bits="uint", held="float", top=31)),
    "double": ("uint64_t", 64, _FLOAT.format(bits="uint64_t", held="double", top=63)),
}
_FLOAT_KEY = "uint key(float x)\n{\n    " + _KEYS["float"][2] + "\n}"
_AT = "{held} at(Tensor<{held}, 1> row, int place) {{ return row[place]; }}\n"


def argsort(array: NDBuffer, axis: Any) -> Tensor:
    """Return the places of the numbers along an axis in rising order, as ``int``; equal ones keep their order.

    Raises
    ------
    BindError
        If the elements are no single numbers, or ``axis`` is no whole number.
    ShapeError
        If there is no such axis.
    """
    row, axis = _row("argsort", array, axis)
    found = Tensor.empty(array.device, array.shape, "int")
    if array.size:
        with_last(found, axis)[...] = _order(scans(array), row)
    return found


def sort(array: NDBuffer, axis: Any) -> Tensor:
    """Return a new array with the numbers along an axis in rising order; errors are those of ``argsort``."""
    row, axis = _row("sort", array, axis)
    found = Tensor.empty(array.device, array.shape, array.dtype)
    if array.size:
        with_last(found, axis)[...] = _at(row, _order(scans(array), row))
    return found


def along(array: NDBuffer, order: NDBuffer, axis: int) -> Tensor:
    """Return the numbers of an array at places along an axis, as ``argsort`` returns them."""
    found = Tensor.empty(array.device, array.shape, array.dtype)
    if array.size:
        axis = axis % len(array.shape)
        with_last(found, axis)[...] = _at(with_last(array, axis), with_last(order, axis))
    return found


def _at(row: Any, order: Any) -> Any:
    """Return the numbers at places of rows."""
    scalar = scalar_of("sort", row.dtype)
    at = scans(row).module("at", _AT, held=scalar if scalar != "bfloat16" else "float")["at"]
    plain: Any = row if scalar != "bfloat16" else row.astype("float")
    return at(plain[..., None, :], order)


def _row(where: str, array: NDBuffer, axis: Any) -> tuple[Any, int]:
    """Return an array with the axis moved to the end, and the axis counted from the first."""
    scalar_of(where, array.layout.element)
    if array.layout.element.shape:
        raise BindError(f"{where}: {array.summary} holds no single numbers, and has no order.")
    if not is_whole(axis):
        raise BindError(f"{where}: axis is {in_words(axis)}; a whole number was expected.")
    rank = len(array.shape)
    if not -rank <= axis < rank:
        raise ShapeError(f"{where}: axis {in_words(axis)} is no dimension of {array.summary}.")
    return with_last(array, axis % rank), int(axis) % rank


def _order(known: Scans, row: Any) -> Any:
    """Return the places of the numbers of each row in rising order."""
    scalar = scalar_of("", row.dtype)
    held = scalar if scalar != "bfloat16" else "float"
    bits, count, key = _KEYS[held]
    before = _FLOAT_KEY if held == "half" else ""
    module = known.module("sort", SORT, held=held, bits=bits, key=key, before=before)
    keys = Tensor.empty(row.device, row.shape, bits)
    module["keys"](row, _result=keys)
    groups = known.sorting(row.shape[-1])
    if groups is not None:
        return groups.order(keys, count).reshape(*row.shape)
    size, others = row.shape[-1], row.shape[:-1]
    parts, each = parts_of(size, prod(others))
    numbers = known.numbers(parts)
    order = Tensor.empty(row.device, row.shape, "int")
    order[...] = known.numbers(size) if size <= 4096 else Tensor.arange(row.device, size)
    counts = Tensor.empty(row.device, (*others, 16 * parts), "int")
    for shift in range(0, count, 4):
        given = (by_parts(keys), by_parts(order))
        module["digits"](*given, numbers, each, shift, parts, by_parts(counts))
        sums = known.running(counts)
        following = Tensor.empty(row.device, row.shape, "int")
        module["put"](*given, by_parts(sums), numbers, each, shift, parts, by_parts(following))
        order = following
    return order
