"""How gradients add up: over calls, over arguments that share one, and over what broadcasting repeats."""

from __future__ import annotations

import numpy as np
import pytest
from _gradients import folded, integers, load, same, seed_of, tensor

import slangpy_rt as spy


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions of ``_gradients``."""
    return load(device)


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
    assert y.grad_out is None and y.grad_in is None
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
