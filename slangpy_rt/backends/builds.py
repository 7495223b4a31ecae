"""Builds: kernels that a driver compiles, each in a thread that an interrupt or the limit of time leaves behind.

Nothing can stop a driver's compiler, and what it makes cannot leave the process. So the thread goes on, and what it
makes is kept for the next call that asks for it. As long as one of them runs, the device is not destroyed: ``after``
puts that off. Nothing here calls a driver.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from slangpy_rt.core.errors import CompileError, CompileLimitError
from slangpy_rt.core.interrupts import Crew, apart, in_one_step
from slangpy_rt.core.jobs import stoppable

# How often a wait looks whether it has to end. On Windows an interrupt does not end a wait by itself.
_POLL_SECONDS = 0.1


class Build:
    """One kernel that the driver compiles.

    Attributes
    ----------
    key : Hashable
        What is compiled.
    began : float
        When it began, by ``time.monotonic``.
    ended : threading.Event
        Set once the driver has returned.
    outcome : tuple or None
        Then its result and None, or None and its exception.
    make : callable or None
        Compiles it in the thread that waits, where no other could be started.
    """

    __slots__ = ("began", "ended", "key", "make", "outcome")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.make: Callable[[], Any] | None = None


class Builds:
    """The kernels that the driver of one device compiles, any number at a time.

    Parameters
    ----------
    driver : str
        The driver, for error messages.
    seconds : float
        How long one kernel may take.
    """

    def __init__(self, driver: str, seconds: float) -> None:
        self._driver, self._seconds = driver, seconds
        self._lock = threading.Lock()
        # Builds that run, and those that ended and were not taken.
        self._builds: dict[Hashable, Build] = {}
        # Threads without work; a thread that the driver holds is in no list.
        self._idle: list[Crew] = []
        self._running = 0
        self._after: list[Callable[[], Any]] | None = None

    @property
    def running(self) -> bool:
        """Whether the driver compiles now."""
        return self._running > 0

    def begin(self, key: Hashable, make: Callable[[], Any]) -> Build:
        """Return the build of a key, after starting a thread that calls ``make`` unless there is one.

        No interrupt may stop it.
        """
        with self._lock:
            found = self._builds.get(key)
            if found is None:
                found = Build(key)
                try:
                    crew = self._idle.pop() if self._idle else Crew(1)
                except RuntimeError:
                    # The system starts no more threads, or the process ends.
                    found.make = make
                    return found
                self._builds[key] = found
                self._running += 1
                in_one_step(*crew.begin(partial(self._run, crew, found, make), 1))
            return found

    def wait(self, build: Build, check: Callable[[], Any]) -> None:
        """Wait until a build has ended. An interrupt ends the wait, and not the build.

        Parameters
        ----------
        check : callable
            Raises an exception when the wait has to end; it is called some times a second.

        Raises
        ------
        CompileLimitError
            If it takes too long.
        CompileError
            If an interrupt has stopped the jobs that the thread works for.
        """
        if build.make is not None:
            build.outcome = apart(build.make), None
            return
        stopped: list[bool] = []
        with stoppable(partial(stopped.append, True)):
            while not build.ended.wait(_POLL_SECONDS):
                check()
                if stopped:
                    raise CompileError("the compilation was stopped by an interrupt.")
                if time.monotonic() - build.began > self._seconds:
                    raise CompileLimitError(
                        f"{self._driver} took more than {self._seconds:g} s, which is all that one kernel gets "
                        "(SLANGPY_RT_BUILD_SECONDS). Take the function apart, or raise the limit. Nothing stops "
                        "such a compiler: it goes on in a thread of this process, and a later call takes what it "
                        "made."
                    )

    def take(self, build: Build) -> tuple[Any] | None:
        """Return the result of a build that has ended, or None if another thread took it; raise its exception."""
        with self._lock:
            if build.make is None:
                if self._builds.get(build.key) is not build:
                    return None
                del self._builds[build.key]
        assert build.outcome is not None
        result, error = build.outcome
        if error is not None:
            raise error
        return (result,)

    def after(self, function: Callable[[], Any]) -> None:
        """Call a function once nothing is compiled any more: now, or in the last thread. No build may begin later."""
        with self._lock:
            if self._running:
                self._after = [*(self._after or []), function]
                return
            self._after = []
            for crew in self._idle:
                crew.dismiss()
            self._idle.clear()
        function()

    def _run(self, crew: Crew, build: Build, make: Callable[[], Any]) -> None:
        try:
            build.outcome = make(), None
        except BaseException as error:
            build.outcome = None, error
        waiting: list[Callable[[], Any]] = []
        with self._lock:
            self._running -= 1
            if self._after is None:
                self._idle.append(crew)
            else:
                crew.dismiss()
                if not self._running:
                    waiting, self._after = self._after, []
        build.ended.set()
        for function in waiting:
            function()
