"""Which function a call means: overloads, generic parameters, interfaces and dynamic dispatch, defaults, keywords."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _gaps import narrowest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import deep, every_device, needs, one_device, sampled

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;

// Overloads tell by their numbers which of them ran.
int kind(int x) { return 1; }
int kind(float x) { return 2; }
int kind(float3 x) { return 3; }
int kind(bool x) { return 4; }
int kind(uint x) { return 5; }
int kind(double x) { return 6; }
int two(float a, int b) { return 1; }
int two(int a, float b) { return 2; }
int whole(float x) { return 1; }
int whole(Tensor<float, 1> x) { return 2; }
int arity(float a) { return 1; }
int arity(float a, float b, float c = 0) { return 2; }
struct P { float a; }
struct Q { float a; }
struct R { float a; float b; }
int which(P p) { return 1; }
int which(Q q) { return 2; }
int which(R r) { return 3; }
int which(float x) { return 4; }
int plain_first(float x) { return 1; }
int plain_first<T>(T x) { return 2; }
float defaults(float a, float b = 2, float c = 3) { return a * 100 + b * 10 + c; }

T same<T>(T x) { return x; }
T plus<T : __BuiltinArithmeticType>(T a, T b) { return a + b; }
T pick<T, U>(T a, U b) { return a; }
T first<T, let N : int>(T x[N]) { return x[0]; }
int count<T, let N : int>(T x[N]) { return N; }
vector<T, N> reversed<T : __BuiltinArithmeticType, let N : int>(vector<T, N> v)
{
    vector<T, N> r;
    for (int k = 0; k < N; ++k)
        r[k] = v[N - 1 - k];
    return r;
}
float sum<let N : int>(float x[N])
{
    float s = 0;
    for (int k = 0; k < N; ++k)
        s += x[k];
    return s;
}
T corner<T : IElement, let N : int>(Tensor<T, N> t)
{
    int last[N];
    for (int k = 0; k < N; ++k)
        last[k] = t.shape[k] - 1;
    return t.load(last);
}
struct Box<T : __BuiltinArithmeticType> { T v; T get() { return v + T(1); } }
float unbox(Box<float> b) { return b.v; }

interface IShape { float area(); float scaled(float by); }
struct Square : IShape
{
    float side;
    float area() { return side * side; }
    float scaled(float by) { return side * by; }
}
struct Disc : IShape
{
    float radius; int n;
    float area() { return 3 * radius * radius; }
    float scaled(float by) { return n * radius * by; }
}
struct NoShape { float side; }
float area_of(IShape s) { return s.area(); }
float twice_area<S : IShape>(S s) { return 2 * s.area(); }
float both<S : IShape, T : IShape>(S s, T t, float by) { return s.area() + t.scaled(by); }

interface IOp { float apply(float x); }
struct AddOp : IOp { float k; float apply(float x) { return x + k; } }
struct MulOp : IOp { float k; float apply(float x) { return x * k; } }
float apply(int op, float k, float x) { return createDynamicObject<IOp, float>(op, k).apply(x); }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_generics", SLANG)


# Overloads.


@sampled(5)
@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1),
        (2.5, 2),
        (True, 4),
        (spy.float3(1), 3),
        ([1, 2, 3], 3),
        (np.float32(3), 2),
        (np.float64(3), 6),
        (np.int32(3), 1),
        (np.uint32(3), 5),
        (np.bool_(True), 4),
        (np.array([1, 2], np.int32), 1),
        (np.array([1, 2], np.uint32), 5),
        (np.array([1.0, 2.0]), 6),
        (np.array([True]), 4),
        (np.ones((2, 3), np.float32), 3),
        (np.ones(3), 3),
    ],
    ids=repr,
)
def test_the_overload_that_fits_best(module: spy.Module, value: Any, number: int) -> None:
    assert np.all(np.asarray(module.kind(value)) == number)


def test_device_arrays_choose_by_their_element(device: spy.Device, module: spy.Module) -> None:
    for dtype, number in (("int", 1), ("float", 2), ("float3", 3), ("bool", 4), ("uint", 5), ("double", 6)):
        result = module.kind(spy.Tensor.zeros(device, 2, dtype))
        np.testing.assert_array_equal(result.to_numpy(), [number, number])


def test_conversions_count_argument_by_argument(module: spy.Module) -> None:
    assert module.two(1.5, 2) == 1
    assert module.two(1, 2.5) == 2
    assert module.two.map("float", "int")(1, 2) == 1
    assert module.two.map(a="int", b="float")(1, 2) == 2
    assert module.two.map(b="float")(a=1, b=2) == 2


def test_a_whole_container_before_elements(device: spy.Device, module: spy.Module) -> None:
    assert np.asarray(module.whole(spy.Tensor.zeros(device, 3))) == 2
    # Rows leave one dimension to run along, elements two.
    np.testing.assert_array_equal(module.whole(np.zeros((2, 3))), [2, 2])
    assert module.whole(1) == 1


def test_the_number_of_arguments_counts(module: spy.Module) -> None:
    assert module.arity(1) == 1
    assert module.arity(1, 2) == 2
    assert module.arity(1, c=2, b=3) == 2


@needs("double")
def test_a_plain_function_before_a_generic_one(module: spy.Module) -> None:
    assert module.plain_first(1.5) == 1
    assert module.plain_first(True) == 2
    np.testing.assert_array_equal(module.plain_first(np.arange(2, dtype=np.float32)), [1, 1])
    np.testing.assert_array_equal(module.plain_first(np.arange(2.0)), [2, 2])


def test_structs_choose(device: spy.Device, module: spy.Module) -> None:
    assert module.which({"a": 1, "b": 2}) == 3
    assert module.which({"_type": "Q", "a": 1}) == 2
    assert module.which(module.P(a=1)) == 1
    assert module.which.map("Q")({"a": 1}) == 2
    assert module.which.map(module.P)({"a": 1}) == 1
    assert module.which(1) == 4
    np.testing.assert_array_equal(module.which(spy.Tensor.zeros(device, 2, module.Q)).to_numpy(), [2, 2])


def test_default_arguments_and_keywords(module: spy.Module) -> None:
    assert module.defaults(1) == 123.0
    assert module.defaults(1, 5) == 153.0
    assert module.defaults(1, 5, 7) == 157.0
    assert module.defaults(b=5, a=1) == 153.0
    assert module.defaults(1, c=7, b=5) == 157.0
    np.testing.assert_array_equal(module.defaults(a=[1, 2], b=np.array([[5], [6]])), [[153, 253], [163, 263]])


# Generics.


@needs(lambda case: ["uint8_t"] if case["dtype"] == "u1" else [])
@pytest.mark.parametrize("dtype", ["i2", "i8", "u1", "f8", "?"])
def test_the_type_is_the_arrays(module: spy.Module, dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    result = module.same(x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, x)


def test_the_type_is_the_values(device: spy.Device, module: spy.Module) -> None:
    assert module.same(3) == 3 and type(module.same(3)) is int
    assert module.same(2.5) == 2.5 and module.same(True) is True
    # A NumPy scalar keeps its width: a float would lose digits.
    assert module.same(np.float64(1 / 3)) == 1 / 3
    assert module.same(np.int64(2**40)) == 2**40
    np.testing.assert_array_equal(module.same(spy.float3(1, 2, 3)), [1, 2, 3])
    assert module.same({"_type": "P", "a": 4}) == {"a": 4.0}
    tensor = spy.Tensor.from_numpy(device, np.arange(6, dtype=np.float32).reshape(2, 3), "float3")
    result = module.same(tensor)
    assert result.dtype.name == "float3" and result.shape == (2,)
    structs = spy.Tensor.zeros(device, 2, module.R)
    assert module.same(structs).dtype.name == "R"


def test_arrays_decide_before_numbers(device: spy.Device, module: spy.Module) -> None:
    for dtype in ("i2", "f8", NUMPY_OF[narrowest(device)]):
        x = np.arange(3).astype(dtype)
        for result in (module.plus(x, 2), module.plus(2, x)):
            assert result.dtype == x.dtype
            np.testing.assert_array_equal(result, x + 2)
    assert module.plus(1, 2.5) == 3.5 and module.plus(2.5, 1) == 3.5
    assert module.pick(1, 2.5) == 1 and type(module.pick(1, 2.5)) is int


def test_sizes_are_inferred(module: spy.Module) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(module.sum(x), x.sum(1))
    assert module.count([1, 2, 3]) == 3
    assert module.first([4, 5]) == 4
    np.testing.assert_array_equal(module.first(x.astype("f8")), [0, 4])
    np.testing.assert_array_equal(module.reversed(x.astype("i4")), x[:, ::-1])
    np.testing.assert_array_equal(module.reversed(spy.float2(1, 2)), [2, 1])


def test_whole_containers_of_any_element_and_rank(device: spy.Device, module: spy.Module) -> None:
    for dtype, shape in (("int", (2, 3)), ("double", (4,))):
        host = np.arange(np.prod(shape)).reshape(shape)
        result = module.corner(spy.Tensor.from_numpy(device, host, dtype))
        assert result.dtype.name == dtype and result.shape == ()
        assert result.to_numpy() == host[-1, ...].flat[-1]


def test_generic_arguments_by_name(device: spy.Device, module: spy.Module) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(module["same<float3>"](x), x)
    assert module[f"same<{narrowest(device)}>"](200) == 200
    assert module["sum<2>"]([1, 2]) == 3.0
    np.testing.assert_array_equal(module["reversed<float, 3>"](x), x[:, ::-1])
    assert module["same<int>"] is module["same<int>"]
    assert str(module["plus<float>"].overloads[0]) == "float plus<float>(float a, float b)"


def test_generic_arguments_by_map(module: spy.Module) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert "same<float3>" in module.same.map("float3").source(x)
    assert "same<float>" in module.same.source(x)
    np.testing.assert_array_equal(module.same.map("float3")(x), x)
    assert "same<float3>" in module.same.map((0,)).source(x)
    np.testing.assert_array_equal(module.same.map((0,))(x), x)
    assert module.same.map(module.P)({"a": 2}) == {"a": 2.0}
    np.testing.assert_array_equal(module.same.map(x="double")([1, 2]), np.array([1, 2], "f8"))


@every_device
def test_generic_structs(device: spy.Device, module: spy.Module) -> None:
    box = module["Box<int>"]
    assert box.get({"v": 4}) == 5
    data = np.zeros(3, [("v", "i4")])
    data["v"] = [7, 8, 9]
    tensor = spy.Tensor.from_numpy(device, data, box)
    np.testing.assert_array_equal(box.get(tensor).to_numpy(), [8, 9, 10])
    assert module.unbox({"v": 3}) == 3.0
    assert module.unbox(module["Box<float>"](v=4)) == 4.0
    np.testing.assert_array_equal(module.same(tensor).to_numpy()["v"], [7, 8, 9])


# Interfaces.


@deep
@every_device
def test_interfaces(device: spy.Device, module: spy.Module) -> None:
    sides = np.arange(4, dtype=np.float32)
    discs = np.zeros(3, [("radius", "f4"), ("n", "i4")])
    discs["radius"], discs["n"] = [1, 2, 3], [1, 1, 2]
    tensor = spy.Tensor.from_numpy(device, discs, module.Disc)
    for area, factor in ((module.area_of, 1), (module.twice_area, 2)):
        assert area({"_type": "Square", "side": 3}) == 9 * factor
        assert area({"_type": module.Disc, "radius": 2, "n": 0}) == 12 * factor
        assert area(module.Square(5)) == 25 * factor
        np.testing.assert_array_equal(area({"_type": "Square", "side": sides}), sides**2 * factor)
        np.testing.assert_array_equal(area(tensor).to_numpy(), [3 * factor, 12 * factor, 27 * factor])
        instances = spy.InstanceList(module.Square, {"side": sides})
        np.testing.assert_array_equal(area(instances), sides**2 * factor)


def test_two_interfaces_in_one_call(device: spy.Device, module: spy.Module) -> None:
    square = {"_type": "Square", "side": np.arange(3, dtype=np.float32)[:, None]}
    disc = {"_type": "Disc", "radius": np.array([1, 2], np.float32), "n": 3}
    expected = np.arange(3)[:, None] ** 2 + 3 * np.array([1, 2]) * 10
    np.testing.assert_array_equal(module.both(square, disc, 10), expected)
    # The other way round it is another function.
    expected = 3 * np.array([1, 2]) ** 2 + np.arange(3)[:, None] * 10
    np.testing.assert_array_equal(module.both(disc, square, 10), expected)


def test_dynamic_dispatch_by_numbers_in_the_data(device: spy.Device, module: spy.Module) -> None:
    op = np.array([0, 1, 1, 0], np.int32)
    k, x = np.array([1, 2, 3, 4], np.float32), np.array([10, 20, 30, 40], np.float32)
    expected = np.where(op == 0, x + k, x * k)
    apply = module.apply.type_conformances(("IOp", "AddOp", 0), ("IOp", "MulOp", 1))
    np.testing.assert_array_equal(apply(op, k, x), expected)
    np.testing.assert_array_equal(
        module.apply.type_conformances(("IOp", "AddOp"), ("IOp", "MulOp"))(op, k, x), expected
    )
    other = module.apply.type_conformances(("IOp", "AddOp", 1), ("IOp", "MulOp", 0))
    np.testing.assert_array_equal(other(op, k, x), np.where(op == 1, x + k, x * k))
    tensor = spy.Tensor.from_numpy(device, x)
    np.testing.assert_array_equal(apply(op, k, tensor).to_numpy(), expected)
