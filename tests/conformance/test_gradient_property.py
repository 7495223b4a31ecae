"""Random derivatives against PyTorch: shapes, broadcasts, views, maps, and which arguments have gradients, and where.

Values are small integers, whose sums floats hold exactly, in any order: results are compared for equality. In CI the
cases are the same in every run; ``pytest tests/conformance/test_gradient_property.py --long --hypothesis-seed=N``
tries many more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import strategies as st

import slangpy_rt as spy
from tests.depth import explore, one_device, random_cases

torch.set_num_threads(1)

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

SLANG = """
import slangpy_rt;
struct Ball : IDifferentiable { float3 at; float r; int n; }
[Differentiable] float mul(float a, float b) { return a * b; }
[Differentiable] float three(float a, float b, float c) { return a * b + b * c; }
[Differentiable] float3 scale(float3 v, float s) { return v * s; }
[Differentiable] float inner(float3 u, float3 v) { return dot(u, v); }
[Differentiable] void split(float a, float b, out float2 both) { both = float2(a + b, a * b); }
[Differentiable] double mean(double a, float b) { return a * b; }
[Differentiable] float2[2] pair(float2 m[2], float s) { return { m[0] * s, m[1] }; }
[Differentiable] float reach(Ball b, float t) { return (b.at.x + b.at.y * t) * b.r; }
"""


@dataclass(frozen=True)
class Pooled:
    """A function of the pool.

    Attributes
    ----------
    parameters : tuple of str
        Types of what it reads.
    returns : str
        Type of what it writes.
    compute : callable
        The same on PyTorch's tensors of the call's shape, the element's dimensions last.
    result : bool
        Whether what it writes is its result, not a parameter.
    """

    name: str
    parameters: tuple[str, ...]
    returns: str
    compute: Callable[..., torch.Tensor]
    result: bool = True

    def __repr__(self) -> str:
        return self.name


DIMS: dict[str, Shape] = {"float": (), "double": (), "float2": (2,), "float3": (3,), "float2[2]": (2, 2), "Ball": ()}
BALL = np.dtype([("at", "f4", (3,)), ("r", "f4"), ("n", "i4")])
POOL = [
    Pooled("mul", ("float", "float"), "float", lambda a, b: a * b),
    Pooled("three", ("float", "float", "float"), "float", lambda a, b, c: a * b + b * c),
    Pooled("scale", ("float3", "float"), "float3", lambda v, s: v * s[..., None]),
    Pooled("inner", ("float3", "float3"), "float", lambda u, v: (u * v).sum(-1)),
    Pooled("split", ("float", "float"), "float2", lambda a, b: torch.stack([a + b, a * b], -1), False),
    Pooled("mean", ("double", "float"), "double", lambda a, b: a * b),
    Pooled(
        "pair", ("float2[2]", "float"), "float2[2]",
        lambda m, s: torch.stack([m[..., 0, :] * s[..., None], m[..., 1, :]], -2),
    ),
    # A ball as PyTorch has it: the numbers of its fields in a row.
    Pooled("reach", ("Ball", "float"), "float", lambda b, t: (b[..., 0] + b[..., 1] * t) * b[..., 3]),
]  # fmt: skip


@dataclass(frozen=True)
class View:
    """Part of an array: its shape, and how to look at it there."""

    shape: Shape
    key: Any = ...
    wide: Shape | None = None

    def look(self, array: Any) -> Any:
        """The view of an array, or of what stands for its elements."""
        array = array[self.key]
        if self.wide is None:
            return array
        return np.broadcast_to(array, self.wide) if isinstance(array, np.ndarray) else array.broadcast_to(self.wide)

    @property
    def places(self) -> Array:
        """Which element of the array each of the view's is."""
        return np.asarray(self.look(np.arange(int(np.prod(self.shape))).reshape(self.shape)))


@dataclass(frozen=True)
class Argument:
    """An argument.

    Attributes
    ----------
    type : str
        Its parameter's.
    view : View or None
        Of the array that holds it; None for a number.
    gradient : str
        ``"along"``: of the whole array, seen as it is. ``"own"``: of the view alone. ``"into"``: a view of another
        array. ``"one"``: that of all arguments that say so. ``"none"``.
    into : View or None
        Of the array that its gradient goes to.
    seed : int
        Of its contents.
    """

    type: str
    view: View | None
    gradient: str
    into: View | None
    seed: int


