"""Derivatives of forms of functions that Slang's compiler gets wrong by itself: right, or refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.slang.corrections.rebinding import rebound
from tests.conformance._derivative_forms import FORMS, Form, K, V, slope
from tests.depth import every_case, one_device, sampled


def compare(device: spy.Device, module: spy.Module, form: Form) -> None:
    """Compare the call, `bwds` and `fwds` of the module's `f` with NumPy."""
    f = module.f
    names = {0: "float", 1: "float{}"}
    arguments = [
        spy.Tensor.from_numpy(device, np.asarray(a, np.float32)[None], names[a.ndim].format(a.size)).with_grads()
        for a in form.arguments
    ]
    value = np.asarray(form.same(*form.arguments))
    np.testing.assert_allclose(f(*arguments).to_numpy()[0], value, rtol=1e-5, atol=1e-6)
    seed = np.linspace(0.5, 1.5, value.size).reshape(value.shape)
    upstream = spy.Tensor.from_numpy(device, np.asarray(seed, np.float32)[None], f.return_type_name)
    f.bwds(*arguments, _result=spy.diff_pair(None, upstream))
    wanted = slope(form, seed)
    for argument, gradient in zip(arguments, wanted, strict=True):
        np.testing.assert_allclose(argument.grad.to_numpy()[0], gradient, rtol=2e-4, atol=2e-5)
    directions = [np.cos(np.arange(a.size) + at + 1.0).reshape(a.shape) for at, a in enumerate(form.arguments)]
    for argument, direction in zip(arguments, directions, strict=True):
        assert argument.grad_in is not None
        argument.grad_in.copy_from_numpy(np.asarray(direction, np.float32)[None])
    result = f.fwds(*arguments)
    np.testing.assert_allclose(result.to_numpy()[0], value, rtol=1e-5, atol=1e-6)
    tangent = np.sum(result.grad_out.to_numpy()[0] * seed)
    moved = sum(np.sum(g * d) for g, d in zip(wanted, directions, strict=True))
    np.testing.assert_allclose(tangent, moved, rtol=2e-4, atol=2e-5)


# How the number is declared that a loop writes and a product reads: the head of the function, and its type.
DECLARED = {
    "float": ("[Differentiable] float3 f(float3 v, float k)", "float"),
    "typealias": ("typealias R = float; [Differentiable] float3 f(float3 v, float k)", "R"),
    "macro": ("#define REAL float\n[Differentiable] float3 f(float3 v, float k)", "REAL"),
    "generic": ("[Differentiable] vector<T, 3> g<T : __BuiltinFloatingPointType>(vector<T, 3> v, T k)", "T"),
    "generic var": ("[Differentiable] vector<T, 3> g<T : __BuiltinFloatingPointType>(vector<T, 3> v, T k)", "var"),
}
WRITTEN = {
    "by a loop": "[MaxIters(4)] for (int i = 0; i < 3; ++i) w = w * k + ONE / ONE; return w * v;",
    "by a loop, within": "[MaxIters(4)] for (int i = 0; i < 3; ++i) { if (i > 0) w = w * k + ONE; } return v * w;",
    "by two loops": "[MaxIters(4)] for (int i = 0; i < 2; ++i) "
    "{ [MaxIters(3)] for (int j = 0; j < 2; ++j) w = w * k; } return v + w * v;",
}


_LOOPS = [
    ("float", "by two loops"), ("typealias", "by a loop"), ("macro", "by a loop, within"), ("generic", "by a loop"),
    ("generic", "by two loops"), ("generic var", "by a loop, within"),
]  # fmt: skip


