"""The main program of the compiler's process: requests come by standard input, answers go by standard output.

Some texts make Slang 2026.12 crash, and here a crash ends a process that holds nothing else. The process imports no
NumPy, opens no device and never runs the main module of the process that started it. It ends itself when that process
is gone, when a request takes too long, and when it waits for a file that has no end, such as a pipe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.memory import give_back_freed
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.messages import NO_MEMORY, SLOW, STUCK, receive, send
from slangpy_rt.slang.session import Session

# Slang recurses over what it parses: 20,000 nested brackets take 60 MB.
_STACK = 512 << 20
# For targets with ``program``: the process that asks compiles the same text again, in threads with a stack of 8 MB.
_SMALL_STACK = 4 << 20
_POLL_SECONDS = 0.25
# A request that uses less processor time than this in each of so many polls in a row only waits.
_IDLE_SECONDS, _IDLE_POLLS = 0.02, 40
_LEAST_MEMORY = 4 << 30
# Half of Python's default, which the process that asks has: it walks over the same types with more frames for each.
_RECURSION = 500
_TOO_DEEP = "the text nests too deep; take it apart into functions and structs."


class Worker:
    """Runs the requests of another process in sessions, which it keeps by number.

    Parameters
    ----------
    library : str
        The compiler's file.
    seconds : float
        Processor time that one request may take.
    """

    def __init__(self, library: str, seconds: float) -> None:
        self._library = Library(library)
        self._sessions: dict[int, Session] = {}
        self._seconds = seconds
        self._answer: tuple[bool, Any] = (False, None)

    def serve(self, requests: Any, answers: Any) -> None:
        """Answer requests until the other process closes the stream."""
        while (request := receive(requests)) is not None:
            number, closed, folder, method, args = request
            for old in closed:
                session = self._sessions.pop(old, None)
                if session is not None:
                    session.close()
            if closed:
                give_back_freed()
            with suppress(OSError):  # the folder no longer exists; absolute paths still work
                os.chdir(folder)
            session = self._sessions.get(number)
            small = method != "open" and session is not None and session.target.program
            # This sets the stack of threads that are started from now on.
            threading.stack_size(_SMALL_STACK if small else _STACK)
            thread = threading.Thread(target=self._work, args=(number, method, args), daemon=True)
            thread.start()
            _limit(time.process_time() + self._seconds)
            self._watch(thread)
            send(answers, self._answer)

    def _work(self, number: int, method: str, args: tuple[Any, ...]) -> None:
        try:
            self._answer = True, self._ask(number, method, args)
        except MemoryError:
            os._exit(NO_MEMORY)
        except RecursionError:
            self._answer = False, CompileError(_TOO_DEEP)
        except Exception as error:
            # An object whose ``from_param`` recurses too deep fails as an argument of the compiler's.
            deep = isinstance(error, ctypes.ArgumentError) and "RecursionError" in str(error)
            self._answer = False, CompileError(_TOO_DEEP) if deep else error

    def _ask(self, number: int, method: str, args: tuple[Any, ...]) -> Any:
        if method == "open":
            self._sessions[number] = Session(self._library, *args)
            return None
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


def main(library: str, seconds: str) -> None:
    """Answer the requests of the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for the answer
    if hasattr(signal, "SIGXCPU"):
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    # What the compiler prints to standard output must not get between the answers, so it goes to standard error.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _bound()
    sys.setrecursionlimit(_RECURSION)
    send(answers, True)
    Worker(library, float(seconds)).serve(requests, answers)
    os._exit(0)


def _limit(seconds: float) -> None:
    """Have the system end this process after so much processor time: ``_watch`` may wait for Python's lock."""
    if sys.platform != "win32":
        import resource

        with suppress(OSError, ValueError):
            # In whole seconds, and later than ``_watch`` does it.
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _bound() -> None:
    """Limit this process's memory, have the system end it first when memory is short, and write no core files."""
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
