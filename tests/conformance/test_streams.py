"""Streams and events: whatever stream a call is on, arrays hold what the program's order says."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.backends.base import Buffer
from tests.depth import deep, one_device

pytestmark = one_device

SOURCE = """
float add(float a, float b) { return a + b; }
// Long enough that work on two streams does overlap.
int slow(int x, int times) { for (int k = 0; k < times; ++k) x = x * 1664525 + 1013904223; return x; }
void grow(inout int a, int b) { a += b; }
[Differentiable] float mul(float a, float b) { return a * b; }
uniform float bias;
float biased(float x) { return x + bias; }
[numthreads(32, 1, 1)]
void twice(uint3 i : SV_DispatchThreadID, NDBuffer<float, 1> x)
{
    if (i.x < x.shape[0])
        x[int(i.x)] = 2 * x[int(i.x)];
}
"""
N = 2000


@pytest.fixture(scope="module")
def opened(backend_name: str, pytestconfig: pytest.Config) -> Iterator[spy.Device]:
    """A device of its own: others stay as they are without streams."""
    validation = pytestconfig.getoption("--validation") and backend_name == "vulkan"
    with spy.Device(backend_name, debug=validation) as device:
        yield device
    if validation:
        said = [text for text in device.backend.messages if "Invalid source language operand" not in text]
        assert not said, "\n".join(said)


@pytest.fixture(scope="module")
def module(opened: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(opened, "streams", SOURCE)


def tensor(module: spy.Module, array: Any, dtype: Any = np.float32) -> spy.Tensor:
    return spy.Tensor.from_numpy(module.device, np.asarray(array, dtype))


def slow(x: Any, times: int) -> Any:
    x = np.asarray(x).astype(np.uint32)
    for _ in range(times):
        x = x * np.uint32(1664525) + np.uint32(1013904223)
    return x.astype(np.int32)


def test_calls_on_streams(module: spy.Module) -> None:
    a, b = module.device.stream(), module.device.stream()
    x = tensor(module, [1, 2, 3])
    y = module.add.stream(a)(x, 10.0)
    z = module.add.stream(b)(y, y)
    assert z.numpy().tolist() == [22, 24, 26]
    assert module.add.stream(a)(1, 2) == 3
    np.testing.assert_array_equal(module.add.stream(b)(np.arange(5.0), 1), np.arange(5) + 1)
    assert module.biased.set(bias=1.0).stream(a)(2) == 3 == module.biased.stream(a).set(bias=1.0)(2)
    outer = module.add.stream(a).map((0,), (1,))(x, x)
    np.testing.assert_array_equal(outer.numpy(), x.numpy()[:, None] + x.numpy())


def test_kernels_and_gradients_on_streams(module: spy.Module) -> None:
    s = module.device.stream()
    x = tensor(module, np.arange(100))
    module.twice.stream(s).dispatch(100, x)
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(100))
    a, r = x.with_grads(), tensor(module, np.zeros(100)).with_grads(grad_in=tensor(module, np.ones(100)))
    assert a.grad is not None
    module.mul.stream(s).bwds(a, 3.0, _result=r)
    a.grad.clear()
    module.mul.bwds.stream(s)(a, 5.0, _result=r)
    np.testing.assert_array_equal(a.grad.numpy(), np.full(100, 5))


@one_device
def test_a_deterministic_derivative_on_a_stream(backend_name: str) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        module = spy.Module.load_from_source(device, "streams", SOURCE)
        s = device.stream()
        w = tensor(module, 2.0).with_grads()
        x = tensor(module, np.arange(1000))
        r = tensor(module, np.zeros(1000)).with_grads(grad_in=tensor(module, np.ones(1000)))
        for _ in range(3):
            module.mul.stream(s).bwds(w, x, _result=r)
        assert w.grad is not None and w.grad.numpy() == 3 * np.arange(1000).sum()


def test_bound_calls_on_a_stream(module: spy.Module) -> None:
    s = module.device.stream()
    x = tensor(module, np.zeros(10))
    grown = module.add.stream(s).bind(x, 1.0, _result=x)
    plain = module.add.stream(s).bind(x, x, _result=x)
    for _ in range(3):
        grown()
        plain()
    assert x.numpy().tolist() == [14] * 10


def test_lists_on_streams(module: spy.Module) -> None:
    s, t = module.device.stream(), module.device.stream()
    x, one = tensor(module, np.zeros(N)), tensor(module, np.ones(N))
    commands = module.device.command_list()
    for _ in range(20):
        module.add.append_to(commands, x, one, _result=x)
    commands.submit(s)
    commands.submit(t)
    module.add.stream(s)(x, x, _result=x)
    commands.submit()
    assert (x.numpy() == 100).all()
    commands.update(-1, x, tensor(module, np.full(N, 5)), _result=x)
    commands.submit(t)
    commands.submit(s)
    assert (x.numpy() == 148).all()


def test_events(module: spy.Module) -> None:
    device = module.device
    s, t = device.stream(), device.stream()
    x = tensor(module, np.ones(N), np.int32)
    module.slow.stream(s)(x, 1000, _result=x)
    event = s.record()
    event.wait(t)
    event.wait()
    t.wait(s)
    t.wait(device)
    event.synchronize()
    assert event.done and "done" in repr(event)
    later = device.event().record(t)
    later.synchronize()
    s.synchronize()
    assert 0 <= event.elapsed(later) < 60
    with pytest.raises(spy.BindError, match="was not recorded"):
        device.event().wait()


def test_timers_agree_with_the_clock(module: spy.Module) -> None:
    """Twenty times the work takes at least twice as long, and no longer than the host waits."""
    import time

    x = tensor(module, np.ones(N), np.int32)
    # The best of several, since others may use the device too.
    seconds: dict[int, float] = {}
    for times in (2_000, 40_000):
        for stream in (None, module.device.stream()):
            work = module.slow if stream is None else module.slow.stream(stream)
            work(x, times, _result=x)
            for _ in range(5):
                module.device.synchronize()
                started = time.perf_counter()
                with module.device.timer(stream) as timer:
                    work(x, times, _result=x)
                assert 0 < timer.seconds <= time.perf_counter() - started
                seconds[times] = min(timer.seconds, seconds.get(times, timer.seconds))
    assert seconds[40_000] > 2 * seconds[2_000]


OPS = st.lists(
    st.tuples(
        st.sampled_from(["slow", "grow", "add", "list", "upload", "read", "clear", "fresh", "bound"]),
        st.integers(0, 3),
        *[st.integers(0, 3) for _ in range(3)],
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(ops=OPS)
def test_random_programs(module: spy.Module, ops: list[tuple[str, int, int, int, int]]) -> None:
    """Calls on four queues over four arrays: what arrays hold is what NumPy computes one by one."""
    device = module.device
    streams = [None, *(device.stream() for _ in range(3))]
    model = [np.arange(N, dtype=np.int32) + 10 * k for k in range(4)]
    arrays = [tensor(module, m, np.int32) for m in model]
    for kind, q, i, j, k in ops:
        stream = streams[q]
        call = {
            name: getattr(module, name) if stream is None else getattr(module, name).stream(stream)
            for name in ("slow", "grow")
        }
        if kind == "slow":
            call["slow"](arrays[i], 300, _result=arrays[j])
            model[j] = slow(model[i], 300)
        elif kind in ("grow", "bound"):
            run = call["grow"].bind(arrays[i], arrays[j]) if kind == "bound" else None
            run() if run is not None else call["grow"](arrays[i], arrays[j])
            model[i] = model[i] + model[j]
        elif kind == "add":
            call["grow"](arrays[i], k)
            model[i] = model[i] + k
        elif kind == "list":
            commands = device.command_list()
            module.slow.append_to(commands, arrays[i], 50, _result=arrays[j])
            module.grow.append_to(commands, arrays[j], arrays[k])
            commands.submit(stream)
            model[j] = slow(model[i], 50)
            model[j] = model[j] + model[k]
        elif kind == "upload":
            model[i] = np.full(N, k, np.int32)
            arrays[i].copy_from(model[i])
        elif kind == "read":
            np.testing.assert_array_equal(arrays[i].numpy(), model[i])
        elif kind == "clear":
            arrays[i].clear()
            model[i] = np.zeros(N, np.int32)
        else:
            # The array that this replaces may still be in use.
            arrays[i] = call["slow"](arrays[j], 100)
            model[i] = slow(model[j], 100)
    for array, expected in zip(arrays, model, strict=True):
        np.testing.assert_array_equal(array.numpy(), expected)


def test_memory_is_not_used_again_too_early(module: spy.Module) -> None:
    """Arrays that go while a stream uses them, and new ones that get their memory at once."""
    s = module.device.stream()
    kept = []
    for k in range(100):
        x = tensor(module, np.full(N, k), np.int32)
        kept.append(module.slow.stream(s)(x, 200))
        del x
        module.grow(tensor(module, np.zeros(N), np.int32), 7)
    for k, array in enumerate(kept):
        assert array.numpy()[0] == slow(np.full(1, k, np.int32), 200)[0]


def test_a_stream_that_is_dropped_goes_on(module: spy.Module) -> None:
    x = tensor(module, np.zeros(N), np.int32)
    for _ in range(50):
        s = module.device.stream()
        module.grow.stream(s)(x, 1)
        del s
    gc.collect()
    assert (x.numpy() == 50).all()
    assert len(module.device.order.lanes) < 20


def test_threads_with_streams_of_their_own(module: spy.Module) -> None:
    one = tensor(module, np.ones(N))
    failed: list[str] = []

    def work(k: int) -> None:
        s = module.device.stream()
        x = tensor(module, np.full(N, k))
        for _ in range(200):
            module.add.stream(s)(x, one, _result=x)
        if not (x.numpy() == k + 200).all():
            failed.append(f"thread {k}: {x}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_printing_on_a_stream(opened: spy.Device, capfd: pytest.CaptureFixture[str]) -> None:
    text = 'int say(int x) { printf("x %d\\n", x); return x; }'
    module = spy.Module.load_from_source(opened, "streams_printing", text)
    s = opened.stream()
    x = spy.Tensor.from_numpy(opened, np.array([7], np.int32))
    module.say.stream(s)(x)
    s.synchronize()
    assert "x 7" in capfd.readouterr().out


def test_other_libraries_streams(module: spy.Module) -> None:
    device = module.device
    s = device.stream()
    if device.name != "cuda":
        with pytest.raises(spy.BindError, match="no CUDA stream"):
            s.__cuda_stream__()
        with pytest.raises(spy.UnsupportedError, match="other libraries"):
            device.stream(7)
        return
    version, handle = s.__cuda_stream__()
    assert version == 0 and handle == s.handle
    same = device.stream(s)
    x = tensor(module, np.ones(N))
    module.add.stream(same)(x, x, _result=x)
    module.add.stream(s)(x, x, _result=x)
    assert (x.numpy() == 4).all()

    class Foreign:
        cuda_stream = handle

    module.add.stream(device.stream(Foreign()))(x, x, _result=x)
    module.add.stream(device.stream(0))(x, x, _result=x)  # the legacy default stream
    assert (x.numpy() == 16).all()


def test_what_is_refused(module: spy.Module, backend_name: str) -> None:
    device = module.device
    s = device.stream()
    with pytest.raises(spy.BindError, match=r"add\.stream: 3 is no stream of"):
        module.add.stream(3)
    with pytest.raises(spy.BindError, match="None is no stream"):
        module.add.stream(None)
    with pytest.raises(spy.BindError, match="runs on one stream as a whole"):
        module.add.stream(s).append_to(device.command_list(), tensor(module, [1]), 1.0)
    with pytest.raises(spy.BindError, match="is no stream"):
        device.stream("fast")
    with pytest.raises(spy.BindError, match="is no event"):
        s.wait(3)  # type: ignore[arg-type]
    with spy.Device(backend_name) as other:
        foreign = other.stream()
        with pytest.raises(spy.BindError, match="is no stream of"):
            module.add.stream(foreign)
        with pytest.raises(spy.BindError, match="is no stream of"):
            device.command_list().submit(foreign)
        with pytest.raises(spy.BindError, match="is no event"):
            s.record().elapsed(foreign.record())
        there = spy.Module.load_from_source(other, "streams", SOURCE)
        call, event = there.add.stream(foreign), foreign.record()
        bound = call.bind(tensor(there, [1]), 1.0)
    for use in (lambda: call(1, 2), bound, foreign.synchronize, event.synchronize, foreign.record):
        with pytest.raises(spy.DeviceError, match="was closed"):
            use()
    assert "closed" in repr(event)


FORK = """
import os, sys
import numpy as np, slangpy_rt as spy
device = spy.Device(sys.argv[1])
module = spy.Module.load_from_source(device, "m", "float add(float a, float b) { return a + b; }")
x = spy.Tensor.ones(device, 100)
s = device.stream()
bound, commands = module.add.bind(x, x), device.command_list()
module.add.append_to(commands, x, x, _result=x)
commands.submit()
module.add.stream(s)(x, x, _result=x)
child = os.fork()
if child == 0:
    uses = [lambda: module.add(x, x), lambda: module.add.stream(s)(x, x), bound, commands.submit, x.numpy,
            lambda: spy.Tensor.ones(device, 3), device.synchronize, s.record, x.clear, device.command_list]
    for use in uses:
        try:
            use()
        except spy.DeviceError as error:
            assert "os.fork()" in str(error) and "spawn" in str(error), error
        else:
            raise AssertionError(use)
    device.close()
    del x, bound, commands, module, device, s
    # As multiprocessing ends its children: drivers may not survive their own exit handlers there.
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert x.numpy()[0] == 4
"""


@deep
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_is_told(backend_name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, backend_name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_what_streams_and_copies_used_goes_with_a_wait(module: spy.Module) -> None:
    def buffers() -> int:
        gc.collect()
        return sum(isinstance(o, Buffer) for o in gc.get_objects())

    device = module.device
    s = device.stream()
    x = tensor(module, np.ones(1 << 18))
    asyncio.run(x.numpy_async())  # makes the blocks that copies go through
    device.synchronize()
    before = buffers()
    for _ in range(10):
        module.add.stream(s)(x, 1.0)
    device.synchronize()
    assert buffers() == before
    for _ in range(10):
        module.add.stream(s)(x, 1.0)
    s.synchronize()
    asyncio.run(x.numpy_async())
    assert buffers() == before
