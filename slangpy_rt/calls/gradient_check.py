"""GradientCheck: compares ``bwds``, ``fwds`` and a call of a function with each other and with central differences.

It launches copies of the arguments and leaves the caller's as they are. It does not go through ``Function``: a check
is no call that a tape, PyTorch or another check could see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.differentials import differentiates
from slangpy_rt.arguments.resolve import check_differentiable, resolve
from slangpy_rt.arguments.signature import signature
from slangpy_rt.arguments.stand_ins import ask
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor, gradient_type, has_floats
from slangpy_rt.calls.argument_copies import ArgumentCopies, Constant, Group, Leaf, Node, leaves_of, plain
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.central_differences import directions, slopes, spacing
from slangpy_rt.calls.first_call import prepare_call
from slangpy_rt.calls.gradient_report import ArgumentRow, GradientReport, ResultRow
from slangpy_rt.calls.value_and_grad import takes_gradients
from slangpy_rt.core.checks import whole
from slangpy_rt.core.dtypes import BFLOAT16
from slangpy_rt.core.errors import BindError, CompileError, GradientError, UnsupportedError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import FunctionSig, SlangType
from slangpy_rt.slang.text import blank, declarations

if TYPE_CHECKING:
    from slangpy_rt.arguments.options import Options
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.calls.prepared import PreparedCall

Array = npt.NDArray[Any]

# Differences of ``bwds`` and ``fwds``, and of the value of ``fwds``, that count as rounding: of floats, and in units
# of the last place of shorter types. Both sum the same products in another order.
_DOT = 1e-3
# Of derivatives and central differences.
_DIFFERENCES = 1e-2
_UNITS = 32
# A difference whose error is estimated to be a larger share of the derivative decides nothing.
_SURE = 0.1
# A number that is smaller than the largest by this factor may be wrong by as much as the largest.
_SMALL = 1e-3
_EPSILON = {"half": 2.0**-10, "bfloat16": 2.0**-7, "float": 2.0**-23, "double": 2.0**-52}
# Elements of a call that ``check_grads`` compares.
_MOST = 256
_NO_FORWARD = "fwds computes nothing in functions whose only derivative is a [BackwardDerivative]"


@dataclass(frozen=True, eq=False)
class Quantity:
    """An array of floats, or a field of an array of structs, as a derivative sees it.

    Attributes
    ----------
    leaf : Leaf
        The array.
    path : tuple of str
        The places of the field: ``(".origin", "[0]")``.
    type : SlangType
        Its type.
    """

    leaf: Leaf
    path: tuple[str, ...]
    type: SlangType

    @property
    def name(self) -> str:
        """The name in a report."""
        return self.leaf.name + "".join(self.path)

    @property
    def scalar(self) -> str:
        """The Slang scalar that it is made of."""
        if not self.path and self.leaf.element is BFLOAT16:
            return BFLOAT16.name
        return scalar_of(self.leaf.element if not self.path else self.type)

    def of(self, host: Array) -> Array:
        """Return its numbers in an array like that of the leaf, as a view."""
        for place in self.path:
            if place.startswith("."):
                host = host[place[1:]]
            else:
                host = host[(slice(None),) * self.leaf.dims + (int(place[1:-1]),)]
        return host


class GradientCheck:
    """A check of the derivatives of one call.

    Parameters
    ----------
    scope, name, overloads, options
        The function, as ``prepare_call`` takes it; ``options`` are those of the function itself.
    uniforms : tuple
        Values of its uniforms.
    args, names
        Values by position and then by name, and the names of the latter.
    seed : int
        The seed of the random directions.
    most : int
        The most elements of the call that are compared.
    carries : callable
        Tells of a value whether it has a gradient in the check, if it holds floats.
    pairs : bool
        Whether launches get numbers as DiffPairs where the caller passed them so; otherwise as Tensors.
    excuses : bool
        Whether ``fwds`` may be wrong where Slang has no forward derivative and ``bwds`` is right by differences.

    Raises
    ------
    BindError, ShapeError, UnsupportedError, CompileError
        As a call of the derivatives does.
    """

    def __init__(
        self,
        scope: Scope,
        name: str,
        overloads: tuple[FunctionSig, ...],
        options: Options,
        uniforms: tuple[Any, ...],
        args: tuple[Any, ...],
        names: tuple[str, ...],
        seed: int,
        most: int,
        carries: Callable[[Any], bool],
        pairs: bool = False,
        excuses: bool = True,
    ) -> None:
        maps = tuple([(key, how) for key, how in options.named_maps if key != "_result"])
        self._options = replace(options, derivative="", returns=None, named_maps=maps)
        found = resolve(scope, name, overloads, args, names, self._options)
        check_differentiable(scope, found.sig, "check_grads")
        self._scope, self._name, self._overloads, self._sig = scope, name, overloads, found.sig
        # A function may write to an array that a uniform holds.
        self._uniforms, self._names = tuple([_copied(scope, value) for value in uniforms]), names
        self._order = found.order
        self._seed, self._excuses = seed, excuses
        self._random = np.random.default_rng(seed)
        self._prepared: dict[Any, PreparedCall] = {}
        self._forward_values: dict[Leaf, Array] = {}
        # Why ``fwds`` cannot be called; empty if it can.
        self._forward_fails = ""
        scope.device.synchronize()
        self._copies = ArgumentCopies(scope, found, args, most, carries, pairs)
        self.specs: set[Any] = set()
        self._read_once()

    def report(self, differences: bool) -> GradientReport:
        """Return the comparison, with central differences or without."""
        arguments = [self._row(q, differences) for q in self._inputs]
        results = list(self._result_rows(arguments))
        rows = {row.name: row for row in (*arguments, *self._rest())}
        size = int(np.prod(self._copies.shape, dtype=np.int64))
        picked = int(np.prod(self._copies.picked, dtype=np.int64))
        in_order = [rows[name] for name in self._in_order() if name in rows]
        return GradientReport(str(self._sig), self.place, picked, size, self._seed, tuple(in_order), tuple(results))

    @cached_property
    def place(self) -> str:
        """File and line of the declaration; the line alone for a text without a file, empty if it is not found."""
        source = self._scope.source
        wanted = self._sig.name.partition("<")[0]
        wanted = f"{self._sig.owner}.{wanted}" if self._sig.owner else wanted
        files = [(source.path, source.text)]
        for path, _ in source.info.dependencies:
            if path != source.path and Path(path).is_file():
                files.append((path, Path(path).read_text(encoding="utf-8", errors="replace")))
        for path, text in files:
            for name, start, _ in declarations(blank(text)):
                if name == wanted or (name.endswith(f".{wanted}") and "." in name):
                    shown = path if Path(path).is_file() else f"module '{source.name}'"
                    return f"{shown}:{text.count(chr(10), 0, start) + 1}"
        return ""

    @cached_property
    def may_lack_forward(self) -> bool:
        """Whether the module, or a file that it is made of, has a ``[BackwardDerivative]``."""
        source = self._scope.source
        paths = [Path(path) for path, _ in source.info.dependencies]
        texts = [source.text, *[p.read_text(encoding="utf-8", errors="replace") for p in paths if p.is_file()]]
        return any(re.search(r"\bBackwardDerivative(?:Of)?\s*\(", text) for text in texts)

    # ---- launches

    def _run(self, derivative: str, args: tuple[Any, ...], result: Any) -> Any:
        key = derivative, result if isinstance(result, str) else signature(result), *map(signature, args)
        call = self._prepared.get(key)
        if call is None:
            options = replace(self._options, derivative=derivative)
            call = self._prepared[key] = prepare_call(
                self._scope, self._name, self._overloads, args, self._names, result, options, self._uniforms
            )
            if derivative:
                self.specs.add(call.spec)
        self._last = call
        values = (*args, *self._uniforms, *(() if result is None else (result,)))
        return call.run(values)

    def _called(self, moved: Mapping[Leaf, Array]) -> dict[Leaf, Array]:
        """Call the function; return what it wrote."""
        made: dict[Leaf, Any] = {}

        def make(leaf: Leaf) -> Any:
            host = moved.get(leaf, leaf.host)
            if leaf.pair:
                made[leaf] = DiffPair(_number(host))
                return made[leaf]
            made[leaf] = self._copies.tensor(host, leaf.element)
            return made[leaf]

        result = self._run("", self._copies.joined(make), self._kind)
        if self._result is None:
            self._result = self._result_node("_result", self._sig.returns, result)
        found = dict(_paired(self._result, result, _host))
        found |= {leaf: _host(made[leaf]) for leaf in self._copies.leaves() if leaf.writes}
        return found

    def _backward(self, seeds: Mapping[Leaf, Array]) -> dict[Leaf, Array]:
        """Call ``bwds``; return the gradients of what it reads."""
        made: dict[Leaf, Any] = {}

        def make(leaf: Leaf) -> Any:
            seed = seeds[leaf] if leaf.writes and leaf.carries else None
            if leaf.pair:
                made[leaf] = DiffPair(_number(leaf.host), None if seed is None else _number(seed))
                return made[leaf]
            tensor = made[leaf] = self._copies.tensor(leaf.host, leaf.element)
            if not leaf.carries:
                return tensor
            into = None if seed is None else self._copies.tensor(seed, gradient_type(leaf.element))
            out = self._copies.tensor(leaf.zeros(), gradient_type(leaf.element)) if leaf.reads else None
            made[leaf] = tensor.with_grads(grad_in=into, grad_out=out)
            return made[leaf]

        args = self._copies.joined(make)
        type_ = self._scope.struct(self._sig.returns)
        result = None
        if type_.kind != "void" and differentiates(self._scope, type_):
            assert self._result is not None

            def give(leaf: Leaf) -> Any:
                seed = self._copies.tensor(seeds[leaf], gradient_type(leaf.element))
                return Tensor.empty(self._scope.device, leaf.host.shape[: leaf.dims], leaf.element).with_grads(
                    grad_in=seed
                )

            result = _made(self._result, give)
        self._run("backward", args, result)
        return {
            leaf: np.asarray(made[leaf].grad or 0, leaf.host.dtype) if leaf.pair else _host(made[leaf].grad_out)
            for leaf in made
            if leaf.carries and leaf.reads
        }

    def _forward(self, tangents: Mapping[Leaf, Array]) -> tuple[dict[Leaf, Array], dict[Leaf, Array]]:
        """Call ``fwds``; return what it wrote, and the tangents of that."""
        made: dict[Leaf, Any] = {}

        def make(leaf: Leaf) -> Any:
            tangent = tangents.get(leaf, leaf.zeros()) if leaf.carries and leaf.reads else None
            if leaf.pair:
                made[leaf] = DiffPair(_number(leaf.host), None if tangent is None else _number(tangent))
                return made[leaf]
            tensor = made[leaf] = self._copies.tensor(leaf.host, leaf.element)
            if not leaf.carries:
                return tensor
            kind = gradient_type(leaf.element)
            into = None if tangent is None else self._copies.tensor(tangent, kind)
            out = self._copies.tensor(leaf.zeros(), kind) if leaf.writes else None
            made[leaf] = tensor.with_grads(grad_in=into, grad_out=out)
            return made[leaf]

        result = self._run("forward", self._copies.joined(make), self._kind)
        written = [leaf for leaf in self._copies.leaves() if leaf.writes]
        values = dict(_paired(self._result, result, _host)) | {leaf: _host(made[leaf]) for leaf in written}
        found = dict(_paired(self._result, result, _tangent))
        found |= {leaf: _tangent(made[leaf]) for leaf in written if leaf.carries}
        return values, found

    # ---- the call as it is

    def _read_once(self) -> None:
        """Call the function and ``bwds`` once, and find out what is differentiated."""
        self._result: Node | None = None
        self._kind = None if self._sig.returns.kind == "void" else "tensor"
        self._values = self._called({})
        written = [*leaves_of(self._result or Constant(None)), *[x for x in self._copies.leaves() if x.writes]]
        self._seeds = {leaf: leaf.zeros() for leaf in written}
        self._inputs: list[Quantity] = []
        self._outputs: list[Quantity] = []
        self._unused: list[Quantity] = []
        self._every: list[Quantity] = []
        self._gradients: dict[Leaf, Array] = {}
        if self._any_gradient():
            self._backward(self._seeds)
        count = len(self._order)
        bound = self._last.bound[len(self._uniforms) :]
        for b, k in zip(bound, self._order, strict=False):
            self._sort(self._copies.nodes[k], b)
        if len(bound) > count and self._result is not None:
            self._sort(self._result, bound[count])
        for q in self._outputs:
            values = q.of(self._values[q.leaf]).astype(np.float64)
            q.of(self._seeds[q.leaf])[...] = self._weights(q, values)
        if not self._outputs:
            self._unused, self._inputs = [*self._inputs, *self._unused], []
        if self._inputs:
            self._gradients = self._backward(self._seeds)
        # What an element of the call writes into an array may belong to other elements.
        self._apart = not any(q.leaf.whole for q in self._outputs)

    def _any_gradient(self) -> bool:
        """Tell whether ``bwds`` has a gradient to add to."""
        params = zip(self._sig.params, self._order, strict=False)
        live = [self._copies.nodes[k] for p, k in params if takes_gradients(self._scope, p)]
        return any(leaf.carries and leaf.reads for node in live for leaf in leaves_of(node))

    def _weights(self, q: Quantity, values: Array) -> Array:
        """Return random gradients of a result, in which all results count alike."""
        sizes = np.abs(values[np.isfinite(values)])
        size = sizes.mean() if sizes.size else 0.0
        power = -np.frexp(size)[1] if size > 0 else 0
        power = int(np.clip(power, -8, 8)) if q.scalar in ("half", "bfloat16") else int(np.clip(power, -60, 60))
        random = self._random.uniform(0.5, 1, values.shape) * (self._random.integers(0, 2, values.shape) * 2 - 1)
        unit = spacing(np.ones(()), q.scalar)
        return np.ldexp(np.round(random / unit) * unit, power)

    def _sort(self, node: Node, bound: Bound) -> None:
        """Enter what the derivative reads and writes of an argument or of the result."""
        if isinstance(node, Group):
            for (_, part), (_, inner) in zip(node.parts, bound.parts, strict=True):
                self._sort(part, inner)
        elif isinstance(node, Leaf):
            self._sort_leaf(node, bound, ())

    def _sort_leaf(self, leaf: Leaf, bound: Bound, path: tuple[str, ...]) -> None:
        if bound.mode == "parts":
            for place, part in bound.parts:
                self._sort_leaf(leaf, part, (*path, place))
            return
        q = Quantity(leaf, path, bound.type)
        self._every.append(q)
        reads = leaf.reads and leaf.carries and bound.grad_out is not None
        seeds = bound.access == "seed" and bound.mode != "tensor"
        writes = leaf.writes and leaf.carries and (bound.grad_in is not None or seeds)
        if reads:
            # Gradients that a function reads of the elements that it writes, it does not add to those of others.
            self._inputs.append(q) if not (leaf.whole and leaf.writes) else self._unused.append(q)
        if writes:
            self._outputs.append(q)
        if not reads and not writes:
            self._unused.append(q)

    def _result_node(self, name: str, type_: SlangType, value: Any) -> Node:
        """Return what a call returned as leaves."""
        if isinstance(value, NDBuffer):
            host, carries = np.asarray(value.to_numpy()), has_floats(value.dtype)
            dims = len(value.shape)
            return Leaf(name, type_, value.dtype, "out", host, dims, None, False, False, carries)
        if isinstance(value, tuple):
            parts = tuple(
                [
                    (f"._{k}", self._result_node(f"{name}._{k}", SlangType("other", _item_name(item)), item))
                    for k, item in enumerate(value)
                ]
            )
            return Group(parts, tuple)
        return Constant(value)

    # ---- comparisons

    def _row(self, q: Quantity, differences: bool) -> ArgumentRow:
        """Return the comparison of the derivatives by one argument."""
        found = directions(q.of(q.leaf.host), q.scalar, self._random)
        tangent = q.leaf.zeros()
        q.of(tangent)[...] = found.direction
        if not self._gradients[q.leaf].size or not all(self._copies.picked):
            return ArgumentRow(q.name, q.type.name, "not checked", "the call has no elements")
        products = q.of(self._gradients[q.leaf]).astype(np.float64) * found.direction
        backward = self._of_leaf(q, products)
        if not self._forward_fails:
            try:
                self._forward_values, tangents = self._forward({q.leaf: tangent})
            except (BindError, CompileError, UnsupportedError) as error:
                lines = [line for line in str(error).splitlines() if line.startswith("error")] or [str(error)]
                self._forward_fails = f"fwds fails: {lines[0].partition(']: ')[2] or lines[0]}"
        if self._forward_fails:
            if not differences:
                return ArgumentRow(q.name, q.type.name, "not checked", self._forward_fails)
            forward, scale = np.full(backward.shape, np.nan), np.zeros(backward.shape)
        else:
            forward, scale = self._by_entry(q, tangents)
        with np.errstate(all="ignore"):
            scale = np.fmax(scale, self._of_leaf(q, np.abs(products)))
        noise = self._noise(q)
        tolerance = self._tolerance(q, _DOT)
        wrong, error = _compared(backward, forward, scale, tolerance, noise)
        # NaN times 0 is NaN in a tangent, where a gradient has no such product.
        lone = np.isfinite(backward) & ~np.isfinite(forward)
        lost = ~np.isfinite(backward) & (np.isfinite(forward) | bool(self._forward_fails))
        bad = ((wrong & ~lone) | lost) & (not self._forward_fails)
        slope, slope_error, unsure = None, None, np.ones(bad.shape, bool)
        if differences or bad.any():
            slope, slope_error = self._slopes(q, found.direction, found.steps)
            allowed = self._tolerance(q, _DIFFERENCES)
            with np.errstate(all="ignore"):
                size = np.fmax(scale, np.abs(slope))
                # A derivative of 0 has no size; there the change of the results is compared with their own size.
                unsure = ~(slope_error <= _SURE * size + _SMALL * self._sizes(q))
            off, off_error = _compared(backward, slope, size, allowed, noise + slope_error)
            off = (off | lost) & ~unsure
            confirmed = ~unsure & ~off
            if self._excuses and bad.any() and confirmed[bad].all() and self.may_lack_forward:
                return self._summary(q, "ok", backward, forward, error, slope, off_error, off, unsure, _NO_FORWARD)
            state = "wrong" if bad.any() or off.any() else "ok"
            if self._forward_fails and unsure.all():
                state = "not checked"
            reason = self._forward_fails
            return self._summary(q, state, backward, forward, error, slope, off_error, bad | off, unsure, reason)
        return self._summary(q, "ok", backward, forward, error, None, None, bad, unsure)

    def _summary(
        self,
        q: Quantity,
        state: str,
        backward: Array,
        forward: Array,
        error: Array,
        slope: Array | None,
        slope_error: Array | None,
        bad: Array,
        unsure: Array,
        reason: str = "",
    ) -> ArgumentRow:
        """Return the row of an argument, with the numbers of its worst element."""
        if not (np.isfinite(backward) | np.isfinite(forward)).any():
            return ArgumentRow(q.name, q.type.name, "not checked", "no derivative is finite at these arguments")
        rank = np.where(np.isnan(error), -1, error)
        if slope_error is not None:
            rank = np.fmax(rank, np.where(unsure, -1, slope_error))
        worst = np.unravel_index(int(np.argmax(np.where(bad, rank + 2, rank))), rank.shape)
        difference = difference_error = None
        if slope is not None and slope_error is not None:
            if not unsure[worst]:
                difference, difference_error = float(slope[worst]), float(slope_error[worst])
            elif unsure.all() and not reason and state == "ok":
                reason = "differences are too noisy"
        by_forward = (None, None) if self._forward_fails else (float(forward[worst]), float(error[worst]))
        return ArgumentRow(
            q.name, q.type.name, state, reason, float(backward[worst]), *by_forward, difference, difference_error
        )

    def _result_rows(self, arguments: Sequence[ArgumentRow]) -> Iterator[ResultRow]:
        """Yield the comparisons of the values by a call and by ``fwds``."""
        if not self._forward_values:
            return
        values = self._forward_values
        excused = any(row.reason == _NO_FORWARD for row in arguments)
        for leaf, value in self._values.items():
            for path, type_ in _scalars_of(leaf.element):
                q = Quantity(leaf, path, leaf.type if not path else type_)
                called = np.asarray(q.of(value))
                by_forward = np.asarray(q.of(values[leaf]))
                if called.dtype.kind != "f":
                    differs = called != by_forward
                    at = np.unravel_index(int(np.argmax(differs)), differs.shape)
                    error, wrong = differs.astype(float), differs
                else:
                    a, b = called.astype(np.float64), by_forward.astype(np.float64)
                    finite = np.isfinite(a) & np.isfinite(b)
                    size = np.abs(a[finite])
                    with np.errstate(all="ignore"):
                        scale = np.fmax(np.abs(a), size.mean() if size.size else 0)
                    same = (a == b) | (np.isnan(a) & np.isnan(b))
                    wrong, error = _compared(a, b, scale, self._tolerance(q, _DOT), np.zeros(a.shape))
                    wrong, error = wrong & ~same, np.where(same, 0, error)
                    at = np.unravel_index(int(np.argmax(np.where(np.isnan(error), np.inf, error))), error.shape)
                numbers = float(called[at]), float(by_forward[at]), float(error[at])
                if wrong.any() and excused:
                    yield ResultRow(q.name, q.type.name, "not checked", _NO_FORWARD, *numbers)
                else:
                    yield ResultRow(q.name, q.type.name, "wrong" if wrong.any() else "ok", "", *numbers)

    def _slopes(self, q: Quantity, direction: Array, steps: Sequence[float]) -> tuple[Array, Array]:
        """Return central differences along a direction, and the estimates of their errors."""
        here, _ = self._by_entry(q, self._values)
        ahead, behind = [], []
        for step in steps:
            for sign, found in ((1, ahead), (-1, behind)):
                moved = np.array(q.leaf.host)
                # As float64, because a sum of halves is rounded.
                q.of(moved)[...] = np.asarray(q.of(q.leaf.host), np.float64) + sign * step * direction
                found.append(self._by_entry(q, self._called({q.leaf: moved}))[0])
        found = slopes(steps, ahead, behind, here, self._noise(q))
        return found.slope, found.error

    def _noise(self, q: Quantity) -> Array:
        """Return what rounding may change of the results, in units of a derivative."""
        epsilon = max([_EPSILON[x.scalar] for x in (q, *self._outputs)])
        return 2 * epsilon * self._sizes(q)

    def _sizes(self, q: Quantity) -> Array:
        """Return the sizes of the results that each entry of an argument has a part in."""
        sizes = self._by_entry(q, self._values)[1]
        return np.where(np.isfinite(sizes), sizes, 0)

    def _tolerance(self, q: Quantity, least: float) -> float:
        scalars = {x.scalar for x in (q, *self._outputs) if x.scalar in _EPSILON}
        # bfloat16 is read as float, without rounding.
        units = max([_EPSILON[s] for s in scalars if s != "bfloat16"], default=0.0)
        return max(least, _UNITS * units)

    def _by_entry(self, q: Quantity, found: Mapping[Leaf, Array]) -> tuple[Array, Array]:
        """Return numbers of the results times their gradients, and the sizes of these, for each entry of an argument.

        An entry is an element of the argument that runs along the call, summed over those elements of the call that
        use it.
        """
        total = sizes = np.zeros(self._copies.picked)
        single = q.leaf.whole or not self._apart
        if single:
            total = sizes = np.zeros(())
        for o in self._outputs:
            if o.leaf not in found:
                continue
            with np.errstate(all="ignore"):
                terms = o.of(self._seeds[o.leaf]).astype(np.float64) * o.of(found[o.leaf]).astype(np.float64)
            if single:
                total, sizes = total + terms.sum(), sizes + np.abs(terms).sum()
                continue
            terms = terms.reshape(*terms.shape[: o.leaf.dims], -1)
            for_call = (self._along(o.leaf, part.sum(-1)) for part in (terms, np.abs(terms)))
            total, sizes = total + next(for_call), sizes + next(for_call)
        return self._reduced(q.leaf, total, single), self._reduced(q.leaf, sizes, single)

    def _along(self, leaf: Leaf, array: Array) -> Array:
        """Return an array that runs along the call in the order of the call's dimensions."""
        labels = self._copies.labels(array.shape, leaf.mapped)
        found = np.einsum(array, list(labels), sorted(set(labels)))
        return found.reshape(self._copies.picked)

    def _kept(self, leaf: Leaf) -> list[int]:
        """Return the call dimensions along which an argument has several elements."""
        shape = leaf.host.shape[: leaf.dims]
        return sorted({d for d, n in zip(self._copies.labels(shape, leaf.mapped), shape, strict=True) if n != 1})

    def _reduced(self, leaf: Leaf, array: Array, single: bool) -> Array:
        if single:
            return array.sum()
        kept = self._kept(leaf)
        return np.asarray(array.sum(tuple([d for d in range(array.ndim) if d not in kept])))

    def _of_leaf(self, q: Quantity, array: Array) -> Array:
        """Return an argument's numbers by entry."""
        leaf = q.leaf
        if leaf.whole or not self._apart:
            return np.asarray(array.sum())
        array = array.reshape(*array.shape[: leaf.dims], -1).sum(-1)
        labels = self._copies.labels(array.shape, leaf.mapped)
        wide = [(n, d) for n, d in zip(array.shape, labels, strict=True) if n != 1]
        array = array.reshape([n for n, _ in wide])
        return np.asarray(np.einsum(array, [d for _, d in wide], sorted({d for _, d in wide})))

    # ---- arguments without derivatives

    def _in_order(self) -> Iterator[str]:
        """Yield the names of the rows in the order of the parameters."""
        for k in self._order:
            yield from self._names_of(self._copies.nodes[k], self._sig.params[self._order.index(k)].name)

    def _names_of(self, node: Node, name: str) -> Iterator[str]:
        if isinstance(node, Group):
            for place, part in node.parts:
                yield from self._names_of(part, f"{name}{place}")
        elif isinstance(node, Leaf):
            yield from [q.name for q in self._every if q.leaf is node]
        else:
            yield name

    def _rest(self) -> Iterator[ArgumentRow]:
        """Yield the rows of the arguments that are not differentiated."""
        for p, k in zip(self._sig.params, self._order, strict=False):
            type_ = self._scope.struct(p.type)
            constant = type_.kind == "struct" and not differentiates(self._scope, type_)
            why = f"'{type_.name}' is not IDifferentiable" if constant else "the parameter is no_diff" * p.no_diff
            yield from self._rest_of(self._copies.nodes[k], p.name, why)

    def _rest_of(self, node: Node, name: str, why: str) -> Iterator[ArgumentRow]:
        if isinstance(node, Group):
            for place, part in node.parts:
                yield from self._rest_of(part, f"{name}{place}", why)
        elif isinstance(node, Constant):
            yield ArgumentRow(name, node.type, "not differentiable", node.reason)
        else:
            for q in self._unused:
                if q.leaf is node and (node.reads or not node.carries):
                    yield self._reason(q, why)

    def _reason(self, q: Quantity, param: str) -> ArgumentRow:
        """Return the row of an array or a number without a gradient, and why it has none."""
        name, type_ = q.name, q.type
        if q.leaf.whole and q.leaf.writes and q.leaf.carries and "DiffTensor<" in q.leaf.type.name:
            why = "the gradients of the elements that the function does not write are those of their next use"
            return ArgumentRow(name, type_.name, "not checked", why)
        if not has_floats(q.leaf.element if not q.path else type_):
            why = f"'{type_.name}' holds no floats"
        elif q.leaf.whole:
            why = f"'{type_.name}' has no gradient; a DiffTensor has"
        elif param:
            why = param
        elif not q.leaf.carries:
            why = "the argument has no gradient"
        elif not self._outputs:
            why = "no result has a derivative"
        else:
            why = "the field is no_diff, or its struct is not IDifferentiable"
        return ArgumentRow(name, type_.name, "not differentiable", why)


