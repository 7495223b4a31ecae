"""The events that order CUDA streams: what is recorded and waited for, in turn, by a stand-in for the driver."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.runtime.queues import Order
from tests.cuda_driver import Driver, stand_in


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with stand_in(monkeypatch) as fake:
        yield fake


class Scene:
    """A device with two streams beside its own, and what the driver is told, in turn.

    ``seen`` has ``("work", stream)``, ``("record", event, stream)`` and ``("wait", stream, event)``.
    """

    def __init__(self, driver: Driver) -> None:
        self.backend = CudaBackend()
        queues = [self.backend.queue, self.backend.open_queue(), self.backend.open_queue()]
        self.order = Order(queues[0])
        self.lanes = [self.order.main, *(self.order.adopt(queue) for queue in queues[1:])]
        self.names = {queue.handle: name for queue, name in zip(queues, "mst", strict=True)}
        self.seen: list[tuple[Any, ...]] = []

        def record(event: int, stream: int) -> int:
            self.seen.append(("record", event, self.names[stream]))
            return 0

        def wait(stream: int, event: int, flags: int) -> int:
            self.seen.append(("wait", self.names[stream], event))
            return 0

        driver.cuEventRecord, driver.cuStreamWaitEvent = record, wait  # type: ignore[method-assign]

    def use(self, lane: int, *uses: tuple[Any, bool]) -> None:
        """Queue work that uses buffers."""
        buffers, written = zip(*uses, strict=True)
        with self.order.lock:
            self.order.order_use(self.lanes[lane], buffers, written)
            self.seen.append(("work", "mst"[lane]))

    def behind(self, stream: str) -> list[tuple[str, int]]:
        """For each event that the last work of a stream waits for: the recording stream, and its work before that.

        Events are used again: the last record before the wait counts.
        """
        last = max(k for k, item in enumerate(self.seen) if item == ("work", stream))
        first = max((k for k, item in enumerate(self.seen[:last]) if item == ("work", stream)), default=-1)
        found = []
        for k in range(first + 1, last):
            if self.seen[k][:2] == ("wait", stream):
                at = max(j for j in range(k) if self.seen[j][:2] == ("record", self.seen[k][2]))
                owner = self.seen[at][2]
                found.append((owner, sum(item == ("work", owner) for item in self.seen[:at])))
        return found


def test_work_waits_for_an_event_behind_what_it_conflicts_with(driver: Driver) -> None:
    scene = Scene(driver)
    a, b = SimpleNamespace(), SimpleNamespace()
    scene.use(0, (a, True))
    scene.use(1, (a, False))
    assert scene.behind("s") == [("m", 1)]
    scene.use(1, (a, False))
    assert scene.behind("s") == []
    scene.use(2, (a, False))
    assert scene.behind("t") == [("m", 1)]
    scene.use(0, (a, True))
    assert sorted(scene.behind("m")) == [("s", 2), ("t", 1)]
    scene.use(1, (b, True))
    scene.use(2, (a, False), (b, False))
    assert sorted(scene.behind("t")) == [("m", 2), ("s", 3)]
    assert driver.wrong == []
    scene.backend.close()


@pytest.mark.parametrize("later_first", [False, True])
def test_of_two_buffers_of_one_stream_the_later_work_is_waited_for(driver: Driver, later_first: bool) -> None:
    scene = Scene(driver)
    early, late = SimpleNamespace(), SimpleNamespace()
    scene.use(1, (early, True))
    scene.use(0, (SimpleNamespace(), True))
    scene.use(1, (late, True))
    uses = [(late, False), (early, False)]
    scene.use(2, *(uses if later_first else uses[::-1]))
    assert ("s", 2) in scene.behind("t") and ("s", 1) not in scene.behind("t")
    scene.backend.close()
