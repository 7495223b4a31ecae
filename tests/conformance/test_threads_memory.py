"""Eight threads at once that make, drop and view arrays, and give NumPy arrays as arguments.

What the threads are like is said in test_threads.py.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from _threads import THREADS, impatient, module, numbers, on, together

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

__all__ = ["impatient", "module"]  # the fixtures


# Memory.


def test_results_made_and_dropped(device: spy.Device, module: spy.Module) -> None:
    # Up to 4 MiB: blocks of pools and blocks of their own.
    sizes = [1, 100, 5000, 70_000, 300_000, 1_000_000]

    def work(k: int) -> None:
        random = np.random.default_rng(k)
        kept: list[tuple[float, spy.Tensor]] = []
        ones = {n: spy.Tensor.full(device, n, 1) for n in sizes}
        for turn in range(120):
            n = sizes[random.integers(len(sizes) if turn % 10 == 0 else 4)]
            value = float(1000 * k + turn)
            kept.append((value + 1, module.add(ones[n], value)))
            if len(kept) > 12:
                expected, tensor = kept.pop(int(random.integers(len(kept))))
                got = tensor.to_numpy()
                assert (got == expected).all(), (k, turn, expected, got)
        for expected, tensor in kept:
            assert (tensor.to_numpy() == expected).all()

    together(work)


@deep
def test_dropped_arrays_leave_others_alone(device: spy.Device, module: spy.Module) -> None:
    done = threading.Event()

    def drop(k: int) -> None:
        class Node:
            pass

        while not done.is_set():
            for n in (10, 1000, 100_000, 600_000):
                node: Any = Node()
                # A cycle: its arrays go when the collector runs, wherever that is.
                node.self, node.array = node, module.add(spy.Tensor.full(device, n, -7), -7.0)
                spy.Tensor.full(device, n, -9)
            if k:
                gc.collect()

    def use(k: int) -> None:
        for turn in range(25):
            for n in (10, 1000, 100_000):
                x = on(device, numbers(k, n))
                for _ in range(4):
                    x = module.add(module.add(x, 1.0), on(device, np.full(n, k, np.float32)))
                got = x.to_numpy()
                np.testing.assert_array_equal(got, numbers(k, n) + 4 * (k + 1), err_msg=str(turn))

    users = threading.Semaphore(0)

    def work(k: int) -> None:
        if k < 2:
            drop(k)
            return
        try:
            use(k)
        finally:
            users.release()
            if k == 2:
                for _ in range(THREADS - 2):
                    users.acquire()
                done.set()

    together(work)


def test_views_of_one_array(device: spy.Device, module: spy.Module) -> None:
    # Each thread has rows of its own in one block of memory.
    table = spy.Tensor.zeros(device, (THREADS, 5000))

    def work(k: int) -> None:
        row = table[k]
        for _ in range(100):
            module.grow(row, float(k + 1))
        np.testing.assert_array_equal(row.to_numpy(), np.full(5000, 100 * (k + 1), np.float32))

    together(work)
    expected = np.repeat(100 * np.arange(1, THREADS + 1, dtype=np.float32)[:, None], 5000, 1)
    np.testing.assert_array_equal(table.to_numpy(), expected)


# Arguments of the host.


@sampled(6)
@pytest.mark.parametrize(("size", "turns"), [(1, 100), (300, 100), (20_000, 40), (300_000, 8), (3_000_000, 2)])
def test_numpy_arguments(module: spy.Module, size: int, turns: int) -> None:
    def work(k: int) -> None:
        x, out = numbers(k, size), np.zeros(size, np.float32)
        for turn in range(turns):
            got = module.add(x, np.full(size, turn, np.float32))
            np.testing.assert_array_equal(got, x + turn)
            module.add(x, float(k), _result=out)
            np.testing.assert_array_equal(out, x + k)

    together(work)


@one_device
def test_every_kind_of_argument(device: spy.Device, module: spy.Module) -> None:
    def work(k: int) -> None:
        x = numbers(k, 999)
        tensor, vectors = on(device, x), spy.Tensor.from_numpy(device, x.reshape(333, 3), dtype="float3")
        for turn in range(40):
            np.testing.assert_array_equal(module.add(tensor, x[::-1]).to_numpy(), x + x[::-1])
            assert module.add(float(k), float(turn)) == k + turn
            turned = module.turn(vectors, turn).to_numpy()
            np.testing.assert_array_equal(turned, np.roll(x.reshape(333, 3), -1 if turn % 2 == 0 else 1, 1))
            np.testing.assert_array_equal(module.pick(tensor, spy.grid((999,))).to_numpy(), x)
            cell = spy.ValueRef(float(k))
            module.grow(cell, float(turn))
            assert cell.value == k + turn
            assert module.add([1.0, 2.0, k], turn).tolist() == [1 + turn, 2 + turn, k + turn]

    together(work)


def test_uploads_and_downloads(device: spy.Device) -> None:
    # 3 million floats go in several pieces.
    def work(k: int) -> None:
        arrays = {n: (numbers(k, n), spy.Tensor.zeros(device, n)) for n in (7, 20_000, 200_000, 3_000_000)}
        for turn in range(3):
            for x, tensor in arrays.values():
                tensor.copy_from(x + turn)
            for x, tensor in arrays.values():
                np.testing.assert_array_equal(tensor.to_numpy(), x + turn)
            for _, tensor in arrays.values():
                tensor.clear()
                assert not tensor.to_numpy().any()

    together(work)


def test_waiting_while_others_call(device: spy.Device, module: spy.Module) -> None:
    def work(k: int) -> None:
        x = on(device, numbers(k, 3000))
        for turn in range(150):
            if k % 2:
                device.synchronize()
            module.add(x, 1.0, _result=x)
            if turn % 10 == 9:
                np.testing.assert_array_equal(x.to_numpy(), numbers(k, 3000) + turn + 1)

    together(work)
