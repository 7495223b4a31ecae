"""DiskCache: what it stores it returns, keys tell entries apart, and its size stays below the cap."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _cache import CAP, HOUR, KEY, META, OTHER, PAYLOAD, aged, cache, names, path_of, posix, run_python
from hypothesis import given, settings
from hypothesis import strategies as st

from slangpy_rt.core import disk_cache as cache_module
from slangpy_rt.core.cache_entry import Entry, Part
from slangpy_rt.core.disk_cache import DiskCache, default_directory
from slangpy_rt.core.errors import SlangPyRtError
from tests.depth import deep

__all__ = ["cache"]  # the fixture


parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=6) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)
keys = st.lists(parts, max_size=4).map(tuple)


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


@deep
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


# Size


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
