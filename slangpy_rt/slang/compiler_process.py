"""A child process that runs the compiler: it is started, gets requests, and its end without an answer is explained.

A text that makes Slang crash ends only the child process. Nothing here reads Slang text or interprets a request.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.paths import absolute, working_directory
from slangpy_rt.slang.locate import find_library
from slangpy_rt.slang.messages import NO_MEMORY, SLOW, STUCK, receive, send

# The child runs ``worker.main`` without the package's __init__, whose imports (NumPy among them) would take 0.2 s.
# The few modules that need NumPy find it through this process's sys.path, which is passed on.
_BOOT = """
import sys, types
from importlib.machinery import ModuleSpec
package = sys.modules["slangpy_rt"] = types.ModuleType("slangpy_rt")
package.__spec__ = ModuleSpec("slangpy_rt", None, is_package=True)
package.__path__ = package.__spec__.submodule_search_locations = [sys.argv[1]]
sys.path += sys.argv[6:]
from slangpy_rt.slang.worker import main
main(*sys.argv[2:6])
"""
# Exit statuses after too much processor time: the child ended itself, or the system ended it at the limit of
# processor time that the child had set for itself.
_SLOW = (SLOW, -signal.SIGXCPU) if hasattr(signal, "SIGXCPU") else (SLOW,)
_NO_CACHE = DiskCache(None, 0)
# Sessions that stay open at a time. One that holds slangpy_rt.slang takes 20 MB, beside 245 MB of Slang itself;
# opening it again takes 0.1 s.
_MOST_SESSIONS = 24
_LAST_WORDS = 1000  # An error message shows this many characters from the end of the child's stderr.


class CompilerProcess:
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
    lock : RLock
        The lock that a thread holds from sending a request to receiving its answer.
    started : int
        Number of processes started so far. The sessions of earlier processes are lost.
    closed : deque of (int, int)
        Sessions to close, each as the value of ``started`` for its process and the session's number. The next request
        closes them.
    refused : dict of str to str
        Error messages of requests that used up their time or memory, by the digests of these requests, which are not
        sent again.
    """

    def __init__(self, path: str | None, python: str, seconds: float, cache: DiskCache = _NO_CACHE) -> None:
        self._path, self._python, self._seconds, self._cache = path, python, seconds, cache
        self.started = self._numbers = 0
        self.lock = threading.RLock()
        self.closed: deque[tuple[int, int]] = deque()
        self.refused: dict[str, str] = {}
        # The open sessions by number, the least recently used one first.
        self._open: OrderedDict[int, weakref.ref[Closable]] = OrderedDict()
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        if hasattr(os, "register_at_fork"):
            known = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forked(known()))
        atexit.register(_at_exit, weakref.ref(self))

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
        with self.lock:
            try:
                self._check_gone()
                # Popen objects are used only in the thread of ``apart``, for the reason given in ``stop``.
                requests, answers = apart(self._running)
                closed = [self.closed.popleft() for _ in range(len(self.closed))]
                numbers = [session for of, session in closed if of == self.started]
                answer = None
                with suppress(OSError, ValueError):  # the process may end while the request is being written
                    send(requests, (number, numbers, working_directory(), method, args))
                    answer = receive(answers)
                if answer is None:
                    why = apart(self._why)
                    status = self._process.returncode if self._process is not None else None
                    raise Ended(why, status in (*_SLOW, NO_MEMORY))
            except BaseException:
                # After Ctrl-C too, since the pending answer would be read as the answer to the next request.
                self.stop()
                raise
        good, value, is_large = answer
        if is_large:
            self.stop()
        if good:
            return value
        raise value

    def start(self) -> int:
        """Start the process if none is running, and return the attribute ``started``."""
        self._check_gone()
        apart(self._running)
        return self.started

    def stop(self) -> None:
        """End the process, if there is one; the next request starts another."""
        # In another thread than the main one, because a KeyboardInterrupt inside the finalizer of Popen would be
        # printed and then ignored.
        apart(self._stop)

    def end(self) -> None:
        """End the process as the program ends; requests of daemon threads that still run raise Ended from now on."""
        self._ended = True
        self.stop()

    @property
    def is_gone(self) -> bool:
        """Whether the program has ended and the calling thread is a daemon thread that still runs."""
        return self._ended and threading.current_thread() is not threading.main_thread()

    def _check_gone(self) -> None:
        if self.is_gone:
            raise Ended("the program has ended.")

    def _stop(self) -> None:
        self._open.clear()
        process, self._process = self._process, None
        words, self._words = self._words, None
        if process is not None:
            process.kill()
            process.wait()
            _close(process)
        if words is not None:
            words.close()

    def __del__(self, _exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _exiting():
            self.stop()

    def forked(self) -> None:
        """Drop, in a forked child of this process, the compiler's process and replace the lock.

        The compiler's process belongs to the parent, and a thread of the parent may hold the lock.
        """
        self.lock = threading.RLock()
        self._open.clear()
        process, self._process = self._process, None
        words, self._words = self._words, None
        self.started += 1
        if words is not None:
            words.close()
        if process is not None:
            _close(process)
            process.returncode = 0  # The process is no child of this one, so Popen must not wait for it.

    def _running(self) -> tuple[Any, Any]:
        """Return the pipes for requests and for answers, after starting the process if none is running."""
        process = self._process
        if process is None or process.poll() is not None:
            self._stop()
            process = self._start()
            if receive(process.stdout) is None:
                # Ctrl-C reaches the new process too, and ends it if it does not ignore the signal yet.
                self._stop()
                process = self._start()
                if receive(process.stdout) is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(10)
                    raise self._no_start(f"{_status(process.returncode)}{self._said()}")
        return process.stdin, process.stdout

    def _start(self) -> subprocess.Popen[bytes]:
        flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
        if sys.pycache_prefix:
            flags += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
        package, library = Path(__file__).parent.parent, absolute(find_library(self._path))
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _stop
        self.started += 1
        cache = [str(self._cache.directory or ""), str(self._cache.max_bytes)]
        arguments = [str(package), str(library), str(self._seconds), *cache, *filter(None, sys.path)]
        try:
            self._process = subprocess.Popen(
                [self._python, *flags, "-c", _BOOT, *arguments],
                bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words,
            )  # fmt: skip
        except OSError as error:
            raise self._no_start(str(error.strerror)) from None
        return self._process

    def _no_start(self, why: str) -> UnsupportedError:
        """Return the error for an interpreter that cannot run the compiler; `why` is the reason."""
        return UnsupportedError(
            f"the compiler's process does not start: {self._python}: {why}\n"
            "SLANGPY_RT_COMPILE_IN names the Python that runs it, without it the one that runs this."
        )

    def _why(self) -> str:
        """Return a message that explains how the process ended which gave no answer."""
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        status = process.returncode
        if status in _SLOW:
            return (
                f"it took more than {self._seconds:g} s, which is all that one compilation gets "
                "(SLANGPY_RT_COMPILE_SECONDS). Take the text apart, or raise the limit."
            )
        if status == STUCK:
            return "it waits for a file that does not end; let what it imports and includes be ordinary files."
        if status == NO_MEMORY:
            return "it ran out of memory."
        return (
            f"the compiler crashed ({_status(status)}), which is a defect of Slang; nothing else is harmed. "
            f"Take parts of the text away to find the one that Slang cannot compile.{self._said()}"
        )

    def _said(self) -> str:
        """Return a line feed and the end of what the process wrote to stderr; empty if it wrote nothing."""
        if self._words is None:
            return ""
        self._words.seek(0)
        said = self._words.read().decode("utf-8", "replace").strip()[-_LAST_WORDS:]
        return said and f"\n{said}"


class Closable(Protocol):
    """A session that opens itself again when it is used after ``close``."""

    def close(self) -> None:
        """Release the session."""


class Ended(Exception):
    """The compiler's process ended without an answer.

    Attributes
    ----------
    final : bool
        Whether the process used up its time or memory, so that the same request would fail again.
    """

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def _status(status: int | None) -> str:
    if status is not None and status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _forked(compiler: CompilerProcess | None) -> None:
    if compiler is not None:
        compiler.forked()


def _at_exit(known: weakref.ref[CompilerProcess]) -> None:
    compiler = known()
    if compiler is not None:
        compiler.end()