def check_grads(
    function: Any, args: tuple[Any, ...], named: dict[str, Any], seed: int, raise_on_error: bool
) -> GradientReport:
    """Compare the derivatives of a call, and print the comparison; see ``Function.check_grads``."""
    callee = Callee(function).asked()
    where = f"{function.name}.check_grads"
    if callee.is_derivative:
        raise BindError(f"{where}: it checks the derivatives of a function; call it of the function itself.")
    seed = whole(where, "seed", seed, 0, 2**63 - 1)
    device = callee.scope.device
    device.check_open()
    callee.scope.look()
    given, _ = ask((*args, *named.values()))
    values = tuple([plain(device, value) for value in given])
    check = GradientCheck(
        callee.scope, function.name, callee.overloads, callee.options, callee.values, values, tuple(named), seed,
        _MOST, lambda value: True,
    )  # fmt: skip
    report = check.report(True)
    print(report)
    if raise_on_error and not report.ok:
        raise GradientError(report.message)
    return report


def scalar_of(type_: SlangType) -> str:
    """Return the Slang scalar of a scalar, a vector, a matrix or an array of these."""
    while type_.kind == "array" and type_.element is not None:
        type_ = type_.element
    return type_.scalar


def _compared(a: Array, b: Array, scale: Array, tolerance: float, noise: Array) -> tuple[Array, Array]:
    """Return which numbers differ by more than the tolerance, and the differences relative to the scale."""
    with np.errstate(all="ignore"):
        finite = scale[np.isfinite(scale)]
        largest = finite.max() if finite.size else 0.0
        size = scale + _SMALL * largest
        error = np.where(a == b, 0, np.abs(a - b) / np.maximum(scale, _SMALL * largest))
        wrong = np.abs(a - b) > tolerance * size + 4 * noise
        wrong |= np.isfinite(a) != np.isfinite(b)
    return wrong, error


