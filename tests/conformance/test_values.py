"""Arguments that are neither numbers nor arrays: enums, pointers, cells to write to, vectors with their types."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import narrowest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import every_device, needs, one_device

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
enum Color { Red, Green = 5, Blue }
enum class Small : NARROWEST { A = 1, B = 250 }
struct Paint { Color color; float amount; Small small; }

int code(Color c) { return int(c) + 1000; }
Color next(Color c) { return c == Color.Red ? Color.Green : Color.Blue; }
int small(Small s) { return int(s); }
int plus(int a, int b) { return a + b; }
float mix(Paint p) { return 100 * int(p.color) + p.amount + int(p.small); }
Paint recolor(Paint p, Color c) { p.color = c; return p; }
void reset(inout Color c, out Small s) { s = c == Color.Red ? Small.A : Small.B; c = Color.Blue; }

float at(float *p, int k) { return p[k]; }
void put(float *p, int k, float v) { p[k] = v; }
uint64_t address(float *p) { return uint64_t(p); }

void divide(int a, int b, out int quotient, out int remainder) { quotient = a / b; remainder = a % b; }
void grow(inout float x) { x *= 2; }
void turn(inout float3 v) { v = v.yzx; }
void fill(out float x[3], out float2x2 m) { x = { 1, 2, 3 }; m = float2x2(1, 2, 3, 4); }
int64_t count(inout int64_t n, inout NARROWEST small, inout bool on)
{
    n += 1; small += 1; on = !on;
    return n;
}
T same<T>(T x) { return x; }

float3 cross3(float3 a, float3 b) { return cross(a, b); }
float4x4 transposed(float4x4 m) { return transpose(m); }
bool3 negate(bool3 b) { return !b; }
int2 swap(int2 v) { return v.yx; }
int of(float3 v) { return 3; }
int of(float4 v) { return 4; }
int of(int3 v) { return 30; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_values", SLANG, defines={"NARROWEST": narrowest(device)})


class Named(enum.Enum):
    Green = "green"
    Blue = object()


class Numbered(enum.IntEnum):
    FIVE = 5
    SIX = 6


# Enums.


def test_enums_of_a_module(module: spy.Module) -> None:
    assert issubclass(module.Color, enum.IntEnum)
    assert {c.name: c.value for c in module.Color} == {"Red": 0, "Green": 5, "Blue": 6}
    assert {c.name: c.value for c in module.Small} == {"A": 1, "B": 250}


def test_one_case(module: spy.Module) -> None:
    for value in (5, "Green", module.Color.Green, Numbered.FIVE, Named.Green, np.int32(5), np.uint8(5)):
        assert module.code(value) == 1005, value
    for value, expected in (("Blue", 1006), ("Red", 1000)):
        assert module.code(value) == expected
    # A number need not be a case, as in Slang.
    assert module.code(77) == 1077
    assert module.small("B") == 250 and module.small(module.Small.A) == 1


def test_many_cases(device: spy.Device, module: spy.Module) -> None:
    codes = np.array([0, 5, 6, 5], np.int32)
    np.testing.assert_array_equal(module.code(codes), codes + 1000)
    np.testing.assert_array_equal(module.code([0, 5]), [1000, 1005])
    tensor = spy.Tensor.from_numpy(device, codes)
    changed = module.next(tensor)
    assert type(changed) is spy.Tensor and changed.dtype.name == "Color"
    np.testing.assert_array_equal(changed.to_numpy(), [5, 6, 6, 6])
    # What came as a result goes in as an argument.
    np.testing.assert_array_equal(module.code(changed).to_numpy(), [1005, 1006, 1006, 1006])
    assert module.next("Red") == module.Color.Green


def test_enums_in_structs(device: spy.Device, module: spy.Module) -> None:
    assert module.mix({"color": "Green", "amount": 2, "small": "A"}) == 503.0
    np.testing.assert_array_equal(module.mix((np.array([0, 6]), 2, module.Small.B)), [252, 852])
    data = np.zeros(
        3, np.dtype([("color", "i4"), ("amount", "f4"), ("small", NUMPY_OF[narrowest(device)])], align=True)
    )
    data["color"], data["amount"], data["small"] = [0, 5, 6], [1, 2, 3], [1, 250, 1]
    tensor = spy.Tensor.from_numpy(device, data, module.Paint)
    np.testing.assert_array_equal(module.mix(tensor).to_numpy(), [2, 752, 604])
    got = module.recolor(data, "Blue")
    np.testing.assert_array_equal(got["color"], [6, 6, 6])
    np.testing.assert_array_equal(got["small"], [1, 250, 1])


def test_enums_written_to(device: spy.Device, module: spy.Module) -> None:
    c, s = np.array([0, 5], np.int32), np.zeros(2, NUMPY_OF[narrowest(device)])
    module.reset(c, s)
    np.testing.assert_array_equal(c, [6, 6])
    np.testing.assert_array_equal(s, [1, 250])


def test_a_case_is_an_int_to_an_int(module: spy.Module) -> None:
    assert module.plus(module.Color.Green, Numbered.SIX) == 11
    assert module.same(module.Color.Green) == 5


# Pointers.


@needs("pointers")
def test_pointers(device: spy.Device, module: spy.Module) -> None:
    tensor = spy.Tensor.from_numpy(device, np.arange(12, dtype=np.float32).reshape(3, 4))
    buffer = spy.NDBuffer(device, "float", 5)
    buffer.from_numpy(np.arange(5))
    k = np.array([0, 3, 1], np.int32)
    np.testing.assert_array_equal(module.at(buffer, k).to_numpy(), [0, 3, 1])
    np.testing.assert_array_equal(module.at(tensor, k + 4).to_numpy(), [4, 7, 5])
    # A row of it begins where its address says; the address alone will do.
    np.testing.assert_array_equal(module.at(tensor[2], k).to_numpy(), [8, 11, 9])
    np.testing.assert_array_equal(module.at(tensor[1].address, k), [4, 7, 5])
    assert module.put(tensor, k, [50, 51, 52]) is None
    expected = np.arange(12, dtype=np.float32)
    expected[k] = [50, 51, 52]
    np.testing.assert_array_equal(tensor.to_numpy().ravel(), expected)
    assert module.address(2**63 + 8) == 2**63 + 8
    assert module.address(0) == 0


# Cells.


@every_device
def test_cells(module: spy.Module) -> None:
    q, r = spy.intRef(), spy.ValueRef()
    assert module.divide(17, 5, q, r) is None
    assert (q.value, r.value) == (3, 2) and type(q.value) is int
    module.divide(29, 5, q, r)
    assert (q.value, r.value) == (5, 4)
    x = spy.floatRef(1.5)
    for expected in (3.0, 6.0, 12.0):
        module.grow(x)
        assert x.value == expected and type(x.value) is float
    v = spy.ValueRef([1, 2, 3])
    module.turn(v)
    module.turn(v)
    assert v.value.tolist() == [3, 1, 2]
    a, m = spy.ValueRef(), spy.ValueRef()
    module.fill(a, m)
    assert a.value.tolist() == [1, 2, 3] and m.value.tolist() == [[1, 2], [3, 4]]


def test_cells_of_every_width(module: spy.Module) -> None:
    n, small, on = spy.ValueRef(2**40), spy.ValueRef(254), spy.ValueRef(True)
    assert module.count(n, small, on) == 2**40 + 1
    assert (n.value, small.value, on.value) == (2**40 + 1, 255, False)


def test_cells_to_read_from(module: spy.Module) -> None:
    cell = spy.ValueRef(3)
    assert module.plus(cell, 4) == 7
    cell.value = 5
    assert module.plus(cell, spy.intRef(6)) == 11
    assert module.same(spy.floatRef(2.5)) == 2.5
    v = spy.ValueRef([1, 0, 0])
    module.turn(v)
    np.testing.assert_array_equal(module.cross3(v, [1, 0, 0]), np.cross([0, 0, 1], [1, 0, 0]))
    assert repr(spy.intRef(4)) == "ValueRef(4)"


# Vectors and matrices that know their Slang types.


@every_device
def test_vectors(module: spy.Module) -> None:
    v = spy.float3(1, 2, 3)
    assert (v.x, v.y, v.z) == (1, 2, 3) and v.shape == (3,) and v.dtype == np.float32
    assert repr(v) == "float3([1., 2., 3.])"
    np.testing.assert_array_equal(spy.float3(7), [7, 7, 7])
    np.testing.assert_array_equal(spy.float3([4, 5, 6]), [4, 5, 6])
    np.testing.assert_array_equal(module.cross3(v, spy.float3(0, 0, 1)), np.cross(v, [0, 0, 1]))
    many = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(module.cross3(v, many), np.cross(np.asarray(v), many))
    np.testing.assert_array_equal(module.negate(spy.bool3(True, False, True)), [False, True, False])
    np.testing.assert_array_equal(module.swap(spy.int2(4, -9)), [-9, 4])
    m = spy.float4x4(np.arange(16))
    np.testing.assert_array_equal(module.transposed(m), np.arange(16).reshape(4, 4).T)


def test_arithmetic_keeps_a_vectors_type(module: spy.Module) -> None:
    a = spy.float3(1, 2, 3)
    for v in (a + 1, 2 * a, a * a, -a, np.sin(a)):
        assert type(v) is spy.float3 and module.of(v) == 3
    assert type(a[:2]) is np.ndarray
    assert isinstance(a.sum(), np.floating) and a.sum() == 6
    assert module.of(spy.float4(0)) == 4
    assert module.of(spy.int3(1, 2, 3)) == 30


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: spy.float3(1, 2), "float3: (1, 2) does not make a float3 (cannot reshape array of size 2 into "),
        (lambda: spy.uint2(-1, 3), "uint2: (-1, 3) does not make a uint2 (uint does not hold them)."),
        (lambda: spy.int2(1.5, 3), "int2: (1.5, 3) does not make a int2 (int does not hold them)."),
        (lambda: spy.int2(2**31, 3), "int2: (2147483648, 3) does not make a int2 (int does not hold them)."),
        (lambda: spy.bool2(2, 0), "bool2: (2, 0) does not make a bool2 (bool does not hold them)."),
        (lambda: spy.float3("x"), "float3: 'x' does not make a float3 ("),
        (lambda: spy.float2x2([1, 2, 3]), "float2x2: [1, 2, 3] does not make a float2x2 ("),
    ],
)
def test_numbers_that_make_no_vector(make: Any, message: str) -> None:
    with pytest.raises(spy.BindError) as caught:
        make()
    assert str(caught.value).startswith(message)


# Other libraries' arrays, by protocol.


class ByInterface:
    """Has NumPy's protocol alone."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.__array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.__array.__array_interface__


