"""Which overload of a function arguments choose, and what generic parameters stand for."""

from __future__ import annotations

from typing import Any

import _model_types as kinds
import numpy as np
import pytest
from _gaps import narrowest
from _model_types import Grid
from _resolution import BYTE, DOUBLE, FLOAT, FLOAT3, INT, UINT, S, call, held, host, label, module, nothing, ramp

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import one_device, sampled

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

__all__ = ["module", "nothing"]  # the fixtures


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


@sampled(6)
@pytest.mark.parametrize("case", OVERLOADS, ids=name_overload)
def test_which_overload(nothing: spy.Module, case: Any) -> None:
    function, values, outcome = case
    f = nothing[function]
    placed = [kinds.place(nothing.device, nothing, value)[0] for value in values]
    if isinstance(outcome, str):
        with pytest.raises(spy.BindError, match=outcome) as caught:
            f(*placed)
        # Each candidate is there, and what became of it.
        assert all(str(sig) in str(caught.value) for sig in f.overloads)
        return
    assert f.explain(*placed).startswith(f"{f.overloads[outcome - 1]} on ")


# Slang chooses once more, by the types that the kernel passes: one row an overload shows whether it agrees.
CHOSEN = {(case[0], case[2]): case for case in OVERLOADS if not isinstance(case[2], str)}


@sampled(10)
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


@pytest.mark.xfail(strict=True, reason="Slang chooses again, and finds two")
def test_an_overload_without_defaults_comes_first(module: spy.Module) -> None:
    assert module.by_default(1.0) == 1
    assert module.by_default(1.0, 2.0) == 2


def test_lists_take_a_type_that_holds_them(device: spy.Device) -> None:
    """Whole numbers in a list have no width: the overload is one of a type that holds all of them."""
    module = spy.Module.load_from_source(
        device,
        "overloads_of_lists",
        "int wide(int x) { return 1; } int wide(int64_t x) { return 2; } "
        "int real(uint x) { return 1; } int real(double x) { return 2; } int one(uint x) { return 1; }",
    )
    for numbers, wide in (([1, 2], 1), ([2**40, 1], 2), ([-(2**31)], 1), ([2**31], 2), ([[1], [-(2**31) - 1]], 2)):
        for given in (numbers, tuple(numbers)):
            assert set(np.ravel(module.wide(given))) == {wide}
    for _ in range(2):
        assert set(module.real([-1, 2])) == {2} and set(module.real([2**33])) == {2}
        assert set(module.one([1, 2**32 - 1])) == {1}
        for wrong in (-1, 2**32):
            with pytest.raises(spy.BindError, match=rf"holds {wrong}, which does not fit 'uint'"):
                module.one([1, wrong])
