"""Calls of every kind of Slang function, checked against NumPy: types, results, parameters, overloads."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import narrowest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import needs, sampled

SLANG = """
#define SCALAR(T)                                                                     \\
    T add_##T(T a, T b) { return T(a + b); }                                          \\
    vector<T, 3> turn_##T(vector<T, 3> v, T s) { return vector<T, 3>(v.z, s, v.x); }
SCALAR(int8_t) SCALAR(int16_t) SCALAR(int) SCALAR(int64_t)
SCALAR(uint8_t) SCALAR(uint16_t) SCALAR(uint) SCALAR(uint64_t)
#ifdef HALF
SCALAR(half)
#endif
SCALAR(float) SCALAR(double)
bool add_bool(bool a, bool b) { return a != b; }
bool3 turn_bool(bool3 v, bool s) { return bool3(v.z, s, v.x); }

float2 swap2(float2 v) { return v.yx; }
float4 swap4(float4 v) { return v.wzyx; }
float lengthen(float3 a, float3 b, float s) { return dot(a, b) * s; }
float3x2 flip(float2x3 m) { return transpose(m); }
float2 apply(float2x3 m, float3 v) { return mul(m, v); }
float4x4 plus(float4x4 a, float4x4 b) { return a + b; }
bool2x3 swap_rows(bool2x3 m) { bool2x3 r; r[0] = m[1]; r[1] = m[0]; return r; }
float[4] reverse(float x[4]) { float y[4] = { x[3], x[2], x[1], x[0] }; return y; }
float total(float x[4]) { return x[0] + 10 * x[1] + 100 * x[2] + 1000 * x[3]; }

float scaled(float a, float b = 3, float c = 100) { return a * b + c; }
float overloaded(float a) { return a; }
float overloaded(float a, float b) { return a * 10 + b; }
float constant() { return 42; }
void divide(int a, int b, out int quotient, out int remainder) { quotient = a / b; remainder = a % b; }
void count_up(inout int x, int by) { x += by; }
int both(int a, inout int x, out float3 v) { x -= a; v = float3(x, a, 7); return x + a; }
void set_mask(float x, out bool positive) { positive = x > 0; }
float named(float in_, float out) { return in_ - out; }
float crowded(
    float count, float row, float shape, float i, float k, float index, float call, float thread, float address,
    float begin, float stop, float count_, float i_stride, float v_i, float p_i, float crowded)
{
    return count + 2 * row + 4 * shape + 8 * i + 16 * k + 32 * index + 64 * call + 128 * thread + 256 * address
        + 512 * begin + 1024 * stop + 2048 * count_ + 4096 * i_stride + 8192 * v_i + 16384 * p_i + 32768 * crowded;
}
float result(float x, inout float result) { result += x; return x * 2; }
float keyworded(float from, float lambda) { return from - lambda; }
"""
SCALARS = list(NUMPY_OF)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above; half only where there is one."""
    defines = {"HALF": 1} if "half" in device.caps.scalars else {}
    return spy.Module.load_from_source(device, "test_calls", SLANG, defines=defines)


@pytest.fixture(scope="module")
def add(module: spy.Module) -> spy.Function:
    """Addition of floats, the kernel most tests here share."""
    return module.add_float


def values(scalar: str, *shape: int) -> npt.NDArray[Any]:
    """Reproducible data over a scalar's whole range; floats are small whole numbers, exact in any order."""
    rng = np.random.default_rng(len(scalar) + sum(shape))
    dtype = NUMPY_OF[scalar]
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "f":
        return rng.integers(-64, 64, shape).astype(dtype)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


@needs("{scalar}")
@sampled(10)
@pytest.mark.parametrize("scalar", SCALARS)
def test_every_scalar_type_in_and_out(device: spy.Device, module: spy.Module, scalar: str) -> None:
    a, b = values(scalar, 13), values(scalar, 13)[::-1].copy()
    expected = a ^ b if scalar == "bool" else a + b
    add = module[f"add_{scalar}"]
    result = add(a, b)
    assert type(result) is np.ndarray and result.dtype == NUMPY_OF[scalar]
    np.testing.assert_array_equal(result, expected)
    tensor = add(spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b))
    assert tensor.dtype.name == scalar
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


@needs("{scalar}", lambda case: ["int8_t vectors"] if case["scalar"] == "int8_t" else [])
@sampled(5)
@pytest.mark.parametrize("scalar", SCALARS)
def test_every_scalar_type_in_vectors(device: spy.Device, module: spy.Module, scalar: str) -> None:
    v, s = values(scalar, 9, 3), values(scalar, 9)
    expected = np.stack([v[:, 2], s, v[:, 0]], axis=1)
    result = module[f"turn_{scalar}"](v, s)
    assert result.dtype == NUMPY_OF[scalar]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("n", [2, 4])
