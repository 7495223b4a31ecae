"""Random calls: the pool of functions, what each computes in NumPy, and the strategies that draw arguments for them.

Functions come from a fixed pool and most layouts from few families, so that thousands of calls share some hundred
kernels. Nothing here is a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import _model_types as kinds
import numpy as np
from _model_types import Array, CallId, Data, Grid, Shape, Type
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF

SLANG = """
import slangpy_rt;
struct Ball { float3 at; int n; };

uint mix(uint a, uint b) { return a * 31 + (b ^ (a >> 3)); }
float3 turn(float3 v, float s) { return float3(v.z, s, v.x); }
void count_up(inout int x, int by) { x += by; }

int64_t widen(int a, int64_t b, NARROWEST c) { return b * 3 - a + c; }
NARROWEST wrap(NARROWEST a, NARROWEST b) { return NARROWEST(a * 3 + b); }
float blend(float a, float b, float c) { return a * b - c; }
float ratio(float a, float b) { return a / (b * b + 1); }
double mean(double a, float b) { return a * 0.5 + b; }
bool less(int a, float b) { return a < b; }
int2 put(int2 p, int k) { return p * k + int2(1, 2); }
int twice(int p) { return p * 2; }
float[3] reverse(float x[3]) { float y[3] = { x[2], x[1], x[0] }; return y; }
float2x3 outer(float2 a, float3 b) { return float2x3(a.x * b, a.y * b); }
Ball move(Ball b, float3 by, int k) { b.at += by; b.n -= k; return b; }
float pick(Tensor<float, 1> t, uint i) { return t[int(i % uint(t.shape[0]))]; }
int both(int a, inout int x, out float3 v) { x -= a; v = float3(x, a, 7); return x + a; }
void trade(inout Ball a, inout Ball b) { let c = a; a = b; b = c; }
"""

FLOAT, DOUBLE, BOOL = kinds.scalar("float", "f4"), kinds.scalar("double", "f8"), kinds.scalar("bool", "?")
INT, LONG = kinds.scalar("int", "i4"), kinds.scalar("int64_t", "i8")
UINT = kinds.scalar("uint", "u4")
INT2, FLOAT2, FLOAT3 = kinds.vector(INT, 2), kinds.vector(FLOAT, 2), kinds.vector(FLOAT, 3)
FLOATS, MATRIX = kinds.array(FLOAT, 3), kinds.matrix(FLOAT, 2, 3)
BALL = kinds.struct("Ball", at=FLOAT3, n=INT)

# Units in the last place that a division of floats may be off, by target format, as docs/intrinsics.md says: Vulkan
# and Metal document 2.5, D3D 1. C++ and CUDA round as IEEE 754 says, and the sum below the fraction is exact.
DIVISION_ULPS = {"cpp": 0, "cuda": 0, "hlsl": 1, "metal": 3, "spirv": 3}


@dataclass(frozen=True)
class Pooled:
    """A function of the pool, and what it computes on arrays that have the call's shape.

    Attributes
    ----------
    compute : callable
        From the parameters' values to the result, or to a tuple of it and what the parameters that are written hold
        afterwards.
    ulps : mapping
        Units in the last place that its result may be off, by target format; none where there is no entry.
    wild : bool
        Whether its arguments have any layout in CI too; each combination is another kernel.
    """

    name: str
    parameters: tuple[tuple[str, Type, str], ...]
    returns: Type | None
    compute: Callable[..., Any]
    ulps: Mapping[str, int] = field(default_factory=dict, hash=False)
    wild: bool = False

    def __repr__(self) -> str:
        return self.name

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.name)


def turned(v: Array, s: Array) -> Array:
    """``turn`` on arrays."""
    return np.stack([v[..., 2], s, v[..., 0]], -1)


def moved(b: Array, by: Array, k: Array) -> Array:
    """``move`` on arrays."""
    out = b.copy()
    out["at"] += by
    out["n"] -= k
    return out


def picked(t: Array, i: Array) -> Array:
    """``pick`` on arrays: the tensor is the same for all elements, so it lacks the call's dimensions."""
    out: Array = t[i % t.shape[0]]
    return out


def both(a: Array, x: Array, v: Array) -> tuple[Array, ...]:
    """``both`` on arrays."""
    return x, x - a, np.stack([x - a, a, np.full(a.shape, 7)], -1).astype(np.float32)


UU, FF = (("a", UINT, "in"), ("b", UINT, "in")), (("a", FLOAT, "in"), ("b", FLOAT, "in"))


