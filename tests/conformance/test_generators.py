"""Arguments without data: indices, ranges and random numbers, against NumPy models of their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.arguments.computed import Generator
from tests.depth import one_device, one_in, sampled

SLANG = """
struct Sample { int place; float2 noise; float weight; };

int one(int x) { return x; }
uint one_u(uint x) { return x; }
int64_t one_wide(int64_t x) { return x; }
float one_f(float x) { return x; }
double one_d(double x) { return x; }
int2 two(int2 x) { return x; }
uint2 two_u(uint2 x) { return x; }
float2 two_f(float2 x) { return x; }
int3 three(int3 x) { return x; }
uint3 three_u(uint3 x) { return x; }
float3 three_f(float3 x) { return x; }
uint4 four_u(uint4 x) { return x; }
int[1] array1(int x[1]) { return x; }
int[2] array2(int x[2]) { return x; }
int[3] array3(int x[3]) { return x; }
uint[5] array5(uint x[5]) { return x; }
float[5] array5_f(float x[5]) { return x; }
float sum(int x, float a) { return x + a; }
float sum2(int2 p, float a) { return 1000 * p.x + 100 * p.y + a; }
float sum3(int3 p, float a) { return 1000 * p.x + 100 * p.y + 10 * p.z + a; }
uint beside(uint x, float a) { return x + uint(a); }
float beside_f(float x, float a) { return x + a; }
float apart(uint x, float x_0) { return x_0 - x; }
float pairs(int x, int y) { return 100 * x + y; }
float at_place(Sample s) { return 10 * s.place + s.weight; }
float2 noise(Sample s) { return s.noise; }
int kind(int x) { return 1; }
int kind(float x) { return 2; }
uint wangHash(uint x) { return x + 1; }
uint scramble(uint x) { return x + 2; }
"""
Array = npt.NDArray[Any]
SEEDS = [0, 1, 7, 2640457667, 2**32 - 1]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_generators", SLANG)


def ramp(*shape: int) -> Array:
    """Every element another number."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def wang(seed: Any) -> Any:
    """Thomas Wang's 32-bit integer hash, with the multiplication by 9 as he wrote it."""
    with np.errstate(over="ignore"):
        x = np.asarray(seed, np.uint32)
        x = (x ^ np.uint32(61)) ^ (x >> np.uint32(16))
        x = x + (x << np.uint32(3))
        x = x ^ (x >> np.uint32(4))
        x = x * np.uint32(0x27D4EB2D)
        return x ^ (x >> np.uint32(15))


def hashes(shape: tuple[int, ...], n: int, seed: int = 2640457667, warmup: int = 0, hash_seed: bool = True) -> Array:
    """A chain of ``n`` hashes for each element, from its number times ``n``."""
    x = np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(n)
    for _ in range(warmup):
        x = wang(x)
    x = x ^ (wang(seed) if hash_seed else np.uint32(seed))
    out = []
    for _ in range(n):
        x = wang(x)
        out.append(x)
    return np.stack(out, -1).reshape(shape if n == 1 else (*shape, n))


def floats(bits: Any, low: float, high: float) -> Array:
    """The same numbers as floats in ``[low, high)``, every operation rounded to 32 bits."""
    f4 = np.float32
    u = (bits & np.uint32(0x7FFFFF)).astype(f4) / f4(2**23)
    value = f4(low) + (f4(high) - f4(low)) * u
    below: Array = np.minimum(value, np.nextafter(f4(high), f4(low)))
    return below


def index(shape: tuple[int, ...]) -> Array:
    """The index of each element, dimensions last and in NumPy's order."""
    return np.moveaxis(np.indices(shape), 0, -1)


# Ranges.


@sampled(3)
@pytest.mark.parametrize(
    "values",
    [
        range(5),
        range(0, 10, 3),
        range(3, 9, 3),
        range(10, 0, -3),
        range(-4, 5, 4),
        range(2, 3),
        range(2**31 - 3, 2**31),
    ],
    ids=str,
)
def test_a_range_has_the_numbers_that_python_counts(module: spy.Module, values: range) -> None:
    result = module.one(values)
    assert result.shape == (len(values),)
    np.testing.assert_array_equal(result.to_numpy(), list(values))
    np.testing.assert_array_equal(module.one_wide(values).to_numpy(), list(values))
    if min(values) >= 0:
        np.testing.assert_array_equal(module.one_u(values).to_numpy(), list(values))