def test_vectors_of_other_widths(module: spy.Module, n: int) -> None:
    v = values("float", 6, n)
    np.testing.assert_array_equal(module[f"swap{n}"](v), v[:, ::-1])


def test_vectors_to_scalar(module: spy.Module) -> None:
    a, b, s = values("float", 7, 3), values("float", 7, 3), values("float", 7)
    np.testing.assert_array_equal(module.lengthen(a, b, s), (a * b).sum(1) * s)


def test_a_number_fills_a_vector(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.swap2(3.0), np.array([3, 3], np.float32))


def test_matrices(module: spy.Module) -> None:
    m, v = values("float", 5, 2, 3), values("float", 5, 3)
    np.testing.assert_array_equal(module.flip(m), m.transpose(0, 2, 1))
    np.testing.assert_array_equal(module.apply(m, v), np.einsum("nij,nj->ni", m, v))


def test_bool_matrices(device: spy.Device, module: spy.Module) -> None:
    m = values("bool", 5, 2, 3)
    np.testing.assert_array_equal(module.swap_rows(m), m[:, ::-1])
    np.testing.assert_array_equal(module.swap_rows(m[0]), m[0, ::-1])
    tensor = module.swap_rows(spy.Tensor.from_numpy(device, m, "bool2x3"))
    np.testing.assert_array_equal(tensor.to_numpy(), m[:, ::-1])


def test_a_matrix_by_value(module: spy.Module) -> None:
    m, v = values("float", 2, 3), values("float", 5, 3)
    np.testing.assert_array_equal(module.apply(m, v), v @ m.T)
    a, b = values("float", 4, 4), values("float", 3, 4, 4)
    np.testing.assert_array_equal(module.plus(a, b), a + b)


def test_arrays(device: spy.Device, module: spy.Module) -> None:
    x = values("float", 6, 4)
    np.testing.assert_array_equal(module.reverse(x), x[:, ::-1])
    np.testing.assert_array_equal(module.total(x), x @ np.array([1, 10, 100, 1000], np.float32))
    np.testing.assert_array_equal(module.reverse([1, 2, 3, 4]), np.array([4, 3, 2, 1], np.float32))
    np.testing.assert_array_equal(module.reverse(spy.Tensor.from_numpy(device, x)).to_numpy(), x[:, ::-1])


def test_numbers_give_a_number(module: spy.Module, add: spy.Function) -> None:
    result = add(1, 2.5)
    assert type(result) is float and result == 3.5
    assert type(module.add_int(2, np.int32(3))) is int
    assert module.add_bool(True, False) is True
    assert module.constant() == 42.0


def test_the_result_is_of_the_arguments_kind(device: spy.Device, add: spy.Function) -> None:
    a, b = values("float", 11), values("float", 11)
    tensor = spy.Tensor.from_numpy(device, a)
    ndbuffer = spy.NDBuffer(device, "float", 11)
    ndbuffer.from_numpy(b)
    for args, kind in [
        ((tensor, tensor), spy.Tensor),
        ((tensor, ndbuffer), spy.Tensor),
        ((tensor, b), spy.Tensor),
        ((ndbuffer, ndbuffer), spy.NDBuffer),
        ((ndbuffer, b), spy.NDBuffer),
        ((ndbuffer, 1.0), spy.NDBuffer),
        ((a, b), np.ndarray),
        ((a, 2), np.ndarray),
        (([1, 2], 2), np.ndarray),
    ]:
        result = add(*args)
        assert type(result) is kind, (args, type(result))
        np.testing.assert_array_equal(np.asarray(result), np.asarray(args[0]) + np.asarray(args[1]))


def test_the_result_as_asked_for(device: spy.Device, add: spy.Function) -> None:
    a, b = values("float", 11), values("float", 11)
    tensor = spy.Tensor.from_numpy(device, a)
    for asked, kind in [
        ("numpy", np.ndarray),
        ("tensor", spy.Tensor),
        ("ndbuffer", spy.NDBuffer),
        (np.ndarray, np.ndarray),
        (spy.Tensor, spy.Tensor),
        (spy.NDBuffer, spy.NDBuffer),
    ]:
        for left in (a, tensor):
            for result in (add(left, b, _result=asked), add(left, b, out=asked)):
                assert type(result) is kind
                np.testing.assert_array_equal(np.asarray(result), a + b)


