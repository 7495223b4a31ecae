"""The table of parameter types and arguments: what fits what, as which call shape and with which values.

Every row goes through the null device, which computes nothing but resolves and checks everything; the rows that
fit go through every device with their values. Expected outcomes come from ``_model``, or are written down here.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import one_device, sampled

sys.path.insert(0, str(Path(__file__).parent))
import _model as model
from _gaps import narrowest
from _model import CallId, Data, Grid, Mismatch, Refused, Type, Unspecified

SLANG = """
import slangpy_rt;
enum Mode { first, second, seventh = 7 };
struct S { float a; int b; };

float of_float(float x) { return x; }
int of_int(int x) { return x; }
uint8_t of_uint8_t(uint8_t x) { return x; }
uint16_t of_uint16_t(uint16_t x) { return x; }
#ifdef HALF
half of_half(half x) { return x; }
#endif
double of_double(double x) { return x; }
bool of_bool(bool x) { return x; }
float3 of_float3(float3 x) { return x; }
int2 of_int2(int2 x) { return x; }
float2x3 of_float2x3(float2x3 x) { return x; }
float[4] of_floats(float x[4]) { return x; }
float3[2] of_vectors(float3 x[2]) { return x; }
S of_S(S x) { return x; }
Mode of_Mode(Mode x) { return x; }
float of_tensor(Tensor<float, 1> x) { return x[0]; }
float3 of_tensor2(Tensor<float3, 2> x) { return x[0, 0]; }
float of_pointer(float *x) { return *x; }

// Overloads tell by their numbers which of them ran.
int int_or_float(int x) { return 1; }
int int_or_float(float x) { return 2; }
int float_or_float3(float x) { return 1; }
int float_or_float3(float3 x) { return 2; }
int float_or_tensor(float x) { return 1; }
int float_or_tensor(Tensor<float, 1> x) { return 2; }
int int_or_uint(int x) { return 1; }
int int_or_uint(uint x) { return 2; }
int float_or_double(float x) { return 1; }
int float_or_double(double x) { return 2; }
int bool_or_float(bool x) { return 1; }
int bool_or_float(float x) { return 2; }
int float3_or_float4(float3 x) { return 1; }
int float3_or_float4(float4 x) { return 2; }
int float3_or_int3(float3 x) { return 1; }
int float3_or_int3(int3 x) { return 2; }
int struct_or_float(S x) { return 1; }
int struct_or_float(float x) { return 2; }
int by_count(float a) { return 1; }
int by_count(float a, float b, float c = 100) { return 2; }
int by_default(float a) { return 1; }
int by_default(float a, float b = 3) { return 2; }
int pairs(int a, float b) { return 1; }
int pairs(float a, float b) { return 2; }
int crossed(int a, float b) { return 1; }
int crossed(float a, int b) { return 2; }
int by_name(float a, float b) { return 1; }
int by_name(float a, float c, int d = 0) { return 2; }

