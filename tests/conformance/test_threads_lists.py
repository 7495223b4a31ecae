"""Eight threads at once with derivatives and with command lists, their own and those of all.

What the threads are like is said in test_threads.py.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from _threads import SLANG, THREADS, impatient, module, numbers, on, together

import slangpy_rt as spy
from tests.depth import one_device

__all__ = ["impatient", "module"]  # the fixtures


# Derivatives.


def test_derivatives(device: spy.Device, module: spy.Module) -> None:
    def work(k: int) -> None:
        x, y, g = numbers(k, 2000) % 8, numbers(k + 1, 2000) % 8, numbers(k + 2, 2000) % 8
        a, b = on(device, x).with_grads(), on(device, y).with_grads()
        one = on(device, [3.0]).with_grads()
        result = spy.Tensor.empty_like(a).with_grads(grad_in=on(device, g))
        assert a.grad is not None and b.grad is not None and one.grad is not None
        for _ in range(20):
            module.mul.bwds(a, b, _result=result)
            module.mul.bwds(one, b, _result=result)
        np.testing.assert_array_equal(a.grad.to_numpy(), 20 * y * g)
        np.testing.assert_array_equal(b.grad.to_numpy(), 20 * (x + 3) * g)
        # The sum over the call: below 2^24, where float counts exactly.
        assert one.grad.to_numpy() == 20 * (y * g).sum()

    together(work)


@one_device
def test_the_first_derivative(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_threads_first_bwds", f"{SLANG}// {os.urandom(8).hex()}")

    def work(k: int) -> None:
        x, y = numbers(k, 300), numbers(k + 1, 300)
        a = on(device, x).with_grads()
        module.mul.bwds(a, on(device, y), _result=spy.diff_pair(None, 2.0))
        assert a.grad is not None
        np.testing.assert_array_equal(a.grad.to_numpy(), 2 * y)

    together(work)


@one_device
def test_a_deterministic_device(backend_name: str) -> None:
    # Its sums need memory and a second kernel for each call.
    with spy.Device(backend_name, deterministic=True) as own:
        module = spy.Module.load_from_source(own, "test_threads_exact", SLANG)

        def work(k: int) -> None:
            y = np.random.default_rng(k).random(3000, np.float32)
            bits = set()
            for _ in range(5):
                one = on(own, [1.0]).with_grads()
                module.mul.bwds(one, on(own, y), _result=spy.diff_pair(None, 1.0))
                assert one.grad is not None
                bits.add(one.grad.to_numpy().tobytes())
            assert len(bits) == 1
            np.testing.assert_allclose(np.frombuffer(bits.pop(), np.float32), y.sum(dtype=np.float64), rtol=1e-6)

        together(work)


# Command lists.


def test_a_list_a_thread(device: spy.Device, module: spy.Module) -> None:
    def work(k: int) -> None:
        x, y = on(device, numbers(k, 700)), spy.Tensor.zeros(device, 700)
        commands = device.command_list()
        for _ in range(10):
            module.grow.append_to(commands, x, float(k))
        module.add.append_to(commands, x, x, _result=y)
        for _ in range(30):
            commands.submit()
        expected = numbers(k, 700) + 300 * k
        np.testing.assert_array_equal(x.to_numpy(), expected)
        np.testing.assert_array_equal(y.to_numpy(), 2 * expected)

    together(work)


def test_lists_made_and_dropped(device: spy.Device, module: spy.Module) -> None:
    def work(k: int) -> None:
        x = on(device, numbers(k, 700))
        for turn in range(30):
            with device.command_list() as commands:
                module.grow.append_to(commands, x, 1.0)
                doubled = module.add.append_to(commands, x, x)
            if turn % 5 == 4:
                np.testing.assert_array_equal(doubled.to_numpy(), 2 * (numbers(k, 700) + turn + 1))

    together(work)


def test_arguments_changed_between_submissions(device: spy.Device, module: spy.Module) -> None:
    def work(k: int) -> None:
        x = spy.Tensor.zeros(device, 500)
        commands = device.command_list()
        for _ in range(3):
            module.grow.append_to(commands, x, 0.0)
        for turn in range(40):
            commands.update(turn % 3, x, float(k + turn))
            commands.submit()
        steps, expected = [0, 0, 0], 0
        for turn in range(40):
            steps[turn % 3] = k + turn
            expected += sum(steps)
        np.testing.assert_array_equal(x.to_numpy(), np.full(500, expected, np.float32))

    together(work)


def test_one_list_submitted_by_all(device: spy.Device, module: spy.Module) -> None:
    # Each submission sees what the one before left, whoever made it: none is lost, and none runs beside another.
    x, once, big = spy.Tensor.zeros(device, 500), spy.Tensor.zeros(device, 500), spy.Tensor.zeros(device, 200_000)
    commands = device.command_list()
    for _ in range(5):
        module.grow.append_to(commands, x, 1.0)
    module.add.append_to(commands, x, 1.0, _result=once)
    module.grow.append_to(commands, big, 1.0)

    # The list has not been recorded: the first submissions of all threads do that at the same time.
    def work(k: int) -> None:
        for _ in range(50):
            commands.submit()

    together(work)
    np.testing.assert_array_equal(x.to_numpy(), np.full(500, 5 * 50 * THREADS, np.float32))
    np.testing.assert_array_equal(once.to_numpy(), x.to_numpy() + 1)
    np.testing.assert_array_equal(big.to_numpy(), np.full(200_000, 50 * THREADS, np.float32))


@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_calls_on_one_array(device: spy.Device, module: spy.Module, size: int) -> None:
    # A device has one queue: a call of another thread comes before or after this one.
    x = spy.Tensor.zeros(device, size)
    turns = 100 if size < 10_000 else 25

    def work(k: int) -> None:
        for _ in range(turns):
            module.grow(x, 1.0)

    together(work)
    np.testing.assert_array_equal(x.to_numpy(), np.full(size, turns * THREADS, np.float32))


def test_gradients_of_all_threads_in_one_array(device: spy.Device, module: spy.Module) -> None:
    one, many = on(device, [2.0]).with_grads(), on(device, numbers(1, 3000) % 8).with_grads()
    result = spy.Tensor.empty(device, 3000).with_grads(grad_in=spy.Tensor.ones(device, 3000))

    def work(k: int) -> None:
        for _ in range(20):
            module.mul.bwds(one, many, _result=result)

    together(work)
    assert one.grad is not None and many.grad is not None
    np.testing.assert_array_equal(many.grad.to_numpy(), np.full(3000, 2 * 20 * THREADS, np.float32))
    # At most 7 * 3000 * 160, below 2^24, where float counts exactly. Each wave adds to a larger sum with an error.
    assert one.grad.to_numpy() == 20 * THREADS * (numbers(1, 3000) % 8).sum()
