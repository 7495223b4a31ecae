"""Which CUDA context is current to a thread, on a machine with several GPUs.

PyTorch and others take the current context for the current GPU. A call for another one must not change it. On a
machine with one GPU there is but one primary context, and nothing here is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from slangpy_rt.backends.cuda.driver import FFI_CUDA, driver


def keep_current(owner: Any, context: int, methods: Iterable[str]) -> None:
    """Have methods of an object, which make ``context`` current, make current again what was so before."""
    for name in methods:
        setattr(owner, name, restoring(getattr(owner, name), context))


def restoring(function: Callable[..., Any], context: int) -> Callable[..., Any]:
    """A function that makes ``context`` current, and afterwards what was so before."""
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
