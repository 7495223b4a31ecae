"""Compiles the kernels of calls before they are made, several at a time. No call is run here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any

from slangpy_rt.arguments.adapters import thread_states
from slangpy_rt.calls.bound_method import BoundMethod
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.checks import short_traceback
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.jobs import Jobs
from slangpy_rt.core.wording import in_words


@short_traceback
def compile(calls: Iterable[partial[Any]], /) -> None:
    """Compile the kernels of some calls, several at a time, and run none of the calls.

    The first of these calls then takes no longer than any other. Nothing is uploaded or written.

    Parameters
    ----------
    calls : iterable of functools.partial
        The calls with their arguments: ``[partial(module.add, a, b), partial(module.scale.bwds, x, 2.0)]``, and
        ``partial(kernel.dispatch, threads, ...)`` for kernels. Only what kinds of values the arguments are, and how
        they lie in memory, matters: sizes may differ later.

    Raises
    ------
    BindError
        If one of them is no call of a Slang function; nothing is compiled then. Also as a call does.
    ShapeError, CompileError, UnsupportedError
        As a call does. Of several errors the first by the order of the calls is raised, once all others are compiled.

    Examples
    --------
    ``spy.compile([partial(f, x) for f in (module.f, module.g, module.h)])``
    """
    listed = _checked(calls)
    states = thread_states(tuple(chain.from_iterable((*c.args, *c.keywords.values()) for c in listed)))

    def prepare(call: partial[Any]) -> None:
        with ExitStack() as stack:
            for state in states:
                stack.enter_context(state())
            _owner(call).bind(*call.args, **call.keywords)

    # A thread waits for a compiler in another process most of the time, so one more than processors keeps them busy.
    jobs = Jobs()
    threads = max(1, min(len(listed), (os.cpu_count() or 1) + 1))
    pool = ThreadPoolExecutor(threads, "slangpy_rt-compile", jobs.enter)
    try:
        made = [pool.submit(prepare, call) for call in listed]
        errors = [each.exception() for each in made]
    except BaseException:
        jobs.stop()
        raise
    finally:
        # After Ctrl-C what has begun is waited for, so that no thread outlives the call.
        pool.shutdown(cancel_futures=True)
    for error in errors:
        if error is not None:
            raise error


def _checked(calls: Iterable[partial[Any]]) -> list[partial[Any]]:
    """Return the calls as a list, after a check that each is one of a Slang function or kernel."""
    if isinstance(calls, (partial, str)) or not isinstance(calls, Iterable):
        raise BindError(
            f"compile: {in_words(calls)} is no list of calls; pass [functools.partial(module.f, x), ...]."
        )
    listed = list(calls)
    for k, call in enumerate(listed):
        if not isinstance(call, partial) or not _is_call(call):
            raise BindError(
                f"compile: call {k} is {in_words(call)}; expected functools.partial of a Slang function and its "
                "arguments: partial(module.f, x)."
            )
    return listed


def _owner(call: partial[Any]) -> Any:
    """Return the function or kernel of a call, which may be given by a method, as in ``partial(f.call, x)``."""
    return getattr(call.func, "__self__", call.func)


def _is_call(call: partial[Any]) -> bool:
    """Tell whether a call is one of a function, or the dispatch of a kernel."""
    owner, method = _owner(call), getattr(call.func, "__name__", "__call__")
    if isinstance(owner, Kernel):
        return method == "dispatch"
    return isinstance(owner, (Function, BoundMethod)) and (owner is call.func or method in ("__call__", "call"))
