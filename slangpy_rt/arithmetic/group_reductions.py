"""GroupReductions: reductions by ``shaders/_spy_reduce.slang``, whose thread groups share memory."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from slangpy_rt.arithmetic.promotion import is_float
from slangpy_rt.arrays.layout import Layout, layout_of, new_array
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.dtypes import element_type

_FILE = "_spy_reduce.slang"
_THREADS = 256
# The most groups of a launch, which every API allows.
_MOST = 32768
# Elements of each lane from which on a row is worth another group.
_DEEP = 32


class _Division(NamedTuple):
    """How rows are divided among threads.

    Attributes
    ----------
    busy : int
        Groups that give a device enough to do.
    inner, outer : int
        The most threads of a row whose elements lie beside each other, and of another one.
    """

    busy: int
    inner: int
    outer: int


_GPU = _Division(1024, _THREADS, 8)
# Where threads are lanes of vectors, one vector has a row, and another one the same columns of several rows.
_CORES = _Division(32, 32, 4)


class _Step(NamedTuple):
    """A launch: what it reads and writes, and its numbers.

    It reads what the step before wrote, or, where ``candidates`` is the layout of that, the array itself.
    """

    kernel: Kernel
    threads: int
    reads: Layout
    candidates: Layout | None
    writes: Layout
    numbers: tuple[Any, ...]


class GroupReduction(NamedTuple):
    """The launches that reduce arrays of one layout along an axis, or along all."""

    steps: tuple[_Step, ...]
    none: Tensor

    def run(self, array: NDBuffer, result: Tensor) -> None:
        """Reduce an array into the memory of a result."""
        found: NDBuffer = array
        for step in self.steps:
            source, candidates = found, self.none
            if step.candidates is not None:
                source, candidates = array, Tensor.of(step.candidates, found.buffer, found.address)
            made = result if step is self.steps[-1] else new_array(step.writes)
            step.kernel.dispatch(
                step.threads,
                Tensor.of(step.reads, source.buffer, source.address),
                candidates,
                Tensor.of(step.writes, made.buffer, made.address),
                *step.numbers,
            )
            found = made


class GroupReductions:
    """The kernels of one device.

    Parameters
    ----------
    device : Device
        A device with groups.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._none = Tensor.empty(device, (0, 0), "int")
        self._division = _CORES if device.backend.target.lane_threads else _GPU

    def along(self, name: str, array: Layout, axis: int, of: str, into: str, count: int) -> GroupReduction:
        """Return the launches that reduce arrays of scalars along one axis.

        Parameters
        ----------
        name : str
            As for ``Reductions.reduce``; the last axis of a mean divides by ``count``.
        array : Layout
            Of scalars.
        axis : int
            The dimension that is reduced; it has elements.
        of, into : str
            The scalar type that is computed in, and that of the result.
        count : int
            The number of elements of which a mean is.
        """
        others = [k for k in range(len(array.shape)) if k != axis]
        rows, size = prod(array.shape[k] for k in others), array.shape[axis]
        reach = [abs(array.strides[k]) for k in others if array.shape[k] > 1]
        inner = not reach or abs(array.strides[axis]) <= min(reach)
        lanes = _lanes(rows, size, inner, self._division)
        abreast = _THREADS // lanes
        parts = max(1, min(-(-self._division.busy * abreast // max(rows, 1)), -(-size // (lanes * _DEEP))))
        parts = -(-size // -(-size // parts))
        order = (*others, axis)
        reads = self._layout(array.element.name, *([x[k] for k in order] for x in (array.shape, array.strides)))
        place = name.startswith("arg")
        if parts == 1:
            only = self._step(name, reads, None, rows, size, 1, lanes, inner, (of, into), count)
            return GroupReduction((only,), self._none)
        between = "int" if place else of
        kind = "sum" if name == "mean" else name
        first = self._step(kind, reads, None, rows, size, parts, lanes, inner, (of, between), count)
        again = self._layout(between, (rows, parts))
        lanes = _lanes(rows, parts, True, self._division)
        if place:
            last = self._step(name, reads, again, rows, parts, 1, lanes, True, (of, into), count)
        else:
            last = self._step(name, again, None, rows, parts, 1, lanes, True, (of, into), count)
        return GroupReduction((first, last), self._none)

    def _step(
        self,
        name: str,
        reads: Layout,
        candidates: Layout | None,
        rows: int,
        size: int,
        parts: int,
        lanes: int,
        inner: bool,
        types: tuple[str, str],
        count: int,
    ) -> _Step:
        of, into = types
        better = "x < found" if name in ("min", "argmin") else "x > found"
        if is_float(of):
            # Of extremes another NaN may replace one.
            better += " || (isnan(x) && !isnan(found))" if name.startswith("arg") else " || isnan(x)"
        macros = {
            "SPY_HELD": reads.element.name,
            "SPY_OF": of,
            "SPY_INTO": into,
            "SPY_RANK": len(reads.shape),
            "SPY_SUM": name in ("sum", "mean"),
            "SPY_DIVIDES": name == "mean",
            "SPY_MEAN": of if is_float(of) else "float",
            "SPY_BETTER": better,
            "SPY_PLACE": name.startswith("arg"),
            "SPY_CANDIDATES": candidates is not None,
            "SPY_INNER": inner,
        }
        kernel: Any = Module.load_from_file(self._device, _FILE, defines=macros)["_spy_reduce"]
        groups = min(_MOST, -(-rows * parts * lanes // _THREADS))
        numbers = (size, lanes, parts, rows, groups, count)
        return _Step(kernel, groups * _THREADS, reads, candidates, self._layout(into, (rows * parts,)), numbers)

    def _layout(self, scalar: str, shape: Any, strides: Any = None) -> Layout:
        element = element_type("", scalar)
        return layout_of(
            self._device, Tensor, element, tuple(shape), None if strides is None else tuple(strides), False
        )


def _lanes(rows: int, size: int, inner: bool, division: _Division) -> int:
    """Return how many threads take part in a row, a power of 2."""
    # Several elements of each where there are enough rows, and where neighbours read those of other rows.
    each = 8 if rows * size > division.busy * _THREADS or not inner else 2
    most = division.inner if inner else division.outer
    return min(most, 1 << max(0, (-(-size // each) - 1).bit_length()))
