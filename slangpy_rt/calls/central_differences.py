"""Central differences of functions in low precision: steps, extrapolation, and how far a difference can be trusted.

Functions here take and return NumPy arrays; none of them calls a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Each step is four times the one before; the smallest is 2 ** first. Differences of floats keep two digits at
# 2 ** -14, where half a period of sin(x) at x = 10,000 lies between both sides.
_RATIO = 4.0
_FIRST = {"half": -6, "bfloat16": -6, "float": -14, "double": -24}
_COUNT = {"half": 3, "bfloat16": 3, "float": 6, "double": 7}
# An argument moves by its own size, or by this share of the mean size where it is smaller.
_LEAST = 0.125


class Directions(NamedTuple):
    """A direction of an argument, and steps along it that add up without rounding.

    Attributes
    ----------
    direction : numpy.ndarray
        As float64; numbers of the argument's own type hold it exactly.
    steps : tuple of float
        The smallest first.
    """

    direction: Array
    steps: tuple[float, ...]


class Slopes(NamedTuple):
    """Derivatives by differences, and for each the estimate of its error."""

    slope: Array
    error: Array


def directions(values: Array, scalar: str, random: np.random.Generator) -> Directions:
    """Return a random direction of an argument whose numbers are of a Slang scalar.

    ``values + step * direction`` is exact for each step, and for its negative.
    """
    steps = tuple([_RATIO**k * 2.0 ** _FIRST[scalar] for k in range(_COUNT[scalar])])
    values = np.asarray(values, np.float64)
    sizes = np.where(np.isfinite(values), np.abs(values), 0)
    mean = sizes.mean() if sizes.size else 0.0
    scale = np.maximum(sizes, _LEAST * mean if mean > 0 else 1.0)
    signs = random.integers(0, 2, values.shape) * 2 - 1
    moves = scale * random.uniform(0.5, 1, values.shape) * signs
    # The spacing of numbers around the farthest point is a multiple of that around all others.
    unit = spacing(sizes + steps[-1] * np.abs(moves), scalar)
    return Directions(np.round(steps[0] * moves / unit) * unit / steps[0], steps)


def spacing(sizes: Array, scalar: str) -> Array:
    """Return the distance of neighboring numbers of a Slang scalar, at numbers of these sizes."""
    bits, least = {"half": (10, -14), "bfloat16": (7, -126), "float": (23, -126), "double": (52, -1022)}[scalar]
    exponents = np.frexp(sizes)[1] - 1
    # By the next power of two, because a sum may reach it.
    return np.asarray(np.ldexp(1.0, np.maximum(exponents + 1, least) - bits))


def slopes(
    steps: Sequence[float], ahead: Sequence[Array], behind: Sequence[Array], here: Array, noise: Array
) -> Slopes:
    """Return derivatives from values at both sides, extrapolated to a step of 0, and their errors.

    Parameters
    ----------
    steps : sequence of float
        The smallest first, each four times the one before.
    ahead, behind : sequence of numpy.ndarray
        For each step the values, as float64.
    here : numpy.ndarray
        The values at the point itself.
    noise : numpy.ndarray
        What rounding may change of a value.

    Returns
    -------
    Slopes
        Of the entries of three steps and more in Neville's scheme the one with the least error. Errors are sums of
        the change from the two entries before it, as Ridders took it; the noise; the kink, which is how much the
        differences ahead and behind differ at the limit; and what the noise does not explain of the differences at
        smaller steps. Infinite where no entry is finite.
    """
    with np.errstate(all="ignore"):
        plain = [(a - b) / (2 * h) for h, a, b in zip(steps, ahead, behind, strict=True)]
        rounding = [noise / h for h in steps]
        bends = [(a + b - 2 * here) / h for h, a, b in zip(steps, ahead, behind, strict=True)]
        # Of a smooth function they shrink with the step.
        kinks = [np.abs(_RATIO * fine - coarse) / (_RATIO - 1) for fine, coarse in pairwise(bends)]
        best = np.full(here.shape, np.nan)
        least = np.full(here.shape, np.inf)
        row, power = plain, 1.0
        while len(row) > 1:
            power *= _RATIO**2
            new = [(power * fine - coarse) / (power - 1) for fine, coarse in pairwise(row)]
            # Two differences of a function that oscillates faster than the steps may agree by chance.
            for k, value in enumerate(new if len(row) < len(plain) else ()):
                error = np.maximum(np.abs(value - row[k]), np.abs(value - row[k + 1])) + rounding[k] + kinks[k]
                for finer, unsure in zip(plain[:k], rounding[:k], strict=True):
                    error = error + np.maximum(np.abs(value - finer) - 2 * unsure, 0)
                better = error < least
                best, least = np.where(better, value, best), np.where(better, error, least)
            row = new
    return Slopes(best, least)
