"""GradientCheck: compares ``bwds``, ``fwds`` and a call of a function with each other and with central differences.

``gradient_launches`` runs them. What is compared are products of derivatives with random directions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.differentials import differentiates
from slangpy_rt.arguments.stand_ins import ask
from slangpy_rt.arrays.tensor import has_floats
from slangpy_rt.calls.argument_copies import Constant, Group, Leaf, Node, plain
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.central_differences import Directions, directions, slopes
from slangpy_rt.calls.gradient_launches import GradientLaunches, Quantity, scalars_of
from slangpy_rt.calls.gradient_report import ArgumentRow, GradientReport, ResultRow
from slangpy_rt.core.checks import whole
from slangpy_rt.core.errors import BindError, CompileError, GradientError, UnsupportedError
from slangpy_rt.slang.shader_modules import is_ours
from slangpy_rt.slang.text import blank, declarations

if TYPE_CHECKING:
    pass

Array = npt.NDArray[Any]

# Elements of a call that ``check_grads`` compares.
_MOST = 256
# Differences of ``bwds`` and ``fwds``, and of the value of ``fwds``, that count as rounding: of floats, and in units
# of the last place of shorter types. Both sum the same products in another order.
_DOT, _UNITS = 1e-3, 32
# The same where a function computes with a shorter type inside: each step rounds once, and steps are averaged.
_INNER = 8
# Of derivatives and central differences.
_DIFFERENCES = 1e-2
# A difference whose error is estimated to be a larger share of the derivative decides nothing.
_SURE = 0.1
# A number that is smaller than the largest by this factor may be wrong by as much as the largest.
_SMALL = 1e-3
# Where something is wrong, derivatives that change with the last places of the arguments may differ by so many times
# the change.
_SPREAD = 8
_EPSILON = {"half": 2.0**-10, "bfloat16": 2.0**-7, "float": 2.0**-23, "double": 2.0**-52}
_BY_FORWARD = "fwds is, and bwds is right by differences"
_BY_INTENT = "right if no_diff, detach or a derivative by hand differs from the function on purpose"


class GradientCheck:
    """A check of the derivatives of one call.

    Parameters
    ----------
    launches : GradientLaunches
        Launches of the function and of its derivatives, on the call's arguments.
    """

    def __init__(self, launches: GradientLaunches) -> None:
        self._launches = launches
        # What ``fwds`` wrote, and why it cannot be called.
        self._written: dict[Leaf, Array] = {}
        self._forward_fails = ""

    def report(self, differences: bool) -> GradientReport:
        """Return the comparison, with central differences or without."""
        launches = self._launches
        rows = {q.name: self._row(q, differences) for q in launches.inputs}
        results = tuple(self._result_rows())
        arguments: list[ArgumentRow] = []
        for p, k in zip(launches.sig.params, launches.order, strict=False):
            type_ = launches.scope.struct(p.type)
            constant = type_.kind == "struct" and not differentiates(launches.scope, type_)
            why = f"'{type_.name}' is not IDifferentiable" if constant else "the parameter is no_diff" * p.no_diff
            arguments += self._rows_of(launches.copies.nodes[k], p.name, rows, why)
        size, picked = (int(np.prod(s, dtype=np.int64)) for s in (launches.copies.shape, launches.copies.picked))
        return GradientReport(str(launches.sig), self.place, picked, size, launches.seed, tuple(arguments), results)

    @cached_property
    def place(self) -> str:
        """File and line of the declaration; the file or the module alone where the text does not show the line."""
        sig, source = self._launches.sig, self._launches.scope.source
        name = sig.name.partition("<")[0]
        qualified = f"{sig.owner}.{name}" if sig.owner else name
        own = source.path if Path(source.path).is_file() else f"module '{source.name}'"
        files = [(own if path == source.path else path, blank(text)) for path, text in source.texts().items()]
        for path, code in files:
            for found, start, _ in declarations(code):
                if found == qualified or found.endswith(f".{qualified}"):
                    return f"{path}:{code.count(chr(10), 0, start) + 1}"
        # A use of a macro without a semicolon hides a declaration behind it.
        for path, code in files:
            for match in re.finditer(rf"(\w+)[>\]\s]+{re.escape(name.rpartition('.')[2])}\s*[<(]", code):
                if match[1] not in ("return", "else", "new"):
                    return f"{path}:{code.count(chr(10), 0, match.end()) + 1}"
        return own

    def _row(self, q: Quantity, differences: bool) -> ArgumentRow:
        """Return the comparison of the derivatives by one argument."""
        launches = self._launches
        if not launches.gradients[q.leaf].size or not all(launches.copies.picked):
            return ArgumentRow(q.name, q.type.name, "not checked", "the call has no elements")
        found = directions(q.of(q.leaf.host), q.scalar, launches.random)
        tangents = {q.leaf: q.leaf.zeros()}
        q.of(tangents[q.leaf])[...] = found.direction
        one = self._compared(q, found, tangents)
        if self._forward_fails and not differences:
            return ArgumentRow(q.name, q.type.name, "not checked", self._forward_fails)
        if not (np.isfinite(one.backward) | np.isfinite(one.forward)).any():
            return ArgumentRow(q.name, q.type.name, "not checked", "no derivative is finite at these arguments")
        if one.bad.any():
            one.noise = one.noise + _SPREAD * self._gradient_spread(q, tangents, found.direction)
            one.judge(self._tolerance(q, _DOT))
        reason = self._forward_fails
        if differences or one.bad.any():
            self._take_differences(q, found, one)
            if one.off.any():
                # By chance differences of a function that oscillates fast agree with each other.
                again = one.copy()
                again.noise = one.noise + _SPREAD * self._gradient_spread(q, tangents, found.direction)
                self._take_differences(q, found._replace(steps=tuple([2 * h for h in found.steps])), again)
                one.off, one.unsure = one.off & again.off, one.unsure | again.unsure
            if one.bad.any() and not one.off.any() and one.is_right_by_differences:
                reason = reason or _BY_FORWARD
            elif one.off.any() and not one.bad.any():
                reason = reason or _BY_INTENT
            elif one.unsure.all() and not one.bad.any():
                reason = reason or "differences are too noisy"
        return self._as_row(q, one, reason)

    def _compared(self, q: Quantity, found: Directions, tangents: dict[Leaf, Array]) -> Comparison:
        """Compare the gradient that ``bwds`` adds with the tangent that ``fwds`` computes."""
        launches = self._launches
        products = q.of(launches.gradients[q.leaf]).astype(np.float64) * found.direction
        backward = launches.of_leaf(q, products)
        forward, scale = np.full(backward.shape, np.nan), np.zeros(backward.shape)
        if not self._forward_fails:
            try:
                self._written, results = launches.forward(tangents, {})
                forward, scale = launches.by_entry(q, results)
            except (BindError, CompileError, UnsupportedError) as error:
                lines = [line for line in str(error).splitlines() if line.startswith("error")] or [str(error)]
                self._forward_fails = f"fwds fails: {lines[0].partition(']: ')[2] or lines[0]}"
        with np.errstate(all="ignore"):
            scale = np.fmax(scale, launches.of_leaf(q, np.abs(products)))
        one = Comparison(backward, forward, scale, self._noise(q), bool(self._forward_fails))
        one.judge(self._tolerance(q, _DOT))
        return one

    def _take_differences(self, q: Quantity, found: Directions, one: Comparison) -> None:
        """Compare the gradient with central differences."""
        launches = self._launches
        here, sizes = launches.by_entry(q, launches.values)
        ahead: list[Array] = []
        behind: list[Array] = []
        for step in found.steps:
            for sign, values in ((1, ahead), (-1, behind)):
                moved = np.array(q.leaf.host)
                # As float64, because a sum of halves is rounded.
                q.of(moved)[...] = np.asarray(q.of(q.leaf.host), np.float64) + sign * step * found.direction
                values.append(launches.by_entry(q, launches.called({q.leaf: moved}))[0])
        one.slope, error = slopes(found.steps, ahead, behind, here, self._noise(q))
        with np.errstate(all="ignore"):
            size = np.fmax(one.scale, np.abs(one.slope))
            # A derivative of 0 has no size; there the change of the results is compared with their own size.
            one.unsure = ~(error <= _SURE * size + _SMALL * np.where(np.isfinite(sizes), sizes, 0))
        tolerance = self._tolerance(q, _DIFFERENCES)
        off, one.slope_error = compared(one.backward, one.slope, size, tolerance, one.noise + error)
        one.off = off & ~one.unsure

    def _as_row(self, q: Quantity, one: Comparison, reason: str) -> ArgumentRow:
        """Return the row of an argument, with the numbers of its worst element."""
        wrong = one.bad | one.off
        rank = np.where(np.isnan(one.error), -1, one.error)
        rank = np.fmax(rank, np.where(one.unsure, -1, one.slope_error))
        worst = np.unravel_index(int(np.argmax(np.where(wrong, rank + 2, rank))), rank.shape)
        forward: tuple[float | None, float | None] = float(one.forward[worst]), float(one.error[worst])
        difference: tuple[float | None, float | None] = float(one.slope[worst]), float(one.slope_error[worst])
        state = "wrong" if wrong.any() else "not checked" if one.alone and one.unsure.all() else "ok"
        return ArgumentRow(
            q.name, q.type.name, state, reason, float(one.backward[worst]),
            *((None, None) if one.alone else forward), *((None, None) if one.unsure[worst] else difference),
        )  # fmt: skip

    def _result_rows(self) -> Iterator[ResultRow]:
        """Yield the comparisons of the values by a call and by ``fwds``."""
        for leaf, value in self._launches.values.items() if self._written else ():
            for path, type_ in scalars_of(leaf.element):
                q = Quantity(leaf, path, type_ if path else leaf.type)
                called, by_forward = np.asarray(q.of(value)), np.asarray(q.of(self._written[leaf]))
                wrong, error = self._differing(q, called, by_forward)
                at = np.unravel_index(int(np.argmax(np.where(wrong, error + 2, error))), error.shape)
                numbers = float(called[at]), float(by_forward[at]), float(error[at])
                yield ResultRow(q.name, q.type.name, "wrong" if wrong.any() else "ok", "", *numbers)

    def _differing(self, q: Quantity, called: Array, by_forward: Array) -> tuple[Array, Array]:
        """Return which numbers of a result differ, and by how much."""
        if called.dtype.kind != "f":
            differs = called != by_forward
            return differs, differs.astype(np.float64)
        a, b = called.astype(np.float64), by_forward.astype(np.float64)
        sizes = np.abs(a[np.isfinite(a) & np.isfinite(b)])
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(all="ignore"):
            scale = np.fmax(np.abs(a), sizes.mean() if sizes.size else 0)
        wrong, error = compared(a, b, scale, self._tolerance(q, _DOT), np.zeros(a.shape))
        wrong &= ~same
        if wrong.any():
            launches = self._launches
            spread = [np.abs(q.of(launches.called(moved)[q.leaf]) - a) for moved in launches.neighbors]
            wrong &= ~(np.abs(a - b) <= _SPREAD * _largest(spread))
        return wrong, np.where(same, 0, np.where(np.isnan(error), np.inf, error))

    def _gradient_spread(self, q: Quantity, tangents: Mapping[Leaf, Array], direction: Array) -> Array:
        """Return how much rounding of the arguments changes the derivatives by an argument."""
        launches = self._launches

        def backward(gradients: Mapping[Leaf, Array]) -> Array:
            return launches.of_leaf(q, q.of(gradients[q.leaf]).astype(np.float64) * direction)

        def forward(moved: Mapping[Leaf, Array]) -> Array:
            return launches.by_entry(q, launches.forward(tangents, moved)[1])[0]

        here = backward(launches.gradients)
        found = [np.abs(backward(launches.backward(moved)) - here) for moved in launches.neighbors]
        if not self._forward_fails:
            here = forward({})
            found += [np.abs(forward(moved) - here) for moved in launches.neighbors]
        return _largest(found)

    def _noise(self, q: Quantity) -> Array:
        """Return what rounding may change of the results."""
        launches = self._launches
        sizes = launches.by_entry(q, launches.values)[1]
        epsilon = max([_EPSILON[x.scalar] for x in (q, *launches.outputs)])
        return 2 * epsilon * np.where(np.isfinite(sizes), sizes, 0)

    def _tolerance(self, q: Quantity, least: float) -> float:
        scalars = {x.scalar for x in (q, *self._launches.outputs)}
        # bfloat16 is read as float, without rounding.
        outer = [_UNITS * _EPSILON[s] for s in scalars if s in _EPSILON and s != "bfloat16"]
        return max([least, *outer, *[_INNER * _EPSILON[s] for s in self._shorter]])

    @cached_property
    def _shorter(self) -> set[str]:
        """The types shorter than float that the function may compute with: its texts or its parameters name them."""
        texts = (text for path, text in self._launches.scope.source.texts().items() if not is_ours(Path(path)))
        words = set(re.findall(r"half|bfloat16", " ".join([str(self._launches.sig), *texts])))
        return words & _EPSILON.keys()

    def _rows_of(self, node: Node, name: str, rows: Mapping[str, ArgumentRow], why: str) -> Iterator[ArgumentRow]:
        """Yield the rows of an argument; those that are not differentiated say why."""
        if isinstance(node, Group):
            for place, part in node.parts:
                yield from self._rows_of(part, f"{name}{place}", rows, why)
        elif isinstance(node, Constant):
            yield ArgumentRow(name, node.type, "not differentiable", node.reason)
        else:
            for q in self._launches.every:
                if q.leaf is not node or (node.carries and not node.reads):
                    continue
                yield rows[q.name] if q.name in rows else self._without_derivative(q, why)

    def _without_derivative(self, q: Quantity, why: str) -> ArgumentRow:
        leaf, name, type_, why = q.leaf, q.name, q.type.name, q.leaf.reason or why
        if leaf.whole and leaf.writes and leaf.carries and "DiffTensor<" in leaf.type.name:
            return ArgumentRow(name, type_, "not checked", "its gradients are those of its last values")
        if not has_floats(q.type if q.path else leaf.element):
            why = f"'{type_}' holds no floats"
        elif leaf.whole:
            why = f"'{type_}' has no gradient; a DiffTensor has"
        elif not why and not leaf.carries:
            why = "the argument has no gradient"
        elif not why and not self._launches.outputs:
            why = "no result has a derivative"
        return ArgumentRow(
            name, type_, "not differentiable", why or "the field is no_diff, or its struct is not IDifferentiable"
        )


@dataclass
class Comparison:
    """The derivatives by one argument, for each of its elements, times a direction.

    Attributes
    ----------
    backward, forward, slope : numpy.ndarray
        By ``bwds``, by ``fwds`` and by differences.
    scale, noise : numpy.ndarray
        The sums of the sizes of what was added up, and differences that are rounding.
    alone : bool
        Whether there is no ``forward``.
    bad, error, off, slope_error : numpy.ndarray
        Whether ``forward`` and ``slope`` contradict ``backward``, and how much they differ from it.
    unsure : numpy.ndarray
        Whether ``slope`` decides nothing.
    """

    backward: Array
    forward: Array
    scale: Array
    noise: Array
    alone: bool

    def __post_init__(self) -> None:
        shape = self.backward.shape
        self.bad = np.zeros(shape, bool)
        self.error = np.full(shape, np.nan)
        self.slope = np.full(shape, np.nan)
        self.slope_error = np.full(shape, np.nan)
        self.off = np.zeros(shape, bool)
        self.unsure = np.ones(shape, bool)

    def judge(self, tolerance: float) -> None:
        """Compare ``forward`` with ``backward``."""
        if self.alone:
            return
        wrong, self.error = compared(self.backward, self.forward, self.scale, tolerance, self.noise)
        # NaN times 0 is NaN in a tangent, where a gradient has no such product.
        self.bad = wrong & ~(np.isfinite(self.backward) & ~np.isfinite(self.forward))

    @property
    def is_right_by_differences(self) -> bool:
        """Whether differences are far closer to ``backward`` than to ``forward`` where these contradict."""
        with np.errstate(all="ignore"):
            near = np.abs(self.backward - self.slope) < 0.25 * np.abs(self.backward - self.forward)
        return bool((near & ~self.unsure)[self.bad].all())

    def copy(self) -> Comparison:
        """Return the same numbers, not compared yet."""
        return Comparison(self.backward, self.forward, self.scale, self.noise, self.alone)


def check_grads(
    function: Any, args: tuple[Any, ...], named: dict[str, Any], seed: int, raise_on_error: bool
) -> GradientReport:
    """Compare the derivatives of a call, and print the comparison; see ``Function.check_grads``."""
    callee = Callee(function).asked()
    where = f"{function.name}.check_grads"
    if callee.is_derivative:
        raise BindError(f"{where}: {function!r} is a derivative; call check_grads of the function itself.")
    seed = whole(where, "seed", seed, 0, 2**63 - 1)
    device = callee.scope.device
    device.check_open()
    callee.scope.look()
    given, _ = ask((*args, *named.values()))
    values = tuple([plain(device, value) for value in given])
    launches = GradientLaunches(
        callee.scope, function.name, callee.overloads, callee.options, callee.values, values, tuple(named), seed,
        _MOST, lambda value: True, False,
    )  # fmt: skip
    report = GradientCheck(launches).report(True)
    print(report)
    if raise_on_error and not report.ok:
        raise GradientError(report.message)
    return report


def compared(a: Array, b: Array, scale: Array, tolerance: float, noise: Array) -> tuple[Array, Array]:
    """Return which numbers differ by more than the tolerance, and the differences relative to the scale."""
    with np.errstate(all="ignore"):
        finite = scale[np.isfinite(scale)]
        largest = finite.max() if finite.size else 0.0
        error = np.where(a == b, 0, np.abs(a - b) / np.maximum(scale, _SMALL * largest))
        wrong = np.abs(a - b) > tolerance * (scale + _SMALL * largest) + 4 * noise
    return wrong | (np.isfinite(a) != np.isfinite(b)), error


def _largest(spreads: Sequence[Array]) -> Array:
    """Return the largest of some changes; 0 where none is finite."""
    return np.asarray(np.fmax.reduce([np.where(np.isfinite(s), s, 0) for s in spreads]))
