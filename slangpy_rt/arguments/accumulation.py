"""How threads add to a gradient: the rule, and what the exact sums of a deterministic device take.

Strides and sizes in, a name out; no argument is looked at here.
"""

from __future__ import annotations

from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.shapes import Shape

# Words of an exact sum, as in shaders/exact.slang.
EXACT_WORDS = {"half": 12, "float": 12, "double": 69}


def spacing(scalar: str) -> int:
    """How many scalars the sum of a scalar takes on a deterministic device."""
    return EXACT_WORDS[scalar] * 8 // NUMPY_OF[scalar].itemsize


def adding(strides: Shape, shape: Shape, count: int, aliased: bool) -> str:
    """How threads add to a gradient: each to places of its own, all to one, or several to some."""
    moving = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    if moving and not any(s for s, _ in moving):
        return "sum"
    extent = count
    for s, n in moving:
        # Elements that begin before the ones inside end may overlap.
        if aliased or s < extent:
            return "scatter"
        extent += s * (n - 1)
    return "scatter" if aliased else "accumulate"