T echo<T>(T x) { return x; }
int length_of<let N : int>(vector<float, N> x) { return N; }
"""

FLOAT, INT, BYTE = model.scalar("float", "f4"), model.scalar("int", "i4"), model.scalar("uint8_t", "u1")
HALF, DOUBLE, BOOL = model.scalar("half", "f2"), model.scalar("double", "f8"), model.scalar("bool", "?")
UINT, WORD = model.scalar("uint", "u4"), model.scalar("uint64_t", "u8")
FLOAT3, INT2, MATRIX = model.vector(FLOAT, 3), model.vector(INT, 2), model.matrix(FLOAT, 2, 3)
FLOAT4 = model.vector(FLOAT, 4)
FLOATS, VECTORS2 = model.array(FLOAT, 4), model.array(FLOAT3, 2)
S, MODE = model.struct("S", a=FLOAT, b=INT), model.enum("Mode", first=0, second=1, seventh=7)

PARAMETERS = {
    "of_float": FLOAT,
    "of_int": INT,
    "of_uint8_t": BYTE,
    "of_half": HALF,
    "of_double": DOUBLE,
    "of_bool": BOOL,
    "of_float3": FLOAT3,
    "of_int2": INT2,
    "of_float2x3": MATRIX,
    "of_floats": FLOATS,
    "of_vectors": VECTORS2,
    "of_S": S,
    "of_Mode": MODE,
    "of_tensor": model.tensor(FLOAT, 1),
    "of_tensor2": model.tensor(FLOAT3, 2),
    "of_pointer": model.pointer(FLOAT),
}


class Mode(IntEnum):
    """The same in Python."""

    first = 0
    second = 1
    seventh = 7


@dataclass(frozen=True)
class Plain:
    """S as a dataclass."""

    a: float
    b: int


Named = namedtuple("Named", "a b")


def ramp(code: str, *shape: int) -> Any:
    """Small whole numbers, or every other one True."""
    numbers = np.arange(np.prod(shape, dtype=int)) % (2 if code == "?" else 100)
    return numbers.reshape(shape).astype(code)


def host(code: str, *shape: int) -> Data:
    """A NumPy array."""
    return Data("numpy", ramp(code, *shape))


def held(on: str, type_: Type, *shape: int) -> Data:
    """An array on a device."""
    if type_.kind == "struct":
        base = np.zeros(shape, type_.dtype)
        for k, (name, _) in enumerate(type_.fields):
            base[name] = np.arange(base.size).reshape(shape) * 10 + k
        return Data(on, base, type_)
    return Data(on, ramp(type_.dtype.str, *shape, *type_.dims), type_)


def records(*fields: tuple[str, str]) -> Data:
    """A structured NumPy array of three items."""
    base = np.zeros(3, list(fields))
    for name, _ in fields:
        base[name] = np.arange(3)
    return Data("numpy", base)


def arguments() -> Iterator[Any]:
    """Every argument of the table."""
    yield from (True, 3, -2, 300, 2**40, 2.5, None, "text", 1j, object)
    for code in ("?", "u1", "i4", "i8", "u4", "f2", "f4", "f8"):
        yield np.dtype(code).type(1)
    yield np.float64(2.5)
    yield from ([1, 2, 3], (1, 2, 3), [1.5, 2, 3], [True, False, True], [1, 2], (1, 2), [1, 2, 3, 4], [300, 1])
    yield from ([[1, 2, 3], [4, 5, 6]], ((1, 2), (3, 4)), [[1, 2], [3]], [[[1, 2, 3], [4, 5, 6]]] * 2, ["a", "b"])
    for code, shape in product(("?", "u1", "i4", "i8", "u4", "f2", "f8", ">f4", "c8", "S2"), ((3,), (4, 2), (2, 3))):
        yield host(code, *shape)
    for shape in (
        (),
        (2,),
        (3,),
        (4,),
        (2, 3),
        (3, 2),
        (5, 4),
        (2, 2, 3),
        (3, 2, 3),
        (2, 3, 2),
        (2, 3, 4),
        (0,),
        (0, 3),
    ):
        yield host("f4", *shape)
    for on, shape in product(("Tensor", "NDBuffer"), ((), (3,), (4,), (2, 3), (5, 4), (2, 2, 3), (0, 3))):
        yield held(on, FLOAT, *shape)
    for type_, shape in (
        *((INT, (3,)), (INT, (4, 2)), (DOUBLE, (3,)), (HALF, (3,)), (BYTE, (3,)), (BOOL, (3,)), (UINT, (4, 2))),
        *((FLOAT3, ()), (FLOAT3, (2,)), (FLOAT3, (4, 2)), (FLOAT3, (2, 4, 5)), (MATRIX, (2,)), (FLOATS, (3,))),
        *((VECTORS2, (3,)), (INT2, (3,)), (S, (3,)), (S, (2, 2)), (FLOAT4, (2,)), (WORD, (2,))),
    ):
        yield held("Tensor", type_, *shape)
    yield held("NDBuffer", FLOAT3, 4, 2)
    yield held("NDBuffer", S, 3)
    yield Data("Tensor", ramp("f4", 6, 4), FLOAT, (("index", (slice(None, None, -2), slice(1, None))),))
    yield Data("Tensor", ramp("f4", 4, 3), FLOAT3, (("broadcast", (3, 4)),))
    yield from ({"a": 1, "b": 2}, {"a": 1.5, "b": True}, {"b": 2, "a": 1}, {"_type": "S", "a": 1, "b": 2})
    yield from ({"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2.5}, {"_type": "Mode", "a": 1, "b": 2}, {})
    yield from ({"a": host("f4", 3), "b": 2}, {"a": host("f4", 2, 1), "b": host("i4", 3)}, {"a": 1, "b": [1, 2]})
    yield from ({"a": held("Tensor", FLOAT, 3), "b": host("i8", 3)}, {"a": host("f4", 2), "b": host("i4", 3)})
    yield from (
        {"a": 1, "b": host("f4", 3)},
        {"x": 1, "y": 2, "z": 3},
        {"x": 1, "y": 2},
        {"x": host("f4", 3), "y": 1, "z": 2},
    )
    yield from (Named(1, 2), Plain(1, 2), (1.5, 2), (1, 2, 3), [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}])
    yield from (
        records(("a", "f4"), ("b", "i4")),
        records(("b", "i4"), ("a", "f8")),
        records(("a", "f4"), ("c", "i4")),
    )
    yield records(("a", "f4"), ("b", "f4"))
    for name in ("float3", "int2", "float2", "int3", "float4", "float2x3"):
        yield getattr(spy, name)(1)
    yield spy.float3(1, 2, 3)
    yield from ("first", "seventh", "eighth", Mode.second)
    yield from (range(4), range(0, 10, 3), range(10, 0, -4), range(0), CallId())
    yield from (
        Grid((4,)),
        Grid((4,), 5, -2),
        Grid((2, 3)),
        Grid((2, 3), (1, 2), (10, 100)),
        Grid((2, 3, 4)),
        Grid((2, 0)),
    )


def label(value: Any) -> str:
    """A row's name: type and value."""
    text = repr(value).replace("\n", "")
    return text if isinstance(value, (Data, Grid, CallId)) else f"{type(value).__name__} {text}"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    function: str
    argument: Any
    fit: model.Fit | None = None
    error: type[Exception] | None = None

    def __str__(self) -> str:
        return f"{self.function}({label(self.argument)})"


