"""How threads add to a gradient: the rule, and the size of the sums that are kept in place of its scalars.

The functions compute from strides and sizes; they read no arguments of a call.
"""

from __future__ import annotations

from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.shapes import Shape

# 64-bit words of an exact sum, as in shaders/exact.slang.
EXACT_WORDS = {"half": 12, "float": 12, "double": 69}


def spacing(scalar: str, deterministic: bool) -> int:
    """Return how many scalars of its type the sum of one scalar takes: an exact one, a float for half, or itself."""
    if deterministic:
        return EXACT_WORDS[scalar] * 8 // NUMPY_OF[scalar].itemsize
    return 2 if scalar == "half" else 1


def adding(strides: Shape, shape: Shape, count: int, aliased: bool) -> str:
    """Return how threads add to a gradient.

    It is ``"accumulate"`` if each thread adds to places of its own, ``"sum"`` if all threads add to one place, and
    ``"scatter"`` if several threads may add to one place.
    """
    moving = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    if moving and not any(s for s, _ in moving):
        return "sum"
    extent = count
    for s, n in moving:
        # With a stride shorter than the span of the inner dimensions, two elements may lie in one place.
        if aliased or s < extent:
            return "scatter"
        extent += s * (n - 1)
    return "scatter" if aliased else "accumulate"
