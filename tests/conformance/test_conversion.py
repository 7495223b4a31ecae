"""Host data becomes data of a Slang type without a loss, or is refused: shapes, kinds of numbers, ranges, fields.

A struct's value is put in every place that takes one; what is wrong with it is refused in each, in words that name
the field, and nothing is written.
"""

from __future__ import annotations

import dataclasses
import enum
import fractions
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

SLANG = """
enum Kind { A, B = 5 }
struct Inner { int n; bool on; }
struct Outer { int x; float y; Inner inner; float3 v; int pair[2]; Kind kind; }
struct Pair<let A : int, let B : int> { float a; }
uniform Outer whole;
float total(Outer o)
{
    return o.x + o.y + o.inner.n + (o.inner.on ? 100 : 0) + o.v.x + o.v.z + o.pair[1] + int(o.kind);
}
float of_uniform(float a) { return a + total(whole); }
void twice(inout Outer o) { o.x *= 2; }
float generic(Pair<12, 8> p) { return p.a; }
int sum_of(int a) { return a; }
void next(inout int n) { n += 1; }
"""
GOOD = {"x": 1, "y": 2.5, "inner": {"n": 3, "on": True}, "v": [4, 5, 6], "pair": [7, 8], "kind": "B"}
TOTAL = 1 + 2.5 + 3 + 100 + 4 + 6 + 8 + 5
# What is wrong, and what the message says of it.
WRONG: dict[str, tuple[Any, str]] = {
    "fraction into int": ({"x": 1.7}, "x"),
    "text into int": ({"x": "5"}, "x"),
    "NaN into int": ({"x": float("nan")}, "x"),
    "infinity into int": ({"x": np.inf}, "x"),
    "beyond an int": ({"x": 2**31}, "x"),
    "beyond 64 bits": ({"x": 2**64}, "x"),
    "NumPy float into int": ({"x": np.float32(2)}, "x"),
    "nothing into float": ({"y": None}, "y"),
    "complex into float": ({"y": 1j}, "y"),
    "Fraction": ({"y": fractions.Fraction(1, 2)}, "y"),
    "Decimal": ({"y": Decimal("0.5")}, "y"),
    "beyond a float": ({"y": 1e39}, "y"),
    "date": ({"y": np.datetime64("2020-01-01")}, "y"),
    "int into bool": ({"inner": {"n": 1, "on": 2}}, "on"),
    "inner fraction": ({"inner": {"n": 1.5, "on": True}}, "n"),
    "inner field missing": ({"inner": {"n": 1}}, "lacks on"),
    "inner field too many": ({"inner": {"n": 1, "on": True, "z": 1}}, "has z"),
    "inner type": ({"inner": {"n": 1, "on": True, "_type": "Outer"}}, "_type 'Outer'"),
    "inner is a number": ({"inner": 3}, "inner"),
    "short vector": ({"v": [1, 2]}, "v"),
    "text in a vector": ({"v": [1, 2, "3"]}, "v"),
    "fraction in an array": ({"pair": [1, 2.5]}, "pair"),
    "no such case": ({"kind": "C"}, "kind"),
    "type": ({"_type": "Inner"}, "_type 'Inner'"),
    "type that is no name": ({"_type": []}, "_type"),
    "cyclic": ({"v": (lambda a: a.append(a) or a)([])}, ""),  # type: ignore[func-returns-value]
}


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_conversion", SLANG)


