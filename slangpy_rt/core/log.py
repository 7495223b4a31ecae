"""Lines on stderr for those who ask for them by SLANGPY_RT_DEBUG or ``verbose``; command line and demo print, too."""

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
