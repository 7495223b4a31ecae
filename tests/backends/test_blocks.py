"""Memory that was freed and is handed out again: blocks cut from slabs, slabs cut anew, memory given back."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.blocks import SizeClasses

SMALL, SLAB = 1 << 20, 4 << 20


class Driver:
    """Makes memory out of nothing, at addresses that are aligned to 64 bytes only."""

    def __init__(self) -> None:
        self.made: dict[int, int] = {}
        self.next = 64

    def allocate(self, nbytes: int) -> tuple[int, str]:
        address, self.next = self.next, self.next + (1 << 40)
        self.made[address] = nbytes
        return address, f"memory at {address}"

    def free(self, dropped: list[tuple[int, Any]]) -> None:
        for address, memory in dropped:
            assert memory == f"memory at {address}"
            del self.made[address]


class Held(Buffer):
    """A buffer that knows its block's size."""

    __slots__ = ("size",)
    size: int


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def blocks(driver: Driver) -> SizeClasses:
    return SizeClasses(driver.allocate, SMALL, SLAB)


def take(blocks: SizeClasses, size: int) -> Held | None:
    """Return a buffer of a size from the lists, as a backend does."""
    held = Held.__new__(Held)
    held.size = size
    try:
        for held.chunk in blocks.takes[size]:
            return held
    except LookupError:
        pass
    return None


def get(blocks: SizeClasses, size: int) -> Held:
    """Return a buffer of a size from the lists, or else a new one."""
    held = take(blocks, size)
    if held is None:
        held = Held.__new__(Held)
        held.size = size
        blocks.grow(size, held)
    return held


def test_blocks_are_aligned_whatever_the_driver_does(driver: Driver, blocks: SizeClasses) -> None:
    for size in (256, 1024, SMALL, 20 << 20):
        chunk = get(blocks, size).chunk
        assert chunk.address % 256 == 0
        base = chunk.address - chunk.offset
        # The driver was asked for the size alone: ALIGN bytes more are the owner's to ask for.
        assert chunk.offset + size <= driver.made[base] + 256
        assert chunk.memory == f"memory at {base}"


def test_a_freed_block_is_handed_out_again(driver: Driver, blocks: SizeClasses) -> None:
    for size in (512, 20 << 20):
        held = get(blocks, size)
        address = held.chunk.address
        del held
        again = take(blocks, size)
        assert again is not None and again.chunk.address == address
    assert len(driver.made) == 2