def places(module: spy.Module, value: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Calls with one struct's value in each place that takes one."""
    fields = dataclasses.make_dataclass("Fields", [name for name in value if name != "_type"])
    row = namedtuple("row", [name for name in value if name != "_type"])  # type: ignore[misc]
    plain = {name: item for name, item in value.items() if name != "_type"}
    calls: dict[str, Callable[[], Any]] = {
        "dict": lambda: module.total(value),
        "list": lambda: module.total([GOOD, value])[1],
        "nested lists": lambda: module.total([[GOOD, value], [value, GOOD]])[0, 1],
        "cell": lambda: module.total(spy.ValueRef(value)),
        "written cell": lambda: module.twice(spy.ValueRef(value)),
        "uniform": lambda: module.of_uniform.set(whole=value)(0.0),
        "__slang_arg__": lambda: module.total(Held(value)),
        "again": lambda: (module.total([GOOD, GOOD]), module.total([GOOD, value]))[1][1],
    }
    if "_type" not in value:
        calls |= {
            "tuple": lambda: module.total(tuple(plain.values())),
            "named tuple": lambda: module.total(row(**plain)),
            "dataclass": lambda: module.total(fields(**plain)),
            "list of named tuples": lambda: module.total([row(**plain)])[0],
            "list of dataclasses": lambda: module.total([fields(**plain)])[0],
            "InstanceList": lambda: module.total(spy.InstanceList(module.Outer, plain)),
        }
    return calls


class Held:
    """An object that stands for another; it makes a new one each time that it is asked."""

    def __init__(self, value: Any) -> None:
        self.value, self.asked, self.updated = value, 0, None

    def get_this(self) -> Any:
        self.asked += 1
        return dict(self.value) if isinstance(self.value, dict) else self.value

    def update_this(self, value: Any) -> None:
        self.updated = value


def test_a_right_value_is_right_everywhere(module: spy.Module) -> None:
    for name, call in places(module, GOOD).items():
        assert call() in (TOTAL, None), name
    for tag in ("Outer", module.Outer, " Outer "):
        assert module.total({**GOOD, "_type": tag}) == TOTAL


@sampled(4)
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_is_refused_everywhere(module: spy.Module, case: str) -> None:
    change, told = WRONG[case]
    for name, call in places(module, {**GOOD, **change}).items():
        with pytest.raises(spy.SlangPyRtError) as caught:
            call()
        assert type(caught.value) in (spy.BindError, spy.ShapeError), name
        if "tuple" not in name or "type" not in case:
            assert told in str(caught.value), name
        assert " at 0x" not in str(caught.value), name
    assert module.total(GOOD) == TOTAL


def test_fields_on_a_device_have_no_place_in_a_list(device: spy.Device, module: spy.Module) -> None:
    with pytest.raises(spy.BindError, match="Tensor<float>"):
        module.total([{**GOOD, "y": spy.Tensor.zeros(device, 3)}])


def test_types_are_compared_as_types(module: spy.Module) -> None:
    for name in ("Pair<12,8>", "Pair<12, 8>", "Pair< 12 , 8 >"):
        assert module.generic({"_type": name, "a": 2}) == 2
    with pytest.raises(spy.BindError, match=r"_type 'Pair<12, 9>'; 'Pair<12, 8>' was expected"):
        module.generic({"_type": "Pair<12, 9>", "a": 2})


def test_an_enum_in_a_cell(module: spy.Module) -> None:
    cell = spy.ValueRef(dict(GOOD))
    module.twice(cell)
    assert cell.value["x"] == 2 and cell.value["kind"] == 5
    assert module.total(cell.value) == TOTAL + 1


class _Whole(enum.IntEnum):
    three = 3


NUMBERS: list[tuple[str, Any, Any]] = [
    ("int", True, 1),
    ("int", np.bool_(True), 1),
    ("int", np.array(3), 3),
    ("int", _Whole.three, 3),
    ("int", np.uint64(3), 3),
    ("int", np.uint64(2**31), None),
    ("int", -(2**31), -(2**31)),
    ("int", 2**31, None),
    ("int", 1.0, None),
    ("int", np.float64(1), None),
    ("uint", -1, None),
    ("uint", 2**32 - 1, 2**32 - 1),
    ("uint", np.int64(-1), None),
    ("int64_t", 2**63 - 1, 2**63 - 1),
    ("int64_t", 2**63, None),
    ("int64_t", 10**5000, None),
    ("int", [1, 2**31 - 1], [1, 2**31 - 1]),
    ("int", [1, 2**31], None),
    ("int", [2**64], None),
    ("int", [True, False], [1, 0]),
    ("int", [1, None], None),
    ("int", ["1"], None),
    ("int", [[1], [2, 3]], None),
    ("uint", [1, -1], None),
    ("int", np.array([1, 2**31]), None),
    ("int", np.array([1, 2**31 - 1]), [1, 2**31 - 1]),
    ("int16_t", np.array([1, 2**15], np.int32), None),
    ("int16_t", [1, 2**15], None),
    ("int16_t", np.array([1, -(2**15)], np.int64), [1, -(2**15)]),
    ("int", np.array([1.0]), None),
    ("int", np.array(["1"]), None),
    ("int", np.array([1], "M8[s]"), None),
    ("int", np.array([1], object), None),
    ("int", np.array([1j]), None),
]


@needs(lambda case: [case["case"][0]])
@sampled(5)
@pytest.mark.parametrize("case", NUMBERS, ids=[f"{k} {case[0]}" for k, case in enumerate(NUMBERS)])
def test_numbers(device: spy.Device, case: tuple[str, Any, Any]) -> None:
    name, value, expected = case
    function = spy.Module.load_from_source(device, f"test_conversion_{name}", f"{name} f({name} x) {{ return x; }}").f
    if expected is None:
        with pytest.raises(spy.BindError, match="argument 'x'"):
            function(value)
    else:
        np.testing.assert_array_equal(function(value), expected)


def test_a_float_array_that_a_float_does_not_hold(device: spy.Device, module: spy.Module) -> None:
    with pytest.raises(spy.BindError, match=r"holds 1e\+39"):
        spy.Tensor.from_numpy(device, np.array([1.0, np.inf, 1e39]), dtype="float")
    kept = spy.Tensor.from_numpy(device, np.array([1.0, np.inf, np.nan]), dtype="float")
    np.testing.assert_array_equal(kept.to_numpy(), np.array([1, np.inf, np.nan], np.float32))


SHAPES = [(3, 2), (6,), (1, 6), (2, 1), (1, 3), (3,), (1,), (), (2, 3, 1), (1, 2, 3), (2, 3, 3), (0,), (2, 4)]


@pytest.mark.parametrize("element", ["float", "int", "float3", "float[2]"])
def test_data_of_another_shape_is_refused(device: spy.Device, element: str) -> None:
    inner = {"float3": (3,), "float[2]": (2,)}.get(element, ())
    scalar = np.int32 if element == "int" else np.float32
    kept = np.arange(6 * max(1, *inner, 1), dtype=scalar).reshape(2, 3, *inner)
    arrays = [spy.NDBuffer(device, element, (2, 3)), spy.Tensor.empty(device, (2, 3), element)]
    for array in arrays:
        array.from_numpy(kept)
        for shape in [*SHAPES, *((*s, *inner) for s in SHAPES)]:
            if shape == kept.shape:
                continue
            for fill in (array.copy_from, array.from_numpy):
                with pytest.raises(spy.ShapeError, match="does not fill"):
                    fill(np.zeros(shape, scalar))
        np.testing.assert_array_equal(array.to_numpy(), kept)


def test_kinds_that_do_not_convert(device: spy.Device) -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]])
    wrong: dict[str, list[Any]] = {
        "int": [
            values * 1.0,
            values * 1j,
            values + 2**31,
            values.astype(str),
            values.astype("M8[s]"),
            values.astype(object),
        ],
        "bool": [values, values * 1.0],
        "uint": [values, -values, values.astype(np.float16)],
        "float": [values * 1j, values.astype(str), values * 1e300, values.astype("m8[s]")],
    }
    for element, data in wrong.items():
        for array in (spy.NDBuffer(device, element, (2, 3)), spy.Tensor.zeros(device, (2, 3), element)):
            array.clear()
            for value in data:
                with pytest.raises(spy.BindError):
                    array.copy_from(value)
            assert not array.to_numpy().any()
    with pytest.raises(spy.BindError, match=r"does not fit 'int'"):
        spy.Tensor.from_numpy(device, [2**40])
    with pytest.raises(spy.BindError, match="does not convert"):
        spy.Tensor.arange(device, 0.5, 3, dtype="int")
    for value in (1.5, "1", None, 2**31, float("nan")):
        with pytest.raises(spy.BindError, match=r"Tensor\.full: value"):
            spy.Tensor.full(device, 3, value, "int")