def _copied(scope: Scope, value: Any) -> Any:
    """Return the value of a uniform, its arrays copied."""
    if isinstance(value, NDBuffer):
        return Tensor.from_numpy(scope.device, value.to_numpy(), value.dtype)
    fields = fields_of(value)
    return value if fields is None else {name: _copied(scope, item) for name, item in fields.items()}


def _scalars_of(type_: SlangType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], SlangType]]:
    """Yield the place and type of each field of an element that is no struct."""
    if type_.kind == "struct" and type_.fields:
        for f in type_.fields:
            yield from _scalars_of(f.type, (*path, f".{f.name}"))
    elif type_.kind == "array" and type_.element is not None and type_.element.kind == "struct":
        for k in range(type_.shape[0]):
            yield from _scalars_of(type_.element, (*path, f"[{k}]"))
    else:
        yield path, type_


def _paired(node: Node | None, value: Any, read: Callable[[Any], Any]) -> Iterator[tuple[Leaf, Array]]:
    """Yield each leaf of a result with what ``read`` returns of its array."""
    if isinstance(node, Leaf):
        found = read(value)
        if found is not None:
            yield node, found
    elif isinstance(node, Group):
        for (_, part), item in zip(node.parts, value, strict=True):
            yield from _paired(part, item, read)


def _made(node: Node, make: Callable[[Leaf], Any]) -> Any:
    if isinstance(node, Leaf):
        return make(node)
    return node.join([_made(part, make) for _, part in node.parts]) if isinstance(node, Group) else node.value


def _host(value: Any) -> Array:
    if isinstance(value, NDBuffer):
        return np.asarray(value.to_numpy())
    return np.asarray(value.value if isinstance(value, DiffPair) else value)


def _tangent(value: Any) -> Array | None:
    if isinstance(value, DiffPair):
        return np.asarray(0.0 if value.grad is None else value.grad)
    grads = value.layout.grads
    return None if grads is None or grads.out is None else np.asarray(value.grad_out.to_numpy())


def _number(host: Array) -> Any:
    return host.tolist()


def _item_name(value: Any) -> str:
    return value.dtype.name if isinstance(value, NDBuffer) else "Tuple"
