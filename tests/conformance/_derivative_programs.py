"""Random differentiable Slang functions, each as a tree with two readings: Slang text, and an evaluation in float64.

A seed is a function. The evaluation carries one column for each shifted input, so that a single pass gives central
differences. A decision that is too close to call, a value out of range and a step of an integer raise ``Rejection``:
the point is left out, and the gradient is smooth around those that stay. Nothing here calls the library.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

# Half of the distance of central differences: their error is 1e-8 times a third derivative.
STEP = 1e-4
# How far apart the sides of a decision are at least. Inputs that are shifted by STEP, and floats of 32 bits, agree.
MARGIN = 0.02
LARGEST = 60.0
# By how much values and derivatives may differ: relative to each, relative to the largest beside it, and at all.
RELATIVE, BESIDE, ABSOLUTE = 1e-3, 5e-4, 2e-5
# Relative errors of values and of slopes in floats of 32 bits: 8 units in the last place, as GPUs' functions have.
ROUNDING = 2.0**-20
MOST_TURNS = 40


class Rejection(Exception):
    """A point at which a derivative cannot be measured well, or a program that is none."""


@dataclass(frozen=True)
class Node:
    """An expression or a statement: ``kind`` says which, ``parts`` are its operands, ``data`` what else it needs."""

    kind: str
    type: str = ""
    parts: tuple[Node, ...] = ()
    data: Any = None


@dataclass(frozen=True)
class Parameter:
    key: int
    name: str
    type: str
    way: str = "in"
    constant: bool = False
    spelling: str = ""


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[Parameter, ...]
    result: str
    body: Node
    attributes: tuple[str, ...] = ("[Differentiable]",)
    # "" or how the text is written: "generic", "scalar generic", "macro", "method", "mutating", "interface".
    form: str = ""
    # Where the text is: "", "import" or "include".
    place: str = ""
    # Key of each field, for methods.
    owner: str = ""
    fields: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function, the functions that it calls, and the structs of both."""

    main: Function
    helpers: tuple[Function, ...]
    structs: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------------------- types


@cache
def shape_of(name: str) -> tuple[int, ...] | None:
    """Shape of a float, vector or matrix; None for another type."""
    found = re.fullmatch(r"float([234])?(?:x([234]))?", name)
    return tuple(int(size) for size in found.groups() if size) if found else None


def element(name: str) -> tuple[str, int] | None:
    """Element type and length of an array type."""
    found = re.fullmatch(r"(.*)\[(\d+)\]", name)
    return (found[1], int(found[2])) if found else None


def vector(count: int) -> str:
    return "float" if count == 1 else f"float{count}"


STRUCTS: dict[str, tuple[tuple[str, str], ...]] = {
    "Pair": (("a", "float"), ("b", "float")),
    "Ray": (("origin", "float3"), ("way", "float3")),
    "Leaf": (("w", "float2"), ("s", "float")),
    "Tree": (("leaf", "Leaf"), ("c", "float3"), ("k", "float")),
    "Lens": (("m", "float2x2"), ("f", "float")),
    "Row": (("x", "float[3]"), ("t", "float")),
}


def members(name: str) -> list[tuple[Any, str]]:
    """Steps into a type, and the type of each: fields and indices."""
    shape, of = shape_of(name), element(name)
    if shape is not None:
        return [(k, vector(shape[1]) if len(shape) == 2 else "float") for k in range(shape[0])] if shape else []
    if of:
        return [(k, of[0]) for k in range(of[1])]
    return list(STRUCTS[name])


def count_of(name: str) -> int:
    return 1 if name == "float" else sum(count_of(kind) for _, kind in members(name))


def unflatten(name: str, rows: np.ndarray[Any, Any]) -> Any:
    """A value of a type from the rows of its scalars, in memory order."""
    shape = shape_of(name)
    if shape is not None:
        return rows.reshape(*shape, rows.shape[-1]) if shape else rows[0]
    values, start = [], 0
    for _, kind in members(name):
        count = count_of(kind)
        values.append(unflatten(kind, rows[start : start + count]))
        start += count
    return values if element(name) else dict(zip((key for key, _ in members(name)), values, strict=True))


def flatten(name: str, value: Any, columns: int) -> np.ndarray[Any, Any]:
    shape = shape_of(name)
    if shape is not None:
        whole = np.broadcast_to(value, (*shape, columns))
        return whole.reshape(-1, columns)
    return np.concatenate([flatten(kind, value[step], columns) for step, kind in members(name)])


# ----------------------------------------------------------------------------------------------------- intrinsics


def _apart(*pairs: tuple[Any, Any]) -> None:
    for a, b in pairs:
        if np.min(np.abs(np.asarray(a) - b)) < MARGIN:
            raise Rejection("close")


def _over(value: Any, least: float) -> Any:
    if np.min(value) < least:
        raise Rejection("domain")
    return value


def _max(a: Any, b: Any) -> Any:
    _apart((a, b))
    return np.maximum(a, b)


def _min(a: Any, b: Any) -> Any:
    _apart((a, b))
    return np.minimum(a, b)


def _abs(a: Any) -> Any:
    _apart((a, 0))
    return np.abs(a)


def _dot(a: Any, b: Any) -> Any:
    return (a * b).sum(0)


def _length(a: Any) -> Any:
    return np.sqrt(_over(_dot(a, a), 0.1))


def _floor(a: Any) -> Any:
    _apart((a, np.round(a)))
    return np.floor(a)


def _divide(a: Any, b: Any) -> Any:
    if np.min(np.abs(b)) < 0.25:
        raise Rejection("domain")
    return a / b


def _cross(a: Any, b: Any) -> Any:
    return np.stack([a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3] for k in range(3)])


def _mul(a: Any, b: Any) -> Any:
    if a.ndim > 1 and b.ndim > 1:
        if a.ndim == b.ndim == 2:
            return _dot(a, b)
        left, right = "ij"[3 - a.ndim :] + "p", "jk"[: b.ndim - 1] + "p"
        return np.einsum(f"{left},{right}->{left.replace('j', '').replace('p', '')}{'k' * (b.ndim == 3)}p", a, b)
    return a * b


def _determinant(m: Any) -> Any:
    if m.shape[0] == 2:
        return m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    return _dot(m[0], _cross(m[1], m[2]))


def _same(f: Callable[..., Any], low: float | None = None) -> Callable[..., Any]:
    return f if low is None else lambda x: f(_over(x, low))


def _tight(f: Callable[..., Any]) -> Callable[..., Any]:
    def made(x: Any) -> Any:
        _over(0.9 - np.abs(x), 0)
        return f(x)

    return made


# Functions of one number or of each component.
UNARY: dict[str, Callable[..., Any]] = {
    "sin": np.sin,
    "cos": np.cos,
    "exp": np.exp,
    "sqrt": _same(np.sqrt, 0.2),
    "log": _same(np.log, 0.2),
    "abs": _abs,
    "tanh": np.tanh,
    "atan": np.arctan,
    "rcp": lambda x: _divide(1.0, x),
    "rsqrt": lambda x: 1 / np.sqrt(_over(x, 0.2)),
    "exp2": np.exp2,
    "log2": _same(np.log2, 0.2),
    "asin": _tight(np.arcsin),
    "acos": _tight(np.arccos),
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tan": lambda x: np.sin(x) / _over(np.cos(x), 0.3),
    "saturate": lambda x: _min(_max(x, 0.0), 1.0),
    "frac": lambda x: x - _floor(x),
    "floor": _floor,
    "radians": np.radians,
}
BINARY: dict[str, Callable[..., Any]] = {
    "min": _min,
    "max": _max,
    "pow": lambda a, b: _over(a, 0.2) ** b,
    "atan2": lambda a, b: np.arctan2(a, _over(b, 0.2)),
    "fmod": lambda a, b: a - np.sign(a / b) * _floor(np.abs(_divide(a, b))) * b,
}
TERNARY: dict[str, Callable[..., Any]] = {
    "clamp": lambda x, a, b: _min(_max(x, a), _over(b - a, 0.1) + a),
    "lerp": lambda a, b, t: a + (b - a) * t,
    "mad": lambda a, b, c: a * b + c,
}
OTHER: dict[str, Callable[..., Any]] = {
    "dot": _dot,
    "cross": _cross,
    "length": _length,
    "distance": lambda a, b: _length(a - b),
    "normalize": lambda a: a / _length(a),
    "reflect": lambda a, n: a - 2 * _dot(a, n) * n,
    "mul": _mul,
    "transpose": lambda m: np.swapaxes(m, 0, 1),
    "determinant": _determinant,
}
# Functions of this file's own preamble: text there, value here.
LIBRARY: dict[str, Callable[..., Any]] = {
    "PRODUCT": lambda a, b: a * b,
    "SQUARED": lambda a: a * a,
    "MIXED": lambda a, b, t: a * (1 - t) + b * t,
    "same": lambda a: a,
}
INTRINSICS = UNARY | BINARY | TERNARY | OTHER | LIBRARY
# Functions whose derivative is written by hand and is not that of the value: value and derivative.
BY_HAND: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "bent": (np.sin, lambda x: 2 * np.cos(x) + 0.5),
    "stepped": (lambda x: x * x, lambda x: 1 + 0.25 * x),
}
MACROS = """
#define PRODUCT(a, b) ((a) * (b))
#define SQUARED(a) ((a) * (a))
#define MIXED(a, b, t) (a * (1 - t) + b * t)
"""
# What both files use stands in the imported one.
SHARED = """
typealias Real = float;
typedef float3 Color;
typealias Pixel = vector<float, 2>;
[Differentiable] T same<T : IDifferentiable>(T x) { return x; }
[BackwardDerivative(bentBackward)] [ForwardDerivative(bentForward)] float bent(float x) { return sin(x); }
void bentBackward(inout DifferentialPair<float> x, float g) { x = diffPair(x.p, g * (2 * cos(x.p) + 0.5)); }
DifferentialPair<float> bentForward(DifferentialPair<float> x)
{ return diffPair(sin(x.p), x.d * (2 * cos(x.p) + 0.5)); }
[BackwardDerivative(steppedBackward)] [ForwardDerivative(steppedForward)] float stepped(float x) { return x * x; }
void steppedBackward(inout DifferentialPair<float> x, float g) { x = diffPair(x.p, g * (1 + 0.25 * x.p)); }
DifferentialPair<float> steppedForward(DifferentialPair<float> x)
{ return diffPair(x.p * x.p, x.d * (1 + 0.25 * x.p)); }
"""

