"""How threads add to a gradient: the rule, and what the exact sums of a deterministic device take.

Strides and sizes in, a name out; no argument is looked at here.
"""

from __future__ import annotations

from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.shapes import Shape

# Words of an exact sum, as in shaders/exact.slang.
EXACT_WORDS = {"half": 12, "float": 12, "double": 69}


def spacing(scalar: str) -> int:
    """Return how many scalars the exact sum of a scalar takes on a deterministic device."""
    return EXACT_WORDS[scalar] * 8 // NUMPY_OF[scalar].itemsize


def adding(strides: Shape, shape: Shape, count: int, aliased: bool) -> str:
    """Return how threads add to a gradient.

    ``"accumulate"`` if each adds to places of its own, ``"sum"`` if all add to one, ``"scatter"`` if some may meet.
    """
    moving = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    if moving and not any(s for s, _ in moving):
        return "sum"
    extent = count
    for s, n in moving:
        # A step shorter than what the inner dimensions span may meet them.
        if aliased or s < extent:
            return "scatter"
        extent += s * (n - 1)
    return "scatter" if aliased else "accumulate"
