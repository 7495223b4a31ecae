"""Forward derivatives of numbers, arrays, views and parameters of every direction."""

from __future__ import annotations

import numpy as np
import pytest
from _gradients import integers, load, same, tensor

import slangpy_rt as spy
from tests.depth import every_device, one_device

# What these test does not depend on the device.
pytestmark = one_device


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions of ``_gradients``."""
    return load(device)


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


@every_device
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
    assert y.grad_out is None and y.grad_in is None
    same(y, [1, 2, 3])


def test_forward_results_of_a_kind(module: spy.Module) -> None:
    x = tensor(module, [1.0, 2]).with_grads(grad_in=tensor(module, [10.0, 20]))
    y = module.copy.fwds(x, _result="ndbuffer")
    assert isinstance(y, spy.NDDifferentiableBuffer)
    same(y, [3, 6])
    same(y.grad, [30, 60])
    assert type(module.copy.return_type(spy.Tensor).fwds(spy.diff_pair(1.0, 2.0))) is spy.Tensor