@every_case
@pytest.mark.parametrize(("declared", "written"), _LOOPS)
def test_numbers_of_loops_in_each_declaration(device: spy.Device, declared: str, written: str) -> None:
    """Whatever the number's type is called: its product with a vector has the gradients of differences."""
    head, type_ = DECLARED[declared]
    same: dict[str, Callable[..., Any]] = {
        "by a loop": lambda v, k: _loop(k, 3, k) * v,
        "by a loop, within": lambda v, k: _loop(k, 2, k) * v,
        "by two loops": lambda v, k: v + k**5 * v,
    }
    body = WRITTEN[written].replace("ONE", "T(1.0f)" if "<T" in head else "1.0")
    text = f"{head} {{ {type_} w = k; {body} }}\n"
    if "<T" in head:
        text += "[Differentiable] float3 f(float3 v, float k) { return g<float>(v, k); }\n"
    form = Form("", written, text, (np.array([0.3, -0.6, 0.8]), np.array(0.7)), same[written])
    compare(device, spy.Module.load_from_source(device, "declared_number", text), form)


def _loop(w: Any, rounds: int, k: Any) -> Any:
    for _ in range(rounds):
        w = w * k + 1
    return w


@sampled(4)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.family}-{form.name}".replace(" ", "_"))
def test_forms(device: spy.Device, form: Form) -> None:
    def run() -> None:
        compare(device, spy.Module.load_from_source(device, "derivative_form", form.text), form)

    if form.refused:
        with pytest.raises(spy.CompileError, match=re.escape(form.refused)):
            run()
    else:
        run()


FILES = {
    "included.slangh": "#pragma once\n" + "[Differentiable] float3 scaled(float3 v, float k) { return (k) * v; }\n",
    "deep/powers.slang": "[Differentiable] public float3 powers(float3 v, float k)\n{\n    float w = 1;\n"
    "    [MaxIters(3)] for (int i = 0; i < 3; ++i) w = w * k + 0.1;\n    return w * v;\n}\n",
    "sines.slang": "import deep.powers;\n[Differentiable] public void sine(inout float x) { x = sin(x); }\n"
    "[Differentiable] public float3 both(float3 v, float k) { return (k) * powers(v, k); }\n",
}
IMPORTS = "import sines;\nimport deep.powers;\n"
TAKES = """[Differentiable] float3 f(float3 v, float k)
{
    float x = k;
    sine(x);
    float3 p = v;
    [MaxIters(2)] for (int i = 0; i < 2; ++i) p = x * p;
    return p + both(v, k) + powers(v, k)"""


def _sum(v: np.ndarray, k: np.ndarray) -> np.ndarray:
    w = k**3 + 0.1 * (k**2 + k + 1)
    return np.asarray(np.sin(k) ** 2 * v + k * w * v + w * v)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@sampled(1)
def test_imported_files(device: spy.Device, folder: Path) -> None:
    (folder / "main.slang").write_text(f"{IMPORTS}{TAKES};\n}}\n", encoding="utf-8")
    compare(device, spy.Module.load_from_file(device, folder / "main.slang"), Form("", "", "", (V, K), _sum))


@sampled(1)
def test_included_files(device: spy.Device, backend_name: str, folder: Path) -> None:
    text = f'#include "included.slangh"\n{IMPORTS}{TAKES} + scaled(v, k);\n}}\n'
    (folder / "main.slang").write_text(text, encoding="utf-8")
    module = spy.Module.load_from_file(device, folder / "main.slang")
    form = Form("", "", "", (V, K), lambda v, k: _sum(v, k) + k * v)
    if backend_name.startswith("rhi"):
        with pytest.raises(spy.UnsupportedError, match="compiles included files by itself"):
            compare(device, module, form)
    else:
        compare(device, module, form)


@sampled(1)
def test_files_that_use_what_includes_them(device: spy.Device, backend_name: str, folder: Path) -> None:
    """A file knows structs, functions and macros of the file that includes it."""
    (folder / "rays.slangh").write_text(
        "[Differentiable] float dimmed(Ray ray, int n)\n{\n    float x = ray.origin[n % 3];\n    bend(x);\n"
        "    float r = 1;\n    REPEAT(2) r = r * x;\n    return r * ray.origin[2];\n}\n"
    )
    text = "struct Ray : IDifferentiable { float3 origin; float3 way; }\n#define REPEAT(N) "
    text += "[MaxIters(N)] for (int i = 0; i < N; ++i)\n[Differentiable] void bend(inout float x) { x = x * x; }\n"
    text += '#include "rays.slangh"\n[Differentiable] float f(float3 v, float k) '
    text += "{ return dimmed({v, v}, 5) + dimmed({v, v}, int(k)) * k; }\n"
    (folder / "main.slang").write_text(text, encoding="utf-8")
    module = spy.Module.load_from_file(device, folder / "main.slang")
    form = Form("", "", "", (V, K), lambda v, k: v[2] ** 5 + v[0] ** 4 * v[2] * k)
    if backend_name.startswith("rhi"):
        with pytest.raises(spy.UnsupportedError, match="compiles included files by itself"):
            compare(device, module, form)
    else:
        compare(device, module, form)


