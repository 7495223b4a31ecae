"""Errors of map, constants, set, return_type, group_size and dispatch, with their whole messages.

After each refusal the device must still compute, and no array may have changed.
"""

from __future__ import annotations

import numpy as np
import pytest
from _functional import (
    ADD,
    BIND,
    CONSTANTS,
    GROUP,
    MARK,
    NOT,
    PAIR,
    RIGHT,
    SHAPE,
    THREADS,
    Call,
    check_refused,
    module,
)

import slangpy_rt as spy

__all__ = ["module"]  # the fixture

REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    # map.
    "map of another rank": (
        lambda m, a: m.add.map((0, 1))(a.h, 1),
        BIND,
        f"{ADD}: argument 'a': map gives (0, 1) for 2 dimensions, but an array of dtype float32 and shape (3,) has 1 "
        "beside those of 'float'.",
    ),
    "map of a number": (
        lambda m, a: m.add.map((0,))(1, 2),
        BIND,
        f"{ADD}: argument 'a': map gives (0,) for 1 dimension, but 1 has 0 beside those of 'float'.",
    ),
    "map of a whole container": (
        lambda m, a: m.total.map((0,))(a.t),
        BIND,
        "float total(Tensor<float, 1> t): argument 't': map gives (0,) for 1 dimension, but a Tensor<float> of shape "
        "(3,) has 0 beside those of 'Tensor<float, 1>'.",
    ),
    "map of an unknown name": (
        lambda m, a: m.add.map(c=(0,))(a.h, 1),
        BIND,
        f"{ADD}: map names 'c', which is no parameter; it has a, b.",
    ),
    "map of too many": (
        lambda m, a: m.add.map((0,), (0,))(a.h, b=1),
        BIND,
        f"{ADD}: map has 2 entries by position; arguments by position: 1.",
    ),
    "map given twice": (
        lambda m, a: m.add.map((0,), a=(0,))(a.h, 1),
        BIND,
        f"{ADD}: map says twice how 'a' runs, by position and by name.",
    ),
    "map to a negative dimension": (
        lambda m, a: m.add.map((-1,)),
        BIND,
        "add.map: entry 0: (-1,) is not a tuple of call dimensions, which count from 0 to 31.",
    ),
    "map to a fraction": (
        lambda m, a: m.add.map(b=1.5),
        BIND,
        "add.map: b: 1.5 says neither dimensions nor a type; give a tuple of call dimensions, such as (0,), a type "
        "or its name, such as 'float3', or a dict of these for fields.",
    ),
    "map to an unknown type": (
        lambda m, a: m.add.map("Nope")(1, 2),
        BIND,
        f"{ADD}: argument 'a': map: module 'test_functional' knows no type 'Nope'.",
    ),
    "map to a type that Slang does not convert": (
        lambda m, a: m.add.map("float3")(1, 2),
        BIND,
        f"{ADD}: argument 'a': map says 'float3', which Slang does not convert to 'float'.",
    ),
    "map to a type that the value does not convert to": (
        lambda m, a: m.add.map("int")(a.h, 1),
        BIND,
        f"{ADD}: argument 'a' is an array of dtype float32 and shape (3,), which does not convert to 'int'; "
        "pass array.astype(numpy.int32).",
    ),
    "map of an unknown field": (
        lambda m, a: m.pair.map({"z": (0,)})({"a": a.h, "n": 1}),
        BIND,
        f"{PAIR}: map names 'z', which 'Pair' has not; it has a, n.",
    ),
    "map of fields that are one array": (
        lambda m, a: m.pair.map({"a": (0,)})(a.pairs),
        BIND,
        f"{PAIR}: map names fields, but a Tensor<Pair> of shape (3,) is taken whole; give call dimensions.",
    ),
    "map of fields at once": (
        lambda m, a: m.pair.map((0,))({"a": a.h, "n": 1}),
        BIND,
        f"{PAIR}: map gives (0,) for a 'Pair' whose fields are given one by one; map those, as in {{'a': (0,)}}.",
    ),
    "map of the result to another rank": (
        lambda m, a: m.add.map((0, 1), _result=(0,))(a.g, 1, _result=a.g_t),
        BIND,
        f"{ADD}: _result: map gives (0,); a Tensor<float> of shape (3, 4) has 2 dimensions.",
    ),
    "mapped shapes that differ": (
        lambda m, a: m.add.map((0,), (0,))(a.h, np.ones(4, np.float32)),
        SHAPE,
        f"{ADD}: argument 'b' of shape (4,) does not broadcast with argument 'a' of shape (3,).{RIGHT}",
    ),
    "mapped output that would race": (
        lambda m, a: m.fill.map((0, 1), (0,))(a.g, a.t),
        SHAPE,
        "void fill(float x, out float y): 'y' of shape (3,) is written by a call of shape (3, 4); elements would "
        "overwrite each other. Give it the call's shape.",
    ),
    # constants, set, return_type, group_size.
    "unknown constant": (
        lambda m, a: m.constants.constants({"coumt": 3})(1),
        BIND,
        f"{CONSTANTS}: there is no constant 'coumt'; it has 'count', 'offset'. "
        "Declare it as: extern static const int coumt;",
    ),
    "fraction for a whole constant": (
        lambda m, a: m.constants.constants({"count": 1.5})(1),
        BIND,
        f"{CONSTANTS}: constant 'count' is 1.5; a value of Slang type int was expected.",
    ),
    "constant vector of another length": (
        lambda m, a: m.constants.constants({"offset": [1, 2]})(1),
        BIND,
        f"{CONSTANTS}: constant 'offset' is (1, 2); a value of Slang type float3 was expected.",
    ),
    "unknown uniform": (
        lambda m, a: m.lit.set(gian=3),
        BIND,
        "lit.set: there is no uniform 'gian'; the module has gain, light.",
    ),
    "text for a uniform": (
        lambda m, a: m.lit.set(gain="x")(1),
        BIND,
        "lit.set: uniform 'gain' is 'x' of type str, which does not convert to 'float'.",
    ),
    "uniform with a field missing": (
        lambda m, a: m.lit.set(light={"a": 1})(1),
        BIND,
        "lit.set: uniform 'light' lacks n; 'Pair' has a, n.",
    ),
    "array for a uniform": (
        lambda m, a: m.lit.set(gain=[1.0, 2.0, 3.0], light=(1, 2))(a.h),
        BIND,
        "lit.set: uniform 'gain' has shape (3,) beside the dimensions of 'float'; one for all is expected here.",
    ),
    "array for a field of a uniform": (
        lambda m, a: m.lit.set(gain=1, light=(a.t, 2))(1.0),
        BIND,
        "lit.set: uniform 'light.a' has shape (3,) beside the dimensions of 'float'; one for all is expected here.",
    ),
    "number beyond a float": (
        lambda m, a: m.add(a.h, 1e300),
        BIND,
        f"{ADD}: argument 'b' is 1e+300, which does not fit 'float'.",
    ),
    "number beyond a float in a list": (
        lambda m, a: m.turn([1.0, 2.0, -1e39]),
        BIND,
        "float3 turn(float3 v): argument 'v' is -1e+39, which does not fit 'float3'.",
    ),
    "unknown return type": (
        lambda m, a: m.add.return_type("jax")(1, 2),
        BIND,
        f"{ADD}: _result='jax' is not one of 'numpy', 'tensor', 'ndbuffer', 'texture', 'torch'.",
    ),
    "group of no threads": (lambda m, a: m.add.group_size(0), BIND, f"add.group_size: 0 {GROUP}"),
    "group too large": (lambda m, a: m.add.group_size((64, 32)), BIND, f"add.group_size: (64, 32) {GROUP}"),
    "group of four dimensions": (
        lambda m, a: m.add.group_size((1, 1, 1, 1)),
        BIND,
        f"add.group_size: (1, 1, 1, 1) {GROUP}",
    ),
    "group of a fraction": (lambda m, a: m.add.group_size(1.5), BIND, f"add.group_size: 1.5 {GROUP}"),
    # Kernels.
    "kernel called": (
        lambda m, a: m.mark(a.b, 1),
        BIND,
        "mark: this is a compute kernel; run it with mark.dispatch(threads, ...).",
    ),
    "negative threads": (
        lambda m, a: m.mark.dispatch(-1, a.b, 1),
        BIND,
        f"mark.dispatch: threads is -1; {THREADS}",
    ),
    "fraction of threads": (
        lambda m, a: m.mark.dispatch(1.5, a.b, 1),
        BIND,
        f"mark.dispatch: threads is 1.5; {THREADS}",
    ),
    "threads left out": (
        lambda m, a: m.mark.dispatch(a.b, 1),
        BIND,
        f"mark.dispatch: threads is an NDBuffer<float> of shape (4,); {THREADS}",
    ),
    "threads of four dimensions": (
        lambda m, a: m.mark.dispatch((1, 1, 1, 1), a.b, 1),
        BIND,
        f"mark.dispatch: threads is (1, 1, 1, 1); {THREADS}",
    ),
    "kernel argument with dimensions": (
        lambda m, a: m.mark.dispatch(4, a.b, a.h),
        BIND,
        f"{MARK}: argument 'by' has shape (3,) beside the dimensions of 'float'; one for all is expected here.",
    ),
    "kernel argument of a value for each element": (
        lambda m, a: m.index_kernel.dispatch(4, spy.call_id()),
        BIND,
        "void index_kernel(int k): argument 'k' is call_id(), one value for each element; one for all is expected "
        "here.",
    ),
    "kernel argument missing": (lambda m, a: m.mark.dispatch(4, a.b), BIND, f"{MARK}: argument by missing."),
    "kernel argument of another rank": (
        lambda m, a: m.mark.dispatch(4, a.g_t, 1),
        BIND,
        f"{MARK}: argument 'x' has shape (3,) beside the dimensions of 'NDBuffer<float, 1>'; one for all is expected "
        "here.",
    ),
    "unknown kernel argument": (
        lambda m, a: m.mark.dispatch(4, a.b, 1, c=2),
        BIND,
        f"{MARK}: there is no parameter 'c'; it has x, by.",
    ),
    "read-only array for a kernel": (
        lambda m, a: m.mark.dispatch(4, np.broadcast_to(np.float32(7), 4), 1),
        BIND,
        f"{MARK}: argument 'x' is an array of dtype float32 and shape (4,) and would be written to; "
        "pass a writable array.",
    ),
    "kernel with an out parameter": (
        lambda m, a: m.writes.dispatch(4, a.b),
        BIND,
        "void writes(out float x): all threads would write to 'x'; let it be an NDBuffer or a pointer.",
    ),
    "kernel with a semantic of another stage": (
        lambda m, a: m.vertex.dispatch(4, a.b),
        NOT,
        "vertex: parameter 't' has the semantic SV_VertexID; SV_DispatchThreadID, SV_GroupThreadID, SV_GroupID, "
        "SV_GroupIndex are supported.",
    ),
    "map of a kernel": (
        lambda m, a: m.mark.map((0,)),
        BIND,
        "mark: map and return_type say how a function is called over arrays; the threads of a compute kernel are "
        "those of dispatch.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(module: spy.Module, name: str) -> None:
    action, error, message = REFUSED[name]
    check_refused(module, action, error, message)
