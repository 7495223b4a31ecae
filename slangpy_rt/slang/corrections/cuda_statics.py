"""Initializes static variables with zeros in CUDA text, which Slang leaves undefined."""

from __future__ import annotations

import re

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction


def zeroed(code: bytes) -> bytes:
    """Return CUDA code in which static variables, members of a struct KernelContext, are initialized with zeros.

    ``KernelContext_0 kernelContext_0;`` becomes ``KernelContext_0 kernelContext_0 = {};``.
    """
    if b"KernelContext_" not in code:
        return code
    return re.sub(rb"^( +KernelContext_\d+ kernelContext_\d+);$", rb"\1 = {};", code, flags=re.M)


CUDA_STATICS = Correction(
    name="static variables in CUDA",
    why="Static variables without an initial value are undefined instead of zero.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=lambda code, emission: zeroed(code),
    canary=Canary(
        text="""
static float total;
void add(float x) { total += x; }
void canary(uniform float *p) { add(p[1]); add(p[2]); p[0] = total; }
""",
        wrong=rb"(?m)^ +KernelContext_\d+ \w+;$",
        right=rb"(?m)^ +KernelContext_\d+ \w+ = \{\s*(?:0[.0f]*)?\s*\};$",
    ),
)