def test_messages_quote_the_users_lines(device: spy.Device) -> None:
    text = "[Differentiable] float3 f(float3 v, float k)\n{\n    return k * v + missing;\n}\n"
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(device, "quoted", text.replace("\n", " "))
    assert "_spy_" not in str(caught.value)
    assert "return k * v + missing" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "float f(float a) { return a; }",
        "float3 f(float3 v, float k) { return k * v; }",
        "[Differentiable] float f(float a, float b) { return sin(a) * b; }",
        "[Differentiable] float3 f(no_diff float3 v, no_diff float k) { return k * v; }",
        "[Differentiable] float3 f(const float3 v);",
        "// [Differentiable] float3 f(float3 v, float k) { return k * v; }",
    ],
)
def test_texts_that_need_nothing_stay(text: str) -> None:
    assert rebound(text) == text


def test_lines_keep_their_numbers() -> None:
    text = "[Differentiable] float3 f(\n    float3 v,\n    float k)\n{\n    return k * v;\n}\nint last;\n"
    assert rebound(text).splitlines().index("int last;") == text.splitlines().index("int last;")


def test_braces_that_the_preprocessor_chooses() -> None:
    """A function with a brace in each branch of an ``#if`` is left as it is, and the next one is read."""
    text = "[Differentiable] float3 f(float3 v, float k)\n{\n#if A\n    if (k > 0) {\n#else\n    {\n#endif\n"
    text += "    v = k * v; }\n    return v;\n}\n[Differentiable] float3 g(float3 v, float k) { return k * v; }\n"
    assert "_spy_same" in rebound(text).partition("float3 g")[2]