@pytest.mark.parametrize("values", [range(0), range(5, 5), range(3, 9, -1), range(2**40, 0)], ids=str)
def test_an_empty_range_makes_an_empty_call(module: spy.Module, values: range) -> None:
    assert module.one(values).shape == (0,)


def test_a_range_runs_along_the_last_dimension(module: spy.Module) -> None:
    a = ramp(4, 6)
    np.testing.assert_array_equal(module.sum(range(20, 8, -2), a), a + np.arange(20, 8, -2))
    np.testing.assert_array_equal(module.sum(range(4), a.T[1:3, ::1]), a.T[1:3] + np.arange(4))
    np.testing.assert_array_equal(module.sum(range(6), a[:, :1]), a[:, :1] + np.arange(6))
    np.testing.assert_array_equal(module.sum(range(5, 6), a), a + 5)


# Indices.


@one_device
def test_a_grid_counts_from_its_offset_in_its_steps(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.one(spy.grid(4, 10, 3)).to_numpy(), [10, 13, 16, 19])
    np.testing.assert_array_equal(module.one(spy.grid((4,), (3,), (-2,))).to_numpy(), [3, 1, -1, -3])
    np.testing.assert_array_equal(module.array1(spy.grid(3, 5)).to_numpy(), [[5], [6], [7]])
    where = index((3, 5)) * (10, -1) + (100, 4)
    there = spy.grid((3, 5), offset=(100, 4), stride=(10, -1))
    np.testing.assert_array_equal(module.array2(there).to_numpy(), where)
    np.testing.assert_array_equal(module.two(there).to_numpy(), where[..., ::-1])
    np.testing.assert_array_equal(module.two_u(there).to_numpy(), where[..., ::-1])
    where = index((2, 3, 4)) * 2 + 7
    there = spy.grid((2, 3, 4), 7, 2)
    np.testing.assert_array_equal(module.array3(there).to_numpy(), where)
    np.testing.assert_array_equal(module.three(there).to_numpy(), where[..., ::-1])
    assert module.two(spy.grid((3, 0))).shape == (3, 0)


def test_a_grid_leaves_dimensions_to_others(module: spy.Module) -> None:
    a = ramp(5, 4).T
    y, x = np.indices((4, 5))
    for shape in [(-1, 5), (4, -1), (-1, -1)]:
        result = module.sum2(spy.grid(shape, offset=(5, 6), stride=(2, -3)), a)
        np.testing.assert_array_equal(result, 1000 * (6 - 3 * x) + 100 * (5 + 2 * y) + a)
    # Of more dimensions than the array, and of fewer.
    z, y, x = np.indices((2, 4, 5))
    np.testing.assert_array_equal(module.sum3(spy.grid((2, -1, -1)), a), 1000 * x + 100 * y + 10 * z + a)
    a = ramp(2, 8, 10)[:, ::2, ::-2]
    np.testing.assert_array_equal(module.sum2(spy.grid((4, 5)), a), 1000 * x + 100 * y + a)


@one_device
def test_call_id_counts_as_its_parameter_does(module: spy.Module) -> None:
    for shape, array, vector in [((7,), "array1", "one"), ((3, 5), "array2", "two"), ((2, 3, 4), "array3", "three")]:
        where, n = index(shape).astype(np.int32), len(shape)
        into = np.full((*shape, n), -1, np.int32)
        module[array](spy.call_id(), _result=into)
        np.testing.assert_array_equal(into, where)
        into = np.full(shape if n == 1 else (*shape, n), -1, np.int32)
        module[vector](spy.call_id(dims=n), _result=into)
        np.testing.assert_array_equal(into, where[..., 0] if n == 1 else where[..., ::-1])


def test_call_id_fills_one_component_more_with_zero(module: spy.Module) -> None:
    into = np.full((3, 5, 3), -1, np.int32)
    module.three(spy.call_id(), _result=into)
    np.testing.assert_array_equal(into[..., :2], index((3, 5))[..., ::-1])
    assert not into[..., 2].any()
    into = np.full((3, 5, 2), -1, np.int32)
    module.two(spy.call_id(), _result=into[0])
    np.testing.assert_array_equal(into[0], [[k, 0] for k in range(5)])
    assert (into[1:] == -1).all()


