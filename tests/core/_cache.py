"""Entries, names and processes that the tests of DiskCache share. No test is here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slangpy_rt.core.disk_cache import DiskCache

CAP = 1 << 20
KEY, OTHER = DiskCache.key("one"), DiskCache.key("two")
META = {"kind": "kernel", "layout": [["a", 0, 8]]}
PAYLOAD = bytes(range(256)) * 4
HOUR = 3600.0

posix = pytest.mark.skipif(os.name == "nt", reason="modes, links and signals are POSIX's")


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


def aged(cache: DiskCache, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path_of(cache, key), (then, then))
