"""Reductions of Tensors along axes: sums, means, extremes and where they are."""

from __future__ import annotations

from math import prod
from typing import Any

from slangpy_rt.arithmetic.elementwise import elementwise, scalar_of
from slangpy_rt.arithmetic.promotion import is_float
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.checks import flag
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import whole_numbers
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

# A thread reduces every `step`th number of a row from `thread * apart` on, and none that is `most` further. Several
# sums at once hide the latency of additions, and round less.
_SUM = """
{of} part(Tensor<{held}, 1> row, int thread, int apart, int step, int most)
{{
    {of} sums[8] = {{}};
    int64_t at = int64_t(thread) * apart;
    let end = min(int64_t(row.shape[0]), at + most);
    for (; at + 7 * int64_t(STEP) < end; at += 8 * int64_t(STEP))
        [ForceUnroll] for (int k = 0; k < 8; ++k)
            sums[k] += {of}(row[int(at + k * int64_t(STEP))]);
    for (; at < end; at += STEP)
        sums[0] += {of}(row[int(at)]);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}}
"""
_EXTREME = """
{of} better({of} found, {of} x) {{ return {better} ? x : found; }}
{of} part(Tensor<{held}, 1> row, int thread, int apart, int step, int most)
{{
    int64_t at = int64_t(thread) * apart;
    let end = min(int64_t(row.shape[0]), at + most);
    {of} found[8];
    for (int k = 0; k < 8; ++k)
        found[k] = {of}(row[int(at)]);
    for (; at + 7 * int64_t(STEP) < end; at += 8 * int64_t(STEP))
        [ForceUnroll] for (int k = 0; k < 8; ++k)
            found[k] = better(found[k], {of}(row[int(at + k * int64_t(STEP))]));
    for (; at < end; at += STEP)
        found[0] = better(found[0], {of}(row[int(at)]));
    for (int k = 1; k < 8; ++k)
        found[0] = better(found[0], found[k]);
    return found[0];
}}
"""
# Candidates are indices into a row; without any, all of the row are.
_PLACE = """
bool isBetter({of} x, {of} found) {{ return {better}; }}
int part(Tensor<{held}, 1> row, int thread, int apart, int step, int most)
{{
    int64_t at = int64_t(thread) * apart;
    let end = min(int64_t(row.shape[0]), at + most);
    int found = int(at);
    for (at += STEP; at < end; at += STEP)
        if (isBetter({of}(row[int(at)]), {of}(row[found])))
            found = int(at);
    return found;
}}
int chosen(Tensor<{held}, 1> row, Tensor<int, 1> candidates, int thread, int apart, int step, int most)
{{
    int64_t at = int64_t(thread) * apart;
    let end = min(int64_t(candidates.shape[0]), at + most);
    int found = candidates[int(at)];
    for (at += STEP; at < end; at += STEP)
    {{
        let other = candidates[int(at)];
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


class Reductions:
    """The reductions of one device.

    Parameters
    ----------
    device : Device
        The device on which they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._on_host = "zero_copy" in device.caps.features
        self._modules: dict[tuple[str, str], Module] = {}
        self._counts: dict[tuple[int, int], Tensor] = {}

    def reduce(self, name: str, array: NDBuffer, axis: Any, keepdims: bool) -> Tensor:
        """Return the reduction of an array along axes.

        Parameters
        ----------
        name : str
            ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, ``"argmin"`` or ``"argmax"``.
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
        where = f"Tensor.{name}"
        flag(where, "keepdims", keepdims)
        axes = _axes(where, array, axis)
        element = array.layout.element
        scalar = scalar_of(where, element)
        place = name in ("argmin", "argmax")
        if place and (element.shape or (axis is not None and len(axes) != 1)):
            raise BindError(f"{where}: {array.summary} has no order along {in_words(axis)}; one axis of numbers has.")
        kept = [1 if k in axes else n for k, n in enumerate(array.shape) if keepdims or k not in axes]
        dims = array.layout.full_shape[len(array.shape) :]
        count = prod(array.shape[k] for k in axes)
        if not count and name not in ("sum", "mean"):
            raise ShapeError(f"{where}: {array.summary} has no elements along {axes}, and so no {name}.")
        kind = "sum" if name == "mean" else name
        of = _computed(kind, scalar)
        into = "int" if place else of if name == "sum" and not is_float(scalar) else scalar
        into = "float" if name == "mean" and not is_float(scalar) else into
        found: Any = array.flatten_dtype() if element.shape else array
        if not dims and len(axes) == len(array.shape) != 1 and (place or found.is_contiguous):
            found, axes = found.reshape(-1), (0,)
        if count:
            for axis_ in reversed(axes):
                found = self._along(kind, found, axis_)
        else:
            found = Tensor.zeros(self._device, (*kept, *dims), of)
        if name == "mean":
            found = found / (count if count else float("nan"))
        found = found if found.shape == (*kept, *dims) else found.reshape(*kept, *dims)
        if not dims and found.dtype.name == into and found is not array:
            result: Tensor = found
            return result
        made = Tensor.empty(self._device, tuple(kept), _element(into, element))
        elementwise(made).write(found, made.flatten_dtype() if dims else made)
        return made

    def _along(self, kind: str, array: Any, axis: int) -> Any:
        """Return the reduction of an array of scalars along one axis."""
        own = array.layout
        inner = own.strides[axis] <= min((s for s, n in zip(own.strides, own.shape, strict=True) if n > 1), default=1)
        row = _with_last(array, axis)
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
            found = function(*given, 0, 0, 1, size)
            return found, found
        apart, step, most = 1, threads, size
        if self._on_host:
            # A thread of a CPU reads what lies together; of a GPU, neighbours do.
            apart = most = -(-size // threads)
            step, threads = 1, -(-size // apart)
        # Neighbours read what is beside the axis, if that is closer.
        at = row.ndim - 1 if inner else 0
        numbers = self._numbers(threads, 1 if inner else row.ndim)
        found = function(*[_with_one(x, at) for x in given], numbers, apart, step, most)
        return found, found if inner else _with_last(found, 0)

    def _numbers(self, count: int, rank: int) -> Any:
        """Return a Tensor of 0 to ``count - 1`` in the first of so many dimensions."""
        found = self._counts.get((count, rank))
        if found is None:
            numbers = Tensor.arange(self._device, count).view((count, *(1,) * (rank - 1)))
            found = self._counts[count, rank] = numbers
        return found

    def _module(self, kind: str, array: NDBuffer) -> Module:
        scalar = scalar_of("", array.layout.element)
        of = _computed(kind, scalar)
        found = self._modules.get((kind, scalar))
        if found is None:
            less = "x < found" if kind in ("min", "argmin") else "x > found"
            if is_float(scalar):
                less += " || (isnan(x) && !isnan(found))"
            # Where a step is 1, the compiler of the CPU adds several numbers at once.
            head = "#define STEP 1\n" if self._on_host else "#define STEP step\n"
            text = head + (_SUM if kind == "sum" else _PLACE if kind.startswith("arg") else _EXTREME).format(
                of=of, held=scalar, better=less
            )
            found = Module.load_from_source(self._device, f"slangpy_rt_{kind}_{scalar}", text)
            self._modules[kind, scalar] = found
        return found


def reductions(array: NDBuffer) -> Reductions:
    """Return the reductions of an array's device."""
    device = array.layout.device
    return device.once("reductions", lambda: Reductions(device))


def _computed(kind: str, scalar: str) -> str:
    """Return the scalar type that a reduction of scalars is computed in."""
    if scalar == "bfloat16" or (kind == "sum" and scalar == "half"):
        return "float"
    if kind == "sum" and not is_float(scalar):
        return "uint64_t" if scalar.startswith("u") else "int64_t"
    return "int" if scalar == "bool" else scalar


def _element(scalar: str, like: SlangType) -> SlangType:
    """Return an element type of a scalar type and another element's dimensions."""
    if like.shape:
        return element_type("", like.name.replace(like.scalar, scalar, 1))
    return element_type("", scalar)


def _with_last(array: Any, axis: int) -> Any:
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


def _axes(where: str, array: NDBuffer, axis: Any) -> tuple[int, ...]:
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