# A function with a backward derivative by hand and no forward one, and functions that call it in different ways.
BACKWARD = "void gb(inout DifferentialPair<float> p, float d) { p = diffPair(p.p, 3 * d); }\n"
FORWARD = "DifferentialPair<float> gf(DifferentialPair<float> p) { return diffPair(3 * p.p, 3 * p.d); }\n"
TRIPLE = "float g(float x) { return 3 * x; }\n"
TAKEN = "[Differentiable] float f(float k) { return g(k) * k; }\n"
HALF = f"{BACKWARD}[BackwardDerivative(gb)] {TRIPLE}"
BOX = "struct Box : IDifferentiable\n{\n    float v;\n"
TIMES = "[Differentiable] Box operator*(Box a, Box b) { Box r; r.v = g(a.v) * b.v; return r; }\n"
ONE_WAY = {
    "attribute": HALF + TAKEN,
    "attribute of the derivative": f"{TRIPLE}[BackwardDerivativeOf(g)] {BACKWARD}{TAKEN}",
    "the function itself": f"{BACKWARD}[BackwardDerivative(gb)] {TRIPLE.replace(' g(', ' f(')}",
    "overload": f"{HALF}[Differentiable] float2 g(float2 x) {{ return x; }}\n{TAKEN}",
    "macro of a function": f"{BACKWARD}#define M(N) [BackwardDerivative(gb)] float N(float x) {{ return 3 * x; }}\n"
    f"M(g)\n{TAKEN}",
    "macro that pastes a name": f"{BACKWARD}#define M(N) [BackwardDerivative(gb)] \\\n"
    f"    float N##One(float x) {{ return 3 * x; }}\nM(g)\n{TAKEN.replace('g(', 'gOne(')}",
    "macro of an attribute": f"{BACKWARD}#define A [BackwardDerivative(gb)]\nA {TRIPLE}{TAKEN}",
    "macro of a word": f"{BACKWARD}#define A BackwardDerivative\n[A(gb)] {TRIPLE}{TAKEN}",
    "macro of the device": f"{BACKWARD}[DEFINED(gb)] {TRIPLE}{TAKEN}",
    "macro of a call": f"{HALF}#define CALL(x) g(x)\n{TAKEN.replace('g(', 'CALL(')}",
    "macro of a caller": f"{HALF}#define M(N) [Differentiable] float N(float x) {{ return g(x); }}\nM(h)\n"
    f"{TAKEN.replace('g(', 'h(')}",
    "operator": f"{HALF}{BOX}}}\n{TIMES}[Differentiable] float f(float k) {{ Box b; b.v = k; return (b * b).v; }}",
    "operator of a field's type": f"{HALF}{BOX}}}\nstruct Pair : IDifferentiable {{ Box a; }}\n{TIMES}"
    "[Differentiable] float f(float k) { Pair p; p.a.v = k; return (p.a * p.a).v; }",
    "call operator": f"{HALF}{BOX}[Differentiable] float operator()(float x) {{ return g(x) * v; }}\n}}\n"
    "[Differentiable] float f(float k) { Box b; b.v = k; return b(k); }",
    "subscript": f"{HALF}{BOX}__subscript(int i)->float {{ [Differentiable] get {{ return g(v); }} }}\n}}\n"
    "[Differentiable] float f(float k) { Box b; b.v = k; return b[0]; }",
    "initializer": f"{HALF}{BOX}[Differentiable] __init(float x) {{ v = g(x); }}\n}}\n"
    "[Differentiable] float f(float k) { return Box(k).v; }",
}
SCOPES = f"""{HALF}{BOX}
    [Differentiable] float method(float x) {{ return g(x) * v; }}
    [Differentiable] static float fixed(float x) {{ return g(x); }}
    static void hb(inout DifferentialPair<float> p, float d) {{ p = diffPair(p.p, 3 * d); }}
    [BackwardDerivative(hb)] static float itself(float x) {{ return 3 * x; }}
}}
namespace Space {{ [Differentiable] float inside(float x) {{ return g(x); }} }}
[Differentiable] float generic<let N : int>(float x) {{ return g(x) * N; }}
"""
TWO_WAYS = {
    "attribute of a derivative": f"{HALF}[ForwardDerivativeOf(g)] {FORWARD}{TAKEN}",
    "two attributes": f"{BACKWARD}{FORWARD}[BackwardDerivative(gb)] [ForwardDerivative(gf)] {TRIPLE}{TAKEN}",
    "one attribute": f"{BACKWARD}{FORWARD}[BackwardDerivative(gb), ForwardDerivative(gf)] {TRIPLE}{TAKEN}",
    "by the compiler": f"{BACKWARD}[Differentiable] [BackwardDerivative(gb)] {TRIPLE}{TAKEN}",
    "beside the compiler's": f"[Differentiable] {TRIPLE}[BackwardDerivativeOf(g)] {BACKWARD}{TAKEN}",
    "an initializer that nothing calls": f"{HALF}{BOX}[Differentiable] __init(float x) {{ v = g(x); }}\n}}\n"
    "[Differentiable] float f(float k) { return 3 * k * k; }",
}


def forward(device: spy.Device, text: str) -> tuple[float, float]:
    """Return the value and the tangent by ``fwds`` at 0.5, in the direction 1."""
    module = spy.Module.load_from_source(device, "one_way", text, defines={"DEFINED": "BackwardDerivative"})
    x = spy.Tensor.from_numpy(device, np.array([0.5], np.float32))
    x = x.with_grads(grad_in=spy.Tensor.ones_like(x))
    result = module.f.fwds(x)
    return result.to_numpy()[0], result.grad_out.to_numpy()[0]


