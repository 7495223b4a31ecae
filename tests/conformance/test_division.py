"""Integer division by zero and of the least integer by -1: defined, and equal on all devices of our own backends.

The reference is Python's integers, by the rule in docs/design/0020-integer-division.md.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.slang.corrections.division import with_division
from tests.depth import deep, needs, one_in, sampled

TYPES = {
    "int8_t": "i1", "int16_t": "i2", "int": "i4", "int64_t": "i8",
    "uint8_t": "u1", "uint16_t": "u2", "uint": "u4", "uint64_t": "u8",
}  # fmt: skip
SOURCE = """
T over<T : __BuiltinIntegerType>(T a, T b) { return a / b; }
struct Both<T : __BuiltinIntegerType>
{
    T a;
    [mutating] void divide(T b) { a /= b; }
    T rest(T b) { return a % b; }
}
"""
FUNCTIONS = """
NAME quotient_NAME(NAME a, NAME b) { return a / b; }
NAME remainder_NAME(NAME a, NAME b) { return a % b; }
NAME generic_NAME(NAME a, NAME b) { return over(a, b); }
NAME method_NAME(NAME a, NAME b) { Both<NAME> both; both.a = a; both.divide(b); return both.a; }
NAME method_rest_NAME(NAME a, NAME b) { Both<NAME> both; both.a = a; return both.rest(b); }
NAME compound_NAME(NAME a, NAME b) { a /= b; return a; }
NAME compound_rest_NAME(NAME a, NAME b) { a %= b; return a; }
NAME by_minus_NAME(NAME a) { return a / NAME(-1); }
NAME by_minus_rest_NAME(NAME a) { return a % NAME(-1); }
NAME chain_NAME(NAME a, NAME b) { return NAME(a / b * b) + a % b; }
vector<NAME, 3> vector_NAME(vector<NAME, 3> a, vector<NAME, 3> b) { return a / b; }
vector<NAME, 4> vector_rest_NAME(vector<NAME, 4> a, NAME b) { a %= b; return a; }
"""
MATRICES = """
int2x3 matrix(int2x3 a, int2x3 b) { return a / b; }
int2x3 matrix_rest(int2x3 a, int2x3 b) { return a % b; }
"""

Array = npt.NDArray[Any]


def divided(a: Array, b: Array) -> tuple[Array, Array]:
    """The quotient and the remainder, by the rule."""
    quotients, rests = [], []
    for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True):
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1
        quotients.append(quotient)
        rests.append(x - quotient * y if y else -1)

    def wrapped(numbers: list[int]) -> Array:
        bits = 8 * a.dtype.itemsize
        return np.array([n % (1 << bits) for n in numbers], f"u{a.dtype.itemsize}").view(a.dtype).reshape(a.shape)

    return wrapped(quotients), wrapped(rests)


def numbers(code: str) -> tuple[Array, Array]:
    """Every pair of numbers near 0, -1 and the ends of a type."""
    info = np.iinfo(code)
    some = [info.min, info.min + 1, info.max, info.max // 3, 0, 1, 2, 7]
    some += [-1, -2, -9, info.min // 3] if info.min else [info.max - 1, 9]
    a, b = np.meshgrid(np.array(some, code), np.array(some, code))
    return a.ravel(), b.ravel()


@pytest.fixture(scope="session")
def module(device: spy.Device) -> spy.Module:
    names = [name for name in TYPES if name in device.caps.scalars]
    text = SOURCE + "".join(FUNCTIONS.replace("NAME", name) for name in names)
    return spy.Module.load_from_source(device, "divisions", text + MATRICES)


def own(device: spy.Device) -> None:
    if device.backend.target.format == "hlsl":
        pytest.skip("HLSL leaves these divisions undefined")


@needs("corrected code")
@sampled(3)
@pytest.mark.parametrize("name", one_in(3, TYPES))
def test_of_scalars(device: spy.Device, module: spy.Module, name: str) -> None:
    own(device)
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    a, b = numbers(TYPES[name])
    quotient, rest = divided(a, b)
    for function in ("quotient", "generic", "method", "compound"):
        np.testing.assert_array_equal(module[f"{function}_{name}"](a, b), quotient, function)
    for function in ("remainder", "method_rest", "compound_rest"):
        np.testing.assert_array_equal(module[f"{function}_{name}"](a, b), rest, function)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(module[f"chain_{name}"](a, b), quotient * b + rest)
    minus = np.full_like(a, np.array(-1).astype(a.dtype))
    np.testing.assert_array_equal(module[f"by_minus_{name}"](a), divided(a, minus)[0])
    np.testing.assert_array_equal(module[f"by_minus_rest_{name}"](a), divided(a, minus)[1])


@needs("corrected code")
@sampled(3)
@pytest.mark.parametrize("name", one_in(3, TYPES))
def test_of_vectors(device: spy.Device, module: spy.Module, name: str) -> None:
    own(device)
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    a, b = numbers(TYPES[name])
    a3, b3 = (np.stack([x, x[::-1], np.roll(x, 3)], 1) for x in (a, b))
    np.testing.assert_array_equal(module[f"vector_{name}"](a3, b3), divided(a3, b3)[0])
    a4 = np.stack([a, a[::-1], np.roll(a, 3), np.roll(a, 4)], 1)
    b4 = np.repeat(b[:, None], 4, 1)
    np.testing.assert_array_equal(module[f"vector_rest_{name}"](a4, b), divided(a4, b4)[1])


@needs("corrected code")
def test_of_matrices(device: spy.Device, module: spy.Module) -> None:
    own(device)
    a, b = (np.resize(x, (24, 2, 3)) for x in numbers("i4"))
    np.testing.assert_array_equal(module.matrix(a, b), divided(a, b)[0])
    np.testing.assert_array_equal(module.matrix_rest(a, b), divided(a, b)[1])


def test_floats_divide_as_ever(device: spy.Device) -> None:
    text = """
        float f(float a, int b) { return a / (2.5 / b) + float(b / 2) / a; }
        float3 g(float3 a, float b) { a /= b; return a; }
    """
    module = spy.Module.load_from_source(device, "float_divisions", text)
    a, b = np.linspace(1, 9, 33, dtype="f4"), np.arange(1, 34, dtype="i4")
    np.testing.assert_allclose(module.f(a, b), a / (np.float32(2.5) / b) + (b // 2) / a, rtol=1e-5)
    np.testing.assert_array_equal(module.g(np.zeros(3, "f4"), np.array([4, 0], "f4"))[0], [0, 0, 0])
    assert np.isnan(module.g(np.zeros((1, 3), "f4"), np.zeros(1, "f4"))).all()


def test_text_of_a_string_stays() -> None:
    text = b"using namespace SLANG_PRELUDE_NAMESPACE;\n#endif\n"
    body = b'{\n    printf("a / b %% c", x_0 / int(4), x_0 % 7U, y_0 / 2.5f);\n}\n'
    assert with_division(text + body, "cpp") == text + body
    found = with_division(text + b"    int c_0 = a_0 / b_0 % int(-1);\n", "cpp")
    assert found.endswith(b"    int c_0 = a_0 /_spy_over()/ b_0 /_spy_rest()/ int(-1);\n")


# A process that would end is not this one.
CHILD = """
import sys
import numpy as np
import slangpy_rt as spy
with spy.Device("cpu") as device:
    m = spy.Module.load_from_source(device, "d", '''
        int64_t f(int64_t a, int64_t b) { return a / b; }
        int g(int a, int b) { a %= b; return a; }
        int3 h(int3 a, int3 b) { return a / b; }
        int8_t s(int8_t a, int8_t b) { return a / b; }''')
    low = np.iinfo("i8").min
    assert m.f(np.array([5, low]), np.array([0, -1])).tolist() == [-1, low]
    assert m.g(np.array([5, -2**31], "i4"), np.array([0, -1], "i4")).tolist() == [-1, 0]
    assert m.h(np.array([[1, -2**31, 6]], "i4"), np.array([[0, -1, 2]], "i4")).tolist() == [[-1, -2**31, 3]]
    assert m.s(np.array([-128, 3], "i1"), np.array([-1, 0], "i1")).tolist() == [-128, -1]
