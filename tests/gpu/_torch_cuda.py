"""What tests of PyTorch's tensors on a CUDA GPU share: Slang functions, a module on each device, comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import slangpy_rt as spy

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available() or not any(d.type == "cuda" and d.available for d in spy.devices()),
    reason="needs CUDA, and a PyTorch that has it",
)

SOURCE = """
[Differentiable] float mul(float a, float b) { return a * b * b; }
[Differentiable] float blend(float a, float b, float t) { return a + (b - a) * t; }
[Differentiable] double cubic(double a, no_diff double b) { return a * a * a * b; }
[Differentiable] half halves(half a, half b) { return a * b; }
[Differentiable] float3 unit(float3 v) { return v / length(v); }
[Differentiable] float pick(DiffTensor<float, 1> x, int k) { return x[k] * x[k]; }
[Differentiable] float weighted(float3 v, float w = 2) { return w * (v.x + v.y * v.z); }
struct Line { float slope; float offset; }
float along(Line line, float x) { return line.slope * x + line.offset; }
uniform float scale;
[Differentiable] float scaled(float x) { return scale * x * x; }
void grow(inout float a, float b) { a += b; }
float slow(float x, int times) { for (int k = 0; k < times; ++k) x = x * 0.5 + 1; return x; }
float total(NDBuffer<float, 1> x, int k) { return x[k] + x[0]; }
float through(float *p, int k) { return p[k]; }
[shader("compute")] [numthreads(64, 1, 1)]
void twice(uint3 id : SV_DispatchThreadID, NDBuffer<float, 1> x, RWTensor<float, 1> y)
{
    if (id.x < 100)
        y[id.x] = 2 * x[id.x];
}
"""


@pytest.fixture(scope="module", params=["own stream", "torch's stream", "deterministic", "debug", "vulkan"])
def module(request: pytest.FixtureRequest) -> Iterator[spy.Module]:
    if request.param == "vulkan":
        if not any(d.type == "vulkan" and d.available for d in spy.devices()):
            pytest.skip("needs Vulkan on the same GPU")
        device = spy.Device("vulkan")
    elif request.param == "torch's stream":
        device = spy.create_torch_device()
    else:
        device = spy.Device("cuda", deterministic=request.param == "deterministic", debug=request.param == "debug")
    with device:
        yield spy.Module.load_from_source(device, "torch_cuda", SOURCE)


def on_gpu(*shape: int, low: float = -1, **options: Any) -> torch.Tensor:
    return torch.rand(*shape, device="cuda", **options) * (1 - low) + low


def same(got: Any, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert isinstance(got, torch.Tensor) and got.is_cuda and got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
