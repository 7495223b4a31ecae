"""Functions of Slang's core module with wrong derivatives, and the functions that are called in their place.

- The derivative of ``fmod(a, b)`` by `b` is 0 in Slang.
- ``clamp(x, a, b)`` is ``min(max(x, a), b)``; where `a` is over `b`, Slang's derivative is one of the other bound.

A text that declares a function of the name keeps its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction
from slangpy_rt.slang.places import arguments_of
from slangpy_rt.slang.statements import walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, prefixed, tokens

REMAINDER = prefixed(
    """
[ForwardDerivative({name}_forward)] [BackwardDerivative({name}_backward)]
T {name}<T : __BuiltinFloatingPointType>(T a, T b) {{ return fmod(a, b); }}
DifferentialPair<T> {name}_forward<T : __BuiltinFloatingPointType>(DifferentialPair<T> a, DifferentialPair<T> b)
{{
    T d = __slang_noop_cast<T>(a.d) - trunc(a.p / b.p) * __slang_noop_cast<T>(b.d);
    return DifferentialPair<T>(fmod(a.p, b.p), __slang_noop_cast<T.Differential>(d));
}}
void {name}_backward<T : __BuiltinFloatingPointType>(
    inout DifferentialPair<T> a, inout DifferentialPair<T> b, T.Differential d)
{{
    T slope = -trunc(a.p / b.p);
    a = DifferentialPair<T>(a.p, d);
    b = DifferentialPair<T>(b.p, __slang_noop_cast<T.Differential>(slope * __slang_noop_cast<T>(d)));
}}
[Differentiable] vector<T, N> {name}<T : __BuiltinFloatingPointType, let N : int>(vector<T, N> a, vector<T, N> b)
{{
    vector<T, N> r;
    [ForceUnroll] for (int i = 0; i < N; ++i) r[i] = {name}(a[i], b[i]);
    return r;
}}
[Differentiable] vector<T, N> {name}<T : __BuiltinFloatingPointType, let N : int>(vector<T, N> a, T b)
{{
    return {name}(a, vector<T, N>(b));
}}
""",
    "T N a b d r i slope",
)
LIMITS = prefixed(
    """
[Differentiable] T {name}<T : __BuiltinFloatingPointType>(T x, T a, T b) {{ return min(max(x, a), b); }}
[Differentiable] vector<T, N> {name}<T : __BuiltinFloatingPointType, let N : int>(
    vector<T, N> x, vector<T, N> a, vector<T, N> b) {{ return min(max(x, a), b); }}
[Differentiable] matrix<T, N, M> {name}<T : __BuiltinFloatingPointType, let N : int, let M : int>(
    matrix<T, N, M> x, matrix<T, N, M> a, matrix<T, N, M> b) {{ return min(max(x, a), b); }}
T {name}<T : __BuiltinIntegerType>(T x, T a, T b) {{ return clamp(x, a, b); }}
vector<T, N> {name}<T : __BuiltinIntegerType, let N : int>(vector<T, N> x, vector<T, N> a, vector<T, N> b)
{{
    return clamp(x, a, b);
}}
""",
    "T N M x a b",
)
_BEFORE_CALLS = ("return", "else", "no_diff", "case")


def core_function_edits(
    functions: Sequence[DifferentiableFunction], text: str, remainder: str, limits: str
) -> Iterator[Edit]:
    """Yield the edits by which functions call ours, `remainder` and `limits`, in place of ``fmod`` and ``clamp``."""
    for name, other in (("fmod", remainder), ("clamp", limits)):
        if name not in text or _declares(text, name):
            continue
        for function in functions:
            for statement in walk(function.body):
                for at, item in enumerate(statement.items):
                    if item.text != name or (at and statement.items[at - 1].text in (".", "::")):
                        continue
                    if name == "fmod" or not _constant_limits(statement.items, at):
                        yield Edit(item.start, other, len(name))


def _declares(text: str, name: str) -> bool:
    return any(
        item.text == name and before.kind == "word" and before.text not in _BEFORE_CALLS
        for before, item in pairwise(tokens(text))
    )


def _constant_limits(items: Sequence[Token], at: int) -> bool:
    """Whether both limits of ``clamp`` have no names of variables, as in ``clamp(x, 0, float3(1))``."""
    if at + 1 >= len(items) or items[at + 1].text != "(":
        return True
    try:
        given = arguments_of(items, at + 1)
    except UnbalancedBrackets:
        return True
    if len(given) != 3:
        return True
    rest = [*items[given[1][0] : given[1][1]], *items[given[2][0] : given[2][1]]]
    return not any(a.kind == "word" and b.text != "(" for a, b in pairwise([*rest, items[at + 1]][: len(rest) + 1]))
