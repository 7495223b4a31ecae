"""Whether strided arrays share bytes, against NumPy's exact answer and against sets of bytes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from slangpy_rt.core.overlap import Walk, crosses, lands, overlap, repeats, window

_STEPS = (0, 1, 2, 3, 4, 5, 8, 12, 16, 20, -4, -8, -12)


def touched(walk: Walk, shape: tuple[int, ...], start: int) -> list[set[int]]:
    """The bytes of each element of a call."""
    out = []
    for index in itertools.product(*map(range, shape)):
        first = start + sum(k * step for k, step in zip(index, walk.steps, strict=True))
        items = itertools.product(*[[k * step for k in range(n)] for n, step in walk.inner])
        out.append({first + sum(item) + b for item in items for b in range(walk.nbytes)})
    return out


def drawn(rng: random.Random, rank: int) -> Walk:
    """Any walk of a call of that rank."""
    inner = tuple((rng.randint(1, 3), rng.choice((4, 8, -4, 20))) for _ in range(rng.choice((0, 0, 1))))
    return Walk(tuple(rng.choice(_STEPS) for _ in range(rank)), inner, rng.choice((1, 2, 4, 12)))


@pytest.mark.parametrize("seed", range(3))
def test_small_arrays(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
        a, offset = drawn(rng, len(shape)), rng.randint(-40, 40)
        b = drawn(rng, len(shape)) if rng.random() < 0.5 else Walk(a.steps, (), rng.choice((a.nbytes, 1, 4)))
        ours, theirs = touched(a, shape, offset), touched(b, shape, 0)
        shared = any(x & y for x in ours for y in theirs)
        crossing = any(x & y for i, x in enumerate(ours) for j, y in enumerate(theirs) if i != j)
        assert overlap(a, b, shape, offset) == shared
        found = crosses(a, b, shape, offset)
        assert found == crossing if a.steps == b.steps else found >= crossing
        low, high = window(a, b, shape)
        assert not shared or low < offset < high
        own = touched(a, shape, 0)
        assert repeats(a, shape) == any(x & y for x, y in itertools.combinations(own, 2))


@pytest.mark.parametrize("seed", range(3))
def test_large_arrays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = np.zeros(1 << 20, np.uint8)
    for _ in range(200):
        shape = tuple(int(n) for n in rng.integers(1, 60, rng.integers(1, 4)))
        views, walks = [], []
        for _ in range(2):
            steps = tuple(int(s) for s in rng.integers(-700, 700, len(shape)) * rng.choice([1, 4, 12]) % 5000)
            start = int(rng.integers(0, 3000))
            views.append(np.lib.stride_tricks.as_strided(base[start:].view("u1"), shape, steps))
            walks.append((start, Walk(steps, (), 1)))
        (start_a, a), (start_b, b) = walks
        assert overlap(a, b, shape, start_a - start_b) == np.shares_memory(*views)


def test_without_elements() -> None:
    empty, full = Walk((0, 4), (), 4), Walk((0, 4), (), 4)
    assert not overlap(empty, full, (0, 3), 0)
    assert not repeats(empty, (0, 3))


def test_a_search_that_takes_too_long_counts_as_an_overlap() -> None:
    # 2^14 sums among 2^50 numbers: the search tries them all, and finds none. 2^40 are too many to try.
    rng = random.Random(0)
    for dims, found in ((14, False), (40, True)):
        terms = [(rng.randrange(1 << 49, 1 << 50), 0, 1) for _ in range(dims)]
        middle = sum(coefficient for coefficient, _, _ in terms) // 2
        assert lands(terms, middle, middle + 1) is found
