"""Eight threads at once: calls, first calls, memory, NumPy arguments, derivatives, command lists,
errors. What happens when a device is closed under them is in test_exit.py.

Every thread has arrays of its own unless a test says otherwise, and compares what comes back with NumPy. Values are
small whole numbers, so that results are exact in any order. Python switches threads every 10 us here instead of 5 ms,
and all threads leave a barrier together. A thread that hangs fails its test.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

THREADS = 8
PATIENCE = 120.0  # seconds until a thread counts as hung; the longest test takes some seconds alone

SLANG = """
import slangpy_rt;

float add(float a, float b) { return a + b; }
float3 turn(float3 v, int k) { return k % 2 == 0 ? v.yzx : v.zxy; }
[Differentiable] float mul(float a, float b) { return a * b; }
void grow(inout float a, float by) { a += by; }
float pick(Tensor<float, 1> x, int i) { return x[i]; }
float slow(float x) { for (int k = 0; k < 2000; ++k) x = x * 1.5 - floor(x * 1.5); return x; }
T twice<T : IArithmetic>(T x) { return x + x; }
"""

Array = npt.NDArray[np.float32]
Work = Callable[[int], None]


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Threads take turns every 10 us."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_threads", SLANG)


def together(work: Work, threads: int = THREADS) -> None:
    """Call ``work(0)``, ``work(1)``, ... at the same time; raise the first error of any of them."""
    start = threading.Barrier(threads)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            start.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    # Daemons, so that one that hangs does not keep the process.
    running = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(threads)]
    for thread in running:
        thread.start()
    end = time.monotonic() + PATIENCE
    for thread in running:
        thread.join(max(0.0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in running), "threads hang"
    if errors:
        raise errors[0]


def numbers(k: int, n: int) -> Array:
    """Whole numbers from 0 to 999, others for each thread."""
    return np.random.default_rng(k).integers(0, 1000, n).astype(np.float32)


def on(device: spy.Device, array: Any) -> spy.Tensor:
    tensor: spy.Tensor = spy.Tensor.from_numpy(device, array)
    return tensor


# Calls.


@one_device
def test_prepared_calls(device: spy.Device, module: spy.Module) -> None:
    size = 1000
    sample = on(device, numbers(0, size))
    module.add(sample, sample, _result=sample)

    def work(k: int) -> None:
        ones, total = on(device, np.full(size, k + 1, np.float32)), on(device, numbers(k, size))
        for _ in range(300):
            module.add(total, ones, _result=total)
        np.testing.assert_array_equal(total.to_numpy(), numbers(k, size) + 300 * (k + 1))

    together(work)


def test_one_kernel_over_other_sizes(device: spy.Device, module: spy.Module) -> None:
    # What a backend remembers of a kernel's last launch is another one's each time.
    def work(k: int) -> None:
        sizes = [1, 63, 64, 1000 + k, 4096 * (k + 1)]
        pairs = [(on(device, numbers(k + n, n)), on(device, np.zeros(n, np.float32))) for n in sizes]
        for turn in range(20):
            for x, out in pairs:
                module.add(x, float(turn), _result=out)
        for n, (_, out) in zip(sizes, pairs, strict=True):
            np.testing.assert_array_equal(out.to_numpy(), numbers(k + n, n) + 19)

    together(work)


@sampled(3)
@pytest.mark.parametrize("turn", range(3))
def test_the_first_call_of_a_module(device: spy.Device, monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    text = f"{SLANG}// {os.urandom(8).hex()}"
    compiled: list[str] = []
    real = device.backend.compile

    def compile_(code: bytes, entry: str) -> bytes:
        compiled.append(entry)
        return real(code, entry)

    monkeypatch.setattr(device.backend, "compile", compile_)
    module = spy.Module.load_from_source(device, f"test_threads_cold_{turn}", text)
    functions: list[Any] = [None] * THREADS

    def work(k: int) -> None:
        functions[k] = module.add
        x = numbers(k, 500)
        np.testing.assert_array_equal(functions[k](on(device, x), on(device, x)).to_numpy(), 2 * x)

    together(work)
    # All of them got one function and one kernel.
    assert all(f is functions[0] for f in functions) and len(compiled) == 1


@one_device
def test_first_calls_of_other_kernels(device: spy.Device) -> None:
    types = ["int", "uint", "float", "int64_t"]
    module = spy.Module.load_from_source(device, "test_threads_kernels", f"{SLANG}// {os.urandom(8).hex()}")

    def work(k: int) -> None:
        kind = np.dtype({"int": "i4", "uint": "u4", "float": "f4", "int64_t": "i8"}[types[k % 4]])
        x = np.arange(k, k + 300).astype(kind)
        # Half of the threads name the type, the other half let it be inferred.
        function = module[f"twice<{types[k % 4]}>"] if k < 4 else module.twice
        got = function(x)
        assert got.dtype == kind
        np.testing.assert_array_equal(got, 2 * x)

    together(work)


@one_device
def test_one_file_loaded_by_all(device: spy.Device, tmp_path: Path) -> None:
    path = tmp_path / "shared.slang"
    text = "struct P { float x; float y; }\nfloat sum(P p) { return p.x + p.y; }\n"
    path.write_text(f"{text}// {os.urandom(8).hex()}")

    def work(k: int) -> None:
        module = spy.Module.load_from_file(device, path)
        points = spy.Tensor.zeros(device, 10, dtype=module.P)
        points.from_numpy(np.array([(i, k) for i in range(10)], points.to_numpy().dtype))
        np.testing.assert_array_equal(module.sum(points).to_numpy(), np.arange(10) + k)

    together(work)


@one_device
def test_a_device_a_thread(backend_name: str) -> None:
    text = f"{SLANG}// {os.urandom(8).hex()}"

    def work(k: int) -> None:
        with spy.Device(backend_name) as own:
            module = spy.Module.load_from_source(own, "test_threads_devices", text)
            x = on(own, numbers(k, 2000))
            for _ in range(20):
                x = module.add(x, 1.0)
            np.testing.assert_array_equal(x.to_numpy(), numbers(k, 2000) + 20)

    together(work, 4)


@one_device
def test_every_thread_sees_an_edit(device: spy.Device, tmp_path: Path) -> None:
    path = tmp_path / "edited.slang"
    path.write_text("int value(int x) { return x; }\n")
    module = spy.Module.load_from_file(device, path)
    edits = 6

    def work(k: int) -> None:
        for edit in range(1, edits + 1):
            if not k:
                time.sleep(0.05)
                # In one step, so that no thread reads half of it.
                new = path.with_suffix(".new")
                new.write_text(f"int value(int x) {{ return x + {edit}; }}\n// {'-' * edit}\n")
                new.replace(path)
            end = time.monotonic() + PATIENCE / 6
            # Other ranks and sizes need other kernels, so that some are in the making when the edit comes.
            shape = (edit,) * (1 + k % 3)
            while True:
                got = module.value(np.zeros(shape, np.int32))
                assert got.shape == shape and (got == got.flat[0]).all() and 0 <= got.flat[0] <= edits
                if got.flat[0] >= edit or time.monotonic() > end:
                    break
                time.sleep(0.005)
            assert got.flat[0] >= edit

    together(work)
    # No call of the old text is left over.
    time.sleep(0.05)
    for rank in (1, 2, 3):
        for n in range(1, edits + 1):
            assert (module.value(np.zeros((n,) * rank, np.int32)) == edits).all(), (n, rank)


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


@sampled(2)
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
    one, many = on(device, [2.0]).with_grads(), on(device, numbers(1, 3000)).with_grads()
    result = spy.Tensor.empty(device, 3000).with_grads(grad_in=spy.Tensor.ones(device, 3000))

    def work(k: int) -> None:
        for _ in range(20):
            module.mul.bwds(one, many, _result=result)

    together(work)
    assert one.grad is not None and many.grad is not None
    np.testing.assert_array_equal(many.grad.to_numpy(), np.full(3000, 2 * 20 * THREADS, np.float32))
    # Up to 1000 * 3000 * 160 in units of the gcd, 160: below 2^24 of those.
    assert one.grad.to_numpy() == pytest.approx(20 * THREADS * numbers(1, 3000).sum(dtype=np.float64), rel=1e-5)


# Errors.


def test_an_error_reaches_the_thread_that_made_it(backend_name: str) -> None:
    with spy.Device(backend_name, debug=True) as own:
        module = spy.Module.load_from_source(own, "test_threads_debug", SLANG)

        def work(k: int) -> None:
            x = on(own, numbers(k, 50))
            for turn in range(20):
                if k % 2:
                    np.testing.assert_array_equal(module.pick(x, spy.grid((50,))).to_numpy(), numbers(k, 50))
                else:
                    with pytest.raises(spy.OutOfBoundsError, match=rf"at \({50 + turn},\)"):
                        module.pick(x, 50 + turn)

        together(work)