# ----------------------------------------------------------------------------------------------------- evaluation


class Frame:
    """Values of the variables of one call, and of the whole program."""

    def __init__(self, program: Program, columns: int) -> None:
        self.functions = {f.name: f for f in program.helpers}
        self.values: dict[int, Any] = {}
        self.columns = columns
        # A generator of the errors of rounding, for an evaluation that has them.
        self.errors: np.random.Generator | None = None

    def inner(self) -> Frame:
        frame = object.__new__(Frame)
        frame.functions, frame.columns, frame.values, frame.errors = self.functions, self.columns, {}, self.errors
        return frame

    def rounded(self, value: Any) -> Any:
        """A value, and its changes from column to column, with an error each."""
        if self.errors is None or not isinstance(value, np.ndarray):
            return value
        first = value[..., :1]
        own, slope = 1 + ROUNDING * self.errors.uniform(-1, 1, (2, *first.shape))
        return first * own + (value - first) * slope


def _checked(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not np.abs(value).max() < LARGEST:
        raise Rejection("large")
    return value


def _copy(value: Any) -> Any:
    """Arrays of NumPy are never written to, lists and dicts are."""
    if isinstance(value, list):
        return [_copy(item) for item in value]
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return value


def _frozen(value: Any) -> Any:
    """A value without derivative: that of the first column in all columns."""
    if isinstance(value, np.ndarray):
        return np.broadcast_to(value[..., :1], value.shape)
    if isinstance(value, list):
        return [_frozen(item) for item in value]
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return value


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: _divide(a, b) if isinstance(b, np.ndarray) else a // b,
    "%": lambda a, b: a % b,
}
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
}


def evaluate(node: Node, frame: Frame) -> Any:
    """The value of an expression."""
    return frame.rounded(_checked(_VALUES[node.kind](node, frame)))


def _compare(node: Node, frame: Frame) -> bool:
    a, b = (evaluate(part, frame) for part in node.parts)
    if isinstance(a, np.ndarray):
        _apart((a, b))
        a, b = a.reshape(-1)[0], np.asarray(b).reshape(-1)[0]
    return ORDER[node.data](a, b)


def _variable(node: Node, frame: Frame) -> Any:
    try:
        return frame.values[node.data[0]]
    except KeyError:
        raise Rejection("undeclared") from None


def _index(node: Node, frame: Frame) -> Any:
    whole, at = evaluate(node.parts[0], frame), evaluate(node.parts[1], frame)
    if not 0 <= at < len(whole):
        raise Rejection("index")
    return whole[at]


def _construct(node: Node, frame: Frame) -> Any:
    values = [evaluate(part, frame) for part in node.parts]
    shape = shape_of(node.type)
    if shape is None:
        return (
            [_copy(v) for v in values]
            if element(node.type)
            else dict(zip((key for key, _ in STRUCTS[node.type]), map(_copy, values), strict=True))
        )
    if len(values) == 1 and node.parts[0].type == "float":
        return np.broadcast_to(values[0], (*shape, frame.columns))
    rows = [flatten(p.type, v, frame.columns) for p, v in zip(node.parts, values, strict=True)]
    return np.concatenate(rows).reshape(*shape, frame.columns)


def _by_hand(node: Node, frame: Frame) -> Any:
    value, slope = BY_HAND[node.data]
    x = np.broadcast_to(evaluate(node.parts[0], frame), (frame.columns,))
    return value(x[:1]) + slope(x[:1]) * (x - x[:1])


def _choose(node: Node, frame: Frame) -> Any:
    # Slang evaluates one side of ?: and both of select.
    if node.kind == "select":
        both = [evaluate(part, frame) for part in node.parts[1:]]
        return both[0] if evaluate(node.parts[0], frame) else both[1]
    return evaluate(node.parts[1 if evaluate(node.parts[0], frame) else 2], frame)


def _call(node: Node, frame: Frame) -> Any:
    function = frame.functions.get(node.data)
    if function is None:
        raise Rejection("undeclared")
    return call(function, node.parts, frame)


def _swizzle(node: Node, frame: Frame) -> Any:
    whole = evaluate(node.parts[0], frame)
    places = ["xyzw".index(c) for c in node.data.translate(str.maketrans("rgba", "xyzw"))]
    return whole[places[0]] if len(places) == 1 else whole[places]


def _short(node: Node, frame: Frame) -> bool:
    first = evaluate(node.parts[0], frame)
    if node.data == "!":
        return not first
    second = evaluate(node.parts[1], frame)
    return bool(first and second) if node.data == "&&" else bool(first or second)


_VALUES: dict[str, Callable[[Node, Frame], Any]] = {
    "literal": lambda n, f: np.full(f.columns, float(n.data)) if n.type == "float" else n.data,
    "variable": _variable,
    "field": lambda n, f: evaluate(n.parts[0], f)[n.data],
    "index": _index,
    "swizzle": _swizzle,
    "negative": lambda n, f: -evaluate(n.parts[0], f),
    "arithmetic": lambda n, f: ARITHMETIC[n.data](evaluate(n.parts[0], f), evaluate(n.parts[1], f)),
    "intrinsic": lambda n, f: INTRINSICS[n.data](*(evaluate(p, f) for p in n.parts)),
    "construct": _construct,
    "cast": lambda n, f: np.full(f.columns, float(evaluate(n.parts[0], f))),
    "splat": lambda n, f: np.broadcast_to(evaluate(n.parts[0], f), (*(shape_of(n.type) or ()), f.columns)),
    "paren": lambda n, f: evaluate(n.parts[0], f),
    "detach": lambda n, f: _frozen(evaluate(n.parts[0], f)),
    "by hand": _by_hand,
    "ternary": _choose,
    "select": _choose,
    "call": _call,
    "method": _call,
    "compare": _compare,
    "logic": _short,
}


def call(function: Function, arguments: Sequence[Node], frame: Frame) -> Any:
    """Value of a call; ``out`` and ``inout`` arguments are written when it returns."""
    inner = frame.inner()
    targets = []
    if function.owner:
        whole = evaluate(arguments[0], frame)
        for key, (name, _) in zip(function.fields, STRUCTS[function.owner], strict=True):
            inner.values[key] = _copy(whole[name])
        target, arguments = arguments[0], arguments[1:]
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        if parameter.way != "in":
            targets.append((parameter, argument))
        if parameter.way != "out":
            value = _copy(evaluate(argument, frame))
            inner.values[parameter.key] = _frozen(value) if parameter.constant else value
    signal = execute(function.body, inner)
    if function.result != "void" and (signal is None or signal[0] != "return"):
        raise Rejection("no result")
    for parameter, argument in targets:
        if parameter.key not in inner.values:
            raise Rejection("no output")
        store(argument, inner.values[parameter.key], frame)
    if function.form == "mutating":
        store(
            target,
            {n: inner.values[k] for k, (n, _) in zip(function.fields, STRUCTS[function.owner], strict=True)},
            frame,
        )
    return signal[1] if signal else None


def store(target: Node, value: Any, frame: Frame) -> None:
    """Write to a variable or to a part of one."""
    if target.kind == "variable":
        if shape_of(target.type) is not None:
            value = np.broadcast_to(value, (*(shape_of(target.type) or ()), frame.columns))
        frame.values[target.data[0]] = _copy(value)
        return
    whole = evaluate(target.parts[0], frame)
    if target.kind == "field":
        store(target.parts[0], {**whole, target.data: _copy(value)}, frame)
        return
    if target.kind == "index":
        places: Any = evaluate(target.parts[1], frame)
        if not 0 <= places < len(whole):
            raise Rejection("index")
    elif target.kind == "swizzle":
        places = ["xyzw".index(c) for c in target.data.translate(str.maketrans("rgba", "xyzw"))]
        places = places[0] if len(places) == 1 else places
    else:
        raise Rejection("target")
    if isinstance(whole, list):
        whole = [*whole[:places], _copy(value), *whole[places + 1 :]]
    else:
        whole = np.array(np.broadcast_to(whole, (*(shape_of(target.parts[0].type) or ()), frame.columns)))
        whole[places] = value
    store(target.parts[0], whole, frame)


def execute(node: Node, frame: Frame) -> tuple[str, Any] | None:
    """Run a statement: ``("return", value)``, ``("break", None)``, ``("continue", None)``, or None at its end."""
    return _RUNS[node.kind](node, frame)


def _block(node: Node, frame: Frame) -> tuple[str, Any] | None:
    for part in node.parts:
        signal = execute(part, frame)
        if signal:
            return signal
    return None


def _declare(node: Node, frame: Frame) -> None:
    key = node.data[0]
    if not node.parts:
        frame.values.pop(key, None)
        return
    store(Node("variable", node.type, (), (key, "")), evaluate(node.parts[0], frame), frame)


def _assign(node: Node, frame: Frame) -> None:
    target, value = node.parts[0], evaluate(node.parts[1], frame)
    if node.data != "=":
        value = _checked(ARITHMETIC[node.data[0]](evaluate(target, frame), value))
    store(target, value, frame)


def _branch(node: Node, frame: Frame) -> tuple[str, Any] | None:
    if evaluate(node.parts[0], frame):
        return execute(node.parts[1], frame)
    return execute(node.parts[2], frame) if len(node.parts) > 2 else None