def pool(narrowest: str) -> list[Pooled]:
    """The functions, with a type in the place of ``NARROWEST``."""
    narrow = kinds.scalar(narrowest, NUMPY_OF[narrowest].str[1:])
    return [
        Pooled("mix", UU, UINT, lambda a, b: a * np.uint32(31) + (b ^ (a >> 3)), wild=True),
        Pooled("turn", (("v", FLOAT3, "in"), ("s", FLOAT, "in")), FLOAT3, turned, wild=True),
        Pooled("count_up", (("x", INT, "inout"), ("by", INT, "in")), None, lambda x, by: (None, x + by), wild=True),
        Pooled(
            "widen", (("a", INT, "in"), ("b", LONG, "in"), ("c", narrow, "in")), LONG, lambda a, b, c: b * 3 - a + c
        ),
        Pooled("wrap", (("a", narrow, "in"), ("b", narrow, "in")), narrow, lambda a, b: a * a.dtype.type(3) + b),
        Pooled("blend", (*FF, ("c", FLOAT, "in")), FLOAT, lambda a, b, c: a * b - c),
        Pooled("ratio", FF, FLOAT, lambda a, b: a / (b * b + np.float32(1)), DIVISION_ULPS),
        Pooled("mean", (("a", DOUBLE, "in"), ("b", FLOAT, "in")), DOUBLE, lambda a, b: a * 0.5 + b),
        Pooled("less", (("a", INT, "in"), ("b", FLOAT, "in")), BOOL, lambda a, b: a < b),
        Pooled(
            "put", (("p", INT2, "in"), ("k", INT, "in")), INT2, lambda p, k: (p * k[..., None] + [1, 2]).astype("i4")
        ),
        Pooled("twice", (("p", INT, "in"),), INT, lambda p: p * 2),
        Pooled("reverse", (("x", FLOATS, "in"),), FLOATS, lambda x: x[..., ::-1]),
        Pooled(
            "outer",
            (("a", FLOAT2, "in"), ("b", FLOAT3, "in")),
            MATRIX,
            lambda a, b: a[..., :, None] * b[..., None, :],
        ),
        Pooled("move", (("b", BALL, "in"), ("by", FLOAT3, "in"), ("k", INT, "in")), BALL, moved),
        Pooled("pick", (("t", kinds.tensor(FLOAT, 1), "in"), ("i", UINT, "in")), FLOAT, picked),
        Pooled("both", (("a", INT, "in"), ("x", INT, "inout"), ("v", FLOAT3, "out")), INT, both),
        Pooled("trade", (("a", BALL, "inout"), ("b", BALL, "inout")), None, lambda a, b: (None, b.copy(), a.copy())),
    ]


MAPPED = [f for f in pool("uint8_t") if f.wild]
# Host data of these dtypes converts to a parameter of that kind; the last of each list does not.
CONVERTIBLE = {
    "f": ["f2", "f4", "f8", ">f4", "i2", "u1", "i8", "c8"],
    "i": ["i2", "i4", "i8", ">i2", "u1", "u2", "?", "f4"],
    "u": ["u1", "u2", ">u4", "?", "i1"],
    "b": ["?", "u1"],
}
LAYOUTS = ["plain", "step", "transpose", "fortran", "broadcast", "unaligned", "elements"]


@dataclass(frozen=True)
class Case:
    """One call: a function, its arguments, which of them go by name, its result, its map and the way it is called."""

    function: Pooled
    arguments: tuple[Any, ...]
    positional: int
    result: Any = None
    maps: tuple[tuple[int, ...] | None, ...] = ()
    way: str = "call"


