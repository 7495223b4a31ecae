"""Command lists: the memory that they need, how long they and their arrays live, their order, and threads."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _programs import SLANG, module

import slangpy_rt as spy
from slangpy_rt.backends.base import Buffer
from tests.depth import deep, every_device

pytestmark = every_device

__all__ = ["module"]  # the fixture


def tensor(module: spy.Module, array: Any) -> spy.Tensor:
    made: spy.Tensor = spy.Tensor.from_numpy(module.device, np.asarray(array, np.float32))
    return made


def buffers() -> int:
    """How many buffers are alive."""
    gc.collect()
    return sum(isinstance(item, Buffer) for item in gc.get_objects())


def growth(work: Callable[[], object], device: spy.Device) -> tuple[int, int]:
    """The bytes of Python and the buffers that work leaves behind each time, the least of four times."""
    work()
    device.synchronize()
    alive, grown = buffers(), []
    tracemalloc.start()
    try:
        for _ in range(4):
            before, _ = tracemalloc.get_traced_memory()
            work()
            device.synchronize()
            gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    return min(grown), buffers() - alive


@deep
def test_thousands_of_submissions_need_no_more_memory(module: spy.Module) -> None:
    x, y = tensor(module, np.arange(100)), tensor(module, np.zeros(100))
    commands = module.device.command_list()
    for _ in range(5):
        module.add.append_to(commands, x, 1.0, _result=y)
        module.add.append_to(commands, y, 1.0, _result=x)

    def submit() -> None:
        for _ in range(250):
            commands.submit()

    left, alive = growth(submit, module.device)
    # 250 of the smallest objects are 4 kB.
    assert left < 3000 and alive <= 0
    # 10 calls for each of 5 times 250 submissions, modulo 16.
    np.testing.assert_array_equal(x.numpy(), (np.arange(100) + 12500) % 16)


@deep
def test_thousands_of_calls_in_lists_need_no_more_memory(module: spy.Module) -> None:
    x = tensor(module, np.arange(100))

    def record() -> None:
        for _ in range(4):
            commands = module.device.command_list()
            for _ in range(500):
                module.grow.append_to(commands, x, 1.0)
                module.add.append_to(commands, x, 2.0)
            commands.submit()

    left, alive = growth(record, module.device)
    # 4000 of the smallest objects are 64 kB; the tables of Python and of the pool vary a little.
    assert left < 6000 and alive <= 0
    # 500 calls in each of 4 lists, 5 times, modulo 16.
    np.testing.assert_array_equal(x.numpy(), (np.arange(100) + 10000) % 16)


def test_a_list_outlives_its_arrays(module: spy.Module) -> None:
    source, total = tensor(module, np.arange(1000) % 16), tensor(module, np.zeros(1000))
    commands = module.device.command_list()
    between = module.add.append_to(commands, source, tensor(module, np.ones(1000)))
    module.grow.append_to(commands, total, between)
    module.grow.append_to(commands, total, module.add.append_to(commands, between, 3.0))
    del source, between
    gc.collect()
    for n in range(1, 4):
        # Memory that was given back would be used for these.
        others = [spy.Tensor.full(module.device, 1000, 7) for _ in range(8)]
        commands.submit()
        np.testing.assert_array_equal(total.numpy(), n * (2 * (np.arange(1000) % 16 + 1) % 16 + 3) % 16)
        assert all((other.numpy() == 7).all() for other in others)


def test_lists_and_calls_keep_their_order(module: spy.Module) -> None:
    x, host = tensor(module, np.arange(3000) % 16), np.arange(3000) % 16
    first, second = module.device.command_list(), module.device.command_list()
    module.grow.append_to(first, x, 5.0)
    module.twice.append_to(first, 3000, x)
    module.twice.append_to(second, 3000, x)
    module.grow.append_to(second, x, -3.0)
    for k in range(60):
        first.submit()
        host = 2 * (host + 5) % 16
        module.grow(x, float(k))
        host = (host + k) % 16
        second.submit()
        host = (2 * host - 3) % 16
        module.twice.dispatch(3000, x)
        host = 2 * host % 16
        module.grow(x, 1.0)
        host = (host + 1) % 16
        if k % 20 == 7:
            x[:100].copy_from(np.full(100, k % 16, np.float32))
            host[:100] = k % 16
        if k % 10 == 3:
            np.testing.assert_array_equal(x.numpy(), host)
    np.testing.assert_array_equal(x.numpy(), host)


def test_other_arguments_while_a_list_runs(module: spy.Module) -> None:
    x = tensor(module, np.zeros(5000))
    commands = module.device.command_list()
    for _ in range(50):
        module.grow.append_to(commands, x, 1.0)
    total = 0
    for k in range(40):
        commands.update(17, x, float(k % 8))
        commands.submit()
        total += 49 + k % 8
    np.testing.assert_array_equal(x.numpy(), np.full(5000, total % 16))


def test_a_result_stays_where_it_was_made(module: spy.Module) -> None:
    commands = module.device.command_list()
    ones = tensor(module, np.ones(3))
    first = module.add.append_to(commands, ones, 1.0)
    second = module.add.append_to(commands, first, 1.0)
    number = module.add.append_to(commands, 1.0, 2.0)
    commands.submit()
    for k in range(3):
        commands.update(0, tensor(module, np.full(3, k)), 5.0)
        commands.update(2, 3.0, float(k))
        commands.submit()
        assert first.numpy().tolist() == [k + 5] * 3 and second.numpy().tolist() == [k + 6] * 3
        assert number.numpy() == 3 + k
    assert commands.waits == ((), (0,), ())


def test_copies_within_one_array(module: spy.Module) -> None:
    x = tensor(module, np.arange(12))
    with module.device.command_list() as commands:
        commands.copy(x[6:], x[:6])
        commands.copy(x, x)
        for to, source in ((x[1:], x[:-1]), (x[:-1], x[1:])):
            with pytest.raises(spy.BindError, match=r"of shape \(11,\) share memory; copy to a third array first"):
                commands.copy(to, source)
        commands.copy(x[:0], x[1:1])
        commands.clear(x[:0])
    assert x.numpy().tolist() == [0, 1, 2, 3, 4, 5] * 2


@deep
def test_lists_that_go_while_they_run(module: spy.Module) -> None:
    x = tensor(module, np.arange(5000) % 16)
    for k in range(60):
        commands = module.device.command_list()
        step = tensor(module, np.full(5000, k % 16))
        for _ in range(7):
            step = module.add.append_to(commands, step, 1.0)
        module.grow.append_to(commands, x, step)
        commands.submit()
        del commands, step
        if k % 2:
            gc.collect()
        # Takes the memory of the list, if that came back too early.
        module.grow(x, tensor(module, np.full(5000, 2)))
    total = sum(k + 7 + 2 for k in range(60))
    np.testing.assert_array_equal(x.numpy(), (np.arange(5000) + total) % 16)


def test_a_device_closed_under_its_lists(backend_name: str) -> None:
    own = spy.Device(backend_name)
    inner = spy.Module.load_from_source(own, "programs", SLANG)
    x = tensor(inner, np.zeros(1000))
    submitted, recorded, updated = (own.command_list() for _ in range(3))
    for commands in (submitted, recorded, updated):
        for _ in range(20):
            inner.grow.append_to(commands, x, 1.0)
    submitted.submit()
    updated.submit()
    own.close()
    for commands in (submitted, recorded):
        with pytest.raises(spy.DeviceError, match=f"this {backend_name} device was closed"):
            commands.submit()
    with pytest.raises(spy.DeviceError, match="closed"):
        inner.grow.append_to(recorded, x, 1.0)
    with pytest.raises(spy.DeviceError, match="closed"):
        updated.update(0, x, 2.0)
    with pytest.raises(spy.DeviceError, match="closed"):
        own.command_list()
    assert len(submitted) == 20 and "20 calls" in submitted.explain()
    del submitted, recorded, updated, commands
    gc.collect()


def in_threads(work: Callable[[int], None]) -> None:
    """Run it in four threads that begin together; what one raises is raised."""
    start, failures = threading.Barrier(4), list[BaseException]()

    def run(k: int) -> None:
        try:
            start.wait()
            work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_list_submitted_from_many_threads(module: spy.Module, size: int) -> None:
    # Each call writes all of what the next one reads, and the same at each submission.
    x = tensor(module, np.arange(size) % 16)
    commands = module.device.command_list()
    last = x
    for _ in range(10):
        last = module.add.append_to(commands, last, 3.0)

    def work(k: int) -> None:
        for _ in range(30):
            commands.submit()

    in_threads(work)
    np.testing.assert_array_equal(last.numpy(), (np.arange(size) + 30) % 16)


@pytest.mark.parametrize("size", [100, 50_000])
def test_lists_of_many_threads(module: spy.Module, size: int) -> None:
    def work(k: int) -> None:
        x = tensor(module, np.arange(size) % 16)
        for turn in range(8):
            commands = module.device.command_list()
            for _ in range(10):
                module.grow.append_to(commands, x, float(k))
            commands.submit()
            commands.update(turn, x, 1.0)
            commands.submit()
        total = 8 * (20 * k - k + 1)
        np.testing.assert_array_equal(x.numpy(), (np.arange(size) + total) % 16)

    in_threads(work)
