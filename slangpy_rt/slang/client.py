"""Sessions of the Slang compiler in a process of its own, which a text may end without ending this one.

``RemoteSession`` answers as ``session.Session`` does. It keeps what it was given, so that a session that is lost with
its process is opened again when it is next needed. Nothing here reads Slang text.
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
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from slangpy_rt.core.errors import CompileError, SlangPyRtError
from slangpy_rt.core.interrupts import apart, finalizer
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import Compiled, FunctionSig, ModuleInfo, SlangType, StructInfo
from slangpy_rt.slang.locate import find_library
from slangpy_rt.slang.messages import NO_MEMORY, SLOW, STUCK, receive, send

# The package without its __init__, which imports NumPy and all that calls need: 0.2 s. NumPy, which few modules need,
# is found where this process finds it.
_BOOT = """
import sys, types
package = types.ModuleType("slangpy_rt")
package.__path__ = [sys.argv[1]]
sys.modules["slangpy_rt"] = package
sys.path += sys.argv[4:]
from slangpy_rt.slang.worker import main
main(sys.argv[2], sys.argv[3])
"""
_LAST_WORDS = 1000


class RemoteSession:
    """A ``Session`` in the compiler's process; see there for the methods.

    Parameters
    ----------
    compiler : Compiler
        The process.
    target, search_paths, defines
        As of ``Session``.

    Raises
    ------
    UnsupportedError
        As of ``Session``.
    """

    def __init__(
        self,
        compiler: Compiler,
        target: Target,
        search_paths: tuple[str, ...] = (),
        defines: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._compiler = compiler
        self._how = (target, search_paths, defines)
        # Of loaded modules, in their order: name, path, text, and what they were found to declare.
        self._modules: list[tuple[str, str, str, ModuleInfo]] = []
        self._number = 0  # 0 while there is none in the process
        self._process = 0
        self._ask("open", *self._how)

    def load_module(self, name: str, path: str, source: str) -> ModuleInfo:
        """Load user code under a name that kernels import."""
        info: ModuleInfo = self._ask("load_module", name, path, source)
        self._modules.append((name, path, source, info))
        return info

    def functions(self, module: str, name: str) -> tuple[FunctionSig, ...]:
        """Overloads of a function or method of a loaded module."""
        found: tuple[FunctionSig, ...] = self._ask("functions", module, name)
        return found

    def type(self, module: str, name: str) -> StructInfo | SlangType | None:
        """A type as a loaded module sees it."""
        found: StructInfo | SlangType | None = self._ask("type", module, name)
        return found

    def conforms(self, module: str, name: str, interface: str) -> bool:
        """Whether a type implements an interface."""
        found: bool = self._ask("conforms", module, name, interface)
        return found

    def compile(
        self,
        text: str,
        name: str,
        entry: str,
        conformances: tuple[tuple[str, str, int], ...] = (),
        link: tuple[str, ...] = (),
        exports: str = "",
    ) -> Compiled:
        """Emit target code of a kernel."""
        made: Compiled = self._ask("compile", text, name, entry, conformances, link, exports)
        return made

    def close(self) -> None:
        """Release the session; the next use opens another. Calling it again does nothing."""
        number, self._number = self._number, 0
        if number:
            self._give()
            del self._give

    __del__ = finalizer("_give")

    def _ask(self, method: str, *args: Any) -> Any:
        compiler = self._compiler
        try:
            with compiler.lock:
                return self._attempt(method, *args)
        except Exception:
            if compiler.is_gone:
                # A thread that went on would report an error which is none.
                threading.Event().wait()
            raise

    def _attempt(self, method: str, *args: Any) -> Any:
        compiler = self._compiler
        for last in (False, True):
            before = compiler.started
            try:
                self._open()
                return None if method == "open" else compiler.ask(self._number, method, *args)
            except Ended as end:
                self._number = 0
                # An old process may be harmed by what it was asked before; a new one proves that it is the text.
                if last or compiler.started != before:
                    raise CompileError(f"Slang could not {_phrase(method, args)}:\n{end}") from None
            except CompileError:
                # Slang 2026.12 may not survive what is loaded after a text that it refused.
                self.close()
                raise
        raise AssertionError("the last attempt returns or raises")

    def _open(self) -> None:
        """Open the session if there is none in the process, with all its modules."""
        compiler = self._compiler
        if compiler.start() == self._process and self._number:
            return
        number = compiler.number()
        compiler.ask(number, "open", *self._how)
        self._number, self._process = number, compiler.started
        self._give = partial(compiler.closed.append, (self._process, number))
        for name, path, text, before in self._modules:
            info = compiler.ask(number, "load_module", name, path, text)
            files = {file for file, _ in set(info.dependencies) ^ set(before.dependencies)}
            changed = sorted(files - {str(Path(path).resolve())})  # its own text is in memory
            if changed:
                raise CompileError(
                    f"module '{name}': '{changed[0]}' changed since it was loaded; load the module again."
                )


class Compiler:
    """The compiler's process, started when it is first needed and again after its end.

    Parameters
    ----------
    path : str or None
        The library's file; None for the one inside the slangpy wheel.
    python : str
        The interpreter that runs it.
    seconds : float
        How much of a processor's time one request may take.

    Attributes
    ----------
    lock : RLock
        Held over a request and its answer.
    started : int
        Counts processes: what an earlier one held is lost.
    closed : deque of (int, int)
        Append the process and the number of a session, and the next request closes it.
    """

    def __init__(self, path: str | None, python: str, seconds: float) -> None:
        self._path, self._python, self._seconds = path, python, seconds
        self.started = self._numbers = 0
        self.lock = threading.RLock()
        self.closed: deque[tuple[int, int]] = deque()
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        if hasattr(os, "register_at_fork"):
            known = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forked(known()))
        atexit.register(_at_exit, weakref.ref(self))

    def number(self) -> int:
        """A number for a new session."""
        self._numbers += 1
        return self._numbers

    def ask(self, number: int, method: str, *args: Any) -> Any:
        """Send a request to a session and return its answer, or raise it.

        Raises
        ------
        Ended
            If the process ended without an answer.
        """
        with self.lock:
            try:
                self._check_gone()
                # Nothing in the main thread has the process itself: see ``stop``.
                requests, answers = apart(self._running)
                closed = [self.closed.popleft() for _ in range(len(self.closed))]
                numbers = [session for of, session in closed if of == self.started]
                answer = None
                with suppress(OSError, ValueError):  # it may end while the request is on its way
                    send(requests, (number, numbers, _folder(), method, args))
                    answer = receive(answers)
                if answer is None:
                    raise Ended(apart(self._why))
            except BaseException:
                # Ctrl-C among them: an answer that nobody waits for would be taken for that of the next request.
                self.stop()
                raise
        good, value = answer
        if good:
            return value
        raise value

    def start(self) -> int:
        """Start the process if there is none that runs; return ``started``."""
        self._check_gone()
        apart(self._running)
        return self.started

    def stop(self) -> None:
        """End the process, if there is one; the next request starts another."""
        # Not in the main thread, where an interrupt in subprocess's own finalizer would be reported and lost.
        apart(self._stop)

    def end(self) -> None:
        """End the process as the program ends: threads that it does not wait for get no answers any more."""
        self._ended = True
        self.stop()

    @property
    def is_gone(self) -> bool:
        """Whether the program has ended, and this is a thread that it does not wait for."""
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
        """In a forked process: leave the compiler to the parent, whoever holds the lock there."""
        self.lock = threading.RLock()
        process, self._process = self._process, None
        words, self._words = self._words, None
        self.started += 1
        if words is not None:
            words.close()
        if process is not None:
            _close(process)
            process.returncode = 0  # it is nobody's child here

    def _running(self) -> tuple[Any, Any]:
        """Where requests go and answers come from, of a process that runs."""
        process = self._process
        if process is None or process.poll() is not None:
            self._stop()
            process = self._start()
            if receive(process.stdout) is None:
                # An interrupt that is meant for this process can reach the new one before that ignores it.
                self._stop()
                process = self._start()
                if receive(process.stdout) is None:
                    raise SlangPyRtError(f"the compiler's process does not start: {self._python}: {self._why()}")
        return process.stdin, process.stdout

    def _start(self) -> subprocess.Popen[bytes]:
        flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
        if sys.pycache_prefix:
            flags += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
        package, library = Path(__file__).parent.parent, find_library(self._path).absolute()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self.started += 1
        arguments = [str(package), str(library), str(self._seconds), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [self._python, *flags, "-c", _BOOT, *arguments],
            bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words,
        )  # fmt: skip
        return self._process

    def _why(self) -> str:
        """How the process ended, which gave no answer."""
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        status = process.returncode
        if status == SLOW:
            return (
                f"it took more than {self._seconds:g} s, which is all that one compilation gets "
                "(SLANGPY_RT_COMPILE_SECONDS). Take the text apart, or raise the limit."
            )
        if status == STUCK:
            return "it waits for a file that does not end; let what it imports and includes be ordinary files."
        if status == NO_MEMORY:
            return "it ran out of memory."
        said = ""
        if self._words is not None:
            self._words.seek(0)
            said = self._words.read().decode("utf-8", "replace").strip()[-_LAST_WORDS:]
        return (
            f"the compiler crashed ({_status(status)}), which is a defect of Slang; nothing else is harmed. "
            f"Take parts of the text away to find the one that Slang cannot bear.{said and chr(10)}{said}"
        )


class Ended(Exception):
    """The compiler's process ended without an answer."""


def _phrase(method: str, args: tuple[Any, ...]) -> str:
    """What was asked, as messages of ``Session`` put it."""
    if method == "load_module":
        return f"load module {args[0]!r} from {args[1]}"
    if method == "compile":
        return f"compile {args[1]}"
    if method == "open":
        return "open a session"
    return f"look up {' '.join(repr(arg) for arg in args[1:])} in module {args[0]!r}"


def _status(status: int | None) -> str:
    if status is not None and status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"


def _folder() -> str:
    """The working directory, by which Slang finds what text without a file imports."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _forked(compiler: Compiler | None) -> None:
    if compiler is not None:
        compiler.forked()


def _at_exit(known: weakref.ref[Compiler]) -> None:
    compiler = known()
    if compiler is not None:
        compiler.end()