class Draw:
    """Draws the parts of a case. Structure is drawn and shrinks; contents follow from one number."""

    def __init__(self, draw: st.DrawFn, wild: bool) -> None:
        self._draw = draw
        self.wild = wild
        self.contents = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def one_of(self, options: Sequence[Any]) -> Any:
        """One of them, the first being the simplest."""
        return self._draw(st.sampled_from(options))

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self._draw(st.integers(low, high))

    def rarely(self, times: int = 10) -> bool:
        """True once in so many times."""
        return self.whole(0, times - 1) == times - 1

    def shape(self) -> Shape:
        """Up to four dimensions of 0 to 5; now and then one that no vector width and no group divides."""
        rank = self.whole(0, 4)
        if rank in (1, 2) and self.rarely(5):
            long = self.one_of([8, 17, 64, 97, 131, 251, 300])
            return (long,) if rank == 1 else self.one_of([(long, 3), (4, long)])
        return tuple(self.one_of([2, 3, 1, 4, 5, 0] if self.rarely(4) else [2, 3, 1, 4, 5]) for _ in range(rank))

    def within(self, call: Shape) -> Shape:
        """Dimensions that broadcast to those of a call."""
        if not self.wild and not self.rarely(8):
            return call if self.whole(0, 3) else ()
        shape = call[self.whole(0, len(call)) :] if self.whole(0, 1) else call
        shape = tuple(1 if self.rarely(4) else n for n in shape)
        if shape and self.rarely(25):
            shape = (*shape[:-1], shape[-1] + 2)
        return shape

    def numbers(self, type_: Type, shape: Shape, code: str = "") -> Array:
        """Contents: integers over their range, floats whole and small, so that every sum of them is exact."""
        if type_.kind == "struct":
            out = np.zeros(shape, type_.dtype)
            for name, inner in type_.fields:
                out[name] = self.numbers(inner, shape + inner.dims)
            return out
        dtype = np.dtype(code or type_.dtype)
        if dtype.kind == "b":
            return self.contents.integers(0, 2, shape).astype(dtype)
        if dtype.kind == "f":
            return self.contents.integers(-64, 64, shape).astype(dtype)
        if code and dtype != type_.dtype:
            return self.contents.integers(0, 100, shape).astype(dtype)
        low, high = {"u4": (0, 2**32), "u1": (0, 256), "u2": (0, 2**16), "i8": (-(2**40), 2**40)}.get(
            dtype.str[1:], (-1000, 1000)
        )
        return self.contents.integers(low, high, shape).astype(dtype)

    def array(self, type_: Type, shape: Shape, on: str, written: bool = False, wild: bool | None = None) -> Data:
        """An array argument of that call shape, of any layout if ``wild``."""
        wild = self.wild if wild is None else wild
        layouts = [n for n in LAYOUTS if on == "numpy" or n in ("plain", "step", "broadcast" * (on == "Tensor"))]
        layout = self.one_of(layouts) if wild or self.rarely(12) else "plain"
        if written and (layout in ("unaligned", "elements") or (layout == "fortran" and type_.dims)):
            # test_written_host_arrays_of_any_layout has these.
            layout = "plain"
        if written and layout == "broadcast" and not self.rarely(8):
            layout = "plain"
        code, held = "", None
        if on != "numpy":
            held = type_.element if type_.kind == "tensor" else type_
        elif not written and type_.kind != "struct" and self.rarely(4):
            code = self.one_of(CONVERTIBLE[type_.dtype.kind])
        full, rank = shape + type_.dims, len(shape)
        view: tuple[str, Any]
        if layout == "step":
            seen, key = self.steps(shape)
            full, view = seen + type_.dims, ("index", (*key, ...))
        elif layout == "broadcast":
            view = ("broadcast", shape if held else full)
            full = tuple(1 if self.whole(0, 1) else n for n in shape) + type_.dims
        elif layout in ("transpose", "fortran"):
            order = list(range(len(full)))[::-1]
            if layout == "transpose":
                order = [*self._draw(st.permutations(range(rank))), *range(rank, len(full))]
            full, view = tuple(full[d] for d in order), ("transpose", tuple(np.argsort(order).tolist()))
        elif layout == "elements" and type_.dims:
            full, view = (*full[:-1], 2 * full[-1]), ("index", (..., slice(None, None, -2)))
        elif layout == "unaligned":
            # A field behind a byte: a view whose items lie on no boundary.
            base = self.numbers(type_, full, code)
            packed = np.zeros(full, np.dtype([("", "u1"), ("item", base.dtype)]))
            packed["item"] = base
            return Data(on, packed, held, (("index", "item"),))
        else:
            return Data(on, self.numbers(type_, full, code), held)
        return Data(on, self.numbers(type_, full, code), held, (view,))

    def steps(self, shape: Shape) -> tuple[Shape, tuple[Any, ...]]:
        """A larger shape, and the slices that leave ``shape`` of it, forwards and backwards."""
        sizes: list[int] = []
        key: list[Any] = []
        for n in shape:
            step, skipped = self.one_of([1, 2, -1, -2, 3]), self.whole(0, 2)
            sizes.append(n * abs(step) + skipped)
            if n == 0:
                key.append(slice(0, 0))
            elif step > 0:
                key.append(slice(skipped, skipped + n * step, step))
            else:
                key.append(slice(sizes[-1] - 1, skipped - 1 if skipped else None, step))
        if self.rarely(4):
            sizes, key = [3, *sizes], [1, *key]
        return tuple(sizes), tuple(key)

    def argument(self, type_: Type, direction: str, call: Shape) -> Any:
        """A value for a parameter."""
        if direction != "in":
            shape = self.within(call) if self.rarely(15) else call
            return self.array(type_, shape, self.one_of(["numpy", "Tensor", "NDBuffer"]), written=True)
        if type_.kind == "tensor":
            return self.array(type_, (self.whole(1, 6),), self.one_of(["numpy", "Tensor", "NDBuffer"]))
        kind = self.one_of(["numpy", "Tensor", "number", "list", "NDBuffer", "numpy", "Tensor", "index"])
        shape = self.within(call)
        if kind == "index":
            if type_ is INT2 or type_ is INT:
                return self.index(type_, shape)
            kind = "numpy"
        if kind in ("number", "list") and type_.kind == "struct":
            return self.fields(type_, call)
        if kind == "number":
            return self.number(type_)
        if kind == "list":
            listed: list[Any] = self.numbers(type_, shape + type_.dims).tolist()
            if shape + type_.dims and 0 < kinds.count(shape) <= 60:
                return listed
            kind = "numpy"
        return self.array(type_, shape, kind)

    def number(self, type_: Type) -> Any:
        """One element on the host: a number of Python or NumPy, a vector, a list, a dict."""
        value = self.numbers(type_, type_.dims)
        if type_.kind == "vector":
            items = value.tolist()
            fields = dict(zip("xyzw", items, strict=False))
            return self.one_of([items, tuple(items), items[0], fields, getattr(spy, type_.name)(*items)])
        if type_.dims:
            return value.tolist()
        return self.one_of([value.item(), value[()]])

    def fields(self, type_: Type, call: Shape) -> Any:
        """A struct by its fields, each a value of its own."""
        values = {name: self.argument(inner, "in", call if self.rarely(3) else ()) for name, inner in type_.fields}
        return self.one_of([values, {"_type": type_.name, **values}, tuple(values.values())])

    def index(self, type_: Type, shape: Shape) -> Any:
        """A generator."""
        if self.rarely(4):
            return CallId()
        # test_a_grid_of_1_stretches has grids of 1, which -1 stands for here.
        sizes = tuple(-1 if n == 1 else n for n in shape)
        if type_ is INT and len(shape) == 1:
            start, step = self.whole(-5, 5), self.one_of([1, 2, -1, -3])
            return self.one_of([range(start, start + shape[0] * step, step), Grid(sizes, start, step)])
        shape = sizes
        if len(shape) != (2 if type_ is INT2 else 1) and not self.rarely(8):
            shape = (-1,) * (2 if type_ is INT2 else 1)
        offset, stride = tuple(self.whole(-3, 3) for _ in shape), tuple(self.one_of([1, 2, -1]) for _ in shape)
        return Grid(shape, offset, stride) if shape else CallId()


