"""The argument block, member by member: every type goes through every backend and comes back bit for bit.

A wrong offset, size or alignment anywhere in a block shows here, because each member has neighbours of other
sizes and every bit of its value is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import narrowest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import needs, sampled

SLANG = """
#define ECHO(T)                                                                                              \\
    void echo_##T(                                                                                           \\
        TAG tag, T s, vector<T, 2> v2, bool flag, vector<T, 3> v3, TAG tag2, vector<T, 4> v4,                \\
        out T s_out, out vector<T, 2> v2_out, out vector<T, 3> v3_out, out vector<T, 4> v4_out,              \\
        out uint3 tags)                                                                                      \\
    {                                                                                                        \\
        s_out = s; v2_out = v2; v3_out = v3; v4_out = v4;                                                    \\
        tags = uint3(tag, tag2, flag ? 1 : 0);                                                               \\
    }                                                                                                        \\
    void pass_##T(T a, vector<T, 3> v, out T a_out, out vector<T, 3> v_out) { a_out = a; v_out = v; }
#define MORE(T)                                                                                              \\
    void more_##T(                                                                                           \\
        matrix<T, 2, 3> m, TAG tag, T x[3], matrix<T, 4, 4> q,                                               \\
        out matrix<T, 2, 3> m_out, out Array<T, 3> x_out, out matrix<T, 4, 4> q_out, out TAG tag_out)        \\
    {                                                                                                        \\
        m_out = m; q_out = q; tag_out = tag;                                                                 \\
        for (int k = 0; k < 3; ++k) x_out[k] = x[k];                                                         \\
    }
ECHO(int8_t) ECHO(int16_t) ECHO(int) ECHO(int64_t)
ECHO(uint8_t) ECHO(uint16_t) ECHO(uint) ECHO(uint64_t)
ECHO(float) ECHO(double) ECHO(bool)
MORE(int) MORE(uint) MORE(float)
#ifdef HALF
ECHO(half)
#endif
import slangpy_rt;
int64_t shapes(Tensor<TAG, 3> a, RWTensor<int64_t, 2> b, int d, TAG odd, int k)
{
    return int64_t(a.shape[d]) * 1000 + b.shape[d % 2] * 10 + odd + int64_t(a[1, 2, k]) * 1000000 + b[1, 1];
}
"""
SCALARS = list(NUMPY_OF)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above; half only where there is one."""
    defines: dict[str, Any] = {"TAG": narrowest(device)}
    if "half" in device.caps.scalars:
        defines["HALF"] = 1
    return spy.Module.load_from_source(device, "test_echo", SLANG, defines=defines)


def extremes(scalar: str) -> list[Any]:
    """The values that a wrong conversion, sign extension or size would change."""
    dtype = NUMPY_OF[scalar]
    if dtype.kind == "b":
        return [True, False]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        pattern = int.from_bytes(bytes(range(0x71, 0x71 + dtype.itemsize)), "little")
        return [info.min, info.max, 0, 1, info.max - 1, pattern, *([-1] if dtype.kind == "i" else [])]
    limits = np.finfo(dtype)
    return [limits.min, limits.max, limits.tiny, limits.eps, np.inf, -np.inf, np.nan, 0.0, -0.0, 1 / 3]


def assert_same_bits(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Bits, so that -0.0 is not 0.0; any NaN will do for a NaN."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        got, expected = np.where(np.isnan(got), 0, got), np.where(np.isnan(expected), 0, expected)
    assert got.tobytes() == expected.tobytes(), (got, expected)


@needs("{scalar}")
@sampled(5)
@pytest.mark.parametrize("scalar", SCALARS)
def test_values(device: spy.Device, module: spy.Module, scalar: str) -> None:
    dtype = NUMPY_OF[scalar]
    pool = extremes(scalar)
    for start in range(len(pool)):
        turned = [pool[(start + k) % len(pool)] for k in range(4)]
        s, v4 = np.array(turned[0], dtype), np.array(turned, dtype)
        v2, v3 = v4[:2].copy(), v4[1:].copy()
        out = [np.zeros(shape, dtype) for shape in ((), (2,), (3,), (4,))]
        tags = np.zeros(3, np.uint32)
        module[f"echo_{scalar}"](201, s.item(), v2, True, v3, 255, v4, *out, tags)
        for got, expected in zip(out, (s, v2, v3, v4), strict=True):
            assert_same_bits(got, expected)
        assert tags.tolist() == [201, 255, 1]


@needs("{scalar}")
@sampled(10)
@pytest.mark.parametrize("scalar", SCALARS)
def test_pointers(device: spy.Device, module: spy.Module, scalar: str) -> None:
    dtype = NUMPY_OF[scalar]
    pool = extremes(scalar)
    a = np.array([pool[k % len(pool)] for k in range(37)], dtype)
    v = np.array([pool[(k * 5 + 2) % len(pool)] for k in range(111)], dtype).reshape(37, 3)
    a_out, v_out = np.zeros_like(a), np.zeros_like(v)
    module[f"pass_{scalar}"](a, v, a_out, v_out)
    assert_same_bits(a_out, a)
    assert_same_bits(v_out, v)
    targets = spy.Tensor.zeros(device, 37, scalar), spy.Tensor.zeros(device, 37, f"{scalar}3")
    module[f"pass_{scalar}"](
        spy.Tensor.from_numpy(device, a)[::-1],
        spy.Tensor.from_numpy(device, v, f"{scalar}3")[::-1],
        targets[0],
        targets[1][::-1],
    )
    assert_same_bits(targets[0].to_numpy(), a[::-1])
    assert_same_bits(targets[1].to_numpy(), v)


@pytest.mark.parametrize("scalar", ["int", "uint", "float"])
def test_matrices_and_arrays(device: spy.Device, module: spy.Module, scalar: str) -> None:
    dtype, tag = NUMPY_OF[scalar], NUMPY_OF[narrowest(device)]
    pool = extremes(scalar)
    flat = np.array([pool[k % len(pool)] for k in range(25)], dtype)
    m, x, q = flat[:6].reshape(2, 3), flat[6:9], flat[9:].reshape(4, 4)
    out = [np.zeros_like(m), np.zeros_like(x), np.zeros_like(q), np.zeros((), tag)]
    module[f"more_{scalar}"](m, 77, x, q, *out)
    for got, expected in zip(out, (m, x, q, tag.type(77)), strict=True):
        assert_same_bits(got, np.asarray(expected))


def test_python_numbers_of_64_bits(module: spy.Module) -> None:
    for value in (2**63 - 1, -(2**63), 0x0123456789ABCDEF):
        out, vector = np.zeros((), np.int64), np.zeros(3, np.int64)
        module.pass_int64_t(value, [value, 1, -value - 1], out, vector)
        assert out[()] == value and vector.tolist() == [value, 1, -value - 1]
    out, vector = np.zeros((), np.uint64), np.zeros(3, np.uint64)
    module.pass_uint64_t(2**64 - 1, np.uint64(2**63), out, vector)
    assert out[()] == 2**64 - 1 and vector.tolist() == [2**63] * 3


def test_doubles_keep_all_their_bits(module: spy.Module) -> None:
    out, vector = np.zeros(()), np.zeros(3)
    module.pass_double(0.1, [1e300, 5e-324, np.pi], out, vector)
    assert out[()] == 0.1 and vector.tolist() == [1e300, 5e-324, np.pi]


def test_shapes_and_strides_of_whole_arrays(device: spy.Device, module: spy.Module) -> None:
    a = np.arange(3 * 5 * 7, dtype=NUMPY_OF[narrowest(device)]).reshape(3, 5, 7)
    b = np.arange(12, dtype=np.int64).reshape(3, 4) << 33
    for left, right in ((a, b), (a[:, ::-1], b[::-1, ::2]), (a.transpose(2, 1, 0)[:, :, ::-1], b.T)):
        index = (1, 2, min(3, left.shape[2] - 1))
        constant = 9 + int(left[index]) * 1000000 + int(right[1, 1])
        expected = [left.shape[d] * 1000 + right.shape[d % 2] * 10 + constant for d in range(3)]
        np.testing.assert_array_equal(module.shapes(left, right, [0, 1, 2], 9, index[2]), expected)
