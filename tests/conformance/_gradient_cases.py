"""Random calls of differentiable functions: shapes, views, maps and places of gradients. No test is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st

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