def test_data_of_other_libraries(device: spy.Device) -> None:
    torch = pytest.importorskip("torch")
    array = spy.NDBuffer(device, "float", (2, 3))
    array.copy_from(torch.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(array.to_numpy(), np.arange(6).reshape(2, 3))
    array.copy_from(spy.Tensor.ones(device, (2, 3)))
    assert (array.to_numpy() == 1).all()
    with pytest.raises(spy.ShapeError, match="does not fill"):
        array.copy_from(torch.zeros(3, 2))
    with pytest.raises(spy.BindError, match="gradient"):
        array.copy_from(torch.zeros(2, 3, requires_grad=True))


def test_structs_take_flat_data_and_their_own_shape(device: spy.Device, module: spy.Module) -> None:
    array = spy.NDBuffer(device, module.Inner, (2, 3))
    dtype = array.to_numpy().dtype
    for shape in ((12,), (2, 3, 2)):
        data = np.array([[1, 1]] * 6).reshape(shape)
        with pytest.raises(spy.BindError, match="does not convert"):  # of an int to a bool
            array.from_numpy(data)
    for shape in ((3, 2), (6,), (1,), ()):
        with pytest.raises(spy.ShapeError, match="does not fill"):
            array.from_numpy(np.zeros(shape, dtype))
    narrow = np.zeros((2, 3), [("n", "i8"), ("on", "?")])
    narrow["n"] = 2**40
    with pytest.raises(spy.BindError, match=r"field n holds 1099511627776, which does not fit 'int32'"):
        array.from_numpy(narrow)
    far = np.zeros(3, [("x", "i8"), *dtype_of(module)[1:]])
    far["x"] = 2**40
    with pytest.raises(spy.BindError, match="does not fit"):
        module.total(far)


def dtype_of(module: spy.Module) -> list[Any]:
    """The fields of ``Outer`` as NumPy has them."""
    dtype = spy.NDBuffer(module.device, module.Outer, 1).to_numpy().dtype
    return [(name, dtype[name]) for name in dtype.names or ()]


def test_stand_ins_are_asked_once_a_call(module: spy.Module) -> None:
    held = Held(spy.ValueRef(4))
    for n in range(1, 4):
        module.next(held)
        assert held.asked == n and held.updated is held.value and held.value.value == 4 + n
    for n in range(1, 3):
        made = Held(dict(GOOD))
        assert module.total(made) == TOTAL and made.asked == 1
        assert module.total([GOOD, {**GOOD, "inner": (inner := Held(GOOD["inner"]))}])[1] == TOTAL
        assert inner.asked == 1, n
    # Each object that it gives is a new one: what was written is in the one that comes back.
    fields = Held({**GOOD, "x": np.arange(3, dtype=np.int32), "y": np.zeros(3, np.float32)})
    structured = np.zeros(3, dtype_of(module))
    structured["x"] = 5

    class Fresh:
        asked = 0

        def get_this(self) -> Any:
            self.asked += 1
            return structured.copy()

        def update_this(self, value: Any) -> None:
            structured[...] = value

    fresh = Fresh()
    module.twice(fresh)
    assert fresh.asked == 1 and (structured["x"] == 10).all()
    np.testing.assert_array_equal(module.total(fields), np.arange(3) + TOTAL - 3.5)
    replay = module.twice.bind(fresh)
    replay()
    assert (structured["x"] == 20).all()


def test_a_stand_in_without_an_end(module: spy.Module) -> None:
    class Mirror:
        def get_this(self) -> Any:
            return self

    with pytest.raises(spy.BindError, match="without an end"):
        module.sum_of(Mirror())


def test_errors_of_the_caller_pass_through(module: spy.Module) -> None:
    class Broken:
        def get_this(self) -> Any:
            raise ZeroDivisionError("mine")

    class Array:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise LookupError("mine")

    for value in (Broken(), {**GOOD, "inner": Broken()}, [Broken()]):
        with pytest.raises(ZeroDivisionError, match="mine"):
            module.total(value)
    with pytest.raises(LookupError, match="mine"):
        spy.Tensor.from_numpy(module.device, Array())


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("vector<float,3>", "float3"), ("vector< half , 4 >", "half4"), ("matrix<double, 2, 3>", "double2x3"),
        ("vector<uint32_t,2>", "uint2"), ("vector<float, 3>[2]", "float3[2]"), (" float3 ", "float3"),
        ("Array<vector<int, 2>, 3>", "int2[3]"), ("Array<float,4>", "float[4]"),
    ],
)  # fmt: skip
def test_generic_names_of_element_types(device: spy.Device, name: str, same: str) -> None:
    """Slang calls float3 vector<float, 3> as well, and messages of the compiler do."""
    wanted = spy.Tensor.zeros(device, 2, same)
    found = spy.Tensor.zeros(device, 2, name)
    assert (found.dtype, found.layout) == (wanted.dtype, wanted.layout)


