"""Tuned functions on PyTorch's tensors: kinds of calls, and what autograd sees of a search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy

torch = pytest.importorskip("torch")

SOURCE = """
extern static const int K = 1;
void count(inout float x) { x += 1.0f; }
[Differentiable] float product(float a, float b) { return a * b; }
[Differentiable] float times(float a, no_diff int n) { return a * n; }
[Differentiable] void product_to(float a, out float b) { b = a * 3.0f; }
"""
CHOICES = {"K": [1, 2]}


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "tuning_torch", SOURCE)


def leaf(count: int) -> Any:
    return torch.arange(count, dtype=torch.float32).requires_grad_()


def test_kinds_of_calls_that_are_differentiated(module: spy.Module) -> None:
    told: list[Any] = []

    def prune(configs: Any, call: Any) -> Any:
        told.append(call)
        return configs[:1]

    f = module.product.constants(CHOICES).tune(prune=prune)
    for count in (10, 10, 1000):
        f(leaf(count), b=2.0)
    assert [call.shapes for call in told] == [{"a": (10,), "b": ()}, {"a": (1000,), "b": ()}]
    assert told[0].dtypes["a"] == "torch.float32"
    g = module.times.constants(CHOICES)
    np.testing.assert_array_equal(g(leaf(5), spy.grid((5,), stride=(2,))).detach(), 2 * np.arange(5) ** 2)
    by_name = module.product.constants(CHOICES).tune(key=("a",), bench=lambda run: (run(), 1.0)[1])
    assert by_name(leaf(10), 2.0).shape == (10,)


def test_gradients_of_a_tuned_call(module: spy.Module) -> None:
    x = leaf(10)
    y = module.product.constants(CHOICES)(x, 2.0)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(10, 2, np.float32))


def test_outputs_hold_what_they_held(module: spy.Module) -> None:
    f = module.product_to.constants(CHOICES)
    x, out = leaf(10), torch.full((10,), 7.0)
    f.best(x, out)
    assert not out.requires_grad and bool((out == 7).all())
    f(x, out)
    np.testing.assert_array_equal(out.detach().numpy(), 3 * np.arange(10, dtype=np.float32))
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(10, 3, np.float32))


def test_tensors_are_written_once(module: spy.Module) -> None:
    x = torch.zeros(1000)
    module.count.constants(CHOICES)(x)
    assert bool((x == 1).all())


def test_stand_ins_in_a_call_that_is_differentiated(module: spy.Module) -> None:
    class Output:
        def __init__(self) -> None:
            self.tensor, self.told = torch.zeros(10), 0

        def get_this(self) -> Any:
            return self.tensor

        def update_this(self, value: Any) -> None:
            self.told += 1

    for f in (module.product_to, module.product_to.constants(CHOICES)):
        output = Output()
        f(leaf(10), output)
        np.testing.assert_array_equal(output.tensor.detach().numpy(), 3 * np.arange(10, dtype=np.float32))
        assert output.told == 1
