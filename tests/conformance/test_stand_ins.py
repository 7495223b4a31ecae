"""Objects that say themselves what they stand for: each is asked once a call and told what became of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy

SLANG = """
[Differentiable] float multiply(float a, no_diff float b) { return a * b; }
[Differentiable] float square(float x) { return x * x; }
void bump(inout float x) { x += 1; }
float add(float a, float b) { return a + b; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_stand_ins", SLANG)


class Stream:
    """Stands for another value each time that it is asked."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.asked = 0
        self.told: list[Any] = []

    def get_this(self) -> Any:
        self.asked += 1
        return self.values[self.asked - 1]

    def update_this(self, value: Any) -> None:
        self.told.append(value)


class Ours(Stream):
    """The same by our protocol."""

    __slang_arg__ = Stream.get_this


@pytest.mark.parametrize("kind", [Stream, Ours])
def test_asked_once_a_call(module: spy.Module, kind: type[Stream]) -> None:
    device = module.device
    numbers = kind([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert [module.add(10.0, numbers) for _ in range(2)] == [11, 12]
    weight = spy.Tensor.ones(device, 2).with_grads()
    seed = spy.Tensor.empty(device, 2).with_grads(grad_in=spy.Tensor.ones(device, 2))
    for batch in (3, 4):
        weight.grad.clear()
        module.multiply.bwds(weight, numbers, _result=seed)
        np.testing.assert_array_equal(weight.grad.to_numpy(), [batch, batch])
    tangent = spy.Tensor.ones(device, 2).with_grads(grad_in=spy.Tensor.ones(device, 2))
    for batch in (5, 6):
        np.testing.assert_array_equal(module.multiply.fwds(tangent, numbers).to_numpy(), [batch, batch])
    assert numbers.asked == 6 and numbers.told == []


@pytest.mark.parametrize("kind", [Stream, Ours])
def test_told_of_gradients(module: spy.Module, kind: type[Stream]) -> None:
    device = module.device
    tensors = [spy.Tensor.full(device, 2, x).with_grads() for x in (3.0, 4.0)]
    seed = spy.Tensor.empty(device, 2).with_grads(grad_in=spy.Tensor.ones(device, 2))
    given = kind([*tensors, spy.diff_pair(5.0)])
    for _ in tensors:
        module.square.bwds(given, _result=seed)
    assert [list(t.grad.to_numpy()) for t in tensors] == [[6, 6], [8, 8]]
    module.square.bwds(given, _result=spy.diff_pair(None, 1.0))
    assert given.values[2].grad == 10
    assert given.told == given.values
    refs = kind([spy.ValueRef(1.0), spy.ValueRef(2.0)])
    module.bump(refs)
    module.bump(refs)
    assert [ref.value for ref in refs.values] == [2, 3] and refs.told == refs.values


def test_a_ring_of_stand_ins(module: spy.Module) -> None:
    ring = Stream([])
    ring.values = [[ring]] * 2000
    for call in (module.square, module.square.bwds, module.square.fwds):
        ring.asked = 0
        with pytest.raises(spy.BindError, match="without an end"):
            call(ring)


def test_a_result_that_stands_for_nothing(module: spy.Module) -> None:
    for kind in (Stream, Ours):
        for inner in (None, kind([None])):
            nothing = kind([inner] * 3)
            with pytest.raises(spy.BindError, match="add: _result stands for None; pass a Tensor"):
                module.add(np.ones(3, np.float32), 1.0, _result=nothing)
        with pytest.raises(spy.BindError, match="add: _result stands for None"):
            module.add.bind(1.0, 1.0, _result=kind([None]))
    assert module.add(1.0, 2.0) == 3
