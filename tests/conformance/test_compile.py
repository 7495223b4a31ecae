"""``spy.compile``: kernels are there before the first call, several are compiled at a time, and nothing is run."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs, one_device

SOURCE = """
float add(float a, float b) { return a + b; }
float scale(float x, float by) { return x * by; }
[Differentiable] float square(float x) { return x * x; }
void put(float x, inout float y) { y = x; }
float broken(float x) { return missing(x); }
struct S { float v; float twice(float x) { return 2 * x * v; } }
"""
GOOD = SOURCE.replace("float broken(float x) { return missing(x); }\n", "")
KERNEL = '[shader("compute")] [numthreads(8, 1, 1)] void fill(uint3 t : SV_DispatchThreadID, uniform float *p)\n'
KERNEL += "{ p[t.x] = 3; }\n"


class Count:
    """Counts compilations, and makes the first two of them wait for each other."""

    def __init__(self, compiled: Any, together: int = 1) -> None:
        self._compiled = compiled
        self._barrier = threading.Barrier(together)
        self._together = together
        self.count = 0

    def __call__(self, code: bytes, entry: str) -> bytes:
        self.count += 1
        if self.count <= self._together:
            self._barrier.wait(60)
        return bytes(self._compiled(code, entry))


def opened(device: spy.Device, name: str, text: str = GOOD) -> spy.Module:
    return spy.Module.load_from_source(device, name, text)


def counted(device: spy.Device, monkeypatch: pytest.MonkeyPatch, together: int = 1) -> Count:
    count = Count(device.backend.compile, together)
    monkeypatch.setattr(device.backend, "compile", count, raising=False)
    # Kernels of earlier runs of the tests.
    monkeypatch.setattr(device.kernels, "_cache", type(device.cache)(None, 0))
    device.kernels.forget()
    return count


def test_calls_after_it_compile_nothing_and_it_runs_nothing(
    device: spy.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = opened(device, "compiled_before")
    x, y = (spy.Tensor.from_numpy(device, np.arange(8, dtype=np.float32)) for _ in range(2))
    out, numbers = spy.Tensor.zeros(device, 8, "float"), np.arange(5, dtype=np.float32)
    count = counted(device, monkeypatch)
    calls = [partial(m.add, x, y, _result=out), partial(m.scale, by=2.0, x=numbers), partial(m.put.call, 9.0, y)]
    spy.compile(calls)
    assert count.count == 3
    assert (out.to_numpy() == 0).all()
    assert (y.to_numpy() == np.arange(8)).all()
    again = iter(calls)
    assert next(again)() is out
    assert (out.to_numpy() == 2 * np.arange(8)).all()
    assert (next(again)() == 2 * numbers).all()
    next(again)()
    assert (y.to_numpy() == 9).all()
    # Other sizes have the same kernels.
    assert (m.scale(np.arange(77, dtype=np.float32), by=3.0) == 3 * np.arange(77)).all()
    assert count.count == 3


def test_two_kernels_are_compiled_at_once(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    m = opened(device, "compiled_at_once")
    x = spy.Tensor.from_numpy(device, np.arange(8, dtype=np.float32))
    # Each of the first two waits until the other is being compiled too; one after the other they would fail.
    count = counted(device, monkeypatch, 2)
    spy.compile([partial(m.add, x, x), partial(m.scale, x, 2.0)])
    assert count.count == 2
    assert (m.add(x, x).to_numpy() == 2 * np.arange(8)).all()


def test_threads_that_want_one_kernel_compile_it_once(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    m = opened(device, "compiled_once")
    x = spy.Tensor.from_numpy(device, np.arange(8, dtype=np.float32))
    count = counted(device, monkeypatch)
    spy.compile([partial(m.add, x, x)] * 8)
    assert count.count == 1


@one_device
def test_derivatives_methods_and_kernels(device: spy.Device) -> None:
    m = opened(device, "compiled_kinds")
    x = spy.Tensor.from_numpy(device, np.arange(8, dtype=np.float32)).with_grads()
    out = m.square(x).with_grads()
    things = spy.InstanceTensor(m.S, (4,))
    spy.compile([partial(m.square.bwds, x, _result=out), partial(things.twice, 2.0)])
    assert (x.grad.to_numpy() == 0).all()


@needs("groups")
@one_device
def test_kernels(device: spy.Device) -> None:
    m = opened(device, "compiled_kernel", KERNEL)
    x = spy.Tensor.zeros(device, 8, "float")
    spy.compile([partial(m.fill.dispatch, (8, 1, 1), p=x)])
    assert (x.to_numpy() == 0).all()


@one_device
def test_errors_name_the_call_and_come_in_their_order(device: spy.Device) -> None:
    m = opened(device, "compiled_wrong")
    x = spy.Tensor.from_numpy(device, np.arange(8, dtype=np.float32))
    spy.compile([])
    with pytest.raises(spy.BindError) as caught:
        spy.compile(partial(m.add, x, x))
    assert str(caught.value).startswith("compile: functools.partial(")
    for wrong in (m.add, len, partial(len, x), partial(m.add.bind, x, x), (m.add, x, x)):
        with pytest.raises(spy.BindError, match=r"^compile: call 1 is .*; expected functools.partial of a Slang"):
            spy.compile([partial(m.add, x, x), wrong])
    y = spy.Tensor.from_numpy(device, np.arange(7, dtype=np.float32))
    with pytest.raises(spy.ShapeError):
        spy.compile([partial(m.add, x, x), partial(m.add, x, y), partial(m.add, x)])
    with pytest.raises(spy.BindError):
        spy.compile([partial(m.add, x), partial(m.add, x, y)])


@pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
def test_a_users_own_cpp_may_be_cpp_17() -> None:
    # A function object that is called while compiling.
    cpp = "[](float x) { constexpr auto one = [](int k) { return k; }; constexpr int n = one(1); return x + n; }($0)"
    text = f'float next(float x) {{ __target_switch {{ case cpp: __intrinsic_asm "{cpp}"; }} }}'
    x = np.arange(5, dtype=np.float32)
    with spy.Device("cpu") as device:
        np.testing.assert_array_equal(opened(device, "compiled_cpp_17", text).next(x), x + 1)
