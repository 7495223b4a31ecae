"""The child process that runs the Slang compiler. A text that makes Slang crash ends only that process.

Nothing here reads Slang text or interprets a request.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Protocol

from slangpy_rt.core.child_process import ChildProcess
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.paths import absolute, working_directory
from slangpy_rt.slang.locate import find_library

_NO_CACHE = DiskCache(None, 0)
# Sessions that stay open at a time. One that holds slangpy_rt.slang takes 20 MB, beside 245 MB of Slang itself;
# opening it again takes 0.1 s.
_MOST_SESSIONS = 24


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
        self._is_large = False
        self.closed: deque[tuple[int, int]] = deque()
        self.refused: dict[str, str] = {}
        # The open sessions by number, the least recently used one first.
        self._open: OrderedDict[int, weakref.ref[Closable]] = OrderedDict()
        super().__init__(python, seconds, "Slang", "SLANGPY_RT_COMPILE_SECONDS")

    def arguments(self) -> Sequence[str]:
        library = absolute(find_library(self._path))
        return str(library), str(self._seconds), str(self._cache.directory or ""), str(self._cache.max_bytes)

    def number(self) -> int:
        """Return a number for a new session."""
        self._numbers += 1
        return self._numbers

    def use(self, number: int, session: Closable) -> None:
        """Note that an open session is used now; of too many, close the one that was not used for longest.

        The thread holds the lock.
        """
        self._open[number] = weakref.ref(session)
        self._open.move_to_end(number)
        while len(self._open) > _MOST_SESSIONS:
            _, known = self._open.popitem(last=False)
            oldest = known()
            if oldest is not None:
                oldest.close()

    def forget(self, number: int) -> None:
        """Drop the number of a session that was closed. The session may be opened again under another number."""
        self._open.pop(number, None)

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

    def replace_large(self) -> None:
        # A session is opened by several requests, which one process has to answer.
        self._is_large = True

    def end_if_large(self) -> None:
        """End the process if it holds much memory. The thread holds the lock, and its requests are answered."""
        if self._is_large:
            self.stop()

    def forked(self) -> None:
        self._open.clear()
        self._is_large = False
        super().forked()

    def _stop(self) -> None:
        self._open.clear()
        self._is_large = False
        super()._stop()


class Closable(Protocol):
    """A session that opens itself again when it is used after ``close``."""

    def close(self) -> None:
        """Release the session."""