def expected(function: str, type_: Type, argument: Any) -> Row | None:
    """The row, or None where the documents are silent."""
    try:
        found = model.fit(type_, argument)
        if isinstance(argument, CallId):
            model.indices(type_, ())
    except Unspecified:
        return None
    except Refused:
        return Row(function, argument, error=spy.BindError)
    except Mismatch:
        return Row(function, argument, error=spy.ShapeError)
    return Row(function, argument, found)


TABLE = list(
    {
        str(row): row
        for function, type_ in PARAMETERS.items()
        for argument in arguments()
        if (row := expected(function, type_, argument)) is not None
    }.values()
)


def rows(table: list[Row]) -> list[Any]:
    """The rows as test parameters."""
    return [pytest.param(row, id=str(row)) for row in table]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above; half only where there is one."""
    defines = {"HALF": 1} if "half" in device.caps.scalars else {}
    return spy.Module.load_from_source(device, "test_resolution", SLANG, defines=defines)


@pytest.fixture(scope="module")
def nothing() -> Iterator[spy.Module]:
    """The functions on a device that computes nothing."""
    with spy.Device("null") as device:
        yield spy.Module.load_from_source(device, "test_resolution", SLANG, defines={"HALF": 1})


def call(module: spy.Module, function: str, *values: Any) -> Any:
    """Call it on arguments that are made for its device; what comes is a Tensor."""
    placed = [model.place(module.device, module, value)[0] for value in values]
    return module[function](*placed, _result="tensor")


def narrow_function(module: spy.Module) -> tuple[spy.Function, np.dtype[Any], int]:
    """The function of the shortest unsigned integers, their dtype and the largest of them."""
    scalar = narrowest(module.device)
    return module[f"of_{scalar}"], NUMPY_OF[scalar], int(np.iinfo(NUMPY_OF[scalar]).max)


def test_the_table_is_worth_its_name() -> None:
    assert len(TABLE) >= 1000
    assert sum(row.error is None for row in TABLE) >= 300


@sampled(4)
@pytest.mark.parametrize("row", rows(TABLE))
def test_what_fits(nothing: spy.Module, row: Row) -> None:
    if row.error is not None:
        with pytest.raises(row.error) as caught:
            call(nothing, row.function, row.argument)
        # Not one of its subclasses, and a message that says where.
        assert type(caught.value) is row.error and row.function in str(caught.value)
        return
    assert row.fit is not None
    result = call(nothing, row.function, row.argument)
    assert type(result) is spy.Tensor and result.shape == row.fit.shape


@sampled(7)
@pytest.mark.parametrize("row", rows([row for row in TABLE if row.fit is not None and row.fit.values is not None]))
def test_values(device: spy.Device, module: spy.Module, requires: Any, row: Row) -> None:
    type_ = PARAMETERS[row.function]
    if HALF in (type_, getattr(row.argument, "type", None)):
        requires("half")
    if BYTE in (type_, getattr(row.argument, "type", None)):
        requires("uint8_t")
    if type_.kind == "pointer":
        requires("pointers")
    assert row.fit is not None and row.fit.values is not None
    wanted = row.fit.values
    if type_.kind == "tensor":
        if 0 in wanted.shape:
            pytest.skip("an empty tensor has no first element")
        first: tuple[Any, ...] = (..., *[0] * type_.rank, *[slice(None)] * len(type_.dims))
        wanted = wanted[first]
    model.same(call(module, row.function, row.argument).to_numpy(), wanted)


TIE, NONE = "more than one overload", "no overload takes"
# Which overload arguments choose, counted from 1; by the order of the documents: exactly, by lossless promotion, by
# conversion, repeated over a vector, vectorized.
OVERLOADS: list[tuple[str, tuple[Any, ...], int | str]] = [
    ("int_or_float", (2,), 1),
    ("int_or_float", (2.5,), 2),
    ("int_or_float", (True,), TIE),
    ("int_or_float", (np.int32(2),), 1),
    ("int_or_float", (np.int64(2),), 1),
    ("int_or_float", (np.uint8(2),), 1),
    ("int_or_float", (np.bool_(True),), TIE),
    ("int_or_float", (np.float32(2),), 2),
    ("int_or_float", (np.float64(2.5),), 2),
    ("int_or_float", ([1, 2],), 1),
    ("int_or_float", ([1, 2.5],), 2),
    ("int_or_float", ([True],), TIE),
    ("int_or_float", (host("i4", 3),), 1),
    ("int_or_float", (host("i2", 3),), TIE),
    ("int_or_float", (host("u4", 3),), TIE),
    ("int_or_float", (host("i8", 3),), TIE),
    ("int_or_float", (host("f4", 3),), 2),
    ("int_or_float", (host("f2", 3),), 2),
    ("int_or_float", (host("f8", 2, 3),), 2),
    ("int_or_float", (held("Tensor", INT, 3),), 1),
    ("int_or_float", (held("NDBuffer", FLOAT, 3),), 2),
    ("int_or_float", (held("Tensor", DOUBLE, 3),), NONE),
    ("int_or_float", (held("Tensor", BYTE, 3),), NONE),
    ("int_or_float", (range(3),), 1),
    ("int_or_float", (Grid((3,)),), 1),
    ("int_or_float", ("text",), NONE),
    ("int_or_float", (), NONE),
    ("float_or_float3", (1.0,), 1),
    ("float_or_float3", (1,), 1),
    ("float_or_float3", (np.float64(1),), 1),
    ("float_or_float3", (spy.float3(1, 2, 3),), 2),
    ("float_or_float3", (spy.float2(1, 2),), 1),
    ("float_or_float3", ([1, 2, 3],), 2),
    ("float_or_float3", ([1.0, 2.0],), 1),
    ("float_or_float3", ({"x": 1, "y": 2, "z": 3},), 2),
    ("float_or_float3", (host("f4", 3),), 2),
    ("float_or_float3", (host("i8", 3),), 2),
    ("float_or_float3", (host("f4", 5, 3),), 2),
    ("float_or_float3", (host("f4", 5, 4),), 1),
    ("float_or_float3", (host("f4", 0, 3),), 2),
    ("float_or_float3", (held("Tensor", FLOAT3, 2),), 2),
    ("float_or_float3", (held("Tensor", FLOAT, 2, 3),), 2),
    ("float_or_float3", (held("NDBuffer", FLOAT, 3, 2),), 1),
    ("float_or_tensor", (1.0,), 1),
    ("float_or_tensor", (host("f4", 5),), 2),
    ("float_or_tensor", (host("f8", 5),), 2),
    ("float_or_tensor", (held("Tensor", FLOAT, 5),), 2),
    ("float_or_tensor", (held("Tensor", FLOAT),), 1),
    ("int_or_uint", (3,), 1),
    ("int_or_uint", (-3,), 1),
    ("int_or_uint", (True,), TIE),
    ("int_or_uint", (np.uint32(3),), 2),
    ("int_or_uint", ([1, 2],), 1),
    ("int_or_uint", (host("u4", 3),), 2),
    ("int_or_uint", (host("i4", 3),), 1),
    ("int_or_uint", (host("u1", 3),), TIE),
    ("int_or_uint", (host("i2", 3),), 1),
    ("int_or_uint", (host("i8", 3),), 1),
    ("int_or_uint", (host("u8", 3),), TIE),
    ("int_or_uint", (held("Tensor", UINT, 4, 2),), 2),
    ("float_or_double", (1.0,), 1),
    ("float_or_double", (1,), 2),
    ("float_or_double", (np.float64(1),), 2),
    ("float_or_double", (np.float32(1),), 1),
    ("float_or_double", (np.float16(1),), TIE),
    ("float_or_double", (host("f4", 3),), 1),
    ("float_or_double", (host("f8", 3),), 2),
    ("float_or_double", (host("i4", 3),), 2),
    ("float_or_double", (host("i2", 3),), TIE),
    ("float_or_double", (held("Tensor", DOUBLE, 3),), 2),
    ("bool_or_float", (True,), 1),
    ("bool_or_float", (1,), 2),
    ("bool_or_float", (1.0,), 2),
    ("bool_or_float", (host("?", 3),), 1),
    ("bool_or_float", (host("u1", 3),), 2),
    ("float3_or_float4", (1.0,), TIE),
    ("float3_or_float4", (host("f4", 3),), 1),
    ("float3_or_float4", (host("f4", 4),), 2),
    ("float3_or_float4", (host("f4", 5, 4),), 2),
    ("float3_or_float4", (host("f4", 5),), NONE),
    ("float3_or_int3", (1.0,), 1),
    ("float3_or_int3", (1,), TIE),
    ("float3_or_int3", ([1, 2, 3],), 2),
    ("float3_or_int3", ([1, 2, 3.5],), 1),
    ("float3_or_int3", (host("i4", 5, 3),), 2),
    ("float3_or_int3", (host("f8", 5, 3),), 1),
    ("struct_or_float", ({"a": 1, "b": 2},), 1),
    ("struct_or_float", (1.0,), 2),
    ("struct_or_float", ((1, 2),), 1),
    ("struct_or_float", (held("Tensor", S, 3),), 1),
    ("struct_or_float", (held("Tensor", FLOAT, 3),), 2),
    ("by_count", (), NONE),
    ("by_count", (1.0,), 1),
    ("by_count", (1.0, 2.0), 2),
    ("by_count", (host("f4", 3), 2.0, 3), 2),
    ("by_count", (1.0, 2.0, 3.0, 4.0), NONE),
    ("pairs", (1, 2.0), 1),
    ("pairs", (1.0, 2.0), 2),
    ("pairs", (host("f4", 3), 2.0), 2),
    ("pairs", (host("i4", 3), host("f4", 3)), 1),
    ("crossed", (1, 1.0), 1),
    ("crossed", (1.0, 1), 2),
    ("crossed", (1, 1), TIE),
    ("crossed", (1.0, 1.0), NONE),
    ("crossed", (held("Tensor", INT, 3), 1.0), 1),
]


def name_overload(case: Any) -> str:
    """An overload row's name."""
    function, values, outcome = case
    return f"{function}({', '.join(map(label, values))}) {outcome}"