def test_the_result_into_an_array(device: spy.Device, add: spy.Function) -> None:
    a, b = values("float", 11), values("float", 11)
    tensor = spy.Tensor.zeros(device, 11)
    ndbuffer = spy.NDBuffer(device, "float", 11)
    host = np.zeros(11, np.float32)
    left = spy.Tensor.from_numpy(device, a)
    for target in (tensor, ndbuffer, host):
        assert add(left, b, _result=target) is target
        np.testing.assert_array_equal(np.asarray(target), a + b)
        assert add(left, a, out=target) is target
        np.testing.assert_array_equal(np.asarray(target), a + a)


def test_the_result_into_part_of_an_array(device: spy.Device, add: spy.Function) -> None:
    a, b = values("float", 5), values("float", 5)
    expected = np.full((2, 10), -1, np.float32)
    expected[1, ::2] = a + b
    host = np.full((2, 10), -1, np.float32)
    add(a, b, _result=host[1, ::2])
    np.testing.assert_array_equal(host, expected)
    tensor = spy.Tensor.full(device, (2, 10), -1)
    add(a, b, _result=tensor[1, ::2])
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


def test_the_result_takes_part_in_the_call_shape(device: spy.Device, add: spy.Function) -> None:
    host = np.zeros((3, 4), np.float32)
    add(1, 2, _result=host)
    np.testing.assert_array_equal(host, np.full((3, 4), 3))


def test_a_function_named_out_parameter_keeps_it(module: spy.Module) -> None:
    assert module.named(5, out=3) == 2.0


def test_out_parameters(device: spy.Device, module: spy.Module) -> None:
    a, b = np.arange(17, dtype=np.int32), np.full(17, 3, np.int32)
    quotient, remainder = np.zeros(17, np.int32), np.zeros(17, np.int32)
    assert module.divide(a, b, quotient, remainder) is None
    np.testing.assert_array_equal(quotient, a // 3)
    np.testing.assert_array_equal(remainder, a % 3)
    q, r = spy.Tensor.zeros(device, 17, "int"), spy.NDBuffer(device, "int", 17)
    module.divide(spy.Tensor.from_numpy(device, a), 3, q, r)
    np.testing.assert_array_equal(q.to_numpy(), quotient)
    np.testing.assert_array_equal(r.to_numpy(), remainder)


@needs("negative remainders")
def test_negative_numbers_divide_towards_zero(module: spy.Module) -> None:
    a, b = np.arange(-20, 20, dtype=np.int32), np.full(40, 3, np.int32)
    b[::2] = -7
    quotient, remainder = np.zeros(40, np.int32), np.zeros(40, np.int32)
    module.divide(a, b, quotient, remainder)
    np.testing.assert_array_equal(quotient, np.trunc(a / b).astype(np.int32))
    np.testing.assert_array_equal(remainder, np.fmod(a, b))


def test_inout_parameters(device: spy.Device, module: spy.Module) -> None:
    x = np.arange(9, dtype=np.int32)
    module.count_up(x, 5)
    np.testing.assert_array_equal(x, np.arange(9) + 5)
    tensor = spy.Tensor.from_numpy(device, x)
    for _ in range(3):
        module.count_up(tensor, x)
    np.testing.assert_array_equal(tensor.to_numpy(), 4 * x)


def test_inout_of_strided_host_arrays(module: spy.Module) -> None:
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    expected = x.copy()
    expected.T[::2, ::-1] += 100
    module.count_up(x.T[::2, ::-1], 100)
    np.testing.assert_array_equal(x, expected)


def test_the_result_may_be_an_argument(device: spy.Device, add: spy.Function) -> None:
    a, b = values("float", 2000), values("float", 2000)
    tensor = spy.Tensor.from_numpy(device, a)
    add(tensor, b, _result=tensor)
    add(tensor, tensor, _result=tensor)
    np.testing.assert_array_equal(tensor.to_numpy(), 2 * (a + b))
    host = a.copy()
    add(host, b, _result=host)
    np.testing.assert_array_equal(host, a + b)


def test_result_out_and_inout_together(module: spy.Module) -> None:
    a, x, v = np.arange(6, dtype=np.int32), np.full(6, 10, np.int32), np.zeros((6, 3), np.float32)
    result = module.both(a, x, v)
    np.testing.assert_array_equal(result, np.full(6, 10))
    np.testing.assert_array_equal(x, 10 - a)
    np.testing.assert_array_equal(v, np.stack([10 - a, a, np.full(6, 7)], 1))


def test_out_of_bool(module: spy.Module) -> None:
    x = np.array([-1, 0, 2, np.nan, 3], np.float32)
    mask = np.zeros(5, np.bool_)
    module.set_mask(x, mask)
    np.testing.assert_array_equal(mask, x > 0)


def test_keyword_arguments(device: spy.Device, module: spy.Module) -> None:
    a, b = values("float", 8), values("float", 8)[::-1].copy()
    f = module.named
    expected = a - b
    left, right = spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b)
    np.testing.assert_array_equal(f(out=right, in_=left).to_numpy(), expected)
    np.testing.assert_array_equal(f(in_=right, out=left).to_numpy(), -expected)
    into = spy.Tensor.zeros(device, 8)
    assert f(out=right, in_=left, _result=into) is into
    np.testing.assert_array_equal(into.to_numpy(), expected)
    np.testing.assert_array_equal(f(in_=a, out=b), expected)
    np.testing.assert_array_equal(f(out=b, in_=a), expected)
    np.testing.assert_array_equal(f(a, out=b), expected)