@st.composite
def calls(draw: st.DrawFn, functions: Sequence[Pooled], wild: bool) -> Case:
    """Calls that broadcast, and now and then some that do not."""
    function = draw(st.sampled_from(functions))
    d = Draw(draw, wild or function.wild)
    call = d.shape()
    arguments = tuple(d.argument(type_, direction, call) for _, type_, direction in function.parameters)
    result: Any = None
    if function.returns is not None and d.rarely(3):
        result = d.one_of(["numpy", "tensor", "ndbuffer"])
        if d.whole(0, 1):
            on = {"numpy": "numpy", "tensor": "Tensor", "ndbuffer": "NDBuffer"}[result]
            shape = d.within(call) if d.rarely(10) else call
            result = d.array(function.returns, shape, on, written=True)
    positional = d.whole(0, len(arguments)) if d.rarely(4) else len(arguments)
    way = d.one_of(["call", "bind", "out", "return_type"]) if d.rarely(4) else "call"
    return Case(function, arguments, positional, result, (), way)


@st.composite
def mapped_calls(draw: st.DrawFn, functions: Sequence[Pooled]) -> Case:
    """Calls whose arguments run along call dimensions by a map: outer products, transposes, diagonals, gaps."""
    function = draw(st.sampled_from(functions))
    d = Draw(draw, False)
    sizes = [d.one_of([2, 3, 1, 4, 5]) for _ in range(3)]
    rank = d.whole(1, 3)
    arguments, maps = [], []
    for _, type_, direction in function.parameters:
        if direction == "in":
            dims = tuple(draw(st.permutations(range(rank))))[: d.whole(0, rank)]
        else:
            dims = tuple(draw(st.permutations(range(rank))))
        if dims and d.rarely(6):
            dims = (*dims, dims[0])
        own = [1 if d.rarely(10) else n + d.rarely(40) for n in sizes]
        shape = tuple(own[k] for k in dims)
        value = d.array(type_, shape, d.one_of(["numpy", "Tensor", "NDBuffer"]), direction != "in", d.rarely(4))
        if not shape and d.whole(0, 1) and direction == "in":
            value = d.number(type_)
        # test_a_dict_that_is_not_vectorized has dicts.
        maps.append(None if isinstance(value, dict) or d.rarely(6) else dims)
        arguments.append(value)
    positional = d.whole(0, len(arguments)) if d.rarely(4) else len(arguments)
    return Case(function, tuple(arguments), positional, None, tuple(maps))
