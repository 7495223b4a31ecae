"""The main program of the Slang compiler's process.

Some texts make Slang 2026.12 crash, and here a crash ends only a process that does nothing else. The process also
ends itself when a request waits for a file that has no end, such as a pipe.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from slangpy_rt.core.child_main import STACK, ChildMain
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.memory import give_back_freed
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session

# The stack for targets with ``program``: the client process compiles the same text again, in threads with 8 MB.
_SMALL_STACK = 4 << 20


class Worker(ChildMain):
    """Runs the requests of the client process in compiler sessions, which are kept by number.

    Parameters
    ----------
    library : callable
        Loads the compiler.
    seconds : float
        Processor time that one request may take, in seconds.
    """

    _library: Library

    def __init__(self, library: Callable[[], Library], seconds: float) -> None:
        super().__init__(seconds)
        self._load = library
        self._sessions: dict[int, Session] = {}

    def begin(self) -> None:
        self._library = self._load()

    def prepare(self, request: Any) -> int:
        number, closed, folder, method, _ = request
        for old in closed:
            session = self._sessions.pop(old, None)
            if session is not None:
                session.close()
        if closed:
            give_back_freed()
        try:
            os.chdir(folder)
        except OSError:
            # It was deleted, and every relative path would raise; absolute paths mean the same anywhere.
            os.chdir(os.path.abspath(os.sep))  # noqa: PTH100
        session = self._sessions.get(number)
        small = method != "open" and session is not None and session.target.program
        return _SMALL_STACK if small else STACK

    def answer(self, request: Any) -> Any:
        number, _, _, method, args = request
        if method == "open":
            self._sessions[number] = Session(self._library, *args)
            return self._library.build_tag
        return getattr(self._sessions[number], method)(*args)


def main(library: str, seconds: str, folder: str, size: str) -> None:
    """Answer the requests of the process that started this one, then end this process.

    Parameters
    ----------
    library : str
        The path of the Slang library.
    seconds : str
        Processor time that one request may take, in seconds.
    folder : str
        The directory of the disk cache; empty if it is off.
    size : str
        The size cap of the cache in bytes.
    """
    cache = DiskCache.open(Path(folder) if folder else None, int(size))
    Worker(partial(Library, library, cache), float(seconds)).run()
