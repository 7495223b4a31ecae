"""What the tests of structs share: random values of any dtype, and a comparison by field. Nothing here is a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def random_bits(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> npt.NDArray[Any]:
    """Values over the whole range of a dtype, structured ones included; floats are finite."""
    rng = np.random.default_rng(seed)
    out = np.zeros(shape, dtype)
    if dtype.names is not None:
        for k, name in enumerate(dtype.names):
            base, dims = dtype[name].subdtype or (dtype[name], ())
            out[name] = random_bits(shape + dims, base, seed * 31 + k)
        return out
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def assert_same(got: Any, expected: npt.NDArray[Any]) -> None:
    """Equal field by field, whatever lies between the fields."""
    if expected.dtype.names is None:
        np.testing.assert_array_equal(got, expected)
        return
    assert got.dtype.names == expected.dtype.names and got.shape == expected.shape
    for name in expected.dtype.names:
        assert_same(got[name], expected[name])
