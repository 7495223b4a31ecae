"""DiskCache in several processes and threads at once: locks, whole entries, and writers that are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import filelock
import pytest
from _cache import CAP, HOUR, KEY, META, OTHER, PAYLOAD, cache, names, path_of, posix, run_python

from slangpy_rt.core.cache_entry import Entry
from slangpy_rt.core.disk_cache import DiskCache

__all__ = ["cache"]  # the fixture


SINGLE_FLIGHT = """
import sys, time
from pathlib import Path
from slangpy_rt.core.disk_cache import DiskCache
directory, key, log, gate = sys.argv[1:]
cache = DiskCache.open(Path(directory), 1 << 20)
print("ready", flush=True)
while not Path(gate).exists():
    time.sleep(0.005)
with cache.lock(key):
    if cache.get(key) is None:
        with open(log, "a") as file:
            file.write("compiled\\n")
        time.sleep(0.3)
        cache.put(key, {}, b"binary")
assert cache.get(key).payload == b"binary"
"""


def test_two_processes_compile_once(cache: DiskCache, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    workers = [run_python(SINGLE_FLIGHT, cache.directory, KEY, log, gate) for _ in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    gate.touch()
    for worker in workers:
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors
    assert log.read_text() == "compiled\n"
    assert names(cache) == [f"{KEY}.bin"]


def test_eight_threads_compile_once(cache: DiskCache) -> None:
    compiled: list[int] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        with cache.lock(KEY):
            if cache.get(KEY) is None:
                compiled.append(number)
                time.sleep(0.1)
                cache.put(KEY, META, PAYLOAD)

    in_threads(work)
    assert len(compiled) == 1
    assert cache.get(KEY) == Entry(META, PAYLOAD)


def test_eight_threads_without_a_lock_see_whole_entries(cache: DiskCache) -> None:
    payloads = {number: bytes([number]) * 20_000 for number in range(8)}
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(20):
            cache.put(KEY, {"n": number}, payloads[number])
            entry = cache.get(KEY)
            if entry is None or entry.payload != payloads[entry.meta["n"]]:
                wrong.append(entry)

    in_threads(work)
    assert wrong == []
    assert names(cache) == [f"{KEY}.bin"]


def in_threads(work: Any) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_different_keys_do_not_wait_for_each_other(cache: DiskCache) -> None:
    with cache.lock(KEY):
        start = time.monotonic()
        with cache.lock(OTHER, timeout=30.0):
            assert time.monotonic() - start < 10.0


def test_a_lock_that_times_out_lets_the_body_run(cache: DiskCache) -> None:
    ran = False
    with cache.lock(KEY), cache.lock(KEY, timeout=0.1):
        ran = True
    assert ran


def test_a_lock_passes_the_body_s_exception_on_and_is_free_afterwards(cache: DiskCache) -> None:
    with pytest.raises(ZeroDivisionError), cache.lock(KEY):
        raise ZeroDivisionError
    start = time.monotonic()
    with cache.lock(KEY, timeout=30.0):
        assert time.monotonic() - start < 10.0
    assert names(cache) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from slangpy_rt.core.disk_cache import DiskCache
cache = DiskCache.open(Path(sys.argv[1]), 1 << 20)
Path.replace = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
with cache.lock(sys.argv[2]):
    cache.put(sys.argv[2], {}, b"half")
"""


@posix
def test_a_killed_writer_leaves_no_entry_and_its_litter_goes(cache: DiskCache) -> None:
    worker = run_python(KILLED, cache.directory, KEY)
    worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGKILL
    litter = [path_of(cache).with_name(name) for name in names(cache)]
    assert sorted(path.suffix for path in litter) == [".lock", ".tmp"]
    assert (cache.get(KEY), cache.entries()) == (None, [])

    start = time.monotonic()
    with cache.lock(KEY, timeout=30.0):  # the system frees what a dead process locked
        assert time.monotonic() - start < 10.0
        cache.put(KEY, META, PAYLOAD)
    assert cache.get(KEY) == Entry(META, PAYLOAD)

    young = [path for path in litter if path.exists()]
    assert [path.suffix for path in young] == [".tmp"]
    for age, left in ((0.5 * HOUR, True), (2 * HOUR, False)):
        os.utime(young[0], (time.time() - age,) * 2)
        assert cache.directory is not None
        DiskCache.open(cache.directory, CAP).put(OTHER, {}, b"")
        assert young[0].exists() == left


def test_no_interrupt_reaches_a_file_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # filelock holds a lock of the whole process for some steps, which an interrupt there would leave locked.
    seen: list[int] = []

    class Noted(filelock.FileLock):
        def __init__(self, *args: Any, **named: Any) -> None:
            seen.append(threading.get_ident())
            super().__init__(*args, **named)

        def acquire(self, *args: Any, **named: Any) -> Any:
            seen.append(threading.get_ident())
            return super().acquire(*args, **named)

        def release(self, *args: Any, **named: Any) -> None:
            seen.append(threading.get_ident())
            super().release(*args, **named)

        def __del__(self) -> None:
            seen.append(threading.get_ident())
            super().__del__()

    monkeypatch.setattr(filelock, "FileLock", Noted)
    mine = DiskCache.open(tmp_path / "own", 1 << 20)
    key = DiskCache.key("lock")
    with mine.lock(key):
        started = time.monotonic()
        with mine.lock(key, timeout=0.2):
            assert 0.2 <= time.monotonic() - started < 5
        assert list(tmp_path.rglob("*.lock"))
    assert len(seen) > 8 and threading.main_thread().ident not in seen
    assert not list(tmp_path.rglob("*.lock"))
    with pytest.raises(KeyboardInterrupt), mine.lock(key):
        raise KeyboardInterrupt
    assert not list(tmp_path.rglob("*.lock"))
