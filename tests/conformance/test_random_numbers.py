"""Random numbers as arguments: against NumPy models of their definitions, and those of SlangPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _generators import SEEDS, floats, hashes, module, ramp
from hypothesis import example, given, settings
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.arguments.computed import Generator
from tests.depth import needs, one_in, sampled

__all__ = ["module"]  # the fixture


# Random numbers.

# What SlangPy 0.43.1 prints on Vulkan for the first two elements.
SLANGPY: list[tuple[str, Generator, list[Any]]] = [
    ("one_u", spy.wang_hash(), [3515661851, 3898497923]),
    ("one_u", spy.wang_hash(seed=7), [62190945, 3974322696]),
    ("one_u", spy.wang_hash(seed=7, hash_seed=False), [851741419, 1902946834]),
    ("one_u", spy.wang_hash(seed=7, warmup=2), [732612764, 2006608609]),
    ("one", spy.wang_hash(seed=9), [-1790049721, 785562081]),
    ("three", spy.wang_hash(seed=9), [[-1790049721, 811039371, -1277583142], [-738777684, None, None]]),
    ("three_u", spy.wang_hash(seed=7, warmup=3), [[1144137705, 730072531, 3467746093], [1965828534, None, None]]),
    ("one_f", spy.rand_float(), [0.09955156, 0.7371677]),
    ("one_f", spy.rand_float(-1, 1, seed=5), [0.32425332, 0.1990304]),
    ("one_u", spy.thread_id(), [0, 1]),
]


@sampled(4)
@pytest.mark.parametrize(("name", "generator", "expected"), SLANGPY, ids=[f"{n}-{g!r}" for n, g, _ in SLANGPY])
def test_the_numbers_are_those_of_slangpy(
    module: spy.Module, name: str, generator: Generator, expected: list[Any]
) -> None:
    first = np.asarray(expected[0])
    dtype = np.float32 if name.endswith("_f") else np.int32 if name in ("one", "three") else np.uint32
    into = np.zeros((2, *first.shape), dtype)
    getattr(module, name)(generator, _result=into)
    for got, wanted in zip(into.ravel(), np.asarray(expected, object).ravel(), strict=True):
        assert wanted is None or got == dtype(wanted)


@sampled(33)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("warmup", "hash_seed"), [(0, True), (3, True), (0, False), (2, False)])
def test_wang_hash(module: spy.Module, seed: int, warmup: int, hash_seed: bool) -> None:
    shape = (3, 171)
    for name, n in [("one_u", 1), ("two_u", 2), ("three_u", 3), ("four_u", 4), ("array5", 5)]:
        into = np.zeros(shape if n == 1 else (*shape, n), np.uint32)
        module[name](spy.wang_hash(seed=seed, warmup=warmup, hash_seed=hash_seed), _result=into)
        np.testing.assert_array_equal(into, hashes(shape, n, seed, warmup, hash_seed))
    into = np.zeros((*shape, 3), np.int32)
    module.three(spy.wang_hash(3, seed, warmup, hash_seed), _result=into)
    np.testing.assert_array_equal(into.view(np.uint32), hashes(shape, 3, seed, warmup, hash_seed))


@sampled(26)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("warmup", "hash_seed"), [(0, True), (3, True), (2, False)])
@pytest.mark.parametrize(
    "bounds", one_in(3, [(0, 1), (-1, 1), (-3, 4.7), (-2e38, 1e38), (1e6, 1e6 + 1), (5, -5)]), ids=str
)
def test_rand_float(module: spy.Module, seed: int, warmup: int, hash_seed: bool, bounds: tuple[float, float]) -> None:
    low, high = min(bounds), max(bounds)
    shape = (3, 171)
    for name, n in [("one_f", 1), ("two_f", 2), ("three_f", 3), ("array5_f", 5)]:
        into = np.full(shape if n == 1 else (*shape, n), np.nan, np.float32)
        module[name](spy.rand_float(low, high, seed=seed, warmup=warmup, hash_seed=hash_seed), _result=into)
        assert (into >= np.float32(low)).all() and (into < np.float32(high)).all()
        model = floats(hashes(shape, n, seed, warmup, hash_seed), low, high)
        np.testing.assert_array_max_ulp(into, model, 1)
        # Fused or not, every device rounds alike; only the last float below max may be left out.
        assert ((into == model) | (model == np.nextafter(np.float32(high), np.float32(low)))).all()


def test_a_single_element(module: spy.Module) -> None:
    assert module.one_u(spy.wang_hash(seed=3)) == hashes((1,), 1, 3)[0]
    assert module.one_f(spy.rand_float(2, 3)) == floats(hashes((1,), 1), 2, 3)[0]
    assert module.one_u(spy.thread_id()) == 0
    assert module.one(spy.grid(1, 7)).to_numpy() == [7]


def test_rand_float_fills_its_interval(module: spy.Module) -> None:
    into = np.zeros(100_000, np.float32)
    module.one_f(spy.rand_float(2, 6, seed=3), _result=into)
    counts, _ = np.histogram(into, 20, (2, 6))
    # 5000 each; 350 is five standard deviations.
    assert counts.sum() == into.size and (abs(counts - 5000) < 350).all()


@needs("double")
def test_rand_float_as_doubles(module: spy.Module) -> None:
    into = np.zeros(99)
    module.one_d(spy.rand_float(seed=3), _result=into)
    np.testing.assert_array_equal(into, floats(hashes((99,), 1, 3), 0, 1).astype(np.float64))


def test_random_numbers_follow_the_elements_number_alone(module: spy.Module) -> None:
    expected = hashes((5, 6, 4), 1, 11)
    for a in (ramp(5, 6, 4), ramp(4, 6, 5).T, ramp(5, 12, 4)[:, ::-2], np.float32(3), ramp(6, 1)):
        a = np.broadcast_to(a, (5, 6, 4))
        np.testing.assert_array_equal(module.beside(spy.wang_hash(seed=11), a), expected + a.astype(np.uint32))
    flat = module.beside(spy.wang_hash(seed=11), ramp(120))
    np.testing.assert_array_equal(flat, expected.ravel() + np.arange(120, dtype=np.uint32))


# What is refused, before any device sees it; messages of calls are in tests/errors.

NO_RANGE = "are no range of 32-bit floats; min is less than max, and max - min at most 3.402823e+38."


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, -2.0), (-3e38, 3e38), (1.0, 1.0 + 2**-30)])
def test_intervals_without_floats_are_refused(low: float, high: float) -> None:
    with pytest.raises(spy.BindError) as refusal:
        spy.rand_float(low, high)
    low, high = float(np.float32(low)), float(np.float32(high))
    assert str(refusal.value) == f"rand_float: min {low!r} and max {high!r} {NO_RANGE}"


@given(
    st.floats(width=32, min_value=-(2.0**126), max_value=2.0**126),
    st.floats(min_value=2**-30, max_value=2),
    st.integers(0, 2**23 - 1),
)
@settings(max_examples=1000, deadline=None)
@example(-1.0, 2.0, 2**23 - 1)
@example(1.0, 2**-23, 2**23 - 1)
@example(0.0, 1.0, 2**23 - 1)
def test_rounding_never_reaches_max(low: float, width: float, bits: int) -> None:
    f4 = np.float32
    high = float(f4(low + max(abs(low), 1e-30) * width))
    if low == high:
        return
    first, wide, most = (f4(v) for v in spy.rand_float(low, high).values()[1:])
    value = first + np.minimum(f4(bits) / f4(2**23) * wide, most)
    assert low <= value < high
    np.testing.assert_array_max_ulp(value, floats(np.uint32(bits), low, high), 1)


def test_sums_that_round_to_max() -> None:
    """Intervals around 0 whose width rounds up by more than a unit of max: the largest sum is still below max."""
    f4, rng = np.float32, np.random.default_rng(0)
    pairs = [(-0.14896454, 0.2688982), (-0.12638354, 0.018613335), (-0.0050706007, 0.0032951972)]
    for _ in range(3000):
        low = float(f4(rng.normal() * 10.0 ** rng.integers(-3, 4)))
        pairs.append((low, low + abs(rng.normal()) * 10.0 ** rng.integers(-4, 4)))
    for low, high in pairs:
        if f4(low) < f4(high):
            first, wide, most = (f4(v) for v in spy.rand_float(low, high).values()[1:])
            assert first == f4(low) and first + most < f4(high)
            assert first + wide * f4(1 - 2.0**-23) < f4(high) or most < wide
