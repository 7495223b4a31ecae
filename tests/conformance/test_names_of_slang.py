"""Names of Slang's own that users declare anew, and names of ours, which users may not take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _declared_names import X, joined

import slangpy_rt as spy
from tests.depth import deep, one_device, one_in, sampled

# What these test does not depend on the device.
pytestmark = one_device

# Slang's own names that kernels are written with, and what a user may well call so.
SLANGS = (
    "uint3", "vector", "Array", "min", "max", "diffPair", "int64_t", "uint", "DifferentialPair", "detach", "half",
)  # fmt: skip

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


@deep
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


@sampled(9)
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


@pytest.mark.parametrize("name", ["half", "uint", "float4", "int2x3", "new", "no_diff", "spirv_asm"])
def test_a_function_that_nobody_can_call_is_refused(device: spy.Device, name: str) -> None:
    text = f"float {name}(float x) {{ return x + 0.1; }}"
    with pytest.raises(spy.BindError, match=rf"float {name}\(float x\): Slang reads '{name}\(...\)' as its own"):
        spy.Module.load_from_source(device, f"called_{name}", text)[name](X)


@pytest.mark.parametrize("word", one_in(2, ["break", "while", "case", "typedef"]))
def test_a_type_that_nobody_can_write_is_refused(device: spy.Device, word: str) -> None:
    module = spy.Module.load_from_source(
        device, f"type_{word}", f"struct {word} {{ int v; }}; void f(out {word} a) {{ }}"
    )
    with pytest.raises(spy.BindError) as caught:
        module.f(spy.ValueRef({"v": 1}))
    assert str(caught.value) == f"void f(out {word} a): Slang reads '{word}' as a word of its own; rename the type."


@pytest.mark.parametrize("name", ["shader", "ForceUnroll"])
def test_an_attribute_that_kernels_need_is_refused(device: spy.Device, name: str) -> None:
    text = f"[__AttributeUsage(_AttributeTargets.Function)] struct {name}Attribute {{ int x; }};\n"
    module = spy.Module.load_from_source(device, f"attribute_{name}", text + "float f(float x) { return x; }")
    with pytest.raises(spy.BindError, match=f"declares '{name}Attribute', a word of Slang's that the kernel needs"):
        module.f(X)


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
