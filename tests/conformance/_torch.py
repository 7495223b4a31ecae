"""Functions that the tests of PyTorch's tensors call, and how results are compared. No test is here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import slangpy_rt as spy

SOURCE = """
[Differentiable] float mul(float a, float b) { return a * b * b; }
[Differentiable] double cubic(double a, no_diff double b) { return a * a * a * b; }
[Differentiable] float3 unit(float3 v) { return v / length(v); }
[Differentiable] float weighted(float3 v, float w = 2) { return w * (v.x + v.y * v.z); }
[Differentiable] float pick(DiffTensor<float, 1> x, int k) { return x[k] * x[k]; }
struct Line { float slope; float offset; }
float along(Line line, float x) { return line.slope * x + line.offset; }
Line through(float a, float b) { return { a, b }; }
uniform float scale;
[Differentiable] float scaled(float x) { return scale * x * x; }
[Differentiable] void follow(inout float a, float b) { a = a * b; }
[Differentiable] float split(float a, float b, out float c, out float3 d)
{
    c = a * a;
    d = float3(a, b, a * b);
    return a + 2 * b;
}
void grow(inout float a, float b) { a += b; }
[Differentiable] void put(float a, out float b) { b = a; }
int two(int x) { return 2 * x; }
int widen(int8_t x) { return x; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "torched", SOURCE)


def same(got: Any, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert isinstance(got, torch.Tensor) and got.dtype == expected.dtype and got.shape == expected.shape
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
