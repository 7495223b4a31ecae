"""DiskCache: what it stores it returns, and nothing that happens to the disk becomes an exception."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slangpy_rt.core import disk_cache as cache_module
from slangpy_rt.core.cache_entry import _MAGIC, Entry, Part
from slangpy_rt.core.disk_cache import DiskCache, default_directory
from slangpy_rt.core.errors import SlangPyRtError

CAP = 1 << 20
KEY, OTHER = DiskCache.key("one"), DiskCache.key("two")
META = {"kind": "kernel", "layout": [["a", 0, 8]]}
PAYLOAD = bytes(range(256)) * 4
HOUR = 3600.0

posix = pytest.mark.skipif(os.name == "nt", reason="modes, links and signals are POSIX's")

parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=6) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)
keys = st.lists(parts, max_size=4).map(tuple)


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    cache = DiskCache.open(tmp_path / "cache", CAP)
    assert cache.why_off == ""
    return cache


def path_of(cache: DiskCache, key: str = KEY) -> Path:
    assert cache.directory is not None
    return cache.directory / f"{key}.bin"


def names(cache: DiskCache) -> list[str]:
    assert cache.directory is not None
    return sorted(path.name for path in cache.directory.iterdir())


def run_python(code: str, *args: object) -> subprocess.Popen[str]:
    code = f"import sys; sys.path[:] = {sys.path!r}\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def marked(part: Part) -> Any:
    """The value with its type beside it: Python's own equality holds 1 and True for the same."""
    return (type(part), tuple(map(marked, part)) if isinstance(part, tuple) else part)


# Storing and reading


def test_round_trip(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, {}, b"")
    assert cache.get(KEY) == Entry(META, PAYLOAD)
    assert cache.get(OTHER) == Entry({}, b"")
    assert cache.get(DiskCache.key("three")) is None