@one_device
@pytest.mark.parametrize("form", ONE_WAY)
def test_functions_without_a_forward_derivative(device: spy.Device, form: str) -> None:
    with pytest.raises(spy.CompileError, match=r"'\w+',? (?:which )?has a backward derivative alone"):
        forward(device, ONE_WAY[form])


@one_device
@pytest.mark.parametrize("name", ["Box.method", "Box.fixed", "Box.itself", "Space.inside", "generic<2>"])
def test_functions_in_scopes_without_a_forward_derivative(device: spy.Device, name: str) -> None:
    module = spy.Module.load_from_source(device, "one_way_scopes", SCOPES)
    x = spy.Tensor.from_numpy(device, np.array([0.5], np.float32)).with_grads(grad_in=spy.Tensor.zeros(device, 1))
    arguments = ({"v": 1.0}, x) if name == "Box.method" else (x,)
    with pytest.raises(spy.CompileError, match="has a backward derivative alone"):
        module[name].fwds(*arguments)


@one_device
@pytest.mark.parametrize("form", TWO_WAYS)
def test_functions_with_both_derivatives(device: spy.Device, form: str) -> None:
    assert forward(device, TWO_WAYS[form]) == (0.75, 3)


@one_device
@pytest.mark.parametrize(
    ("macro", "use", "right"),
    [
        ("M(N) [TreatAsDifferentiable] float N(float x) { return x * x; }", "M(g) M(h)", True),
        ("M(N) [TreatAsDifferentiable] float N", "M(g)(float x) { return x * x; }", True),
        ("A [TreatAsDifferentiable]", "A float g(float x) { return x * x; }", True),
        ("A TreatAsDifferentiable", "[A] float g(float x) { return x * x; }", True),
        ("A\n#undef A\n#define A [TreatAsDifferentiable]", "A float g(float x) { return x * x; }", False),
    ],
)
def test_treated_functions_of_macros(device: spy.Device, macro: str, use: str, right: bool) -> None:
    """Right, or refused by name: a derivative without the value of the function would be wrong."""
    module = spy.Module.load_from_source(device, "treated_by_macros", f"#define {macro}\n{use}\n{TAKEN}")
    x = spy.Tensor.from_numpy(device, np.array([0.5], np.float32)).with_grads()
    if right:
        module.f.bwds(x, _result=spy.diff_pair(None, spy.Tensor.ones_like(x)))
        assert x.grad.to_numpy()[0] == 0.25
    else:
        with pytest.raises(spy.CompileError, match=r"f calls 'g'.*or has the attribute from a macro"):
            module.f.bwds(x, _result=spy.diff_pair(None, spy.Tensor.ones_like(x)))


@one_device
def test_properties_of_macros_and_imported_files(device: spy.Device, tmp_path: Path) -> None:
    text = f"#define D [Differentiable]\npublic {BOX}    public property float p {{ D get {{ return v; }} }}\n}}\n"
    (tmp_path / "boxes.slang").write_text(text, encoding="utf-8")
    (tmp_path / "main.slang").write_text("import boxes;\n", encoding="utf-8")
    with pytest.raises(spy.CompileError, match=r"boxes\.slang:5: the property 'p' has a \[Differentiable\] accessor"):
        spy.Module.load_from_file(device, tmp_path / "main.slang")


@one_device
def test_macros_with_names_of_added_functions(device: spy.Device) -> None:
    names = ("T", "N", "M", "x", "a", "b", "r", "i", "number", "made", "slope")
    text = "".join(f"#define {name} 3\n" for name in names)
    text += (
        "uniform float gains[2];\n[Differentiable] float2 f(float2 v, float k) { return k * fmod(v, 2) + gains[1]; }"
    )
    module = spy.Module.load_from_source(device, "short_names", text)
    k = spy.Tensor.from_numpy(device, np.array([2.5], np.float32)).with_grads()
    up = spy.Tensor.from_numpy(device, np.array([[1, 1]], np.float32), "float2")
    module.f.set(gains=[1.0, 2.0]).bwds(spy.float2(2.5, 0.5), k, _result=spy.diff_pair(None, up))
    assert k.grad.to_numpy()[0] == 1
