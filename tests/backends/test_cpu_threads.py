"""Launches that threads of the CPU share: what is read at once is complete, and the caller waits once a launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu import backend as cpu_backend
from slangpy_rt.backends.cpu.kernel import PROBE_ENOUGH
from slangpy_rt.backends.cpu.threads import Threads

pytestmark = pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")

TEXT = """
uint turned(uint x, uint turns) { for (uint k = 0; k < turns; ++k) x = x * 1664525 + 1013904223; return x; }
[Differentiable] float mul(float a, float b) { return a * b; }
"""
COUNT = 1 << 14
HEAVY = 10_000


class CountedThreads(Threads):
    """Four threads whatever the machine has; ``waits`` counts how often a caller waited for the others."""

    waits = 0

    def __init__(self, count: int) -> None:
        super().__init__(4)
        wait = self._gate.wait

        def counted() -> Any:
            self.waits += 1
            return wait()

        self._gate.wait = counted  # type: ignore[assignment]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[spy.Device]:
    monkeypatch.setattr(cpu_backend, "Threads", CountedThreads)
    with spy.Device("cpu") as opened:
        yield opened


def turned(x: np.ndarray[Any, Any], turns: int) -> np.ndarray[Any, Any]:
    """What ``turned`` gives: ``factor * x + added``, the function applied that often to two numbers."""
    factor, added = 1, 0
    for _ in range(turns):
        factor, added = factor * 1664525 % 2**32, (added * 1664525 + 1013904223) % 2**32
    return x * np.uint32(factor) + np.uint32(added)


@pytest.mark.parametrize("place", [0, 1])
def test_all_work_in_a_sixteenth_of_the_elements(device: spy.Device, place: int) -> None:
    """One piece of the launch has all the work: its first one, which the caller begins, or its last one."""
    module: Any = spy.Module.load_from_source(device, "cpu_threads", TEXT)
    x, turns = np.arange(COUNT, dtype=np.uint32), np.zeros(COUNT, np.uint32)
    part = slice(COUNT // 16) if place == 0 else slice(-COUNT // 16, None)
    turns[part] = HEAVY
    turns[64:128] = np.maximum(turns[64:128], 200)
    wanted = x.copy()
    for number in np.unique(turns):
        wanted[turns == number] = turned(x[turns == number], int(number))
    given, threads = (spy.Tensor.from_numpy(device, v) for v in (x, turns)), device.backend._threads  # type: ignore[attr-defined]
    given = tuple(given)
    result = spy.Tensor.zeros(device, COUNT, "uint")
    module.turned(*given, _result=result)
    before = threads.waits
    for k in range(1, 17):
        result.clear()
        module.turned(*given, _result=result)
        np.testing.assert_array_equal(np.asarray(result.to_numpy()), wanted)
        assert place == 1 or threads.waits == before + k


def test_a_deterministic_device_waits_for_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch has pieces of a fixed size, the last of them shorter; here one piece alone has work."""
    monkeypatch.setattr(cpu_backend, "Threads", CountedThreads)
    with spy.Device("cpu", deterministic=True) as device:
        module: Any = spy.Module.load_from_source(device, "cpu_threads", TEXT)
        every = np.arange(64 * PROBE_ENOUGH + 1, dtype=np.uint32)
        late = turned(every, 50 * HEAVY)
        for count in (PROBE_ENOUGH + 1, 3 * PROBE_ENOUGH + 5, every.size):
            for place in (0, count // 2, count - 1):
                turns, wanted = np.zeros(count, np.uint32), every[:count].copy()
                turns[place], wanted[place] = 50 * HEAVY, late[place]
                result = spy.Tensor.full(device, count, 7, "uint")
                module.turned(every[:count], turns, _result=result)
                np.testing.assert_array_equal(np.asarray(result.to_numpy()), wanted)