@dataclass(frozen=True)
class Case:
    """A call: its function, its arguments, their maps, and the gradient of the result."""

    function: Pooled
    arguments: tuple[Argument, ...]
    seed: View
    maps: tuple[Shape | None, ...]
    twice: bool
    forward: bool

    @property
    def rank(self) -> int:
        """The call's dimensions: the seed counts, as it is no argument's."""
        ranks = [
            max(dims, default=-1) + 1 if dims is not None else 0 if a.view is None else a.view.places.ndim
            for a, dims in zip(self.arguments, self.maps, strict=True)
        ]
        return max(ranks) if self.forward else max(*ranks, self.seed.places.ndim)


class Draw:
    """Draws the parts of a case; the first of several choices is the simplest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one_of(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self._draw(st.integers(low, high))

    def rarely(self, times: int) -> bool:
        """True once in so many times."""
        return self.whole(0, times - 1) == times - 1

    def shape(self) -> Shape:
        """Up to four dimensions; now and then one that no vector width and no group divides."""
        rank = self.whole(0, 4)
        if rank in (1, 2) and self.rarely(4):
            long = self.one_of([64, 257, 1000])
            return (long,) if rank == 1 else self.one_of([(long, 3), (4, long), (3, long)])
        return tuple(self.one_of([2, 3, 1, 4, 5, 0] if self.rarely(8) else [2, 3, 1, 4, 5]) for _ in range(rank))

    def within(self, call: Shape) -> Shape:
        """Dimensions that broadcast to those of a call."""
        shape = call[self.whole(0, len(call)) :] if self.rarely(3) else call
        return tuple(1 if self.rarely(4) else n for n in shape)

    def view(self, shape: Shape, written: bool = False) -> View:
        """An array, and the view of it that has a shape."""
        kind = self.one_of(["plain", "steps", "wide"][: 3 - written])
        if kind == "plain":
            return View(shape)
        if kind == "wide":
            return View(tuple(1 if self.rarely(2) else n for n in shape), wide=shape)
        sizes, key = [], []
        for n in shape:
            step, skipped = self.one_of([1, 2, -1, -2]), self.whole(0, 2)
            size = n * abs(step) + skipped
            sizes.append(size)
            if n == 0:
                key.append(slice(0, 0))
            elif step > 0:
                key.append(slice(skipped, skipped + n * step, step))
            else:
                key.append(slice(size - 1, skipped - 1 if skipped else None, step))
        if self.rarely(3):
            return View((3, *sizes), (1, *key))
        return View(tuple(sizes), tuple(key))

    def argument(self, type_: str, shape: Shape) -> Argument:
        """A value of a shape, and where its gradient goes."""
        seed = self.whole(0, 2**16)
        if shape == () and type_ in ("float", "float3") and self.rarely(3):
            return Argument(type_, None, self.one_of(["own", "none"]), None, seed)
        gradient = self.one_of(["along", "own", "none", "into", "one"])
        view = self.view(shape)
        return Argument(type_, view, gradient, self.view(shape) if gradient == "into" else None, seed)


@st.composite
def cases(draw: st.DrawFn, functions: Sequence[Pooled]) -> Case:
    """Calls that broadcast or are mapped."""
    d = Draw(draw)
    function = d.one_of(functions)
    forward = function.name != "split" and d.rarely(4)
    n = len(function.parameters)
    maps: list[Shape | None] = [None] * n
    if d.rarely(3):
        sizes = [d.one_of([2, 3, 1, 4, 70]) for _ in range(d.whole(1, 3))]
        maps = [tuple(draw(st.permutations(range(len(sizes)))))[: d.whole(0, len(sizes))] for _ in range(n)]
        if d.rarely(4) and maps[0]:
            maps[0] = (*maps[0], maps[0][0])
        call: Shape = tuple(sizes)
        shapes = [tuple(sizes[k] for k in dims or ()) for dims in maps]
    else:
        call = d.shape()
        shapes = [d.within(call) for _ in range(n)]
    arguments = [d.argument(t, shape) for t, shape in zip(function.parameters, shapes, strict=True)]
    if forward:
        # A tangent lies where a gradient does, and is read.
        arguments = [
            Argument(a.type, a.view, "along" if a.gradient != "none" else "none", None, a.seed) for a in arguments
        ]
    seed = d.view(call if d.whole(0, 3) else d.within(call))
    return Case(function, tuple(arguments), seed, tuple(maps), d.rarely(3), forward)


def numbers(type_: str, shape: Shape, seed: int) -> Array:
    """Contents of an array."""
    random = np.random.default_rng(seed)
    full = shape + DIMS[type_]
    if type_ != "Ball":
        return random.integers(-4, 5, full).astype("f8" if type_ == "double" else "f4")
    out = np.zeros(full, BALL)
    out["at"], out["r"], out["n"] = (random.integers(-4, 5, full + s) for s in ((3,), (), ()))
    return out


def load(device: spy.Device) -> spy.Module:
    """The pool, without what the device has no type for."""
    kept = [line for line in SLANG.splitlines() if "double" not in line or "double" in device.caps.scalars]
    return spy.Module.load_from_source(device, "test_gradient_property", "\n".join(kept))


class Run:
    """One case: the arguments on the device, and what their gradients have to become."""

    def __init__(self, module: spy.Module, case: Case) -> None:
        self.module, self.case = module, case
        self.shared: dict[Any, tuple[spy.Tensor, Array]] = {}
        # Arrays of gradients, what they must hold, in the pieces that arguments add to them.
        self.checked: list[tuple[Any, Array]] = []
        self.leaves: list[tuple[torch.Tensor, Array | None, Array]] = []

    def tensor(self, type_: str, values: Array) -> spy.Tensor:
        return spy.Tensor.from_numpy(self.module.device, values, self.module.Ball if type_ == "Ball" else type_)

    def place(self, a: Argument) -> Any:
        """The argument, its leaf noted."""
        if a.view is None:
            values = numbers(a.type, (), a.seed)
            leaf = torch.tensor(self.row(values), requires_grad=True)
            number = values.tolist()
            if a.gradient == "none":
                self.leaves.append((leaf, None, np.zeros(())))
                return number
            pair = spy.diff_pair(number)
            expected = np.zeros((1, *leaf.shape))
            self.leaves.append((leaf, expected, np.zeros((), int)))
            self.checked.append((pair, expected))
            return pair
        base = numbers(a.type, a.view.shape, a.seed)
        places = a.view.places
        rows = self.row(base).reshape(-1, *self.inner(a.type))
        leaf = torch.tensor(rows[places], requires_grad=True)
        held = self.tensor(a.type, base)
        if a.gradient == "along":
            gradient = self.fresh(a.type, a.view.shape, a.seed + 1)
            into = a.view.places
            value = a.view.look(held.with_grads(grad_out=gradient[0]))
        elif a.gradient == "none":
            self.leaves.append((leaf, None, places))
            return a.view.look(held)
        else:
            seen = View(places.shape) if a.into is None else a.into
            key = (a.type, seen.shape)
            if a.gradient == "one" and key in self.shared:
                gradient = self.shared[key]
            else:
                gradient = self.shared[key] = self.fresh(a.type, seen.shape, a.seed + 1)
            into = seen.places
            value = a.view.look(held).with_grads(grad_out=seen.look(gradient[0]))
        self.leaves.append((leaf, gradient[1], into))
        return value

    def fresh(self, type_: str, shape: Shape, seed: int) -> tuple[spy.Tensor, Array]:
        """An array of gradients that is not zero, and what it must become."""
        start = numbers(type_, shape, seed)
        held = self.tensor(type_, start)
        expected = self.row(start).reshape(-1, *self.inner(type_)).copy()
        self.checked.append((held, expected))
        return held, expected

    @staticmethod
    def row(values: Array) -> Array:
        """In double, a ball as a row of numbers."""
        if values.dtype == BALL:
            values = np.concatenate([values["at"], values["r"][..., None]], -1)
        return values.astype(np.float64)

    @staticmethod
    def inner(type_: str) -> Shape:
        return (4,) if type_ == "Ball" else DIMS[type_]

    def along(self, k: int, leaf: torch.Tensor) -> torch.Tensor:
        """An argument's elements along the call's dimensions."""
        type_, dims, rank = self.case.arguments[k].type, self.case.maps[k], self.case.rank
        inner = len(self.inner(type_))
        if dims is None:
            return leaf.reshape((1,) * (rank - (leaf.ndim - inner)) + tuple(leaf.shape))
        if len(set(dims)) < len(dims):
            # The first dimension and the last are walked together.
            leaf = torch.diagonal(leaf, 0, 0, len(dims) - 1).movedim(-1, 0)
            dims = dims[:-1]
        order = sorted(range(len(dims)), key=lambda d: dims[d])
        leaf = leaf.permute((*order, *range(len(dims), leaf.ndim)))
        for d in range(rank):
            if d not in dims:
                leaf = leaf.unsqueeze(d)
        return leaf

    def alike(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """All of the call's shape."""
        inner = [self.inner(a.type) for a in self.case.arguments]
        shape = np.broadcast_shapes(*(t.shape[: t.ndim - len(n)] for t, n in zip(tensors, inner, strict=True)))
        return [t.expand(shape + n) for t, n in zip(tensors, inner, strict=True)]

    def check(self) -> None:
        """Run it, and compare."""
        case, f = self.case, self.case.function
        values = [self.place(a) for a in case.arguments]
        function = self.module[f.name].map(*case.maps)
        out = f.compute(*self.alike([self.along(k, leaf) for k, (leaf, _, _) in enumerate(self.leaves)]))
        shape = tuple(out.shape[: out.ndim - len(DIMS[f.returns])])
        seed = self.case.seed
        held = numbers(f.returns, seed.shape, 1)
        rows = held.reshape(-1, *DIMS[f.returns]).astype(np.float64)[seed.places]
        full = np.broadcast_shapes(shape, seed.places.shape)
        g = torch.tensor(np.ascontiguousarray(np.broadcast_to(rows, full + DIMS[f.returns])))
        gradient = self.tensor(f.returns, held)
        result = seed.look(spy.Tensor.empty_like(gradient).with_grads(grad_in=gradient))
        arguments = (*values, *(() if f.result else (result,)))
        named = {"_result": result} if f.result else {}
        if all(expected is None for _, expected, _ in self.leaves):
            with pytest.raises(spy.BindError, match="no argument has a gradient to add to"):
                function.bwds(*arguments, **named)
            return
        for _ in range(1 + case.twice):
            assert function.bwds(*arguments, **named) is None
        leaves = [leaf for leaf, _, _ in self.leaves]
        found = torch.autograd.grad(out.broadcast_to(g.shape), leaves, g)
        for (_, expected, into), slope in zip(self.leaves, found, strict=True):
            if expected is not None:
                rows = slope.numpy().reshape(into.shape + expected.shape[1:])
                for _ in range(1 + case.twice):
                    np.add.at(expected, into, rows)
        for held, expected in self.checked:
            values_of = held.grad if isinstance(held, spy.DiffPair) else self.row(held.to_numpy())
            np.testing.assert_array_equal(np.asarray(values_of).reshape(expected.shape), expected)

    def check_forward(self) -> None:
        """The same of the forward derivative."""
        case, f = self.case, self.case.function
        values, primals, tangents = [], [], []
        for k, a in enumerate(case.arguments):
            if a.view is None:
                number = numbers(a.type, (), a.seed)
                slope = numbers(a.type, (), a.seed + 1) * (a.gradient != "none")
                values.append(
                    spy.diff_pair(number.tolist(), slope.tolist()) if a.gradient != "none" else number.tolist()
                )
                rows, moving = self.row(number), self.row(slope)
            else:
                base, slope = numbers(a.type, a.view.shape, a.seed), numbers(a.type, a.view.shape, a.seed + 1)
                held = self.tensor(a.type, base)
                if a.gradient != "none":
                    held = held.with_grads(grad_in=self.tensor(a.type, slope))
                values.append(a.view.look(held))
                rows, moving = (self.row(x).reshape(-1, *self.inner(a.type))[a.view.places] for x in (base, slope))
                moving = moving * (a.gradient != "none")
            primals.append(self.along(k, torch.tensor(rows)))
            tangents.append(self.along(k, torch.tensor(moving)))
        primals, tangents = self.alike(primals), self.alike(tangents)
        expected, slopes = torch.autograd.functional.jvp(f.compute, tuple(primals), tuple(tangents))
        found = self.module[f.name].map(*case.maps).fwds(*values)
        value, slope = (
            (found.primal, found.grad)
            if isinstance(found, spy.DiffPair)
            else (found.to_numpy(), found.grad.to_numpy())
        )
        np.testing.assert_array_equal(value, expected.numpy())
        np.testing.assert_array_equal(slope, slopes.numpy())


def check_random(config: pytest.Config, module: spy.Module, examples: int) -> None:
    """Check so many random cases."""
    kept = [f for f in POOL if "double" not in f.parameters or "double" in module.device.caps.scalars]

    def test(case: Case) -> None:
        run = Run(module, case)
        if case.forward:
            run.check_forward()
        else:
            run.check()

    explore(config, test, cases(kept), examples, 20)


@random_cases
def test_derivatives(device: spy.Device, pytestconfig: pytest.Config) -> None:
    check_random(pytestconfig, load(device), 90)


@one_device
@random_cases
def test_derivatives_of_a_deterministic_device(backend_name: str, pytestconfig: pytest.Config) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        check_random(pytestconfig, load(device), 30)


@one_device
def test_a_stretched_gradient_of_a_deterministic_device(backend_name: str) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        module = load(device)
        b, g = (np.arange(k, k + 64, dtype=np.float32) for k in (0, 1))
        x = spy.Tensor.ones(device, 1).with_grads()
        seed = spy.Tensor.from_numpy(device, g)
        result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
        module.mul.bwds(x.broadcast_to(64), spy.Tensor.from_numpy(device, b), _result=result)
        np.testing.assert_array_equal(np.asarray(x.grad), [(b * g).sum()])
