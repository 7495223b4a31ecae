"""Reductions of Tensors along axes: sums, means, extremes and where they are."""

from __future__ import annotations

from math import prod
from types import NoneType
from typing import Any, NamedTuple

from slangpy_rt.arithmetic.elementwise import elementwise, scalar_of
from slangpy_rt.arithmetic.group_reductions import GroupReduction, GroupReductions
from slangpy_rt.arithmetic.promotion import is_float
from slangpy_rt.arrays.layout import Layout, layout_of, new_array
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.checks import flag
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import whole_numbers
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

# A thread of a CPU reduces the numbers of a row from `thread * each` on. Several sums at once hide the latency of
# additions, and round less.
_SUM = """
{of} part(Tensor<{held}, 1> row, int thread, int each)
{{
    {of} sums[8] = {{}};
    int at = thread * each;
    let end = at + min(each, row.shape[0] - at);
    for (; at < end - 7; at += 8)
        [ForceUnroll] for (int k = 0; k < 8; ++k)
            sums[k] += {of}(row[at + k]);
    for (; at < end; ++at)
        sums[0] += {of}(row[at]);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}}
"""
_EXTREME = """
{of} better({of} found, {of} x) {{ return {better} ? x : found; }}
{of} part(Tensor<{held}, 1> row, int thread, int each)
{{
    int at = thread * each;
    let end = at + min(each, row.shape[0] - at);
    {of} found[8];
    for (int k = 0; k < 8; ++k)
        found[k] = {of}(row[at]);
    for (; at < end - 7; at += 8)
        [ForceUnroll] for (int k = 0; k < 8; ++k)
            found[k] = better(found[k], {of}(row[at + k]));
    for (; at < end; ++at)
        found[0] = better(found[0], {of}(row[at]));
    for (int k = 1; k < 8; ++k)
        found[0] = better(found[0], found[k]);
    return found[0];
}}
"""
# Candidates are indices into a row; without any, all of the row are.
_PLACE = """
bool isBetter({of} x, {of} found) {{ return {better}; }}
int part(Tensor<{held}, 1> row, int thread, int each)
{{
    int at = thread * each;
    let end = at + min(each, row.shape[0] - at);
    int found = at;
    while (++at < end)
        if (isBetter({of}(row[at]), {of}(row[found])))
            found = at;
    return found;
}}
int chosen(Tensor<{held}, 1> row, Tensor<int, 1> candidates, int thread, int each)
{{
    int at = thread * each;
    let end = at + min(each, candidates.shape[0] - at);
    int found = candidates[at];
    while (++at < end)
    {{
        let other = candidates[at];
        let x = {of}(row[other]);
        let y = {of}(row[found]);
        if (isBetter(x, y) || (other < found && !isBetter(y, x)))
            found = other;
    }}
    return found;
}}
"""
# Rows of so many numbers are reduced by one thread each.
_SHORT = 32
# The most threads of one launch, as long as each row has _SHORT of them.
_MOST = 1 << 16


# Plans that a device keeps.
_PLANS = 1024
# What a reduction is computed by.
_KINDS = {"mean": "sum", "any": "max", "all": "min"}
# Integers whose sums are larger than the largest of them: a sum wraps, as NumPy's does, but no mean does.
_LONG = ("int64_t", "uint64_t")


class _Plan(NamedTuple):
    """How arrays of one layout are reduced: along one axis after the other, each with the layout of its result."""

    passes: tuple[tuple[GroupReduction, Layout], ...]

    def run(self, array: NDBuffer) -> Tensor:
        """Return the reduction of an array."""
        found: Any = array
        for reduction, layout in self.passes:
            made = new_array(layout)
            reduction.run(found, made)
            found = made
        result: Tensor = found
        return result


