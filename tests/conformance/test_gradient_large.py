"""Gradients of calls of more than a million elements: on a GPU groups walk over them, and add columns up."""

from __future__ import annotations

import numpy as np
import pytest
from _gradients import folded, integers, load, modes, same, seed_of, tensor

import slangpy_rt as spy
from tests.depth import deep, needs, sampled


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions of ``_gradients``."""
    return load(device)


@sampled(4)
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


@pytest.mark.parametrize("columns", [16, 33, pytest.param(1024, marks=deep), pytest.param(2100, marks=deep)])
def test_columns_in_lanes(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are no multiple of a vector, and blocks of columns; groups end within the rows."""
    pytest.importorskip("llvmlite.binding")
    with spy.Device("cpu") as device:
        monkeypatch.setattr(device.backend, "range_target", None)  # no other form takes the place
        module, rows = load(device), 3 * 997
        b, g = integers(rows, columns), integers(rows, columns, seed=1)
        y, r = tensor(module, b).with_grads(), seed_of(module, g)
        x, number = (tensor(module, integers(*shape, seed=2)).with_grads() for shape in ((columns,), (1,)))
        module.mul.bwds(x, y, _result=r)
        same(x.grad, folded(b * g, (columns,)))
        same(y.grad, integers(columns, seed=2) * g)
        module.mul.bwds(number, y, _result=r)
        same(number.grad, folded(b * g, (1,)))
        # Rows of two dimensions, whose walks along them differ.
        apart = tensor(module, np.repeat(b.reshape(3, 997, columns), 2, 1)).with_grads()
        z = tensor(module, integers(columns, seed=2)).with_grads()
        module.mul.bwds(z, apart[:, ::2], _result=seed_of(module, g.reshape(3, 997, columns)))
        same(z.grad, folded(b * g, (columns,)))


@needs("grouped calls")
def test_two_columns_of_one_call(module: spy.Module) -> None:
    """Both sums pass through the memory that a group shares: the second must wait until the first is read."""
    rows, columns = 65_536, 64
    g = integers(rows, columns, seed=1)
    a, b = (integers(columns, seed=seed) for seed in (2, 3))
    x, y, r = tensor(module, a).with_grads(), tensor(module, b).with_grads(), seed_of(module, g)
    for times in (1, 2):
        module.mul.bwds(x, y, _result=r)
        same(x.grad, times * g.sum(0) * b)
        same(y.grad, times * g.sum(0) * a)
    found = modes(module.mul.bwds.explain(x, y, _result=r))
    assert "column" in found["a.grad_out"] and "column" in found["b.grad_out"]


@sampled(9)
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


@needs("double")
def test_columns_of_doubles(module: spy.Module) -> None:
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
@sampled(2)
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
    target = module.device.backend.target
    host, large = target.entry == "range", rows * columns > 1 << (15 if target.lane_threads else 20)
    assert found["a.grad_out"] == ("constant", "sum")
    assert found["b.grad_out"] == ("strided", "column" if host or large else "scatter")
    assert found["c.grad_out"] == ("strided", "row" if host else "scatter")
    assert found["d.grad_out"] == ("linear", "accumulate")
