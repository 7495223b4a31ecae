"""Gradients of parameters of every direction, in, out and inout, and of every element type."""

from __future__ import annotations

import numpy as np
import pytest
from _gradients import integers, load, same, seed_of, tensor

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled

# What these test does not depend on the device.
pytestmark = one_device


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions of ``_gradients``."""
    return load(device)


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


@sampled(3)
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


@needs("double")
def test_doubles(module: spy.Module) -> None:
    a, b, g = (integers(300, seed=k).astype(np.float64) + 2.0**-40 for k in range(3))
    x, y, r = tensor(module, a).with_grads(), tensor(module, np.array([2.0**-20])).with_grads(), seed_of(module, g)
    module.mean.bwds(x, y, _result=r)
    same(x.grad, g * 2.0**-20)
    assert y.grad is not None
    # Sums in another order than NumPy's; a float would be off by 1e-7.
    np.testing.assert_allclose(y.grad.to_numpy(), [(a * g).sum()], rtol=1e-13)
    module.mean.bwds(x, tensor(module, b), _result=r)
    np.testing.assert_allclose(x.grad.to_numpy(), g * 2.0**-20 + b * g, rtol=1e-13)  # type: ignore[union-attr]


@needs("half")
def test_halves(module: spy.Module) -> None:
    a, b, g = (integers(101, seed=k).astype(np.float16) for k in range(3))
    x, y, one = (tensor(module, v).with_grads() for v in (a, b, np.array([2], np.float16)))
    module.narrow.bwds(x, y, _result=seed_of(module, g))
    same(x.grad, b * g)
    same(y.grad, a * g)
    module.narrow.bwds(x, one, _result=seed_of(module, g))
    same(x.grad, b * g + 2 * g)
    same(one.grad, [(a.astype(int) * g.astype(int)).sum()])


@needs("half", "double")
def test_halves_floats_and_doubles_together(module: spy.Module) -> None:
    a, b, c, g = (integers(101, seed=k) for k in range(4))
    x = tensor(module, a.astype(np.float16)).with_grads()
    y, z = tensor(module, b[:1]).with_grads(), tensor(module, c.astype(np.float64)).with_grads()
    module.wide.bwds(x, y, z, _result=seed_of(module, g.astype(np.float64)))
    same(x.grad, b[0] * c * g)
    same(y.grad, [(a * c * g).sum()])
    same(z.grad, a * b[0] * g)
