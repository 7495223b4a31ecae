"""Names of users that kernels and our shaders could meet: each identifier there, declared in every way there is.

A module declares them all at once and computes with each; NumPy says what comes out. What is ours alone begins with
``_spy_``: those are declared without it too, and with it they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slangpy_rt_codegen.names import is_taken

import slangpy_rt as spy
from tests.depth import every_device, one_device, one_in, sampled

# What these test does not depend on the device.
pytestmark = one_device

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    path.read_text("utf-8") for folder in ("tests/golden", "shaders") for path in (ROOT / folder).glob("*.slang")
]
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
FOUND = sorted({name for text in TEXTS for name in re.findall(r"\b[A-Za-z_]\w*", _NOT_CODE.sub(" ", text))})
OURS = [name for name in FOUND if name.startswith("_spy_")]
# Words that the modules below, or any, are written with: with another meaning they are not read at all.
WORDS = frozenset(
    re.findall(
        r"\w+",
        "bool break bwd_diff case const continue default each else enum expand export extern false float for func "
        "fwd_diff get if import in inout int interface internal let module namespace new no_diff operator out "
        "property public return set static struct switch sizeof this throws true try typealias uniform var void "
        "while where This "
        "associatedtype extension optional nonuniform spirv_asm f do groupshared indices shared volatile",
    )
)
# Those of kernels, and those of shaders too.
EMITTED = frozenset(
    name.removeprefix("_spy_")
    for path in (ROOT / "tests/golden").glob("*.slang")
    for name in re.findall(r"\b[A-Za-z_]\w*", _NOT_CODE.sub(" ", path.read_text("utf-8")))
)
NAMES = sorted(n for n in {name.removeprefix("_spy_") for name in FOUND} - WORDS if n and not n.startswith("__"))
# Slang's own names that kernels are written with, and what a user may well call so.
SLANGS = (
    "uint3", "vector", "Array", "min", "max", "diffPair", "int64_t", "uint", "DifferentialPair", "detach", "half",
)  # fmt: skip
# Functions of Slang's that take four numbers, its vectors, a type of float's own: the module would call those.
CALLED = frozenset({"InterlockedCompareExchange", "uint4", "float4", "Differential"})
X = np.arange(4, dtype=np.float32)
# Declarations and function, options of the call, its first arguments, and the names whose weights are added up.
Made = tuple[str, dict[str, Any], tuple[Any, ...], Sequence[str]]
Kind = Callable[[Sequence[str], Sequence[str]], Made]


def weight(name: str) -> int:
    return len(name) % 7 + 1


def weights(names: Sequence[str]) -> list[int]:
    return [weight(name) for name in names]


def function(head: str, sums: Sequence[str], parameters: str = "") -> str:
    """A function that adds up what the names stand for."""
    lines = "".join(f"    total_ += {term};\n" for term in sums)
    return f"{head}\nfloat f({parameters}float x_)\n{{\n    float total_ = x_;\n{lines}    return total_;\n}}\n"


def joined(names: Sequence[str], text: str) -> str:
    return "\n".join(text.replace("NAME", n).replace("WEIGHT", str(weight(n))) for n in names)


def uniforms(names: Sequence[str], used: Sequence[str]) -> Made:
    values = dict(zip(used, weights(used), strict=True))
    return function(joined(names, "uniform float NAME;"), used), {"set": values}, (), used


def statics(names: Sequence[str], used: Sequence[str]) -> Made:
    return function(joined(names, "static float NAME;"), [f"({n} = {weight(n)})" for n in names]), {}, (), names


def static_consts(names: Sequence[str], used: Sequence[str]) -> Made:
    return function(joined(names, "static const float NAME = WEIGHT;"), names), {}, (), names


def constants(names: Sequence[str], used: Sequence[str]) -> Made:
    values = dict(zip(names, weights(names), strict=True))
    return function(joined(names, "extern static const int NAME;"), names), {"constants": values}, (), names


def structs(names: Sequence[str], used: Sequence[str]) -> Made:
    parameters = "".join(f"{n} p{k}, " for k, n in enumerate(used))
    sums = [f"p{k}.v" for k in range(len(used))]
    text = function(joined(names, "struct NAME { float v; };"), sums, parameters)
    return text, {}, tuple({"v": float(w)} for w in weights(used)), used


def typealiases(names: Sequence[str], used: Sequence[str]) -> Made:
    parameters = "".join(f"{n} p{k}, " for k, n in enumerate(used))
    text = function(joined(names, "typealias NAME = float;"), [f"p{k}" for k in range(len(used))], parameters)
    return text, {}, tuple(map(float, weights(used))), used


def enums(names: Sequence[str], used: Sequence[str]) -> Made:
    parameters = "".join(f"{n} p{k}, " for k, n in enumerate(used))
    text = joined(names, "enum NAME { none, one = WEIGHT };")
    return function(text, [f"int(p{k})" for k in range(len(used))], parameters), {}, tuple(weights(used)), used


def interfaces(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "interface NAME { float value(); }; struct S_NAME : NAME { float value() { return WEIGHT; } };"
    return function(joined(names, text), [f"S_{n}().value()" for n in names]), {}, (), names


def functions(names: Sequence[str], used: Sequence[str]) -> Made:
    names = [n for n in names if n not in CALLED]
    text = joined(names, "float NAME(float a, int b, int c, int d) { return a * WEIGHT; }")
    return function(text, [f"{n}(1, 2, 3, 4)" for n in names]), {}, (), names


def parameters(names: Sequence[str], used: Sequence[str]) -> Made:
    used = [n for n in used if n not in ("_result", "out")]
    text = function("", used, "".join(f"float {n}, " for n in used))
    return text, {"named": {n: float(weight(n)) for n in used}}, (), used


def fields(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "struct S\n{\n" + joined(used, "    float NAME;") + "\n};"
    values = {n: float(weight(n)) for n in used}
    return function(text, [f"s.{n}" for n in used], "S s, "), {}, (values,), used


def elements(names: Sequence[str], used: Sequence[str]) -> Made:
    text, _, (values,), _ = fields(names, names)
    array = np.array([tuple(values.values())] * len(X), [(n, "f4") for n in names])
    return text, {}, (array,), names


def methods(names: Sequence[str], used: Sequence[str]) -> Made:
    text = (
        "struct S\n{\n    float v_;\n" + joined(names, "    float NAME(float a) { return v_ * WEIGHT * a; }") + "\n};"
    )
    return function(text, [f"s.{n}(1)" for n in names], "S s, "), {}, ({"v_": 1.0},), names


def generics(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "\n".join(
        f"int g{k}<let {n} : int>() {{ return {n}; }}\n{n} h{k}<{n}>({n} a) {{ return a; }}"
        for k, n in enumerate(names)
    )
    return function(text, [f"g{k}<{w}>() + h{k}(0.f)" for k, w in enumerate(weights(names))]), {}, (), names


def namespaces(names: Sequence[str], used: Sequence[str]) -> Made:
    text = joined(names, "namespace NAME { float value() { return WEIGHT; } }")
    return function(text, [f"{n}::value()" for n in names]), {}, (), names


def extensions(names: Sequence[str], used: Sequence[str]) -> Made:
    names = [n for n in names if n not in CALLED]
    text = "extension float\n{\n" + joined(names, "    static float NAME(float a) { return WEIGHT * a; }") + "\n}"
    return function(text, [f"float.{n}(1)" for n in names]), {}, (), names


def requirements(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "interface Mine\n{\n" + joined(names, "    static const int NAME;") + "\n}\nextension float : Mine\n{\n"
    text += (
        joined(names, "    static const int NAME = WEIGHT;")
        + "\n}\nfloat mine<T : Mine>(T x_)\n{\n    float y = 0;\n"
    )
    text += "".join(f"    y += T.{n};\n" for n in names) + "    return y;\n}\n"
    return text + "float f(float x_) { return x_ + mine(x_); }\n", {}, (), names


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        uniforms, statics, static_consts, constants, structs, typealiases, enums, interfaces, functions, parameters,
        fields, elements, methods, generics, namespaces, extensions, requirements,
    )
}  # fmt: skip


def check(device: spy.Device, kind: str, names: Sequence[str], used: Sequence[str], where: str) -> None:
    """Declare the names, call the function, and compare with the sum of the weights of those that it was given."""
    text, options, arguments, added = KINDS[kind](names, used)
    module = spy.Module.load_from_source(device, where, text, constants=options.get("constants"))
    call = module.f.set(options["set"]) if "set" in options else module.f
    found = call(*arguments, x_=X, **options.get("named", {}))
    np.testing.assert_array_equal(found, X + np.float32(sum(weights(added))))


@sampled(2)
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


# Slang reads a call of these as one of its own types, whose constructor it is.
CONSTRUCTORS = [
    "bool", "int", "uint", "half", "float", "double", "int8_t", "uint64_t", "float3", "int16_t2", "half4x4",
    "float16_t", "float32_t", "float64_t", "int32_t", "uint32_t", "intptr_t", "uintptr_t", "size_t", "usize_t",
    "ssize_t", "float16_t2", "int32_t2", "uint32_t3", "int8_t4_packed", "uint8_t4_packed", "String", "string",
    "BFloat16", "FloatE4M3", "FloatE5M2",
]  # fmt: skip
# These are types as well, and functions of such a name are called.
TYPES = [
    "vector", "matrix", "Array", "Optional", "Tuple", "Ptr", "Atomic", "NativeString", "DifferentialPair",
    "Texture2D", "CoopVec", "TensorView", "char", "dword", "short", "long", "min16float",
    "SamplerState", "DescriptorHandle", "Bits",
]  # fmt: skip


def test_functions_of_the_name_of_a_type_of_slang(device: spy.Device) -> None:
    for name in CONSTRUCTORS:
        module = spy.Module.load_from_source(device, f"own_{name}", f"int {name}(int a) {{ return a * 7; }}")
        with pytest.raises(spy.BindError) as caught:
            module[name](2)
        assert str(caught.value) == (
            f"int {name}(int a): Slang reads '{name}(...)' as its own '{name}'; rename the function."
        )
    module = spy.Module.load_from_source(device, "own_types", joined(TYPES, "float NAME(float a) { return a * 9; }"))
    for name in TYPES:
        np.testing.assert_array_equal(module[name](X), X * 9, name)


# Declarations that hide a name of Slang's from kernels, which then use another name for it.
HIDING = {
    "struct": "struct NAME { int q; };",
    "function": "float NAME(int a, float b, int c, float d, int e) { return a; }",
    "variable": "static float NAME;",
    "uniform": "uniform float NAME;",
    "interface": "interface NAME { };",
    "enum": "enum NAME { A };",
    "typealias": "typealias NAME = bool;",
    "namespace": "namespace NAME { float value() { return 1; } }",
}
USES = """
interface Any {}
struct Own : Any { float a; float b; };
struct Curve : IDifferentiable { float a; float b; };
float plus(float x, float y) { return x + y; }
float three(float3 v) { return v.x + 10 * v.y + 100 * v.z; }
float[3] spread(float x) { return { x, 2 * x, 3 * x }; }
Own both(float x) { Own own = { x, -x }; return own; }
float taken(Own own) { return own.a - own.b; }
[Differentiable] float curve(Curve c, float x) { return c.a * x * x + c.b; }
[numthreads(4, 1, 1)]
void raw(int t : SV_DispatchThreadID, int i : SV_GroupIndex, RWTensor<float, 1> to) { to[t] = 10 * t + i; }
"""


@sampled(3)
@pytest.mark.parametrize("kind", one_in(3, HIDING))
def test_names_of_slang_that_a_module_declares_anew(
    device: spy.Device, kind: str, request: pytest.FixtureRequest
) -> None:
    # A constructor of `min` would take the arguments of a call; of `detach` nobody writes one beside its gradient.
    names = [n for n in SLANGS if not (kind == "namespace" and n == "vector")]
    text = joined(names, HIDING[kind]) + USES
    module = spy.Module.load_from_source(device, f"hiding_{kind}", text)
    np.testing.assert_array_equal(module.plus(X, X), 2 * X)
    # The others differ in the module alone.
    if kind not in ("struct", "function", "uniform") and not request.config.getoption("--long"):
        return
    wide = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(module.plus(spy.Tensor.from_numpy(device, wide), 1.0).to_numpy(), wide + 1)
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(module.three(vectors), vectors @ [1, 10, 100])
    np.testing.assert_array_equal(module.spread(X), np.outer(X, [1, 2, 3]))
    own = module.both(X)
    np.testing.assert_array_equal(own["b"], -X)
    np.testing.assert_array_equal(module.taken(own), 2 * X)
    np.testing.assert_array_equal(module.plus(X.reshape(2, 2), X[:2]), X.reshape(2, 2) + X[:2])
    x = spy.Tensor.from_numpy(device, X).with_grads()
    a = spy.Tensor.from_numpy(device, X + 1).with_grads()
    seen = spy.Tensor.empty_like(x).with_grads(grad_in=spy.Tensor.ones_like(x))
    module.curve.bwds({"a": a, "b": 1.0}, x, _result=seen)
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * (X + 1) * X)
    np.testing.assert_array_equal(a.grad.to_numpy(), X * X)
    to = spy.Tensor.zeros(device, 8)
    module.raw.dispatch(8, to)
    np.testing.assert_array_equal(to.to_numpy(), [10 * k + k % 4 for k in range(8)])


def test_a_users_type_of_such_a_name_is_the_users(device: spy.Device) -> None:
    text = "struct uint3 { float a; float b; };\nfloat f(uint3 v, float3 w) { return v.a + 2 * v.b + w.x; }\n"
    text += "uint3 g(float x) { uint3 v = { x, 2 * x }; return v; }\nenum int64_t { no, yes };\n"
    text += "float h(int64_t which, float x) { return which == int64_t.yes ? x : -x; }\n"
    module = spy.Module.load_from_source(device, "own_types", text)
    made = module.g(X)
    np.testing.assert_array_equal(made["b"], 2 * X)
    np.testing.assert_array_equal(module.f(made, np.ones((4, 3), np.float32)), 5 * X + 1)
    np.testing.assert_array_equal(module.f({"a": 1.0, "b": X}, np.ones((4, 3), np.float32)), 2 * X + 2)
    np.testing.assert_array_equal(module.h("yes", X), X)
    text = "struct Tensor<T, let N : int> { T data[N]; };\n"
    text += "float f(Tensor<float, 2> t, float x) { return t.data[1] + x; }\n"
    text += "struct ByteAddressBuffer { float v; };\nfloat g(ByteAddressBuffer b, float x) { return b.v + x; }\n"
    text += "float printf(float x) { return -x; }\n"
    module = spy.Module.load_from_source(device, "own_containers", text)
    np.testing.assert_array_equal(module.f({"data": [1.0, 2.0]}, X), X + 2)
    np.testing.assert_array_equal(module.g({"v": 3.0}, X), X + 3)
    np.testing.assert_array_equal(module.printf(X), -X)


@pytest.mark.parametrize("name", ["half", "uint", "float4", "int2x3", "new"])
def test_a_function_that_nobody_can_call_is_refused(device: spy.Device, name: str) -> None:
    text = f"float {name}(float x) {{ return x + 0.1; }}"
    with pytest.raises(spy.BindError, match=rf"float {name}\(float x\): Slang reads '{name}\(...\)' as its own"):
        spy.Module.load_from_source(device, f"called_{name}", text)[name](X)


TAKEN = {
    "parameter": "float f(float NAME) { return NAME; }",
    "local": "float f(float x) { float NAME = x; return NAME; }",
    "uniform": "uniform float NAME; float f(float x) { return x; }",
    "field": "struct S { float NAME; }; float f(float x) { return x; }",
    "generic": "T f<T, let NAME : int>(T x) { return x; }",
    "constant": "extern static const int NAME; float f(float x) { return x; }",
    "macro": "#define NAME 1\nfloat f(float x) { return x; }",
    "function": "float NAME(float x) { return x; }",
    "method": "extension float { float NAME() { return 1; } }",
    "use": "import slangpy_rt; float f(float x) { return float.NAME(x); }",
}


@pytest.mark.parametrize("kind", TAKEN)
def test_who_takes_a_name_of_ours_is_told(device: spy.Device, kind: str) -> None:
    text = TAKEN[kind].replace("NAME", "_spy_load")
    with pytest.raises(spy.CompileError) as error:
        spy.Module.load_from_source(device, f"taken_{kind}", text)
    wanted = "'_spy_load' is a name of slangpy_rt's own, as all that begin with '_spy_' are; choose another."
    assert str(error.value) == f"taken_{kind}.slang: {wanted}"


def test_a_file_a_module_or_a_define_is_told_as_well(device: spy.Device, tmp_path: Path) -> None:
    says = "_spy_.* is a name of slangpy_rt's own"
    with pytest.raises(spy.CompileError, match=says):
        spy.Module.load_from_source(device, "_spy_mine", "float f(float x) { return x; }")
    with pytest.raises(spy.CompileError, match=says):
        spy.Module.load_from_source(device, "told", "float f(float x) { return x; }", defines={"_spy_load": 1})
    (tmp_path / "part.slang").write_text("float _spy_part(float x) { return x; }")
    (tmp_path / "whole.slang").write_text('#include "part.slang"\nfloat f(float x) { return x; }')
    with pytest.raises(spy.CompileError, match=r"part\.slang: '_spy_part' is a name"):
        spy.Module.load_from_file(device, tmp_path / "whole.slang")
    # What only reads so is no name: in a comment, in a string, inside a word.
    text = '// _spy_load\nfloat f(float x_spy_) { /* _spy_ */ printf("_spy_\\n"); return x_spy_; }'
    assert spy.Module.load_from_source(device, "not_told", text).f(1.0) == 1


@every_device
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


@sampled(3)
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


def test_uniforms_called_as_words_of_slang(device: spy.Device) -> None:
    names = "while switch break discard enum typealias typedef defer throw class do".split()  # noqa: SIM905
    text = "".join(f"uniform float {name};\n" for name in names)
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


@sampled(2)
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
    users = {"golden", "slangpy_rt", "Light"}
    users |= {"add", "shade", "apply", "choose", "total", "invert", "invert3", "mean", "decay", "blur", "scatter",
              "step", "mul", "scale", "grow", "shine", "dim", "pick", "put", "square"}  # fmt: skip
    slangs = set(
        re.findall(
            r"\w+",
            "Array ConstantBuffer DiffTensor Differentiable DifferentialPair ForceUnroll RWTensor "
            "SV_DispatchThreadID SV_GroupThreadID Tensor WDiffTensor __extern_cpp bool bool3 bwd_diff detach "
            "diffPair double else export float float3 float3x3 for fwd_diff half if import inout int int16_t "
            "int2 int64_t max min no_diff numthreads out shader struct uint uint16_t uint3 uint64_t uint8_t "
            "uniform vector void",
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


def test_a_folder_with_a_file_of_the_name_of_ours(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "_spy_library.slang").write_text("float f(float x) { return x; }")
    (tmp_path / "slangpy_rt.slang").write_text("// a user's\n")
    (tmp_path / "part.slang").write_text("float part(float x) { return x + 1; }")
    (tmp_path / "whole.slang").write_text("import part;\nfloat f(float x) { return 2 * part(x); }")
    np.testing.assert_array_equal(spy.Module.load_from_file(device, tmp_path / "whole.slang").f(X), 2 * (X + 1))
    np.testing.assert_array_equal(spy.Module.load_from_file(device, tmp_path / "_spy_library.slang").f(X), X)
    (tmp_path / "whole.slang").write_text("import _spy_library;\nfloat g(float x) { return f(x); }")
    with pytest.raises(spy.CompileError, match="'_spy_library' is a name of slangpy_rt's own"):
        spy.Module.load_from_file(device, tmp_path / "whole.slang")
