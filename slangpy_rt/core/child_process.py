"""A child process that answers requests: it is started when needed, and its end without an answer is explained.

What crashes there, or never finishes, ends only the child process. Nothing here interprets a request.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.jobs import stoppable
from slangpy_rt.core.messages import NO_MEMORY, SLOW, STUCK, receive, send

# The child runs a module's ``main`` without the __init__ of the packages around it, whose imports, NumPy among them,
# would take 0.2 s. The few modules that need NumPy find it through this process's sys.path, which is passed on.
# Libraries of wheels are searched for below ``prefix``, which without ``site`` is that of the Python below a virtual
# environment.
_BOOT = """
import sys, types
from importlib import import_module
from importlib.machinery import ModuleSpec
name, folder = "slangpy_rt", sys.argv[1]
for part in sys.argv[2].split(".")[1:]:
    package = sys.modules[name] = types.ModuleType(name)
    package.__spec__ = ModuleSpec(name, None, is_package=True)
    package.__path__ = package.__spec__.submodule_search_locations = [folder]
    name, folder = f"{name}.{part}", f"{folder}/{part}"
count = int(sys.argv[3])
sys.prefix, sys.exec_prefix = sys.argv[4:6]
sys.path += sys.argv[6 + count:]
import_module(sys.argv[2]).main(*sys.argv[6:6 + count])
"""
# Exit statuses after too much processor time: the child ended itself, or the system ended it at the limit of
# processor time that the child had set for itself.
_SLOW = (SLOW, -signal.SIGXCPU) if hasattr(signal, "SIGXCPU") else (SLOW,)
_LAST_WORDS = 1000  # An error message shows this many characters from the end of the child's stderr.


class ChildProcess:
    """A child process that answers requests; a request starts it if it is not running.

    Parameters
    ----------
    python : str
        The Python interpreter that the child runs.
    seconds : float
        Processor time that one request may take, in seconds.
    compiler : str
        The name of the compiler that the child runs, for error messages.
    variable : str
        The environment variable that sets ``seconds``, for error messages.

    Attributes
    ----------
    module : str
        The module with the child's ``main``, which gets the items of ``arguments()`` and serves requests.
    lock : RLock
        The lock that a thread holds from sending a request to receiving its answer.
    started : int
        Number of processes started so far.
    """

    module: str

    def __init__(self, python: str, seconds: float, compiler: str, variable: str) -> None:
        self._python, self._seconds, self._compiler, self._variable = python, seconds, compiler, variable
        self.started = 0
        self.lock = threading.RLock()
        self._ended = self._ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        if hasattr(os, "register_at_fork"):
            known = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forked(known()))
        atexit.register(_at_exit, weakref.ref(self))

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the child's ``main``."""
        return ()

    def answer(self, make: Callable[[], Any]) -> Any:
        """Send a request and return the answer; raise the answer if it is an exception.

        Parameters
        ----------
        make : callable
            Returns the request, which is pickled; called once the process runs.

        Raises
        ------
        Ended
            If the process ended without answering, or this program has ended.
        """
        with self.lock, stoppable(self.stop):
            try:
                self._check_gone()
                # Popen objects are used only in the thread of ``apart``, for the reason given in ``stop``.
                requests, answers = apart(self._running)
                request, answer = make(), None
                with suppress(OSError, ValueError):  # the process may end while the request is being written
                    send(requests, request)
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
            self.replace_large()
        if good:
            return value
        raise value

    def replace_large(self) -> None:
        """End the process because it holds much memory; the next request starts another one."""
        self.stop()

    def start(self) -> int:
        """Start the process if none is running, and return the attribute ``started``."""
        self._check_gone()
        apart(self._running)
        return self.started

    def begin(self) -> None:
        """Start the process if none is running, without waiting until it is ready or reporting why it is not."""
        if self.lock.acquire(blocking=False):
            try:
                with suppress(UnsupportedError):
                    apart(self._begun)
            finally:
                self.lock.release()

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
        """Drop, in a forked child of this process, the child process and replace the lock.

        The child process belongs to the parent, and a thread of the parent may hold the lock.
        """
        self.lock = threading.RLock()
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
        process = self._begun()
        if not self._ready:
            if receive(process.stdout) is None:
                # Ctrl-C reaches the new process too, and ends it if it does not ignore the signal yet.
                self._stop()
                process = self._start()
                if receive(process.stdout) is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(10)
                    raise self._no_start(f"{_status(process.returncode)}{self._said()}")
            self._ready = True
        return process.stdin, process.stdout

    def _begun(self) -> subprocess.Popen[bytes]:
        """Return the process, after starting it if none is running; it may not be ready yet."""
        process = self._process
        if process is None or process.poll() is not None:
            self._stop()
            process = self._start()
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
        if sys.pycache_prefix:
            flags += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
        package, arguments = str(Path(__file__).parent.parent), self.arguments()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _stop
        self.started += 1
        self._ready = False
        given = [package, self.module, str(len(arguments)), sys.prefix, sys.exec_prefix, *arguments]
        try:
            self._process = subprocess.Popen(
                [self._python, *flags, "-c", _BOOT, *given, *filter(None, sys.path)],
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
        if process is None:
            return "the compilation was stopped."
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        status = process.returncode
        if status in _SLOW:
            return (
                f"it took more than {self._seconds:g} s, which is all that one compilation gets "
                f"({self._variable}). Take the text apart, or raise the limit."
            )
        if status == STUCK:
            return "it waits for a file that does not end; let what it imports and includes be ordinary files."
        if status == NO_MEMORY:
            return "it ran out of memory."
        return (
            f"the compiler crashed ({_status(status)}), which is a defect of {self._compiler}; nothing else is "
            f"harmed. Take parts of the text away to find the one that {self._compiler} cannot compile.{self._said()}"
        )

    def _said(self) -> str:
        """Return a line feed and the end of what the process wrote to stderr; empty if it wrote nothing."""
        if self._words is None:
            return ""
        self._words.seek(0)
        said = self._words.read().decode("utf-8", "replace").strip()[-_LAST_WORDS:]
        return said and f"\n{said}"


class Ended(Exception):
    """The child process ended without an answer.

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


def _forked(child: ChildProcess | None) -> None:
    if child is not None:
        child.forked()


def _at_exit(known: weakref.ref[ChildProcess]) -> None:
    child = known()
    if child is not None:
        child.end()
