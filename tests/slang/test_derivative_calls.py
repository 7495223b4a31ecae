"""The derivatives that a text takes, the functions that take them, and the kernels that reach them."""

from __future__ import annotations

import pytest

from slangpy_rt.slang.derivative_calls import derivative_calls, function_bodies, reached_calls

TEXT = """
#define UNUSED bwd_diff(hidden)
struct Pair : IDifferentiable { float a; float b[2]; }
static const float table[2] = { 1, 2 };
namespace space
{
    // bwd_diff(commented) is no call
    [Differentiable] float inner(float x) { return x * x; }
    float named<T : IFloat, let N : int>(T x) where T : IDifferentiable { return fwd_diff(inner)(diffPair(x, 1)).d; }
}
struct Material
{
    float k;
    __init(float k) { this.k = bwd_diff(made)(k); }
    [mutating] void step(float x) { bwd_diff(Material.albedo)(x); }
    property float tint { get { return fwd_diff(colored<float, 3>)(k); } }
    Material operator+(Material other) { return helped(other); }
    static float declared(float x);
}
extension Material { float more(float x) { if (x > 0) { return __bwd_diff(space::inner)(x, 1); } return x; } }
float helped(float x) { return bwd_diff(behind)(x); }
float caller(float x) { Material m = { 1 }; m.step(x); return x; }
float outer(float x) { return caller(x) + space::named<float, 2>(x); }
"""


def test_calls_of_a_text() -> None:
    found = [(call.function, call.forward, call.inside) for call in derivative_calls(TEXT)]
    assert found == [
        ("inner", True, "named"),
        ("made", False, ""),
        ("albedo", False, "step"),
        ("colored", True, ""),
        ("inner", False, "more"),
        ("behind", False, "helped"),
    ]


def test_functions_of_a_text() -> None:
    bodies = list(function_bodies(TEXT))
    assert [body.name for body in bodies] == [
        "inner",
        "named",
        "",
        "step",
        "",
        "",
        "more",
        "helped",
        "caller",
        "outer",
    ]
    assert all(TEXT[body.start] == "{" and TEXT[body.end - 1] == "}" for body in bodies)
    assert {"caller", "named"} <= bodies[-1].words


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("void k() { outer(1); }", ["inner", "made", "albedo", "colored", "behind"]),
        ("void k() { caller(1); }", ["made", "albedo", "colored", "behind"]),
        ("void k() { m.more(1); }", ["made", "colored", "inner", "behind"]),
        ("void k() { inner(1); }", ["made", "colored", "behind"]),
    ],
)
def test_calls_that_a_kernel_reaches(kernel: str, wanted: list[str]) -> None:
    # Initializers, operators and properties may be called anywhere.
    assert [call.function for call in reached_calls(kernel, [TEXT])] == wanted


def test_calls_through_several_files() -> None:
    texts = ["float f(float x) { return g(x); }", "float g(float x) { return bwd_diff(h)(x); }"]
    assert [call.function for call in reached_calls("f(1)", texts)] == ["h"]
    assert not reached_calls("other(1)", texts)


@pytest.mark.parametrize("text", ["float f(float x) { return bwd_diff(g(x); ", "bwd_diff(", "} bwd_diff(g)", ""])
def test_texts_with_brackets_that_do_not_match(text: str) -> None:
    assert all(call.inside == "" for call in derivative_calls(text))
    assert not list(function_bodies(text))
