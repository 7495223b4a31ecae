"""Errors of structs, enums, pointers and cells as arguments, with their whole messages.

After each refusal the device must still compute, and no array may have changed.
"""

from __future__ import annotations

import numpy as np
import pytest
from _functional import (
    AT,
    BIND,
    BUMP,
    CELL,
    FILL,
    PAIR,
    RAISE,
    RIGHT,
    SHAPE,
    Arrays,
    Call,
    check_refused,
    module,
)
from _refusals import refused

import slangpy_rt as spy
from tests.depth import needs

__all__ = ["module"]  # the fixture

REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    # Structs.
    "missing field": (lambda m, a: m.pair({"a": 1}), BIND, f"{PAIR} lacks n; 'Pair' has a, n."),
    "missing fields": (lambda m, a: m.pair({}), BIND, f"{PAIR} lacks a, n; 'Pair' has a, n."),
    "extra field": (
        lambda m, a: m.pair({"a": 1, "n": 2, "z": 3}),
        BIND,
        f"{PAIR} has z, which 'Pair' has not; 'Pair' has a, n.",
    ),
    "missing field inside": (
        lambda m, a: m.outer({"pair": {"a": 1}, "v": [1, 2, 3]}),
        BIND,
        "float outer(Outer o): argument 'o.pair' lacks n; 'Pair' has a, n.",
    ),
    "field of a wrong type": (
        lambda m, a: m.pair({"a": 1, "n": 2.5}),
        BIND,
        "float pair(Pair p): argument 'p.n' is 2.5 of type float, which does not convert to 'int'.",
    ),
    "fields that do not broadcast": (
        lambda m, a: m.pair({"a": [1, 2, 3], "n": [1, 2]}),
        SHAPE,
        "float pair(Pair p): argument 'p.n' of shape (2,) does not broadcast with argument 'p.a' of shape (3,)."
        f"{RIGHT}",
    ),
    "another _type": (
        lambda m, a: m.pair({"_type": "Other", "a": 1, "n": 2}),
        BIND,
        f"{PAIR} has _type 'Other'; 'Pair' was expected.",
    ),
    "another _type, as an object": (
        lambda m, a: m.pair({"_type": m.Other, "a": 1, "n": 2}),
        BIND,
        f"{PAIR} has _type 'Other'; 'Pair' was expected.",
    ),
    "tuple of another length": (lambda m, a: m.pair((1,)), BIND, f"{PAIR} is (1,); 'Pair' has 2 fields: a, n."),
    "number for a struct": (
        lambda m, a: m.pair(3),
        BIND,
        f"{PAIR} is 3 of type int, which does not convert to 'Pair'.",
    ),
    "array of numbers for a struct": (
        lambda m, a: m.pair(a.h),
        BIND,
        f"{PAIR} is an array of dtype float32 and shape (3,), which does not convert to 'Pair'; "
        "pass a structured array with the fields a, n.",
    ),
    "device array of numbers for a struct": (
        lambda m, a: m.pair(a.t),
        BIND,
        f"{PAIR} is a Tensor<float> of shape (3,); 'Pair' was expected, and device data is not converted. "
        "Make it with dtype=module.Pair, or convert it on the host with from_numpy(...).",
    ),
    "device array of another struct": (
        lambda m, a: m.either(spy.Tensor.zeros(m.device, 2, m.Bare)),
        BIND,
        "either: no overload takes these arguments:\n"
        "  float either(Pair p): argument 'p' is a Tensor<Bare> of shape (2,); 'Pair' was expected, and device data "
        "is not converted. Make it with dtype=module.Pair, or convert it on the host with from_numpy(...).\n"
        "  float either(Other p): argument 'p' is a Tensor<Bare> of shape (2,); 'Other' was expected, and device "
        "data is not converted. Make it with dtype=module.Other, or convert it on the host with from_numpy(...).",
    ),
    "structured array without a field": (
        lambda m, a: m.pair(a.records[["a"]]),
        BIND,
        f"{PAIR}: the structured data lacks n; expected a, n.",
    ),
    "structured array with a field that does not convert": (
        lambda m, a: m.pair(np.zeros(3, [("a", "f4"), ("n", "f8")])),
        BIND,
        f"{PAIR}: field n of dtype float64 does not convert to int32.",
    ),
    "structured array of another layout, written to": (
        lambda m, a: m.raise_pair(a.swapped, 1),
        BIND,
        f"{RAISE} is a structured array with the fields n, a and shape (3,), which does not convert to 'Pair'; "
        "it must be an array of dtype numpy.dtype([('a', 'float32'), ('n', 'int32')], align=True).",
    ),
    "tuple written to": (
        lambda m, a: m.raise_pair((1, 2), 1),
        BIND,
        f"void raise_pair(inout Pair p, float by): argument 'p.a' is 'inout' and {CELL} 1.",
    ),
    "struct for a vector": (
        lambda m, a: m.turn({"x": 1, "y": 2}),
        BIND,
        "float3 turn(float3 v): argument 'v' lacks z; 'float3' has x, y, z.",
    ),
    "list of another length": (
        lambda m, a: m.turn([1, 2]),
        BIND,
        "float3 turn(float3 v): argument 'v' is [1, 2]; 'float3' needs the last dimension to be 3.",
    ),
    "vector of another length": (
        lambda m, a: m.turn(spy.float4(1)),
        BIND,
        "float3 turn(float3 v): argument 'v' is an array of dtype float32 and shape (4,); "
        "'float3' needs the last dimension to be 3.",
    ),
    "flat data of another size": (
        lambda m, a: a.pairs.from_numpy(np.zeros(5, np.float32)),
        SHAPE,
        "Tensor.from_numpy: data of shape (5,) does not fill structs of shape (3,), which hold 2 scalars each: a, n.",
    ),
    "flat data of another kind": (
        lambda m, a: a.pairs.from_numpy(np.zeros(6, np.float32)),
        BIND,
        "Tensor.from_numpy: data of dtype float32 does not convert to int32 of n.",
    ),
    "structured data without a struct": (
        lambda m, a: spy.Tensor.from_numpy(m.device, a.records),
        BIND,
        f"Tensor.from_numpy: dtype {np.dtype([('a', 'f4'), ('n', 'i4')], align=True)} has no Slang type; "
        "name the struct: dtype=module.Name.",
    ),
    "structs are not flat": (
        lambda m, a: a.pairs.flatten_dtype(),
        BIND,
        "Tensor.flatten_dtype: Tensor<Pair> of shape (3,) holds structs, not one scalar type.",
    ),
    # Enums, pointers, cells.
    "unknown case": (
        lambda m, a: m.mode("Maybe"),
        BIND,
        "int mode(Mode m): argument 'm' is 'Maybe'; 'Mode' has Off, On.",
    ),
    "fraction for an enum": (
        lambda m, a: m.mode(1.5),
        BIND,
        "int mode(Mode m): argument 'm' is 1.5 of type float, which does not convert to 'Mode'.",
    ),
    "NumPy array of another dtype for a pointer": (
        lambda m, a: m.at(a.h.astype(np.float64), 0),
        BIND,
        f"{AT}: argument 'p' is an array of dtype float64 and shape (3,); 'float*' takes an array of 'float32'.",
    ),
    "fraction for a pointer": (
        lambda m, a: m.at(1.5, 0),
        BIND,
        f"{AT}: argument 'p' is 1.5; 'float*' takes an array or an address.",
    ),
    "negative address": (
        lambda m, a: m.at(-1, 0),
        BIND,
        f"{AT}: argument 'p' is -1, which does not fit 'float*' (0 to 18446744073709551615).",
    ),
    "pointer from a view with gaps": (
        lambda m, a: m.at(a.b[::2], 0),
        BIND,
        f"{AT}: argument 'p' is a non-contiguous view; 'float*' takes elements that follow each other.",
    ),
    "pointer to another type": (
        lambda m, a: m.at(a.f8, 0),
        BIND,
        f"{AT}: argument 'p' is a Tensor<double> of shape (3,); 'float' was expected, and device data is not "
        "converted. Make it with dtype='float', or convert it on the host with from_numpy(...).",
    ),
    "number for inout": (lambda m, a: m.bump(3.0, 1), BIND, f"{BUMP} is 'inout' and {CELL} 3.0."),
    "None for out": (lambda m, a: m.fill(1, None), BIND, f"{FILL} is 'out' and {CELL} None."),
    "generator for out": (
        lambda m, a: m.fill(1, spy.grid(3)),
        BIND,
        f"{FILL} is 'out' and {CELL} grid(shape=(3,)).",
    ),
    "cell of text": (
        lambda m, a: m.bump(spy.ValueRef("x"), 1),
        BIND,
        f"{BUMP} is 'x' of type str, which does not convert to 'float'.",
    ),
    "cell of several": (
        lambda m, a: m.bump(spy.ValueRef([1, 2]), 1),
        BIND,
        f"{BUMP} is ValueRef([1, 2]); it takes one 'float'.",
    ),
    "cell of a struct with a field missing": (
        lambda m, a: m.raise_pair(spy.ValueRef({"a": 1}), 1),
        BIND,
        f"{RAISE} lacks n; 'Pair' has a, n.",
    ),
    "cell for many": (
        lambda m, a: m.bump(spy.floatRef(1), a.h),
        SHAPE,
        "void bump(inout float y, float x): 'y' of shape () is written by a call of shape (3,); elements would "
        "overwrite each other. Give it the call's shape.",
    ),
}


