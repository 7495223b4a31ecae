"""Writes lines to stderr if SLANGPY_RT_DEBUG or ``verbose`` asks for them, and to Python's logger ``slangpy_rt``.

Command line and demo print as well.
"""

from __future__ import annotations

import sys
import time

from slangpy_rt.core.config import CONFIG


def log(level: int, text: str, always: bool = False) -> None:
    """Write a line to stderr when SLANGPY_RT_DEBUG is at least ``level``, or ``always``, and hand it to the logger.

    Lines of level 1, and those that are always written, are of the logger's level INFO, others of DEBUG.
    """
    if always or CONFIG.debug >= level:
        print(f"slangpy_rt: {text}", file=sys.stderr)
    # A program that did not import logging, which takes 5 ms, has configured no logger.
    logging = sys.modules.get("logging")
    if logging is not None:
        number = logging.INFO if always or level == 1 else logging.DEBUG
        logging.getLogger("slangpy_rt").log(number, "%s", text, stacklevel=2)


def milliseconds(started: float) -> str:
    """Return the time since a moment of ``time.perf_counter``, in words."""
    return f"{(time.perf_counter() - started) * 1e3:.1f} ms"
