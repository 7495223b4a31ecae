"""Waits for a timeline semaphore of Vulkan: a bounded spin, then the driver's wait. The driver is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slangpy_rt.backends.vulkan import timeline
from slangpy_rt.backends.vulkan.timeline import Timeline


class Device:
    """A device whose semaphore reaches a value at a certain time; each look at the clock takes 10 us."""

    def __init__(self, reached_at: float, software: bool = False) -> None:
        self.now, self.reached_at, self.is_software, self.exports = 0.0, reached_at, software, False
        self.calls: list[str] = []
        self.handle = 1
        self.ffi = SimpleNamespace(new=lambda kind: [0], NULL=None)
        self.lib = SimpleNamespace(
            VK_SEMAPHORE_TYPE_TIMELINE=1, vkCreateSemaphore=lambda *_: 0, vkDestroySemaphore=lambda *_: None
        )

    def struct(self, name: str, **members: Any) -> Any:
        return SimpleNamespace(**members)

    def check(self, status: int, what: str) -> None:
        assert status == 0, what

    def on_close(self, *_: Any) -> None:
        pass

    def function(self, name: str) -> Any:
        def read(handle: int, semaphore: int, out: list[int]) -> int:
            self.calls.append("read")
            out[0] = int(self.now >= self.reached_at)
            return 0

        def wait(handle: int, info: Any, limit: int) -> int:
            self.calls.append("wait")
            self.now = max(self.now, self.reached_at)
            return 0

        return read if name == "vkGetSemaphoreCounterValue" else wait

    def perf_counter(self) -> float:
        self.now += 10e-6
        return self.now


@pytest.mark.parametrize(
    ("reached_at", "software", "expected"),
    [
        (0.0, False, ["read"]),
        (35e-6, False, ["read"] * 3),
        (1.0, False, [*["read"] * 9, "wait"]),
        (1.0, True, ["wait"]),
    ],
    ids=["done", "soon", "late", "software"],
)
def test_a_wait_spins_for_a_while_and_then_blocks(
    reached_at: float, software: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device: Any = Device(reached_at, software)
    monkeypatch.setattr(timeline, "time", device)
    made = Timeline(device)
    made.wait(1)
    assert made.reached == 1
    assert device.calls == expected
    made.wait(1)
    assert device.calls == expected
