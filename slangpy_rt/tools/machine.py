"""What this machine has: the command ``info``, and the rows that ``doctor`` and ``cache`` print too.

Nothing here may fail because something is missing or broken: its reason is printed in its place.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import slangpy_rt as spy
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache, cache_directory
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.slang.locate import compiler_version


def info(args: argparse.Namespace) -> int:
    print(f"slangpy_rt {spy.__version__}, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"{platform.system()} {platform.machine()}\n\ndevices")
    found = attempt(spy.devices)
    for info in [] if isinstance(found, str) else found:
        print(f"  {info.type:20}{'yes' if info.available else 'no   ' + str(info.reason)}")
        if info.available:
            print_rows(20, attempt(partial(device_rows, info.type)))
    if isinstance(found, str):
        print(f"  {found}")
    print("\ncompilers")
    print_rows(2, [("Slang", attempt(compiler_version)), ("C++", attempt(cxx)), ("NVRTC", attempt(nvrtc))])
    print("\ncache")
    print_rows(2, attempt(lambda: cache_rows(open_cache())))
    return 0


def device_rows(name: str) -> list[tuple[str, str]]:
    with spy.Device(name) as device:
        caps = device.caps
        return [
            ("device", device.info),
            ("scalars", " ".join(sorted(caps.scalars, key=list(NUMPY_OF).index))),
            ("features", " ".join(sorted(caps.features)) or "none"),
            ("groups", " x ".join(map(str, caps.max_groups))),
            ("toolchain", device.backend.toolchain()),
        ]


def cxx() -> str:
    from slangpy_rt.backends.cpu.compile import find_compiler

    command = find_compiler()
    return " ".join(command) if command else "none: kernels that LLVM does not translate need g++, clang++ or ziglang"


def nvrtc() -> str:
    from slangpy_rt.backends.cuda.compile import nvrtc_version

    return nvrtc_version()


def attempt(what: Callable[[], Any]) -> Any:
    """Return the result of a call, or the reason why it failed, as text."""
    try:
        return what()
    except Exception as error:  # users run info to find out what is broken: no error may end it
        return " ".join(f"{type(error).__name__}: {error}".removeprefix("UnsupportedError: ").split())


def print_rows(indent: int, rows: Iterable[tuple[str, Any]] | str) -> None:
    if isinstance(rows, str):
        print(f"{'':{indent}}{rows}")
        return
    for name, value in rows:
        print(f"{'':{indent}}{name:11}{value}")


def open_cache() -> DiskCache:
    return DiskCache.open(cache_directory(), CONFIG.cache_size)


def cache_rows(cache: DiskCache) -> list[tuple[str, str]]:
    if cache.why_off:
        return [("off", cache.why_off)]
    entries = cache.entries()
    used = sum(entry.nbytes for entry in entries)
    return [
        ("directory", str(cache.directory)),
        ("entries", str(len(entries))),
        ("size", f"{size_text(used)} of at most {size_text(cache.max_bytes)}"),
        *(("beside it", f"{size_text(_held(folder))} that {folder.stem} keeps") for folder in cache.folders()),
    ]


def size_text(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024  # type: ignore[assignment]
    return f"{n:.1f} GiB"


def _held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
