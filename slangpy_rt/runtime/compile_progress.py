"""Tells on a terminal or in a notebook that something is being compiled, if that takes long.

Several threads may compile at once: a terminal then has one line for all, and a notebook a line for each.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# Seconds of a compilation after which it is shown.
_QUIET = 0.5
# What the line on the terminal is about, the latest last. There is one terminal, so there is one list.
_LINE: list[_Terminal] = []
_LOCK = threading.Lock()
_ERASE = "\r\x1b[K"


@contextmanager
def compiling(title: str, device: str, compiler: str) -> Iterator[Callable[[str], None]]:
    """Show ``title`` while the block runs, from half a second on; nothing is shown where nobody looks on.

    Yields
    ------
    callable
        Takes the name of the compiler that goes on with it.
    """
    show = _Notebook if _in_notebook() else _Terminal if on_terminal() else None
    if show is None:
        yield _nobody
        return
    ended, shown = threading.Event(), show(title, device, compiler)

    def wait() -> None:
        if not ended.wait(_QUIET):
            shown.begin()

    began = time.perf_counter()
    waiting = threading.Thread(target=wait, daemon=True)
    with suppress(RuntimeError):  # a program that is about to end starts no threads
        waiting.start()
    try:
        yield shown.go_on
    finally:
        ended.set()
        if waiting.is_alive():
            waiting.join()
        shown.end(time.perf_counter() - began)


def _nobody(compiler: str) -> None:
    """Show nothing."""


class _Terminal:
    """A line on the terminal, which is erased when the last one has ended."""

    def __init__(self, title: str, device: str, compiler: str) -> None:
        self._title, self._device, self._compiler = title, device, compiler

    def go_on(self, compiler: str) -> None:
        with _LOCK:
            self._compiler = compiler
            if _LINE and _LINE[-1] is self:
                self._write(_ERASE)
                self._draw()

    def begin(self) -> None:
        with _LOCK:
            self._write(_ERASE if _LINE else "")
            _LINE.append(self)
            self._draw()

    def end(self, seconds: float) -> None:
        with _LOCK:
            if self in _LINE:
                _LINE.remove(self)
                self._write(_ERASE)
                self._draw()

    def _draw(self) -> None:
        if _LINE:
            last = _LINE[-1]
            others = f", and {len(_LINE) - 1} more" if len(_LINE) > 1 else ""
            before, after = "slangpy_rt: compiling ", f" for {last._device} by {last._compiler}{others} ..."
            # What takes two lines could not be erased.
            columns = shutil.get_terminal_size().columns - 1
            room = max(columns - len(before) - len(after), 0)
            self._write(f"{before}{last._title[:room]}{after}"[:columns])

    @staticmethod
    def _write(text: str) -> None:
        # Another thread of the program may have closed it.
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


class _Notebook:
    """A line below the cell, which says at the end how long it took."""

    def __init__(self, title: str, device: str, compiler: str) -> None:
        self._text, self._compiler = f"compiling {title} for {device}", compiler
        self._handle: Any = None

    def go_on(self, compiler: str) -> None:
        self._compiler = compiler
        if self._handle is not None:
            self._handle.update({"text/plain": f"{self._text} by {compiler} ..."}, raw=True)

    def begin(self) -> None:
        from IPython.display import display

        show: Any = display
        self._handle = show({"text/plain": f"{self._text} by {self._compiler} ..."}, raw=True, display_id=True)

    def end(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": f"{self._text}: {seconds:.1f} s"}, raw=True)


def _in_notebook() -> bool:
    """Return whether IPython runs this program for a front end that shows rich output."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)  # missing while IPython is being imported
    return ask is not None and getattr(ask(), "kernel", None) is not None


def on_terminal() -> bool:
    """Return whether standard error is a terminal; a program without a console has none, or a closed one."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False
