"""Central differences of functions in low precision: steps, extrapolation and error estimates.

All functions take and return NumPy arrays; no kernel is called.
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
# Elements move in proportion to their magnitude, but at least to this share of the mean magnitude.
_LEAST = 0.125


class Directions(NamedTuple):
    """A direction of an argument, and steps along it whose sums are exact.

    Attributes
    ----------
    direction : numpy.ndarray
        As float64; exact in the argument's own type.
    steps : tuple of float
        The smallest first.
    """

    direction: Array
    steps: tuple[float, ...]


class Slopes(NamedTuple):
    """Derivatives by central differences, and estimates of their errors."""

    slope: Array
    error: Array


def directions(values: Array, scalar: str, random: np.random.Generator) -> Directions:
    """Return a random direction for an argument with a Slang scalar type.

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
    """Return the spacing of a floating-point type at these magnitudes."""
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
        The function's values at each step, as float64.
    here : numpy.ndarray
        The values at the point itself.
    noise : numpy.ndarray
        The absolute rounding errors of the values.

    Returns
    -------
    Slopes
        The entry of Neville's scheme with the smallest error, among entries that use at least three steps. The error
        of an entry is a sum of four terms: its change from the two entries before it (Ridders' estimate), the noise,
        the extrapolated difference between the one-sided differences, which is large at a kink, and the part of its
        deviation from the differences at smaller steps that their noise does not explain. It is infinite where no
        entry is finite.
    """
    with np.errstate(all="ignore"):
        plain = [(a - b) / (2 * h) for h, a, b in zip(steps, ahead, behind, strict=True)]
        rounding = [noise / h for h in steps]
        bends = [(a + b - 2 * here) / h for h, a, b in zip(steps, ahead, behind, strict=True)]
        # For a smooth function they decrease with the step.
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
