"""Writes ``__noinline__`` into CUDA text, which Slang 2026.12 leaves out of ``[noinline]`` functions.

Only functions of ``shaders/`` get it, whose names have ``_spy_`` and end with ``Apart``. In a text with such
functions all others get ``__forceinline__``: in a function that is called NVRTC does not know that a wave's lanes are
together, and lets each instruction of the wave wait for them. Nothing is compiled here.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.emitted import prelude_end

_APART = re.compile(rb"^__device__ (?=[\w <>,*]+ \*?\w*_spy_\w+Apart_\d+\()", re.M)
_OTHER = re.compile(rb"^__device__ (?!__(?:no|force)inline__)(?=[\w <>,*]+\()", re.M)


def with_calls(code: bytes) -> bytes:
    """Return CUDA text whose functions apart are called, instead of being copied into each place that calls them."""
    end = prelude_end(code, "cuda")
    body, found = _APART.subn(b"__device__ __noinline__ ", code[end:])
    return code[:end] + (_OTHER.sub(b"__device__ __forceinline__ ", body) if found else body)


CUDA_CALLS = Correction(
    name="noinline in CUDA",
    why="Slang drops [noinline], so that NVRTC copies large functions into each place that calls them.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=lambda code, emission: with_calls(code),
    canary=Canary(
        text="""
[noinline] float _spy_sumApart(float x) { return x * x + 1; }
void canary(uniform float *p) { p[0] = _spy_sumApart(p[1]) + _spy_sumApart(p[2]); }
""",
        wrong=rb"(?m)^__device__ float \w*_spy_sumApart_0\(",
        right=rb"(?m)^(?=.*noinline).*_spy_sumApart_0\(float \w+\)\n",
    ),
)
