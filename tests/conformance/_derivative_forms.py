"""Forms of differentiable functions whose derivatives Slang gets wrong by itself, each beside the same in NumPy.

Each form is a Slang text with a function `f`, its arguments, and a Python function of float64 arrays. The page
``docs/derivatives.md`` lists them (``python codegen/tools/derivative_forms.py``). Nothing here calls the library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
V = np.array([0.3, -0.7, 1.2])
K = np.array(0.7)
P = np.array([0.8, -0.6])
Q = np.array([0.4, 0.3])
D = "[Differentiable] "


@dataclass(frozen=True)
class Form:
    """A function of a family whose derivatives need care.

    Attributes
    ----------
    family : str
        The heading under which the page lists it.
    name : str
        Its name in tests.
    text : str
        The Slang text.
    arguments : tuple of array
        The point at which it is differentiated: scalars, and vectors of 2 or 3.
    same : callable
        The function in NumPy.
    refused : str
        The part of the error's message, for a form that is refused.
    """

    family: str
    name: str
    text: str
    arguments: tuple[Array, ...]
    same: Callable[..., Any]
    refused: str = ""


def slope(form: Form, seed: Array, step: float = 1e-6) -> list[Array]:
    """Return the gradients of a form's arguments for the gradient `seed` of its result, by central differences."""
    found = []
    for at, argument in enumerate(form.arguments):
        gradient = np.zeros(argument.shape)
        for index in np.ndindex(argument.shape):
            ends = []
            for sign in (1, -1):
                moved = [np.array(a) for a in form.arguments]
                moved[at][index] += sign * step
                ends.append(np.sum(np.asarray(form.same(*moved)) * seed))
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return found


def _mean(v: Array, k: Array, steps: int = 3) -> Array:
    w = np.array(1.0)
    for _ in range(steps):
        w = w * k + 0.1
    return w * v


def _nested(v: Array, k: Array) -> Array:
    w, r = np.array(1.0), np.zeros(3)
    for _ in range(2):
        u = w
        for _ in range(2):
            u = u * k
            r = r + u * v + w
        w = w * u
        r = r + u * v
    return np.asarray(r * w)


def _powers(x: Array, n: Array, stop: int = 3) -> Array:
    return np.asarray(np.sum([x * x * i for i in range(int(n), stop)]))


def _corner(v: Array, first: Any) -> Any:
    return np.sum(np.array([first, v[1], v[2]]) * v * v * 2 * v)


def _waves(x: Array, n: Array, rounds: int) -> Array:
    r = np.array(1.0)
    for _ in range(rounds):
        r = np.sin(r * x + n)
    return np.asarray(r)


def _written(v: Array, n: Array) -> Any:
    m = np.stack([v, 2 * v, v * v])
    m[1, 1] += 2 * v[0]
    return (m[0] + m[2][[2, 0, 1]]) @ m[1]


def _f4(p: Array, q: Array) -> Any:
    if p[1] < 0.5:
        q = p * p
        p = np.array([0.5, p[1]])
    return q[1] * p[1] * p[0]


def _swapped(p: Array, q: Array) -> Any:
    if p[1] < 0.5:
        q = p
        p = np.array([0.5 * q[1], p[1]])
    return p[0] * q[0] + p[1] * q[1]


def _both(v: Array, k: Array) -> Array:
    a, b = v, v * k
    a = np.array([k, a[1], a[2]])
    b = np.array([b[0], a[0], a[1]])
    a = a * b
    b = np.array([a[1], b[1], b[2]])
    return a * b


def _turned(p: Array, q: Array) -> Array:
    for i in range(2):
        q = p * q if i else q
        p = np.array([q[1] * 0.5, p[1]])
    return q * p


def _sines(a: Array) -> Any:
    return np.sin(a) ** 2 * a


def _vector_sines(v: Array) -> Array:
    return np.sin(v) ** 2 * v


def _sine(v: Array) -> Any:
    return np.sin(v[0]) + v[1]


def _sincos(v: Array, k: Array) -> Array:
    s, c = np.sin(k), np.cos(k)
    return (v * s + c) * s + c


_S = (
    "struct S : IDifferentiable { float3 v; float k; [Differentiable] float3 scaled(float3 w) { return k * w; } "
    "[Differentiable] [mutating] void grow(float c) { k = k * c; } }; "
)
_IO = "[Differentiable] void io(inout float x) { x = sin(x); } "
_LOOP = "float3 p = v; [MaxIters(3)] for (int i = 0; i < 2; ++i) p = "
_SCALED = lambda v, k: k * v  # noqa: E731

