"""Arrays of a thread that are too large for a device are refused in words before a driver compiles them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs

X, K = np.array([2.0, 3.0], np.float32), np.array([1, 7], np.int32)


@needs("SPIR-V")  # the C++ compiler and CUDA have their own limits
@needs("wide threads")  # the CPU compiles such functions as C++
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "array",
            "float f(float x, int k) { float a[65536][64]; a[k][k] = x; a[0][k] = 1; return a[k][k] + a[0][3]; }",
        ),
        (
            "structs",
            "struct Row { float4 v[512]; double d; }\n"
            "float f(float x, int k)"
            "{ Row a[80]; a[k].v[k].x = x; a[0].v[k].y = 1; return a[k].v[k].x + a[k].v[3].y; }",
        ),
        # Slang writes an array that nothing was written to as an undefined value.
        ("undefined", "float f(float x, int k) { float a[300000]; return k < 0 ? a[0] : x; }"),
    ],
)
def test_large_locals(device: spy.Device, name: str, text: str) -> None:
    module = spy.Module.load_from_source(device, f"large_{name}", text)
    with pytest.raises(spy.UnsupportedError, match=r"local variables of [\d,]+ bytes for each thread"):
        module.f(X, K)
    after = spy.Module.load_from_source(
        device, "large_after", "float g(float x) { float a[64]; a[5] = x; return a[5]; }"
    )
    np.testing.assert_array_equal(after.g(X), X)


def test_many_constants(device: spy.Device) -> None:
    values = ",".join(str(k % 100) for k in range(65600))
    text = f"static const int a[65600] = {{ {values} }};\nint f(int k) {{ return a[k]; }}"
    module = spy.Module.load_from_source(device, "many_constants", text)
    if device.backend.target.format == "spirv" and device.backend.range_target is None:
        with pytest.raises(spy.CompileError, match="holds at most 65,532 elements"):
            module.f(K)
    elif device.name == "d3d12" and sys.platform != "win32":
        # The library makes SPIR-V of DXIL.
        with pytest.raises(spy.CompileError, match="refused the DXIL"):
            module.f(K)
    else:
        np.testing.assert_array_equal(module.f(K + 65536), (K + 65536) % 100)