@sampled(3)
@pytest.mark.parametrize("case", OVERLOADS, ids=name_overload)
def test_which_overload(nothing: spy.Module, case: Any) -> None:
    function, values, outcome = case
    f = nothing[function]
    placed = [model.place(nothing.device, nothing, value)[0] for value in values]
    if isinstance(outcome, str):
        with pytest.raises(spy.BindError, match=outcome) as caught:
            f(*placed)
        # Each candidate is there, and what became of it.
        assert all(str(sig) in str(caught.value) for sig in f.overloads)
        return
    assert f.explain(*placed).startswith(f"{f.overloads[outcome - 1]} on ")


# Slang chooses once more, by the types that the kernel passes: one row an overload shows whether it agrees.
CHOSEN = {(case[0], case[2]): case for case in OVERLOADS if not isinstance(case[2], str)}


@sampled(5)
@pytest.mark.parametrize("case", CHOSEN.values(), ids=name_overload)
def test_the_overload_runs(module: spy.Module, case: Any) -> None:
    function, values, outcome = case
    result = call(module, function, *values).to_numpy()
    np.testing.assert_array_equal(result, np.full(result.shape, outcome, np.int32))


@pytest.mark.xfail(strict=True, reason="Slang chooses again, without the names")
def test_names_choose_among_overloads(module: spy.Module) -> None:
    assert module.by_name(a=1.0, b=2.0) == 1
    assert module.by_name(c=1.0, a=2.0) == 2
    assert module.by_name(1.0, c=2.0, d=3) == 2
    with pytest.raises(spy.BindError, match=NONE):
        module.by_name(1.0, d=3)


