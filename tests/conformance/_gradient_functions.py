"""Functions in Slang beside PyTorch's formulas for them, whose derivatives are compared. Nothing here is a test."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

torch.set_num_threads(1)


@dataclass(frozen=True)
class Case:
    """A function in Slang and in PyTorch.

    Attributes
    ----------
    parameters : str
        As Slang declares them, with S for the scalar type: ``"S a, S3 v"``.
    body : str
        An expression, or statements in braces.
    formula : callable
        The same on tensors with one dimension before the parameters' own.
    low, high : float
        Where samples lie.
    returns : str
        Type of the result.
    double : bool
        Whether double has all that it needs, on every device.
    """

    parameters: str
    body: str
    formula: Callable[..., torch.Tensor]
    low: float = -2
    high: float = 2
    returns: str = "S"
    double: bool = False


def dims(type_: str) -> tuple[int, ...]:
    """Dimensions of a type: of ``S3x3``, ``S2`` or ``S[4]``."""
    return tuple(int(n) for n in re.findall(r"\d+", type_))


def shapes(parameters: str) -> list[tuple[int, ...]]:
    return [dims(re.sub(r" \w+(?=\[|$)", "", p)) for p in parameters.split(", ")]


# Functions of numbers. They share a kernel by their parameters, and so by the range of the samples.
SCALARS: dict[str, dict[str, Case]] = {
    "inside": {
        "sin": Case("S a", "sin(a)", torch.sin),
        "cos": Case("S a", "cos(a)", torch.cos),
        "tan": Case("S a", "tan(a)", torch.tan),
        "asin": Case("S a", "asin(a)", torch.asin),
        "acos": Case("S a", "acos(a)", torch.acos),
        "atan": Case("S a", "atan(a)", torch.atan),
        "sinh": Case("S a", "sinh(a)", torch.sinh),
        "cosh": Case("S a", "cosh(a)", torch.cosh),
        "tanh": Case("S a", "tanh(a)", torch.tanh),
        "asinh": Case("S a", "asinh(a)", torch.asinh),
        "atanh": Case("S a", "atanh(a)", torch.atanh),
        "exp": Case("S a", "exp(a)", torch.exp),
        "exp2": Case("S a", "exp2(a)", torch.exp2),
        "abs": Case("S a", "abs(a)", torch.abs),
        "sign": Case("S a", "sign(a)", torch.sign),
        "saturate": Case("S a", "saturate(2 * a)", lambda a: torch.clamp(2 * a, 0, 1)),
        "frac": Case("S a", "frac(5 * a)", lambda a: 5 * a - torch.floor(5 * a)),
        "radians": Case("S a", "radians(a)", torch.deg2rad),
    },
    "positive": {
        "log": Case("S a", "log(a)", torch.log),
        "log2": Case("S a", "log2(a)", torch.log2),
        "log10": Case("S a", "log10(a)", torch.log10),
        "sqrt": Case("S a", "sqrt(a)", torch.sqrt),
        "rsqrt": Case("S a", "rsqrt(a)", torch.rsqrt),
        "rcp": Case("S a", "rcp(a)", torch.reciprocal),
        "acosh": Case("S a", "acosh(a + 1)", lambda a: torch.acosh(a + 1)),
        "degrees": Case("S a", "degrees(a) / 50", lambda a: torch.rad2deg(a) / 50),
        "pow of a constant": Case("S a", "pow(a, 2.5)", lambda a: a**2.5),
    },
    "three": {
        "pow": Case("S a, S b, S c", "pow(a, b)", lambda a, b, c: a**b),
        "atan2": Case("S a, S b, S c", "atan2(a, b)", lambda a, b, c: torch.atan2(a, b)),
        "min": Case("S a, S b, S c", "min(a, b)", lambda a, b, c: torch.minimum(a, b)),
        "max": Case("S a, S b, S c", "max(a, b)", lambda a, b, c: torch.maximum(a, b)),
        # Slang takes the divisor for a constant.
        "fmod": Case("S a, S b, S c", "fmod(4 * a, 1.3)", lambda a, b, c: torch.fmod(4 * a, 1.3)),
        "copysign": Case("S a, S b, S c", "copysign(a, b - c)", lambda a, b, c: torch.copysign(a, b - c)),
        "clamp": Case(
            "S a, S b, S c", "clamp(a, b / 2, c)",
            lambda a, b, c: torch.minimum(torch.maximum(a, b / 2), c),
        ),
        "lerp": Case("S a, S b, S c", "lerp(a, b, c)", lambda a, b, c: torch.lerp(a, b, c)),
        "fma": Case("S a, S b, S c", "fma(S(a), b, c)", lambda a, b, c: a * b + c),
        "mad": Case("S a, S b, S c", "mad(a, b, c)", lambda a, b, c: a * b + c),
        "select": Case("S a, S b, S c", "select(a > b, a * c, b)", lambda a, b, c: torch.where(a > b, a * c, b)),
        "?:": Case("S a, S b, S c", "a > b ? a * c : b / c", lambda a, b, c: torch.where(a > b, a * c, b / c)),
        "sincos": Case("S a, S b, S c", "both(a * b) + c", lambda a, b, c: torch.sin(a * b) * torch.cos(a * b) + c),
        "quotient": Case("S a, S b, S c", "a / b - c", lambda a, b, c: a / b - c),
    },
}  # fmt: skip
RANGES = {"inside": (-0.9, 0.9), "positive": (0.3, 2.0), "three": (0.5, 2.0)}


def norm(v: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(v, dim=-1)


def dot(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (u * v).sum(-1)


def refract(i: torch.Tensor, n: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
    i, n = i / norm(i)[..., None], n / norm(n)[..., None]
    cosine, eta = dot(i, n)[..., None], eta[..., None]
    k = 1 - eta * eta * (1 - cosine * cosine)
    return torch.where(k < 0, torch.zeros_like(i), eta * i - (eta * cosine + torch.sqrt(torch.clamp(k, 0))) * n)


def rotate(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q = q / norm(q)[..., None]
    t = 2 * torch.linalg.cross(q[..., :3], v)
    return v + q[..., 3:] * t + torch.linalg.cross(q[..., :3], t)


def scene(p: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    ball = norm(p) - r
    q = torch.abs(p - torch.tensor([0.5, 0.0, 0.2])) - 0.4
    box = norm(torch.clamp(q, 0)) + torch.clamp(q.amax(-1), max=0)
    h = torch.clamp(0.5 + 0.5 * (box - ball) / 0.7, 0, 1)
    return box * (1 - h) + ball * h - 0.7 * h * (1 - h)


def bounded(x: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(12):
        y = torch.where(torch.abs(y) < 4, y * y + x, y)
    return y


def newton(a: torch.Tensor) -> torch.Tensor:
    x = a
    for _ in range(6):
        x = (x + a / x) / 2
    return x


def power(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    y = a
    for k in range(5):
        y = y * x + k
    return y


def levels(x: torch.Tensor) -> torch.Tensor:
    n = torch.floor(x + 2)
    return torch.where(n == 0, x * x, torch.where(n == 1, torch.sin(x), torch.where(n == 2, 3 * x, torch.exp(x))))


def sphere(o: torch.Tensor, d: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    d = d / norm(d)[..., None]
    b = dot(o, d)
    under = b * b - dot(o, o) + r * r
    return torch.where(under < 0, torch.full_like(b, -1), -b - torch.sqrt(torch.clamp(under, 1e-12)))


def bezier(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    t = t[..., None]
    s = 1 - t
    return s**3 * a + 3 * s * s * t * b + 3 * s * t * t * c + t**3 * d


HELPERS = """
[Differentiable] S both(S a) { S s, c; sincos(a, s, c); return s * c; }
[Differentiable] S sigmoid(S x) { return 1 / (1 + exp(-x)); }
[Differentiable] S chained(S x) { return sigmoid(x * sigmoid(2 * x)) * x; }
[Differentiable] void rotated(inout S2 v, S c, S s) { v = S2(c * v.x - s * v.y, s * v.x + c * v.y); }
[Differentiable] void polar(S2 p, out S r, out S a) { r = length(p); a = atan2(p.y, p.x); }
[Differentiable] T cubed<T : __BuiltinFloatingPointType>(T x) { return x * x * x; }
struct Complex : IDifferentiable
{
    S re;
    S im;
    [Differentiable] Complex times(Complex o) { return { re * o.re - im * o.im, re * o.im + im * o.re }; }
}
[Differentiable] S ball(S3 p, S r) { return length(p) - r; }
[Differentiable] S box(S3 p, S b)
{
    S3 q = abs(p) - b;
    return length(max(q, S3(0))) + min(max(q.x, max(q.y, q.z)), S(0));
}
[Differentiable] S slope(S x) { return fwd_diff(wave)(diffPair(x, S(1))).d; }
[Differentiable] S wave(S x) { return sin(x) * x; }
[Differentiable] S picked(S e[3], no_diff int i) { return e[i]; }
[Differentiable] S3 scaled(S3 v, S y) { return v * y; }
[Differentiable] S root(S a)
{
    S x = a;
    [MaxIters(6)]
    for (int k = 0; k < 6; ++k)
        x = (x + a / x) / 2;
    return x;
}
"""
V, M = "S3 u, S3 v", "S3x3 m, S3 v"
CASES = {
    # Slang's functions of vectors and matrices
    "dot": Case(V, "dot(u, v)", dot),
    "cross": Case(V, "cross(u, v)", torch.linalg.cross, returns="S3", double=True),
    "length": Case("S3 u", "length(u)", norm),
    "distance": Case(V, "distance(u, v)", lambda u, v: norm(u - v)),
    "normalize": Case("S3 u", "normalize(u)", lambda u: u / norm(u)[..., None], returns="S3"),
    "reflect": Case(V, "reflect(u, v)", lambda u, v: u - 2 * dot(u, v)[..., None] * v, returns="S3"),
    "refract": Case(
        f"{V}, S a", "refract(normalize(u), normalize(v), 0.8 + 0.1 * a)",
        lambda u, v, a: refract(u, v, 0.8 + 0.1 * a), returns="S3",
    ),
    "mul(matrix, vector)": Case(M, "mul(m, v)", lambda m, v: (m @ v[..., None])[..., 0], returns="S3", double=True),
    "mul(vector, matrix)": Case(M, "mul(v, m)", lambda m, v: (v[..., None, :] @ m)[..., 0, :], returns="S3"),
    "mul(matrix, matrix)": Case("S2x3 m, S3x2 n", "mul(m, n)", torch.matmul, returns="S2x2"),
    "matrix * scalar": Case("S2x2 m, S a", "m * a * m", lambda m, a: m * a[..., None, None] * m, returns="S2x2"),
    "transpose": Case(
        "S3x3 m", "transpose(m) * m[2][0]", lambda m: m.mT * m[..., 2:, :1], returns="S3x3"
    ),
    "determinant": Case("S3x3 m", "determinant(m)", torch.linalg.det),
    "row of a matrix": Case("S3x3 m", "m[1] * m[2].zxy", lambda m: m[..., 1, :] * m[..., 2, [2, 0, 1]], returns="S3"),
    "swizzle": Case(V, "u.zyx * v.x + v.yyz", lambda u, v: u.flip(-1) * v[..., :1] + v[..., [1, 1, 2]], returns="S3"),
    "swizzle written to": Case(
        V, "{ S3 w = u; w.zx *= v.xy; return w; }",
        lambda u, v: torch.stack([u[..., 0] * v[..., 1], u[..., 1], u[..., 2] * v[..., 0]], -1), returns="S3",
    ),
    "constructor": Case(
        "S3 u, S a", "S3(a, u.xy) * S3(a)",
        lambda u, a: torch.cat([a[..., None], u[..., :2]], -1) * a[..., None], returns="S3",
    ),
    "select of vectors": Case(V, "select(u > v, u * u, v)", lambda u, v: torch.where(u > v, u * u, v), returns="S3"),
    "min and max of vectors": Case(
        V, "min(u, v) * max(u, S3(0.5))", lambda u, v: torch.minimum(u, v) * torch.clamp(u, 0.5), returns="S3"
    ),
    "pow of vectors": Case(V, "pow(u, v)", lambda u, v: u**v, 0.3, 2, returns="S3"),
    "lerp of vectors": Case(
        "S3 u, S3 v, S a", "lerp(u, v, S3(a))", lambda u, v, a: torch.lerp(u, v, a[..., None]), returns="S3"
    ),
    "sin of a matrix": Case("S2x2 m", "sin(m) * m", lambda m: torch.sin(m) * m, returns="S2x2"),
    "lit": Case(
        "S a, S b, S c", "lit(a, b, c)",
        lambda a, b, c: torch.stack([torch.ones_like(a), a, b**c, torch.ones_like(a)], -1), 0.3, 2, returns="S4",
    ),
    "dst": Case(
        "S4 u, S4 v", "dst(u, v)",
        lambda u, v: torch.stack([torch.ones_like(u[..., 0]), u[..., 1] * v[..., 1], u[..., 2], v[..., 3]], -1),
        returns="S4",
    ),
    # Functions made of them
    "polynomial": Case("S x, S4 c", "((c.x * x + c.y) * x + c.z) * x + c.w", lambda x, c: (
        c[..., 0] * x**3 + c[..., 1] * x**2 + c[..., 2] * x + c[..., 3]), double=True),
    "rational": Case("S a, S b", "a / (b * b + 1)", lambda a, b: a / (b * b + 1)),
    "branch": Case(
        "S a, S b", "{ if (a > b) return a * a; else return a * b; }",
        lambda a, b: torch.where(a > b, a * a, a * b), double=True,
    ),
    "early returns": Case(
        "S a, S b",
        "{ if (a < 0) { if (b < 0) return a * b; return b; } "
        "S c = a + b; if (c > 1) c = c * c; return c * a; }",
        lambda a, b: torch.where(
            a < 0, torch.where(b < 0, a * b, b), torch.where(a + b > 1, (a + b) ** 2, a + b) * a
        ),
    ),
    "loop": Case(
        "S x, S a", "{ S y = a; [MaxIters(5)] for (int k = 0; k < 5; ++k) y = y * x + k; return y; }", power,
        -1, 1, double=True,
    ),
    "loop that ends early": Case(
        "S x",
        "{ S y = x; [MaxIters(12)] for (int k = 0; k < 12; ++k) "
        "{ if (abs(y) >= 4) break; y = y * y + x; } return y; }",
        bounded, -1, 1,
    ),
    "unrolled loop": Case(
        "S v[4]", "{ S s = 0; [ForceUnroll] for (int k = 0; k < 4; ++k) s += v[k] * v[k] * k; return sqrt(1 + s); }",
        lambda v: torch.sqrt(1 + (v * v * torch.arange(4, device=v.device)).sum(-1)),
    ),
    "nested loops": Case(
        "S v[3]",
        "{ S s = 0; [MaxIters(3)] for (int i = 0; i < 3; ++i) [MaxIters(3)] for (int j = 0; j < i; ++j) "
        "s += v[i] * v[j]; return s; }",
        lambda v: v[..., 1] * v[..., 0] + v[..., 2] * (v[..., 0] + v[..., 1]),
    ),
    "newton's method": Case("S a", "root(a)", newton, 0.3, 3, double=True),
    "switch": Case(
        "S x",
        "{ switch (int(floor(detach(x) + 2))) { case 0: return x * x; case 1: return sin(x); case 2: return 3 * x; "
        "default: return exp(x); } }",
        levels,
    ),
    "nested functions": Case(
        "S x", "chained(x) + sigmoid(x)",
        lambda x: torch.sigmoid(x * torch.sigmoid(2 * x)) * x + torch.sigmoid(x),
    ),
    "inout helper": Case(
        "S2 p, S a", "{ S2 v = p; rotated(v, cos(a), sin(a)); rotated(v, a, 1); return v; }",
        lambda p, a: torch.stack([
            a * (torch.cos(a) * p[..., 0] - torch.sin(a) * p[..., 1])
            - (torch.sin(a) * p[..., 0] + torch.cos(a) * p[..., 1]),
            torch.cos(a) * p[..., 0] - torch.sin(a) * p[..., 1]
            + a * (torch.sin(a) * p[..., 0] + torch.cos(a) * p[..., 1])], -1), returns="S2",
    ),
    "out helper": Case(
        "S2 p", "{ S r, a; polar(p, r, a); return r * a; }",
        lambda p: norm(p) * torch.atan2(p[..., 1], p[..., 0]), 0.2, 2,
    ),
    "generic helper": Case("S x", "cubed(x) + cubed<S>(x + 1)", lambda x: x**3 + (x + 1) ** 3, double=True),
    "struct with a method": Case(
        "S2 a, S2 b",
        "{ Complex z = { a.x, a.y }; Complex c = { b.x, b.y }; z = z.times(z).times(c); return z.re * z.im; }",
        lambda a, b: (lambda z: z.real * z.imag)(torch.view_as_complex(a) ** 2 * torch.view_as_complex(b)),
    ),
    "softmax": Case(
        "S v[4]",
        "{ S e[4]; S s = 0; [ForceUnroll] for (int k = 0; k < 4; ++k) { e[k] = exp(v[k]); s += e[k]; } "
        "[ForceUnroll] for (int k = 0; k < 4; ++k) e[k] = e[k] / s; return e; }",
        lambda v: torch.softmax(v, -1), returns="S[4]",
    ),
    "log of a sum": Case("S4 v", "log(dot(exp(v), S4(1)))", lambda v: torch.logsumexp(v, -1)),
    "neuron": Case(
        "S w[3], S x[3], S b",
        "{ S s = b; [ForceUnroll] for (int k = 0; k < 3; ++k) s += w[k] * x[k]; return tanh(s); }",
        lambda w, x, b: torch.tanh(dot(w, x) + b),
    ),
    "layer": Case(
        "S2x3 w, S3 x, S2 b", "max(mul(w, x) + b, S2(0))",
        lambda w, x, b: torch.relu((w @ x[..., None])[..., 0] + b), returns="S2",
    ),
    "quaternion": Case(
        "S4 q, S3 v",
        "{ S4 n = normalize(q); S3 t = 2 * cross(n.xyz, v); return v + n.w * t + cross(n.xyz, t); }",
        rotate, returns="S3",
    ),
    "distance field": Case(
        "S3 p, S r",
        "{ S a = ball(p, r), b = box(p - S3(0.5, 0, 0.2), 0.4); S h = saturate(0.5 + 0.5 * (b - a) / 0.7); "
        "return lerp(b, a, h) - 0.7 * h * (1 - h); }",
        scene,
    ),
    "ray and sphere": Case(
        "S3 o, S3 d, S r",
        "{ S3 n = normalize(d); S b = dot(o, n); S under = b * b - dot(o, o) + r * r; if (under < 0) return -1; "
        "return -b - sqrt(under); }",
        sphere,
    ),
    "gaussian": Case("S x, S m, S s", "exp(-0.5 * (x - m) * (x - m) / (s * s + 0.5))", lambda x, m, s: torch.exp(
        -0.5 * (x - m) ** 2 / (s * s + 0.5))),
    "huber": Case(
        "S x, S d", "abs(x) < d ? 0.5 * x * x : d * (abs(x) - 0.5 * d)",
        lambda x, d: torch.where(torch.abs(x) < d, 0.5 * x * x, d * (torch.abs(x) - 0.5 * d)),
    ),
    "fresnel": Case(
        "S3 f, S3 n, S3 v", "f + (1 - f) * pow(1 - saturate(dot(normalize(n), normalize(v))), 5)",
        lambda f, n, v: f + (1 - f) * (1 - torch.clamp(dot(n, v) / norm(n) / norm(v), 0, 1))[..., None] ** 5,
        0.1, 1, returns="S3",
    ),
    "tone curve": Case(
        "S3 c", "saturate(c * (2.51 * c + 0.03) / (c * (2.43 * c + 0.59) + 0.14))",
        lambda c: torch.clamp(c * (2.51 * c + 0.03) / (c * (2.43 * c + 0.59) + 0.14), 0, 1), 0.01, 2, returns="S3",
    ),
    "bezier": Case(
        "S2 a, S2 b, S2 c, S2 d, S t",
        "{ S s = 1 - t; return s * s * s * a + 3 * s * s * t * b + 3 * s * t * t * c + t * t * t * d; }",
        bezier, returns="S2", double=True,
    ),
    "bilinear": Case(
        "S4 c, S2 at", "lerp(lerp(c.x, c.y, at.x), lerp(c.z, c.w, at.x), at.y)",
        lambda c, at: torch.lerp(
            torch.lerp(c[..., 0], c[..., 1], at[..., 0]), torch.lerp(c[..., 2], c[..., 3], at[..., 0]), at[..., 1]
        ),
    ),
    "inverse": Case(
        "S2x2 m, S2 v",
        "{ S d = m[0][0] * m[1][1] - m[0][1] * m[1][0] + 5; "
        "return mul(S2x2(m[1][1], -m[0][1], -m[1][0], m[0][0]), v) / d; }",
        lambda m, v: torch.stack([
            m[..., 1, 1] * v[..., 0] - m[..., 0, 1] * v[..., 1],
            m[..., 0, 0] * v[..., 1] - m[..., 1, 0] * v[..., 0]], -1) / (torch.linalg.det(m) + 5)[..., None],
        -1, 1, returns="S2",
    ),
    "area of a triangle": Case(
        "S3 a, S3 b, S3 c", "0.5 * length(cross(b - a, c - a))",
        lambda a, b, c: 0.5 * norm(torch.linalg.cross(b - a, c - a)),
    ),
    # Both would be wrong without a constructor, or a function: docs/gradients.md says so.
    "vector times what a loop made": Case(
        "S3 v, S x",
        "{ S y = x; [MaxIters(3)] for (int k = 0; k < 3; ++k) y = y * x; "
        "return S3(y, v.yz) * S3(y) + scaled(S3(v.xy, y), y); }",
        lambda v, x: x[..., None] ** 4 * torch.stack([x**4 + v[..., 0], 2 * v[..., 1], v[..., 2] + x**4], -1),
        returns="S3", double=True,
    ),
    "elements at places that are equal": Case(
        "S3 v, S x", "{ S e[3] = { v.x, v.y, v.z }; return picked(e, x > 0 ? 1 : 2) * picked(e, x > 1 ? 2 : 1); }",
        lambda v, x: torch.where(x > 0, v[..., 1], v[..., 2]) * torch.where(x > 1, v[..., 2], v[..., 1]), double=True,
    ),
    "derivative of a derivative": Case("S x", "slope(x) * x", lambda x: (torch.cos(x) * x + torch.sin(x)) * x),
}  # fmt: skip
