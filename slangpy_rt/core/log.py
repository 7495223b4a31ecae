"""Writes lines to stderr if SLANGPY_RT_DEBUG or ``verbose`` asks for them. Command line and demo print as well."""

from __future__ import annotations

import sys
import time

from slangpy_rt.core.config import CONFIG


def log(level: int, text: str, always: bool = False) -> None:
    """Write a line to stderr when SLANGPY_RT_DEBUG is at least ``level``, or ``always``."""
    if always or CONFIG.debug >= level:
        print(f"slangpy_rt: {text}", file=sys.stderr)


def milliseconds(started: float) -> str:
    """Return the time since a moment of ``time.perf_counter``, in words."""
    return f"{(time.perf_counter() - started) * 1e3:.1f} ms"