def _loop(node: Node, frame: Frame) -> tuple[str, Any] | None:
    start, end, body = node.parts
    key, _, order, step, most = node.data[:5]
    frame.values[key] = evaluate(start, frame)
    for _turn in range(MOST_TURNS):
        if not ORDER[order](frame.values[key], evaluate(end, frame)):
            return None
        if _turn >= most:
            raise Rejection("turns")
        signal = execute(body, frame)
        if signal and signal[0] == "break":
            return None
        if signal and signal[0] == "return":
            return signal
        frame.values[key] += step
    raise Rejection("turns")


def _while(node: Node, frame: Frame) -> tuple[str, Any] | None:
    for turn in range(MOST_TURNS):
        if (turn or node.data[1] != "do") and not evaluate(node.parts[0], frame):
            return None
        if turn >= node.data[0]:
            raise Rejection("turns")
        signal = execute(node.parts[1], frame)
        if signal and signal[0] == "break":
            return None
        if signal and signal[0] == "return":
            return signal
    raise Rejection("turns")


def _switch(node: Node, frame: Frame) -> tuple[str, Any] | None:
    value = evaluate(node.parts[0], frame)
    for case, body in zip(node.data, node.parts[1:], strict=True):
        if case is None or case == value:
            return execute(body, frame)
    return None


_RUNS: dict[str, Callable[[Node, Frame], tuple[str, Any] | None]] = {
    "block": _block,
    "declare": _declare,
    "assign": _assign,
    "if": _branch,
    "for": _loop,
    "while": _while,
    "switch": _switch,
    "return": lambda n, f: ("return", _copy(evaluate(n.parts[0], f)) if n.parts else None),
    "break": lambda n, f: ("break", None),
    "continue": lambda n, f: ("continue", None),
    "run": lambda n, f: evaluate(n.parts[0], f) and None,
    "sincos": lambda n, f: _sincos(n, f),
}


def _sincos(node: Node, frame: Frame) -> None:
    x = evaluate(node.parts[0], frame)
    store(node.parts[1], np.sin(x), frame)
    store(node.parts[2], np.cos(x), frame)


@dataclass(frozen=True)
class Measurement:
    """What a function gives at one point: outputs, and their derivative by each input that has one."""

    inputs: tuple[Any, ...]
    outputs: np.ndarray[Any, Any]
    jacobian: np.ndarray[Any, Any]


def outputs_of(function: Function) -> list[tuple[str, str]]:
    """Name and type of each output: the result as ``_result``, and parameters that are written."""
    written = [(p.name, p.type) for p in function.parameters if p.way != "in"]
    return [*([("_result", function.result)] if function.result != "void" else []), *written]


def inputs_of(function: Function) -> list[Parameter]:
    """Parameters that have a gradient, in order."""
    return [p for p in function.parameters if p.way != "out" and p.type != "int" and not p.constant]


def measure(program: Program, inputs: Sequence[Any]) -> Measurement:
    """Outputs and their derivatives at a point, by central differences.

    Parameters
    ----------
    inputs
        An integer or a flat array for each parameter, None for those that are ``out``.

    Raises
    ------
    Rejection
        If a decision is close, a value large, the differences are not smooth, or errors of rounding change them by
        more than a part of what may differ.
    """
    outputs, near, far = _differences(program, inputs, None)
    if np.abs(near).max(initial=0) > 300 or np.abs(near - far).max(initial=0) > 1e-4 * (
        1 + np.abs(near).max(initial=0)
    ):
        raise Rejection("not smooth")
    for seed in range(2):
        others, changed, _ = _differences(program, inputs, np.random.default_rng(seed))
        _close(outputs[:, None], others[:, None])
        _close(near, changed)
        _close(near.T, changed.T)
    return Measurement(tuple(inputs), outputs, near)


