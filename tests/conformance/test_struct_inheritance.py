"""Inheritance, which Slang still has for structs: fields of a base come first."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

INHERITED = """
import slangpy_rt;
struct Base { float a; int n; float sum() { return a + n; } }
struct Next : Base { float3 b; }
struct Last : Next { float c; }
typedef Base Other;
struct Of<T> : Other { T t; }
struct Nothing : Base {}
struct Holder { float first; Next next; }
interface ISum { float total(); }
struct Both : Base, ISum { float w; float total() { return a + n + w; } }
float next(Next x) { return x.a + 10 * x.n + 100 * x.b.y + 1000 * x.sum(); }
float last(Last x) { return x.a + 10 * x.n + 100 * x.b.y + 1000 * x.c; }
float of(Of<float> x) { return x.a + 10 * x.n + 100 * x.t; }
float nothing(Nothing x) { return x.a + 10 * x.n; }
float holder(Holder h) { return h.first + 10 * h.next.a + 100 * h.next.b.z; }
float both(Both x) { return x.total(); }
Last make(float a, int n) { Last x; x.a = a; x.n = n; x.b = float3(a + 1, a + 2, a + 3); x.c = a + 4; return x; }
void grow(inout Last x) { x.a *= 2; x.c *= 2; }
float all(Tensor<Last, 1> t) { Last x = t[1]; return x.a + 10 * x.n + 100 * x.b.y + 1000 * x.c; }

struct Padded { double x; int k; }
struct Behind : Padded { int l; }
struct Hides : Base { float a; }
struct Empty {}
struct Marked : Empty { float a; }
float behind(Behind x) { return x.l; }
float hides(Hides x) { return x.a; }
float marked(Marked x) { return x.a; }
"""


@one_device
def test_inherited_fields_come_first(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_inherited", INHERITED.replace("double x", "float2 x"))
    b = [2.0, 3.0, 4.0]
    assert module.next({"a": 5.0, "n": 7, "b": b}) == 5 + 70 + 300 + 12000
    assert module.last((5.0, 7, b, 1.0)) == 5 + 70 + 300 + 1000
    assert module.of({"a": 5.0, "n": 7, "t": 2.0}) == 5 + 70 + 200
    assert module.nothing({"a": 5.0, "n": 7}) == 75
    assert module.holder({"first": 1.0, "next": {"a": 2.0, "n": 0, "b": b}}) == 1 + 20 + 400
    assert module.both({"a": 1.0, "n": 2, "w": 4.0}) == 7
    with pytest.raises(spy.BindError, match="argument 'x' lacks a, n; 'Next' has a, n, b"):
        module.next({"b": b})
    fields = [("a", "f4"), ("n", "i4"), ("b", "f4", 3), ("c", "f4")]
    host = np.zeros(4, fields)
    host["a"], host["n"], host["c"] = np.arange(4), np.arange(4) + 5, np.arange(4) * 2
    host["b"] = np.arange(12).reshape(4, 3)
    expected = host["a"] + 10 * host["n"] + 100 * host["b"][:, 1] + 1000 * host["c"]
    tensor = spy.Tensor.from_numpy(device, host, dtype=module.Last)
    np.testing.assert_array_equal(module.last(tensor).to_numpy(), expected)
    np.testing.assert_array_equal(module.last(host), expected)
    assert module.all(tensor) == expected[1]
    module.grow(tensor)
    back = tensor.to_numpy()
    np.testing.assert_array_equal(back["a"], 2 * host["a"])
    np.testing.assert_array_equal(back["c"], 2 * host["c"])
    np.testing.assert_array_equal(back["b"], host["b"])
    made = module.make(np.arange(3, dtype=np.float32), 9)
    np.testing.assert_array_equal(made["a"], [0, 1, 2])
    np.testing.assert_array_equal(made["n"], [9, 9, 9])
    np.testing.assert_array_equal(made["b"][:, 2], [3, 4, 5])
    np.testing.assert_array_equal(made["c"], [4, 5, 6])


def test_inherited_fields_that_text_or_arrays_cannot_reach(device: spy.Device) -> None:
    text = INHERITED.replace("double x", "int64_t x")  # doubles need not be there
    module = spy.Module.load_from_source(device, "test_unreachable", text)
    for call, message in (
        (
            lambda: module.hides({"a": 1.0, "n": 2}),
            "float hides(Hides x): argument 'x.a': parameters of type "
            "'float (hidden by Hides.a; make Base a field)' ",
        ),
        (
            lambda: module.behind({"x": 1, "k": 2, "l": 3}),
            "float behind(Behind x): argument 'x.l': parameters of type "
            "'int (behind Padded, which ends in padding or is empty; make Padded a field)' ",
        ),
        (
            lambda: module.marked({"a": 1.0}),
            "float marked(Marked x): argument 'x.a': parameters of type "
            "'float (behind Empty, which ends in padding or is empty; make Empty a field)' ",
        ),
        (lambda: module.behind(np.zeros(3, np.int32)), "parameters of type 'Behind' are not supported"),
    ):
        with pytest.raises(spy.UnsupportedError) as refusal:
            call()
        assert message in str(refusal.value)
    with pytest.raises(spy.BindError, match="is not an element type"):
        spy.Tensor.zeros(device, 3, dtype=module.Behind)