class Reductions:
    """The reductions of one device.

    Parameters
    ----------
    device : Device
        The device on which they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._groups = GroupReductions(device) if device.backend.target.groups else None
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._modules: dict[tuple[str, str], Module] = {}
        self._counts: dict[tuple[int, int], Tensor] = {}

    def reduce(self, name: str, array: NDBuffer, axis: Any, keepdims: bool) -> Tensor:
        """Return the reduction of an array along axes.

        Parameters
        ----------
        name : str
            ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, ``"argmin"``, ``"argmax"``; of bools ``"any"``, ``"all"``.
        array : NDBuffer
            Numbers, vectors or matrices.
        axis : int, tuple of int or None
            The dimensions that are reduced; all of them for None.
        keepdims : bool
            Whether they stay, with size 1.

        Raises
        ------
        BindError
            If the elements are structs, or ``axis`` is no axis or several for an index.
        ShapeError
            If there is no element of which a mean or an extreme could be.
        """
        # True would be found for 1.
        plain = type(axis) in (int, NoneType) and type(keepdims) is bool
        key = (name, array.layout, axis, keepdims)
        plan = self._plans.get(key) if plain else None
        if plan is not None:
            return plan.run(array)
        where = f"Tensor.{name}"
        flag(where, "keepdims", keepdims)
        axes = axes_of(where, array, axis)
        element = array.layout.element
        scalar = scalar_of(where, element)
        place = name in ("argmin", "argmax")
        if place and (element.shape or (axis is not None and len(axes) != 1)):
            raise BindError(f"{where}: {array.summary} has no order along {in_words(axis)}; one axis of numbers has.")
        kept = [1 if k in axes else n for k, n in enumerate(array.shape) if keepdims or k not in axes]
        dims = array.layout.full_shape[len(array.shape) :]
        count = prod(array.shape[k] for k in axes)
        if not count and name not in ("sum", "mean", "any", "all"):
            raise ShapeError(f"{where}: {array.summary} has no elements along {axes}, and so no {name}.")
        kind = "mean" if name == "mean" and scalar in _LONG else _KINDS.get(name, name)
        of = computed_in(kind, scalar)
        if of == "double" and of not in self._device.caps.scalars:
            of = "float"
        into = "int" if place else of if name == "sum" and not is_float(scalar) else scalar
        into = "float" if name == "mean" and not is_float(scalar) else into
        if self._groups is not None and axes and count:
            if place and axis is None and not array.is_contiguous:
                return self.reduce(
                    name, Tensor.of(array.layout, array.buffer, array.address).reshape(-1), None, keepdims
                )
            plan = self._planned("mean" if name == "mean" else kind, array.layout, axes, (of, into), (*kept,))
            if plain:
                if len(self._plans) >= _PLANS:
                    self._plans.clear()
                self._plans[key] = plan
            return plan.run(array)
        found: Any = array.flatten_dtype() if element.shape else array
        if not dims and len(axes) == len(array.shape) != 1 and (place or found.is_contiguous):
            found, axes = found.reshape(-1), (0,)
        if count:
            for axis_ in reversed(axes):
                found = self._along(kind, found, axis_)
        else:
            found = Tensor.full(self._device, (*kept, *dims), int(name == "all"), of)
        if name == "mean":
            found = found / (count if count else float("nan"))
        found = found if found.shape == (*kept, *dims) else found.reshape(*kept, *dims)
        if not dims and found.dtype.name == into and found is not array:
            result: Tensor = found
            return result
        made = Tensor.empty(self._device, tuple(kept), element_of(into, element))
        elementwise(made).write(found, made.flatten_dtype() if dims else made)
        return made

    def _planned(
        self, name: str, array: Layout, axes: tuple[int, ...], types: tuple[str, str], kept: tuple[int, ...]
    ) -> _Plan:
        """Return how thread groups reduce arrays of a layout."""
        assert self._groups is not None
        of, into = types
        count = prod(array.shape[k] for k in axes)
        result = layout_of(self._device, Tensor, element_of(into, array.element), kept)
        shape, strides = array.full_shape, array.strides
        if len(axes) == len(shape) and array.contiguous:
            shape, strides, axes = (count,), (1,), (0,)
        found = layout_of(self._device, Tensor, element_type("", scalar_of("", array.element)), shape, strides, False)
        passes = []
        for axis in reversed(axes):
            last = axis == axes[0]
            kind = name if last else "sum" if name == "mean" else name
            made = (
                result
                if last
                else layout_of(
                    self._device, Tensor, element_type("", of), found.shape[:axis] + found.shape[axis + 1 :]
                )
            )
            passes.append((self._groups.along(kind, found, axis, of, into if last else of, count), made))
            found = made
        return _Plan(tuple(passes))

    def _along(self, kind: str, array: Any, axis: int) -> Any:
        """Return the reduction of an array of scalars along one axis."""
        own = array.layout
        inner = own.strides[axis] <= min((s for s, n in zip(own.strides, own.shape, strict=True) if n > 1), default=1)
        row = with_last(array, axis)
        place = kind in ("argmin", "argmax")
        module = self._module(kind, array)
        found, behind = self._round(module["part"], row, None, inner)
        while found.ndim == row.ndim:
            if place:
                found, behind = self._round(module["chosen"], row, behind, inner)
            else:
                found, behind = self._round(self._module(kind, found)["part"], behind, None, inner)
        return found

    def _round(self, function: Any, row: Any, candidates: Any, inner: bool) -> tuple[Any, Any]:
        """Reduce the last axis of an array, to a shorter one where several threads take part in it.

        Returns
        -------
        Tensor
            The result: without that axis, or with an axis that has a number for each thread.
        Tensor
            The result with the axis of the threads at the end.
        """
        size = (row if candidates is None else candidates).shape[-1]
        others = prod(row.shape[:-1])
        threads = max(1, min(size // _SHORT, max(_SHORT, _MOST // max(others, 1))))
        given = (row,) if candidates is None else (row, candidates)
        if threads == 1:
            found = function(*given, 0, size)
            return found, found
        each = -(-size // threads)
        threads = -(-size // each)
        # Neighbours read what is beside the axis, if that is closer.
        at = row.ndim - 1 if inner else 0
        numbers = self._numbers(threads, 1 if inner else row.ndim)
        found = function(*[_with_one(x, at) for x in given], numbers, each)
        return found, found if inner else with_last(found, 0)

    def _numbers(self, count: int, rank: int) -> Any:
        """Return a Tensor of 0 to ``count - 1`` in the first of so many dimensions."""
        found = self._counts.get((count, rank))
        if found is None:
            numbers = Tensor.arange(self._device, count).view((count, *(1,) * (rank - 1)))
            found = self._counts[count, rank] = numbers
        return found

    def _module(self, kind: str, array: NDBuffer) -> Module:
        scalar = scalar_of("", array.layout.element)
        of = computed_in(kind, scalar)
        found = self._modules.get((kind, scalar))
        if found is None:
            less = "x < found" if kind in ("min", "argmin") else "x > found"
            if is_float(scalar):
                less += " || (isnan(x) && !isnan(found))"
            text = (_SUM if kind in ("sum", "mean") else _PLACE if kind.startswith("arg") else _EXTREME).format(
                of=of, held=scalar, better=less
            )
            found = Module.load_from_source(self._device, f"slangpy_rt_{kind}_{scalar}", text)
            self._modules[kind, scalar] = found
        return found


def reductions(array: NDBuffer) -> Reductions:
    """Return the reductions of an array's device."""
    device = array.layout.device
    return device.once("reductions", lambda: Reductions(device))