def test_thread_id_numbers_the_elements(module: spy.Module) -> None:
    a = ramp(6, 4, 5)[::2].transpose(2, 0, 1)
    number = np.arange(a.size, dtype=np.uint32).reshape(a.shape)
    np.testing.assert_array_equal(module.beside(spy.thread_id(), a), number + a.astype(np.uint32))
    into = np.full((3, 4), 99, np.uint32)
    module.one_u(spy.thread_id(1), _result=into)
    np.testing.assert_array_equal(into, np.arange(12).reshape(3, 4))
    into = np.full((3, 4, 3), 99, np.uint32)
    module.three_u(spy.thread_id(), _result=into)
    np.testing.assert_array_equal(into[..., 0], np.arange(12).reshape(3, 4))
    assert not into[..., 1:].any()


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


@sampled(6)
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


@sampled(7)
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


def test_rand_float_as_doubles(module: spy.Module, requires: Callable[..., None]) -> None:
    requires("double")
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


# Calls around them.


@sampled(3)
@pytest.mark.parametrize("size", [(64,), (4, 8), (2, 3, 4)])
def test_groups_change_nothing(module: spy.Module, size: tuple[int, ...]) -> None:
    a = ramp(5, 7, 9)
    number = np.arange(a.size, dtype=np.uint32).reshape(a.shape)
    z, y, x = np.indices(a.shape)
    places = module.sum3.group_size(size)(spy.call_id(), a)
    np.testing.assert_array_equal(places, 1000 * x + 100 * y + 10 * z + a)
    numbers = module.beside.group_size(size)
    np.testing.assert_array_equal(numbers(spy.thread_id(), a), number + a.astype(np.uint32))
    np.testing.assert_array_equal(numbers(spy.wang_hash(seed=5), a), hashes(a.shape, 1, 5) + a.astype(np.uint32))
    np.testing.assert_array_equal(module.sum.group_size(size)(range(9, 0, -1), a), a + np.arange(9, 0, -1))


@one_device
def test_map_says_where_they_run(module: spy.Module) -> None:
    rows, columns = range(3, 9, 2), range(5, 1, -1)
    table = module.pairs.map((0,), (1,))(rows, columns).to_numpy()
    np.testing.assert_array_equal(table, 100 * np.array(rows)[:, None] + np.array(columns))
    table = module.pairs.map((1,), (0,))(rows, columns).to_numpy()
    np.testing.assert_array_equal(table, 100 * np.array(rows) + np.array(columns)[:, None])
    a = ramp(3, 4)
    np.testing.assert_array_equal(module.sum.map((0,))(range(3), a), a + np.arange(3)[:, None])
    # The grid's first dimension is the call's last.
    y, x = np.indices((3, 4))
    there = spy.grid((4, 3), offset=(10, 20), stride=(1, 2))
    result = module.sum2.map((1, 0))(there, a)
    np.testing.assert_array_equal(result, 1000 * (20 + 2 * y) + 100 * (10 + x) + a)
    result = module.sum2.map(a=(1, 0))(spy.call_id(), a=a)
    np.testing.assert_array_equal(result, 1000 * index((4, 3))[..., 1] + 100 * index((4, 3))[..., 0] + a.T)
    result = module.beside.map(a=(1, 0))(spy.wang_hash(seed=4), a=a)
    np.testing.assert_array_equal(result, hashes((4, 3), 1, 4) + a.T.astype(np.uint32))


def test_fields_of_a_struct(module: spy.Module) -> None:
    sample = {"place": range(8, 0, -2), "noise": spy.rand_float(-1, 1, seed=2), "weight": ramp(3, 4)}
    np.testing.assert_array_equal(module.at_place(sample), ramp(3, 4) + 10 * np.arange(8, 0, -2))
    np.testing.assert_array_equal(module.noise(sample), floats(hashes((3, 4), 2, 2), -1, 1))


