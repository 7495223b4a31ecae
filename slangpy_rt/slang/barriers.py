"""Tells whether user code may wait for other threads of its group. Waits of our own functions are not looked for."""

from __future__ import annotations

import re

# Functions of Slang, HLSL and GLSL, instructions of SPIR-V, and CUDA and PTX in strings.
_WAITS = re.compile(r"MemoryBarrier|WithGroupSync|ControlBarrier|__syncthreads|\bbar(?:rier)?(?:\.|\s*\()")


def waits_in(text: str) -> bool:
    """Return whether a text has the name of a barrier, be it in a comment."""
    return _WAITS.search(text) is not None