@needs(lambda case: ["pointers"] if REFUSED[case["name"]][2].startswith(AT) else [])
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(module: spy.Module, name: str) -> None:
    action, error, message = REFUSED[name]
    check_refused(module, action, error, message)


@needs("no pointers")
def test_a_pointer_where_there_are_none(device: spy.Device, module: spy.Module) -> None:
    arrays = Arrays(module)
    expected = (
        f"{AT}: argument 'p' is a pointer, which {device.info} does not have; declare a RWTensor or a "
        "RWStructuredBuffer instead."
    )
    for value in (arrays.t, arrays.t.address, arrays.h):
        assert refused(spy.UnsupportedError, lambda v=value: module.at(v, 0)) == expected  # type: ignore[misc]
    arrays.check()


def test_a_late_case_that_there_is_not(module: spy.Module) -> None:
    # The kernel is there already: the value is refused at the call itself.
    assert module.mode("On") == 3
    expected = "int mode(Mode m): argument 'm' is 'Maybe'; 'Mode' has Off, On."
    assert refused(spy.BindError, lambda: module.mode("Maybe")) == expected
    assert module.mode("Off") == 0


def test_a_late_value_of_a_cell_that_does_not_fit(module: spy.Module) -> None:
    cell = spy.ValueRef({"a": 1.0, "n": 2})
    module.raise_pair(cell, 1)
    cell.value = {"a": 1.0, "n": 2**40}
    message = refused(spy.BindError, lambda: module.raise_pair(cell, 1))
    assert "argument 'p'.n is 1099511627776, which does not fit 'int'" in message
    assert cell.value == {"a": 1.0, "n": 2**40}


def test_arrays_of_structs_written_to_stay_when_refused(module: spy.Module) -> None:
    arrays = Arrays(module)
    for target in (arrays.pairs, arrays.records):
        with pytest.raises(spy.ShapeError):
            module.raise_pair(target, np.zeros((2, 3), np.float32))
    arrays.check()
