"""Whether elements of a call share bytes of two arrays, by shapes, byte strides and an offset alone.

The question whether two strided arrays share a byte is whether a sum of strides, each taken a bounded number of
times, lands in an interval: a bounded Diophantine problem, as ``numpy.shares_memory`` solves it. The answer is
exact up to ``_MOST`` steps; beyond, the arrays count as overlapping. Nothing here knows devices, buffers or Slang.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from slangpy_rt.core.shapes import Shape

# A term ``coefficient * k`` of the sum: its coefficient, and the least and the greatest k.
Term = tuple[int, int, int]

# Steps of one search, about 20 ms. Arrays of up to three dimensions, as NumPy makes them, take less than 100.
_MOST = 20_000


@dataclass(frozen=True)
class Walk:
    """The bytes of one array that the elements of a call touch.

    Attributes
    ----------
    steps : tuple of int
        Bytes from one element of the call to the next, one for each dimension of the call.
    inner : tuple of (int, int)
        Size and byte stride of further dimensions, all of which belong to each element of the call.
    nbytes : int
        Bytes of one item.
    """

    steps: Shape
    inner: tuple[tuple[int, int], ...]
    nbytes: int

    def span(self, shape: Shape) -> tuple[int, int]:
        """Return the offsets of the first byte and of the byte behind the last, from the first item."""
        low = high = 0
        for n, step in (*zip(shape, self.steps, strict=True), *self.inner):
            if step < 0:
                low += (n - 1) * step
            else:
                high += (n - 1) * step
        return low, high + self.nbytes


def window(a: Walk, b: Walk, shape: Shape) -> tuple[int, int]:
    """Return the differences of addresses, both excluded, between which the spans of two arrays of a call overlap."""
    (low_a, high_a), (low_b, high_b) = a.span(shape), b.span(shape)
    return low_b - high_a, high_b - low_a


def overlap(a: Walk, b: Walk, shape: Shape, offset: int) -> bool:
    """Tell whether the call touches a byte of both arrays; ``offset`` is how many bytes ``a`` begins after ``b``."""
    terms = [(step, 0, n - 1) for n, step in (*zip(shape, a.steps, strict=True), *a.inner)]
    terms += [(-step, 0, n - 1) for n, step in (*zip(shape, b.steps, strict=True), *b.inner)]
    return lands(terms, 1 - a.nbytes - offset, b.nbytes - 1 - offset)


def crosses(a: Walk, b: Walk, shape: Shape, offset: int) -> bool:
    """Tell whether an element of the call touches a byte of ``a`` that another element touches of ``b``.

    Exact where both arrays have the same strides; for others the answer is that of ``overlap``.
    """
    if not offset and a == b and _nests(a, shape):
        return False
    sizes = [(d, n) for d, n in enumerate(shape) if n != 1]
    if not sizes:
        return False
    steps = [(a.steps[d], n) for d, n in sizes]
    if steps != [(b.steps[d], n) for d, n in sizes]:
        return overlap(a, b, shape, offset)
    inner = [(step, 0, n - 1) for n, step in a.inner] + [(-step, 0, n - 1) for n, step in b.inner]
    interval = 1 - a.nbytes - offset, b.nbytes - 1 - offset
    # How far apart the two elements are: the first dimension in which they differ, one way or the other.
    for k, (step, n) in enumerate(steps):
        rest = [(s, 1 - m, m - 1) for s, m in steps[k + 1 :]]
        for first in ((step, 1, n - 1), (step, 1 - n, -1)):
            if lands([first, *rest, *inner], *interval):
                return True
    return False


def repeats(walk: Walk, shape: Shape) -> bool:
    """Tell whether two elements of the call touch one byte of the array."""
    return crosses(walk, walk, shape, 0)


def _nests(walk: Walk, shape: Shape) -> bool:
    """Tell whether each stride is at least the reach of all shorter ones: then no two elements share a byte.

    The answer is False for a walk with inner dimensions, which are not looked at.
    """
    extent = walk.nbytes
    for step, n in sorted([(abs(step), n) for step, n in zip(walk.steps, shape, strict=True) if n > 1]):
        if step < extent:
            return False
        extent += step * (n - 1)
    return not walk.inner


def lands(terms: Iterable[Term], low: int, high: int) -> bool:
    """Tell whether some sum of the terms is from ``low`` to ``high``; True also if finding out takes too long."""
    most: dict[int, int] = {}
    for coefficient, least, greatest in terms:
        if least > greatest:
            return False
        # Terms are rewritten so that each coefficient is positive and its least k is 0.
        start = coefficient * (least if coefficient > 0 else greatest)
        low, high = low - start, high - start
        if coefficient and greatest > least:
            most[abs(coefficient)] = most.get(abs(coefficient), 0) + greatest - least
    return _search(sorted(most.items(), reverse=True), low, high)


def _search(terms: Sequence[tuple[int, int]], low: int, high: int) -> bool:
    """Do the search of ``lands`` for positive coefficients, the largest first, each taken 0 times to so many."""
    # For each term and those behind it: the greatest sum, and the greatest common divisor of all sums.
    reach, common = [0], [0]
    for coefficient, most in reversed(terms):
        reach.append(reach[-1] + coefficient * most)
        common.append(gcd(common[-1], coefficient))
    reach.reverse()
    common.reverse()
    work = [(0, low, high)]
    for _ in range(_MOST):
        if not work:
            return False
        k, low, high = work.pop()
        low, high = max(low, 0), min(high, reach[k])
        if low > high or (k < len(terms) and high // common[k] * common[k] < low):
            continue
        if low == 0 or k == len(terms) or high == reach[k]:
            return True
        coefficient, most = terms[k]
        first = max(0, -(-(low - reach[k + 1]) // coefficient))
        last = min(most, high // coefficient)
        if last - first >= _MOST:
            return True
        work += [(k + 1, low - coefficient * n, high - coefficient * n) for n in range(first, last + 1)]
    return True
