"""Numbers of 16 bits: arithmetic, comparisons and conversions of ``half``, against NumPy's float16 bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import deep, fixture_needs, one_device, one_in

pytestmark = one_device

SLANG = """
half add(half a, half b) { return a + b; }
half sub(half a, half b) { return a - b; }
half mul(half a, half b) { return a * b; }
half div(half a, half b) { return a / b; }
half rem(half a, half b) { return a % b; }
half neg(half a) { return -a; }
half root(half a) { return sqrt(a); }
bool less(half a, half b) { return a < b; }
bool least(half a, half b) { return a <= b; }
bool more(half a, half b) { return a > b; }
bool most(half a, half b) { return a >= b; }
bool same(half a, half b) { return a == b; }
bool other(half a, half b) { return a != b; }
half chain(half a, half b) { return a * b + a - b / a; }
half fused(half a, half b) { return fma(a, b, a); }
half of_float(float x) { return half(x); }
half of_double(double x) { return half(x); }
half of_int(int x) { return half(x); }
half of_int64(int64_t x) { return half(x); }
half of_uint64(uint64_t x) { return half(x); }
half of_byte(uint8_t x) { return half(x); }
half of_bool(bool x) { return half(x); }
float to_float(half x) { return x; }
double to_double(half x) { return x; }
int to_int(half x) { return int(x); }
int64_t to_int64(half x) { return int64_t(x); }
bool to_bool(half x) { return bool(x); }
float from_bits(uint x) { return f16tof32(x); }
uint to_bits(float x) { return f32tof16(x); }
half4 vectors(half4 a, half4 b, half s) { return (a + b.yxwz) * s - -a / b + (a < b ? a : b); }
half2x3 matrices(half2x3 a, half2x3 b) { return a * b + a - -b; }
half dots(half3 a, half3 b) { return dot(a, b) + max(a.x, b.y) + cross(a, b).z; }
half whole(half x) { half i; let rest = modf(x, i); return i + rest * 2; }
half wraps(half x, int16_t n) { int16_t m = n + int16_t(1); return x + half(m); }
[Differentiable] half scale(half a, half b) { return a * b; }
[Differentiable] half3 tint(half3 v, half s) { return v * s; }
[Differentiable] half gather(DiffTensor<half, 1> t, int i, half x) { return t[i] * x; }
struct Mixed { half a; float b; half3 c; uint8_t d; half e; };
Mixed mix(Mixed m, half s) { m.a *= s; m.c += s; m.e = m.a + half(m.d); return m; }
"""
N = 1 << 16
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    if "half" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no half")
    return spy.Module.load_from_source(device, "test_halves", SLANG)


@pytest.fixture
@fixture_needs("C++")
def exact() -> None:
    """Drivers may round divisions in another way and flush subnormal numbers; the CPU has none."""


def every() -> Array:
    return np.arange(N, dtype=np.uint16).view(np.float16)


def pairs() -> tuple[Array, Array]:
    """Any two halves, and such as are of one size."""
    rng = np.random.default_rng(0)
    any_ = rng.integers(0, N, (2, N), np.uint16).view(np.float16)
    near = rng.standard_normal((2, N)).astype(np.float16)
    a, b = np.concatenate([any_, near], axis=1)
    return a, b


def floats() -> Array:
    """Doubles that lie on halves, between two of them, and next to both; infinities and NaN."""
    on = every()[np.isfinite(every())].astype(np.float64)
    on.sort()
    between = (on[1:] + on[:-1]) / 2
    near = np.concatenate([on, between])
    random = np.random.default_rng(1).standard_normal(N) * 2.0 ** np.random.default_rng(2).integers(-30, 20, N)
    beyond = [65519.999, 65520, 65520.001, 1e30, 1e300, 2.0**-25, 2.0**-26, 1e-300, 0.0, np.inf, np.nan]
    return np.concatenate(
        [near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), random, beyond, np.negative(beyond)]
    )


def check(found: object, expected: Array) -> None:
    """Equal bits, but for NaN, of which there are many."""
    found = np.asarray(found.to_numpy() if isinstance(found, spy.NDBuffer) else found)
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        keep, bits = ~np.isnan(expected), f"u{expected.itemsize}"
        found, expected = found[keep].view(bits), expected[keep].view(bits)
    np.testing.assert_array_equal(found, expected)


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod, "less": np.less,
    "least": np.less_equal, "more": np.greater, "most": np.greater_equal, "same": np.equal, "other": np.not_equal,
    # Each operation rounds.
    "chain": lambda a, b: a * b + a - b / a,
}  # fmt: skip


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", one_in(3, OPERATIONS))
def test_operators(module: spy.Module, name: str) -> None:
    a, b = pairs()
    with np.errstate(all="ignore"):
        check(module[name](a, b), OPERATIONS[name](a, b))


@pytest.mark.usefixtures("exact")
def test_functions_that_round_once(module: spy.Module) -> None:
    x, (a, b) = every(), pairs()
    with np.errstate(all="ignore"):
        check(module.root(x), np.sqrt(x))
        check(module.neg(x), -x)
        wide = [v.astype(np.float64) for v in (a, b)]
        check(module.fused(a, b), (wide[0] * wide[1] + wide[0]).astype(np.float16))
        rest, whole = np.modf(x[np.isfinite(x)])
        check(module.whole(x[np.isfinite(x)]), whole + rest * np.float16(2))


@pytest.mark.usefixtures("exact")
def test_conversions(module: spy.Module) -> None:
    x, wide = every(), floats()
    finite = x[np.isfinite(x)]
    rng = np.random.default_rng(3)
    near, far = rng.integers(-70000, 70000, N), rng.integers(-(2**63), 2**63 - 1, N)
    with np.errstate(all="ignore"):
        check(module.of_double(wide), wide.astype(np.float16))
        single = wide.astype(np.float32)
        check(module.of_float(single), single.astype(np.float16))
        check(
            module.to_bits(single[~np.isnan(single)]), single[~np.isnan(single)].astype("f2").view("u2").astype("u4")
        )
        for numbers in (near, far):
            check(module.of_int64(numbers), numbers.astype(np.float16))
            check(module.of_uint64(np.abs(numbers).astype("u8")), np.abs(numbers).astype(np.float16))
        check(module.of_int(near.astype("i4")), near.astype(np.float16))
        check(module.of_byte(np.arange(256, dtype="u1")), np.arange(256).astype(np.float16))
        check(module.of_bool(np.array([False, True])), np.array([0, 1], np.float16))
        check(module.to_float(x), x.astype(np.float32))
        check(module.from_bits(np.arange(N, dtype="u4")), x.astype(np.float32))
        check(module.to_double(x), x.astype(np.float64))
        check(module.to_int(finite), finite.astype(np.int32))
        check(module.to_int64(finite), finite.astype(np.int64))
        check(module.to_bool(x), x.astype(bool))


def small(*shape: int, seed: int = 0) -> Array:
    """Numbers of which a few products and sums are exact."""
    return np.random.default_rng(seed).choice([-4, -2, -1, -0.5, 0.5, 1, 2, 4], shape).astype(np.float16)


def test_vectors_and_matrices(module: spy.Module) -> None:
    a, b, s = small(7, 4), small(7, 4, seed=1), small(7, seed=2)
    expected = (a + b[:, [1, 0, 3, 2]]) * s[:, None] + a / b + np.where(a < b, a, b)
    check(module.vectors(a, b, s), expected)
    m, n = small(5, 2, 3), small(5, 2, 3, seed=1)
    check(module.matrices(m, n), m * n + m + n)
    a, b = small(9, 3), small(9, 3, seed=1)
    cross = np.cross(a, b)[:, 2]
    check(module.dots(a, b), ((a * b).sum(1) + np.maximum(a[:, 0], b[:, 1]) + cross).astype(np.float16))


def test_beside_narrow_integers(module: spy.Module, device: spy.Device) -> None:
    if "int16_t" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no int16_t")
    check(module.wraps(np.float16([1.5, 2]), np.int16([4, 32767])), np.float16([6.5, -32766]))


@deep
def test_fields_of_structs(module: spy.Module, device: spy.Device) -> None:
    if "uint8_t" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no uint8_t")
    given = {"a": np.float16([1, 2]), "b": np.float32([3, 4]), "c": small(2, 3), "d": np.uint8([7, 8]), "e": 0}
    found = module.mix(given, np.float16(0.5))
    np.testing.assert_array_equal(found["a"], [0.5, 1])
    np.testing.assert_array_equal(found["b"], [3, 4])
    np.testing.assert_array_equal(found["c"], given["c"] + np.float16(0.5))
    np.testing.assert_array_equal(found["e"], [7.5, 9])
    assert found.dtype["e"] == np.float16


def dual(device: spy.Device, values: Array) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, values).with_grads()


def seed(device: spy.Device, values: Array) -> spy.Tensor:
    given = spy.Tensor.from_numpy(device, values)
    return spy.Tensor.zeros_like(given).with_grads(grad_in=given)


def close(found: spy.NDBuffer | None, expected: float) -> None:
    assert found is not None
    # A GPU rounds each time that a group adds its sum: 9000 ones became 8928 on an H200.
    several = found.device.backend.target.groups
    np.testing.assert_allclose(found.to_numpy(), expected, rtol=2**-5 if several else 2**-8)


def test_sums_of_gradients_are_kept_in_floats(device: spy.Device, module: spy.Module) -> None:
    # Added to one half, ones end at 2048. Beyond it the sums of ranges and groups are rounded.
    count = 20_000
    ones, one = np.ones(count, np.float16), dual(device, np.ones(1, np.float16))
    module.scale.bwds(spy.Tensor.from_numpy(device, ones), one, _result=seed(device, ones))
    close(one.grad, count)
    rows, columns = dual(device, np.ones((4, 1), np.float16)), dual(device, np.ones((1, 3000, 3), np.float16))
    module.tint.bwds(columns, rows, _result=seed(device, np.ones((4, 3000, 3), np.float16)))
    close(rows.grad, 9000)
    check(columns.grad, np.full((1, 3000, 3), 4, np.float16))
    columns, rows = dual(device, np.ones((1, 70, 3), np.float16)), spy.Tensor.ones(device, (2000, 1), "half")
    module.tint.bwds(columns, rows, _result=seed(device, np.ones((2000, 70, 3), np.float16)))
    check(columns.grad, np.full((1, 70, 3), 2000, np.float16))


def test_gradients_of_whole_arrays(device: spy.Device, module: spy.Module) -> None:
    x, at = dual(device, small(4)), np.arange(400, dtype=np.int32) % 4
    values = np.random.default_rng(5).integers(-2, 3, 400).astype(np.float16)
    module.gather.bwds(x, at, spy.Tensor.from_numpy(device, values), _result=seed(device, np.ones(400, np.float16)))
    check(x.grad, values.reshape(100, 4).sum(0))


@deep
@pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
def test_another_compiler() -> None:
    """clang, which zig is, converts by instructions of its own."""
    pytest.importorskip("ziglang")
    env = {**os.environ, "SLANGPY_RT_CXX": "zig", "SLANGPY_RT_CACHE_DIR": ""}
    tests = [f"{__file__}::{name}" for name in ("test_operators", "test_conversions", "test_vectors_and_matrices")]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--backend=cpu", *tests]
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=600, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout
