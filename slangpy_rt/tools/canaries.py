"""The table of ``doctor --compiler``: which corrections this build of the Slang compiler still needs."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterable
from pathlib import Path

from slangpy_rt.backends.cpu.compile import compile_library, find_compiler
from slangpy_rt.backends.cpu.prepared import Prepared
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.programs import Programs
from slangpy_rt.slang.corrections.table import CORRECTIONS
from slangpy_rt.slang.corrections.verdicts import Verdict, verdicts
from slangpy_rt.slang.library import Library


def rows(found: Iterable[Verdict]) -> list[tuple[str, str]]:
    """Return a row of the table for each correction: its name, and its states with their targets."""
    states: dict[str, dict[str, list[str]]] = {}
    for each in found:
        states.setdefault(each.correction.name, {}).setdefault(each.state, []).append(each.target)
    return [
        (name, "; ".join(f"{state} ({', '.join(targets)})" for state, targets in every.items()))
        for name, every in states.items()
    ]


def compiler_verdicts(library: Library) -> list[Verdict]:
    """Return the verdicts of all corrections; those that run on the CPU are tried where there is a C++ compiler."""
    return list(verdicts(CORRECTIONS, library, run_canary if find_compiler() else None))


def is_expected(verdict: Verdict, build: str) -> bool:
    """Return whether a correction is in the state that its record expects of a build of the compiler.

    It is obsolete with a build that does not have the fault, and needed with the others.
    """
    return verdict.state in ("not tried", "needed" if build in verdict.correction.affects else "obsolete")


def run_canary(code: bytes, count: int) -> tuple[float, ...]:
    """Compile C++ code, run its function ``canary`` and return the numbers that it writes."""
    binary = compile_library(code, Prepared(DiskCache(None, 0)), Programs(CONFIG.build_seconds))
    values = (ctypes.c_float * count)()
    # A library that is loaded cannot be removed on Windows.
    with tempfile.TemporaryDirectory(prefix="slangpy_rt-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "canary.so"
        file.write_bytes(binary)
        ctypes.CDLL(str(file)).canary(values)
    return tuple(values)
