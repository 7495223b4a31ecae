"""DiskCache: damaged entries, unsafe directories and failing disks are misses, and raise nothing."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _cache import CAP, HOUR, KEY, META, OTHER, PAYLOAD, aged, cache, names, path_of, posix

from slangpy_rt.core.cache_entry import _MAGIC, Entry
from slangpy_rt.core.disk_cache import DiskCache

__all__ = ["cache"]  # the fixture


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
