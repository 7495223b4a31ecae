"""Gradients of spy.matmul, by ``bwds`` and by PyTorch's autograd, beside PyTorch's own in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from tests.depth import one_device, sampled

pytestmark = one_device

# Shapes of a and b, which are transposed, and whether there is a bias.
CASES = [
    ((4, 5), (5, 6), (), True),
    ((5, 4), (6, 5), ("a", "b"), True),
    ((2, 3, 4, 5), (5, 6), (), True),
    ((4, 5), (2, 1, 5, 6), (), True),
    ((1, 3, 5, 4), (2, 1, 5, 6), ("a",), False),
    ((5,), (5, 6), (), True),
    ((4, 5), (5,), (), True),
    ((5, 4), (5,), ("a",), True),
    ((5,), (5,), (), False),
    ((3, 4, 5), (5,), (), True),
    ((5,), (3, 6, 5), ("b",), True),
]


def made(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def wanted(a: Any, b: Any, bias: Any, seed: Any, transposed: tuple[str, ...], alpha: float) -> tuple[Any, list[Any]]:
    """The product, and the gradients of all arguments, by PyTorch in double precision."""
    values = [torch.from_numpy(v).double().requires_grad_() for v in (a, b, bias) if v is not None]
    left = values[0].mT if "a" in transposed and a.ndim > 1 else values[0]
    right = values[1].mT if "b" in transposed and b.ndim > 1 else values[1]
    product = alpha * (left @ right)
    if bias is not None:
        product = product + values[2]
    product.backward(torch.from_numpy(np.asarray(seed)).double())
    return product.detach().numpy(), [v.grad.numpy() for v in values]


def arguments(case: Any) -> tuple[Any, Any, Any, Any]:
    shape_a, shape_b, transposed, with_bias = case
    a, b = made(shape_a, 1), made(shape_b, 2)
    left = a.swapaxes(-1, -2) if "a" in transposed and a.ndim > 1 else a
    right = b.swapaxes(-1, -2) if "b" in transposed and b.ndim > 1 else b
    shape = np.matmul(left, right).shape
    return a, b, made(shape[-1:], 3) if with_bias else None, made(shape, 4)


@pytest.mark.parametrize("case", CASES, ids=str)
@sampled(3)
def test_gradients_of_tensors(device: spy.Device, case: Any) -> None:
    a, b, bias, seed = arguments(case)
    _, grads = wanted(a, b, bias, seed, case[2], 1.5)
    given = [spy.Tensor.from_numpy(device, v).with_grads() for v in (a, b, bias) if v is not None]
    for count in (1, 2):
        spy.matmul.bwds(
            given[0],
            given[1],
            bias=given[2] if bias is not None else None,
            _result=spy.Tensor.from_numpy(device, seed),
            transpose_a="a" in case[2],
            transpose_b="b" in case[2],
            alpha=1.5,
        )
        for value, grad in zip(given, grads, strict=True):
            np.testing.assert_allclose(value.grad.to_numpy(), count * grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("activation", [None, "gelu"])
@sampled(4)
def test_gradients_of_torch(device: spy.Device, case: Any, activation: str | None) -> None:
    a, b, bias, seed = arguments(case)
    want, grads = wanted(a, b, bias, seed, case[2], 1.5)
    given = [torch.from_numpy(v).clone().requires_grad_() for v in (a, b, bias) if v is not None]
    got = spy.matmul(
        given[0],
        given[1],
        bias=given[2] if bias is not None else None,
        transpose_a="a" in case[2],
        transpose_b="b" in case[2],
        alpha=1.5,
        activation=activation,
        device=device,
    )
    if activation is None:
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-4, atol=1e-4)
    else:
        x = torch.from_numpy(want).requires_grad_()
        y = torch.nn.functional.gelu(x, approximate="tanh")
        np.testing.assert_allclose(got.detach().numpy(), y.detach().numpy(), rtol=1e-4, atol=1e-4)
        y.backward(torch.from_numpy(np.asarray(seed)).double())
        _, grads = wanted(a, b, bias, x.grad.numpy(), case[2], 1.5)
    got.backward(torch.from_numpy(np.asarray(seed)))
    for value, grad in zip(given, grads, strict=True):
        np.testing.assert_allclose(value.grad.numpy(), grad, rtol=1e-3, atol=1e-3)


@sampled(9)
@pytest.mark.parametrize("shapes", [((2, 3, 4), (4, 2)), ((3,), (3, 2)), ((3, 2), (2,))], ids=str)
def test_second_derivatives(device: spy.Device, shapes: Any) -> None:
    if "double" not in device.caps.scalars:
        pytest.skip("the device has no doubles")
    a, b = (torch.from_numpy(made(s, k)).double().requires_grad_() for k, s in enumerate(shapes))
    bias = torch.ones(np.matmul(np.ones(shapes[0]), np.ones(shapes[1])).shape[-1]).double().requires_grad_()

    def call(a: Any, b: Any, bias: Any) -> Any:
        return spy.matmul(a, b, bias=bias, alpha=0.5, device=device)

    assert torch.autograd.gradcheck(call, (a, b, bias))
    assert torch.autograd.gradgradcheck(call, (a, b, bias))


def test_gradients_that_share_memory(device: spy.Device) -> None:
    same = spy.Tensor.from_numpy(device, 3 * np.eye(3, dtype=np.float32)).with_grads()
    spy.matmul.bwds(same, same, _result=spy.Tensor.ones(device, (3, 3)))
    np.testing.assert_array_equal(same.grad.to_numpy(), np.full((3, 3), 6))
    # The gradient of the product is that of a: both products use what it held.
    a, b, seed = (made((4, 4), k) for k in range(3))
    shared = spy.Tensor.from_numpy(device, seed)
    left = spy.Tensor.from_numpy(device, a).with_grads(grad_out=shared)
    right = spy.Tensor.from_numpy(device, b).with_grads()
    spy.matmul.bwds(left, right, _result=shared)
    _, (grad_a, grad_b) = wanted(a, b, None, seed, (), 1)
    np.testing.assert_allclose(shared.to_numpy(), seed + grad_a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(right.grad.to_numpy(), grad_b, rtol=1e-4, atol=1e-5)


def test_no_grad_and_out(device: spy.Device) -> None:
    a = torch.ones(3, 3, requires_grad=True)
    out = torch.zeros(3, 3)
    with torch.no_grad():
        assert spy.matmul(a, a, out=out, device=device) is out
        assert not spy.matmul(a, a, device=device).requires_grad
    assert (out == 3).all()
    with pytest.raises(spy.BindError) as caught:
        spy.matmul(a, a, out=out, device=device)
    assert str(caught.value) == (
        "matmul: PyTorch records no gradients through out; leave it out, or use torch.no_grad()."
    )
