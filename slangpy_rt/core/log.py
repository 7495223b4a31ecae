"""Lines on stderr for people who ask for them by SLANGPY_RT_DEBUG. Only the command line and demo also print."""

from __future__ import annotations

import sys
import time

from slangpy_rt.core.config import CONFIG


def log(level: int, text: str) -> None:
    """Write a line to stderr when SLANGPY_RT_DEBUG is at least ``level``."""
    if CONFIG.debug >= level:
        print(f"slangpy_rt: {text}", file=sys.stderr)


def milliseconds(started: float) -> str:
    """Return the time since a moment of ``time.perf_counter``, in words."""
    return f"{(time.perf_counter() - started) * 1e3:.1f} ms"
