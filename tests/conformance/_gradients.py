"""What the tests of gradients share: functions in Slang, small integers, seeds, and how results are compared.

Values are small integers, whose sums floats hold exactly, in any order: results are compared for equality.
Nothing here is a test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import slangpy_rt as spy

Array = npt.NDArray[Any]

FUNCTIONS = """
import slangpy_rt;
[Differentiable] float mul(float a, float b) { return a * b; }
[Differentiable] float copy(float a) { return 3 * a; }
[Differentiable] float three(float a, float b, float c) { return a * b + b * c; }
[Differentiable] float four(float a, float b, float c, float d) { return a * b + c * d; }
[Differentiable] float scaled(float a, no_diff float by) { return a * by; }
[Differentiable] float repeated(int n, float a, uint m) { return a * n + m; }
[Differentiable] float3 scale(float3 v, float s) { return v * s; }
[Differentiable] float2 apply(float2x3 m, float3 v) { return mul(m, v); }
[Differentiable] float weigh(float w[3], float x) { return (w[0] * x + w[1]) * x + w[2]; }
[Differentiable] float2x2[2] both(float2x2 m, float s) { return { m * s, m * m }; }
[Differentiable] void split(float a, float b, out float sum, out float product) { sum = a + b; product = a * b; }
[Differentiable] void grow(inout float x, float by) { x = x * by; }
[Differentiable] void turn(inout float2 v, float by) { v = float2(v.y, v.x * by); }
[Differentiable] float pop(inout float x, out int n) { let y = x; x = x * x; n = 7; return 5 * y; }
[Differentiable] float shift(float a, no_diff inout float b) { b = b + 1; return a * b; }
[Differentiable] float last(float a, float b = 4) { return a * b; }
[Differentiable] float at(float a, int2 xy) { return a * (10 * xy.y + xy.x + 1); }
[Differentiable] float noisy(float a, no_diff float noise) { return a * noise; }
[Differentiable] float over(float a) { return 2 * a; }
[Differentiable] float3 over(float3 a) { return 3 * a; }
uniform float gain;
extern static const int power = 2;
[Differentiable] float gained(float a)
{
    float y = gain;
    [MaxIters(4)]
    for (int k = 0; k < power; ++k)
        y *= a;
    return y;
}
[Differentiable] int count(float a) { return int(a); }
[Differentiable] double mean(double a, double b) { return a * b; }
[Differentiable] half narrow(half a, half b) { return a * b; }
[Differentiable] double wide(half a, float b, double c) { return double(a) * b * c; }
"""


def load(device: spy.Device) -> spy.Module:
    """The functions above, without what the device has no type for."""
    kept = [line for line in FUNCTIONS.splitlines() if "half" not in line or "half" in device.caps.scalars]
    return spy.Module.load_from_source(device, "gradients", "\n".join(kept))


def integers(*shape: int, seed: int = 0, low: int = -4) -> Array:
    """Whole numbers from ``low`` to 4."""
    return np.random.default_rng(seed).integers(low, 5, shape).astype(np.float32)


def tensor(module: spy.Module, values: Any, dtype: Any = None) -> spy.Tensor:
    """Values on the module's device."""
    return spy.Tensor.from_numpy(module.device, values, dtype)


def seed_of(module: spy.Module, values: Any, dtype: Any = None) -> spy.Tensor:
    """A result to give as ``_result``, whose gradient holds ``values``."""
    gradient = tensor(module, values, dtype)
    return spy.Tensor.empty_like(gradient).with_grads(grad_in=gradient)


def filled(module: spy.Module, name: str, count: int, seed: int = 0) -> Array:
    """Structs whose every number, those that have no gradient too, is a small integer."""
    blank = spy.Tensor.zeros(module.device, count, module[name]).to_numpy()

    def fill(array: Array, seed: int) -> None:
        if array.dtype.names is None:
            array[...] = integers(*array.shape, seed=seed).astype(array.dtype)
        else:
            for k, name in enumerate(array.dtype.names):
                fill(array[name], seed * 10 + k + 1)

    fill(blank, seed)
    return blank


def same(array: Any, expected: Any) -> None:
    """Assert that an array, on a device or not, holds exactly these values."""
    assert array is not None
    np.testing.assert_array_equal(array.to_numpy() if isinstance(array, spy.NDBuffer) else array, expected)


def folded(values: Array, shape: tuple[int, ...]) -> Array:
    """The sum over what broadcasting repeated."""
    lead = values.ndim - len(shape)
    values = values.sum(tuple(range(lead))) if lead else values
    repeated = tuple(k for k, n in enumerate(shape) if n == 1)
    out: Array = values.sum(repeated, keepdims=True) if repeated else values
    return out


def modes(told: str) -> dict[str, tuple[str, str]]:
    """Mode and access of each argument and gradient in what ``explain`` says."""
    table = told.split("\n\n")[1].splitlines()[1:]
    return {row.split()[0]: (row.split()[-2], row.split()[-1]) for row in table}