@one_device
def test_a_map_settles_a_tie(module: spy.Module) -> None:
    assert module.int_or_float.map("float")(True) == 2
    assert module.int_or_float.map(x=int)(True) == 1
    assert module.crossed.map(a="int", b="float")(1, 1) == 1
    assert module.crossed.map("float", "int")(1, 1) == 2


@one_device
def test_what_generics_stand_for(module: spy.Module) -> None:
    x = ramp("f4", 5, 3)
    tensor = spy.Tensor.from_numpy(module.device, x)
    narrow = narrowest(module.device)
    for value, scalar in ((3, "int"), (2.5, "float"), (True, "bool"), (NUMPY_OF[narrow].type(3), narrow)):
        result = module.echo(value, _result="tensor")
        assert result.dtype.name == scalar and result.to_numpy() == value
    for function, element, shape in (
        (module.echo.map((0, 1)), "float", (5, 3)),
        (module.echo.map((0,)), "float3", (5,)),
        (module.echo.map("float3"), "float3", (5,)),
        (module["echo<float>"], "float", (5, 3)),
        (module["echo<float3>"], "float3", (5,)),
    ):
        for value in (x, tensor):
            result = function(value, _result="tensor")
            assert (result.dtype.name, result.shape) == (element, shape)
            np.testing.assert_array_equal(result.to_numpy(), x)
    assert module.echo({"_type": "S", "a": 1.5, "b": 2}) == {"a": 1.5, "b": 2}
    assert module.length_of(spy.float3(1)) == 3
    np.testing.assert_array_equal(module.length_of(ramp("f4", 5, 2)), np.full(5, 2, np.int32))
    with pytest.raises(spy.BindError, match="N"):
        module.length_of(1.0)


