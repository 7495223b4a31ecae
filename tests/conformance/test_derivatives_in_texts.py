"""Derivatives that users' texts take: those that Slang gets wrong are refused, and the others are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _slangtorch import Files, files

import slangpy_rt as spy
from tests.depth import every_case

__all__ = ["files"]  # the fixture

# Functions whose derivatives are refused, their derivative, and words of the message.
WRONG: dict[str, tuple[str, str, str]] = {
    "a struct without derivatives": (
        "struct P { float x; float y; }\n[Differentiable] float f(float a) { P p = { a, a * a }; return p.x + p.y; }",
        "bwd",
        "f builds a 'P'",
    ),
    "behind another function": (
        "struct P { float x; float y; }\n[Differentiable] float g(float a) { P p = P(a, a * a); return p.x + p.y; }\n"
        "[Differentiable] float f(float a) { return g(a) * 2; }",
        "fwd",
        "g builds a 'P'",
    ),
    "a case that goes on": (
        "[Differentiable] float f(float a) { float r = a; switch (int(a)) { case 0: r = r * a; case 1: r = r * 2; "
        "break; default: break; } return r; }",
        "bwd",
        "a case of the switch goes on",
    ),
    "loops of unknown numbers": (
        "static const int COUNT = 2;\n[Differentiable] float f(float a) { float r = 1; [MaxIters(5)] "
        "for (int i = 0; i < 5; ++i) for (int j = 0; j < COUNT; j += COUNT - 1) r = sin(r * a); return r; }",
        "bwd",
        "the inner loop has no [MaxIters]",
    ),
    "no forward derivative": (
        "[BackwardDerivative(dg)] float g(float a) { return a * a; }\n"
        "void dg(inout DifferentialPair<float> a, float b) { a = diffPair(a.p, 2 * a.p * b); }\n"
        "[Differentiable] float f(float a) { return g(a); }",
        "fwd",
        "f calls 'g', which has a backward derivative alone",
    ),
}
TAKEN = {
    "bwd": "var d = diffPair(a); bwd_diff(f)(d, 1.0); return d.d;",
    "fwd": "return fwd_diff(f)(diffPair(a, 1.0)).d;",
}
WAYS = {
    "a function": "float taken(float a) {{ {0} }}",
    "through another function": "float inner(float a) {{ {0} }} float taken(float a) {{ return inner(a); }}",
    "a method": "struct S {{ float m(float a) {{ {0} }} }};\nfloat taken(float a) {{ S s; return s.m(a); }}",
    "an initializer": "struct S {{ float k; __init(float a) {{ k = this.of(a); }} float of(float a) {{ {0} }} }};\n"
    "float taken(float a) {{ S s = S(a); return s.k; }}",
    "a macro": "#define TAKE(a) {0}\nfloat taken(float a) {{ TAKE(a) }}",
}


def load(device: spy.Device, name: str, text: str) -> Any:
    return spy.Module.load_from_source(device, f"test_derivatives_in_texts_{name}", text)


@every_case
@pytest.mark.parametrize("name", WRONG)
def test_wrong_derivatives_are_refused(device: spy.Device, name: str) -> None:
    text, kind, words = WRONG[name]
    module = load(
        device, "wrong", f"{text}\nfloat taken(float a) {{ {TAKEN[kind]} }}\nfloat other(float a) {{ return 2 * a; }}"
    )
    with pytest.raises(spy.CompileError) as caught:
        module.taken(np.ones(3, np.float32))
    assert words in str(caught.value)
    # A kernel that does not take the derivative runs.
    assert module.other(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    # The loop, the switch and the function with one derivative are wrong in one direction.
    other = "fwd" if kind == "bwd" else "bwd"
    both = load(device, "both", f"{text}\nfloat taken(float a) {{ {TAKEN[other]} }}")
    values = np.array([2.5], np.float32)
    if "builds" in words:
        with pytest.raises(spy.CompileError, match="builds a 'P'"):
            both.taken(values)
    else:
        call = load(device, "value", text).f
        step = np.float32(2**-9)
        slope = (call(values + step) - call(values - step)) / (2 * step)
        np.testing.assert_allclose(both.taken(values), slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_take_a_derivative(device: spy.Device, way: str) -> None:
    text, kind, words = WRONG["a struct without derivatives"]
    for head, wrong in ((text, True), (text.replace("struct P {", "struct P : IDifferentiable {"), False)):
        module = load(device, "ways", f"{head}\n{WAYS[way].format(TAKEN[kind])}")
        values = np.array([0.5, 2, 3], np.float32)
        if wrong:
            with pytest.raises(spy.CompileError) as caught:
                module.taken(values)
            assert words in str(caught.value)
        else:
            np.testing.assert_allclose(module.taken(values), 1 + 2 * values, rtol=1e-6)


def test_an_imported_file_takes_the_derivative(device: spy.Device, tmp_path: Path) -> None:
    text, kind, words = WRONG["a struct without derivatives"]
    (tmp_path / "taking.slang").write_text(f"{text}\nfloat inner(float a) {{ {TAKEN[kind]} }}")
    (tmp_path / "user.slang").write_text("import taking; float taken(float a) { return inner(a); }")
    module: Any = spy.Module.load_from_file(device, tmp_path / "user.slang")
    with pytest.raises(spy.CompileError) as caught:
        module.taken(np.ones(3, np.float32))
    assert words in str(caught.value) and "taking.slang:2" in str(caught.value)


def test_a_kernel_with_an_entry_point(device: spy.Device) -> None:
    text, kind, words = WRONG["a struct without derivatives"]
    taken = f"float taken(float a) {{ {TAKEN[kind]} }}"
    head = "[numthreads(32, 1, 1)] void fill(uint3 at : SV_DispatchThreadID, RWTensor<float, 1> x)"
    module = load(device, "entry", f"import slangpy_rt;\n{text}\n{taken}\n{head} {{ x[at.x] = taken(2); }}")
    with pytest.raises(spy.CompileError) as caught:
        module.fill.dispatch(32, x=spy.Tensor.zeros(device, (32,), "float"))
    assert words in str(caught.value)


def test_kernels_of_slang_torch(files: Files) -> None:
    text, kind, words = WRONG["a struct without derivatives"]
    kernel = (
        "[AutoPyBindCUDA] [CUDAKernel] void fill(TensorView<float> x) "
        "{ uint i = cudaThreadIdx().x; if (i < x.size(0)) x[i] = taken(x[i]); }"
    )
    size = {"blockSize": (4, 1, 1), "gridSize": (1, 1, 1)}
    for head, wrong in ((text, True), (text.replace("struct P {", "struct P : IDifferentiable {"), False)):
        module = files.load(f"{head}\nfloat taken(float a) {{ {TAKEN[kind]} }}\n{kernel}")
        x = files.on(torch.tensor([0.5, 1, 2, 3]))
        if wrong:
            with pytest.raises(Exception) as caught:
                module.fill(x=x).launchRaw(**size)
            assert words in str(caught.value)
        else:
            module.fill(x=x).launchRaw(**size)
            assert torch.allclose(x.cpu(), 1 + 2 * torch.tensor([0.5, 1, 2, 3]))
