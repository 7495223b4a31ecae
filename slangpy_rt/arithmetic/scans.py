"""Scans: running sums along an axis, and the places of numbers that are not zero."""

from __future__ import annotations

from math import prod
from typing import Any

from slangpy_rt.arithmetic.elementwise import scalar_of
from slangpy_rt.arithmetic.group_scans import GroupScans
from slangpy_rt.arithmetic.promotion import is_float
from slangpy_rt.arithmetic.reductions import computed_in, element_of, with_last
from slangpy_rt.arithmetic.scan_texts import COORDINATE, PLACES, SCAN
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import is_whole
from slangpy_rt.core.wording import in_words

# Numbers of a part at least, and the most parts of all rows. A launch takes longer than to add up 4096 numbers, and
# 256 parts are enough for the threads of a CPU: one launch then scans the sums of all parts.
_EACH = 4096
_MOST = 256
_LIMIT = 2**31 - 1


class Scans:
    """The scans of one device.

    Parameters
    ----------
    device : Device
        The device on which they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        # In lanes, sums over columns take 16 times as long by groups and large sorts 1.4 times; sums of one row take
        # 0.6 times as long, and sorts of short rows a quarter.
        target = device.backend.target
        by_groups = GroupScans(device) if target.groups else None
        self.groups = None if target.lane_threads else by_groups
        self._by_groups = by_groups
        self._modules: dict[tuple[str, ...], Module] = {}
        self._numbers: dict[int, Tensor] = {}

    def cumsum(self, array: NDBuffer, axis: Any) -> Tensor:
        """Return running sums along an axis, or along the flattened array for None.

        Raises
        ------
        BindError
            If the elements are structs, or ``axis`` is no whole number.
        ShapeError
            If there is no such axis.
        """
        where = "cumsum"
        element = array.layout.element
        scalar = scalar_of(where, element)
        values: Any = array
        if axis is None:
            values, axis = values.reshape(-1), 0
        rank = len(values.shape)
        if not is_whole(axis):
            raise BindError(f"{where}: axis is {in_words(axis)}; a whole number or None was expected.")
        if not -rank <= axis < rank:
            raise ShapeError(f"{where}: axis {in_words(axis)} is no dimension of {array.summary}.")
        of = computed_in("sum", scalar)
        into = scalar if is_float(scalar) else of
        made = Tensor.empty(self._device, values.shape, element_of(into, element))
        self._scan(with_last(_scalars(values), axis % rank), with_last(_scalars(made), axis % rank), scalar, of, into)
        return made

    def nonzero(self, array: NDBuffer) -> Tensor:
        """Return the places, in row-major order, of the elements that are not zero, as an array of ``int``."""
        where = "nonzero"
        scalar = scalar_of(where, array.layout.element)
        if array.layout.element.shape:
            raise BindError(f"{where}: {array.summary} holds no single numbers; see it as them with flatten_dtype().")
        row = flat(array)
        size = row.shape[0]
        if size > _LIMIT:
            raise ShapeError(f"{where}: {array.summary} has more elements than int counts; take a part of it.")
        if not size:
            return Tensor.empty(self._device, 0, "int")
        if self.groups is not None:
            test = "x" if scalar == "bool" else "float(x) != 0" if scalar == "bfloat16" else "x != 0"
            return self.groups.nonzero(row, scalar, test)
        test = "row[at]" if scalar == "bool" else "float(row[at]) != 0" if scalar == "bfloat16" else "row[at] != 0"
        module = self.module("places", PLACES, held=scalar, test=test)
        parts, each = parts_of(size, 1)
        numbers = self.numbers(parts)
        sums = self.running(module["count"](row, numbers, each))
        found = Tensor.empty(self._device, int(sums[-1].item()), "int")
        if found.size:
            module["places"](row, sums, numbers, each, found)
        return found

    def coordinates(self, array: NDBuffer) -> tuple[Tensor, ...]:
        """Return the indices of the elements that are not zero, an array for each dimension.

        Raises
        ------
        ShapeError
            If the array has no dimension.
        """
        if not array.shape:
            raise ShapeError(f"nonzero: {array.summary} has no dimension to count in; reshape(-1) gives it one.")
        places = self.nonzero(array)
        if len(array.shape) == 1:
            return (places,)
        coordinate = self.module("coordinate", COORDINATE)["coordinate"]
        shape = array.shape
        return tuple(
            coordinate(places, prod(shape[k + 1 :]), n) if places.size else Tensor.empty(self._device, 0, "int")
            for k, n in enumerate(shape)
        )

    def sorting(self, size: int) -> GroupScans | None:
        """Return what sorts rows of so many elements by groups; None if calls do."""
        return self._by_groups if size <= _EACH // 2 else self.groups

    def running(self, counts: Tensor) -> Tensor:
        """Return the running sums of a row of ``int``."""
        made = Tensor.empty(self._device, counts.shape, "int")
        self._scan(counts, made, "int", "int", "int")
        return made

    def numbers(self, count: int) -> Tensor:
        """Return a Tensor of 0 to ``count - 1``."""
        found = self._numbers.get(count)
        if found is None:
            found = self._numbers[count] = Tensor.arange(self._device, count)
        return found

    def module(self, name: str, text: str, **types: str) -> Module:
        """Return the module of a text of ``scan_texts.py`` for these types."""
        key = (name, *types.values())
        found = self._modules.get(key)
        if found is None:
            scalars = (types[n] for n in ("held", "of", "into") if n in types)
            title = "_".join(("slangpy_rt", name, *scalars))
            text = text.format(**types) if types else text
            found = self._modules[key] = Module.load_from_source(self._device, title, text)
        return found

    def _scan(self, row: Any, result: Any, held: str, of: str, into: str) -> None:
        """Write the running sums along the last axis of an array of scalars."""
        size, others = row.shape[-1], prod(row.shape[:-1])
        if not size or not others:
            return
        groups = self._by_groups if others == 1 else self.groups
        if groups is not None:
            groups.scan(row, result, held, of, into)
            return
        module = self.module("scan", SCAN, held=held, of=of, into=into)
        parts, each = parts_of(size, others)
        numbers = self.numbers(parts)
        rows = by_parts(row)
        sums: Any = Tensor.empty(self._device, (*row.shape[:-1], parts), of)
        if parts > 1:
            self._scan(module["total"](rows, numbers, each), sums, of, of, of)
        module["scan"](rows, by_parts(sums), numbers, each, by_parts(result))


def plain(array: NDBuffer) -> Tensor:
    """Return an array as a Tensor of the same memory without gradients."""
    if isinstance(array, Tensor):
        return array.detach()
    own = array.layout
    layout = layout_of(own.device, Tensor, own.element, own.shape, own.strides, own.aligned)
    return Tensor.of(layout, array.buffer, array.address)


def scans(array: NDBuffer) -> Scans:
    """Return the scans of an array's device."""
    device = array.layout.device
    return device.once("scans", lambda: Scans(device))


def parts_of(size: int, rows: int) -> tuple[int, int]:
    """Return into how many parts each of some rows is divided, and the numbers of a part."""
    parts = max(1, min(size // _EACH, _MOST // rows))
    each = -(-size // parts)
    return -(-size // each), each


def by_parts(rows: Any) -> Any:
    """Return rows with a dimension in front of the last, along which parts broadcast; one row alone has all parts."""
    return rows if len(rows.shape) == 1 else rows[..., None, :]


def flat(array: Any) -> Any:
    """Return an array's elements in one dimension."""
    return array if len(array.shape) == 1 else array.reshape(-1)


def _scalars(array: Any) -> Any:
    return array.flatten_dtype() if array.layout.element.shape else array
