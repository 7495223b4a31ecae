"""Writes ``__noinline__`` into CUDA text, which Slang 2026.12 leaves out of ``[noinline]`` functions.

Only functions of ``shaders/`` get it, whose names have ``_spy_`` and end with ``Apart``. Nothing is compiled here.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.emitted import prelude_end

_APART = re.compile(rb"^__device__ (?=[\w <>,*]+ \*?\w*_spy_\w+Apart_\d+\()", re.M)


def with_calls(code: bytes) -> bytes:
    """Return CUDA text whose functions apart are called, instead of being copied into each place that calls them."""
    end = prelude_end(code, "cuda")
    return code[:end] + _APART.sub(b"__device__ __noinline__ ", code[end:])
