"""What "Where devices differ" of docs/intrinsics.md says of infinities, NaN and the order of operations."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs

SLANG = """
float regrouped(float a, float b) { return (a + b) - b; }
float times_zero(float a) { return a * 0.0; }
float minus(float a, float b) { return a - b; }
float minus_itself(float a) { return a - a; }
float plus_zero(float a) { return a + 0; }
bool differs(float a) { return a != a; }
bool is_none(float a) { return isnan(a); }
half narrowed(double a) { return half(a); }
"""
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0], np.float32)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_float_rules", SLANG)


@needs("C++")  # drivers may regroup
def test_the_cpu_computes_what_is_written(module: spy.Module) -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    np.testing.assert_array_equal(module.regrouped(x, 1e8), (x + np.float32(1e8)) - np.float32(1e8))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(module.times_zero(SPECIAL), SPECIAL * np.float32(0))


def test_infinities_and_nan_are_kept(device: spy.Device, module: spy.Module) -> None:
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(module.minus(SPECIAL, SPECIAL), SPECIAL - SPECIAL)
    # DXC takes for granted that no number is NaN, but for isnan.
    if device.backend.target.format != "hlsl":
        np.testing.assert_array_equal(module.differs(SPECIAL), np.isnan(SPECIAL))
    np.testing.assert_array_equal(module.is_none(SPECIAL), np.isnan(SPECIAL))


def test_what_slang_simplifies(module: spy.Module) -> None:
    # If this fails with a new Slang, the documentation has to change too.
    np.testing.assert_array_equal(module.minus_itself(SPECIAL), np.zeros(5, np.float32))
    np.testing.assert_array_equal(np.signbit(module.plus_zero(SPECIAL[3:])), [True, False])


def test_a_double_becomes_a_half_once_rounded_or_twice(device: spy.Device, module: spy.Module) -> None:
    if not {"double", "half"} <= device.caps.scalars:
        pytest.skip("no doubles or no halves")
    # By way of a float the first is a tie, and 65519.999999999 becomes 65520.
    x = np.array([1.0004882812509095, 1.25, 65519.0])
    found = module.narrowed(x)
    if device.name == "cpu":
        x = np.append(x, 65519.999999999)
        found = module.narrowed(x)
        np.testing.assert_array_equal(found, x.astype(np.float16))
    assert (np.abs(found.view(np.int16) - x.astype(np.float16).view(np.int16)) <= 1).all()