print("lived")
"""


@deep
@pytest.mark.parametrize("compiler", one_in(2, ["", "zig"]))
def test_the_process_lives(tmp_path: Path, compiler: str) -> None:
    if compiler and importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang package is not installed")
    import os

    environment = (
        os.environ | {"SLANGPY_RT_CACHE_DIR": str(tmp_path)} | ({"SLANGPY_RT_CXX": compiler} if compiler else {})
    )
    ran = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stdout) == (0, "lived\n"), ran.stderr


def test_overflow_wraps_as_on_a_gpu(device: spy.Device) -> None:
    if "cuda" in device.name:
        pytest.skip("NVRTC assumes that signed integers do not overflow, and has no flag against it")
    if device.backend.target.format == "hlsl":
        pytest.skip("DXC assumes that signed integers do not overflow, and has no flag against it")
    text = """
int back(int a, int b) { return (a * b) / b; }
bool less(int a) { return a + 1 < a; }
bool negative(int a) { return abs(a) < 0; }
int steps(int from) { int n = 0; for (int k = from; k > 0 && n < 20; ++k) ++n; return n; }
"""
    module = spy.Module.load_from_source(device, "overflow", text)
    most, least = np.array([2**31 - 1], np.int32), np.array([-(2**31)], np.int32)
    with np.errstate(over="ignore"):
        product = np.int32(1000000) * np.int32(5000)
    assert module.back(np.array([1000000], np.int32), np.array([5000], np.int32))[0] == int(product / 5000)
    assert module.less(most)[0] and module.negative(least)[0]
    assert module.steps(most - 7)[0] == 8
    if "int64_t" in device.caps.scalars:
        text = """
int64_t part(int64_t b) { int64_t m = int64_t(-9223372036854775807) - int64_t(1); return m / b; }
bool more(int64_t b) { int64_t m = int64_t(-9223372036854775807) - int64_t(1); return (m - b) > 0; }
"""
        wide = spy.Module.load_from_source(device, "wide_overflow", text)
        assert wide.part(np.array([-1, 2], np.int64)).tolist() == [-(2**63), -(2**62)]
        if not device.name.startswith("rhi"):
            assert wide.part(np.array([0], np.int64)).tolist() == [-1]
        assert wide.more(np.array([1], np.int64))[0]
