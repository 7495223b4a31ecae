"""The records of faults in Slang's derivatives, all of which ``rebinding`` mends in the user's text."""

from __future__ import annotations

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.rebinding import rebound


def _rebound(code: bytes, emission: Emission) -> bytes:
    return rebound(code.decode()).encode()


def _correction(
    name: str,
    why: str,
    function: str,
    gradients: str,
    wrong: tuple[float, ...],
    right: tuple[float, ...],
    upstream: str = "not reported",
    affects: tuple[str, ...] = ("2026.12", "2026.14.1"),
) -> Correction:
    """Return the record of a fault whose canary writes gradients of a function."""
    text = f"{function}\nvoid canary(uniform float *values)\n{{\n    {gradients}\n}}\n"
    return Correction(name, why, upstream, affects, ("slang",), _rebound, Canary(text, wrong, right))


DERIVATIVES = (
    _correction(
        "scalars with vectors",
        "A scalar parameter has no gradient if the first operation of a function makes a vector of it.",
        "[Differentiable] float2 f(float2 v, float k) { return k * v; }",
        "var v = diffPair(float2(1, 2)); var k = diffPair(0.5f); bwd_diff(f)(v, k, float2(1, 1)); values[0] = k.d;",
        (0.0,),
        (3.0,),
        "#12095",
    ),
    _correction(
        "scalars of loops with vectors",
        "The gradient of a scalar that a loop computed is read before it is complete, where a vector uses it.",
        "[Differentiable] float2 f(float2 v, float k)\n"
        "{ float w = 1; [MaxIters(3)] for (int i = 0; i < 3; ++i) w = w * k; return w * v; }",
        "var v = diffPair(float2(1, 2)); var k = diffPair(0.5f); bwd_diff(f)(v, k, float2(1, 1)); values[0] = v.d.x;",
        (0.0,),
        (0.125,),
        "#12095",
    ),
    _correction(
        "out arguments before loops",
        "A loop's backward pass reads a variable as it was before a function wrote to it.",
        "[Differentiable] void twice(inout float x) { x = 2 * x; }\n"
        "[Differentiable] float f(float a)\n"
        "{ float x = a; twice(x); float p = a; [MaxIters(2)] for (int i = 0; i < 2; ++i) p = x * p; return p; }",
        "var a = diffPair(1.0f); bwd_diff(f)(a, 1.0f); values[0] = a.d;",
        (8.0,),
        (12.0,),
    ),
    _correction(
        "components in branches",
        "Two variables that change in a branch, one of them by a component, may share a register.",
        "[Differentiable] float f(float2 p, float2 q)\n"
        "{ if (p.y < 4) { q = p * p; p.x = 0.5; } return q.y * p.y * p.x; }",
        "var p = diffPair(float2(1, 2)); var q = diffPair(float2(1, 1)); bwd_diff(f)(p, q, 1.0f); values[0] = p.d.y;",
        (20.0,),
        (6.0,),
    ),
    _correction(
        "components of matrices",
        "Of two components of a matrix that are read after one was written, one has no gradient.",
        "[Differentiable] float f(float2x2 m, float k, int j)\n"
        "{ float2x2 n = m; n[j].x *= k; return n[0][1] + n[0].x * k; }",
        "var m = diffPair(float2x2(1, 2, 3, 4)); var k = diffPair(2.0f); bwd_diff(f)(m, k, 0, 1.0f); "
        "values[0] = m.d[0][1];",
        (0.0,),
        (1.0,),
    ),
    _correction(
        "elements by computed indices",
        "Of two elements of one variable, one read by an index that is no literal, one has no gradient.",
        "[Differentiable] float f(float3 v, int j) { return v[0] * v[j]; }",
        "var v = diffPair(float3(3, 1, 1)); bwd_diff(f)(v, int(values[0]), 1.0f); values[0] = v.d.x;",
        (3.0,),
        (6.0,),
    ),
    _correction(
        "while loops",
        "A while loop with return or break loses gradients, and the compiler crashes on nested ones.",
        "[Differentiable] float f(float d, float w)\n"
        "{ int t = 0; [MaxIters(2)] while (t < 1) { if (d > 0.25) return 0.5 * w; t = 1; } return 0.5; }",
        "var d = diffPair(0.5f); var w = diffPair(4.0f); bwd_diff(f)(d, w, 1.0f); values[0] = w.d;",
        (0.0,),
        (0.5,),
    ),
    _correction(
        "the remainder",
        "The derivative of fmod(a, b) by b is 0.",
        "[Differentiable] float f(float a, float b) { return fmod(a, b); }",
        "var a = diffPair(3.5f); var b = diffPair(1.5f); bwd_diff(f)(a, b, 1.0f); values[0] = b.d;",
        (0.0,),
        (-2.0,),
    ),
    _correction(
        "limits in the wrong order",
        "Where the lower limit of clamp is over the upper one, the derivative is of the limit that is not the value.",
        "[Differentiable] float f(float a, float b) { return clamp(1.0f, a, b); }",
        "var a = diffPair(3.0f); var b = diffPair(2.0f); bwd_diff(f)(a, b, 1.0f); values[0] = b.d;",
        (0.0,),
        (1.0,),
    ),
    _correction(
        "constants that are assigned",
        "A value that is assigned to a no_diff parameter in a branch has no derivative.",
        "[Differentiable] float f(no_diff float j, float m) { if (m > 0) j = m; return j; }",
        "var m = diffPair(2.0f); bwd_diff(f)(0.5f, m, 1.0f); values[0] = m.d;",
        (0.0,),
        (1.0,),
    ),
    _correction(
        "inout parameters that become constant",
        "An inout parameter keeps the derivative that it had when a value without one is assigned to it.",
        "[Differentiable] void g(inout float x) { x = 2; }\n"
        "[Differentiable] float f(float a) { float x = a; g(x); return x * a; }",
        "var a = diffPair(1.0f); bwd_diff(f)(a, 1.0f); values[0] = a.d;",
        (3.0,),
        (2.0,),
    ),
    _correction(
        "constants as inout arguments",
        "A variable with a constant that a function writes to has no tangent, and in a loop a wrong gradient.",
        "[Differentiable] void g(inout float x, float a) { x *= a; }\n"
        "[Differentiable] float f(float a)\n"
        "{ float x = 0; [MaxIters(3)] for (int i = 0; i < 3; ++i) { x = 0.5; g(x, a); } return x; }",
        "var a = diffPair(1.0f); bwd_diff(f)(a, 1.0f); values[0] = a.d;",
        (1.5,),
        (0.5,),
    ),
    _correction(
        "loops in loops",
        "The array of the values of nested loops has the sizes of the loops in the wrong order.",
        "[Differentiable] float f(float a)\n"
        "{\n"
        "    float x = 1;\n"
        "    [MaxIters(5)] for (int i = 0; i < 5; ++i) [MaxIters(2)] for (int j = 0; j < 2; ++j) x = x * a;\n"
        "    return x;\n"
        "}",
        "var a = diffPair(2.0f); bwd_diff(f)(a, 1.0f); values[0] = a.d;",
        (4100.0,),
        (5120.0,),
        "#13000",
    ),
    _correction(
        "functions treated as differentiable",
        "A function with [TreatAsDifferentiable] returns 0 in a derivative, in place of its value.",
        "[TreatAsDifferentiable] float g(float x) { return x * x; }\n"
        "[Differentiable] float f(float k) { return g(k) * k; }",
        "var k = diffPair(3.0f); bwd_diff(f)(k, 1.0f); values[0] = k.d;",
        (0.0,),
        (9.0,),
        affects=("2026.12",),
    ),
)
