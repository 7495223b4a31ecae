"""Gradients of calls over arrays: how they add up under broadcasting, maps and views, and what each direction means.

Values are small integers, whose sums floats hold exactly, in any order: results are compared for equality.
Structs, methods and Slang's own ways to write derivatives are in test_gradient_types.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy

Array = npt.NDArray[Any]
Requires = Callable[..., None]
# Longer than a device waits between two looks at a file.
PAUSE = 0.02

SLANG = """
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


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above, without what the device has no type for."""
    kept = [line for line in SLANG.splitlines() if "half" not in line or "half" in device.caps.scalars]
    return spy.Module.load_from_source(device, "test_gradients", "\n".join(kept))


def integers(*shape: int, seed: int = 0, low: int = -4) -> Array:
    return np.random.default_rng(seed).integers(low, 5, shape).astype(np.float32)


def tensor(module: spy.Module, values: Any, dtype: str | None = None) -> spy.Tensor:
    return spy.Tensor.from_numpy(module.device, values, dtype)


def seed_of(module: spy.Module, values: Any, dtype: str | None = None) -> spy.Tensor:
    """A result to give as ``_result``, whose gradient holds ``values``."""
    gradient = tensor(module, values, dtype)
    return spy.Tensor.empty_like(gradient).with_grads(grad_in=gradient)


def same(array: Any, expected: Any) -> None:
    assert array is not None
    np.testing.assert_array_equal(array.to_numpy() if isinstance(array, spy.NDBuffer) else array, expected)


# Accumulation


def test_gradients_are_added(module: spy.Module) -> None:
    a, b, g = (integers(37, seed=k) for k in range(3))
    start = integers(37, seed=3)
    x = tensor(module, a).with_grads(grad_out=tensor(module, start))
    y, r = tensor(module, b).with_grads(), seed_of(module, g)
    for times in (1, 2, 3):
        assert module.mul.bwds(x, y, _result=r) is None
        same(x.grad, start + times * b * g)
        same(y.grad, times * a * g)
    # Nothing else is written.
    same(x, a)
    same(y, b)
    same(r.grad_in, g)


def test_clearing_keeps_its_place_among_calls(module: spy.Module) -> None:
    # Nothing is waited for in between; each gradient says what was added since the last clear.
    a, g = integers(100_003), integers(100_003, seed=1)
    x, one, r = tensor(module, a).with_grads(), tensor(module, [2.0]).with_grads(), seed_of(module, g)
    assert x.grad is not None and one.grad is not None
    for times in range(1, 6):
        x.grad.clear()
        for _ in range(times):
            one.grad.clear()
            module.mul.bwds(x, one, _result=r)
    same(x.grad, 5 * 2 * g)
    same(one.grad, [(a * g).sum()])
    # Part of a gradient, and the seed, which is what the next call reads.
    x.grad[1000:2000].clear()
    module.mul.bwds(x, 1.0, _result=r)
    expected = 11 * g
    expected[1000:2000] = g[1000:2000]
    same(x.grad, expected)
    r.grad_in.clear()  # type: ignore[union-attr]
    module.mul.bwds(x, 1.0, _result=r)
    same(x.grad, expected)


def test_cleared_gradients_start_again(module: spy.Module) -> None:
    a, b, g = (integers(5, seed=k) for k in range(3))
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.mul.bwds(x, tensor(module, b), _result=r)
    assert x.grad is not None
    x.grad.clear()
    same(x.grad, np.zeros(5))
    module.mul.bwds(x, tensor(module, b), _result=r)
    same(x.grad, b * g)


def test_the_primal_result_is_not_written(module: spy.Module) -> None:
    r = tensor(module, integers(5)).with_grads(grad_in=tensor(module, integers(5, seed=1)))
    module.mul.bwds(tensor(module, integers(5)).with_grads(), 2.0, _result=r)
    same(r, integers(5))


def test_one_tensor_given_twice(module: spy.Module) -> None:
    a, g = integers(300), integers(300, seed=1)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.mul.bwds(x, x, _result=r)
    same(x.grad, 2 * a * g)
    module.three.bwds(x, x, x, _result=r)
    same(x.grad, (2 * a + 4 * a) * g)
    # Once in order, once for all, into one buffer.
    module.mul.bwds(x, x[7], _result=r)
    expected = 6 * a * g + a[7] * g
    expected[7] += (a * g).sum()
    same(x.grad, expected)


def test_overlapping_views_of_one_gradient(module: spy.Module) -> None:
    a, g = integers(10), integers(6, seed=1)
    x = tensor(module, a).with_grads()
    module.mul.bwds(x[:6], x[4:], _result=seed_of(module, g))
    expected = np.zeros(10)
    expected[:6] += a[4:] * g
    expected[4:] += a[:6] * g
    same(x.grad, expected)
    module.mul.bwds(x[5::-1], x[4:], _result=seed_of(module, g))
    expected[5::-1] += a[4:] * g
    expected[4:] += a[5::-1] * g
    same(x.grad, expected)


def test_two_tensors_with_one_gradient(module: spy.Module) -> None:
    a, b, g = (integers(300, seed=k) for k in range(3))
    into = spy.Tensor.zeros(module.device, 300)
    x, y = tensor(module, a).with_grads(grad_out=into), tensor(module, b).with_grads(grad_out=into)
    module.mul.bwds(x, y, _result=seed_of(module, g))
    same(into, (a + b) * g)


def test_constants_get_nothing(module: spy.Module) -> None:
    a, b, g = (integers(9, seed=k) for k in range(3))
    r = seed_of(module, g)
    x, y = tensor(module, a).with_grads(), tensor(module, b)
    module.mul.bwds(x, y, _result=r)
    same(x.grad, b * g)
    assert y.grad is None
    # no_diff, a number, and a tensor with only the other gradient.
    by = tensor(module, b).with_grads()
    module.scaled.bwds(x, by, _result=r)
    same(by.grad, np.zeros(9))
    module.mul.bwds(x, 3.0, _result=r)
    only_in = tensor(module, b).with_grads(grad_in=tensor(module, g))
    module.mul.bwds(x, only_in, _result=r)
    same(x.grad, (3 * b + 3) * g)
    same(only_in.grad_in, g)


def test_integers_beside_floats(module: spy.Module) -> None:
    a, g, n = integers(3, 4), integers(3, 4, seed=1), np.arange(4, dtype=np.int32)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.repeated.bwds(tensor(module, n), x, 2, _result=r)
    module.repeated.bwds(3, x, tensor(module, n.astype(np.uint32)), _result=r)
    module.repeated.bwds(range(4), x, 2, _result=r)
    same(x.grad, (n + n + 3) * g)


# Broadcasting


BROADCASTS = [
    ((3, 4), (4,)), ((3, 4), (3, 1)), ((3, 4), (1, 4)), ((3, 4), (1, 1)), ((3, 4), ()), ((3, 4), (1,)),
    ((4, 2, 5, 3), (2, 1, 3)), ((4, 2, 5, 3), (4, 1, 5, 1)), ((4, 1, 5), (2, 1)), ((3, 1), (1, 4)),
    ((300, 2), (300, 1)), ((2, 300), (2, 1)), ((8, 64), (64,)), ((64, 8), (64, 1)),
    ((1, 300), (1, 1)), ((1, 1), (1,)), ((), ()),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), BROADCASTS)
def test_broadcast_arguments_receive_the_sum(
    module: spy.Module, one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    a, b = integers(*one), integers(*other, seed=1)
    g = integers(*np.broadcast_shapes(one, other), seed=2)
    start = integers(*other, seed=3)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    y = tensor(module, b).with_grads(grad_out=tensor(module, start))
    module.mul.bwds(x, y, _result=r)
    same(x.grad, folded(b * g, one))
    same(y.grad, start + folded(a * g, other))


def folded(values: Array, shape: tuple[int, ...]) -> Array:
    """The sum over what broadcasting repeated."""
    lead = values.ndim - len(shape)
    values = values.sum(tuple(range(lead))) if lead else values
    repeated = tuple(k for k, n in enumerate(shape) if n == 1)
    out: Array = values.sum(repeated, keepdims=True) if repeated else values
    return out


def test_all_arguments_are_broadcast(module: spy.Module) -> None:
    # The result alone gives the call its shape.
    g = integers(6, 50)
    x, y, p = tensor(module, [3.0]).with_grads(), tensor(module, 5.0).with_grads(), spy.diff_pair(2.0)
    module.three.bwds(x, y, p, _result=seed_of(module, g))
    same(x.grad, [5 * g.sum()])
    same(y.grad, 5 * g.sum())
    assert p.grad == 5 * g.sum()


def test_a_seed_is_broadcast(module: spy.Module) -> None:
    a, b, g = integers(6, 50), integers(6, 50, seed=1), integers(50, seed=2)
    x = tensor(module, a).with_grads()
    module.mul.bwds(x, tensor(module, b), _result=seed_of(module, g))
    same(x.grad, b * g)
    module.mul.bwds(x, tensor(module, b), _result=spy.diff_pair(None, 2.0))
    same(x.grad, b * (g + 2))
    module.mul.bwds(x, 1.0, _result=seed_of(module, g).broadcast_to((6, 50)))
    same(x.grad, b * (g + 2) + g)


def test_a_number_has_the_gradient_of_every_element(module: spy.Module) -> None:
    b, g = integers(1000), integers(1000, seed=1)
    p = spy.diff_pair(3.0)
    for times in (1, 2):
        module.mul.bwds(p, tensor(module, b), _result=seed_of(module, g))
        assert p.grad == times * (b * g).sum()
    assert p.primal == 3.0
    p = spy.diff_pair(3.0, 100.0)
    module.mul.bwds(tensor(module, b), p, _result=seed_of(module, g))
    assert p.grad == 100 + (b * g).sum()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 255, 256, 257, 1000, 100_003])
def test_sizes(module: spy.Module, size: int) -> None:
    a, b, g = (integers(size, seed=k, low=0) for k in range(3))
    x, y, one, r = tensor(module, a), tensor(module, b), tensor(module, [3.0]), seed_of(module, g)
    x, y, one = x.with_grads(), y.with_grads(), one.with_grads()
    module.mul.bwds(x, y, _result=r)
    same(x.grad, b * g)
    same(y.grad, a * g)
    module.mul.bwds(x, one, _result=r)
    same(x.grad, b * g + 3 * g)
    same(one.grad, [(a * g).sum()])
    # Rows of a size that nothing divides, each with a number of its own.
    wide = tensor(module, np.stack([b, a, b])).with_grads()
    rows, seed = tensor(module, [[1.0], [2], [3]]).with_grads(), np.stack([g, g, 2 * g])
    module.mul.bwds(rows, wide, _result=seed_of(module, seed))
    same(rows.grad, (seed * wide.to_numpy()).sum(1, keepdims=True))
    same(wide.grad, seed * [[1.0], [2], [3]])


# Calls of more than a million elements: on a GPU groups walk over them, and add columns up


@pytest.mark.parametrize("columns", [64, 12, 7, 1000])
def test_columns_and_rows_of_large_calls(module: spy.Module, columns: int) -> None:
    rows = 1_200_000 // columns
    b, g = integers(rows, columns), integers(rows, columns, seed=1)
    y, r = tensor(module, b), seed_of(module, g)
    for shape in ((columns,), (1, columns), (rows, 1)):
        x = tensor(module, integers(*shape, seed=2)).with_grads()
        for times in (1, 2):
            module.mul.bwds(x, y, _result=r)
            same(x.grad, times * folded(b * g, shape))
        if shape == (columns,):
            assert "column" in modes(module.mul.bwds.explain(x, y, _result=r))["a.grad_out"]


@pytest.mark.parametrize("size", [32, 100, 1024])
def test_large_calls_in_groups_of_any_size(module: spy.Module, size: int) -> None:
    rows, columns = 80_000, 60
    b, g = integers(rows, columns), integers(rows, columns, seed=1)
    y, r = tensor(module, b), seed_of(module, g)
    for shape in ((columns,), (rows, 1), (1,)):
        x = tensor(module, integers(*shape, seed=2)).with_grads()
        module.mul.group_size(size).bwds(x, y, _result=r)
        same(x.grad, folded(b * g, shape))


def test_columns_that_are_views(module: spy.Module) -> None:
    rows, columns = 18_750, 64
    b, g = integers(rows, columns), integers(rows, columns, seed=1)
    y, r = tensor(module, b), seed_of(module, g)
    x = tensor(module, integers(2 * columns + 1, seed=2)).with_grads()
    module.mul.bwds(x[-2::-2], y, _result=r)
    expected = np.zeros(2 * columns + 1)
    expected[-2::-2] = (b * g).sum(0)
    same(x.grad, expected)
    # A column whose values run along both dimensions, and rows of the seed that are one.
    into = spy.Tensor.zeros(module.device, columns)
    z = tensor(module, b).with_grads(grad_out=into.broadcast_to((rows, columns)))
    module.mul.bwds(z, y, _result=seed_of(module, g[:1]))
    same(into, (b * g[0]).sum(0))
    # Three dimensions of which the first two are one walk, and a column of both.
    deep = tensor(module, b.reshape(50, 375, 64)).with_grads()
    a = tensor(module, integers(375, 64, seed=3)).with_grads()
    module.mul.bwds(a, deep, _result=seed_of(module, g.reshape(50, 375, 64)))
    same(a.grad, (b * g).reshape(50, 375, 64).sum(0))
    same(deep.grad, g.reshape(50, 375, 64) * integers(375, 64, seed=3))


def test_columns_of_doubles(module: spy.Module, requires: Requires) -> None:
    requires("double")
    b, g = (integers(18_750, 64, seed=k).astype(np.float64) for k in range(2))
    x = tensor(module, np.ones(64)).with_grads()
    module.mean.bwds(x, tensor(module, b), _result=seed_of(module, g))
    same(x.grad, (b * g).sum(0))


def test_vectors_of_large_calls(module: spy.Module) -> None:
    for rows, columns in ((100_000, 3), (5000, 64)):
        s, g = integers(rows, columns), integers(rows, columns, 3, seed=1)
        y, r = tensor(module, s), seed_of(module, g, "float3")
        for shape in ((columns,), (rows, 1), (1,)):
            x = tensor(module, integers(*shape, 3, seed=2), "float3").with_grads()
            module.scale.bwds(x, y, _result=r)
            same(x.grad, folded(s[..., None] * g, (*shape, 3)))
            if shape == (columns,):
                assert "column" in modes(module.scale.bwds.explain(x, y, _result=r))["v.grad_out"]


# The second is small: ranges on the CPU end within rows, and a GPU does not walk.
@pytest.mark.parametrize(("rows", "columns"), [(18_750, 64), (997, 130)])
def test_gradients_of_every_kind_in_one_call(module: spy.Module, rows: int, columns: int) -> None:
    a, b, c, d = (integers(*s, seed=k) for k, s in enumerate(((1,), (columns,), (rows, 1), (rows, columns))))
    g = integers(rows, columns, seed=4)
    arguments = [tensor(module, x).with_grads() for x in (a, b, c, d)]
    number = spy.diff_pair(float(a[0]))
    r = seed_of(module, g)
    module.four.bwds(*arguments, _result=r)
    module.four.bwds(number, *arguments[1:], _result=r)
    for x, times, term in zip(arguments, (1, 2, 2, 2), (b * g, a * g, d * g, c * g), strict=True):
        same(x.grad, times * folded(term, x.shape))
    assert number.grad == (b * g).sum()
    found = modes(module.four.bwds.explain(*arguments, _result=r))
    host, large = module.device.name == "cpu", rows * columns > 1 << 20
    assert found["a.grad_out"] == ("constant", "sum")
    assert found["b.grad_out"] == ("strided", "column" if host or large else "scatter")
    assert found["c.grad_out"] == ("strided", "row" if host else "scatter")
    assert found["d.grad_out"] == ("linear", "accumulate")


def modes(told: str) -> dict[str, tuple[str, str]]:
    """Mode and access of each argument and gradient in what ``explain`` says."""
    table = told.split("\n\n")[1].splitlines()[1:]
    return {row.split()[0]: (row.split()[-2], row.split()[-1]) for row in table}


# Maps


def test_outer_products(module: spy.Module) -> None:
    a, b, g = integers(5), integers(70, seed=1), integers(5, 70, seed=2)
    x, y, r = tensor(module, a).with_grads(), tensor(module, b).with_grads(), seed_of(module, g)
    module.mul.map((0,), (1,)).bwds(x, y, _result=r)
    same(x.grad, g @ b)
    same(y.grad, g.T @ a)
    # A derivative is mapped as its function is.
    module.mul.bwds.map((0,), (1,))(x, y, _result=r)
    same(x.grad, 2 * g @ b)
    same(y.grad, 2 * g.T @ a)
    module.mul.bwds.map(a=(0,), b=(1,))(a=x, b=y, _result=r)
    same(x.grad, 3 * g @ b)


def test_mapped_diagonals(module: spy.Module) -> None:
    a, b, g = integers(6, 6), integers(6, seed=1), integers(6, seed=2)
    x, y = tensor(module, a).with_grads(), tensor(module, b).with_grads()
    module.mul.map((0, 0), (0,)).bwds(x, y, _result=seed_of(module, g))
    same(x.grad, np.diag(b * g))
    same(y.grad, np.diag(a) * g)
    # The result's own map.
    x, g = tensor(module, b).with_grads(), integers(6, 6, seed=3)
    module.copy.map((0,), _result=(0, 0)).bwds(x, _result=seed_of(module, g))
    same(x.grad, 3 * np.diag(g))


def test_mapped_transposes_and_gaps(module: spy.Module) -> None:
    a, b, g = integers(3, 4), integers(4, 3, seed=1), integers(4, 3, seed=2)
    x, y = tensor(module, a).with_grads(), tensor(module, b).with_grads()
    module.mul.map((1, 0), (0, 1)).bwds(x, y, _result=seed_of(module, g))
    same(x.grad, (b * g).T)
    same(y.grad, a.T * g)
    z, g3 = tensor(module, a[0]).with_grads(), integers(4, 1, 3, seed=3)
    module.copy.map((0,)).bwds(z, _result=seed_of(module, g3))
    same(z.grad, 3 * g3.sum((1, 2)))
    v = tensor(module, integers(4, 3), "float3").with_grads()
    s, gv = tensor(module, a[:, 0]).with_grads(), integers(4, 3, 3, seed=4)
    module.scale.map((0,), (1,)).bwds(v, s, _result=seed_of(module, gv, "float3"))
    same(v.grad, np.einsum("ijk,j->ik", gv, a[:, 0]))
    same(s.grad, np.einsum("ijk,ik->j", gv, integers(4, 3)))


def test_mapped_types(module: spy.Module) -> None:
    a, g = integers(5, 3), integers(5, 3, seed=1)
    x = tensor(module, a).with_grads()
    module.over.map("float3").bwds(x, _result=seed_of(module, g, "float3"))
    same(x.grad, 3 * g)
    module.over.map("float").bwds(x, _result=seed_of(module, g))
    same(x.grad, 5 * g)


# Views


def test_gradients_of_views(module: spy.Module) -> None:
    a, g = integers(6, 8), integers(6, 8, seed=1)
    for key in (
        (slice(1, 4), slice(None)), (slice(None, None, 2), slice(1, 8, 3)), (slice(None, None, -1), slice(None)),
        (slice(4, None, -2), slice(None, 1, -3)), (2, slice(None)), (slice(None), 3), (slice(2, 3), slice(5, 6)),
        (slice(None), None, slice(None)),
    ):  # fmt: skip
        x = tensor(module, a).with_grads()
        view = x[key]
        b = integers(*a[key].shape, seed=2)
        module.mul.bwds(view, tensor(module, b), _result=seed_of(module, g)[key])
        expected = np.zeros_like(a)
        expected[key] = b * g[key]
        same(x.grad, expected)
        # The view's gradient is the view of the gradient.
        same(view.grad, expected[key])


def test_gradients_of_a_view_that_is_given_its_own(module: spy.Module) -> None:
    # Primal and gradient lie differently.
    a, b, g = integers(6, 8), integers(3, 8, seed=1), integers(3, 8, seed=2)
    x = tensor(module, a)[::-2].with_grads()
    assert x.grad is not None and x.grad.shape == (3, 8) and x.grad.is_contiguous
    module.mul.bwds(x, tensor(module, b), _result=seed_of(module, g))
    same(x.grad, b * g)
    into = spy.Tensor.ones(module.device, (8, 4))
    y = tensor(module, integers(8)).with_grads(grad_out=into[:, 2])
    module.mul.bwds(y, 2.0, _result=seed_of(module, integers(8, seed=3)))
    expected = np.ones((8, 4))
    expected[:, 2] += 2 * integers(8, seed=3)
    same(into, expected)


def test_a_stretched_view_adds_to_what_it_is_made_of(module: spy.Module) -> None:
    a, b, g = integers(3, 1), integers(4, 3, 50, seed=1), integers(4, 3, 50, seed=2)
    x = tensor(module, a).with_grads()
    wide = x.broadcast_to((4, 3, 50))
    assert wide.grad is not None and wide.grad.shape == (4, 3, 50)
    module.mul.bwds(wide, tensor(module, b), _result=seed_of(module, g))
    same(x.grad, (b * g).sum((0, 2))[:, None])
    # Along one dimension of several, beside a step.
    y = tensor(module, integers(1, 8)).with_grads()
    module.mul.bwds(
        y[:, ::-2].broadcast_to((3, 4)), tensor(module, b[0, :, :4]), _result=seed_of(module, g[0, :, :4])
    )
    expected = np.zeros((1, 8))
    expected[0, ::-2] = (b * g)[0, :, :4].sum(0)
    same(y.grad, expected)


def test_only_the_gradient_is_stretched(module: spy.Module) -> None:
    b, g = integers(300, seed=1), integers(300, seed=2)
    into = spy.Tensor.zeros(module.device, 1)
    x = tensor(module, integers(300)).with_grads(grad_out=into.broadcast_to(300))
    module.mul.bwds(x, tensor(module, b), _result=seed_of(module, g))
    same(into, [(b * g).sum()])


def test_views_carry_gradients_along(module: spy.Module) -> None:
    t = tensor(module, integers(6)).with_grads(grad_out=tensor(module, np.arange(6, dtype=np.float32)))
    same(t[2:5].grad, [2, 3, 4])
    same(t[::-2].grad, [5, 3, 1])
    same(t[4].grad, 4)
    same(t.view((2, 3)).grad, [[0, 1, 2], [3, 4, 5]])
    same(t.view((2, 3))[1, ::-1].grad, [5, 4, 3])
    same(t.broadcast_to((2, 6)).grad, [np.arange(6)] * 2)
    v = tensor(module, integers(2, 3), "float3").with_grads(grad_in=tensor(module, integers(2, 3, seed=1), "float3"))
    flat = v.flatten_dtype()
    assert flat.grad is not None and flat.grad.dtype.name == "float" and flat.grad_out is None
    same(flat.grad, integers(2, 3, seed=1))
    # They are views: what is added there is seen here.
    x, g = spy.Tensor.ones(module.device, (4, 2)).with_grads(), integers(4, seed=2)
    module.copy.bwds(x[:, 1], _result=seed_of(module, g))
    same(x.grad, np.stack([np.zeros(4), 3 * g], 1))


def test_with_grads_and_detach(module: spy.Module) -> None:
    t = tensor(module, integers(3))
    assert t.grad is None and t.grad_in is None and t.grad_out is None
    x = t.with_grads()
    assert x.grad is x.grad_in is x.grad_out and x.grad is not None
    same(x.grad, np.zeros(3))
    assert t.grad is None
    one, other = tensor(module, integers(3, seed=1)), tensor(module, integers(3, seed=2))
    y = x.with_grads(grad_in=one, grad_out=other)
    assert y.grad_in is one and y.grad_out is other and y.grad is other
    z = t.with_grads(grad_in=one)
    assert z.grad is one and z.grad_out is None
    # All share the memory, none is a copy.
    t.copy_from(integers(3, seed=3))
    for array in (x, y, z, x.detach()):
        same(array, integers(3, seed=3))
    plain = x.detach()
    assert type(plain) is spy.Tensor and plain.grad is None
    for made in (spy.Tensor.zeros_like(x), spy.Tensor.empty_like(x)):
        assert made.grad is None and made.shape == (3,)
    module.mul.bwds(x.detach(), y, _result=seed_of(module, integers(3, seed=4)))
    same(x.grad, np.zeros(3))
    same(other, integers(3, seed=2) + integers(3, seed=3) * integers(3, seed=4))


def test_calls_that_are_no_derivatives_ignore_gradients(module: spy.Module) -> None:
    a, b = integers(3), integers(3, seed=1)
    x, r = tensor(module, a).with_grads(), spy.Tensor.empty(module.device, 3).with_grads()
    y = module.mul(x, tensor(module, b))
    assert type(y) is spy.Tensor and y.grad is None
    same(y, a * b)
    assert module.mul(x, tensor(module, b), _result=r) is r
    same(r, a * b)
    same(x.grad, np.zeros(3))
    module.grow(x, 2.0)
    same(x, 2 * a)
    same(x.grad, np.zeros(3))


# Directions


def test_out_parameters_bring_gradients(module: spy.Module) -> None:
    a, b, g, h = (integers(30, seed=k) for k in range(4))
    x, y = tensor(module, a).with_grads(), tensor(module, b).with_grads()
    module.split.bwds(x, y, seed_of(module, g), seed_of(module, h))
    same(x.grad, g + b * h)
    same(y.grad, g + a * h)
    # A number for one of them, and a broadcast one.
    module.split.bwds(x, y, spy.diff_pair(None, 2.0), seed_of(module, h[:1]))
    same(x.grad, g + b * h + 2 + b * h[0])


def test_numbers_alone(module: spy.Module) -> None:
    p, q = spy.diff_pair(3.0), spy.diff_pair(5.0)
    module.split.bwds(p, q, spy.diff_pair(None, 1.0), spy.diff_pair(None, 10.0))
    assert (p.grad, q.grad) == (51, 31)
    v, s = spy.diff_pair([1.0, 2, 3]), spy.diff_pair(2.0)
    module.scale.bwds(v, s, _result=spy.diff_pair(None, [1.0, 10, 100]))
    same(v.grad, [2, 20, 200])
    assert s.grad == 321
    w = spy.diff_pair([1.0, 2, 3])
    module.weigh.bwds(w, s, _result=spy.diff_pair(None, 1.0))
    same(w.grad, [4, 2, 1])
    assert s.grad == 321 + 6
    m = spy.diff_pair([[1.0, 2, 3], [4, 5, 6]])
    module.apply.bwds(m, [1.0, 10, 100], _result=spy.diff_pair(None, [1.0, 2]))
    same(m.grad, [[1, 10, 100], [2, 20, 200]])


def test_inout_with_one_gradient_is_carried_through(module: spy.Module) -> None:
    a, b, g = (integers(30, seed=k) for k in range(3))
    gradient = tensor(module, g)
    x = tensor(module, a).with_grads(grad_in=gradient, grad_out=gradient)
    y = tensor(module, b).with_grads()
    module.grow.bwds(x, y)
    same(gradient, g * b)
    same(y.grad, a * g)
    module.grow.bwds(x, y)
    same(gradient, g * b * b)
    same(y.grad, a * g + a * g * b)
    same(x, a)
    v = tensor(module, integers(30, 2), "float2").with_grads()
    assert v.grad is not None
    v.grad.copy_from(integers(30, 2, seed=4))
    module.turn.bwds(v, 3.0)
    same(v.grad, integers(30, 2, seed=4)[:, ::-1] * [3, 1])


def test_inout_with_two_gradients_is_added(module: spy.Module) -> None:
    a, b, g, start = (integers(30, seed=k) for k in range(4))
    into, out = tensor(module, g), tensor(module, start)
    x = tensor(module, a).with_grads(grad_in=into, grad_out=out)
    for times in (1, 2):
        module.grow.bwds(x, tensor(module, b))
        same(out, start + times * g * b)
    same(into, g)
    # Only a gradient to read: what it was before the call is a constant.
    x, y = tensor(module, a).with_grads(grad_in=into), tensor(module, b).with_grads()
    module.grow.bwds(x, y)
    same(y.grad, a * g)
    same(into, g)


def test_inout_of_a_pair(module: spy.Module) -> None:
    p, q = spy.diff_pair(3.0, 10.0), spy.diff_pair(5.0)
    module.grow.bwds(p, q)
    assert (p.primal, p.grad, q.grad) == (3, 50, 30)


def test_a_result_beside_inout_and_an_integer(module: spy.Module) -> None:
    a, g, h = (integers(30, seed=k) for k in range(3))
    x = tensor(module, a).with_grads(grad_in=tensor(module, g), grad_out=tensor(module, np.zeros(30, np.float32)))
    n = tensor(module, np.full(30, -1, np.int32))
    module.pop.bwds(x, n, _result=seed_of(module, h))
    same(x.grad, 2 * a * g + 5 * h)
    same(n, np.full(30, -1))


def test_no_diff_inout(module: spy.Module) -> None:
    a, b, g = (integers(30, seed=k) for k in range(3))
    x, y = tensor(module, a).with_grads(), tensor(module, b)
    module.shift.bwds(x, y, _result=seed_of(module, g))
    same(x.grad, (b + 1) * g)
    # A derivative writes gradients alone.
    same(y, b)


# Element types


def test_vectors_matrices_and_arrays(module: spy.Module) -> None:
    n = 40
    v, s, g = integers(n, 3), integers(n, seed=1), integers(n, 3, seed=2)
    x, y = tensor(module, v, "float3").with_grads(), tensor(module, s).with_grads()
    module.scale.bwds(x, y, _result=seed_of(module, g, "float3"))
    same(x.grad, s[:, None] * g)
    same(y.grad, (v * g).sum(1))
    # Scalars whose last dimension makes the vectors.
    x = tensor(module, v).with_grads()
    module.scale.bwds(x, y.detach(), _result=seed_of(module, g))
    same(x.grad, s[:, None] * g)
    m, h = integers(2, 3, seed=3), integers(n, 2, seed=4)
    a, x = tensor(module, m, "float2x3").with_grads(), tensor(module, v, "float3").with_grads()
    module.apply.bwds(a, x, _result=seed_of(module, h, "float2"))
    same(a.grad, h.T @ v)
    same(x.grad, h @ m)
    w, r = integers(3, seed=5), seed_of(module, s)
    a, y = tensor(module, w).with_grads(), tensor(module, integers(n, seed=6)).with_grads()
    module.weigh.bwds(a, y, _result=r)
    u = integers(n, seed=6)
    same(a.grad, [(s * u * u).sum(), (s * u).sum(), s.sum()])
    same(y.grad, s * (2 * w[0] * u + w[1]))


def test_arrays_of_matrices(module: spy.Module) -> None:
    m, s, g = integers(20, 2, 2), integers(20, seed=1), integers(20, 2, 2, 2, seed=2)
    x, y = tensor(module, m, "float2x2").with_grads(), tensor(module, s).with_grads()
    module.both.bwds(x, y, _result=seed_of(module, g))
    same(x.grad, g[:, 0] * s[:, None, None] + 2 * m * g[:, 1])
    same(y.grad, (g[:, 0] * m).sum((1, 2)))


def test_doubles(module: spy.Module, requires: Requires) -> None:
    requires("double")
    a, b, g = (integers(300, seed=k).astype(np.float64) + 2.0**-40 for k in range(3))
    x, y, r = tensor(module, a).with_grads(), tensor(module, np.array([2.0**-20])).with_grads(), seed_of(module, g)
    module.mean.bwds(x, y, _result=r)
    same(x.grad, g * 2.0**-20)
    assert y.grad is not None
    # Sums in another order than NumPy's; a float would be off by 1e-7.
    np.testing.assert_allclose(y.grad.to_numpy(), [(a * g).sum()], rtol=1e-13)
    module.mean.bwds(x, tensor(module, b), _result=r)
    np.testing.assert_allclose(x.grad.to_numpy(), g * 2.0**-20 + b * g, rtol=1e-13)  # type: ignore[union-attr]


def test_halves(module: spy.Module, requires: Requires) -> None:
    requires("half")
    a, b, g = (integers(101, seed=k).astype(np.float16) for k in range(3))
    x, y, one = (tensor(module, v).with_grads() for v in (a, b, np.array([2], np.float16)))
    module.narrow.bwds(x, y, _result=seed_of(module, g))
    same(x.grad, b * g)
    same(y.grad, a * g)
    module.narrow.bwds(x, one, _result=seed_of(module, g))
    same(x.grad, b * g + 2 * g)
    same(one.grad, [(a.astype(int) * g.astype(int)).sum()])


def test_halves_floats_and_doubles_together(module: spy.Module, requires: Requires) -> None:
    requires("half", "double")
    a, b, c, g = (integers(101, seed=k) for k in range(4))
    x = tensor(module, a.astype(np.float16)).with_grads()
    y, z = tensor(module, b[:1]).with_grads(), tensor(module, c.astype(np.float64)).with_grads()
    module.wide.bwds(x, y, z, _result=seed_of(module, g.astype(np.float64)))
    same(x.grad, b[0] * c * g)
    same(y.grad, [(a * c * g).sum()])
    same(z.grad, a * b[0] * g)


# Ways to call


def test_default_and_named_arguments(module: spy.Module) -> None:
    a, g = integers(30), integers(30, seed=1)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.last.bwds(x, _result=r)
    same(x.grad, 4 * g)
    module.last.bwds(x, b=2.0, _result=r)
    module.last.bwds(b=x, a=3.0, _result=r)
    same(x.grad, 9 * g)
    module.last.bwds(x, 1.0, out=r)
    same(x.grad, 10 * g)


def test_uniforms_and_constants(module: spy.Module) -> None:
    a, g = integers(30), integers(30, seed=1)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.gained.set(gain=5.0).bwds(x, _result=r)
    same(x.grad, 10 * a * g)
    module.gained.bwds.set(gain=1.0)(x, _result=r)
    same(x.grad, 12 * a * g)
    module.gained.set(gain=1.0).constants({"power": 3}).bwds(x, _result=r)
    same(x.grad, (12 * a + 3 * a * a) * g)
    module.gained.bwds.constants({"power": 1}).set(gain=2.0)(x, _result=r)
    same(x.grad, (12 * a + 3 * a * a + 2) * g)


@pytest.mark.parametrize("size", [1, 32, (8, 4), (2, 3, 5)])
def test_group_sizes(module: spy.Module, size: Any) -> None:
    a, b, g = integers(3, 7, 50), integers(7, 1, seed=1), integers(3, 7, 50, seed=2)
    x, y, p = tensor(module, a).with_grads(), tensor(module, b).with_grads(), spy.diff_pair(2.0)
    module.three.group_size(size).bwds(x, y, p, _result=seed_of(module, g))
    same(x.grad, b * g)
    same(y.grad, ((a + 2) * g).sum((0, 2))[:, None])
    assert p.grad == (b * g).sum()


def test_generators_beside_gradients(module: spy.Module) -> None:
    a, g = integers(3, 4), integers(3, 4, seed=1)
    y, x = np.indices((3, 4))
    for index in (spy.call_id(), spy.grid((3, 4)), spy.grid((-1, -1))):
        t = tensor(module, a).with_grads()
        module.at.bwds(t, index, _result=seed_of(module, g))
        same(t.grad, g * (10 * y + x + 1))
    one = tensor(module, [2.0]).with_grads()
    module.at.bwds(one, spy.grid((3, 4)), _result=spy.diff_pair(None, 1.0))
    same(one.grad, [(10 * y + x + 1).sum()])


def test_random_numbers_beside_gradients(module: spy.Module) -> None:
    noise = spy.rand_float(1, 2, seed=7)
    drawn = np.asarray(module.noisy(tensor(module, np.ones(300, np.float32)), noise))
    assert len(set(drawn.tolist())) > 290
    x, g = tensor(module, integers(300)).with_grads(), integers(300, seed=1)
    module.noisy.bwds(x, noise, _result=seed_of(module, g))
    same(x.grad, drawn * g)


def test_overloads(module: spy.Module) -> None:
    a, g = integers(5, 3), integers(5, 3, seed=1)
    x = tensor(module, a, "float3").with_grads()
    module.over.bwds(x, _result=seed_of(module, g, "float3"))
    same(x.grad, 3 * g)
    y = tensor(module, a[:, 0]).with_grads()
    module.over.bwds(y, _result=seed_of(module, g[:, 0]))
    same(y.grad, 2 * g[:, 0])


def test_every_call_of_a_signature_takes_its_own_values(module: spy.Module) -> None:
    assert module.mul.bwds is module.mul.bwds
    for k in range(1, 5):
        a, b, g = integers(12), integers(12, seed=k), integers(12, seed=k + 10)
        x, p = tensor(module, a).with_grads(), spy.diff_pair(float(k))
        module.three.bwds(x, p, tensor(module, b), _result=seed_of(module, g))
        same(x.grad, k * g)
        assert p.grad == ((a + b) * g).sum()
        module.three.bwds(x, p, tensor(module, b), _result=spy.diff_pair(None, float(k)))
        same(x.grad, k * g + k * k)
    # The gradients lie elsewhere in the same layout.
    x = tensor(module, integers(12))
    for k in range(3):
        gradient = spy.Tensor.zeros(module.device, 12)
        module.copy.bwds(x.with_grads(grad_out=gradient), _result=seed_of(module, integers(12, seed=k)))
        same(gradient, 3 * integers(12, seed=k))


def test_gradients_join_and_leave_between_calls(module: spy.Module) -> None:
    a, b, g = integers(12), integers(12, seed=1), integers(12, seed=2)
    x, y, r = tensor(module, a), tensor(module, b), seed_of(module, g)
    xg, yg = x.with_grads(), y.with_grads()
    for args in ((xg, y), (xg, yg), (x, yg), (xg, yg), (xg, y)):
        module.mul.bwds(*args, _result=r)
    same(xg.grad, 4 * b * g)
    same(yg.grad, 3 * a * g)


def test_bound_calls(module: spy.Module) -> None:
    a, b, g = integers(12), integers(12, seed=1), integers(12, seed=2)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    y = tensor(module, b)
    replay = module.mul.bwds.bind(x, y, _result=r)
    same(x.grad, np.zeros(12))
    assert replay() is None
    y.copy_from(b + 1)
    replay()
    same(x.grad, (2 * b + 1) * g)
    p = spy.diff_pair(2.0)
    replay = module.mul.bwds.bind(p, y, _result=r)
    replay()
    replay()
    assert p.grad == 2 * ((b + 1) * g).sum()


def test_source_and_explain(module: spy.Module) -> None:
    x, r = spy.Tensor.ones(module.device, 12).with_grads(), seed_of(module, integers(12))
    text = module.mul.bwds.source(x, 2.0, _result=r)
    assert "bwd_diff(primal)" in text and "a_grad_out" in text and "b_grad_out" not in text
    told = module.mul.bwds.explain(x, 2.0, _result=r)
    assert told.startswith("backward derivative of float mul(float a, float b) on ") and text in told
    assert "fwd_diff(primal)" in module.mul.fwds.source(x, 2.0)
    # Each gradient has a line of its own, with how it is moved.
    rows = modes(module.split.bwds.explain(x, tensor(module, [1.0]).with_grads(), r, r))
    assert {name: access for name, (_, access) in rows.items()} == {
        "a": "in", "a.grad_out": "accumulate", "b": "in", "b.grad_out": "sum",
        "sum.grad_in": "seed", "product.grad_in": "seed",
    }  # fmt: skip
    assert list(modes(module.mul.fwds.explain(x, 2.0))) == [
        "a", "a.grad_in", "b", "_result", "_result.grad_out",
    ]  # fmt: skip
    # Asking runs nothing.
    same(x.grad, np.zeros(12))


def test_a_gradient_in_ndbuffers(module: spy.Module) -> None:
    b, g = integers(12), integers(12, seed=1)
    x = spy.NDDifferentiableBuffer(module.device, "float", (12,))
    x.copy_from(integers(12, seed=2))
    r = spy.NDDifferentiableBuffer(module.device, "float", (12,))
    r.grad.copy_from(g)
    module.mul.bwds(x, tensor(module, b), _result=r)
    same(x.grad, b * g)
    same(r.grad, g)
    same(x.primal, integers(12, seed=2))
    assert type(x.primal) is spy.NDBuffer
    same(x[3:5].grad, (b * g)[3:5])


# Devices, files and threads


def test_an_edited_function_has_the_new_derivative(device: spy.Device, tmp_path: Path) -> None:
    path = tmp_path / "edited.slang"

    def write(text: str) -> None:
        time.sleep(PAUSE)
        path.write_text(text)

    write("[Differentiable] float f(float x) { return x * x; }")
    module = spy.Module.load_from_file(device, path)
    a, g = integers(30), integers(30, seed=1)
    bwds, fwds, mapped = module.f.bwds, module.f.fwds, module.f.map((0,)).bwds
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    bwds(x, _result=r)
    mapped(x, _result=r)
    same(x.grad, 4 * a * g)
    write("[Differentiable] float f(float x) { return 5 * x; }")
    bwds(x, _result=r)
    mapped(x, _result=r)
    same(x.grad, 4 * a * g + 10 * g)
    same(fwds(x.with_grads(grad_in=tensor(module, g))).grad, 5 * g)
    # What it no longer has, or no longer is, it says.
    write("float f(float x) { return 5 * x; }")
    with pytest.raises(spy.BindError, match=r"\.bwds needs a derivative; mark the function \[Differentiable\]"):
        bwds(x, _result=r)
    write("[Differentiable] float f(float x, float y) { return x * y; }")
    bwds(x, 3.0, _result=r)
    same(x.grad, 4 * a * g + 13 * g)


def test_a_closed_device_refuses_derivatives(backend_name: str) -> None:
    with spy.Device(backend_name) as device:
        module = spy.Module.load_from_source(device, "closing", "[Differentiable] float f(float x) { return 2 * x; }")
        x, r = tensor(module, integers(30)).with_grads(), seed_of(module, integers(30, seed=1))
        bwds, replay = module.f.bwds, module.f.bwds.bind(x, _result=r)
        bwds(x, _result=r)
        replay()
        same(x.grad, 4 * integers(30, seed=1))
        bwds(x, _result=r)
    for call in (lambda: bwds(x, _result=r), replay, lambda: module.f.bwds(x, _result=r)):
        with pytest.raises(spy.DeviceError, match="was closed"):
            call()


def test_threads_with_arrays_of_their_own(device: spy.Device, module: spy.Module) -> None:
    count, times = 4, 25
    b, g = integers(5000, 7), integers(5000, 7, seed=1)
    y, r = tensor(module, b), seed_of(module, g)
    shapes = ((5000, 7), (7,), (5000, 1), (1,))
    start, failed = threading.Barrier(count), []

    def work(k: int) -> None:
        try:
            a = [integers(*shape, seed=k) for shape in shapes]
            x = [tensor(module, values).with_grads() for values in a]
            number = spy.diff_pair(0.0)
            start.wait()
            for _ in range(times):
                for one in x:
                    module.mul.bwds(one, y, _result=r)
                module.mul.bwds(number, y, _result=r)
            for one, shape in zip(x, shapes, strict=True):
                same(one.grad, times * folded(b * g, shape))
            assert number.grad == times * (b * g).sum()
        except BaseException as error:
            failed.append(error)
            start.abort()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


# Forwards


def test_forward_of_tensors(module: spy.Module) -> None:
    a, b, da, db = (integers(4, 30, seed=k) for k in range(4))
    x = tensor(module, a).with_grads(grad_in=tensor(module, da))
    y = module.mul.fwds(x, tensor(module, b))
    assert type(y) is spy.Tensor
    same(y, a * b)
    same(y.grad, da * b)
    y = module.mul.fwds(x, tensor(module, b[0]).with_grads(grad_in=tensor(module, db[0])))
    same(y.grad, da * b[0] + a * db[0])
    y = module.mul.map((0,), (1,)).fwds(x[0], tensor(module, b[1]).with_grads(grad_in=tensor(module, db[1])))
    same(y, np.outer(a[0], b[1]))
    same(y.grad, np.outer(da[0], b[1]) + np.outer(a[0], db[1]))
    # Tangents are read only.
    same(x.grad_in, da)


def test_forward_of_numbers(module: spy.Module) -> None:
    y = module.mul.fwds(spy.diff_pair(3.0, 2.0), 5.0)
    assert (type(y), y.primal, y.grad) == (spy.DiffPair, 15, 10)
    y = module.mul.fwds(spy.diff_pair(3.0, 2.0), spy.diff_pair(5.0, 1.0))
    assert (y.primal, y.grad) == (15, 13)
    y = module.scale.fwds(spy.diff_pair([1.0, 2, 3], [1.0, 0, 0]), spy.diff_pair(2.0, 10.0))
    same(y.primal, [2, 4, 6])
    same(y.grad, [12, 20, 30])
    p = module.mul.fwds(spy.diff_pair(3.0, 2.0), tensor(module, [1.0, 2]))
    same(p, [3, 6])
    same(p.grad, [2, 4])


def test_forward_of_constants_is_zero(module: spy.Module) -> None:
    a, b = integers(30), integers(30, seed=1)
    y = module.mul.fwds(tensor(module, a), tensor(module, b))
    same(y, a * b)
    same(y.grad, np.zeros(30))
    y = module.scaled.fwds(3.0, tensor(module, b).with_grads(grad_in=tensor(module, a)))
    same(y.grad, np.zeros(30))


def test_forward_into_a_result(module: spy.Module) -> None:
    a, b, da = (integers(30, seed=k) for k in range(3))
    x = tensor(module, a).with_grads(grad_in=tensor(module, da))
    r = tensor(module, integers(30)).with_grads()
    assert module.mul.fwds(x, tensor(module, b), _result=r) is r
    same(r, a * b)
    same(r.grad, da * b)
    wide = spy.Tensor.zeros(module.device, (30, 2)).with_grads()
    module.mul.fwds(x, tensor(module, b), _result=wide[:, 1])
    same(wide, np.stack([np.zeros(30), a * b], 1))
    same(wide.grad, np.stack([np.zeros(30), da * b], 1))


def test_forward_of_out_and_inout(module: spy.Module) -> None:
    a, b, da, db = (integers(30, seed=k) for k in range(4))
    x = tensor(module, a).with_grads(grad_in=tensor(module, da))
    y = tensor(module, b).with_grads(grad_in=tensor(module, db))
    s, p = (spy.Tensor.empty(module.device, 30).with_grads() for _ in range(2))
    module.split.fwds(x, y, s, p)
    same(s, a + b)
    same(p, a * b)
    same(s.grad, da + db)
    same(p.grad, da * b + a * db)
    z = tensor(module, a).with_grads()
    assert z.grad is not None
    z.grad.copy_from(da)
    module.grow.fwds(z, y)
    same(z, a * b)
    same(z.grad, da * b + a * db)
    q = spy.diff_pair(3.0, 2.0)
    module.grow.fwds(q, spy.diff_pair(5.0, 1.0))
    assert (q.primal, q.grad) == (15, 13)
    n, w = tensor(module, np.zeros(30, np.int32)), tensor(module, a).with_grads()
    assert w.grad is not None
    w.grad.copy_from(da)
    r = module.pop.fwds(w, n)
    same(r, 5 * a)
    same(r.grad, 5 * da)
    same(w, a * a)
    same(w.grad, 2 * a * da)
    same(n, np.full(30, 7))


def test_forward_of_vectors_matrices_and_arrays(module: spy.Module) -> None:
    m, dm, v = integers(2, 3), integers(2, 3, seed=1), integers(30, 3, seed=2)
    x = tensor(module, m, "float2x3").with_grads(grad_in=tensor(module, dm, "float2x3"))
    y = module.apply.fwds(x, tensor(module, v, "float3"))
    assert y.dtype.name == "float2"
    same(y, v @ m.T)
    same(y.grad, v @ dm.T)
    w, u, dw = integers(3), integers(30, seed=3), integers(3, seed=4)
    y = module.weigh.fwds(tensor(module, w).with_grads(grad_in=tensor(module, dw)), tensor(module, u))
    same(y.grad, (dw[0] * u + dw[1]) * u + dw[2])


def test_forward_of_views(module: spy.Module) -> None:
    a, da = integers(4, 6), integers(4, 6, seed=1)
    x = tensor(module, a).with_grads(grad_in=tensor(module, da))
    for key in ((slice(None), slice(None, None, -2)), (2,), (slice(1, 2), slice(None))):
        y = module.copy.fwds(x[key])
        same(y, 3 * a[key])
        same(y.grad, 3 * da[key])
    y = module.copy.fwds(x[:1].broadcast_to((3, 6)))
    same(y.grad, np.broadcast_to(3 * da[:1], (3, 6)))


def test_forward_with_options(module: spy.Module) -> None:
    a = integers(30)
    x = tensor(module, a).with_grads(grad_in=spy.Tensor.ones(module.device, 30))
    y = module.gained.set(gain=5.0).constants({"power": 3}).fwds(x)
    same(y, 5 * a**3)
    same(y.grad, 15 * a**2)
    y = module.last.group_size(64).fwds(x)
    same(y.grad, np.full(30, 4))
    y = module.at.fwds(x.view((5, 6)), spy.call_id())
    rows, columns = np.indices((5, 6))
    same(y.grad, 10 * rows + columns + 1)


def test_forward_of_what_has_no_derivative(module: spy.Module) -> None:
    # A function may return an integer and still be differentiable.
    x = tensor(module, [1.0, 2, 3]).with_grads()
    y = module.count.fwds(x)
    assert y.grad is None
    same(y, [1, 2, 3])


def test_forward_results_of_a_kind(module: spy.Module) -> None:
    x = tensor(module, [1.0, 2]).with_grads(grad_in=tensor(module, [10.0, 20]))
    y = module.copy.fwds(x, _result="ndbuffer")
    assert isinstance(y, spy.NDDifferentiableBuffer)
    same(y, [3, 6])
    same(y.grad, [30, 60])
    assert type(module.copy.return_type(spy.Tensor).fwds(spy.diff_pair(1.0, 2.0))) is spy.Tensor