def test_a_numpy_double_stands_for_double(module: spy.Module) -> None:
    assert module.echo(np.float64(2.5), _result="tensor").dtype.name == "double"


def test_a_call_is_not_taken_for_another(module: spy.Module) -> None:
    """Arguments that look alike are told apart once one of them was accepted."""
    np.testing.assert_array_equal(module.of_float(Named(1, 2)), np.array([1, 2], np.float32))
    for other in ({"a": 1, "b": 2}, Plain(1, 2)):
        with pytest.raises(spy.BindError, match="struct's value"):
            module.of_float(other)
    function, dtype, most = narrow_function(module)
    assert function(3) == 3
    for number in (most + 45, -1):
        with pytest.raises(spy.BindError, match="does not fit"):
            function(number)
    np.testing.assert_array_equal(function([1, most]), np.array([1, most], dtype))
    with pytest.raises(spy.BindError):
        function([1, most + 1])
    assert module.of_float(2.5) == 2.5
    with pytest.raises(spy.BindError):
        module.of_float(float)


def test_a_named_tuple_is_not_taken_for_another(module: spy.Module) -> None:
    function, dtype, most = narrow_function(module)
    np.testing.assert_array_equal(function(Named(1, most)), np.array([1, most], dtype))
    with pytest.raises(spy.BindError):
        function(Named(1, most + 1))


@pytest.mark.xfail(strict=True, reason="Slang chooses again, and finds two")
def test_an_overload_without_defaults_comes_first(module: spy.Module) -> None:
    assert module.by_default(1.0) == 1
    assert module.by_default(1.0, 2.0) == 2
