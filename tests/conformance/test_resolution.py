"""The table of parameter types and arguments: what fits what, as which call shape and with which values.

Every row goes through the null device, which computes nothing but resolves and checks everything; the rows that
fit go through every device with their values. Expected outcomes come from ``_model``, or are written down here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import _model as model
import _model_types as kinds
import numpy as np
import pytest
from _model_types import CallId, Data, Grid, Mismatch, Refused, Type, Unspecified
from _resolution import (
    BOOL,
    BYTE,
    DOUBLE,
    FLOAT,
    FLOAT3,
    FLOAT4,
    FLOATS,
    HALF,
    INT,
    INT2,
    MATRIX,
    PARAMETERS,
    UINT,
    VECTORS2,
    WORD,
    Mode,
    Named,
    Plain,
    S,
    call,
    held,
    host,
    label,
    module,
    narrow_function,
    nothing,
    ramp,
)

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

__all__ = ["module", "nothing"]  # the fixtures


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


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    function: str
    argument: Any
    fit: kinds.Fit | None = None
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


def _needs_of(row: Row) -> list[str]:
    """What a device has to have for a row's call."""
    type_ = PARAMETERS[row.function]
    types = (type_, getattr(row.argument, "type", None))
    asked = {"half": HALF in types, "uint8_t": BYTE in types, "pointers": type_.kind == "pointer"}
    return [name for name, is_asked in asked.items() if is_asked]


@needs(lambda case: _needs_of(case["row"]))
@sampled(80)
@pytest.mark.parametrize("row", rows([row for row in TABLE if row.fit is not None and row.fit.values is not None]))
def test_values(device: spy.Device, module: spy.Module, row: Row) -> None:
    type_ = PARAMETERS[row.function]
    assert row.fit is not None and row.fit.values is not None
    wanted = row.fit.values
    if type_.kind == "tensor":
        if 0 in wanted.shape:
            pytest.skip("an empty tensor has no first element")
        first: tuple[Any, ...] = (..., *[0] * type_.rank, *[slice(None)] * len(type_.dims))
        wanted = wanted[first]
    kinds.same(call(module, row.function, row.argument).to_numpy(), wanted)


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
