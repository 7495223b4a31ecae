"""Makes a CUDA context current to a thread, and restores the one before.

For PyTorch and other libraries the thread's current context selects the GPU, so a call for another GPU must not
change it. On a machine with one GPU there is only one primary context, and ``keep_current`` and ``restoring`` are not
used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver


def keep_current(owner: Any, context: int, methods: Iterable[str]) -> None:
    """Wrap methods of an object that make ``context`` current, so that they restore the previous context."""
    for name in methods:
        setattr(owner, name, restoring(getattr(owner, name), context))


def restoring(function: Callable[..., Any], context: int) -> Callable[..., Any]:
    """Wrap a function that makes ``context`` current, so that it restores the previous context."""
    current, make_current, new = driver().cuCtxGetCurrent, driver().cuCtxSetCurrent, FFI_CUDA.new

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        found = new("uintptr_t *")
        current(found)
        before = found[0]
        if before == context:
            return function(*args, **named)
        try:
            return function(*args, **named)
        finally:
            make_current(before)

    return call


def enter(context: int) -> None:
    """Make a context current; other libraries may have changed it since the last call."""
    check(driver().cuCtxSetCurrent(context), "entering the context")


def current() -> int:
    """Return the thread's current context; 0 if there is none, or if the driver fails, as in a forked process."""
    found = FFI_CUDA.new("uintptr_t *")
    return 0 if driver().cuCtxGetCurrent(found) else int(found[0])


def leave(device: int, context: int) -> None:
    """Make no context current if ``context`` is current and was destroyed.

    The primary context is not destroyed, and stays current, while other libraries retain it.
    """
    cu = driver()
    if current() == context:
        flags, active = FFI_CUDA.new("unsigned int *"), FFI_CUDA.new("int *")
        if cu.cuDevicePrimaryCtxGetState(device, flags, active) or not active[0]:
            cu.cuCtxSetCurrent(0)
