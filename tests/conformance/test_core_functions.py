"""Functions of the user's with the names and the very parameters of functions of Slang's that are not generic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.slang.core_functions import FUNCTIONS
from tests.depth import one_device, sampled

# By name: parameters, arguments. All return 7; one that is used by another function of the module too.
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "asuint": ("float x", (1.5,)), "asint": ("float x", (1.5,)), "asfloat": ("uint x", (3,)),
    "f16tof32": ("uint x", (3,)), "f32tof16": ("float x", (1.5,)), "asfloat16": ("uint16_t x", (3,)),
    "dst": ("float4 a, float4 b", (spy.float4(1, 2, 3, 4),) * 2), "or": ("bool a, bool b", (True, False)),
    "and": ("bool a, bool b", (True, False)), "select": ("bool a, int b, int c", (True, 1, 2)),
    "msad4": ("uint a, uint2 b, uint4 c", (1, spy.uint2(1, 2), spy.uint4(1, 2, 3, 4))),
    "packHalf2x16": ("float2 v", (spy.float2(1, 2),)), "unpackUnorm4x8ToFloat": ("uint x", (3,)),
    "packUint4x8": ("uint4 v", (spy.uint4(1, 2, 3, 4),)), "dot4add_u8packed": ("uint a, uint b, uint c", (1, 2, 3)),
    "WaveGetLaneIndex": ("", ()), "WaveActiveAnyTrue": ("bool x", (True,)), "DispatchRaysIndex": ("", ()),
    "lit": ("float a, float b, float c", (1.0, 2.0, 3.0)), "cudaThreadIdx": ("", ()), "RayTMin": ("", ()),
}  # fmt: skip


@sampled(10)
@pytest.mark.parametrize("name", CASES)
def test_the_user_s_function_is_called(device: spy.Device, name: str) -> None:
    parameters, arguments = CASES[name]
    if "16_t" in parameters and "int16_t" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no 16-bit integers")
    text = f"/// Seven.\nint {name}({parameters}) {{ return 7; }}\nint {name}(float3x3 m) {{ return 8; }}\n"
    passed = ", ".join(part.split()[1] for part in parameters.split(", ") if part)
    text += f"int other({parameters}) {{ return {name}({passed}) + 1; }}\n"
    module = spy.Module.load_from_source(device, f"own_{name}", text)
    assert name in FUNCTIONS
    assert module[name](*arguments) == 7
    assert module[name](np.eye(3, dtype="f4")) == 8
    assert module.other(*arguments) == 8
    assert "Seven." in (module[name].__doc__ or "")


@one_device
def test_where_they_stand(device: spy.Device) -> None:
    text = """
#if 0
uint asuint(float x) { return 1; }
#endif
struct S { float a; uint asuint(float x) { return 3; } };
namespace n { uint asuint(float x) { return 4; } }
uint f(float x) { return asuint(x); }
uint g(float x) { S s; return s.asuint(x) + n.asuint(x); }
"""
    module = spy.Module.load_from_source(device, "places", text)
    assert module.f(1.0) == np.float32(1).view("u4") and module.g(1.0) == 7 and module["n.asuint"](1.0) == 4


def test_gradients_and_diagnostics(device: spy.Device) -> None:
    text = "[Differentiable] float f16tof32(uint k, float x) { return k * x * x; }"
    text += " [Differentiable]\n  float asfloat(float x) { return 3 * x; }"
    module = spy.Module.load_from_source(device, "slopes_of_core", text)
    x = spy.Tensor.from_numpy(device, np.array([1, 2], "f4")).with_grads()
    module.asfloat.bwds(x, _result=spy.Tensor.empty_like(x).with_grads(grad_in=spy.Tensor.ones_like(x)))
    assert np.array_equal(x.grad.numpy(), [3, 3])
    with pytest.raises(spy.CompileError, match=r"wrong.slang:3:33"):
        spy.Module.load_from_source(device, "wrong", "\n\n  uint asuint(float x) { return missing; }")


@one_device
def test_one_of_an_imported_file_is_refused_by_name(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "with_asuint.slang").write_text("uint asuint(float x) { return 3; }\n")
    path = tmp_path / "user_of_asuint.slang"
    path.write_text("import with_asuint;\nfloat f(float x) { return x; }\n")
    module = spy.Module.load_from_file(device, str(path))
    assert module.f(2.0) == 2
    with pytest.raises(spy.CompileError, match=r"(?s)'asuint' is a function of Slang's own too.*Rename it"):
        module.asuint(1.0)


@one_device
def test_declared_before_it_is_defined(device: spy.Device) -> None:
    text = "float foo(float x);\nuint asuint(float x);\nfloat g(float x) { return foo(x) + asuint(x); }\n"
    text += "float foo(float x) { return 3; }\nuint asuint(float x) { return 4; }\n"
    module = spy.Module.load_from_source(device, "declared_before", text)
    assert module.g(1.0) == 7 and module.foo(1.0) == 3 and module.asuint(1.0) == 4


def test_ties_are_rounded_to_even(device: spy.Device) -> None:
    if device.name == "rhi-cuda":
        pytest.skip("slang-rhi compiles CUDA by itself, whose round takes ties away from zero")
    text = "float one(float x) { return round(x); }\nfloat3 three(float3 x) { return round(x); }\n"
    text += "float also(float x) { return rint(x); }\n"
    module = spy.Module.load_from_source(device, "ties", text)
    values = np.array([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997, 8388607.5, 1e30, -1e-30], "f4")
    for found in (module.one(values), module.three(values.reshape(4, 3)).ravel(), module.also(values)):
        np.testing.assert_array_equal(found, np.round(values))
    if "double" in device.caps.scalars and device.backend.target.format != "hlsl":
        wide = spy.Module.load_from_source(device, "wide_ties", "double one(double x) { return round(x); }")
        more = np.array([-2.5, 0.5, 1.5, 0.49999999999999994, 4503599627370495.5, 1e300])
        np.testing.assert_array_equal(wide.one(more), np.round(more))
