"""Names of users that kernels and our shaders could meet: each identifier there, declared in every way there is.

A module declares them all at once and computes with each; NumPy says what comes out. What is ours alone begins with
``_spy_``: those are declared without it too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _declared_names import (
    KINDS,
    X,
    check,
    joined,
    weight,
)
from slangpy_rt_codegen.names import is_taken

import slangpy_rt as spy
from tests.depth import one_device, one_in, sampled

# What these test does not depend on the device.
pytestmark = one_device

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    path.read_text("utf-8") for folder in ("tests/golden", "shaders") for path in (ROOT / folder).glob("*.slang")
]
# Raw strings hold C++ and PTX.
_NOT_CODE = re.compile(r'R"\(.*?\)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
FOUND = sorted({name for text in TEXTS for name in re.findall(r"\b[A-Za-z_]\w*", _NOT_CODE.sub(" ", text))})
OURS = [name for name in FOUND if name.startswith("_spy_")]

# Words that the modules below, or any, are written with: with another meaning they are not read at all.
WORDS = frozenset(
    re.findall(
        r"\w+",
        "bool break bwd_diff case const constexpr continue default each else enum expand export extern false float "
        "for func fwd_diff get if import in inout int interface internal let module namespace new no_diff operator "
        "out property public return set static struct switch sizeof this throws true try typealias uniform var void "
        "while where This "
        "associatedtype extension optional nonuniform spirv_asm f do groupshared indices shared volatile sample",
    )
)

# Those of kernels, and those of shaders too.
EMITTED = frozenset(
    name.removeprefix("_spy_")
    for path in (ROOT / "tests/golden").glob("*.slang")
    for name in re.findall(r"\b[A-Za-z_]\w*", _NOT_CODE.sub(" ", path.read_text("utf-8")))
)
NAMES = sorted(n for n in {name.removeprefix("_spy_") for name in FOUND} - WORDS if n and not n.startswith("__"))


@sampled(27)
@pytest.mark.parametrize("kind", one_in(4, KINDS))
def test_every_identifier_as(device: spy.Device, kind: str, request: pytest.FixtureRequest) -> None:
    # What is an argument of its own takes long in such numbers.
    used = NAMES if request.config.getoption("--long") else [n for n in NAMES if n in EMITTED]
    check(device, kind, NAMES, used, f"every_{kind}")


def test_every_identifier_as_the_function_that_is_called(device: spy.Device, request: pytest.FixtureRequest) -> None:
    few = ("element", "run", "kernel", "call", "i", "k", "index", "load", "primal", "address", "count", "p_a", "v_x")
    names = [n for n in NAMES if request.config.getoption("--long") or n in few]
    # Slang has functions of these names that take a float, and takes neither for the better one.
    names = [n for n in names if not is_taken(n) and n not in ("asfloat", "asuint")]
    text = joined(names, "float NAME(float a) { return a * WEIGHT; }\n")
    module = spy.Module.load_from_source(device, "called", text)
    for name in names:
        np.testing.assert_array_equal(module[name](X), X * weight(name), name)


def test_names_that_end_or_hold_underscores(device: spy.Device) -> None:
    names = [
        "_S",
        "_Scale",
        "__S",
        "_S1",
        "é",
        "λ_",
        "変数",
        "gain_",
        "a__b",
        "_a",
        "__x",
        "x__",
        "k_0",
        "a_1_",
        "__global__",
        "gain",
        "a_b",
        "_",
        "__",
    ]
    check(device, "uniforms", names, names, "underscored_uniforms")
    check(device, "statics", names, names, "underscored_statics")
    check(device, "parameters", names, names, "underscored_parameters")
    check(device, "fields", names, names, "underscored_fields")


@sampled(5)
@pytest.mark.parametrize(
    "kind", ["uniforms", "functions", "parameters", "fields", "structs", "methods", "namespaces"]
)
def test_names_of_c_and_cuda(device: spy.Device, kind: str) -> None:
    words = (
        "NULL assert linux unix template printf warpSize threadIdx blockIdx M_PI I class_ register auto delete errno "
        "stdin EOF INFINITY NAN main signed unsigned long short char friend mutable typename wchar_t and or not xor "
        "FixedArray Vector Matrix globalParams KernelContext float2 make_float2 SLANG_PRELUDE_EXPORT F32_sin memcpy "
        "abs"
    )
    names = [n for n in words.split() if not (n == "float2" and kind in ("functions", "structs"))]
    names = [n for n in names if (n, kind) != ("abs", "functions")]
    check(device, kind, names, names, f"c_{kind}")


def test_names_that_are_macros_of_c_with_a_number(device: spy.Device) -> None:
    parts = [
        f"struct S{k} {{ int M_PI; int M_SQRT1; }}\n"
        f"int g{k}(int M_PI) {{ S{k} s = {{ M_PI, M_PI + {k} }}; return s.M_PI + s.M_SQRT1; }}\n"
        for k in range(6)
    ]
    calls = " + ".join(f"g{k}(a)" for k in range(6))
    module = spy.Module.load_from_source(device, "c_macros", f"{''.join(parts)}int f(int a) {{ return {calls}; }}")
    assert module.f(3) == sum(3 + 3 + k for k in range(6))


def test_members_of_the_block_are_kept_apart(device: spy.Device) -> None:
    text = (
        "struct P { float b; }\nfloat f(P a, float a_b, float count, float row, float step, float shape, float v_a, "
    )
    text += (
        "float stride_v, float v, float this_) { return a.b + 2 * a_b + 3 * count + 4 * row + 5 * step + 6 * shape + "
    )
    text += "7 * v_a + 8 * stride_v + 9 * v + 10 * this_; }\n"
    text += "float g(float2 u, float u_0, float u_1, float _0_u) { return u_0 + 10 * u_1 + 100 * _0_u; }\n"
    text += "float h(float u1, float x_u1) { return u1 - x_u1; }\n"
    module = spy.Module.load_from_source(device, "members", text)
    square = np.add.outer(np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32) / 8)
    given = [square.T * k for k in range(1, 11)]
    expected = sum(k * g for k, g in enumerate(given, 1))
    np.testing.assert_allclose(module.f({"b": given[0]}, *given[1:]), expected, rtol=1e-6)
    np.testing.assert_array_equal(module.g(spy.rand_float(), X, X, X), 111 * X)
    np.testing.assert_array_equal(module.h(X, 3 * X), -2 * X)
    x = spy.Tensor.from_numpy(device, X).with_grads()
    text = "struct P : IDifferentiable { float x; }\n[Differentiable] float f(P a, float a_x, float a_x_grad_out) "
    module = spy.Module.load_from_source(device, "dual", text + "{ return a.x * a_x * a_x_grad_out; }")
    seen = spy.Tensor.empty_like(x).with_grads(grad_in=spy.Tensor.ones_like(x))
    module.f.bwds({"x": x}, spy.Tensor.from_numpy(device, X), 3.0, _result=seen)
    np.testing.assert_array_equal(x.grad.to_numpy(), 3 * X)


# Words with which Slang begins a statement or an expression, and which it takes for names all the same.
WORDS = (
    "break", "case", "class", "continue", "default", "defer", "discard", "do", "enum", "switch", "throw", "try",
    "typealias", "typedef", "while", "__target_switch", "__stage_switch", "__intrinsic_asm", "__GPU_FOREACH",
    "no_diff", "spirv_asm",
)  # fmt: skip


@pytest.mark.parametrize("hides", ["", "struct float3 { float v; };\n"], ids=["plain", "hides"])
def test_uniforms_called_as_words_of_slang(device: spy.Device, hides: str) -> None:
    names = [name for name in WORDS if name not in ("no_diff", "spirv_asm")]
    text = hides + "".join(f"uniform float {name};\n" for name in names)
    terms = " + ".join(f"{k + 1} * ({name})" for k, name in enumerate(names))
    module = spy.Module.load_from_source(
        device,
        "words",
        f"{text}struct P {{ float a; }}\nuniform P do_;\n"
        f"[Differentiable] float f(float x) {{ return x * ({terms} + do_.a); }}\n",
    )
    values = {name: float(k) for k, name in enumerate(names)} | {"do_": {"a": 7.0}}
    expected = sum((k + 1) * k for k in range(len(names))) + 7
    assert module.f.set(values)(2.0) == 2 * expected
    pair = spy.diff_pair(2.0)
    module.f.set(values).bwds(pair, _result=spy.diff_pair(None, 1.0))
    assert pair.grad == expected


@pytest.mark.parametrize("word", one_in(7, WORDS))
def test_functions_called_as_words_of_slang(device: spy.Device, word: str) -> None:
    """``while(a);`` would be a loop without a body, and the function would not be called."""
    where = f"word_{word}"
    if word not in ("no_diff", "spirv_asm"):  # refused by name: test_names_of_slang.py
        module = spy.Module.load_from_source(
            device, where, f"[Differentiable] void {word}(inout float a) {{ a *= 3; }}"
        )
        x = spy.Tensor.from_numpy(device, X.copy())
        module[word](x)
        np.testing.assert_array_equal(x.numpy(), 3 * X)
        text = f"void {word}(uint3 at : SV_DispatchThreadID, RWTensor<float, 1> a) {{ a[at.x] = 2; }}"
        text = f"import slangpy_rt;\n[numthreads(4, 1, 1)] {text}"
        module = spy.Module.load_from_source(device, f"{where}_raw", text)
        module[word].dispatch((4, 1, 1), a=x)
        np.testing.assert_array_equal(x.numpy(), np.full(4, 2))
    text = f"namespace {word} {{ uniform float gain; void f(float a, out float b) {{ b = a * gain; }} }}"
    module = spy.Module.load_from_source(device, f"{where}_space", text)
    x = spy.Tensor.zeros(device, (4,), "float")
    module[f"{word}.f"].set({f"{word}.gain": 5.0})(X, x)
    np.testing.assert_array_equal(x.numpy(), 5 * X)


def test_uniforms_that_were_locals_of_kernels(device: spy.Device) -> None:
    text = "uniform int i; uniform float p_a; uniform float k, index, call, value;\n"
    text += "void f(inout float a, float b) { a = a * p_a + b + i + k + index + call + value; }\n"
    module = spy.Module.load_from_source(device, "locals", text)
    many = np.arange(64, dtype=np.float32)
    to = spy.Tensor.from_numpy(device, many)
    values = {"i": 2_000_000_000, "p_a": 2.0, "k": 1.0, "index": 2.0, "call": 3.0, "value": 4.0}
    module.f.set(values)(to, spy.Tensor.from_numpy(device, many))
    np.testing.assert_allclose(to.to_numpy(), 3 * many + 2e9 + 10, rtol=1e-6)


@sampled(5)
@pytest.mark.parametrize("name", ["main", "kernel", "run", "element", "raw"])
def test_raw_kernels(device: spy.Device, name: str) -> None:
    text = (
        'uniform uint3 thread; uniform uint local; uniform uint group;\n[shader("compute")] [numthreads(4, 1, 1)]\n'
    )
    text += f"void {name}(uint3 t : SV_DispatchThreadID, uint3 l : SV_GroupThreadID, RWTensor<float, 1> to)\n"
    text += "{ if (t.x < 5) to[t.x] = t.x + 10 * l.x + 100 * local + 1000 * thread.y + 10000 * group; }\n"
    module = spy.Module.load_from_source(device, f"raw_{name}", text)
    to = spy.Tensor.zeros(device, 5)
    module[name].set(thread=[1, 2, 3], local=4, group=5).dispatch(5, to)
    at = np.arange(5)
    np.testing.assert_array_equal(to.to_numpy(), at + 10 * (at % 4) + 52400)


DEFINES: tuple[dict[str, Any], ...] = (
    {"N": 4, "T": "float", "S": "double", "R": 2, "C": 3},
    {"load": "x", "i": 3, "value": 7, "at": "there", "data": 1, "view": 2, "index": 0, "shape": 5, "stride": 6},
    {
        "uint": "int",
        "let": "var",
        "public": "internal",
        "vector": "matrix",
        "Tensor": "RWTensor",
        "POINTER": 1,
        "AT": 2,
    },
    {"call": 1, "run": 2, "kernel": 3, "element": 4, "v_x": 5, "count": 6, "struct": "class", "import": "export"},
)


@sampled(6)
@pytest.mark.parametrize("defines", one_in(2, DEFINES), ids=lambda d: next(iter(d)))
def test_macros_are_for_the_users_files(device: spy.Device, defines: dict[str, Any], tmp_path: Path) -> None:
    # The names may not stand in the module itself, where they are meant to be something else.
    text = "float f(float x) { return x + MORE; }\n[Differentiable] float g(float x) { return x * x; }"
    module = spy.Module.load_from_source(device, "defined", text, defines={**defines, "MORE": 3})
    np.testing.assert_array_equal(module.f(X), X + 3)
    np.testing.assert_array_equal(module.f(X.reshape(2, 2)), X.reshape(2, 2) + 3)
    x = spy.Tensor.from_numpy(device, X).with_grads()
    seen = spy.Tensor.empty_like(x).with_grads(grad_in=spy.Tensor.ones_like(x))
    module.g.bwds(x, _result=seen)
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * X)
    if "import" in defines or "Tensor" in defines:
        return
    # They reach what the module imports and includes, and leave alone what it has of ours.
    (tmp_path / "inner.slang").write_text("float inner(float x) { return x * MORE; }")
    (tmp_path / "outer.slang").write_text(
        "import slangpy_rt;\nimport inner;\nfloat f(Tensor<float, 1> t, int k) { return inner(t[k]) + MORE; }"
    )
    module = spy.Module.load_from_file(device, tmp_path / "outer.slang", defines={**defines, "MORE": 3})
    np.testing.assert_array_equal(module.f(X, np.arange(4, dtype=np.int32)), 3 * X + 3)


def test_every_name_in_kernels_is_ours_slangs_or_the_users() -> None:
    # Members of the argument block are found behind a dot alone.
    users = {"golden", "slangpy_rt", "Light", "Ray", "forward"}
    users |= {"add", "shade", "apply", "choose", "total", "invert", "invert3", "mean", "decay", "blur", "scatter",
              "step", "mul", "scale", "grow", "shine", "dim", "pick", "put", "square", "tint"}  # fmt: skip
    slangs = set(
        re.findall(
            r"\w+",
            "Array ConstantBuffer DiffTensor Differentiable DifferentialPair ForceUnroll RWTensor "
            "SV_DispatchThreadID SV_GroupThreadID Tensor WDiffTensor __extern_cpp bool bool3 bwd_diff detach "
            "diffPair double else export float float2x2 float3 float3x3 for fwd_diff half half3 if import inout int "
            "int16_t int2 int64_t max min no_diff numthreads out return shader struct uint uint16_t uint3 uint64_t "
            "uint8_t uniform vector void",
        )
    )
    for path in (ROOT / "tests/golden").glob("*.slang"):
        text = _NOT_CODE.sub(" ", path.read_text("utf-8"))
        block = re.search(r"struct _spy_Call\n\{\n(.*?)\}", text, re.S)
        assert block is not None
        members = set(re.findall(r"(\w+)(?:\[\d\])?;", block[1]))
        assert all(re.fullmatch(r"count|row|step|shape|(?:v|shape|stride|step)_\w+", m) for m in members)
        text = text.replace(block[0], "")
        loose = {n for n in re.findall(r"(?<![\w.>])[A-Za-z_]\w*", text) if not n.startswith("_spy_")}
        assert loose <= users | slangs, path.name