def test_parameters_named_like_python_keywords(module: spy.Module) -> None:
    assert module.keyworded(5, 3) == 2.0
    assert module.keyworded(**{"lambda": 3, "from": 5}) == 2.0


@pytest.mark.parametrize("shape", [(8,), (3, 8)])
def test_parameters_named_like_parts_of_a_kernel(
    device: spy.Device, module: spy.Module, shape: tuple[int, ...]
) -> None:
    host = [np.full(shape, k % 3, np.float32) for k in range(16)]
    expected = sum(2**k * x for k, x in enumerate(host))
    tensors = [spy.Tensor.from_numpy(device, x) for x in host]
    # One that is stretched along rows makes the others strided.
    tensors[3] = spy.Tensor.from_numpy(device, host[3][..., :1])
    np.testing.assert_array_equal(module.crowded(*tensors).to_numpy(), expected)


def test_a_parameter_named_like_its_function(device: spy.Device, module: spy.Module) -> None:
    x, both = values("float", 8), spy.Tensor.ones(device, 8)
    np.testing.assert_array_equal(module.result(spy.Tensor.from_numpy(device, x), both).to_numpy(), x * 2)
    np.testing.assert_array_equal(both.to_numpy(), x + 1)


def test_default_arguments(module: spy.Module) -> None:
    a, b = values("float", 8), values("float", 8)
    np.testing.assert_array_equal(module.scaled(a), a * 3 + 100)
    np.testing.assert_array_equal(module.scaled(a, b), a * b + 100)
    np.testing.assert_array_equal(module.scaled(a, b, 7), a * b + 7)
    np.testing.assert_array_equal(module.scaled(b=b, a=a), a * b + 100)


def test_overloads_by_number_of_arguments(module: spy.Module) -> None:
    assert module.overloaded(4) == 4
    assert module.overloaded(4, 2) == 42


def test_lists_and_tuples(module: spy.Module, add: spy.Function) -> None:
    np.testing.assert_array_equal(add([1, 2, 3], (10, 20, 30)), np.array([11, 22, 33], np.float32))
    np.testing.assert_array_equal(add([[1.5], [2]], [1, 2]), np.array([[2.5, 3.5], [3, 4]], np.float32))
    np.testing.assert_array_equal(module.swap2((1, 2)), np.array([2, 1], np.float32))
    np.testing.assert_array_equal(module.swap2([(1, 2), (3, 4)]), np.array([[2, 1], [4, 3]], np.float32))
    scalar = narrowest(module.device)
    most = np.iinfo(NUMPY_OF[scalar]).max
    np.testing.assert_array_equal(
        module[f"add_{scalar}"]([1, most], 1), np.array([2, 0], NUMPY_OF[scalar]), strict=True
    )


def test_kinds_of_arrays_that_come_from_numpys(add: spy.Function, tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(9,))
    mapped[:] = values("float", 9)
    np.testing.assert_array_equal(add(mapped, 1), values("float", 9) + 1)
    pair = namedtuple("pair", "x y")
    np.testing.assert_array_equal(add(pair(1, 2), 1), np.array([2, 3], np.float32))


def test_host_data_converts_as_numpy_does(add: spy.Function) -> None:
    b = values("float", 12)
    for dtype in ("f8", "f2", "i4", "u1", "i8", ">f4", ">i2"):
        a = np.arange(12).astype(dtype)
        np.testing.assert_array_equal(add(a, b), np.arange(12, dtype=np.float32) + b)


def test_source_and_explain_run_nothing(module: spy.Module) -> None:
    x = np.zeros(4, np.int32)
    text = module.count_up.source(x, 1)
    assert "void _spy_element(_spy_Call _spy_call" in text and "count_up(" in text
    assert text in module.count_up.explain(x, 1)
    np.testing.assert_array_equal(x, 0)


def test_the_function_describes_itself(module: spy.Module) -> None:
    assert str(module.divide.overloads[0]) == "void divide(int a, int b, out int quotient, out int remainder)"
    assert "divide" in dir(module)
    assert module["divide"] is module.divide
