"""Gradients of numbers that functions combine with vectors: Slang loses those of a function's first operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.slang.text import prepare
from tests.depth import sampled

Array = npt.NDArray[Any]
V = np.array([1.25, -2.0, 3.5, 0.75])
# Bodies of `float4 f(float4 v, float k, float j)`, and the same in NumPy.
BODIES: dict[str, Callable[[Array, float, float], Array]] = {
    "return k * v;": lambda v, k, j: k * v,
    "return v + k;": lambda v, k, j: v + k,
    "return k - v;": lambda v, k, j: k - v,
    "return k / v;": lambda v, k, j: k / v,
    "return v * k;": lambda v, k, j: v * k,
    "return sin(k * v) + k * j * v;": lambda v, k, j: np.sin(k * v) + k * j * v,
    "float4 r = 0; r = j + v; return r * (k * v);": lambda v, k, j: (j + v) * (k * v),
    "return 2 * (k * v) - j;": lambda v, k, j: 2 * (k * v) - j,
    "float4 r = v; [MaxIters(2)] for (int i = 0; i < 2; ++i) r = k * r; return r;": lambda v, k, j: k * k * v,
    "return k < 0 ? v : k * v;": lambda v, k, j: v if k < 0 else k * v,
    "k += j; return k * v;": lambda v, k, j: (k + j) * v,
}


@sampled(4)
@pytest.mark.parametrize("body", BODIES)
def test_numbers_and_vectors(device: spy.Device, body: str) -> None:
    text = f"[Differentiable] float4 f(float4 v, float k, float j)\n{{\n    {body}\n}}\n"
    module = spy.Module.load_from_source(device, f"kept_{len(body)}_{body.count('k')}", text)
    k, j, step = 1.5, -0.625, 1e-6
    given = [spy.Tensor.from_numpy(device, np.float32([x])).with_grads() for x in (k, j)]
    vector = spy.Tensor.from_numpy(device, V[None].astype(np.float32), "float4").with_grads()
    seed = spy.Tensor.from_numpy(device, np.ones((1, 4), np.float32), "float4")
    module.f.bwds(vector, *given, _result=spy.diff_pair(None, seed))

    def slope(of: Callable[[float], Array]) -> float:
        return float((of(step) - of(-step)).sum() / (2 * step))

    same = BODIES[body]
    np.testing.assert_allclose(given[0].grad.to_numpy(), slope(lambda d: same(V, k + d, j)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(given[1].grad.to_numpy(), slope(lambda d: same(V, k, j + d)), rtol=1e-4, atol=1e-4)
    wanted = [slope(lambda d, n=n: same(V + d * np.eye(4)[n], k, j)) for n in range(4)]  # type: ignore[misc]
    np.testing.assert_allclose(vector.grad.to_numpy()[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "float3 f(float3 v, float k) { return k * v; }",
        "[Differentiable] float3 f(float3 v, no_diff float k) { return k * v; }",
        "[Differentiable] float3 f(float3 v, float k) { return v * k; }",
        "[Differentiable] float3 f(float3 v, float k, float j) { float m = k * j; k += 1; k--; return v * m; }",
        "[Differentiable] float f(float m, float k) { return k * m; }",
        "[Differentiable] float3 f(S s, float3 v, float k) { return s.k * v; // k * v\n}",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert prepare(text, "spirv").text == text
