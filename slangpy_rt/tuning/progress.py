"""Shows on a terminal how far a search is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# Seconds of a search after which its progress is shown.
_QUIET = 0.5


@contextmanager
def progress_of(name: str, started: float) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far a long search is, with rich if that is installed."""
    bar: list[Any] = []

    def quiet(done: int, planned: int) -> None:
        if not bar and sys.stderr.isatty() and time.perf_counter() - started > _QUIET:
            with suppress(ImportError):
                from rich.console import Console
                from rich.progress import Progress

                shown = Progress(console=Console(stderr=True), transient=True)
                shown.start()
                bar.extend((shown, shown.add_task(f"tuning {name}", total=planned)))
        if bar:
            bar[0].update(bar[1], completed=done, total=planned)

    try:
        yield quiet
    finally:
        if bar:
            bar[0].stop()
