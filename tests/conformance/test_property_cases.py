"""Single calls of the pool that random ones leave out, or once got wrong."""

from __future__ import annotations

import numpy as np
import pytest
from _gaps import narrowest
from _random_calls import SLANG

import slangpy_rt as spy


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The pool."""
    return spy.Module.load_from_source(device, "test_property", SLANG, defines={"NARROWEST": narrowest(device)})


@pytest.mark.parametrize("layout", ["fortran", "gaps", "unaligned"])
def test_written_host_arrays_of_any_layout(module: spy.Module, layout: str) -> None:
    packed = np.zeros((5, 3), np.dtype([("", "u1"), ("item", "f4")]))
    v = {
        "fortran": np.zeros((5, 3), "f4", order="F"),
        "gaps": np.zeros((5, 6), "f4")[:, ::2],
        "unaligned": packed["item"],
    }[layout]
    x, a = np.full(5, 10, np.int32), np.arange(5, dtype=np.int32)
    module.both(a, x, v)
    np.testing.assert_array_equal(v, np.stack([10 - a, a, np.full(5, 7)], 1))


def test_a_dict_that_is_not_vectorized(module: spy.Module) -> None:
    s = np.arange(3, dtype=np.float32)
    result = module.turn.map((), (0,))({"x": 1, "y": 2, "z": 3}, s)
    np.testing.assert_array_equal(result, np.stack([np.full(3, 3), s, np.full(3, 1)], 1))


def test_a_grid_of_1_stretches(module: spy.Module) -> None:
    k = np.ones(4, np.int32)
    for index in (range(5, 6), spy.grid((1,), 5)):
        x = np.zeros(4, np.int32)
        module.count_up(x, index)
        np.testing.assert_array_equal(x, np.full(4, 5))
    result = module.put(spy.grid((3, 1)), k, _result="numpy")
    np.testing.assert_array_equal(result[..., 0], np.full((3, 4), 1))


def test_dimensions_of_1_on_one_call_dimension(module: spy.Module) -> None:
    x = np.arange(3, dtype=np.uint32)
    for array in (x.reshape(1, 3), x.reshape(3, 1)):
        np.testing.assert_array_equal(module.mix.map((0, 0))(array, 0), x * np.uint32(31) + (x >> 3))


def test_what_a_mapped_output_does_not_cover_stays(module: spy.Module) -> None:
    x, by = np.full((3, 3), 5, np.int32), np.arange(3, dtype=np.int32)
    module.count_up.map((0, 0))(x, by)
    np.testing.assert_array_equal(x, np.full((3, 3), 5) + np.diag(by))
    v, n = np.full((3, 3, 3), 9, np.float32), np.zeros(3, np.int32)
    module.both.map((0,), (0,), (0, 0))(by, n, v)
    expected = np.full((3, 3, 3), 9, np.float32)
    expected[range(3), range(3)] = np.stack([-by, by, np.full(3, 7)], 1)
    np.testing.assert_array_equal(v, expected)
    into = np.full((3, 3), 9, np.uint32)
    module.mix.map((0,), _result=(0, 0))(by.astype(np.uint32), 0, _result=into)
    expected = np.full((3, 3), 9, np.uint32)
    expected[range(3), range(3)] = by * 31
    np.testing.assert_array_equal(into, expected)


def test_maps_of_fields_and_of_the_result(module: spy.Module) -> None:
    at, n = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.int32)
    move = module.move.map({"at": (0,), "n": (1,)}, None, k=(2,))
    result = move({"at": at, "n": n}, 1.0, k=np.array([10, 20], np.int32))
    assert result.shape == (2, 4, 2)
    np.testing.assert_array_equal(result["at"], np.broadcast_to((at + 1)[:, None, None], (2, 4, 2, 3)))
    np.testing.assert_array_equal(result["n"], np.broadcast_to(n[:, None] - [10, 20], (2, 4, 2)))
    x, into = np.arange(6, dtype=np.uint32).reshape(2, 3), np.zeros((3, 2), np.uint32)
    module.mix.map(_result=(1, 0))(x, 0, _result=into)
    np.testing.assert_array_equal(into, (x * 31 + (x >> 3)).T)


def test_a_later_map_replaces_an_earlier_one(module: spy.Module) -> None:
    x = np.arange(6, dtype=np.uint32).reshape(2, 3)
    assert module.mix.map((1, 0), ()).map((0, 1))(x, 0).shape == (2, 3)
    assert module.mix.map((2,))(x[0], 0).shape == (1, 1, 3)