def computed_in(kind: str, scalar: str) -> str:
    """Return the scalar type that a reduction of scalars is computed in."""
    if kind == "mean" and scalar in _LONG:
        return "double"
    if scalar == "bfloat16" or (kind == "sum" and scalar == "half"):
        return "float"
    if kind == "sum" and not is_float(scalar):
        return "uint64_t" if scalar.startswith("u") else "int64_t"
    return "int" if scalar == "bool" else scalar


def element_of(scalar: str, like: SlangType) -> SlangType:
    """Return an element type of a scalar type and another element's dimensions."""
    if like.shape:
        return element_type("", like.name.replace(like.scalar, scalar, 1))
    return element_type("", scalar)


def with_last(array: Any, axis: int) -> Any:
    """Return a view of an array of scalars with an axis moved to the end."""
    order = [k for k in range(array.ndim) if k != axis] + [axis]
    own = array.layout
    return _view(array, *(tuple([x[k] for k in order]) for x in (own.shape, own.strides)))


def _with_one(array: Any, axis: int) -> Any:
    """Return a view of an array of scalars with one more dimension, of size 1."""
    shape, strides = array.layout.shape, array.layout.strides
    return _view(array, (*shape[:axis], 1, *shape[axis:]), (*strides[:axis], 0, *strides[axis:]))


def _view(array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    own = array.layout
    layout = layout_of(own.device, type(array), own.element, shape, strides, own.aligned)
    return type(array).of(layout, array.buffer, array.address)


def axes_of(where: str, array: NDBuffer, axis: Any) -> tuple[int, ...]:
    """Return the axes of a reduction, in rising order."""
    rank = len(array.shape)
    if axis is None:
        return tuple(range(rank))
    given = whole_numbers(axis)
    if given is None:
        raise BindError(f"{where}: axis is {in_words(axis)}; a whole number, several, or None was expected.")
    found = sorted({a + rank if a < 0 else a for a in given})
    if len(found) != len(given) or not all(0 <= a < rank for a in found):
        raise ShapeError(f"{where}: axis {in_words(axis)} does not name different dimensions of {array.summary}.")
    return tuple(found)
