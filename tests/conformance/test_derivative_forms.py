"""Derivatives of forms of functions that Slang's compiler gets wrong by itself: right, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.slang.corrections.rebinding import rebound
from tests.conformance._derivative_forms import FORMS, Form, K, V, slope
from tests.depth import sampled


def compare(device: spy.Device, module: spy.Module, form: Form) -> None:
    """Compare the call, `bwds` and `fwds` of the module's `f` with NumPy."""
    f = module.f
    names = {0: "float", 1: "float{}"}
    arguments = [
        spy.Tensor.from_numpy(device, np.float32(a)[None], names[a.ndim].format(a.size)).with_grads()
        for a in form.arguments
    ]
    value = np.asarray(form.same(*form.arguments))
    np.testing.assert_allclose(f(*arguments).to_numpy()[0], value, rtol=1e-5, atol=1e-6)
    seed = np.linspace(0.5, 1.5, value.size).reshape(value.shape)
    upstream = spy.Tensor.from_numpy(device, np.float32(seed)[None], f.return_type_name)
    f.bwds(*arguments, _result=spy.diff_pair(None, upstream))
    wanted = slope(form, seed)
    for argument, gradient in zip(arguments, wanted, strict=True):
        np.testing.assert_allclose(argument.grad.to_numpy()[0], gradient, rtol=2e-4, atol=2e-5)
    directions = [np.cos(np.arange(a.size) + at + 1.0).reshape(a.shape) for at, a in enumerate(form.arguments)]
    for argument, direction in zip(arguments, directions, strict=True):
        argument.grad_in.copy_from_numpy(np.float32(direction)[None])
    result = f.fwds(*arguments)
    np.testing.assert_allclose(result.to_numpy()[0], value, rtol=1e-5, atol=1e-6)
    tangent = np.sum(result.grad_out.to_numpy()[0] * seed)
    moved = sum(np.sum(g * d) for g, d in zip(wanted, directions, strict=True))
    np.testing.assert_allclose(tangent, moved, rtol=2e-4, atol=2e-5)


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
    return np.sin(k) ** 2 * v + k * w * v + w * v


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
