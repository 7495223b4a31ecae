"""Steps that KeyboardInterrupt cannot split: a call and the note of its result, a piece of work, a finalizer.

Python runs the handler of a signal, which may raise KeyboardInterrupt, between any two instructions of the main
thread's Python code. It runs none inside a function of C, and none in another thread. Everything here follows from
these two facts. It knows no device, and it does not change how signals are handled.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from operator import attrgetter, methodcaller
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
_CALL = methodcaller("__call__")
_CREW = "slangpy_rt-crew"


def noted(results: list[R], function: Callable[..., R], *args: Any) -> R:
    """Call a function of C and append its result to a list, in one step: both happen, or none.

    Returns
    -------
    Any
        The result.
    """
    results.extend(starmap(function, (args,)))
    return results[-1]


def apart(function: Callable[..., R], *args: Any, stop: Callable[[], Any] | None = None) -> R:
    """Call a function that no interrupt stops half way: if the main thread calls, another thread runs it.

    An interrupt that comes meanwhile is raised once the work is done. The caller holds no lock that the function
    needs. It costs about 30 us.

    Parameters
    ----------
    stop : callable, optional
        Makes the function end soon; an interrupt calls it, once or more often.
    """
    # Compared by number: ``current_thread`` makes an object for each thread that C code started, and keeps it.
    if threading.get_ident() != threading.main_thread().ident or _ENDED or sys.is_finalizing():
        return function(*args)
    gate = own_gate()
    outcome: list[Any] = []
    # Python's own lock, because an interrupt ends the wait for it.
    ended = threading.Lock()
    opened = gate.open if stop is None else ended.release

    def run(given: list[Any]) -> None:
        try:
            outcome.append(given.pop()(*given.pop()))
        except BaseException as error:
            outcome.extend((None, error))
        # The thread holds no argument any more, so that none is freed after the caller goes on.
        opened()

    try:
        helper = _helper()
    except RuntimeError:
        # The system starts no more threads, or the process ends.
        return function(*args)
    begin = helper.begin(partial(run, [args, function]), 1)
    if stop is None:
        in_one_step(*begin, gate.wait)
    else:
        _wait_or_stop(begin, outcome, ended, stop)
    if len(outcome) > 1:
        raise outcome.pop()
    return outcome.pop()  # type: ignore[no-any-return]


def _wait_or_stop(
    begin: Sequence[Callable[[], Any]], outcome: list[Any], ended: threading.Lock, stop: Callable[[], Any]
) -> None:
    """Begin work and wait until it has an outcome, at which its thread releases a lock; an interrupt stops it."""
    begun: list[bool] = []
    interrupt: BaseException | None = None
    while True:
        try:
            if not begun:
                ended.acquire()
                in_one_step(partial(begun.append, True), *begin)
            if interrupt is not None:
                stop()
            # An interrupt may come once the lock is taken, so the outcome counts. On Windows it does not end a wait
            # without a limit.
            while not outcome:
                ended.acquire(timeout=1)
            break
        except BaseException as error:
            interrupt = error
            if not begun:
                break
    if interrupt is not None:
        raise interrupt


def in_one_step(*calls: Callable[[], Any]) -> None:
    """Call functions of C without arguments, in turn; an interrupt comes before the first or after the last."""
    deque(map(_CALL, calls), 0)


def finalizer(path: str) -> Any:
    """Return a ``__del__`` that calls the function of C without arguments that an attribute holds, if it is set.

    A ``__del__`` written in Python can be interrupted: Python then reports "Exception ignored in", and what it was to
    give back is lost. This one is looked up and called by C alone. Without the attribute, as in an object whose
    making was interrupted, nothing happens. It needs nothing of a module, so that it is right as the process ends.
    """
    return property(attrgetter(path))


class Inside(dict[int, Any]):
    """One lock for each thread, held while the thread uses a device outside of the device's own lock.

    A thread that closes the device marks it as closed first, and then takes each lock once (``wait``). After that no
    other thread is inside, and a thread that comes later finds the device closed. The locks are reentrant, so that
    ``wait`` does not wait for its own thread.
    """

    def __missing__(self, thread: int) -> Any:
        return self.setdefault(thread, threading.RLock())

    def wait(self) -> None:
        """Wait until no other thread is inside."""
        for lock in list(self.values()):
            with lock:
                pass


class Release:
    """A callable that closes a device once: when it is called, or in another thread after its owner was collected.

    The owner has ``__del__ = finalizer(...)`` with the path to ``drop``.

    Attributes
    ----------
    drop : callable
        A function of C that begins the release in another thread, where no interrupt comes. The process waits for it
        before it ends.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = [work]
        self._done = threading.Event()
        begin = _helper().begin(self, 1)
        self.drop: Callable[[], Any] = partial(deque, map(_CALL, (partial(_DROPPED.append, self), *begin)), 0)

    @property
    def alive(self) -> bool:
        """Whether the device has not been released yet."""
        return bool(self._work)

    def __call__(self) -> None:
        try:
            work = self._work.pop()
        except IndexError:
            return
        try:
            work()
        finally:
            self._done.set()

    def keep(self) -> None:
        """Do not release when the owner is collected."""
        self.drop = partial(bool)

    def detach(self) -> None:
        """Never release."""
        self.keep()
        self._work.clear()
        self._done.set()

    def wait(self) -> None:
        """Wait until the other thread has released, for 10 s at the most."""
        self._done.wait(10)


