"""Eight threads at once: calls, first calls, edits, and errors. Closed devices are in test_exit.py.

Every thread has arrays of its own unless a test says otherwise, and compares what comes back with NumPy. Values are
small whole numbers, so that results are exact in any order. Python switches threads every 10 us here instead of 5 ms,
and all threads leave a barrier together. A thread that hangs fails its test.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _threads import PATIENCE, SLANG, THREADS, impatient, module, numbers, on, together

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled

__all__ = ["impatient", "module"]  # the fixtures


# Calls.


@needs("zero_copy")
@pytest.mark.parametrize("size", [3, 64, 65, 5000])
@pytest.mark.parametrize("way", ["call", "bind", "list", "stream"])
def test_launches_on_one_array_are_whole(device: spy.Device, way: str, size: int) -> None:
    """Launches of several threads run one after the other on the CPU: none of their additions is lost."""
    text = """
void count(inout float x)
{
    float y = x;
    for (int k = 0; k < 100; ++k)
        y = sin(y + k);
    x += y > 5 ? 2 : 1;
}
"""
    count = spy.Module.load_from_source(device, "counting", text).count
    total, turns = on(device, np.zeros(size, np.float32)), 5 if size > 100 else 60

    def work(k: int) -> None:
        run: Any = lambda: count(total)  # noqa: E731
        if way == "bind":
            run = count.bind(total)
        elif way == "list":
            commands = spy.CommandList(device)
            count.append_to(commands, total)
            run = commands.submit
        elif way == "stream":
            own = device.stream()
            run = lambda: count.stream(own)(total)  # noqa: E731
        for _ in range(turns):
            run()

    work(0)
    together(work)
    np.testing.assert_array_equal(total.to_numpy(), np.full(size, turns * (THREADS + 1), np.float32))


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
