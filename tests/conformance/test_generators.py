"""Arguments without data: indices and ranges, the calls around them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _generators import floats, hashes, index, module, ramp

import slangpy_rt as spy
from tests.depth import one_device, sampled

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

__all__ = ["module"]  # the fixture


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


def test_numbers_beyond_32_bits(module: spy.Module) -> None:
    """Ranges and grids for parameters of 64 bits, and for uint above 2^31."""
    for values in (
        range(2**31 - 2, 2**31 + 2), range(2**40, 2**40 - 3 * 2**35, -(2**35)), range(-(2**63), 2**63, 2**62),
        range(-(2**31) - 1, -(2**31) + 2), range(2**63 - 1, 2**63), range(2**62, -(2**62), -(2**61)),
    ):  # fmt: skip
        assert module.one_wide(values).tolist() == list(values)
    for values in (range(2**31 - 2, 2**31 + 2), range(2**32 - 1, 2**31, -(2**30)), range(2**32 - 1, 2**32)):
        assert module.one_u(values).tolist() == list(values)
    # A call that was prepared for small numbers is not taken for large ones.
    assert module.one_wide(range(3)).tolist() == [0, 1, 2]
    assert module.one_wide(range(2**33, 2**33 + 3)).tolist() == [2**33, 2**33 + 1, 2**33 + 2]
    found = module.one_wide(spy.grid((3,), offset=2**40, stride=-(2**36)))
    assert found.tolist() == [2**40, 2**40 - 2**36, 2**40 - 2**37]


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
    (lambda: spy.grid(3, stride=0.5), "grid: stride is made of whole numbers of at most 64 bits, not 0.5."),  # type: ignore[arg-type]
    (
        lambda: spy.grid(3, 2**64),
        "grid: offset is made of whole numbers of at most 64 bits, not 18446744073709551616.",
    ),
    (lambda: spy.wang_hash(dim=-3), "wang_hash: dim is a whole number of at least 1, or -1, not -3."),
    (lambda: spy.wang_hash(seed=-1), "wang_hash: seed is a whole number from 0 to 4294967295, not -1."),
    (lambda: spy.wang_hash(warmup=True), "wang_hash: warmup is a whole number from 0 to 4294967295, not True."),
    (lambda: spy.rand_float(seed=2**32), "rand_float: seed is a whole number from 0 to 4294967295, not 4294967296."),
    (lambda: spy.rand_float(min="a"), "rand_float: min is a number that a 32-bit float holds, not 'a'."),  # type: ignore[arg-type]
    (lambda: spy.rand_float(max=1e39), "rand_float: max is a number that a 32-bit float holds, not 1e+39."),
    (lambda: spy.rand_float(max=float("nan")), "rand_float: max is a number that a 32-bit float holds, not nan."),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(spy.BindError) as refusal:
        make()
    assert str(refusal.value) == message


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
        "int one(int x): argument 'x' is call_id() for 'int', which counts 1 dimension; the call has none. "
        "grid(shape) gives the call its own shape.",
    ),
    "a range for a vector": (
        lambda m: m.two(range(2)),
        "int2 two(int2 x): argument 'x' is range(0, 2); it takes an 'int' parameter, not 'int2'.",
    ),
    "a range beyond int": (
        lambda m: m.one(range(2**31, 2**31 + 2)),
        "int one(int x): argument 'x' is range(2147483648, 2147483650), whose numbers go beyond those of an 'int', "
        "-2147483648 to 2147483647.",
    ),
    "a range beyond uint": (
        lambda m: m.one_u(range(2**32, 2**32 + 2)),
        "uint one_u(uint x): argument 'x' is range(4294967296, 4294967298), whose numbers go beyond those of "
        "a 'uint', 0 to 4294967295.",
    ),
    "a range beyond int64_t": (
        lambda m: m.one_wide(range(2**63 - 1, 2**63 + 1)),
        "int64_t one_wide(int64_t x): argument 'x' is range(9223372036854775807, 9223372036854775809), whose numbers "
        "go beyond those of an 'int64_t', -9223372036854775808 to 9223372036854775807.",
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


def test_they_are_values() -> None:
    assert spy.wang_hash(seed=1) == spy.wang_hash(seed=int(np.uint32(1))) != spy.wang_hash(seed=2)
    assert hash(spy.grid((2, 3))) == hash(spy.grid((2, 3), 0, 1)) and spy.grid((2, 3)) != spy.grid((3, 2))
    assert spy.call_id() != spy.thread_id()
    assert repr(spy.rand_float(2, 3, dim=2, seed=4, warmup=1, hash_seed=False)) == (
        "rand_float(min=2.0, max=3.0, dim=2, seed=4, warmup=1, hash_seed=False)"
    )
    assert repr(spy.grid((-1, 4), stride=2)) == "grid(shape=(-1, 4), stride=(2, 2))"
    assert [repr(g) for g in (spy.call_id(), spy.thread_id(2))] == ["call_id()", "thread_id(dims=2)"]
