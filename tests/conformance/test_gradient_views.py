"""Gradients through maps and views: outer products, diagonals, steps and stretched memory."""

from __future__ import annotations

import numpy as np
import pytest
from _gradients import integers, load, same, seed_of, tensor

import slangpy_rt as spy
from tests.depth import one_device


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions of ``_gradients``."""
    return load(device)


# Maps


@one_device
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


@one_device
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
    assert t.grad_in is None and t.grad_out is None
    x = t.with_grads()
    assert x.grad is x.grad_in is x.grad_out and x.grad is not None
    same(x.grad, np.zeros(3))
    assert t.grad_in is None and t.grad_out is None
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
    assert type(plain) is spy.Tensor and plain.grad_out is None
    for made in (spy.Tensor.zeros_like(x), spy.Tensor.empty_like(x)):
        assert made.grad_out is None and made.shape == (3,)
    module.mul.bwds(x.detach(), y, _result=seed_of(module, integers(3, seed=4)))
    same(x.grad, np.zeros(3))
    same(other, integers(3, seed=2) + integers(3, seed=3) * integers(3, seed=4))


def test_a_tensor_without_gradient_says_so(module: spy.Module) -> None:
    t = tensor(module, integers(3))
    with pytest.raises(spy.BindError) as caught:
        t.grad.clear()
    assert str(caught.value) == (
        "Tensor.grad: this Tensor<float> of shape (3,) has no gradient. with_grads() returns a tensor of the same "
        "memory that has one; grad_out and grad_in are None where there is none."
    )


def test_calls_that_are_no_derivatives_ignore_gradients(module: spy.Module) -> None:
    a, b = integers(3), integers(3, seed=1)
    x, r = tensor(module, a).with_grads(), spy.Tensor.empty(module.device, 3).with_grads()
    y = module.mul(x, tensor(module, b))
    assert type(y) is spy.Tensor and y.grad_out is None
    same(y, a * b)
    assert module.mul(x, tensor(module, b), _result=r) is r
    same(r, a * b)
    same(x.grad, np.zeros(3))
    module.grow(x, 2.0)
    same(x, 2 * a)
    same(x.grad, np.zeros(3))