def _close(rows: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> None:
    """Refuse rows whose sums of differences are more than a quarter of what may differ."""
    if rows.size:
        largest = np.abs(rows).sum(1).max()
        if np.abs(rows - others).sum(1).max() > 0.25 * (BESIDE * largest + ABSOLUTE):
            raise Rejection("rounding")


def _differences(
    program: Program, inputs: Sequence[Any], errors: np.random.Generator | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Outputs, and their derivatives by differences of one and of two steps."""
    main = program.main
    count = sum(count_of(p.type) for p in inputs_of(main))
    columns = 1 + 4 * count
    frame = Frame(program, columns)
    frame.errors = errors
    at = 1
    arguments = []
    for parameter, value in zip(main.parameters, inputs, strict=True):
        arguments.append(Node("variable", parameter.type, (), (parameter.key, parameter.name)))
        if parameter.way == "out":
            continue
        if parameter.type == "int":
            frame.values[parameter.key] = value
            continue
        rows = np.repeat(np.asarray(value, np.float64)[:, None], columns, axis=1)
        if not parameter.constant:
            for k in range(len(rows)):
                rows[k, at : at + 4] += np.array([1, -1, 2, -2]) * STEP
                at += 4
        frame.values[parameter.key] = unflatten(parameter.type, rows)
    with np.errstate(all="ignore"):
        result = call(replace(main, owner=""), arguments, frame)
        parts = [flatten(main.result, result, columns)] if main.result != "void" else []
        parts += [flatten(p.type, frame.values[p.key], columns) for p in main.parameters if p.way != "in"]
    whole = np.concatenate(parts)
    if not np.isfinite(whole).all():
        raise Rejection("not finite")
    shifted = whole[:, 1:].reshape(len(whole), count, 4)
    near = (shifted[..., 0] - shifted[..., 1]) / (2 * STEP)
    far = (shifted[..., 2] - shifted[..., 3]) / (4 * STEP)
    return whole[:, 0], near, far


# ----------------------------------------------------------------------------------------------------------- text

_STRENGTH = {
    "||": 1,
    "&&": 2,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "==": 3,
    "!=": 3,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}


def _strength(node: Node) -> int:
    if node.kind in ("arithmetic", "compare") or (node.kind == "logic" and node.data != "!"):
        return _STRENGTH[node.data]
    if node.kind == "ternary":
        return 0
    if node.kind in ("negative", "logic") or (node.kind == "literal" and str(node.data).startswith("-")):
        return 7
    return 9


@dataclass(frozen=True)
class Writer:
    """Slang text of a function. Numbers of a generic function are made of its type."""

    form: str = ""

    def expression(self, node: Node, least: int = 0) -> str:
        text = self._expression(node)
        return f"({text})" if _strength(node) < least else text

    def _list(self, parts: Sequence[Node], least: int = 0) -> str:
        return ", ".join(self.expression(part, least) for part in parts)

    def _expression(self, node: Node) -> str:
        parts, data = node.parts, node.data
        match node.kind:
            case "literal":
                return f"T({data})" if self.form == "scalar generic" and node.type == "float" else str(data)
            case "variable":
                return str(data[1])
            case "field" | "swizzle":
                return f"{self.expression(parts[0], 9)}.{data}"
            case "index":
                return f"{self.expression(parts[0], 9)}[{self.expression(parts[1])}]"
            case "negative":
                return f"-{self.expression(parts[0], 8)}"
            case "arithmetic" | "compare":
                own = _STRENGTH[data]
                return f"{self.expression(parts[0], own)} {data} {self.expression(parts[1], own + 1)}"
            case "logic":
                if data == "!":
                    return f"!{self.expression(parts[0], 8)}"
                return f"{self.expression(parts[0], 3)} {data} {self.expression(parts[1], 3)}"
            case "intrinsic":
                texts = [self.expression(part, 9 if data == "MIXED" else 0) for part in parts]
                if data.isupper() and self.form.endswith("generic"):
                    # A macro's argument ends at the comma of vector<T, N>.
                    texts = [f"({text})" if "float3" in text else text for text in texts]
                return f"{data}({', '.join(texts)})"
            case "by hand":
                return f"{data}({self._list(parts)})"
            case "construct":
                braces = shape_of(node.type) is None
                return f"{{{self._list(parts)}}}" if braces else f"{node.type}({self._list(parts)})"
            case "cast":
                return f"float({self._list(parts)})" if data else self.expression(parts[0])
            case "splat":
                return (
                    f"{node.type}({self._list(parts)})"
                    if data == "call"
                    else (f"({node.type}){self.expression(parts[0], 9)}" if data else self.expression(parts[0]))
                )
            case "paren":
                return f"({self.expression(parts[0])})"
            case "detach":
                return f"detach({self._list(parts)})"
            case "ternary":
                return (
                    f"{self.expression(parts[0], 1)} ? {self.expression(parts[1], 1)} : {self.expression(parts[2])}"
                )
            case "select":
                return f"select({self._list(parts)})"
            case "call":
                return f"{data}({self._list(parts)})"
            case "method":
                return f"{self.expression(parts[0], 9)}.{data}({self._list(parts[1:])})"
        raise ValueError(node.kind)

    def statement(self, node: Node, indent: str) -> list[str]:
        parts, data = node.parts, node.data
        inner = indent + "    "
        match node.kind:
            case "block":
                return [line for part in parts for line in self.statement(part, indent)]
            case "declare":
                _, name, spelling = data
                head = f"{spelling} {name}"
                if element(node.type) and spelling not in ("let", "var"):
                    kind, count = element(node.type) or ("", 0)
                    head = f"{kind} {name}[{count}]"
                return [f"{indent}{head} = {self.expression(parts[0])};" if parts else f"{indent}{head};"]
            case "assign":
                if node.type == "int" and data in ("+=", "-=") and parts[1].data == 1 and parts[1].kind == "literal":
                    sign = data[0] * 2
                    return [f"{indent}{self.expression(parts[0])}{sign};"]
                return [f"{indent}{self.expression(parts[0])} {data} {self.expression(parts[1])};"]
            case "if":
                lines = [f"{indent}if ({self.expression(parts[0])})", *self._body(parts[1], indent)]
                if len(parts) > 2:
                    if len(parts[2].parts) == 1 and parts[2].parts[0].kind == "if":
                        rest = self.statement(parts[2].parts[0], indent)
                        return [*lines, f"{indent}else {rest[0].strip()}", *rest[1:]]
                    lines += [f"{indent}else", *self._body(parts[2], indent)]
                return lines
            case "for":
                _, name, order, step, most, attribute = data
                attribute = f"[MaxIters({most})]" if attribute == "max" else attribute
                turn = {1: f"++{name}", -1: f"--{name}"}.get(step, f"{name} += {step}")
                start, end = self.expression(parts[0]), self.expression(parts[1], 5)
                head = f"{indent}{attribute} for (int {name} = {start}; {name} {order} {end}; {turn})"
                return [head, *self._body(parts[2], indent)]
            case "while":
                most, how = data
                if how == "do":
                    return [
                        f"{indent}[MaxIters({most})] do",
                        *self._body(parts[1], indent),
                        f"{indent}while ({self.expression(parts[0])});",
                    ]
                test = self.expression(parts[0])
                head = f"for (; {test};)" if how == "for" else f"while ({test})"
                return [f"{indent}[MaxIters({most})] {head}", *self._body(parts[1], indent)]
            case "switch":
                lines = [f"{indent}switch ({self.expression(parts[0])})", f"{indent}{{"]
                for case, body in zip(data, parts[1:], strict=True):
                    lines.append(f"{indent}{'default' if case is None else f'case {case}'}:")
                    lines += self.statement(body, inner)
                    if not (body.parts and body.parts[-1].kind == "return"):
                        lines.append(f"{inner}break;")
                return [*lines, f"{indent}}}"]
            case "return":
                return [f"{indent}return {self.expression(parts[0])};" if parts else f"{indent}return;"]
            case "break" | "continue":
                return [f"{indent}{node.kind};"]
            case "run":
                return [f"{indent}{self.expression(parts[0])};"]
            case "sincos":
                return [f"{indent}sincos({self._list(parts)});"]
        raise ValueError(node.kind)

    def _body(self, node: Node, indent: str) -> list[str]:
        return [f"{indent}{{", *self.statement(node, indent + "    "), f"{indent}}}"]


def _parameter_text(p: Parameter) -> str:
    words = (["no_diff"] if p.constant else []) + ([p.way] if p.way != "in" else [])
    of = element(p.type)
    if of and p.spelling != "before":
        return " ".join([*words, of[0], f"{p.name}[{of[1]}]"])
    return " ".join([*words, p.spelling if p.spelling and p.spelling != "before" else p.type, p.name])


def function_text(function: Function) -> str:
    writer = Writer(function.form)
    head = f"{function.result} {function.name}({', '.join(map(_parameter_text, function.parameters))})"
    body = ["{", *writer.statement(function.body, "    "), "}"]
    attributes = list(function.attributes)
    if function.form == "mutating":
        attributes.append("[mutating]")
    text = "\n".join([" ".join(attributes) + " " + head, *body])
    if function.form in ("generic", "scalar generic"):
        kind = "T" if function.form == "scalar generic" else "float"
        text = re.sub(r"\bfloat3\b", f"vector<{kind}, N>", text)
        names = "T : __BuiltinFloatingPointType, let N : int" if kind == "T" else "let N : int"
        if kind == "T":
            text = re.sub(r"\bfloat\b", "T", text)
        text = text.replace(f" {function.name}(", f" {function.name}<{names}>(", 1)
    if function.form == "interface":
        owner = function.parameters[0].type
        text = text.replace(f" {function.name}({owner} ", f" {function.name}<T : I{owner}>(T ", 1)
    if function.form == "macro":
        lines = text.replace(function.name, "NAME", 1).split("\n")
        text = (
            f"#define DEFINE_{function.name}(NAME) "
            + " \\\n".join(lines)
            + f"\nDEFINE_{function.name}({function.name})"
        )
    return text


def _struct_text(name: str, program: Program) -> str:
    methods = [f for f in program.helpers if f.owner == name]
    interface = [f for f in methods if "interface" in f.place]
    lines = []
    if any(f.form == "interface" and f.parameters[0].type == name for f in program.helpers):
        lines += [f"interface I{name} : IDifferentiable", "{"]
        for f in interface:
            head = f"{f.result} {f.name}({', '.join(map(_parameter_text, f.parameters))});"
            lines.append(f"    {' '.join(f.attributes)} {head}")
        lines.append("}")
        base = f"I{name}"
    else:
        base = "IDifferentiable"
    lines += [f"struct {name} : {base}", "{"]
    for key, kind in STRUCTS[name]:
        of = element(kind)
        lines.append(f"    {of[0]} {key}[{of[1]}];" if of else f"    {kind} {key};")
    for f in methods:
        lines += ["    " + line for line in function_text(f).split("\n")]
    return "\n".join([*lines, "}"])


def nodes_of(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts:
        yield from nodes_of(part)


def _types_of(function: Function) -> set[str]:
    names = {function.result, function.owner, *(p.type for p in function.parameters)}
    return names | {n.type for n in nodes_of(function.body)}


def structs_of(functions: Sequence[Function]) -> list[str]:
    """Structs that functions use, each after those of its fields."""
    used = {name.partition("[")[0] for f in functions for name in _types_of(f)}
    for name in reversed(list(STRUCTS)):
        if name in used:
            used |= {kind.partition("[")[0] for _, kind in STRUCTS[name]}
    return [name for name in STRUCTS if name in used]


def called(program: Program) -> tuple[Function, ...]:
    """Helpers that the function calls, directly or not, in their order."""
    known = {f.name: f for f in program.helpers}
    wanted: set[str] = set()
    queue = [program.main]
    while queue:
        for node in nodes_of(queue.pop().body):
            if node.kind in ("call", "method") and node.data in known and node.data not in wanted:
                wanted.add(node.data)
                queue.append(known[node.data])
    return tuple(f for f in program.helpers if f.name in wanted)


def _placed(helpers: tuple[Function, ...]) -> tuple[Function, ...]:
    """Return the helpers, with every function that the imported file calls moved into that file."""
    if not any("import" in f.place and not f.owner for f in helpers):
        return helpers
    known = {f.name: f for f in helpers}
    queue = [f for f in helpers if f.owner or "import" in f.place]
    wanted = {f.name for f in queue}
    while queue:
        for node in nodes_of(queue.pop().body):
            if node.kind in ("call", "method") and node.data in known and node.data not in wanted:
                wanted.add(node.data)
                queue.append(known[node.data])
    return tuple(replace(f, place="import") if f.name in wanted and not f.owner else f for f in helpers)


@dataclass(frozen=True)
class Text:
    """Parts of modules: what is imported, what is included, and the rest."""

    own: str
    imported: str = ""
    included: str = ""


def program_text(program: Program, suffix: str = "") -> Text:
    """Text of a function and of all that it needs, without the preamble; struct names end with a suffix."""
    helpers = _placed(called(program))
    program = replace(program, helpers=helpers)
    structs = structs_of([program.main, *helpers])
    far = any("import" in f.place and not f.owner for f in helpers)
    texts: dict[str, list[str]] = {"": [], "import": [], "include": []}
    shared = "import" if far else ""
    texts[shared] += [_struct_text(name, program) for name in structs]
    for function in (*helpers, program.main):
        if not function.owner:
            texts[function.place].append(function_text(function))
    joined = ["\n".join(lines) for lines in texts.values()]
    if suffix:
        names = "|".join(f"I?{name}" for name in STRUCTS)
        joined = [re.sub(rf"\b({names})\b", rf"\1_{suffix}", text) for text in joined]
    return Text(*joined)


def module_texts(programs: Sequence[tuple[str, Program]], imported: str, included: str) -> Text:
    """Text of a module with many functions, and of the files that it imports and includes, by their names."""
    texts = [program_text(program, suffix) for suffix, program in programs]
    own = "\n".join(t.own for t in texts)
    return Text(
        f'import {imported};\n{MACROS}\n#include "{included}"\n{own}\n',
        f"{MACROS}{SHARED}" + "\n".join(t.imported for t in texts) + "\n",
        "\n".join(t.included for t in texts) + "\n",
    )


# ------------------------------------------------------------------------------------------------------ generation


@dataclass(frozen=True)
class Variable:
    """A name in scope. ``high`` is the largest value of an integer, ``opaque`` says that only methods are used."""

    key: int
    name: str
    type: str
    writable: bool = True
    high: int = 0
    opaque: bool = False


NAMES = ["k", "v", "p", "q", "s", "t", "u", "w", "x", "y", "z", "m", "n", "c", "d", "e", "g", "h", "j", "l", "r"]
SPELLINGS = {"float": "Real", "float3": "Color", "float2": "Pixel"}


class Generator:
    """Draws one function and its helpers; the same for the same seed."""

    def __init__(self, seed: int, name: str = "", without: frozenset[str] = frozenset()) -> None:
        self.without = without
        self.random = random.Random(seed)
        self.name = name or f"f{seed}"
        self.helpers: list[Function] = []
        self.keys = 0
        self.scope: list[Variable] = []
        self.taken: set[str] = set()
        self.plain = False  # within a generic function: no components
        self.loops = 0
        self.result = "void"
        self.level = 0
        self.outside: set[int] = set()  # variables of the blocks around the present one

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items)

    def weighted(self, table: Mapping[str, float]) -> str:
        return self.random.choices(list(table), list(table.values()))[0]

    def key(self) -> int:
        self.keys += 1
        return self.keys

    def fresh(self) -> str:
        free = [name for name in NAMES if name not in self.taken]
        name = self.pick(free) if free else f"v{self.keys}"
        self.taken.add(name)
        return str(name)

    def type(self, kinds: Mapping[str, float] | None = None) -> str:
        if self.plain:
            return self.weighted({"float": 2, "float3": 3})
        table = {
            "float": 5, "float2": 2, "float3": 3, "float4": 1, "float2x2": 0.6, "float3x3": 0.4,
            "float[3]": 0.5, "float[4]": 0.2, "float2[2]": 0.15, "Pair": 0.4, "Ray": 0.3, "Tree": 0.3, "Lens": 0.15,
            "Row": 0.2, "Leaf": 0.2,
        }  # fmt: skip
        return self.weighted(kinds or table)

    # -- expressions

    def read(self, kind: str, tries: int = 6) -> Node | None:
        """A variable, or a part of one, of a type."""
        sources = [v for v in self.scope if v.type not in ("int",) and not v.opaque]
        for _ in range(tries if sources else 0):
            found = self.descend(self.pick(sources), kind)
            if found:
                return found
        return None

    def descend(self, source: Variable, kind: str, written: bool = False) -> Node | None:
        node = Node("variable", source.type, (), (source.key, source.name))
        while node.type != kind:
            shape = shape_of(node.type)
            if shape == () or (self.plain and shape):
                return None
            if shape and len(shape) == 1:
                wanted = shape_of(kind)
                if wanted is None or len(wanted) > 1:
                    return None
                if wanted == () and self.chance(0.3):
                    return Node("index", "float", (node, self.index(shape[0])))
                count = wanted[0] if wanted else 1
                letters = "xyzw"[: shape[0]] if self.chance(0.9) else "rgba"[: shape[0]]
                if written and count > shape[0]:
                    return None
                drawn = self.random.sample(letters, count) if written else [self.pick(letters) for _ in range(count)]
                return Node("swizzle", kind, (node,), "".join(drawn))
            if shape or element(node.type):
                steps = members(node.type)
                node = Node("index", steps[0][1], (node, self.index(len(steps))))
                continue
            step, inner = self.pick(members(node.type))
            node = Node("field", inner, (node,), step)
        return node

    def index(self, count: int) -> Node:
        """An integer in range."""
        numbers = [v for v in self.scope if v.type == "int"]
        if numbers and self.chance(0.5) and "dynamic" not in self.without:
            v = self.pick(numbers)
            node = Node("variable", "int", (), (v.key, v.name))
            if v.high < count:
                if self.chance(0.25) and v.high == count - 1:
                    return Node("arithmetic", "int", (Node("literal", "int", (), count - 1), node), "-")
                return node
            return Node("arithmetic", "int", (node, Node("literal", "int", (), count)), "%")
        return Node("literal", "int", (), self.random.randrange(count))

    def number(self) -> Node:
        text = self.pick(["0.5", "1.5", "0.25", "0.75", "1.25", "2.0", "0.1", "1.0", "0.3f", "0.7f"])
        return Node("literal", "float", (), text) if "f" not in text else Node("literal", "float", (), text[:-1])

    def leaf(self, kind: str) -> Node:
        found = self.read(kind)
        if found and self.chance(0.92):
            return found
        if kind == "float":
            numbers = [v for v in self.scope if v.type == "int"]
            if numbers and self.chance(0.3) and not self.plain:
                v = self.pick(numbers)
                return Node("cast", "float", (Node("variable", "int", (), (v.key, v.name)),), "call")
            return self.read(kind) or self.number()
        shape = shape_of(kind)
        if shape and (self.plain or self.chance(0.5)):
            return found or Node("splat", kind, (self.leaf("float"),), "call")
        if found:
            return found
        if shape:
            return self.construction(kind, 0)
        return Node("call", kind, tuple(self.leaf(k) for _, k in members(kind)), self.maker(kind))

    def construction(self, kind: str, depth: int) -> Node:
        shape = shape_of(kind)
        if shape and len(shape) == 1:
            left, parts = shape[0], []
            while left:
                count = self.pick(range(1, left + 1)) if left < shape[0] else self.pick(range(1, left))
                parts.append(self.expression(vector(count), depth - 1))
                left -= count
            return Node("construct", kind, tuple(parts))
        if shape:
            kinds = [vector(shape[1])] * shape[0] if self.chance(0.5) else ["float"] * (shape[0] * shape[1])
            return Node("construct", kind, tuple(self.expression(k, depth - 1) for k in kinds))
        return Node("construct", kind, tuple(self.expression(k, depth - 1) for _, k in members(kind)))

    def condition(self, depth: int) -> Node:
        numbers = [v for v in self.scope if v.type == "int"]
        if depth > 0 and self.chance(0.15):
            data = self.pick(["&&", "||", "!"])
            parts = tuple(self.condition(depth - 1) for _ in range(1 if data == "!" else 2))
            return Node("logic", "bool", parts, data)
        if numbers and self.chance(0.4):
            v = self.pick(numbers)
            left = Node("variable", "int", (), (v.key, v.name))
            if self.chance(0.2):
                left = Node("arithmetic", "int", (left, Node("literal", "int", (), 2)), "%")
            right = Node("literal", "int", (), self.random.randrange(max(v.high, 1) + 1))
            return Node("compare", "bool", (left, right), self.pick(["<", "<=", ">", ">=", "==", "!="]))
        left = self.expression("float", min(depth, 1))
        right = self.number() if self.chance(0.6) else self.expression("float", 0)
        return Node("compare", "bool", (left, right), self.pick(["<", ">", "<=", ">="]))

    def expression(self, kind: str, depth: int) -> Node:
        """An expression of a type."""
        if depth <= 0 or self.chance(0.12):
            node = self.leaf(kind)
        else:
            node = self.compound(kind, depth)
        if self.chance(0.03):
            node = Node("paren", kind, (node,))
        return node

    def compound(self, kind: str, depth: int) -> Node:
        shape = shape_of(kind)
        if shape is None:
            return self.aggregate(kind, depth)
        table: dict[str, float] = {"arithmetic": 6, "unary": 2.5, "two": 1, "three": 0.8, "choose": 0.7, "call": 1.2}
        table["negative"] = 0.4
        table["macro"] = 0.4
        if not self.plain:
            table["detach"] = 0.2
        if kind == "float":
            table |= {"reduce": 1.5, "by hand": 0.25} if not self.plain else {"reduce": 1.0}
        elif len(shape) == 1:
            table |= (
                {"construct": 1.0, "vector": 1.2, "splat": 0.3} if not self.plain else {"vector": 0.6, "splat": 0.4}
            )
        else:
            table = {"arithmetic": 3, "matrix": 1.5, "construct": 1.0, "choose": 0.4, "call": 0.5, "negative": 0.3}
            if "negative matrix" in self.without:
                del table["negative"]
        match self.weighted(table):
            case "arithmetic":
                return self.arithmetic(kind, depth)
            case "unary":
                return self.unary(kind, depth)
            case "two":
                return self.two(kind, depth)
            case "three":
                return self.three(kind, depth)
            case "choose":
                data = "select" if self.chance(0.3) else "ternary"
                pair = tuple(self.expression(kind, depth - 1) for _ in range(2))
                return Node(data, kind, (self.condition(depth - 1), *pair))
            case "call":
                return self.helper_call(kind, depth) or self.arithmetic(kind, depth)
            case "negative":
                return Node("negative", kind, (self.expression(kind, depth - 1),))
            case "macro":
                data = self.pick(["PRODUCT", "SQUARED", "MIXED"])
                # The macro has an integer, which does not fit a generic type.
                data = "PRODUCT" if data == "MIXED" and self.form == "scalar generic" else data
                count = {"PRODUCT": 2, "SQUARED": 1, "MIXED": 3}[data]
                kinds = [kind if k == 0 or self.chance(0.4) else "float" for k in range(count)]
                if data == "PRODUCT":
                    self.random.shuffle(kinds)
                return Node("intrinsic", kind, tuple(self.expression(k, depth - 1) for k in kinds), data)
            case "detach":
                return Node("detach", kind, (self.expression(kind, depth - 1),))
            case "reduce":
                return self.reduction(depth)
            case "by hand":
                return Node("by hand", kind, (self.expression("float", depth - 1),), self.pick(sorted(BY_HAND)))
            case "construct":
                return self.construction(kind, depth)
            case "splat":
                data = "call" if self.plain or self.chance(0.8) else "cast"
                return Node("splat", kind, (self.expression("float", depth - 1),), data)
            case "vector":
                return self.vector_function(kind, depth)
        return self.matrix_function(kind, depth)

    def arithmetic(self, kind: str, depth: int) -> Node:
        data = self.weighted({"*": 5, "+": 3, "-": 2.5, "/": 1})
        shape = shape_of(kind)
        kinds = [kind, kind]
        if shape and self.chance(0.55):
            kinds[self.random.randrange(2)] = "float"
            if len(shape) == 2:
                data = "*"
                kinds.sort(reverse=self.chance(0.5))
        elif shape and len(shape) == 2 and data == "/":
            data = "*"
        left = self.expression(kinds[0], depth - 1)
        right = self.expression(kinds[1], depth - 1)
        if data == "/" and self.chance(0.7):
            square = (
                Node("arithmetic", right.type, (right, right), "*")
                if self.chance(0.5)
                else (Node("intrinsic", right.type, (right,), "exp"))
            )
            right = Node(
                "arithmetic", right.type, (square, Node("literal", "float", (), self.pick(["0.5", "1.5"]))), "+"
            )
        if left.kind == "literal" and right.kind != "literal" and self.chance(0.3) and left.type == "float":
            left = replace(left, data=self.pick(["2", "1", "3"]))
        elif right.kind == "literal" and left.kind != "literal" and self.chance(0.3) and right.type == "float":
            right = replace(right, data=self.pick(["2", "1", "3"]))
        return Node("arithmetic", kind, (left, right), data)

    def unary(self, kind: str, depth: int) -> Node:
        x = self.expression(kind, depth - 1)
        data = self.weighted({
            "sin": 3, "cos": 2, "exp": 1, "sqrt": 1.5, "log": 1, "abs": 1, "tanh": 1, "atan": 0.5, "rcp": 0.5,
            "rsqrt": 0.5, "exp2": 0.3, "log2": 0.3, "asin": 0.2, "acos": 0.2, "sinh": 0.2, "cosh": 0.2, "tan": 0.3,
            "saturate": 0.7, "frac": 0.2, "radians": 0.1,
        })  # fmt: skip
        if data in ("sqrt", "log", "rsqrt", "log2", "rcp") and self.chance(0.75):
            x = self.positive(x)
        elif data in ("exp", "exp2", "sinh", "cosh", "asin", "acos", "tan"):
            x = Node("arithmetic", kind, (Node("literal", "float", (), "0.5"), x), "*")
            if data in ("asin", "acos"):
                x = Node("intrinsic", kind, (x,), "sin")
        return Node("intrinsic", kind, (x,), data)

    def positive(self, x: Node) -> Node:
        half = Node("literal", "float", (), self.pick(["0.5", "1.0", "1.5"]))
        way = self.weighted({"square": 2, "abs": 1, "sin": 1})
        if way == "square":
            return Node("arithmetic", x.type, (Node("arithmetic", x.type, (x, x), "*"), half), "+")
        if way == "abs":
            return Node("arithmetic", x.type, (Node("intrinsic", x.type, (x,), "abs"), half), "+")
        two = Node("literal", "float", (), "1.5")
        return Node("arithmetic", x.type, (two, Node("intrinsic", x.type, (x,), "sin")), self.pick(["+", "-"]))

    def two(self, kind: str, depth: int) -> Node:
        data = self.weighted({"min": 2, "max": 2, "pow": 1, "atan2": 0.7, "fmod": 0.2})
        if data in self.without:
            data = "max"
        a, b = (self.expression(kind, depth - 1) for _ in range(2))
        if data == "pow":
            a = self.positive(a)
        if data in ("atan2", "fmod"):
            b = self.positive(b)
        if kind != "float" and data in ("min", "max") and self.chance(0.3) and not self.plain:
            b = self.expression("float", depth - 1)
        return Node("intrinsic", kind, (a, b), data)

    def three(self, kind: str, depth: int) -> Node:
        data = self.weighted({"clamp": 1.5, "lerp": 2, "mad": 0.5})
        parts = [self.expression(kind, depth - 1) for _ in range(3)]
        if data == "clamp" and self.chance(0.7):
            parts[1:] = [Node("literal", "float", (), "0.1"), Node("literal", "float", (), "0.9")]
            if kind != "float":
                parts[1:] = [Node("splat", kind, (p,), "call") for p in parts[1:]]
        if data == "lerp" and kind != "float" and self.chance(0.5) and not self.plain:
            parts[2] = self.expression("float", depth - 1)
        return Node("intrinsic", kind, tuple(parts), data)

    def reduction(self, depth: int) -> Node:
        kind = "float3" if self.plain else self.pick(["float2", "float3", "float3", "float4"])
        data = self.weighted({"dot": 3, "length": 1.5, "distance": 0.7, "determinant": 0.3})
        if data == "determinant":
            if self.plain:
                data = "dot"
            else:
                kind = self.pick(["float2x2", "float3x3"])
        parts = [self.expression(kind, depth - 1) for _ in range(2 if data in ("dot", "distance") else 1)]
        if data == "dot" and self.chance(0.15):
            parts = parts[:1] * 2
        return Node("intrinsic", "float", tuple(parts), data)

    def vector_function(self, kind: str, depth: int) -> Node:
        table = {"normalize": 2.0, "reflect": 0.4}
        if kind == "float3":
            table["cross"] = 1.5
        if kind in ("float2", "float3") and not self.plain:
            table |= {"mul": 2, "scaled": 0.4}
        if self.plain:
            table.pop("cross", 0)
        data = self.weighted(table)
        if data == "mul":
            square = f"{kind}x{kind[-1]}"
            parts = [self.expression(square, depth - 1), self.expression(kind, depth - 1)]
            if self.chance(0.4):
                parts.reverse()
        elif data == "scaled":
            data, parts = "mul", [self.expression("float", depth - 1), self.expression(kind, depth - 1)]
            if self.chance(0.4):
                parts.reverse()
        else:
            parts = [self.expression(kind, depth - 1) for _ in range(1 if data == "normalize" else 2)]
        return Node("intrinsic", kind, tuple(parts), data)

    def matrix_function(self, kind: str, depth: int) -> Node:
        if self.chance(0.5):
            return Node("intrinsic", kind, (self.expression(kind, depth - 1),), "transpose")
        kinds = [kind, "float" if self.chance(0.2) else kind]
        self.random.shuffle(kinds)
        return Node("intrinsic", kind, tuple(self.expression(k, depth - 1) for k in kinds), "mul")

    def aggregate(self, kind: str, depth: int) -> Node:
        if self.chance(0.35):
            found = self.helper_call(kind, depth)
            if found:
                return found
        found = self.read(kind)
        other = self.read(kind)
        if found and other and self.chance(0.2):
            return Node("ternary", kind, (self.condition(0), found, other))
        if found and self.chance(0.5):
            return found
        return Node("call", kind, tuple(self.expression(k, depth - 1) for _, k in members(kind)), self.maker(kind))

    def maker(self, kind: str) -> str:
        """A helper that makes a struct or an array of its parts."""
        for f in self.helpers:
            if f.name.endswith("_make") and f.result == kind:
                return f.name
        name = f"{self.name}_{self.key()}_make"
        parameters = tuple(Parameter(self.key(), f"a{k}", t) for k, (_, t) in enumerate(members(kind)))
        parts = tuple(Node("variable", p.type, (), (p.key, p.name)) for p in parameters)
        target = (self.key(), "made")
        body = Node("block", "", (
            Node("declare", kind, (Node("construct", kind, parts),), (*target, kind)),
            Node("return", "", (Node("variable", kind, (), target),)),
        ))  # fmt: skip
        if not element(kind) and self.chance(0.5):
            body = Node("block", "", (Node("return", "", (Node("construct", kind, parts),)),))
        self.helpers.append(Function(name, parameters, kind, body))
        return name

    # -- helpers

    def helper_call(self, kind: str, depth: int) -> Node | None:
        """A call of a function that returns a type: of one that is there, or of a new one."""
        if self.level >= 2:
            return None
        known = [f for f in self.helpers if f.result == kind and not f.name.endswith("_make")]
        known = [f for f in known if all(p.way == "in" for p in f.parameters) and f.form != "mutating"]
        if self.plain:
            known = [f for f in known if f.form == self.form]
        if (not known or self.chance(0.4)) and len(self.helpers) < 5 and not self.plain:
            f = self.helper(kind)
        elif known:
            f = self.pick(known)
        else:
            return None
        return self.call_of(f, depth)

    def call_of(self, f: Function, depth: int) -> Node:
        parts = [self.argument(p, depth) for p in f.parameters]
        if f.owner:
            whole = self.read(f.owner)
            if whole is None:
                whole = Node("call", f.owner, tuple(self.leaf(k) for _, k in members(f.owner)), self.maker(f.owner))
            return Node("method", f.result, (whole, *parts), f.name)
        return Node("call", f.result, tuple(parts), f.name)

    def argument(self, p: Parameter, depth: int) -> Node:
        if p.type == "int":
            return self.index(p_high(p) + 1)
        return (
            self.expression(p.type, min(depth - 1, 2))
            if shape_of(p.type) is not None
            else (
                self.read(p.type)
                or Node("call", p.type, tuple(self.leaf(k) for _, k in members(p.type)), self.maker(p.type))
            )
        )

    def helper(self, kind: str, ways: bool = False) -> Function:
        """A new function."""
        outer = (self.scope, self.taken, self.plain, self.loops, self.result, self.level)
        form = getattr(self, "form", "")
        name = f"{self.name}_{self.key()}"
        self.scope, self.taken, self.loops, self.level = [], set(), 0, self.level + 1
        table = {"": 5.0, "macro": 0.5}
        if kind in ("float", "float3") and not ways:
            table |= {"generic": 1.0, "scalar generic": 0.7}
        if not ways:
            table |= {"method": 1.5, "interface": 0.6}
        else:
            table |= {"mutating": 1.0}
        self.form = self.weighted(table)
        self.plain = self.form in ("generic", "scalar generic")
        made = self.function(name, kind, ways, self.form)
        self.scope, self.taken, self.plain, self.loops, self.result, self.level = outer
        self.form = form
        self.helpers.append(made)
        return made

    def function(self, name: str, kind: str, ways: bool, form: str) -> Function:
        owner, fields, place = "", (), ""
        parameters: list[Parameter] = []
        if form in ("method", "mutating"):
            owner = self.pick(["Pair", "Ray", "Tree", "Lens", "Leaf", "Row"])
            fields = tuple(self.key() for _ in STRUCTS[owner])
            for key, (field_name, field_type) in zip(fields, STRUCTS[owner], strict=True):
                self.taken.add(field_name)
                shown = f"this.{field_name}" if self.chance(0.2) else field_name
                self.scope.append(Variable(key, shown, field_type, form == "mutating"))
        elif form == "interface":
            return self.interface(name, kind)
        elif self.plain:
            parameters.append(Parameter(self.key(), self.fresh(), "float3"))
            if form == "scalar generic" or self.chance(0.7):
                parameters.append(Parameter(self.key(), self.fresh(), "float"))
            if form == "scalar generic":
                self.random.shuffle(parameters)
        count = self.random.randint(1, 3) if not parameters else 0
        for _ in range(count):
            if self.level and self.chance(0.12):
                parameters.append(Parameter(self.key(), self.fresh(), "int", spelling=""))
                continue
            kinds = {
                "float": 5.0,
                "float2": 1.5,
                "float3": 2.5,
                "float[3]": 0.4,
                "Pair": 0.3,
                "Ray": 0.3,
                "float2x2": 0.4,
            }
            parameters.append(self.parameter(self.type(kinds), "in"))
        if ways:
            for _ in range(self.random.randint(1, 2)):
                way = self.pick(["out", "inout", "inout"])
                t = self.type(
                    {"float": 4, "float2": 1, "float3": 2, "Pair": 0.5, "float[3]": 0.4, "Leaf": 0.2, "float2x2": 0.3}
                )
                parameters.append(self.parameter(t, way))
            self.random.shuffle(parameters)
        body = self.body(parameters, kind, self.random.randint(0, 3))
        attributes = ["[Differentiable]"]
        if self.chance(0.15):
            attributes.append(self.pick(["[ForceInline]", "[PreferRecompute]", "[PreferCheckpoint]"]))
        if not owner and not self.uses_own(body):
            place = self.weighted({"": 6, "import": 1, "include": 1})
        elif not owner and self.chance(0.1):
            place = "include"
        if form == "macro":
            place = ""
        return Function(name, tuple(parameters), kind, body, tuple(attributes), form, place, owner, fields)

    def uses_own(self, body: Node) -> bool:
        """Whether a body calls a function that is in the module's own text."""
        own = {f.name for f in self.helpers if f.place != "import"}
        return any(n.kind in ("call", "method") and n.data in own for n in nodes_of(body))

    def interface(self, name: str, kind: str) -> Function:
        """A generic function of an interface, one of whose methods a struct has."""
        self.plain = False
        owner = self.pick(["Pair", "Leaf", "Tree"])
        scope, taken = self.scope, self.taken
        self.scope, self.taken = [], set()
        result = self.pick(["float", "float", "float3"])
        method = self.function(f"{name}_method", result, False, "method")
        while method.owner != owner or any(p.way != "in" for p in method.parameters):
            self.scope, self.taken = [], set()
            method = self.function(f"{name}_method", result, False, "method")
        method = replace(method, place="interface", attributes=("[Differentiable]",))
        self.helpers.append(method)
        self.scope, self.taken = scope, taken
        parameters = [Parameter(self.key(), self.fresh(), owner)]
        for _ in range(self.random.randint(1, 2)):
            parameters.append(self.parameter(self.type({"float": 3, "float3": 2}), "in"))
        opaque = {parameters[0].key}
        body = self.body(parameters, kind, 1, opaque, method)
        return Function(name, tuple(parameters), kind, body, ("[Differentiable]",), "interface")

    def parameter(self, kind: str, way: str) -> Parameter:
        spelling = ""
        if kind in SPELLINGS and self.chance(0.06):
            spelling = SPELLINGS[kind]
        elif element(kind) and self.chance(0.3):
            spelling = "before"
        constant = way == "in" and kind != "int" and self.chance(0.07) and "no_diff" not in self.without
        return Parameter(self.key(), self.fresh(), kind, way, constant, spelling)

    # -- statements

    def body(
        self,
        parameters: Sequence[Parameter],
        result: str,
        size: int,
        opaque: frozenset[int] | set[int] = frozenset(),
        method: Function | None = None,
    ) -> Node:
        self.result = result
        lines: list[Node] = []
        for p in parameters:
            high = p_high(p) if p.type == "int" else 0
            v = Variable(p.key, p.name, p.type, p.type != "int" and not p.constant, high, p.key in opaque)
            if p.way == "out":
                lines.append(self.assigned(v, "=", 1))
            self.scope.append(v)
        if method is not None:
            whole = self.scope[-len(parameters)]
            node = Node("variable", whole.type, (), (whole.key, whole.name))
            parts = tuple(self.argument(p, 1) for p in method.parameters)
            made = Variable(self.key(), self.fresh(), method.result)
            called_method = Node("method", method.result, (node, *parts), method.name)
            lines.append(Node("declare", made.type, (called_method,), (made.key, made.name, made.type)))
            self.scope.append(made)
        lines += self.statements(size, 2)
        if result != "void":
            lines.append(self.returned(2 if not self.level else 1))
        return Node("block", "", tuple(lines))

    def returned(self, depth: int) -> Node:
        if self.result == "void":
            return Node("return")
        return Node("return", "", (self.assignable(self.result, depth),))

    def assignable(self, kind: str, depth: int) -> Node:
        """An expression where an implicit conversion, or braces, are possible."""
        shape = shape_of(kind)
        if shape and len(shape) == 1 and self.chance(0.05) and not self.plain:
            return Node("splat", kind, (self.expression("float", depth - 1),), "")
        if shape is None and not element(kind) and self.chance(0.5):
            return self.construction(kind, depth)
        return self.expression(kind, depth)

    def statements(self, count: int, depth: int) -> list[Node]:
        lines: list[Node] = []
        for _ in range(count):
            lines += self.statement(depth)
        return lines

    def block(self, count: int, depth: int, inner: Callable[[], list[Node]] | None = None) -> Node:
        scope, outside = list(self.scope), self.outside
        self.outside = {v.key for v in scope}
        lines = self.statements(count, depth) + (inner() if inner else [])
        self.scope, self.outside = scope, outside
        return Node("block", "", tuple(lines))

    def statement(self, depth: int) -> list[Node]:
        table = {"declare": 4.0, "assign": 4.0}
        if depth > 0:
            table |= {"if": 1.5, "for": 2.0, "switch": 0.35, "while": 0.5, "early": 0.5}
            if self.level < 1 and len(self.helpers) < 4:
                table |= {"run": 1.0, "sincos": 0.3}
            if not self.plain:
                table |= {"late": 0.3, "weighted": 0.4}
        if self.loops:
            table |= {"break": 0.35, "continue": 0.25}
        match self.weighted(table):
            case "declare":
                return [self.declared(self.type(), self.random.randint(1, 2))]
            case "if":
                return [self.branch(depth)]
            case "for":
                return self.loop(depth)
            case "while":
                return self.while_loop(depth)
            case "switch":
                return self.switched(depth)
            case "early":
                return [Node("if", "", (self.condition(1), Node("block", "", (self.returned(1),))))]
            case "break" | "continue" as kind:
                return [Node("if", "", (self.condition(1), Node("block", "", (Node(kind),))))]
            case "run":
                return self.run()
            case "sincos":
                return self.sincos()
            case "late":
                return self.late(depth)
            case "weighted":
                return self.weighted_mean(depth)
        return self.assignment()

    def declared(self, kind: str, depth: int, value: Node | None = None) -> Node:
        value = value or self.assignable(kind, depth)
        spelling = kind
        bare = value.kind == "construct" and shape_of(kind) is None
        if self.chance(0.3) and value.type == kind and not bare and not (value.kind == "splat" and not value.data):
            spelling = self.pick(["let", "var"])
        elif kind in SPELLINGS and self.chance(0.06) and not self.plain:
            spelling = SPELLINGS[kind]
        if value.kind == "literal" and spelling in ("let", "var"):
            spelling = kind
        hidden = [v for v in self.scope if v.type != "int"]
        name = ""
        if self.level == 0 and hidden and self.chance(0.02) and self.nested:
            hides = self.pick(hidden)
            # A block has one variable of a name.
            name = hides.name if hides.key in self.outside else ""
            if any(n.kind == "variable" and n.data[1] == name for n in nodes_of(value)):
                name = ""
        if name:
            self.scope = [v for v in self.scope if v.name != name]
        made = Variable(self.key(), name or self.fresh(), kind, spelling != "let")
        self.scope.append(made)
        return Node("declare", kind, (value,), (made.key, made.name, spelling))

    @property
    def nested(self) -> bool:
        return self.loops > 0

    def assigned(self, v: Variable, data: str, depth: int) -> Node:
        target = Node("variable", v.type, (), (v.key, v.name))
        return Node("assign", "", (target, self.assignable(v.type, depth)), data)

    def assignment(self) -> list[Node]:
        targets = [v for v in self.scope if v.writable and v.type != "int" and not v.opaque]
        for _ in range(5 if targets else 0):
            v = self.pick(targets)
            kinds = [v.type] if self.chance(0.4) else ["float", "float2", "float3", "Leaf", v.type]
            target = self.descend(v, self.pick(kinds), written=True)
            if target is None:
                continue
            kind = target.type
            shape = shape_of(kind)
            data = self.weighted({"=": 4, "+=": 2, "*=": 2, "-=": 1, "/=": 0.4}) if shape is not None else "="
            if shape and len(shape) == 2 and data == "/=":
                data = "*="
            if data == "=" or not shape or self.chance(0.5):
                value = self.expression(kind, 2) if data != "=" or self.chance(0.5) else self.assignable(kind, 2)
                if value.kind == "construct" and shape is None and target.kind != "variable":
                    value = self.read(kind) or value
            else:
                value = self.expression("float", 1)
                if len(shape) == 2 and data != "*=":
                    data = "*="
            if data == "/=":
                value = self.positive(value)
            return [Node("assign", "", (target, value), data)]
        return [self.declared(self.type({"float": 1, "float3": 1}), 2)]

    def branch(self, depth: int) -> Node:
        parts = [self.condition(1), self.block(self.random.randint(1, 2), depth - 1)]
        if self.chance(0.5):
            other = self.block(self.random.randint(1, 2), depth - 1)
            if self.chance(0.3):
                other = Node("block", "", (Node("if", "", (self.condition(1), other, self.block(1, depth - 1))),))
            parts.append(other)
        return Node("if", "", tuple(parts))

    def loop(self, depth: int) -> list[Node]:
        """A loop over integers: of constant bounds, or of those that an argument or a loop outside gives."""
        scope = list(self.scope)
        numbers = [v for v in self.scope if v.type == "int"]
        key, name = self.key(), self.fresh()
        way = self.weighted(
            {"constant": 4, "down": 0.7, "end": 2.0 if numbers else 0, "start": 0.5 if numbers else 0}
        )
        count = self.random.randint(1, 4)
        low, high = Node("literal", "int", (), 0), Node("literal", "int", (), count)
        order, step, most = "<", 1, count + self.random.randint(0, 2)
        largest = count - 1
        if way == "down":
            low, high, order, step = Node("literal", "int", (), count - 1), Node("literal", "int", (), 0), ">=", -1
        elif way == "end":
            v = self.pick(numbers)
            high, largest = Node("variable", "int", (), (v.key, v.name)), max(v.high - 1, 0)
            most = v.high + self.random.randint(1, 2)
        elif way == "start":
            v = self.pick(numbers)
            low, largest = Node("variable", "int", (), (v.key, v.name)), max(v.high, count - 1)
        elif self.chance(0.15):
            step = 2
        if self.chance(0.1) and order == "<" and way == "constant":
            order, high = "<=", Node("literal", "int", (), count - 1)
        attribute = "max"
        if way in ("constant", "down") and self.chance(0.25):
            attribute = "[ForceUnroll]"
        self.scope.append(Variable(key, name, "int", False, max(largest, 0)))
        self.loops += 1
        outside, self.outside = self.outside, {v.key for v in scope}
        lines = self.statements(self.random.randint(1, 2), depth - 1)
        carried = self.assignment()
        self.outside = outside
        self.loops -= 1
        self.scope = scope
        body = Node("block", "", (*lines, *carried))
        return [Node("for", "", (low, high, body), (key, name, order, step, most, attribute))]

    def while_loop(self, depth: int) -> list[Node]:
        key, name = self.key(), self.fresh()
        count = self.random.randint(1, 4)
        v = Node("variable", "int", (), (key, name))
        start = Node("declare", "int", (Node("literal", "int", (), 0),), (key, name, "int"))
        scope = list(self.scope)
        self.scope.append(Variable(key, name, "int", False, count))
        self.loops += 1
        outside, self.outside = self.outside, {v.key for v in self.scope}
        inner = self.statements(1, depth - 1) + self.assignment()
        self.outside = outside
        self.loops -= 1
        turn = Node("assign", "", (v, Node("literal", "int", (), 1)), "+=")
        jumps = any(n.kind == "continue" for line in inner for n in nodes_of(line))
        lines = [turn, *inner] if jumps or self.chance(0.3) else [*inner, turn]
        # A condition sees no variables of the body.
        self.scope = [*scope, Variable(key, name, "int", False, count)]
        test = Node("compare", "bool", (v, Node("literal", "int", (), count)), "<")
        if self.chance(0.2):
            test = Node("logic", "bool", (test, self.condition(0)), "&&")
        how = "do" if self.chance(0.15) else "while"
        data = (count + self.random.randint(0, 2), how)
        return [start, Node("while", "", (test, Node("block", "", tuple(lines))), data)]

    def switched(self, depth: int) -> list[Node]:
        numbers = [v for v in self.scope if v.type == "int"]
        if not numbers:
            return [self.branch(depth)]
        v = self.pick(numbers)
        loops, self.loops = self.loops, 0
        cases: list[int | None] = list(range(self.random.randint(1, 3)))
        if self.chance(0.7):
            cases.append(None)
        bodies = tuple(self.block(1, 0, (lambda: [self.returned(1)]) if self.chance(0.2) else None) for _ in cases)
        self.loops = loops
        return [Node("switch", "", (Node("variable", "int", (), (v.key, v.name)), *bodies), tuple(cases))]

    def run(self) -> list[Node]:
        """A call for what it writes."""
        known = [f for f in self.helpers if any(p.way != "in" for p in f.parameters) or f.form == "mutating"]
        f = (
            self.pick(known)
            if known and self.chance(0.5)
            else self.helper(self.pick(["void", "void", "float"]), True)
        )
        lines: list[Node] = []
        parts = []
        wanted = [*([(f.owner, "inout")] if f.owner else []), *((p.type, p.way) for p in f.parameters)]
        used: set[int] = set()
        for (kind, way), p in zip(wanted, [None] * bool(f.owner) + list(f.parameters), strict=True):
            if way == "in" and p is not None:
                parts.append(self.argument(p, 2))
                continue
            if f.owner and p is None and f.form != "mutating":
                whole = self.read(kind)
                if whole is not None:
                    parts.append(whole)
                    continue
            targets = [v for v in self.scope if v.writable and v.key not in used and v.type == kind and not v.opaque]
            if not targets or self.chance(0.3):
                lines.append(self.declared(kind, 1))
                if lines[-1].data[2] == "let":
                    lines[-1] = replace(lines[-1], data=(*lines[-1].data[:2], kind))
                targets = [self.scope[-1]]
            v = self.pick(targets)
            used.add(v.key)
            parts.append(Node("variable", kind, (), (v.key, v.name)))
        # An argument that is read beside one that is written makes the order of both matter.
        for n, part in enumerate(parts):
            written = part.kind == "variable" and part.data[0] in used
            if not written and any(x.kind == "variable" and x.data[0] in used for x in nodes_of(part)):
                made = self.declared(part.type, 1, part)
                lines.append(made)
                parts[n] = Node("variable", part.type, (), made.data[:2])
        node = Node("method" if f.owner else "call", f.result, tuple(parts), f.name)
        if f.result == "void":
            return [*lines, Node("run", "", (node,))]
        return [*lines, self.declared(f.result, 1, node)]

    def sincos(self) -> list[Node]:
        kind = "float3" if self.plain else self.pick(["float", "float", "float2", "float3"])
        lines = [self.declared(kind, 0) for _ in range(2)]
        lines = [replace(line, data=(*line.data[:2], kind)) for line in lines]
        targets = [Node("variable", kind, (), line.data[:2]) for line in lines]
        self.scope[-2:] = [replace(v, writable=True) for v in self.scope[-2:]]
        scope, self.scope = self.scope, self.scope[:-2]
        angle = self.expression(kind, 1)
        self.scope = scope
        if self.chance(0.6):
            lines = [replace(line, parts=()) for line in lines]
        return [*lines, Node("sincos", "", (angle, *targets))]

    def late(self, depth: int) -> list[Node]:
        """A variable that both sides of a branch give its first value."""
        kind = self.type({"float": 3, "float2": 1, "float3": 2, "Pair": 0.4})
        test = self.condition(1)
        sides = [self.expression(kind, 1) for _ in range(2)]
        v = Variable(self.key(), self.fresh(), kind)
        target = Node("variable", kind, (), (v.key, v.name))
        blocks = [Node("block", "", (Node("assign", "", (target, side), "="),)) for side in sides]
        self.scope.append(v)
        return [Node("declare", kind, (), (v.key, v.name, kind)), Node("if", "", (test, *blocks))]

    def weighted_mean(self, depth: int) -> list[Node]:
        """A sum of weights and a sum of vectors in one loop, and their quotient."""
        kind = self.pick(["float2", "float3", "float"])
        lines = [
            self.declared(k, 0, Node("literal", "float", (), "0.5") if k == "float" else None)
            for k in ("float", kind)
        ]
        lines = [replace(line, data=(*line.data[:2], line.type)) for line in lines]
        self.scope[-2:] = [replace(v, writable=True) for v in self.scope[-2:]]
        weight, total = (Node("variable", line.type, (), line.data[:2]) for line in lines)
        key, name, count = self.key(), self.fresh(), self.random.randint(2, 4)
        scope = list(self.scope)
        self.scope.append(Variable(key, name, "int", False, count - 1))
        one = self.positive(self.expression("float", 1))
        w = Variable(self.key(), self.fresh(), "float", False)
        inner = [Node("declare", "float", (one,), (w.key, w.name, self.pick(["float", "let"])))]
        self.scope.append(w)
        use = Node("variable", "float", (), (w.key, w.name))
        pair = [use, self.expression(kind, 1)]
        self.random.shuffle(pair)
        inner.append(Node("assign", "", (total, Node("arithmetic", kind, tuple(pair), "*")), "+="))
        inner.append(Node("assign", "", (weight, use), "+="))
        self.scope = scope
        bounds = (Node("literal", "int", (), 0), Node("literal", "int", (), count))
        lines.append(Node("for", "", (*bounds, Node("block", "", tuple(inner))), (key, name, "<", 1, count, "max")))
        value = Node("arithmetic", kind, (total, weight), "/")
        if self.chance(0.5):
            lines.append(Node("assign", "", (total, weight), "/="))
        else:
            lines.append(self.declared(kind, 1, value))
        return lines

    # -- the whole

    def program(self) -> Program:
        """The function of this seed."""
        result = self.type({
            "float": 4, "float2": 1.5, "float3": 2.5, "float4": 0.7, "float2x2": 0.3, "float3x3": 0.2, "Pair": 0.4,
            "Ray": 0.3, "Tree": 0.3, "Lens": 0.1, "Leaf": 0.2, "Row": 0.2, "float[3]": 0.3, "void": 0.7,
        })  # fmt: skip
        parameters = [self.parameter(self.type(), "in") for _ in range(self.random.randint(1, 3))]
        if self.chance(0.45):
            parameters.append(Parameter(self.key(), self.fresh(), "int"))
        ways = self.random.randint(1, 2) if result == "void" else (1 if self.chance(0.2) else 0)
        for _ in range(ways):
            parameters.append(self.parameter(self.type(), self.pick(["out", "inout"])))
        self.random.shuffle(parameters)
        if all(p.way == "out" or p.type == "int" or p.constant for p in parameters):
            parameters.append(Parameter(self.key(), self.fresh(), "float"))
        self.form = ""
        body = self.body(parameters, result, self.random.randint(0, 5))
        attributes = ["[Differentiable]"]
        if self.chance(0.08):
            attributes.append(self.pick(["[ForceInline]", "[PreferRecompute]", "[PreferCheckpoint]"]))
        form = "macro" if self.chance(0.04) else ""
        place = "include" if not form and self.chance(0.05) else ""
        main = Function(self.name, tuple(parameters), result, body, tuple(attributes), form, place)
        return Program(main, tuple(self.helpers))


def p_high(parameter: Parameter) -> int:
    """The largest value of an integer parameter."""
    return 3


def points(program: Program, seed: int, count: int = 3, tries: int = 24) -> list[Measurement]:
    """Measurements at random points, as many as are found."""
    rng = np.random.default_rng(seed)
    found: list[Measurement] = []
    for _ in range(tries):
        inputs: list[Any] = []
        for p in program.main.parameters:
            if p.way == "out":
                inputs.append(None)
            elif p.type == "int":
                inputs.append(int(rng.integers(0, p_high(p) + 1)))
            else:
                size = count_of(p.type)
                # Numbers of few bits: the same in floats of 32 bits.
                inputs.append(np.round(rng.uniform(0.3, 1.4, size) * rng.choice([1, 1, 1, -1], size) * 1024) / 1024)
        try:
            found.append(measure(program, inputs))
        except Rejection:
            continue
        if len(found) == count:
            break
    return found