def test_several_in_one_call(module: spy.Module) -> None:
    y, x = np.indices((4, 6))
    result = module.pairs(range(6), spy.wang_hash(seed=1), _result=np.zeros((4, 6), np.float32))
    expected = 100 * x + hashes((4, 6), 1, 1).view(np.int32).astype(np.int64)
    np.testing.assert_array_equal(result, expected.astype(np.int32).astype(np.float32))
    result = module.pairs(spy.grid((6,), 3), spy.thread_id(), _result=np.zeros((4, 6), np.float32))
    np.testing.assert_array_equal(result, 100 * (x + 3) + 6 * y + x)


def test_functions_of_the_same_names(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.wangHash(spy.wang_hash(), _result=np.zeros(9, "u4")), hashes((9,), 1) + 1)
    np.testing.assert_array_equal(module.scramble(range(9)).to_numpy(), np.arange(9) + 2)


def test_a_parameter_named_like_a_generators_number(module: spy.Module) -> None:
    result = module.apart(spy.wang_hash(seed=1), np.zeros(5, np.float32))
    np.testing.assert_array_equal(result, -hashes((5,), 1, 1).astype(np.float32))


@one_device
def test_overloads_are_told_apart(module: spy.Module) -> None:
    for generator, expected in [
        (range(3), 1), (spy.grid(3), 1), (spy.call_id(), 1), (spy.thread_id(), 1), (spy.wang_hash(), 1),
        (spy.rand_float(), 2),
    ]:  # fmt: skip
        into = np.zeros(3, np.int32)
        module.kind(generator, _result=into)
        assert (into == expected).all()


def test_numbers_travel_without_another_kernel(module: spy.Module) -> None:
    for one, other in [
        (spy.wang_hash(seed=1), spy.wang_hash(seed=2, hash_seed=False)),
        (spy.rand_float(0, 1, seed=1), spy.rand_float(-7, 9, seed=2)),
        (spy.grid((2, 3), (1, 2), (3, 4)), spy.grid((2, 3), 5)),
        (range(4), range(10, 2, -2)),
    ]:
        name = {"wang_hash": "one", "rand_float": "one_f", "grid": "two", "range": "one"}[repr(one).partition("(")[0]]
        assert module[name].source(one) == module[name].source(other)
    keys = [spy.wang_hash(seed=1).key(), spy.wang_hash(seed=2).key(), spy.wang_hash(warmup=1).key()]
    assert keys[0] == keys[1] != keys[2]


# What is refused, before any device sees it; messages of calls are in tests/errors.


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: spy.call_id((2, 3)), "call_id: dims is a number, not (2, 3); grid((2, 3)) gives the call a shape."),  # type: ignore[arg-type]
    (lambda: spy.call_id(0), "call_id: dims is a whole number of at least 1, or -1, not 0."),
    (lambda: spy.thread_id(1.5), "thread_id: dims is a whole number of at least 1, or -1, not 1.5."),  # type: ignore[arg-type]
    (lambda: spy.grid((2, -2)), "grid: a shape is made of whole numbers of at least 0, or -1, not (2, -2)."),
    (lambda: spy.grid(()), "grid: a shape is made of whole numbers of at least 0, or -1, not ()."),
    (lambda: spy.grid(None), "grid: a shape is made of whole numbers of at least 0, or -1, not None."),  # type: ignore[arg-type]
    (lambda: spy.grid((2, 3), (1,)), "grid: offset (1,) has 1 numbers; the shape (2, 3) has 2."),
    (lambda: spy.grid(3, stride=0.5), "grid: stride is made of whole numbers that fit an 'int', not 0.5."),  # type: ignore[arg-type]
    (lambda: spy.grid(3, 2**31), "grid: offset is made of whole numbers that fit an 'int', not 2147483648."),
    (lambda: spy.wang_hash(dim=-3), "wang_hash: dim is a whole number of at least 1, or -1, not -3."),
    (lambda: spy.wang_hash(seed=-1), "wang_hash: seed is a whole number from 0 to 4294967295, not -1."),
    (lambda: spy.wang_hash(warmup=True), "wang_hash: warmup is a whole number from 0 to 4294967295, not True."),
    (lambda: spy.rand_float(seed=2**32), "rand_float: seed is a whole number from 0 to 4294967295, not 4294967296."),
    (lambda: spy.rand_float(min="a"), "rand_float: min is a number that a 32-bit float holds, not 'a'."),  # type: ignore[arg-type]
    (lambda: spy.rand_float(max=1e39), "rand_float: max is a number that a 32-bit float holds, not 1e+39."),
    (lambda: spy.rand_float(max=float("nan")), "rand_float: max is a number that a 32-bit float holds, not nan."),
]
NO_RANGE = "are no range of 32-bit floats; min is less than max, and max - min at most 3.402823e+38."


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(spy.BindError) as refusal:
        make()
    assert str(refusal.value) == message


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, -2.0), (-3e38, 3e38), (1.0, 1.0 + 2**-30)])
def test_intervals_without_floats_are_refused(low: float, high: float) -> None:
    with pytest.raises(spy.BindError) as refusal:
        spy.rand_float(low, high)
    low, high = float(np.float32(low)), float(np.float32(high))
    assert str(refusal.value) == f"rand_float: min {low!r} and max {high!r} {NO_RANGE}"


