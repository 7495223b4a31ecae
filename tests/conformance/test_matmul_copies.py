"""Copies of operands for tensor cores: the kernel that makes them is plain Slang, which runs on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.linalg.copies import copies_of
from slangpy_rt.linalg.lines import FORMATS
from slangpy_rt.linalg.own_arrays import OwnArrays
from slangpy_rt.linalg.view import View
from tests.depth import needs, sampled

NUMPY: dict[str, Any] = {"half": np.float16, "int8_t": np.int8, "float": np.float32}


def numbers(element: str, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(sum(shape))
    if element == "int8_t":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(NUMPY[element])


SHAPES = [(1, 1, 1), (1, 5, 3), (2, 33, 17), (3, 16, 32), (1, 70, 64), (2, 3, 100), (1, 130, 1), (1, 1, 77)]
CASES = [
    (element, shape, left, order)
    for element in NUMPY
    for shape in SHAPES
    for left in (True, False)
    for order in ("rows", "columns", "apart")
]


@needs("pointers")
@sampled(192)
@pytest.mark.parametrize(("element", "shape", "left", "order"), CASES)
def test_copies(device: spy.Device, element: str, shape: tuple[int, int, int], left: bool, order: str) -> None:
    if element not in device.caps.scalars:
        pytest.skip(f"the device has no {element}")
    values = numbers(element, shape)
    laid = {
        "rows": values,
        "columns": values.swapaxes(1, 2).copy().swapaxes(1, 2),
        "apart": np.repeat(np.repeat(values, 2, 2), 3, 1)[:, ::3, ::2],
    }[order]
    steps = [s // laid.itemsize for s in laid.strides]
    # All memory that the strides reach, as an array of one dimension.
    flat = np.zeros(sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1, values.dtype)
    np.lib.stride_tricks.as_strided(flat, shape, laid.strides)[...] = values
    copies, arrays = copies_of(device, element), OwnArrays()
    view = View(element, shape, tuple(steps))
    source = spy.Tensor.from_numpy(device, flat)
    array, found, _ = copies.packed(None, arrays, (arrays.strided(source, view, element), view), source, left)
    form = FORMATS[element]
    parts = [array.device, form.parts]
    got = arrays.strided(array, found, element).to_numpy()
    # Lines are along what is multiplied with each other, unless columns are read as well.
    line = (1 if steps[1] == 1 and steps[2] != 1 else 2) if form.takes_columns else (2 if left else 1)
    assert found.strides[line] == 1
    assert all(s * form.size % 16 == 0 for d, s in enumerate(found.strides) if d != line)
    assert array.shape == shape and parts[1] * shape[0] == got.shape[0]
    if form.parts == 1:
        np.testing.assert_array_equal(got, values)
        return
    check_parts(got[0::3], got[1::3], got[2::3], values)


def check_parts(high: Any, finite: Any, low: Any, values: Any) -> None:
    """Check parts that have 10 bits of the fraction, and whose sum is close to the values."""
    plain = np.isfinite(values)
    for part in (high, finite, low):
        assert not (part.view(np.uint32)[np.isfinite(part)] & 0x1FFF).any()
    np.testing.assert_array_equal(finite[plain], high[plain])
    assert not finite[~plain].any() and not low[~plain].any()
    np.testing.assert_array_equal(high[~plain], values[~plain])
    exact = values[plain].astype(np.float64)
    assert (abs(high[plain] - exact) <= 2.0**-10 * abs(exact) + 1.2e-41).all()
    assert (abs(high[plain].astype(np.float64) + low[plain] - exact) <= 2.0**-21 * abs(exact) + 1e-41).all()


@needs("pointers")
def test_special_floats(device: spy.Device) -> None:
    top = np.finfo(np.float32).max
    values = np.array(
        [
            0,
            -0.0,
            1,
            -1,
            1 / 3,
            top,
            -top,
            np.inf,
            -np.inf,
            np.nan,
            1e-38,
            1e-41,
            1 + 2**-11,
            1 + 2**-10,
            2 - 2**-23,
            3,
        ],
        np.float32,
    ).reshape(1, 2, 8)
    copies, arrays = copies_of(device, "float"), OwnArrays()
    view = View("float", values.shape, (16, 8, 1))
    source = spy.Tensor.from_numpy(device, values)
    array, found, _ = copies.packed(None, arrays, (source, view), source, True)
    got = arrays.strided(array, found, "float").to_numpy()
    check_parts(got[0:1], got[1:2], got[2:3], values)
    # The nearest numbers, half of the distance upwards.
    np.testing.assert_array_equal(got[0].ravel()[12:15], np.array([1 + 2**-10, 1 + 2**-10, 2], np.float32))
