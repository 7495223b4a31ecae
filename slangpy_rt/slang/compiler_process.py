"""The child process that runs the Slang compiler. A text that makes Slang crash ends only that process.

Nothing here reads Slang text or interprets a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from slangpy_rt.core.child_process import ChildProcess
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.slang.files import working_directory
from slangpy_rt.slang.locate import find_library

_NO_CACHE = DiskCache(None, 0)


class CompilerProcess(ChildProcess):
    """A child process that runs the compiler; a request starts it if it is not running.

    Parameters
    ----------
    path : str or None
        The library's file; None for the one inside the slangpy wheel.
    python : str
        The Python interpreter that the child runs.
    seconds : float
        Processor time that one request may take, in seconds.
    cache : DiskCache
        Where the child keeps intermediate code of this project's modules.

    Attributes
    ----------
    closed : deque of (int, int)
        Sessions to close, each as the value of ``started`` for its process and the session's number. The next request
        closes them. The sessions of earlier processes are lost.
    refused : dict of str to str
        Error messages of requests that used up their time or memory, by the digests of these requests, which are not
        sent again.
    """

    module = "slangpy_rt.slang.worker"

    def __init__(self, path: str | None, python: str, seconds: float, cache: DiskCache = _NO_CACHE) -> None:
        self._path, self._cache = path, cache
        self._numbers = 0
        self.closed: deque[tuple[int, int]] = deque()
        self.refused: dict[str, str] = {}
        super().__init__(python, seconds, "Slang", "SLANGPY_RT_COMPILE_SECONDS")

    def arguments(self) -> Sequence[str]:
        library = find_library(self._path).absolute()
        return str(library), str(self._seconds), str(self._cache.directory or ""), str(self._cache.max_bytes)

    def number(self) -> int:
        """Return a number for a new session."""
        self._numbers += 1
        return self._numbers

    def ask(self, number: int, method: str, *args: Any) -> Any:
        """Send a request to a session and return the answer; raise the answer if it is an exception.

        Parameters
        ----------
        number : int
            The session's number.
        method : str
            The name of a method of the session.
        *args : Any
            The method's arguments, which are pickled.

        Raises
        ------
        Ended
            If the process ended without answering, or this program has ended.
        """

        def request() -> Any:
            closed = [self.closed.popleft() for _ in range(len(self.closed))]
            numbers = [session for of, session in closed if of == self.started]
            return number, numbers, working_directory(), method, args

        return self.answer(request)