FORMS = [
    # A scalar of which the function's first operation makes a vector.
    *(
        Form("A scalar and a vector", name, D + f"float3 f(float3 v, float k) {{ {body} }}", (V, K), same)
        for name, body, same in [
            ("k * v", "return k * v;", _SCALED),
            ("(k) * v", "return (k) * v;", _SCALED),
            ("v + k", "return v + k;", lambda v, k: v + k),
            ("v - k, inferred", "let s = k; return v - s;", lambda v, k: v - k),
            ("k / v", "return k / v;", lambda v, k: k / v),
            ("v += k", "v += k; return v;", lambda v, k: v + k),
            ("r += k", "float3 r = v; r += k; return r;", lambda v, k: v + k),
            ("r *= k", "float3 r = v; r *= k; return r;", _SCALED),
            ("mul(k, v)", "return mul(k, v);", _SCALED),
            ("a copy", "float s = k; return s * v;", _SCALED),
            ("(k + 0) * v", "return (k + 0) * v;", _SCALED),
            ("a component", "float w = v.x; return w * v.yzx * k;", lambda v, k: v[0] * v[[1, 2, 0]] * k),
            ("a branch", "float w = k; if (v.x < 1) w = k * k; return w * v;", lambda v, k: k * k * v),
            ("an early return", "if (v.x > 1) return v; return k * v;", _SCALED),
            (
                "a loop's counter of the same name",
                "float3 r = 0; { for (int k = 0; k < 3; ++k) r[k] += k * v[k]; } return r * k;",
                lambda v, k: np.arange(3) * v * k,
            ),
            ("a switch", "switch (int(k * 3)) { case 2: return k + v; default: return k * v; }", lambda v, k: k + v),
        ]
    ),
    Form(
        "A scalar and a vector",
        "a generic function",
        "[Differentiable] vector<T, N> g<T : __BuiltinFloatingPointType, let N : int>(vector<T, N> v, T k) "
        "{ return k * v; } " + D + "float3 f(float3 v, float k) { return g(v, k); }",
        (V, K),
        _SCALED,
    ),
    Form(
        "A scalar and a vector",
        "aliases of types",
        "typealias F = float; typealias W = float3; " + D + "W f(W v, F k) { return k * v; }",
        (V, K),
        _SCALED,
    ),
    Form(
        "A scalar and a vector",
        "a method of an interface",
        "interface I { [Differentiable] float3 g(float3 v, float k); } "
        "struct A : I { [Differentiable] float3 g(float3 v, float k) { return k * v; } }; "
        "[Differentiable] float3 h<T : I>(T t, float3 v, float k) { return t.g(v, k); } "
        + D
        + "float3 f(float3 v, float k) { A a; return h(a, v, k); }",
        (V, K),
        _SCALED,
    ),
    Form(
        "A scalar and a vector",
        "a method and a field",
        _S + D + "float3 f(float3 v, float k) { S s = {v, k}; return s.scaled(v); }",
        (V, K),
        _SCALED,
    ),
    Form(
        "A scalar and a vector",
        "a function that a macro forms",
        "#define MAKE(name) \\\n    [Differentiable] float3 name(float3 v, float k) { return (k) * v; }\nMAKE(f)\n",
        (V, K),
        _SCALED,
    ),
    Form(
        "A scalar and a vector",
        "a product that a macro forms",
        "#define PRODUCT(a, b) (a) * (b)\n" + D + "float3 f(float3 v, float k) { return PRODUCT(k, v); }\n",
        (V, K),
        _SCALED,
    ),
    # A scalar that a loop computed, used with a vector.
    *(
        Form("A scalar of a loop and a vector", name, D + f"float3 f(float3 v, float k) {{ {body} }}", (V, K), same)
        for name, body, same in [
            (
                "for",
                "float w = 1; [MaxIters(3)] for (int i = 0; i < 3; ++i) w = w * k + 0.1; return w * v;",
                _mean,
            ),
            (
                "while",
                "float w = 1; int i = 0; [MaxIters(3)] while (i < 3) { w = w * k + 0.1; i++; } return w * v;",
                _mean,
            ),
            (
                "do",
                "float w = 1; int i = 0; [MaxIters(3)] do { w = w * k + 0.1; i++; } while (i < 3); return w * v;",
                _mean,
            ),
            (
                "break",
                "float w = 1; [MaxIters(4)] for (int i = 0; i < 4; ++i) { if (i == 3) break; w = w * k + 0.1; } "
                "return w * v;",
                _mean,
            ),
            (
                "continue",
                "float w = 1; [MaxIters(4)] for (int i = 0; i < 4; ++i) { if (i == 1) continue; w = w * k + 0.1; } "
                "return w * v;",
                _mean,
            ),
            (
                "nested loops",
                "float w = 1; float3 r = 0; [MaxIters(2)] for (int i = 0; i < 2; ++i) { float u = w; "
                "[MaxIters(2)] for (int j = 0; j < 2; ++j) { u = u * k; r += u * v + w; } w = w * u; r += u * v; } "
                "return r * w;",
                _nested,
            ),
            (
                "a weighted mean",
                "float3 n = 0; float d = 0; [MaxIters(2)] for (int i = 0; i < 2; ++i) { float w = k * (i + 1); "
                "n += v * v * w; d += w * v.x; } return n / d;",
                lambda v, k: v * v / v[0],
            ),
            (
                "a sum of components",
                "float r = 0; [MaxIters(3)] for (int i = 0; i < 3; ++i) r += v[i] * v[i]; return r * v * k;",
                lambda v, k: (v @ v) * v * k,
            ),
        ]
    ),
    *(
        Form(
            "A scalar of a loop and a vector",
            name,
            text + D + f"float3 f(float3 v, float k) {{ {body} }}",
            (V, K),
            same,
        )
        for name, text, body, same in [
            (
                "an inout argument",
                "[Differentiable] void io(float k, inout float w) { w = w * k + 0.1; } ",
                "float w = 1; [MaxIters(3)] for (int i = 0; i < 3; ++i) io(k, w); return w * v;",
                _mean,
            ),
            (
                "an argument that stays as it is",
                "[Differentiable] float io(float x, inout float w) { return x; } ",
                "float w = 2 * k; [MaxIters(3)] for (int i = 0; i < 3; ++i) k *= sin(k) * io(k, w); return w * v;",
                lambda v, k: 2 * k * v,
            ),
            (
                "sincos",
                "",
                "float s, c = k; [MaxIters(2)] for (int i = 0; i < 2; ++i) sincos(c, s, c); return s * v + c;",
                lambda v, k: np.sin(np.cos(k)) * v + np.cos(np.cos(k)),
            ),
        ]
    ),
    # A variable that a function wrote to, read in a loop.
    Form(
        "An `out` or `inout` argument before a loop",
        "inout",
        _IO + D + "float f(float a) { float x = a; io(x); float p = a; "
        "[MaxIters(2)] for (int i = 0; i < 2; ++i) p = x * p; return p; }",
        (np.array(0.5),),
        _sines,
    ),
    Form(
        "An `out` or `inout` argument before a loop",
        "inout, a vector",
        "[Differentiable] void io(inout float3 x) { x = sin(x); } "
        + D
        + "float3 f(float3 v) { float3 x = v; io(x); "
        + _LOOP
        + "x * p; return p; }",
        (V,),
        _vector_sines,
    ),
    Form(
        "An `out` or `inout` argument before a loop",
        "out",
        "[Differentiable] void io(float x, out float y) { y = sin(x); } "
        + D
        + "float f(float a) { float x; io(a, x); "
        "float p = a; [MaxIters(2)] for (int i = 0; i < 2; ++i) p = x * p; return p; }",
        (np.array(0.5),),
        _sines,
    ),
    *(
        Form(
            "An `out` or `inout` argument before a loop",
            name,
            text + D + f"float f(float3 v, float k) {{ float x = k; {call} float p = k; "
            "[MaxIters(2)] for (int i = 0; i < 2; ++i) p = x * p; return p; }",
            (V, K),
            lambda v, k: (v[0] * np.sin(k)) ** 2 * k,
        )
        for name, text, call in [
            (
                "inout, after generic arguments",
                "[Differentiable] void io(vector<float, 3> a, inout float x) { x = a.x * sin(x); } ",
                "io(vector<float, 3>(v.x, 1, 1), x);",
            ),
            (
                "inout, after comparisons",
                "[Differentiable] void io(bool a, bool b, float y, inout float x) { if (a && b) x = y * sin(x); } ",
                "io(x < 2, x > (0.1), v.x, x);",
            ),
        ]
    ),
    Form(
        "An `out` or `inout` argument before a loop",
        "sincos",
        D + "float3 f(float3 v, float k) { float s, c; sincos(k, s, c); " + _LOOP + "p * s + c; return p; }",
        (V, K),
        _sincos,
    ),
    Form(
        "An `out` or `inout` argument before a loop",
        "a mutating method",
        _S + D + "float3 f(float3 v, float k) { S s = {v, k}; s.grow(k); " + _LOOP + "s.k * p; return p; }",
        (V, K),
        lambda v, k: k**4 * v,
    ),
    # Two variables of one type that change in a branch, one of them by a component.
    *(
        Form("A component in a branch", name, text + D + f"{result} f(float2 p, float2 q) {{ {body} }}", (P, Q), same)
        for name, text, result, body, same in [
            (
                "a vector",
                "",
                "float",
                "if (p.y < 0.5) { q = p * p; p.x = 0.5; } return q.y * p.y * p.x;",
                _f4,
            ),
            (
                "a vector, else",
                "",
                "float",
                "if (p.y > 0.5) p.y = q.x; else { q = p * p; p.x = 0.5; } return q.y * p.y * p.x;",
                _f4,
            ),
            (
                "a struct",
                "struct T : IDifferentiable { float a; float b; }; ",
                "float",
                "T s = {p.x, p.y}, t = {q.x, q.y}; if (p.y < 0.5) { t = s; s.a = 0.5 * t.b; } "
                "return s.a * t.a + s.b * t.b;",
                _swapped,
            ),
            (
                "an array",
                "",
                "float",
                "float a[2] = {p.x, p.y}; float b[2] = {q.x, q.y}; if (p.y < 0.5) { b = a; a[0] = 0.5 * b[1]; } "
                "return a[0] * b[0] + a[1] * b[1];",
                _swapped,
            ),
            (
                "a loop",
                "",
                "float2",
                "[MaxIters(2)] for (int i = 0; i < 2; ++i) { if (i == 1) q = p * q; p.x = q.y * 0.5; } return q * p;",
                _turned,
            ),
            (
                "an early return",
                "",
                "float2",
                "if (p.y < 0.5) { p.x = q.x * 3; return p; } return q * p;",
                lambda p, q: np.array([q[0] * 3, p[1]]),
            ),
        ]
    ),
    *(
        Form("A component in a branch", name, text + D + f"float f(float2 p, float2 q) {{ {body} }}", (P, Q), same)
        for name, text, body, same in [
            (
                "a variable that branches give its value",
                "",
                "float2 g; if (q.x < 3) g = p; else g = p.y * p; if (g.x * g.y > 3) return q.y * g.y; "
                "g.x = q.x * p.y; return g.x * g.y * p.x;",
                lambda p, q: q[0] * p[1] * p[1] * p[0],
            ),
            (
                "an inout argument",
                "[Differentiable] void io(inout float x) { x = 0.5; } ",
                "if (p.y < 0.5) { q = p * p; io(p.x); } return q.y * p.y * p.x;",
                _f4,
            ),
            (
                "an out argument of a declaration",
                "[Differentiable] float io(out float x) { x = 0.5; return 2; } ",
                "if (p.y < 0.5) { q = p * p; float y = io(p.x); q *= y; } return q.y * p.y * p.x / 2;",
                _f4,
            ),
            (
                "an out argument in a condition",
                "[Differentiable] float io(out float x) { x = 0.5; return 2; } ",
                "if (p.y < 0.5) { q = p * p; if (io(p.x) > 1) q *= p.x; } return q.y * p.y * p.x * 2;",
                _f4,
            ),
            (
                "an inout argument of a result",
                "[Differentiable] float io(inout float x) { x = 0.5; return 2; } ",
                "if (p.y < 0.5) { q = p * p; return io(p.x) * q.y * p.y * p.x; } return q.y * p.y * p.x;",
                lambda p, q: 2 * _f4(p, q),
            ),
            (
                "sincos",
                "",
                "if (p.y < 0.5) { q = p * p; sincos(q.x, p.x, p.y); } return q.y * p.y * p.x;",
                lambda p, q: p[1] ** 2 * np.cos(p[0] ** 2) * np.sin(p[0] ** 2),
            ),
            (
                "an object in a struct",
                "struct S : IDifferentiable { float a; [Differentiable] [mutating] void set() { a = 0.5; } }; "
                "struct T : IDifferentiable { S x; S y; }; ",
                "T s = {{p.x}, {p.y}}, t = {{q.x}, {q.y}}; if (p.y < 0.5) { t.x.a = p.x * p.x; t.y.a = p.y * p.y; "
                "s.x.set(); } return t.y.a * s.y.a * s.x.a;",
                _f4,
            ),
        ]
    ),
    Form(
        "A component in a branch",
        "two vectors in turn",
        D + "float3 f(float3 v, float k) { float3 a = v, b = v * k; if (k > 0) { a.x = k; b.yz = a.xy; a = a * b; "
        "b.x = a.y; } return a * b; }",
        (V, K),
        _both,
    ),
    # Elements of one variable that are read in one block.
    *(
        Form(
            "Elements by an index that is no literal",
            name,
            D + f"float f(float3 v, float n) {{ int j = int(n); {body} }}",
            (V, np.array(0.5)),
            same,
        )
        for name, body, same in [
            ("a vector", "return v[0] * v[j];", lambda v, n: v[0] ** 2),
            ("a vector, three times", "return v[j] * v[j] + v[j + 1] * v[0];", lambda v, n: v[0] ** 2 + v[0] * v[1]),
            ("statements", "float r = v[j]; r *= 2; return r * v[0];", lambda v, n: 2 * v[0] ** 2),
            (
                "an array",
                "float e[3] = {v.x, v.y, v.z}; int l = 2 * j; return e[l] * e[j] + e[l];",
                lambda v, n: v[0] ** 2 + v[0],
            ),
            ("a component that changes", "v.x *= v[j]; return v.x * v.y;", lambda v, n: v[0] ** 2 * v[1]),
            ("an element that changes", "v[j] *= v[0]; return v.x * v.y;", lambda v, n: v[0] ** 2 * v[1]),
            (
                "a loop",
                "float s = 0; [MaxIters(3)] for (int i = 0; i < 3; ++i) s += v[i] * v[2 - i]; return s;",
                lambda v, n: v @ v[::-1],
            ),
            (
                "a matrix",
                "float2x2 m = float2x2(v.x, v.y, v.z, v.x); return m[j].x * m[0].y;",
                lambda v, n: v[0] * v[1],
            ),
        ]
    ),
    Form(
        "Elements by an index that is no literal",
        "an array in a struct",
        "struct A : IDifferentiable { float e[3]; }; "
        + D
        + "float f(float3 v, float n) { int j = int(n); A a; a.e[0] = v.x; a.e[1] = v.y; a.e[2] = v.z; "
        "return a.e[j] * a.e[0]; }",
        (V, np.array(0.5)),
        lambda v, n: v[0] ** 2,
    ),
    *(
        Form(
            "Elements that are written",
            name,
            text
            + D
            + f"float f(float3 v, float n) {{ int j = int(n); float3x3 m = float3x3(v, 2 * v, v * v); {body} "
            "return dot(m[0] + m[2].zxy, m[1]); }",
            (V, np.array(1.5)),
            same,
        )
        for name, text, body, same in [
            ("two indices", "", "m[j % 3][j % 3] += 2 * v.x;", _written),
            ("two variables", "", "let k = j % 3; m[k][j - 3 * (j / 3)] = m[k][1] + 2 * v.x;", _written),
            (
                "an inout argument",
                "[Differentiable] void io(inout float x, float y) { x += y; } ",
                "io(m[j % 3][j % 3], 2 * v.x);",
                _written,
            ),
            (
                "three indices",
                "struct S : IDifferentiable { float3x3 m[2]; }; ",
                "S s; s.m[0] = s.m[1] = m; [MaxIters(2)] for (int i = 0; i < 2; ++i) "
                "if (i > 0) s.m[i % 2][j % 2][(i + j + 1) % 2] += 2 * v.x; m = s.m[1];",
                _written,
            ),
        ]
    ),
    Form(
        "A component in a branch",
        "a row of a matrix",
        D + "float f(float3 v, float k) { int j = int(k); float2x2 n = float2x2(v.x, v.y, v.z, v.x); n[j].x *= k; "
        "return n[0][1] + n[0].x * k; }",
        (V, K),
        lambda v, k: v[1] + v[0] * k * k,
    ),
    Form(
        "Loops",
        "break in while",
        D + "float f(float2 p, float2 q) { int t = 0; float x = p.x; [MaxIters(4)] while (t < 3) { x = x * q.x; ++t; "
        "if (t == 2) break; } return x; }",
        (P, Q),
        lambda p, q: p[0] * q[0] ** 2,
    ),
    Form(
        "Loops",
        "while in for, with as many rounds as MaxIters allows",
        D + "float f(float2 p, float2 q) { float e = p.x; [MaxIters(4)] for (int r = 0; r < 4; ++r) { int l = 0; "
        "[MaxIters(1)] while (l < 1) { e -= q.x; l = 1; } } return e; }",
        (P, Q),
        lambda p, q: p[0] - 4 * q[0],
    ),
    Form(
        "Loops",
        "two conditions in a branch",
        D + "float f(float2 p, float2 q) { float x = p.x; int s = 0; if (p.y > 0) x = 1; "
        "else [MaxIters(3)] while (s < 3 && s < 2) { x *= q.y; s++; } return x; }",
        (P, Q),
        lambda p, q: p[0] * q[1] ** 2,
    ),
    Form(
        "Loops",
        "a condition that counts",
        D + "float f(float2 p, float2 q) { float x = p.x; int n = 2; [MaxIters(3)] while (n-- > 0) x *= q.y; "
        "return x; }",
        (P, Q),
        lambda p, q: p[0] * q[1] ** 2,
    ),
    Form(
        "Elements by an index that is no literal",
        "a field that changes",
        "struct R : IDifferentiable { float3 origin; }; "
        "[Differentiable] float g(R r, int j) { r.origin.x *= r.origin[j]; return r.origin.x + r.origin[1]; } "
        + D
        + "float f(float3 v, float n) { R r = {v}; return g(r, int(n)); }",
        (V, np.array(0.5)),
        lambda v, n: v[0] ** 2 + v[1],
    ),
    Form(
        "Functions",
        "fmod",
        D + "float f(float2 p, float2 q) { return fmod(p.x, q.x) * q.y; }",
        (np.array([2.3, 0]), P),
        lambda p, q: np.fmod(p[0], q[0]) * q[1],
    ),
    Form(
        "Functions",
        "fmod of vectors",
        D + "float2 f(float2 p, float2 q) { return fmod(p, q) + fmod(p, 0.7f); }",
        (np.array([2.3, -1.9]), Q),
        lambda p, q: np.fmod(p, q) + np.fmod(p, 0.7),
    ),
    *(
        Form("`return` in a loop", name, D + f"float f(float3 v, float k) {{ {body} }}", (V, K), same)
        for name, body, same in [
            (
                "while",
                "int t = 0; [MaxIters(2)] while (t < 1) { if (v.x > 0.2) return 0.5 * k; t = 1; } return 0.5;",
                lambda v, k: 0.5 * k,
            ),
            (
                "for",
                "[MaxIters(2)] for (int i = 0; i < 2; ++i) { if (v.x > 0.2) return 0.5 * k; } return 0.5;",
                lambda v, k: 0.5 * k,
            ),
        ]
    ),
    Form(
        "Functions",
        "a `no_diff` parameter in a vector",
        D + "float2 f(float2 p, float2 q) { return g(p.x, p.y) * q; } "
        "[Differentiable] float2 g(no_diff float u, float x) { return float2(u, x); }",
        (P, Q),
        lambda p, q: np.array([0.8, p[1]]) * q,
    ),
    # Operands without derivatives in a vector that is made of them.
    *(
        Form("A vector that is built from constants", name, text, (V, K), same)
        for name, text, same in [
            (
                "a `no_diff` vector",
                "[Differentiable] float g(no_diff float2 q, float3 v) { v += float3(q, v.z); "
                "return v.x * v.y * v.z; } " + D + "float f(float3 v, float k) { return k * g(float2(1, 2), v); }",
                lambda v, k: k * (v[0] + 1) * (v[1] + 2) * 2 * v[2],
            ),
            (
                "a `no_diff` vector that cannot be assigned",
                "[Differentiable] float3 g(const no_diff float2 q, float3 v) { let w = q; "
                "return float3(w, v.z) * v; } "
                + D
                + "float3 f(float3 v, float k) { return k * g(float2(1, 2), v); }",
                lambda v, k: k * np.array([v[0], 2 * v[1], v[2] ** 2]),
            ),
            (
                "a row of a matrix",
                "[Differentiable] float3 g(no_diff float3 q, float3 v) { float2x3 m; m[0] = q; m[1] = v; "
                "return m[0] * m[1] + float2x3(q, v)[1]; } "
                + D
                + "float3 f(float3 v, float k) { return k * g(float3(1, 2, 3), v); }",
                lambda v, k: k * (np.array([1, 2, 3]) + 1) * v,
            ),
            (
                "a vector of an integer",
                "[Differentiable] float3 g(int n, float3 v) { float3 w = {float2(n), v.z}; "
                "return float3((float2)n, v.z) * v + vector<float, 3>(vector<float, 2>(n + 1), v.z) * w; } "
                + D
                + "float3 f(float3 v, float k) { return k * g(2, v); }",
                lambda v, k: k * (np.array([2, 2, v[2]]) * v + np.array([6, 6, v[2] ** 2])),
            ),
            (
                "a field that has no derivative",
                "struct S { float2 a; float b; }; [Differentiable] float3 g(no_diff float2 q, no_diff float u, "
                "float3 v) { S s; s.a = q; s.b = u; return float3(s.a, v.z) * v * s.b; } "
                + D
                + "float3 f(float3 v, float k) { return k * g(float2(1, 2), 3, v); }",
                lambda v, k: 3 * k * np.array([v[0], 2 * v[1], v[2] ** 2]),
            ),
        ]
    ),
    Form(
        "Functions",
        "a backward derivative alone",
        "void gb(inout DifferentialPair<float> p, float d) { p = diffPair(p.p, 3 * d); } "
        "[BackwardDerivative(gb)] float g(float x) { return 3 * x; } " + D + "float f(float k) { return g(k) * k; }",
        (K,),
        lambda k: 3 * k * k,
        "f calls 'g', which has a backward derivative alone",
    ),
    # Elements of one value that is reached in other ways.
    *(
        Form(
            "Elements by an index that is no literal",
            name,
            text + D + f"float f(float3 v, float n) {{ int j = int(n); {body} }}",
            (V, np.array(0.5)),
            same,
        )
        for name, text, body, same in [
            ("an argument", "", "float s = v[0], c; sincos(v[j], s, c); return s + v.y;", lambda v, n: _sine(v)),
            (
                "an argument before an inout one",
                "[Differentiable] void g(float x, inout float l) { l = l * x; } ",
                "float l = v[0]; g(v[j], l); return l;",
                lambda v, n: v[0] ** 2,
            ),
            ("an inferred copy", "", "let w = v; return w[0] * v[j];", lambda v, n: v[0] ** 2),
            ("a copy", "", "float3 w; w = (float3)v; return w[0] * v[j];", lambda v, n: v[0] ** 2),
            ("copies in an array", "", "float3 w[2] = {v, v}; return w[1][0] * v[j];", lambda v, n: v[0] ** 2),
            (
                "an array of vectors",
                "",
                "float3 k[2] = {v, 2 * v}; return k[1][0] * k[1][j];",
                lambda v, n: 4 * v[0] ** 2,
            ),
            ("a swizzle", "", "return v.zyx[2] * v.zyx[2 - j];", lambda v, n: v[0] ** 2),
            ("a call", "", "return sin(v)[0] * sin(v)[j];", lambda v, n: np.sin(v[0]) ** 2),
            (
                "an array by the name of its type",
                "typealias Three = float[3]; [Differentiable] float g(Three a, int j) { return a[0] * a[j]; } ",
                "float e[3] = {v.x, v.y, v.z}; return g(e, j);",
                lambda v, n: v[0] ** 2,
            ),
            (
                "a field of a method's object",
                "struct R : IDifferentiable { float3 o; }; extension R { [Differentiable] float g(int j) "
                "{ return o[0] * this.o[j]; } } ",
                "R r = {v}; return r.g(j);",
                lambda v, n: v[0] ** 2,
            ),
            ("a macro", "#define AT(v, i) v[i]\n", "return AT(v, 0) * AT(v, j);", lambda v, n: v[0] ** 2),
            (
                "an element that a loop does not change",
                "",
                "float s = 1; [MaxIters(4)] for (int i = 0; i < 3; ++i) { int k = j; if (i > 0) s *= v[k]; } "
                "return s * v[0];",
                lambda v, n: v[0] ** 3,
            ),
            (
                "a loop that is unrolled",
                "",
                "float s = 1; [ForceUnroll] for (int i = 0; i < 3; ++i) s *= v[(i + j) % 2]; return s;",
                lambda v, n: v[0] ** 2 * v[1],
            ),
            (
                "a component of a matrix",
                "",
                "float2x2 m = float2x2(v.x, v.y, v.z, v.x); return m._m00 * m[j][0];",
                lambda v, n: v[0] ** 2,
            ),
        ]
    ),
    # What macros form.
    *(
        Form("Macros", name, text + D + f"float3 f(float3 v, float k) {{ {body} }}", (V, K), _mean)
        for name, text, body in [
            (
                "a loop and its result",
                "#define MEAN float w = 1; [MaxIters(3)] for (int i = 0; i < 3; ++i) w = w * k + 0.1;\n",
                "MEAN return w * v;",
            ),
            (
                "an assignment in a loop",
                "#define STEP(x) x = x * k + 0.1\n",
                "float w = 1; [MaxIters(3)] for (int i = 0; i < 3; ++i) { STEP(w); } return w * v;",
            ),
            (
                "the head of a loop",
                "#define TIMES(n) [MaxIters(n)] for (int i = 0; i < n; ++i)\n",
                "float w = 1; TIMES(3) w = w * k + 0.1; return w * v;",
            ),
        ]
    ),
    Form(
        "Macros",
        "the attribute",
        "#define GRADIENTS [Differentiable]\nGRADIENTS float3 f(float3 v, float k) { return k * v; }",
        (V, K),
        _SCALED,
    ),
    Form(
        "Macros",
        "a function with an inout parameter",
        "#define MAKE(NAME) \\\n    [Differentiable] void NAME(inout float x) { x = sin(x); }\nMAKE(io)\n"
        + D
        + "float f(float a) { float x = a; io(x); float p = a; [MaxIters(2)] for (int i = 0; i < 2; ++i) p = x * p; "
        "return p; }",
        (np.array(0.5),),
        _sines,
    ),
    Form(
        "A scalar and a vector",
        "parameters that are constant",
        D + "float3 f(const float3 v, const float k) { return k * v; }",
        (V, K),
        _SCALED,
    ),
    Form(
        "A scalar and a vector",
        "func",
        D + "func g(v : float3, k : float) -> float3 { return k * v; } "
        "[Differentiable] float3 f(float3 v, float k) { return g(v, k); }",
        (V, K),
        _SCALED,
    ),
    *(
        Form(
            "A `no_diff` parameter that is assigned",
            name,
            f"[Differentiable] float g(no_diff float j, float k) {{ {body} return j * k; }} "
            + D
            + "float f(float k) { return g(0.5, k); }",
            (K,),
            same,
        )
        for name, body, same in [
            ("a branch", "if (k > 0) j = k;", lambda k: k * k),
            ("a loop", "[MaxIters(3)] for (int i = 0; i < 2; ++i) j *= k;", lambda k: 0.5 * k**3),
        ]
    ),
    Form(
        "Functions",
        "clamp with limits in the wrong order",
        D + "float2 f(float2 p, float2 q) { return clamp(p, q + 2, q.y + 1) + clamp(p.x, 0, q.x + 2); }",
        (P, Q),
        lambda p, q: np.minimum(np.maximum(p, q + 2), q[1] + 1) + p[0],
    ),
    # Functions whose result is a constant for derivatives.
    *(
        Form("[TreatAsDifferentiable]", name, text + D + f"float f(float k) {{ {body} }}", (K,), same)
        for name, text, body, same in [
            (
                "a function",
                "[TreatAsDifferentiable] float g(float x) { return x * x; } ",
                "return g(k) * k;",
                lambda k: 0.49 * k,
            ),
            (
                "a method",
                "struct C { float a; [TreatAsDifferentiable] float g(float x) { return x * x * a; } }; ",
                "C c; c.a = 2; return c.g(k) * k;",
                lambda k: 0.98 * k,
            ),
        ]
    ),
    Form(
        "[TreatAsDifferentiable]",
        "an out parameter",
        "[TreatAsDifferentiable] void g(float x, out float y) { y = x * x; } "
        + D
        + "float f(float k) { float y; g(k, y); return y * k; }",
        (K,),
        lambda k: 0.49 * k,
        "f calls 'g'",
    ),
    # Structs without derivatives.
    *(
        Form("Structs that are not `IDifferentiable`", name, text, (V, K), lambda v, k: k * v, "builds a 'P' from")
        for name, text in [
            (
                "a list of values",
                "struct P { float a; float3 b; }; "
                + D
                + "float3 g(P p) { return p.a * p.b; } "
                + D
                + "float3 f(float3 v, float k) { P p = {k, v}; return g(p); }",
            ),
            (
                "a constructor",
                "struct P { float a; float3 b; __init(float x, float3 y) { a = x; b = y; } }; "
                + D
                + "float3 f(float3 v, float k) { return P(k, v).a * v; }",
            ),
            (
                "a result",
                "struct P { float a; float3 b; }; "
                + D
                + "P g(float k, float3 v) { return {k, v}; } "
                + D
                + "float3 f(float3 v, float k) { return g(k, v).a * v; }",
            ),
        ]
    ),
    # Loops on which the compiler crashes.
    *(
        Form(
            "Loops",
            name,
            D + f"float f(float x, float n) {{ float r = 0; {body} return r; }}",
            (K, np.array(0.5)),
            same,
        )
        for name, body, same in [
            (
                "a start that is known at run time",
                "[MaxIters(4)] for (int i = int(n); i < 3; ++i) r += x * x * i;",
                _powers,
            ),
            (
                "a start outside of the loop",
                "int i = int(n); [MaxIters(4)] for (; i < 3; ++i) r += x * x * i;",
                _powers,
            ),
            (
                "a count down",
                "[MaxIters(4)] for (int i = int(n) + 2; i > 0; --i) r += x * x * i;",
                _powers,
            ),
            (
                "a start from the outer loop",
                "[MaxIters(3)] for (int i = 0; i < 3; ++i) [MaxIters(3)] for (int j = i; j < 3; ++j) r += x * x * j;",
                lambda x, n: sum(x * x * j for i in range(3) for j in range(i, 3)),
            ),
            (
                "while in while",
                "int i = 0; [MaxIters(2)] while (i < 2) { i++; int j = 0; [MaxIters(2)] while (j < 2) "
                "{ j++; r += x * x * j; } }",
                lambda x, n: 6 * x * x,
            ),
            (
                "for in while",
                "int i = 0; [MaxIters(2)] while (i < 2) { [MaxIters(2)] for (int j = 0; j < 2; ++j) "
                "r += x * x * (i + j); i++; }",
                lambda x, n: 4 * x * x,
            ),
            (
                "a condition of two characters",
                "int i = 2; float y = x; [MaxIters(4)] while (i >= 0) { y = y * x; --i; if (i == 0) break; } r = y;",
                lambda x, n: x**3,
            ),
            (
                "continue in while",
                "int i = 0; [MaxIters(3)] while (i < 3) { i++; if (i == 2) continue; r += x * x * i; }",
                lambda x, n: 4 * x * x,
            ),
        ]
    ),
    Form(
        "Loops",
        "a switch by the counter of an unrolled loop",
        D + "float f(float2 p, float2 q) { float x = p.x; [ForceUnroll] for (int i = 0; i < 3; ++i) { switch (i) "
        "{ case 0: x *= q.x; break; case 1: return sin(x); } x += x * q.y; } return x; }",
        (P, Q),
        lambda p, q: np.sin(p[0] * q[0] * (1 + q[1])),
    ),
    Form(
        "Loops",
        "return and continue in an unrolled loop",
        D + "float f(float2 p, float2 q) { float x = p.x; [ForceUnroll] for (int i = 0; i < 4; ++i) "
        "{ if (i > 1) return x; if (i % 2 >= 3) continue; x *= q.x; } return sin(x); }",
        (P, Q),
        lambda p, q: p[0] * q[0] ** 2,
    ),
    Form(
        "Loops",
        "an array of structs",
        "struct T : IDifferentiable { float a; float b; }; "
        + D
        + "float f(float2 p, float2 q) { T a[2]; a[0].a = p.x; a[0].b = p.y; a[1].a = q.x; a[1].b = q.y; "
        "float r = 0; [MaxIters(2)] for (int i = 0; i < 2; ++i) r += a[i].a * a[i].b; return r; }",
        (P, Q),
        lambda p, q: p[0] * p[1] + q[0] * q[1],
    ),
    Form(
        "Accessors",
        "a property",
        "struct T : IDifferentiable { float a; property float twice { [Differentiable] get { return 2 * a; } } }; "
        + D
        + "float f(float k) { T t; t.a = k; return t.twice * k; }",
        (K,),
        lambda k: 2 * k * k,
        "the property 'twice'",
    ),
    Form(
        "Accessors",
        "a subscript",
        "struct T : IDifferentiable { float a; "
        "__subscript(int i) -> float { [Differentiable] get { return 2 * a; } } }; "
        + D
        + "float f(float k) { T t; t.a = k; return t[1] * k; }",
        (K,),
        lambda k: 2 * k * k,
    ),
    # An inout parameter that gets a value without a derivative.
    *(
        Form(
            "An `inout` parameter and a constant",
            name,
            f"{text} " + D + f"float2 f(float2 p, float2 q) {{ {body} }}",
            (P, Q),
            same,
        )
        for name, text, body, same in [
            (
                "a constant is assigned",
                "[Differentiable] void g(inout float x) { x = 2; }",
                "g(p.x); return p * q;",
                lambda p, q: np.array([2, p[1]]) * q,
            ),
            (
                "a detached value is assigned",
                "[Differentiable] void g(inout float2 x, no_diff float2 y) { float2 w = y; x = w + w; }",
                "g(p, float2(1, 2)); return p * q;",
                lambda p, q: np.array([2, 4]) * q,
            ),
            (
                "what is computed is constant",
                "[Differentiable] void g(inout float x, float y) { x = floor(y); }",
                "g(p.x, q.y); return p + q;",
                lambda p, q: np.array([0, p[1]]) + q,
            ),
            (
                "a constant, and an early return",
                "[Differentiable] void g(inout float x, float y) { x = 0.5; if (y > 0) return; x = y; }",
                "g(p.x, q.y); return p * q;",
                lambda p, q: np.array([0.5, p[1]]) * q,
            ),
            (
                "a constant that is returned",
                "[Differentiable] float g(inout float x) { return x = 2; }",
                "float r = g(p.x); return r * p * q;",
                lambda p, q: 2 * np.array([2, p[1]]) * q,
            ),
            (
                "an object that is assigned",
                "struct S : IDifferentiable { float a; float b; "
                "[Differentiable] [mutating] void g(no_diff S s) { this = s; } };",
                "S s = {p.x, q.x}, t = {1, 2}; s.g(t); return s.b * p;",
                lambda p, q: 2 * p,
            ),
            (
                "a constant is passed",
                "[Differentiable] void g(inout float x, float y) { x *= y; }",
                "float r = 0.7; g(r, p.y); return r * q;",
                lambda p, q: 0.7 * p[1] * q,
            ),
            (
                "a component of a constant is passed",
                "[Differentiable] void g(inout float x, float y) { x *= y; }",
                "float2 r = {0.5, 0.7}; g(r.y, p.y); return r * q;",
                lambda p, q: np.array([0.5, 0.7 * p[1]]) * q,
            ),
            (
                "a constant is passed in an expression",
                "[Differentiable] float g(inout float x, float y) { x *= y; return x; }",
                "float r = 2; if (p.x > 3) r = 1; else if (g(r, q.x) > 0.5) r *= 2; return r * q;",
                lambda p, q: 4 * q[0] * q,
            ),
            (
                "a constant is passed in a loop",
                "[Differentiable] void g(inout float x, float y) { x *= y; }",
                "float r = 2; [MaxIters(3)] for (int i = 0; i < 3; ++i) { r = 0.5; g(r, p.y); } return r * q;",
                lambda p, q: 0.5 * p[1] * q,
            ),
        ]
    ),
    # Loops inside one another with different numbers of rounds.
    *(
        Form(
            "Loops inside one another",
            name,
            text + D + f"float f(float x, float n) {{ float r = 1; {body} return r; }}",
            (K, np.array(0.5)),
            same,
        )
        for name, text, body, same in [
            (
                "more rounds outside",
                "",
                "[MaxIters(5)] for (int i = 0; i < 5; ++i) { [MaxIters(2)] for (int j = 0; j < 2; ++j) "
                "r = sin(r * x + n); }",
                lambda x, n: _waves(x, n, 10),
            ),
            (
                "more rounds inside",
                "",
                "[MaxIters(2)] for (int i = 0; i < 2; ++i) { [MaxIters(9)] for (int j = 0; j < 9; ++j) "
                "r = sin(r * x + n); }",
                lambda x, n: _waves(x, n, 18),
            ),
            (
                "one round inside",
                "",
                "[MaxIters(4)] for (int i = 0; i < 4; ++i) { [MaxIters(1)] for (int j = 0; j < 1; ++j) r /= x; }",
                lambda x, n: 1 / x**4,
            ),
            (
                "three loops, and two in one",
                "",
                "[MaxIters(2)] for (int i = 0; i < 2; ++i) { [MaxIters(3)] for (int j = 0; j < 3; ++j) "
                "for (int k = 1; k >= 0; --k) r = sin(r * x + n); for (int l = 0; l < 4; l += 2) "
                "r = sin(r * x + n); }",
                lambda x, n: _waves(x, n, 16),
            ),
            (
                "while in do",
                "",
                "int i = 0; [MaxIters(6)] do { int j = 0; [MaxIters(2)] while (j < 2) { r = sin(r * x + n); ++j; } "
                "++i; } while (i < 6);",
                lambda x, n: _waves(x, n, 12),
            ),
            (
                "numbers of a generic function",
                "[Differentiable] float g<let N : int, let M : int>(float r, float x, float n) { "
                "[MaxIters(N)] for (int i = 0; i < N; ++i) [MaxIters(M)] for (int j = 0; j < M; ++j) "
                "r = sin(r * x + n); return r; } ",
                "r = g<5, 2>(r, x, n) + g<2, 6>(r, x, n);",
                lambda x, n: _waves(x, n, 10) + _waves(x, n, 12),
            ),
            (
                "a loop that is unrolled between them",
                "",
                "[MaxIters(5)] for (int i = 0; i < 5; ++i) [ForceUnroll] for (int j = 0; j < 2; ++j) "
                "[MaxIters(2)] for (int k = 0; k < 2; ++k) r = sin(r * x + n);",
                lambda x, n: _waves(x, n, 20),
            ),
        ]
    ),
    *(
        Form(
            "Loops inside one another",
            name,
            "static const int COUNT = 2; "
            + D
            + "float f(float x, float n) { float r = 1; [MaxIters(5)] for (int i = 0; i < 5; ++i) "
            f"for ({head}) r = sin(r * x + n); return r; }}",
            (K, np.array(0.5)),
            lambda x, n: _waves(x, n, 10),
            refused,
        )
        for name, head, refused in [
            ("a number with a name", "int j = 0; j < COUNT; ++j", ""),
            ("a counter on the right", "int j = 0; COUNT > j; ++j", ""),
            ("a number with a name, counted down", "int j = COUNT + 2; j > 0; j -= 2", ""),
            (
                "a number that is not found",
                "int j = 0; j < COUNT; j += COUNT - 1",
                "f: the inner loop has no [MaxIters]",
            ),
        ]
    ),
    Form(
        "Loops inside one another",
        "an array that is too large",
        D + "float f(float x, float n) { float r = 1; [MaxIters(500)] for (int i = 0; i < 5; ++i) "
        "[MaxIters(2)] for (int j = 0; j < 2; ++j) r = sin(r * x + n); return r; }",
        (K, np.array(0.5)),
        lambda x, n: _waves(x, n, 10),
        "f: the inner loop needs an array",
    ),
    Form(
        "Functions",
        "a quotient of equal vectors",
        D + "float2 f(float2 p, float2 q) { return p / p + q; }",
        (P, Q),
        lambda p, q: p / p + q,
    ),
    # Vectors that are built from vectors without derivatives.
    *(
        Form(
            "A vector that is built from vectors",
            name,
            f"{text} [Differentiable] float3 g(no_diff float2 x, float2 v) {{ {body} }} "
            + D
            + "float3 f(float2 p) { return g(float2(1, 2), p); }",
            (P,),
            same,
        )
        for name, text, body, same in [
            ("a parameter", "", "return float3(x, v.y);", lambda p: np.array([1, 2, p[1]])),
            ("a repeated number", "", "return float3(float2(3), v.y);", lambda p: np.array([3, 3, p[1]])),
            ("a copy", "", "float2 a = x; return float3(v.y, a);", lambda p: np.array([p[1], 1, 2])),
            ("a list", "", "float3 r = {x, v.y}; return r;", lambda p: np.array([1, 2, p[1]])),
            ("a list that is returned", "", "return {x, v.y};", lambda p: np.array([1, 2, p[1]])),
            ("a list that is assigned", "", "float3 r; r = {x, v.y}; return r;", lambda p: np.array([1, 2, p[1]])),
            (
                "lists in a list",
                "",
                "float3 r[2] = {{x, v.y}, {v.x, x}}; return r[0] * r[1];",
                lambda p: np.array([p[0], 2, 2 * p[1]]),
            ),
            (
                "a list in a struct",
                "struct S : IDifferentiable { float2 c; float3 k; };",
                "S s = {x, {x, v.y}}; return s.k * v.x;",
                lambda p: np.array([1, 2, p[1]]) * p[0],
            ),
            (
                "a field without a derivative",
                "struct S { float2 c; };",
                "S s; s.c = x; return float3(s.c, v.y);",
                lambda p: np.array([1, 2, p[1]]),
            ),
            (
                "rows of a matrix",
                "",
                "float2x2 m = float2x2(x, v); return float3(m[0], m[1].y);",
                lambda p: np.array([1, 2, p[1]]),
            ),
            ("an alias", "typealias W = float3;", "return W(x, v.y);", lambda p: np.array([1, 2, p[1]])),
            ("a macro", "#define W(a, b) float3(a, b)\n", "return W(x, v.y);", lambda p: np.array([1, 2, p[1]])),
            (
                "a generic type",
                "",
                "return vector<float, 3>(x, v.y);",
                lambda p: np.array([1, 2, p[1]]),
            ),
        ]
    ),
    *(
        Form(
            "Switches",
            name,
            D
            + "float2 f(float2 p, float2 q) { float2 r = p; switch (int(q.x * 10)) { "
            + body
            + " } return r * r; }",
            (P, Q + 0.05),
            same,
            refused,
        )
        for name, body, same, refused in [
            (
                "a case that goes on",
                "case 4: r *= q; case 5: r += q.yx; break; default: r = 1;",
                lambda p, q: (p * q + q[::-1]) ** 2,
                "f: a case of the switch goes on",
            ),
            (
                "two labels",
                "case 4: case 5: r += q.yx; break; default: r = 1;",
                lambda p, q: (p + q[::-1]) ** 2,
                "",
            ),
            (
                "jumps in both branches",
                "case 4: if (p.x > 0) { r *= q; break; } else return q; default: r = 1;",
                lambda p, q: (p * q) ** 2,
                "",
            ),
        ]
    ),
    *(
        Form(
            "Elements by an index that is no literal",
            name,
            D + f"float f(float3 v, float n) {{ int j = int(n); float3x3 m = float3x3(v, v * v, 2 * v); {body} "
            "return dot(m[0] * m[1], m[2]); }",
            (V, np.array(0.5)),
            same,
        )
        for name, body, same in [
            ("two equal indices of a matrix", "m[j % 3][j % 3] += v.y;", lambda v, n: _corner(v, v[0] + v[1])),
            (
                "two equal indices of an array",
                "float3 e[2] = {v, v}; e[j % 2][j % 2] = 2; m[0] = e[0];",
                lambda v, n: _corner(v, 2),
            ),
        ]
    ),
    # Calls that are not run, at points where their derivatives are not finite.
    *(
        Form(
            "Derivatives that are not finite, in calls that are not run",
            name,
            f"{text} " + D + "float f(float x, float n) { float w = x * n, r = x; float3 v = float3(x, 0, x) * n; "
            f"{body} return r * x; }}",
            (K, np.array(0.0)),
            lambda x, n: x * x,
        )
        for name, text, body in [
            (
                "a branch",
                "",
                "[MaxIters(3)] for (int i = 0; i < 3; ++i) { if (x > 5) r += normalize(v).x; }",
            ),
            ("break", "", "[MaxIters(3)] for (int i = 0; i < 3; ++i) { if (x < 5) break; r = log(w) * r; }"),
            (
                "continue",
                "",
                "[MaxIters(3)] for (int i = 0; i < 3; ++i) { float u = w; if (x < 5) continue; r = log(u) * r; }",
            ),
            ("no rounds", "", "[MaxIters(3)] for (int i = 3; i < int(x); ++i) r += length(v);"),
            (
                "a choice",
                "",
                "int m = 0; [MaxIters(3)] while (m < 3) { ++m; r *= x > 5 ? normalize(v).x : 1; }",
            ),
            (
                "a function",
                "[Differentiable] float g(float w) { return 1 / w; }",
                "[MaxIters(3)] for (int i = 0; i < 3; ++i) { if (x > 5) r += g(w); }",
            ),
            (
                "a method",
                "struct S : IDifferentiable { float3 w; [Differentiable] float h() { return length(w); } };",
                "S s = {v}; [MaxIters(3)] for (int i = 0; i < 3; ++i) { if (x > 5) r += s.h(); }",
            ),
            (
                "a function with an inout parameter",
                "[Differentiable] void g(float3 w, inout float q) { q += length(w); }",
                "[MaxIters(3)] for (int i = 0; i < 3; ++i) { if (x > 5) g(v, r); }",
            ),
            (
                "an element that an unrolled loop reads",
                "",
                "[MaxIters(2)] for (int j = 0; j < 2; ++j) [ForceUnroll] for (int i = 1; i < 3; ++i) "
                "{ float u = v[i]; if (u > 0) r += log(u) + rsqrt(v[i]); }",
            ),
            (
                "conditions",
                "",
                "int i = 0; [MaxIters(2)] while (i < 2 && (x < 5 || log(w) * r < 0)) { float u = 1; "
                "if (x > 5 && (u = rsqrt(w)) > 0) r *= u; ++i; }",
            ),
            (
                "a namespace, and a vector that changes",
                "namespace Space { [Differentiable] float g(float w) { return rsqrt(w); } }",
                "float2 u = x; [MaxIters(4)] while (u.x < 3) { if (x > 5) r += Space::g(w); u += 1; }",
            ),
            (
                "an object that is called",
                "struct S : IDifferentiable { float w; "
                "[Differentiable] float operator()(float y) { return y * rsqrt(w); } };",
                "S s = {w}; int2 u = 0; [MaxIters(3)] for (uint i = 0; i < 3; ++i) { u += 1; if (x > 5) r += s(1); }",
            ),
            (
                "loops in a branch",
                "",
                "[MaxIters(3)] for (int i = 0; i < 3; ++i) { if (x > 5) [MaxIters(2)] for (int j = 0; j < 2; ++j) "
                "r += length(v); }",
            ),
        ]
    ),
]
