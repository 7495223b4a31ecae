"""Errors of methods, overloads, generics and interfaces, with their whole messages.

After each refusal the device must still compute, and no array may have changed.
"""

from __future__ import annotations

import pytest
from _functional import BIND, CELL, Arrays, Call, check_refused, module
from _refusals import refused

import slangpy_rt as spy

__all__ = ["module"]  # the fixture

REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    # Methods, constructors, instances.
    "unknown method": (
        lambda m, a: m.Counter.down,
        AttributeError,
        "struct 'Counter' has no method 'down'; it has plus, up, one.",
    ),
    "unknown method by item": (
        lambda m, a: m.Counter["down"],
        BIND,
        "struct 'Counter' has no method 'down'; it has plus, up, one.",
    ),
    "method without its object": (
        lambda m, a: m.Counter.plus(x=1),
        BIND,
        "int Counter.plus(Counter this, int x): argument this missing.",
    ),
    "dict that a method would change": (
        lambda m, a: m.Counter.up({"n": 1}, 1),
        BIND,
        f"void Counter.up(inout Counter this, int by): argument 'this.n' is 'inout' and {CELL} 1.",
    ),
    "too many constructor arguments": (
        lambda m, a: m.Counter(1, 2),
        BIND,
        "Counter Counter(int n): 2 positional arguments were given; it takes 1.",
    ),
    "instance list with an unknown field": (
        lambda m, a: spy.InstanceList(m.Pair, {"a": 1, "z": 2}),
        BIND,
        "InstanceList: 'Pair' has no field z; it has a, n.",
    ),
    "instance list lacking a field": (
        lambda m, a: m.pair(spy.InstanceList(m.Pair, {"a": 1})),
        BIND,
        "float pair(Pair p): argument 'p' is an InstanceList of 'Pair' without a value for n.",
    ),
    "unknown field of an instance list set": (
        lambda m, a: setattr(spy.InstanceList(m.Pair), "z", 1),
        AttributeError,
        "'Pair' has no field 'z'; it has a, n.",
    ),
    "instance tensor of other data": (
        lambda m, a: spy.InstanceTensor(m.Pair, 3, a.t),
        BIND,
        "InstanceTensor: data is a Tensor<float> of shape (3,); a Tensor<Pair> of shape (3,) was expected.",
    ),
    "instance tensor of another shape": (
        lambda m, a: spy.InstanceTensor(m.Pair, 4, a.pairs),
        BIND,
        "InstanceTensor: data is a Tensor<Pair> of shape (3,); a Tensor<Pair> of shape (4,) was expected.",
    ),
    # Overloads and arguments by name.
    "overloads that fit equally well": (
        lambda m, a: m.crossed(1, 2),
        BIND,
        "crossed: more than one overload takes these arguments equally well:\n"
        "  overload                       argument  taken as  call dimensions  fit\n"
        "  float crossed(float a, int b)  a         float     0                converted\n"
        "                                 b         int       0                exact\n"
        "  float crossed(int a, float b)  a         int       0                exact\n"
        "                                 b         float     0                converted\n"
        "Say which is meant: crossed.map(a='float', b='int')(...) takes the first.",
    ),
    "structs that fit equally well": (
        lambda m, a: m.either({"a": 1, "n": 2}),
        BIND,
        "either: more than one overload takes these arguments equally well:\n"
        "  overload               argument  taken as  call dimensions  fit\n"
        "  float either(Pair p)   p         Pair      0                converted\n"
        "  float either(Other p)  p         Other     0                converted\n"
        "Say which is meant: either.map(p='Pair')(...) takes the first.",
    ),
    "default between arguments": (
        lambda m, a: m.defaults(1, c=2),
        BIND,
        "float defaults(float a, float b = 2.0, float c = 3.0): argument b missing; Slang fills in defaults from the "
        "right only, so that a call which gives c has to give b too.",
    ),
    "only defaults given": (
        lambda m, a: m.defaults(c=2),
        BIND,
        "float defaults(float a, float b = 2.0, float c = 3.0): argument a missing.",
    ),
    # Generics and interfaces.
    "generic parameter that no argument names": (
        lambda m, a: m.unused(1),
        BIND,
        "T unused<T>(int x): the arguments do not say what T stands for; name it, as in module['unused<T>'].",
    ),
    "generic parameter of two types": (
        lambda m, a: m.mean(a.t, a.f8),
        BIND,
        "T mean<T>(T a, T b): argument 'b' makes T double, and another argument makes it float.",
    ),
    "value without a Slang type": (
        lambda m, a: m.same({"a": 1}),
        BIND,
        "T same<T>(T x): argument 'x' is {'a': 1}, which has no Slang type of its own; add '_type': 'Name' to it, or "
        "name one with .map(...).",
    ),
    "generic size of a number": (
        lambda m, a: m.sum(3.0),
        BIND,
        "float sum<N>(float[N] x): argument 'x' is 3.0; 'float[N]' needs 1 dimension more.",
    ),
    "named size of another list": (
        lambda m, a: m["sum<2>"]([1, 2, 3]),
        BIND,
        "float sum<2>(float[2] x): argument 'x' is [1, 2, 3]; 'float[2]' needs the last dimension to be 2.",
    ),
    "interface without _type": (
        lambda m, a: m.area({"side": 1}),
        BIND,
        "float area(IShape s): argument 's' is {'side': 1}; 'IShape' is an interface: name the struct, as in "
        "{'_type': 'Name', ...}, or pass an array of structs.",
    ),
    "structured array for an interface": (
        lambda m, a: m.area(a.records),
        BIND,
        "float area(IShape s): argument 's' is a structured array with the fields a, n and shape (3,); 'IShape' is "
        "an interface: name the struct, as in {'_type': 'Name', ...}, or pass an array of structs.",
    ),
    "struct that does not implement the interface": (
        lambda m, a: m.area({"_type": "Pair", "a": 1, "n": 2}),
        BIND,
        "float area(IShape s): argument 's' is a 'Pair', which does not implement 'IShape'.",
    ),
    "array of such structs": (
        lambda m, a: m.area(a.pairs),
        BIND,
        "float area(IShape s): argument 's' is a 'Pair', which does not implement 'IShape'.",
    ),
    "_type that there is not": (
        lambda m, a: m.area({"_type": "Circle", "side": 1}),
        BIND,
        "float area(IShape s): argument 's': module 'test_functional' knows no type 'Circle'.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(module: spy.Module, name: str) -> None:
    action, error, message = REFUSED[name]
    check_refused(module, action, error, message)


def test_generic_constraints_that_are_not_met(module: spy.Module) -> None:
    arrays = Arrays(module)
    message = refused(spy.BindError, lambda: module.mean(arrays.pairs, arrays.pairs))
    start = "T mean<T>(T a, T b): the arguments make it mean<Pair>, which Slang refuses:\n"
    assert message.startswith(start)
    assert "'Pair' does not conform to the required interface '__BuiltinFloatingPointType'" in message


def test_a_range_that_no_call_can_have(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "long_range", "float f(float a) { return a; }")
    with pytest.raises(spy.BindError) as caught:
        module.f(range(10**30))
    assert str(caught.value) == (
        f"float f(float a): argument 'a' is range(0, {10**30}), which is longer than any call can be."
    )
