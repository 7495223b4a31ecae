"""Programs: compilers that run as programs of their own, with a limit of time, and end with all that they started."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slangpy_rt.core.config import child_environment
from slangpy_rt.core.errors import CompileError, CompileLimitError
from slangpy_rt.core.jobs import stoppable

if TYPE_CHECKING:
    import subprocess


class Result(NamedTuple):
    """How a program ended: its exit status, and what it wrote to standard error."""

    returncode: int
    stderr: str


class Programs:
    """The programs of one compilation.

    Parameters
    ----------
    seconds : float
        How long all of them together may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._stopped = False
        self._running: list[subprocess.Popen[bytes]] = []

    def run(
        self, *commands: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None
    ) -> list[Result]:
        """Run commands side by side until the last has ended; what they write to standard output is lost.

        Parameters
        ----------
        *commands : sequence of str
            Each a program's path and its arguments.
        environment : mapping of str to str, optional
            Variables that are set for them, beside those of this process.
        folder : str, optional
            The folder that they run in.

        Raises
        ------
        CompileError
            If they take too long, or ``stop`` was called. They have ended then.
        """
        import subprocess  # 10 ms, for which a process that finds its kernels in the cache has no use

        with stoppable(self.stop):
            started: list[subprocess.Popen[bytes]] = []
            try:
                for command in commands:
                    started.append(self._start(command, child_environment(environment or {}), folder))
                results = []
                for process in started:
                    _, words = process.communicate(timeout=max(0.0, self._until - time.monotonic()))
                    results.append(Result(process.returncode, words.decode("utf-8", "backslashreplace")))
            except subprocess.TimeoutExpired:
                raise CompileLimitError(
                    f"{Path(commands[0][0]).name} took more than {self._seconds:g} s for the code that Slang "
                    "emitted, which is all that one kernel gets (SLANGPY_RT_BUILD_SECONDS). Take the function apart, "
                    "or raise the limit."
                ) from None
            finally:
                self._end(started)
        if self._stopped:
            raise CompileError("the compilation was stopped by an interrupt.")
        return results

    def stop(self) -> None:
        """End the programs that run; those that would be started later raise CompileError."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str | None
    ) -> subprocess.Popen[bytes]:
        import subprocess

        with self._lock:
            if self._stopped:
                raise CompileError("the compilation was stopped by an interrupt.")
            # In a group of their own: g++ starts other programs, which end with the group.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip
            self._running.append(process)
            return process

    def _end(self, started: Sequence[subprocess.Popen[bytes]]) -> None:
        """End those that still run, and forget all."""
        for process in started:
            with self._lock:
                self._running.remove(process)
            if process.returncode is None:
                _kill(process)
                process.communicate()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that has not been waited for, and what it started."""
    with suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        elif process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