def test_second_process_reads_what_the_first_wrote(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    assert cache.directory is not None
    assert DiskCache.open(cache.directory, CAP).get(KEY) == Entry(META, PAYLOAD)


def test_put_replaces(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.put(KEY, {"n": 2}, b"new")
    assert cache.get(KEY) == Entry({"n": 2}, b"new")
    assert names(cache) == [f"{KEY}.bin"]


@posix
def test_directory_and_files_are_private(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    path = path_of(cache)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("key", ["", "abc", "../" * 20 + "etc", KEY.upper(), KEY[:-1] + "/", KEY + "0"])
def test_malformed_key_reaches_no_file(cache: DiskCache, key: str) -> None:
    cache.put(key, META, PAYLOAD)
    assert cache.get(key) is None
    with cache.lock(key):
        assert names(cache) == []


@pytest.mark.parametrize("make", [DiskCache, DiskCache.open])
def test_disabled_cache_does_nothing(tmp_path: Path, make: Callable[[Path | None, int], DiskCache]) -> None:
    cache = make(None, CAP)
    cache.put(KEY, META, PAYLOAD)
    with cache.lock(KEY):
        assert cache.get(KEY) is None
    assert (cache.entries(), cache.verify(), cache.clear()) == ([], [], 0)
    assert cache.export(tmp_path / "bundle.zip") == 0
    assert cache.why_off == "the disk cache is turned off"


# Keys


@settings(deadline=None)
@given(keys, keys)
def test_keys_are_equal_only_for_equal_parts(a: tuple[Part, ...], b: tuple[Part, ...]) -> None:
    assert (DiskCache.key(*a) == DiskCache.key(*b)) == (marked(a) == marked(b))


def test_keys_of_lookalikes_differ() -> None:
    lookalikes: list[tuple[Part, ...]] = [
        ("a", "bc"), ("ab", "c"), ("abc",), (("a", "bc"),), ("a", ("bc",)), (b"abc",), ("s3;abc",),
        ("as", "b"), ("a", "sb"),
        (1,), (True,), ("1",), (b"1",), (None,), ("None",), (0,), (False,), ("",), (b"",), ((),), (),
        (1, 1), (11,), (-1,), (1, "i1;1"), ("", ""), (b"", b""), ((), ()),
        ((1,), 1), ((1, 1),), (1, (1,)), (10,), (16,), ("\udc80",), (10**5000,),
    ]  # fmt: skip
    assert len({DiskCache.key(*parts) for parts in lookalikes}) == len(lookalikes)


def test_key_is_the_same_in_every_process() -> None:
    code = "from slangpy_rt.core.disk_cache import DiskCache; print(DiskCache.key('a', 1, (None, b'x')))"
    out, _ = run_python(code).communicate(timeout=60)
    assert out.strip() == DiskCache.key("a", 1, (None, b"x"))


def test_key_refuses_other_types() -> None:
    with pytest.raises(SlangPyRtError, match="part is of type float; expected bytes, str, int, bool, None"):
        DiskCache.key("a", (1.5,))  # type: ignore[arg-type]


# Damage


def regions(blob: bytes) -> Iterator[int]:
    """An offset in the magic, version, checksum, length, header and payload."""
    yield from (0, 7, 8, 39, 40, 43, 44, blob.index(KEY.encode()), blob.index(b"layout"), len(blob) - 1)


def test_a_flipped_bit_anywhere_is_a_miss(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    path = path_of(cache)
    whole = path.read_bytes()
    for at in regions(whole):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert cache.verify() == [KEY], at
        assert cache.entries() == [], at
        assert cache.get(KEY) is None, at
        assert not path.exists(), at
    path.touch(0o600)
    path.write_bytes(whole)
    assert cache.get(KEY) == Entry(META, PAYLOAD)


def test_a_truncated_or_longer_file_is_a_miss(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    path = path_of(cache)
    whole = path.read_bytes()
    for blob in (b"", whole[:7], whole[:8], whole[:42], whole[:60], whole[:-1], whole + b"x"):
        path.write_bytes(blob)
        assert cache.get(KEY) is None, len(blob)


def test_a_renamed_entry_is_a_miss(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    path_of(cache).rename(path_of(cache, OTHER))
    assert cache.get(OTHER) is None


@pytest.mark.parametrize(
    "header",
    ["[]", "1", "{", "{}", '{"key": "%s"}', '{"key": "%s", "created": "x", "meta": {}}', "[" * 100_000,
     '{"key": "%s", "created": 1, "meta": []}', '"\\ud800'],
)  # fmt: skip
def test_a_foreign_header_under_a_valid_checksum_is_a_miss(cache: DiskCache, header: str) -> None:
    text = header.replace("%s", KEY).encode()
    body = len(text).to_bytes(4, "little") + text
    path_of(cache).write_bytes(_MAGIC + hashlib.sha256(body).digest() + body)
    path_of(cache).chmod(0o600)
    assert cache.verify() == [KEY]
    assert cache.get(KEY) is None


@posix
def test_a_linked_entry_is_a_miss_and_its_target_stays(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    path = path_of(cache)
    target = path.rename(tmp_path / "elsewhere.bin")
    path.symlink_to(target)
    assert cache.entries() == []
    assert cache.get(KEY) is None
    assert not path.is_symlink()
    assert target.exists()


@posix
def test_an_entry_that_others_can_write_is_a_miss(cache: DiskCache) -> None:
    for mode in (0o620, 0o602):
        cache.put(KEY, META, PAYLOAD)
        path_of(cache).chmod(mode)
        assert cache.get(KEY) is None, oct(mode)


@posix
def test_an_entry_of_another_owner_is_a_miss(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, META, PAYLOAD)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert cache.get(KEY) is None


def test_a_directory_in_place_of_an_entry_is_a_miss(cache: DiskCache) -> None:
    path_of(cache).mkdir()
    before = lowest_free_handle()
    cache.put(KEY, META, PAYLOAD)
    assert cache.get(KEY) is None
    assert lowest_free_handle() == before
    assert names(cache) == [f"{KEY}.bin"]


def lowest_free_handle() -> int:
    handle = os.open(os.devnull, os.O_RDONLY)
    os.close(handle)
    return handle


def test_a_failed_read_is_a_miss_and_keeps_the_file(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, META, PAYLOAD)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(errno.EMFILE))
        assert cache.get(KEY) is None
    assert cache.get(KEY) == Entry(META, PAYLOAD)


# A directory that cannot be trusted, made or written


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_turns_the_cache_off(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    cache = DiskCache.open(tmp_path, CAP)
    assert cache.why_off == (
        f"the cache directory {str(tmp_path)!r} is writable by others (mode {mode:04o}), who could run code "
        "through it; empty it and set its mode to 0700"
    )
    cache.put(KEY, META, PAYLOAD)
    assert cache.get(KEY) is None
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_directory_of_another_owner_turns_the_cache_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    cache = DiskCache.open(tmp_path, CAP)
    assert f"belongs to user {uid}, not to {uid + 1}, who runs this" in cache.why_off
    assert cache.directory is None


@posix
def test_a_linked_directory_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "is a link or a file, not a directory" in DiskCache.open(tmp_path / "link", CAP).why_off


def test_a_file_in_place_of_the_directory_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = DiskCache.open(directory, CAP)
        assert cache.why_off.startswith(f"cannot make the cache directory {str(directory)!r}")
        assert cache.get(KEY) is None


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_disk_that_refuses_writes_still_serves_reads(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    cache.put(KEY, META, PAYLOAD)
    aged(cache, KEY, 2 * HOUR)  # or the read would not try to record its use
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(code, unless=os.O_RDONLY))
        patch.setattr(os, "utime", failing(code))
        cache.put(OTHER, META, PAYLOAD)
        with cache.lock(OTHER):
            assert cache.get(OTHER) is None
        assert cache.get(KEY) == Entry(META, PAYLOAD)
    assert names(cache) == [f"{KEY}.bin"]


def test_a_disk_that_fills_midway_leaves_nothing(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "replace", failing(errno.ENOSPC))
    cache.put(KEY, META, PAYLOAD)
    assert names(cache) == []


def test_a_directory_removed_under_a_running_process(cache: DiskCache) -> None:
    assert cache.directory is not None
    cache.directory.rmdir()
    cache.put(KEY, META, PAYLOAD)
    with cache.lock(KEY):
        assert cache.get(KEY) is None
    assert cache.entries() == []


def failing(code: int, unless: int | None = None) -> Any:
    """An ``os`` function that fails; with ``unless``, one like ``os.open`` that lets such flags pass."""
    real_open = os.open

    def fail(*args: Any, **kwargs: Any) -> Any:
        if unless is not None and args[1] & (os.O_WRONLY | os.O_RDWR) == unless:
            return real_open(*args, **kwargs)
        raise OSError(code, os.strerror(code))

    return fail


# Races


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


# Size


def aged(cache: DiskCache, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path_of(cache, key), (then, then))


def filled(directory: Path, count: int, nbytes: int, cap: int) -> tuple[DiskCache, list[str]]:
    """A cache of ``count`` entries, the first unused for longest."""
    cache = DiskCache.open(directory, cap)
    made = [DiskCache.key(number) for number in range(count)]
    for number, key in enumerate(made):
        cache.put(key, {}, bytes(nbytes))
        aged(cache, key, (count - number) * 2 * HOUR)
    return cache, made


def test_the_cap_holds_and_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache, made = filled(tmp_path / "cache", 10, 10_000, cap=108_000)
    assert cache.get(made[0]) is not None  # now the most recently used
    cache.put(KEY, {}, bytes(10_000))
    kept = {info.key for info in cache.entries()}
    assert sum(info.nbytes for info in cache.entries()) <= 108_000
    assert {KEY, made[0], made[9]} <= kept
    assert made[1] not in kept
    assert kept == {KEY, made[0], *made[11 - len(kept) + 1 :]}


def test_a_fresh_process_counts_what_others_stored(tmp_path: Path) -> None:
    cache, _ = filled(tmp_path / "cache", 10, 10_000, cap=CAP)
    assert cache.directory is not None
    DiskCache.open(cache.directory, 50_000).put(KEY, {}, bytes(10_000))
    assert sum(info.nbytes for info in cache.entries()) <= 50_000
    assert cache.get(KEY) is not None


def test_the_entry_just_stored_survives_even_alone(tmp_path: Path) -> None:
    cache, made = filled(tmp_path / "cache", 3, 1000, cap=10_000)
    cache.put(KEY, {}, bytes(9_700))
    assert [info.key for info in cache.entries()] == [KEY], made


def test_an_entry_above_the_cap_is_not_stored_and_evicts_nothing(tmp_path: Path) -> None:
    cache, made = filled(tmp_path / "cache", 3, 1000, cap=10_000)
    cache.put(KEY, {}, bytes(10_001))
    assert {info.key for info in cache.entries()} == set(made)


def test_eviction_that_fails_does_not_fail_the_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, _ = filled(tmp_path / "cache", 3, 1000, cap=4000)
    monkeypatch.setattr(cache_module, "_remove", lambda path: False)
    monkeypatch.setattr(cache, "max_bytes", 3000)
    cache.put(KEY, {}, bytes(1000))
    assert cache.get(KEY) == Entry({}, bytes(1000))


def test_puts_rarely_scan(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0
    evict = cache._evict

    def counted() -> None:
        nonlocal scans
        scans += 1
        evict()

    monkeypatch.setattr(cache, "_evict", counted)
    for number in range(100):
        cache.put(DiskCache.key(number), {}, b"")
    assert scans == 1


def test_a_cache_at_its_cap_does_not_scan_on_every_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, _ = filled(tmp_path / "cache", 100, 1000, cap=110_000)
    scans = 0
    evict = cache._evict

    def counted() -> None:
        nonlocal scans
        scans += 1
        evict()

    monkeypatch.setattr(cache, "_evict", counted)
    for number in range(100, 140):
        cache.put(DiskCache.key(number), {}, bytes(1000))
    assert 1 <= scans <= 10


def test_use_is_recorded_once_an_hour(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    aged(cache, KEY, 0.5 * HOUR)
    before = path_of(cache).stat().st_mtime_ns
    cache.get(KEY)
    assert path_of(cache).stat().st_mtime_ns == before
    aged(cache, KEY, 2 * HOUR)
    cache.get(KEY)
    assert time.time() - path_of(cache).stat().st_mtime < 60


# Listing, clearing, bundles


def test_entries_tell_what_is_there(cache: DiskCache) -> None:
    start = time.time()
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, {}, b"")
    aged(cache, KEY, 2 * HOUR)
    listed = {info.key: info for info in cache.entries()}
    assert set(listed) == {KEY, OTHER}
    info = listed[KEY]
    assert (info.kind, info.meta, info.nbytes) == ("kernel", META, path_of(cache).stat().st_size)
    assert start - 1 <= info.created <= time.time() + 1
    assert info.last_used == pytest.approx(start - 2 * HOUR, abs=60)
    assert listed[OTHER].kind == ""


def test_clear_removes_the_cache_s_files_alone(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, META, PAYLOAD)
    kept = ["README.bin", "notes.tmp"]
    for name in [*kept, f"{KEY}.0123.tmp", f"{KEY}.lock"]:
        path_of(cache).with_name(name).touch()
    assert cache.clear() == 2
    assert names(cache) == kept


def test_another_compiler_has_a_folder_of_its_own(cache: DiskCache, tmp_path: Path) -> None:
    folder = cache.folder("other-1.2")
    assert folder is not None and folder == cache.folder("other-1.2") and cache.folders() == [folder]
    assert os.name == "nt" or folder.stat().st_mode & 0o777 == 0o700
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_bytes(b"x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    assert cache.directory is not None
    if os.name != "nt":
        (cache.directory / "link.slangpy_rt-kept").symlink_to(elsewhere)
        assert cache.folder("link") is None and cache.folders() == [folder]
    (cache.directory / "photos.kept").mkdir()
    cache.put(KEY, META, PAYLOAD)
    assert cache.clear() == 1
    assert (cache.directory / "photos.kept").is_dir() and not folder.exists() and (elsewhere / "file").exists()
    (cache.directory / "taken.slangpy_rt-kept").touch()
    assert cache.folder("taken") is None
    assert DiskCache.open(None, CAP).folder("other") is None and DiskCache.open(None, CAP).folders() == []


@pytest.mark.skipif(os.name == "nt", reason="modes are not checked on Windows")
def test_a_folder_that_others_may_write_is_not_used(cache: DiskCache) -> None:
    folder = cache.folder("other")
    assert folder is not None
    folder.chmod(0o777)
    assert cache.folder("other") is None


def test_a_bundle_carries_entries_to_another_cache(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, {}, b"")
    assert cache.export(tmp_path / "all.zip") == 2
    assert cache.export(tmp_path / "one.zip", [KEY, DiskCache.key("absent")]) == 1
    for bundle, stored in (("all.zip", {KEY, OTHER}), ("one.zip", {KEY})):
        other = DiskCache.open(tmp_path / bundle[:3], CAP)
        assert other.import_(tmp_path / bundle) == len(stored)
        assert {info.key for info in other.entries()} == stored
        assert other.get(KEY) == Entry(META, PAYLOAD)
        created = {info.key: info.created for info in cache.entries()}
        assert all(info.created == created[info.key] for info in other.entries())
    assert sorted(path.name for path in tmp_path.glob("*.zip*")) == ["all.zip", "one.zip"]


def test_equal_entries_make_equal_bundles(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.export(tmp_path / "a.zip")
    aged(cache, KEY, 2 * HOUR)
    cache.export(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_export_leaves_damaged_entries_out(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    path_of(cache).write_bytes(b"damaged")
    assert cache.export(tmp_path / "bundle.zip") == 0


def test_export_to_an_impossible_place(cache: DiskCache, tmp_path: Path) -> None:
    with pytest.raises(SlangPyRtError, match=r"cannot write the bundle .*; name a file in a writable directory"):
        cache.export(tmp_path / "absent" / "bundle.zip")


@pytest.mark.parametrize("name", ["../{}.bin", "/{}.bin", "{}", "a/{}.bin", "{}.bin/", "..", "x.bin"])
def test_import_refuses_any_other_name(cache: DiskCache, tmp_path: Path, name: str) -> None:
    cache.put(KEY, META, PAYLOAD)
    blob = path_of(cache).read_bytes()
    cache.clear()
    refused(cache, tmp_path, name.format(KEY), blob)


def test_import_refuses_damage_and_swapped_names(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    blob = path_of(cache).read_bytes()
    cache.clear()
    refused(cache, tmp_path, f"{KEY}.bin", blob[:-1])
    refused(cache, tmp_path, f"{OTHER}.bin", blob)
    refused(cache, tmp_path, f"{KEY}.bin", bytes(CAP + 1))


def refused(cache: DiskCache, tmp_path: Path, name: str, blob: bytes) -> None:
    bundle = tmp_path / "bundle.zip"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), blob)
    with pytest.raises(SlangPyRtError, match="is not a whole cache entry"):
        cache.import_(bundle)
    assert names(cache) == []


def test_a_damaged_bundle_imports_the_entry_or_raises(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    bundle = tmp_path / "bundle.zip"
    cache.export(bundle)
    whole = bundle.read_bytes()
    raised = 0
    for at in range(len(whole)):
        cache.clear()
        bundle.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            cache.import_(bundle)
        except SlangPyRtError:
            raised += 1
        assert cache.get(KEY) in (None, Entry(META, PAYLOAD)), at
    assert raised > len(whole) // 2


def test_import_refuses_what_is_no_bundle(cache: DiskCache, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a zip")
    for bundle in (tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(SlangPyRtError, match=r"cannot read the bundle .*; expected a file that cache export"):
            cache.import_(bundle)


def test_import_unpacks_nothing_above_the_cap(
    cache: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *args: pytest.fail("unpacked"))
    refused(cache, tmp_path, f"{KEY}.bin", bytes(CAP + 1))


# Cost


def test_import_stays_light() -> None:
    heavy = ("filelock", "platformdirs")
    code = f"import slangpy_rt.core.disk_cache; print(*(name for name in {heavy} if name in sys.modules))"
    out, errors = run_python(code).communicate(timeout=60)
    assert (out.strip(), errors) == ("", "")


def test_a_hit_is_cheap(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    best = min(timed(cache) for _ in range(200))
    assert best < 150e-6  # 30 µs on a 2-core machine


def timed(cache: DiskCache) -> float:
    start = time.perf_counter()
    cache.get(KEY)
    return time.perf_counter() - start


def test_default_directory_is_the_user_s() -> None:
    assert default_directory().name == "slangpy_rt"
    assert default_directory().parent != Path()