class ByDlpack:
    """Has DLPack's protocol alone; ``device`` is its number for where the memory is, 1 for the host."""

    def __init__(self, array: npt.NDArray[Any], device: int = 1) -> None:
        self.__array = array
        self.__device = device

    def __dlpack__(self, **options: Any) -> Any:
        if self.__device != 1:
            raise BufferError("the memory is on a GPU")
        return self.__array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.__device, 0


@pytest.mark.parametrize("kind", [ByInterface, ByDlpack, memoryview])
def test_arrays_of_other_libraries(device: spy.Device, kind: Any) -> None:
    text = "float add(float a, float b) { return a + b; } float3 twice(float3 v) { return 2 * v; }"
    module = spy.Module.load_from_source(device, "test_protocols", text)
    a, v = np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(module.add(kind(a), 1.0), a + 1)
    np.testing.assert_array_equal(module.add(kind(a), kind(a)), a + a)
    np.testing.assert_array_equal(module.twice(kind(v)), 2 * v)


def test_an_array_on_another_gpu_is_refused(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_elsewhere", "float same(float a) { return a; }")
    with pytest.raises(spy.BindError) as error:
        module.same(ByDlpack(np.ones(3, np.float32), 7))
    assert str(error.value) == (
        f"float same(float a): argument 'a' is a {__name__}.ByDlpack on a device of DLPack's type 7; {device!r} does "
        "not work there; bring it to the host first."
    )


# Numbers that a type does not hold.


@needs("half")
def test_a_number_beyond_a_half(device: spy.Device) -> None:
    text = """
    struct Thin { half x; float y; }
    float wide(half x) { return x; }
    float sum(half2 v) { return v.x + v.y; }
    float thin(Thin t) { return t.x + t.y; }
    """
    module = spy.Module.load_from_source(device, "test_beyond_half", text)
    for x in (65504.0, -65504.0, np.nan, np.inf, -np.inf, 7, True, np.float64(-65504), np.float16(np.inf)):
        np.testing.assert_equal(module.wide(x), float(np.float16(x)))
    # A driver may leave the rounding to a half out. vkd3d-proton writes OpQuantizeToF16, which makes too large
    # numbers infinite; NVIDIA's driver takes all beyond 65504 for such.
    assert module.wide(65519.0) in ((65504, 65519, np.inf) if device.name == "d3d12" else (65504, 65519))
    # The last but one is infinite in two steps, by way of a float; no NumPy number holds the last.
    twice = np.nextafter(65520.0, 0)
    with np.errstate(over="ignore"):
        assert np.float16(twice) == 65504 and np.isinf(np.float16(np.float32(twice)))
    for x in (65520.0, -65520.0, 70000, 1e30, np.float64(1e300), np.int64(-(2**40)), twice, 10**400):
        with pytest.raises(spy.BindError) as refusal:
            module.wide(x)
        shown = "a whole number of 1329 bits" if type(x) is int and x > 10**100 else x
        message = f"float wide(half x): argument 'x' is {shown}, which does not fit 'half' (-65504 to 65504)."
        assert str(refusal.value) == message
    for call, name in (
        (lambda: module.sum([1.0, 7e4]), "argument 'v' is 70000.0, which does not fit 'half2'"),
        (lambda: module.sum(np.array([7e4, np.inf])), "argument 'v' is 70000.0, which does not fit 'half2'"),
        (lambda: module.sum.map("half2")(1e5), "argument 'v' is 100000.0, which does not fit 'half2'"),
        (lambda: module.thin({"x": 7e4, "y": 0.0}), "argument 't.x' is 70000.0, which does not fit 'half'"),
    ):
        with pytest.raises(spy.BindError) as refusal:
            call()
        assert name in str(refusal.value)
    # A call that was made before is refused as well, and one after it works.
    assert module.sum([1.0, 2.0]) == 3
    with pytest.raises(spy.BindError, match="does not fit 'half2'"):
        module.sum([1.0, 7e4])
    assert module.sum([1.0, 4.0]) == 5


@needs("double")
def test_the_number_that_is_named_is_the_one_that_does_not_fit(device: spy.Device) -> None:
    text = "float f(double a, float b, float c) { return float(a) + b + c; }"
    module = spy.Module.load_from_source(device, "test_beyond_float", text)
    assert module.f(1.0, np.inf, 2.0) == np.inf
    for x in (1e39, -1e39, 10**39):
        with pytest.raises(spy.BindError) as refusal:
            module.f(1e300, -np.inf, x)
        assert f"argument 'c' is {x!r}, which does not fit 'float'." in str(refusal.value)


@needs("half")
def test_a_cell_that_is_too_small_for_its_number(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "cells", "void twice(inout float x) { x *= 2; }")
    with pytest.raises(spy.BindError, match="is 1e\\+300, which does not fit 'float'"):
        module.twice(spy.ValueRef(1e300))
    cell = spy.ValueRef(float("inf"))
    module.twice(cell)
    assert cell.value == float("inf")
    halves = spy.Module.load_from_source(device, "half_cells", "void twice(inout half x) { x *= 2; }")
    with pytest.raises(spy.BindError, match="is 70000\\.0, which does not fit 'half'"):
        halves.twice(spy.ValueRef(70000.0))