@pytest.mark.parametrize(
    "name",
    [
        "vector<float>", "vector<float,5>", "vector<float3,2>", "matrix<float,2>", "Array<,3>", "vector<float,2,2>",
        "Array<float,0>", "Array<float>", "vector<,3>",
    ],
)  # fmt: skip
def test_generic_names_that_mean_nothing(device: spy.Device, name: str) -> None:
    with pytest.raises(spy.BindError, match="is not an element type"):
        spy.Tensor.zeros(device, 2, name)


@needs("half")
def test_numbers_beyond_a_half(device: spy.Device) -> None:
    """Arrays, lists and numbers that become halves round as NumPy rounds them, and none becomes infinite."""
    module = spy.Module.load_from_source(device, "to_half", "half h(half x) { return x; }")
    t = spy.Tensor.zeros(device, 4, "half")
    for source in (np.int32, np.int64, np.uint16, np.uint32, np.uint64, np.float32, np.float64, list):
        for sign in (1,) if source is not list and np.dtype(source).kind == "u" else (1, -1):
            fine = _given(source, 0, sign * 65503, sign * 65504, sign * 65519)
            wanted = np.float64([0, sign * 65504, sign * 65504, sign * 65504])
            for found in (spy.Tensor.from_numpy(device, fine, "half"), module.h(fine)):
                np.testing.assert_array_equal(np.asarray(found, np.float64), wanted)
            t.copy_from(np.asarray(fine))
            for value in [65520] if source is np.uint16 else [65520, 70_000, 2**31 - 1]:
                bad = _given(source, 1, sign * value)
                ways: list[Callable[[Any], Any]] = [
                    lambda bad: spy.Tensor.from_numpy(device, bad, "half"),
                    module.h,
                    lambda bad: module.h(bad[1]),
                    lambda bad: t[:2].copy_from(np.asarray(bad)),
                    lambda bad: spy.Tensor.full(device, 2, bad[1], "half"),
                ]
                for way in ways:
                    with pytest.raises(spy.BindError, match="does not fit 'half'"):
                        way(bad)
            np.testing.assert_array_equal(t.to_numpy().astype("d"), wanted)


def _given(source: Any, *values: int) -> Any:
    return [*values] if source is list else np.array(values, source)
