"""The order of work on buffers that are the same memory of another library; queues only note what they wait for."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slangpy_rt.arrays.dlpack import Import
from slangpy_rt.runtime.lane import Lane
from slangpy_rt.runtime.queues import Order


class Queue:
    """A queue whose marks are its name and the number of pieces of work before them."""

    deferred = True

    def __init__(self, name: str) -> None:
        self.name, self.work = name, 0
        self.waits: list[Any] = []

    def mark(self) -> tuple[str, int]:
        return self.name, self.work

    def wait(self, mark: tuple[str, int]) -> None:
        self.waits.append(mark)


class Foreign:
    """A buffer on memory of another library."""


class Scene:
    """A device with its own queue and two streams."""

    def __init__(self) -> None:
        self.queues = [Queue(name) for name in ("main", "s", "t")]
        self.order = Order(self.queues[0])  # type: ignore[arg-type]
        self.lanes = [self.order.main, *(self.order.adopt(queue) for queue in self.queues[1:])]  # type: ignore[arg-type]

    def foreign(self, first: int, end: int) -> Any:
        buffer = Foreign()
        self.order.share_foreign(buffer, first, end)  # type: ignore[arg-type]
        return buffer

    def use(self, lane: Lane, buffer: Any, writes: bool) -> list[Any]:
        """Use a buffer on a lane; return the marks that were waited for."""
        return self.use_all(lane, [(buffer, writes)])

    def use_all(self, lane: Lane, uses: list[tuple[Any, bool]]) -> list[Any]:
        """Use buffers on a lane in one piece of work; return the marks that were waited for."""
        queue: Any = lane.queue
        queue.waits = []
        with self.order.lock:
            self.order.order_use(lane, tuple(buffer for buffer, _ in uses), tuple(writes for _, writes in uses))
        queue.work += 1
        waits: list[Any] = queue.waits
        return waits


def test_two_buffers_on_the_same_memory_are_used_in_turn() -> None:
    scene = Scene()
    _, s, t = scene.lanes
    a, b = scene.foreign(1000, 2000), scene.foreign(1500, 1600)
    scene.use(s, a, True)
    scene.use(t, scene.foreign(2000, 3000), True)
    assert scene.use(t, b, False) == [("s", 1)]  # reads what s wrote under another name
    assert scene.use(s, a, True) == [("t", 2)]  # writes what t read


def test_buffers_beside_one_another_are_not() -> None:
    scene = Scene()
    _, s, t = scene.lanes
    a, b, empty = scene.foreign(1000, 2000), scene.foreign(2000, 3000), scene.foreign(1500, 1500)
    scene.use(s, a, True)
    assert ("s", 1) not in scene.use(t, empty, True) + scene.use(t, b, True)
    assert len({id(buffer.uses) for buffer in (a, b, empty)}) == 3


def test_one_that_joins_two_orders_them_all() -> None:
    scene = Scene()
    main, s, t = scene.lanes
    a, b = scene.foreign(1000, 2000), scene.foreign(3000, 4000)
    scene.use(s, a, True)
    scene.use(t, b, True)
    both = scene.foreign(1500, 3500)
    # The device's own queue waits for both, and the next on any of them waits for it.
    main_queue: Any = main.queue
    assert set(main_queue.waits) >= {("s", 1), ("t", 1)}
    assert a.uses is both.uses and b.uses is both.uses
    assert scene.use(s, b, False)[0][0] == "main"
    assert scene.use(t, a, True) != []


@pytest.mark.parametrize("later_first", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_of_two_buffers_of_one_lane_the_later_use_is_waited_for(later_first: bool, writes: bool) -> None:
    scene = Scene()
    main, s, t = scene.lanes
    early, late = Foreign(), Foreign()
    # Marks are set where the program goes on with another lane: one behind each of the two.
    scene.use(s, early, True)
    scene.use(main, Foreign(), True)
    scene.use(s, late, True)
    given = [(late, writes), (early, writes)]
    assert ("s", 2) in scene.use_all(t, given if later_first else given[::-1])
    assert ("s", 1) not in scene.queues[2].waits
    # It is waited for once.
    assert scene.use_all(t, given) == []
    if writes:
        # The reading lanes too, at their later turn.
        scene.use(s, early, False)
        scene.use(main, Foreign(), True)
        scene.use(s, late, False)
        given = [(late, True), (early, True)]
        assert scene.use_all(main, given if later_first else given[::-1])[-1] == ("s", 4)


def test_readers_do_not_wait_for_each_other() -> None:
    scene = Scene()
    main, s, t = scene.lanes
    buffer = Foreign()
    assert scene.use(main, buffer, True) == []
    assert scene.use(s, buffer, False) == [("main", 1)]
    assert scene.use(t, buffer, False) == [("main", 1)]
    assert scene.use(s, buffer, False) == scene.use(main, buffer, False) == []
    # One that writes waits for all that read since, and the next ones for that alone.
    assert set(scene.use(main, buffer, True)) == {("s", 2), ("t", 1)}
    assert scene.use(t, buffer, True) == [("main", 3)]
    assert scene.use(s, buffer, False) == [("t", 2)]
    assert scene.use(t, buffer, False) == []


def test_memory_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    a = scene.foreign(1000, 2000)
    uses = a.uses
    del a
    assert scene.foreign(1000, 2000).uses is not uses


@pytest.mark.parametrize("part", [np.s_[:], np.s_[1:3, ::2], np.s_[::-1], np.s_[:, ::-2], np.s_[:0]])
def test_where_an_array_lies(part: Any) -> None:
    x = np.zeros((4, 6), "f4")[part]
    extent: Any = Import.extent
    strides = tuple(step // 4 for step in x.strides)
    found = extent.fget(SimpleNamespace(address=x.ctypes.data, shape=x.shape, strides=strides, typestr="f4"))
    if x.size:
        assert found == np.lib.array_utils.byte_bounds(x)
    else:
        assert found[0] == found[1]


def test_an_interrupted_stream_leaves_its_queue_to_the_next() -> None:
    order = Order(Queue("main"))  # type: ignore[arg-type]
    made = []

    def make() -> Any:
        made.append(Queue(f"s{len(made)}"))
        return made[-1]

    taken: list[Lane] = []
    first = order.take(taken, make)
    assert taken == [first] and order.lanes == [order.main, first]
    order.idle.extend(taken)
    assert order.take([], make) is first and order.take([], make) is not first
    assert len(made) == 2


def test_a_closed_device_is_neither_waited_for_nor_kept() -> None:
    mine, theirs = Scene(), Scene()
    a, b = Foreign(), Foreign()
    mine.order.share(theirs.order, a, b)  # type: ignore[arg-type]
    lane, other = mine.lanes[0], theirs.lanes[0]
    found = [mine.use(lane, a, True), theirs.use(other, b, True), mine.use(lane, a, True), theirs.use(other, b, True)]
    assert found == [[("main", k)] for k in (0, 1, 1, 2)]
    theirs.order.close()
    theirs.queues[0].mark = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    assert mine.use(lane, a, True) == []
    held = weakref.ref(theirs.queues[0])
    del theirs, other, b
    a.uses = None  # type: ignore[attr-defined]
    gc.collect()
    assert held() is None