CALLS: dict[str, tuple[Callable[[spy.Module], Any], str]] = {
    "random integers for a float": (
        lambda m: m.one_f(spy.wang_hash(seed=3)),
        "float one_f(float x): argument 'x' is wang_hash(seed=3), which makes whole numbers; it takes an 'int', "
        "'int3' or 'int[4]' parameter, not 'float'.",
    ),
    "random floats for an int": (
        lambda m: m.two(spy.rand_float(-1)),
        "int2 two(int2 x): argument 'x' is rand_float(min=-1.0), which makes floats; it takes a 'float', "
        "'float3' or 'float[4]' parameter, not 'int2'.",
    ),
    "another number of numbers": (
        lambda m: m.two(spy.wang_hash(3)),
        "int2 two(int2 x): argument 'x' is wang_hash(dim=3), which is 3 numbers; 'int2' takes 2.",
    ),
    "a thread's number in an array": (
        lambda m: m.array2(spy.thread_id()),
        "int[2] array2(int[2] x): argument 'x' is thread_id(); it takes a 'uint', 'uint2' or 'uint3' parameter, "
        "not an array.",
    ),
    "call_id of no dimensions": (
        lambda m: m.one(spy.call_id()),
        "int one(int x): argument 'x' is call_id() for 'int', which counts 1 dimension; the call has none.",
    ),
    "a range for a vector": (
        lambda m: m.two(range(2)),
        "int2 two(int2 x): argument 'x' is range(0, 2); it takes an 'int' parameter, not 'int2'.",
    ),
    "a range beyond int": (
        lambda m: m.one_wide(range(2**31, 2**31 + 2)),
        "int64_t one_wide(int64_t x): argument 'x' is range(2147483648, 2147483650), whose numbers go beyond those "
        "of an 'int', -2147483648 to 2147483647.",
    ),
    "a negative range for uint": (
        lambda m: m.one_u(range(2, -2, -1)),
        "uint one_u(uint x): argument 'x' is range(2, -2, -1), which has negative numbers; 'uint' takes none.",
    ),
    "a grid below zero for uint": (
        lambda m: m.two_u(spy.grid((2, 3), (0, -1))),
        "uint2 two_u(uint2 x): argument 'x' is grid(shape=(2, 3), offset=(0, -1)), which has negative numbers; "
        "'uint2' takes none.",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_refused(module: spy.Module, name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises(spy.BindError) as refusal:
        call(module)
    assert str(refusal.value) == message


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


def test_they_are_values() -> None:
    assert spy.wang_hash(seed=1) == spy.wang_hash(seed=int(np.uint32(1))) != spy.wang_hash(seed=2)
    assert hash(spy.grid((2, 3))) == hash(spy.grid((2, 3), 0, 1)) and spy.grid((2, 3)) != spy.grid((3, 2))
    assert spy.call_id() != spy.thread_id()
    assert repr(spy.rand_float(2, 3, dim=2, seed=4, warmup=1, hash_seed=False)) == (
        "rand_float(min=2.0, max=3.0, dim=2, seed=4, warmup=1, hash_seed=False)"
    )
    assert repr(spy.grid((-1, 4), stride=2)) == "grid(shape=(-1, 4), stride=(2, 2))"
    assert [repr(g) for g in (spy.call_id(), spy.thread_id(2))] == ["call_id()", "thread_id(dims=2)"]