def test_small_blocks_are_cut_ahead(blocks: SizeClasses) -> None:
    first = get(blocks, 512)
    others = [x for _ in range(15) if (x := take(blocks, 512))]
    assert take(blocks, 512) is None
    assert len({x.chunk.address for x in [first, *others]}) == 16
    # None beyond the slab's end, and of large ones none.
    room = SLAB - 16 * 512
    many = [get(blocks, 65536) for _ in range(room // 65536)]
    assert take(blocks, 65536) is None and many
    last = get(blocks, 32768)
    while (x := take(blocks, 32768)) is not None:
        assert x.chunk.memory == last.chunk.memory
        many.append(x)


def test_an_idle_slab_is_cut_anew(driver: Driver, blocks: SizeClasses) -> None:
    old = [get(blocks, SMALL) for _ in range(SLAB // SMALL)]
    first, out = old[0].chunk.address, Held.__new__(Held)
    old.pop()
    # Three of four blocks are in use.
    assert blocks.grow(SMALL // 2, out) is False
    assert len(driver.made) == 2
    del old
    kept = [get(blocks, SMALL // 2) for _ in range(2 * SLAB // SMALL - 1)]
    assert len(driver.made) == 2
    assert blocks.grow(SMALL // 2, out) is True
    assert out.chunk.address == first
    assert take(blocks, SMALL) is None
    assert len(driver.made) == 2
    assert len(kept) == 7


def test_memory_in_use_is_not_dropped(driver: Driver, blocks: SizeClasses) -> None:
    small, large = get(blocks, 512), get(blocks, 20 << 20)
    beside = get(blocks, 1024)
    del beside
    assert blocks.idle() == 0 and blocks.drop() == []
    del small, large
    assert blocks.idle() == SLAB + (20 << 20)
    driver.free(blocks.drop())
    assert driver.made == {} and blocks.idle() == 0
    assert take(blocks, 512) is None and take(blocks, 20 << 20) is None
    # The lists still work.
    assert get(blocks, 512).chunk.address % 256 == 0


def test_the_limit_holds(driver: Driver) -> None:
    blocks = SizeClasses(driver.allocate, limit=10 << 20)
    held = [get(blocks, 1 << 20) for _ in range(30)]
    del held
    assert blocks.idle() <= 10 << 20
    many = [get(blocks, size) for size in range(1 << 20, 2 << 20, 1 << 16)]
    del many
    assert get(blocks, 4096) and blocks.idle() <= 10 << 20


def test_random_blocks_never_overlap(driver: Driver, blocks: SizeClasses) -> None:
    rng = np.random.default_rng(1)
    live: list[Held] = []
    recut = 0
    for step in range(6000):
        if live and rng.random() < (0.7 if step // 500 % 2 else 0.4):
            live.pop(int(rng.integers(len(live))))
        else:
            size = int(2 ** rng.uniform(0, 21.5)) + 511 & -512
            held = take(blocks, size)
            if held is None:
                held = Held.__new__(Held)
                held.size = size
                recut += blocks.grow(size, held)
            live.append(held)
        if step % 1000 == 999:
            driver.free(blocks.drop())
            live.clear()
        if step % 50 == 0:
            spans = sorted((x.chunk.address, x.chunk.address + x.size) for x in live)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
            for x in live:
                base = x.chunk.address - x.chunk.offset
                assert x.chunk.offset + x.size <= driver.made[base] + 256
    assert recut > 0


def test_threads_that_free_while_slabs_are_cut_anew(blocks: SizeClasses, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two threads have the same page, while they take blocks out and give them back without a lock."""
    # All slabs look idle, as one does from which another thread has just taken a block.
    monkeypatch.setattr(blocks, "_idle_slabs", lambda: list(blocks._slabs))
    lock, stop = threading.Lock(), threading.Event()
    owners: dict[int, int] = {}
    wrong: list[int] = []
    recut: list[bool] = []
    together, sizes = threading.Barrier(4), [SMALL >> k for k in range(8)]

    def pages(held: Held) -> range:
        return range((held.chunk.address >> 12) + 1, held.chunk.address + held.size >> 12)

    def work(me: int) -> None:
        rng = np.random.default_rng(me)
        held: list[Held] = []
        for turn in count():
            if stop.is_set():
                return
            # Now and then nobody holds a block, and other sizes come, so that idle slabs are cut anew.
            period, within = divmod(turn, 16)
            if not within:
                with suppress(threading.BrokenBarrierError):
                    together.wait(1)
            size = int(rng.choice(sizes[period % 6 :][:3]))
            for _ in range(8):
                x = take(blocks, size)
                if x is None:
                    x = Held.__new__(Held)
                    x.size = size
                    with lock:
                        recut.append(blocks.grow(size, x))
                if any(owners.setdefault(page, me) != me for page in pages(x)):
                    wrong.append(x.chunk.address)
                    stop.set()
                held.append(x)
            for x in held:
                for page in pages(x):
                    owners.pop(page, None)
            del x
            held.clear()

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    # On a busy machine it may take longer until a slab is cut anew.
    until = time.monotonic() + 30
    stop.wait(2.0)
    while not any(recut) and not stop.is_set() and time.monotonic() < until:
        stop.wait(0.1)
    stop.set()
    together.abort()
    for thread in threads:
        thread.join()
    assert not wrong and any(recut)
