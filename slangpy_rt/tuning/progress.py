"""Shows on a terminal how far a search is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from slangpy_rt.runtime.compile_progress import on_terminal

# Seconds of a search after which its progress is shown.
_QUIET = 0.5


@contextmanager
def progress_of(name: str, started: float) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far a long search is, with rich if that is installed."""
    bar: list[Any] = []
    asked: list[bool] = []

    def quiet(done: int, planned: int) -> None:
        if not asked and time.perf_counter() - started > _QUIET:
            asked.append(on_terminal())
            with suppress(ImportError):
                if not asked[0]:
                    return
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
