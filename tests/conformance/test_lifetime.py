"""How long things live: memory behind results and views, devices and modules, and calls from many threads."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.base import Buffer
from tests.depth import every_device, needs, one_device, one_in

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
float add(float a, float b) { return a + b; }
float heavy(float x) { for (int k = 0; k < 50; ++k) x = x * 1.5 - floor(x * 1.5); return x; }
int cold(int a, int b) { return a * 7 + b; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_lifetime", SLANG)


def ramp(n: int, start: int = 0) -> Any:
    """Every element another number."""
    return np.arange(start, start + n, dtype=np.float32)


def trample(device: spy.Device, n: int) -> None:
    """Use up memory that was given back, so that reading it would show."""
    gc.collect()
    for _ in range(8):
        spy.Tensor.full(device, n, -1)


@every_device
def test_results_outlive_arguments(device: spy.Device, module: spy.Module) -> None:
    results = []
    for k in range(20):
        left = spy.Tensor.from_numpy(device, ramp(5000, k))
        results.append(module.add(left, spy.Tensor.full(device, 5000, k)))
        del left
    trample(device, 5000)
    for k, result in enumerate(results):
        np.testing.assert_array_equal(result.to_numpy(), ramp(5000, 2 * k))


def test_a_chain_of_temporaries(device: spy.Device, module: spy.Module) -> None:
    x = spy.Tensor.from_numpy(device, ramp(3000))
    for _ in range(100):
        x = module.add(module.add(x, 1), module.add(x, -x.size))[:]
        x = module.add(x, spy.Tensor.full(device, 3000, 3000 - 1))
        x = module.add(x, spy.Tensor.from_numpy(device, -x.to_numpy() / 2))
    np.testing.assert_array_equal(x.to_numpy(), ramp(3000))


@every_device
def test_views_keep_memory(device: spy.Device, module: spy.Module) -> None:
    view = spy.Tensor.from_numpy(device, ramp(4000)).view((40, 100))[3:, ::2][None]
    trample(device, 4000)
    expected = ramp(4000).reshape(40, 100)[3:, ::2][None]
    np.testing.assert_array_equal(view.to_numpy(), expected)
    np.testing.assert_array_equal(module.add(view, 1).to_numpy(), expected + 1)


def test_host_memory_is_not_kept(module: spy.Module) -> None:
    class Watched(np.ndarray[Any, Any]):
        pass

    source = ramp(100).view(Watched)
    module.add(np.asarray(source), 1)
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


def buffers() -> int:
    """How many buffers are alive."""
    gc.collect()
    return sum(isinstance(item, Buffer) for item in gc.get_objects())


@pytest.mark.parametrize("kind", one_in(4, ["tensor", "mixed", "numpy", "numbers"]))
def test_thousands_of_calls_need_no_more_memory(device: spy.Device, module: spy.Module, kind: str) -> None:
    host = ramp(300)
    left, right = spy.Tensor.from_numpy(device, host), spy.Tensor.from_numpy(device, host)
    into = spy.Tensor.zeros(device, 300)
    calls: dict[str, Callable[[], Any]] = {
        "tensor": lambda: (module.add(left, right), module.add(left, right, _result=into)),
        "numpy": lambda: module.add(host, host),
        "mixed": lambda: module.add(left[1:], host[1:]),
        "numbers": lambda: module.add(1.0, 2.0),
    }
    call = calls[kind]
    for _ in range(300):
        call()
    device.synchronize()
    alive = buffers()
    growth = []
    tracemalloc.start()
    try:
        for _ in range(4):
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(500):
                call()
            device.synchronize()
            gc.collect()
            growth.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    # Python resizes its own tables now and then; a leak shows every time. 500 of the smallest objects are 8 kB.
    assert min(growth) < 6000, growth
    assert buffers() <= alive


def test_a_module_goes_when_nobody_holds_it(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_lifetime_gone", "float one(float x) { return x + 1; }")
    assert module.one(1) == 2
    module_gone, function_gone = weakref.ref(module), weakref.ref(module.one)
    del module
    gc.collect()
    assert module_gone() is None and function_gone() is None


@every_device
def test_a_closed_device_refuses_everything(backend_name: str, device: spy.Device) -> None:
    own = spy.Device(backend_name)
    module = spy.Module.load_from_source(own, "test_lifetime", SLANG)
    host = ramp(10)
    tensor = spy.Tensor.from_numpy(own, host)
    result = module.add(tensor, tensor)
    module.add(host, host)
    module.add(1, 2)
    own.close()
    own.close()
    expected = f"this {backend_name} device was closed; open another with create_device('{backend_name}')."
    assert repr(own) == f"Device('{backend_name}': {own.info}, closed)"
    uses: list[Callable[[], Any]] = [
        own.synchronize,
        result.to_numpy,
        lambda: spy.Tensor.zeros(own, 4),
        lambda: tensor.copy_from(host),
        lambda: module.add(tensor, tensor),
        lambda: module.add(tensor, tensor, _result=result),
        lambda: module.add(host, host),
        lambda: module.add(host, 1, _result=host),
        lambda: module.add(1, 2),
        lambda: module.heavy(host),
    ]
    for use in uses:
        with pytest.raises(spy.DeviceError) as caught:
            use()
        assert str(caught.value) == expected
    np.testing.assert_array_equal(host, ramp(10))


def test_a_device_is_a_context(backend_name: str) -> None:
    with spy.Device(backend_name) as own:
        tensor = spy.Tensor.from_numpy(own, ramp(10))
    with pytest.raises(spy.DeviceError):
        tensor.to_numpy()
    with pytest.raises(RuntimeError, match="inside"), spy.Device(backend_name) as own:
        raise RuntimeError("inside")
    with pytest.raises(spy.DeviceError):
        own.synchronize()


def test_two_devices_at_once(backend_name: str, device: spy.Device, module: spy.Module) -> None:
    with spy.Device(backend_name) as other:
        twin = spy.Module.load_from_source(other, "test_lifetime", SLANG)
        here, there = spy.Tensor.from_numpy(device, ramp(1000)), spy.Tensor.from_numpy(other, ramp(1000))
        for _ in range(50):
            here, there = module.add(here, 1), twin.add(there, 2)
        np.testing.assert_array_equal(here.to_numpy(), ramp(1000, 50))
        np.testing.assert_array_equal(there.to_numpy(), ramp(1000, 100))
        with pytest.raises(spy.BindError):
            module.add(here, there)
    # Closing one leaves the other alone.
    np.testing.assert_array_equal(module.add(here, 1).to_numpy(), ramp(1000, 51))


def test_a_warm_start_needs_no_compiler(
    backend_name: str, device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.add(ramp(10), 1)
    monkeypatch.setattr("slangpy_rt.slang.sessions.new_session", None)
    monkeypatch.setattr(type(device.backend), "compile", None)
    with spy.Device(backend_name) as own:
        warm = spy.Module.load_from_source(own, "test_lifetime", SLANG)
        np.testing.assert_array_equal(warm.add(ramp(10), 1), ramp(10, 1))
        with pytest.raises(TypeError, match="NoneType"):
            spy.Module.load_from_source(own, "test_lifetime", SLANG + "// changed")


def test_threads_share_a_function(device: spy.Device, module: spy.Module) -> None:
    start = threading.Barrier(8)
    failures: list[str] = []

    def work(k: int) -> None:
        start.wait()
        for turn in range(40):
            a = np.arange(500 + 13 * k, dtype=np.int32)
            # The first call of all prepares the kernel, in whichever threads come first.
            if not np.array_equal(module.cold(a, k), a * 7 + k):
                failures.append(f"thread {k}, turn {turn}: arrays")
            left = spy.Tensor.from_numpy(device, a + turn)
            if not np.array_equal(module.cold(left, left).to_numpy(), (a + turn) * 8):
                failures.append(f"thread {k}, turn {turn}: tensors")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_share_long_calls(device: spy.Device, module: spy.Module) -> None:
    x = np.random.default_rng(5).random(200_000, np.float32)
    expected = module.heavy(x)
    got: list[Any] = [None] * 4

    def work(k: int) -> None:
        got[k] = module.heavy(x[k:])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        np.testing.assert_array_equal(got[k], expected[k:])


def test_arrays_print_as_numpy_does(device: spy.Device) -> None:
    tensor = spy.Tensor.from_numpy(device, ramp(6).reshape(2, 3))
    assert str(tensor) == str(ramp(6).reshape(2, 3))
    assert tensor.summary == "Tensor<float> of shape (2, 3)"


@every_device
@pytest.mark.parametrize("count", [100, 30_000, 5_000_000])
def test_copies_keep_the_order_of_calls(device: spy.Device, module: spy.Module, count: int) -> None:
    """What is queued before a copy sees the old contents, and what is queued after it the new ones."""
    old, new = ramp(count), -ramp(count, 7)
    x, y = spy.Tensor.from_numpy(device, old), spy.Tensor.zeros(device, count)
    first = module.add(x, 1)
    x.copy_from(new)
    second = module.add(x, 1)
    x.clear()
    third = module.add(x, 1)
    x.copy_from(old)
    y.copy_from(x)
    module.add(x, 5, _result=x)
    np.testing.assert_array_equal(first.to_numpy(), old + 1)
    np.testing.assert_array_equal(second.to_numpy(), new + 1)
    np.testing.assert_array_equal(third.to_numpy(), np.ones(count))
    np.testing.assert_array_equal(y.to_numpy(), old)
    np.testing.assert_array_equal(x.to_numpy(), old + 5)


@needs("zero_copy")
def test_memory_of_other_libraries_is_kept(device: spy.Device, module: spy.Module) -> None:
    """A Tensor of another library's memory, a view of it and what was recorded with it need no other reference."""
    torch = pytest.importorskip("torch")
    makers: list[Callable[[int], Any]] = [
        lambda k: ramp(5000, k), lambda k: ramp(10_000, k)[:5000], lambda k: torch.arange(5000.0) + k,
    ]  # fmt: skip
    kept = [spy.Tensor.from_dlpack(device, make(k)) for k in range(8) for make in makers]
    views = [spy.Tensor.from_dlpack(device, make(0))[2:][::2] for make in makers]
    commands, out = device.command_list(), spy.Tensor.zeros(device, 5000)
    module.add.append_to(commands, spy.Tensor.from_dlpack(device, makers[0](3)), 1.0, _result=out)
    bound = module.add.bind(spy.Tensor.from_dlpack(device, makers[0](4)), 1.0)
    gc.collect()
    used = [ramp(5000, -5000) for _ in range(64)] + [torch.full((5000,), -1.0) for _ in range(64)]
    for k, tensor in enumerate(kept):
        np.testing.assert_array_equal(tensor.to_numpy(), ramp(5000, k // len(makers)))
    for view in views:
        np.testing.assert_array_equal(view.to_numpy(), ramp(5000)[2:][::2])
    commands.submit()
    np.testing.assert_array_equal(out.to_numpy(), ramp(5000, 4))
    np.testing.assert_array_equal(bound().to_numpy(), ramp(5000, 5))
    del used


@needs("zero_copy")
def test_exports_share_memory_or_copy_it(device: spy.Device) -> None:
    torch = pytest.importorskip("torch")
    for exported in (np.from_dlpack, torch.from_dlpack):
        for how, shares in (({}, True), ({"copy": False}, True), ({"copy": True}, False), ({"copy": None}, True)):
            t = spy.Tensor.from_numpy(device, ramp(6))
            for part in (t, t[1:4], t.reshape(2, 3)):
                try:
                    theirs = exported(part, **how)
                except TypeError:  # NumPy takes copy from 2.1 on
                    continue
                theirs[0] = theirs[0] - 1
                before = ramp(6)
                if shares:
                    assert (np.asarray(theirs) == part.to_numpy()).all()
                    t.copy_from(before)
                assert (t.to_numpy() == before).all()
