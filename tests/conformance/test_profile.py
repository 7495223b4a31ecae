"""Profiles: every launch is in them, with times that agree with the clock, and none after their end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy

SOURCE = """
float add(float a, float b) { return a + b; }
[Differentiable] float mul(float a, float b) { return a * b; }
int slow(int x, int times) { for (int k = 0; k < times; ++k) x = x * 1664525 + 1013904223; return x; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "profiled", SOURCE)


def tensor(module: spy.Module, array: Any, dtype: Any = np.float32) -> spy.Tensor:
    return spy.Tensor.from_numpy(module.device, np.asarray(array, dtype))


def test_every_call_is_counted(module: spy.Module) -> None:
    x, y = tensor(module, np.ones(100)), tensor(module, np.zeros(100))
    bound = module.add.bind(x, x, _result=y)
    commands = module.device.command_list()
    for _ in range(3):
        module.add.append_to(commands, x, x, _result=y)
    a, r = x.with_grads(), y.with_grads(grad_in=x)
    module.mul.bwds(a, 2.0, _result=r)  # a debug device checks the derivative at its first call
    with spy.profile(module.device) as p:
        for _ in range(4):
            module.add(x, x, _result=y)
        bound()
        module.mul.bwds(a, 2.0, _result=r)
        module.add(np.ones(3), 1.0)
        commands.submit()
        commands.submit()
    bound()
    counts = {row.title: row.calls for row in p.rows}
    assert counts == {
        "float add(float a, float b)": 6,
        "backward derivative of float mul(float a, float b)": 1,
        "command list of 3 calls": 2,
    }
    assert len(p.work) == 9
    for row in p.rows:
        assert 0 <= row.least <= row.seconds / row.calls <= row.most <= row.seconds and row.host > 0
    assert module.device.info in p.rows[0].device
    text = str(p)
    assert all(title in text for title in counts) and "mean us" in text


def test_times(module: spy.Module) -> None:
    x = tensor(module, np.ones(2000), np.int32)
    module.slow(x, 30_000, _result=x)
    module.device.synchronize()
    with spy.profile(module.device) as p:
        started = time.perf_counter()
        module.slow(x, 1_000, _result=x)
        module.slow(x, 200_000, _result=x)
        module.device.synchronize()
        spent = time.perf_counter() - started
    short, long = (w.seconds for w in p.work)
    assert 0 < short < long < spent and long > 2 * short
    first, second = p.work
    assert first.queued <= second.queued and first.began + first.seconds <= second.began + 1e-4


def test_streams_and_the_trace(backend_name: str, tmp_path: Path) -> None:
    with spy.Device(backend_name) as device:
        module = spy.Module.load_from_source(device, "profiled", SOURCE)
        s, t = device.stream(), device.stream()
        x, y = tensor(module, np.ones(100)), tensor(module, np.ones(100))
        with spy.profile() as p:
            module.add.stream(s)(x, 1.0, _result=x)
            module.add.stream(t)(y, 1.0, _result=y)
            module.add(x, y)
    assert [w.stream for w in p.work if w.device.endswith(device.info)] == [1, 2, 0]
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == 2 * len(p.work)
    assert {e["name"] for e in slices} == {"float add(float a, float b)"}
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {"host", "stream 0", "stream 1", "stream 2"} <= names
    for e in slices:
        assert e["dur"] >= 0 and isinstance(e["ts"], float)


def test_what_is_refused(module: spy.Module, backend_name: str) -> None:
    with spy.profile(module.device), pytest.raises(spy.BindError, match="being profiled already"):
        spy.profile(module.device).__enter__()
    with spy.Device(backend_name) as other:
        pass
    with pytest.raises(spy.DeviceError, match="was closed"), spy.profile(other):
        pass


def test_a_device_that_is_closed_meanwhile(backend_name: str) -> None:
    device = spy.Device(backend_name)
    with spy.profile(device) as p:
        spy.Module.load_from_source(device, "profiled", SOURCE).add(1, 2)
        device.close()
    assert p.work == ()


def test_many_calls(module: spy.Module) -> None:
    x = tensor(module, np.zeros(10))
    bound = module.add.bind(x, 1.0, _result=x)
    with spy.profile(module.device) as p:
        for _ in range(6000):
            bound()
    assert [row.calls for row in p.rows] == [6000] and (x.numpy() == 6000).all()