_DROPPED: deque[Release] = deque(maxlen=64)
# Not empty once the program has ended.
_ENDED: list[bool] = []


@atexit.register
def _end() -> None:
    """Wait for releases that have begun. Later ones are left to the end of the process: no thread may outlive it."""
    for release in list(_DROPPED):
        release.wait()
    _ENDED.append(True)
    if _helper.cache_info().currsize:
        _helper().close()


class Crew:
    """Threads that do parts of a job while the caller does one and waits for the others, interrupts included.

    Once ``run`` returns, no thread reads or writes memory of the job, which the caller may then free.
    """

    def __init__(self, threads: int) -> None:
        self._jobs: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._ends: SimpleQueue[None] = SimpleQueue()
        self._count, self._process = threads, os.getpid()
        for _ in range(threads):
            # No Thread is kept: ``threading`` runs Python code where one is freed, which an interrupt could hit.
            threading.Thread(target=self._work, name=_CREW, daemon=True).start()

    def begin(self, job: Callable[[], Any], threads: int) -> list[Callable[[], None]]:
        """Return steps for ``in_one_step`` that have so many threads begin with a job."""
        return [partial(self._jobs.put, job)] * threads

    def run(self, own: Callable[[], Any], others: Sequence[Callable[[], Any]]) -> None:
        """Call ``own``, a function of C, in this thread and the others in the crew's; return once all are done."""
        gate, done, count = own_gate(), itertools.count(1), len(others)

        def counted(other: Callable[[], Any]) -> None:
            try:
                other()
            finally:
                if next(done) == count:
                    gate.open()

        steps = [step for other in others for step in self.begin(partial(counted, other), 1)]
        in_one_step(*steps, own, *([gate.wait] if others else []))

    def close(self) -> None:
        """End the threads, which have no work left. In a forked process, which has none of them, do nothing."""
        if self._process != os.getpid():
            return
        self.dismiss()
        for _ in range(self._count):
            self._ends.get()

    def dismiss(self) -> None:
        """Let each thread end once it has no work left, without waiting for it."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException:
                # It is reported, as of any thread, and the thread goes on: who waits for it would wait for ever.
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            # No reference to the job is kept while the thread waits for the next one.
            del job
        self._ends.put(None)


@functools.cache
def _helper() -> Crew:
    """Return the crew of one thread that works for the main thread.

    A new thread each time would take new memory: the C library does not soon give a thread's free memory to others.
    """
    return Crew(1)


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads.
    os.register_at_fork(after_in_child=_DROPPED.clear)
    os.register_at_fork(after_in_child=_ENDED.clear)
    os.register_at_fork(after_in_child=_helper.cache_clear)


def has_daemons() -> bool:
    """Tell whether the program has daemon threads other than those of this package."""
    return any(thread.daemon and thread.name != _CREW for thread in threading.enumerate())


class Gate:
    """A thread waits here until another one opens it. Python's own locks end a wait when an interrupt comes.

    Attributes
    ----------
    wait, open : callable
        Functions of C. It is closed again after each wait.
    opens : tuple of int
        The addresses of what opens it and of its argument, for C.
    """

    __slots__ = ("_free", "open", "opens", "wait")

    __del__ = finalizer("_free")

    def __init__(self) -> None:
        allocate, acquire, release, free = _lock_functions()
        handle = ctypes.c_void_p(allocate())
        acquire(handle, 1)
        self._free = partial(free, handle)
        self.wait = partial(acquire, handle, 1)
        self.open = partial(release, handle)
        self.opens = ctypes.cast(release, ctypes.c_void_p).value, handle.value


class _Gates(threading.local):
    """The gate of each thread: a thread waits at one at a time."""

    gate: Gate | None = None


_GATES = _Gates()


def own_gate() -> Gate:
    """Return the gate of this thread."""
    gate = _GATES.gate
    if gate is None:
        gate = _GATES.gate = Gate()
    return gate


@functools.cache
def _lock_functions() -> tuple[Any, Any, Any, Any]:
    """Return Python's C functions that make, acquire, release and free a lock; the GIL is released while one runs."""
    native = ctypes.CDLL(None, handle=ctypes.pythonapi._handle)
    allocate, acquire = native.PyThread_allocate_lock, native.PyThread_acquire_lock
    release, free = native.PyThread_release_lock, native.PyThread_free_lock
    allocate.restype, allocate.argtypes = ctypes.c_void_p, ()
    acquire.restype, acquire.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)
    release.restype, release.argtypes = None, (ctypes.c_void_p,)
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    return allocate, acquire, release, free
