"""The main program of the compiler's process: it reads requests from standard input and writes answers to its output.

Some texts make Slang 2026.12 crash, and here a crash ends only a process that does nothing else. The process imports
no NumPy, opens no device and never runs the main module of the process that started it. It ends itself when that
process is gone, when a request takes too long, and when it waits for a file that has no end, such as a pipe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.memory import give_back_freed, held_memory
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.messages import NO_MEMORY, SLOW, STUCK, receive, send
from slangpy_rt.slang.session import Session

# The stack in bytes. Slang parses by recursion: 20,000 nested brackets take 60 MB.
_STACK = 512 << 20
# The stack for targets with ``program``: the client process compiles the same text again, in threads with 8 MB.
_SMALL_STACK = 4 << 20
_POLL_SECONDS = 0.25
# A request that uses less processor time than this, in seconds, in 41 successive polls together is only waiting.
_IDLE_SECONDS, _IDLE_POLLS = 0.02, 40
# The least limit of this process's address space, in bytes.
_LEAST_MEMORY = 4 << 30
# A process that holds more bytes than this is replaced, once it has answered so many requests: a session may need as
# much by itself.
_MOST_MEMORY, _LEAST_REQUESTS = 1 << 30, 64
# Half of Python's default limit, which the client process has: its recursion over the same types takes more frames.
_RECURSION = 500
_TOO_DEEP = "the text nests too deep; take it apart into functions and structs."


class Worker:
    """Runs the requests of the client process in compiler sessions, which are kept by number.

    Parameters
    ----------
    library : Library
        The compiler.
    seconds : float
        Processor time that one request may take, in seconds.
    """

    def __init__(self, library: Library, seconds: float) -> None:
        self._library = library
        self._sessions: dict[int, Session] = {}
        self._seconds = seconds
        self._answer: tuple[bool, Any] = (False, None)

    def serve(self, requests: Any, answers: Any) -> None:
        """Answer requests until the client process closes the stream.

        An answer ends with whether this process holds so much memory that another one should take its place: Slang
        keeps part of what each session and each kernel took until its process ends.
        """
        count = 0
        while (request := receive(requests)) is not None:
            number, closed, folder, method, args = request
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
            # This sets the stack size of threads that are started from now on.
            threading.stack_size(_SMALL_STACK if small else _STACK)
            thread = threading.Thread(target=self._work, args=(number, method, args), daemon=True)
            thread.start()
            _limit(time.process_time() + self._seconds)
            self._watch(thread)
            count += 1
            send(answers, (*self._answer, count >= _LEAST_REQUESTS and held_memory() > _MOST_MEMORY))

    def _work(self, number: int, method: str, args: tuple[Any, ...]) -> None:
        try:
            self._answer = True, self._ask(number, method, args)
        except MemoryError:
            os._exit(NO_MEMORY)
        except RecursionError:
            self._answer = False, CompileError(_TOO_DEEP)
        except Exception as error:
            # ctypes reports a RecursionError in the conversion of an argument as an ArgumentError.
            deep = isinstance(error, ctypes.ArgumentError) and "RecursionError" in str(error)
            self._answer = False, CompileError(_TOO_DEEP) if deep else error

    def _ask(self, number: int, method: str, args: tuple[Any, ...]) -> Any:
        if method == "open":
            self._sessions[number] = Session(self._library, *args)
            return self._library.build_tag
        return getattr(self._sessions[number], method)(*args)

    def _watch(self, thread: threading.Thread) -> None:
        """Wait until a request is done; end the process if it takes too long or only waits."""
        started = last = time.process_time()
        idle = 0
        while True:
            thread.join(_POLL_SECONDS)
            if not thread.is_alive():
                return
            now = time.process_time()
            if now - started > self._seconds:
                os._exit(SLOW)
            idle = idle + 1 if now - last < _IDLE_SECONDS else 0
            if idle > _IDLE_POLLS:
                os._exit(STUCK)
            if not idle:
                last = now


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process too, but the client handles it.
    if hasattr(signal, "SIGXCPU"):
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    # Output that the compiler prints must not be mixed with the answers, so standard output becomes standard error.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _bound()
    sys.setrecursionlimit(_RECURSION)
    send(answers, True)
    cache = DiskCache.open(Path(folder) if folder else None, int(size))
    Worker(Library(library, cache), float(seconds)).serve(requests, answers)
    os._exit(0)


def _limit(seconds: float) -> None:
    """Let the system end this process when it has used so much processor time in all.

    ``_watch`` cannot do so while it waits for Python's global interpreter lock.
    """
    if sys.platform != "win32":
        import resource

        with suppress(OSError, ValueError):
            # The limit is in whole seconds, and has to be later than that of ``_watch``.
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _bound() -> None:
    """Limit this process's memory, let Linux end it first when memory is short, and disable core files."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - before pathlib is needed
        file.write("1000")
    if sys.platform != "win32":
        import resource

        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if sys.platform == "linux":
            half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
            with suppress(OSError, ValueError):
                _, hard = resource.getrlimit(resource.RLIMIT_AS)
                resource.setrlimit(resource.RLIMIT_AS, (max(half, _LEAST_MEMORY), hard))
