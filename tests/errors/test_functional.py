"""Errors of the functional API, with their whole messages: structs, methods, generics, map, modifiers, dispatch.

After each refusal the device must still compute, and no array may have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy

Requires = Callable[..., None]

SLANG = """
import slangpy_rt;
float add(float a, float b) { return a + b; }
void fill(float x, out float y) { y = x; }
void bump(inout float y, float x) { y += x; }
float3 turn(float3 v) { return v.yzx; }
float defaults(float a, float b = 2, float c = 3) { return a + b + c; }
float total(Tensor<float, 1> t) { return t[0]; }
float at(float *p, int k) { return p[k]; }
enum Mode { Off, On = 3 }
int mode(Mode m) { return int(m); }

struct Pair { float a; int n; }
struct Other { float a; int n; }
struct Outer { Pair pair; float3 v; }
float pair(Pair p) { return p.a + p.n; }
float outer(Outer o) { return o.pair.a + o.v.x; }
float either(Pair p) { return 1; }
float either(Other p) { return 2; }
float crossed(float a, int b) { return 1; }
float crossed(int a, float b) { return 2; }
void raise_pair(inout Pair p, float by) { p.a += by; }
struct Counter
{
    int n;
    __init(int n) { this.n = n; }
    int plus(int x) { return n + x; }
    [mutating] void up(int by) { n += by; }
    static int one() { return 1; }
}
struct Bare { int n; float x[2]; }

T same<T>(T x) { return x; }
T mean<T : __BuiltinFloatingPointType>(T a, T b) { return (a + b) / T(2); }
T unused<T>(int x) { return __default<T>(); }
float sum<let N : int>(float x[N]) { return x[0]; }
vector<T, N> reversed<T : __BuiltinArithmeticType, let N : int>(vector<T, N> v) { return v; }
interface IShape { float area(); }
struct Square : IShape { float side; float area() { return side * side; } }
float area(IShape s) { return s.area(); }

extern static const int count = 3;
extern static const float3 offset = float3(1, 2, 3);
float constants(float x) { return x * count + offset.x; }
uniform float gain;
uniform Pair light;
float lit(float x) { return x * gain + light.a; }

[numthreads(4, 1, 1)]
void mark(uint t : SV_DispatchThreadID, NDBuffer<float, 1> x, float by) { x[int(t)] = by; }
[numthreads(4, 1, 1)]
void index_kernel(int k) {}
[numthreads(4, 1, 1)]
void writes(uint t : SV_DispatchThreadID, out float x) { x = t; }
[numthreads(4, 1, 1)]
void vertex(uint t : SV_VertexID, NDBuffer<float, 1> x) { x[0] = t; }
"""
ADD = "float add(float a, float b)"
AT = "float at(float* p, int k)"
PAIR = "float pair(Pair p): argument 'p'"
RAISE = "void raise_pair(inout Pair p, float by): argument 'p'"
FILL = "void fill(float x, out float y): argument 'y'"
BUMP = "void bump(inout float y, float x): argument 'y'"
UP = "void Counter.up(inout Counter this, int by): argument 'this'"
MARK = "void mark(NDBuffer<float, 1> x, float by)"
CONSTANTS = "float constants(float x)"
CELL = "would be written to; pass an array or a ValueRef instead of"
GROUP = "is not one to three whole numbers whose product is 1 to 1024."
THREADS = "give one to three whole numbers of at least 0."
RIGHT = "\nShapes are matched from the right; two dimensions must be equal, or one of them 1."


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_functional", SLANG)


class Arrays:
    """Arguments for calls that fail; ``check`` sees whether any was written to."""

    def __init__(self, module: spy.Module) -> None:
        device = module.device
        self.h = np.full(3, 7, np.float32)
        self.g = np.full((3, 4), 7, np.float32)
        self.t = spy.Tensor.full(device, 3, 7)
        self.g_t = spy.Tensor.full(device, (3, 4), 7)
        self.f8 = spy.Tensor.full(device, 3, 7, "double")
        self.b = spy.NDBuffer(device, "float", 4)
        self.b.from_numpy(np.full(4, 7))
        self.pairs = spy.Tensor(device, module.Pair, 3)
        self.pairs.from_numpy(np.full(6, 7, np.int32))
        self.records = self.pairs.to_numpy()
        self.swapped = np.zeros(3, [("n", "i4"), ("a", "f4")])
        self.swapped["n"], self.swapped["a"] = 7, 7

    def check(self) -> None:
        """Everything still holds 7."""
        for name, array in vars(self).items():
            values: npt.NDArray[Any] = np.asarray(array)
            columns = [values] if values.dtype.names is None else [values[field] for field in values.dtype.names]
            assert all((column == 7).all() for column in columns), name


Call = Callable[[spy.Module, Arrays], Any]
_BIND, _SHAPE, _NOT = spy.BindError, spy.ShapeError, spy.UnsupportedError
REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    # Structs.
    "missing field": (lambda m, a: m.pair({"a": 1}), _BIND, f"{PAIR} lacks n; 'Pair' has a, n."),
    "missing fields": (lambda m, a: m.pair({}), _BIND, f"{PAIR} lacks a, n; 'Pair' has a, n."),
    "extra field": (
        lambda m, a: m.pair({"a": 1, "n": 2, "z": 3}),
        _BIND,
        f"{PAIR} has z, which 'Pair' has not; 'Pair' has a, n.",
    ),
    "missing field inside": (
        lambda m, a: m.outer({"pair": {"a": 1}, "v": [1, 2, 3]}),
        _BIND,
        "float outer(Outer o): argument 'o.pair' lacks n; 'Pair' has a, n.",
    ),
    "field of a wrong type": (
        lambda m, a: m.pair({"a": 1, "n": 2.5}),
        _BIND,
        "float pair(Pair p): argument 'p.n' is 2.5 of type float, which does not convert to 'int'.",
    ),
    "fields that do not broadcast": (
        lambda m, a: m.pair({"a": [1, 2, 3], "n": [1, 2]}),
        _SHAPE,
        "float pair(Pair p): argument 'p.n' of shape (2,) does not broadcast with argument 'p.a' of shape (3,)."
        f"{RIGHT}",
    ),
    "another _type": (
        lambda m, a: m.pair({"_type": "Other", "a": 1, "n": 2}),
        _BIND,
        f"{PAIR} has _type 'Other'; 'Pair' was expected.",
    ),
    "another _type, as an object": (
        lambda m, a: m.pair({"_type": m.Other, "a": 1, "n": 2}),
        _BIND,
        f"{PAIR} has _type 'Other'; 'Pair' was expected.",
    ),
    "tuple of another length": (lambda m, a: m.pair((1,)), _BIND, f"{PAIR} is (1,); 'Pair' has 2 fields: a, n."),
    "number for a struct": (
        lambda m, a: m.pair(3),
        _BIND,
        f"{PAIR} is 3 of type int, which does not convert to 'Pair'.",
    ),
    "array of numbers for a struct": (
        lambda m, a: m.pair(a.h),
        _BIND,
        f"{PAIR} is an array of dtype float32 and shape (3,), which does not convert to 'Pair'; "
        "pass a structured array with the fields a, n.",
    ),
    "device array of numbers for a struct": (
        lambda m, a: m.pair(a.t),
        _BIND,
        f"{PAIR} is a Tensor<float> of shape (3,); 'Pair' was expected, and device data is not converted. "
        "Make it with dtype=module.Pair, or convert it on the host with from_numpy(...).",
    ),
    "device array of another struct": (
        lambda m, a: m.either(spy.Tensor.zeros(m.device, 2, m.Bare)),
        _BIND,
        "either: no overload takes these arguments:\n"
        "  float either(Pair p): argument 'p' is a Tensor<Bare> of shape (2,); 'Pair' was expected, and device data "
        "is not converted. Make it with dtype=module.Pair, or convert it on the host with from_numpy(...).\n"
        "  float either(Other p): argument 'p' is a Tensor<Bare> of shape (2,); 'Other' was expected, and device "
        "data is not converted. Make it with dtype=module.Other, or convert it on the host with from_numpy(...).",
    ),
    "structured array without a field": (
        lambda m, a: m.pair(a.records[["a"]]),
        _BIND,
        f"{PAIR}: the structured data lacks n; expected a, n.",
    ),
    "structured array with a field that does not convert": (
        lambda m, a: m.pair(np.zeros(3, [("a", "f4"), ("n", "f8")])),
        _BIND,
        f"{PAIR}: field n of dtype float64 does not convert to int32.",
    ),
    "structured array of another layout, written to": (
        lambda m, a: m.raise_pair(a.swapped, 1),
        _BIND,
        f"{RAISE} is a structured array with the fields n, a and shape (3,), which does not convert to 'Pair'; "
        "it must be an array of dtype numpy.dtype([('a', 'float32'), ('n', 'int32')], align=True).",
    ),
    "tuple written to": (
        lambda m, a: m.raise_pair((1, 2), 1),
        _BIND,
        f"void raise_pair(inout Pair p, float by): argument 'p.a' is 'inout' and {CELL} 1.",
    ),
    "struct for a vector": (
        lambda m, a: m.turn({"x": 1, "y": 2}),
        _BIND,
        "float3 turn(float3 v): argument 'v' lacks z; 'float3' has x, y, z.",
    ),
    "list of another length": (
        lambda m, a: m.turn([1, 2]),
        _BIND,
        "float3 turn(float3 v): argument 'v' is [1, 2]; 'float3' needs the last dimension to be 3.",
    ),
    "vector of another length": (
        lambda m, a: m.turn(spy.float4(1)),
        _BIND,
        "float3 turn(float3 v): argument 'v' is an array of dtype float32 and shape (4,); "
        "'float3' needs the last dimension to be 3.",
    ),
    "flat data of another size": (
        lambda m, a: a.pairs.from_numpy(np.zeros(5, np.float32)),
        _SHAPE,
        "Tensor.from_numpy: data of shape (5,) does not fill structs of shape (3,), which hold 2 scalars each: a, n.",
    ),
    "flat data of another kind": (
        lambda m, a: a.pairs.from_numpy(np.zeros(6, np.float32)),
        _BIND,
        "Tensor.from_numpy: data of dtype float32 does not convert to int32 of n.",
    ),
    "structured data without a struct": (
        lambda m, a: spy.Tensor.from_numpy(m.device, a.records),
        _BIND,
        f"Tensor.from_numpy: dtype {np.dtype([('a', 'f4'), ('n', 'i4')], align=True)} has no Slang type; "
        "name the struct: dtype=module.Name.",
    ),
    "structs are not flat": (
        lambda m, a: a.pairs.flatten_dtype(),
        _BIND,
        "Tensor.flatten_dtype: Tensor<Pair> of shape (3,) holds structs, not one scalar type.",
    ),
    # Methods, constructors, instances.
    "unknown method": (
        lambda m, a: m.Counter.down,
        AttributeError,
        "struct 'Counter' has no method 'down'; it has plus, up, one.",
    ),
    "unknown method by item": (
        lambda m, a: m.Counter["down"],
        _BIND,
        "struct 'Counter' has no method 'down'; it has plus, up, one.",
    ),
    "method without its object": (
        lambda m, a: m.Counter.plus(x=1),
        _BIND,
        "int Counter.plus(Counter this, int x): argument this missing.",
    ),
    "dict that a method would change": (
        lambda m, a: m.Counter.up({"n": 1}, 1),
        _BIND,
        f"void Counter.up(inout Counter this, int by): argument 'this.n' is 'inout' and {CELL} 1.",
    ),
    "too many constructor arguments": (
        lambda m, a: m.Counter(1, 2),
        _BIND,
        "Counter Counter(int n): 2 positional arguments were given; it takes 1.",
    ),
    "instance list with an unknown field": (
        lambda m, a: spy.InstanceList(m.Pair, {"a": 1, "z": 2}),
        _BIND,
        "InstanceList: 'Pair' has no field z; it has a, n.",
    ),
    "instance list lacking a field": (
        lambda m, a: m.pair(spy.InstanceList(m.Pair, {"a": 1})),
        _BIND,
        "float pair(Pair p): argument 'p' is an InstanceList of 'Pair' without a value for n.",
    ),
    "unknown field of an instance list set": (
        lambda m, a: setattr(spy.InstanceList(m.Pair), "z", 1),
        AttributeError,
        "'Pair' has no field 'z'; it has a, n.",
    ),
    "instance tensor of other data": (
        lambda m, a: spy.InstanceTensor(m.Pair, 3, a.t),
        _BIND,
        "InstanceTensor: data is a Tensor<float> of shape (3,); a Tensor<Pair> of shape (3,) was expected.",
    ),
    "instance tensor of another shape": (
        lambda m, a: spy.InstanceTensor(m.Pair, 4, a.pairs),
        _BIND,
        "InstanceTensor: data is a Tensor<Pair> of shape (3,); a Tensor<Pair> of shape (4,) was expected.",
    ),
    # Overloads and arguments by name.
    "overloads that fit equally well": (
        lambda m, a: m.crossed(1, 2),
        _BIND,
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
        _BIND,
        "either: more than one overload takes these arguments equally well:\n"
        "  overload               argument  taken as  call dimensions  fit\n"
        "  float either(Pair p)   p         Pair      0                converted\n"
        "  float either(Other p)  p         Other     0                converted\n"
        "Say which is meant: either.map(p='Pair')(...) takes the first.",
    ),
    "default between arguments": (
        lambda m, a: m.defaults(1, c=2),
        _BIND,
        "float defaults(float a, float b = ..., float c = ...): argument b missing; Slang fills in defaults from the "
        "right only, so that a call which gives c has to give b too.",
    ),
    "only defaults given": (
        lambda m, a: m.defaults(c=2),
        _BIND,
        "float defaults(float a, float b = ..., float c = ...): argument a missing.",
    ),
    # Generics and interfaces.
    "generic parameter that no argument names": (
        lambda m, a: m.unused(1),
        _BIND,
        "T unused<T>(int x): the arguments do not say what T stands for; name it, as in module['unused<T>'].",
    ),
    "generic parameter of two types": (
        lambda m, a: m.mean(a.t, a.f8),
        _BIND,
        "T mean<T>(T a, T b): argument 'b' makes T double, and another argument makes it float.",
    ),
    "value without a Slang type": (
        lambda m, a: m.same({"a": 1}),
        _BIND,
        "T same<T>(T x): argument 'x' is {'a': 1}, which has no Slang type of its own; name one with .map(...).",
    ),
    "generic size of a number": (
        lambda m, a: m.sum(3.0),
        _BIND,
        "float sum<N>(float[N] x): argument 'x' is 3.0; 'float[N]' needs 1 dimension more.",
    ),
    "named size of another list": (
        lambda m, a: m["sum<2>"]([1, 2, 3]),
        _BIND,
        "float sum<2>(float[2] x): argument 'x' is [1, 2, 3]; 'float[2]' needs the last dimension to be 2.",
    ),
    "interface without _type": (
        lambda m, a: m.area({"side": 1}),
        _BIND,
        "float area(IShape s): argument 's' is {'side': 1}; 'IShape' is an interface: name the struct, as in "
        "{'_type': 'Name', ...}, or pass an array of structs.",
    ),
    "structured array for an interface": (
        lambda m, a: m.area(a.records),
        _BIND,
        "float area(IShape s): argument 's' is a structured array with the fields a, n and shape (3,); 'IShape' is "
        "an interface: name the struct, as in {'_type': 'Name', ...}, or pass an array of structs.",
    ),
    "struct that does not implement the interface": (
        lambda m, a: m.area({"_type": "Pair", "a": 1, "n": 2}),
        _BIND,
        "float area(IShape s): argument 's' is a 'Pair', which does not implement 'IShape'.",
    ),
    "array of such structs": (
        lambda m, a: m.area(a.pairs),
        _BIND,
        "float area(IShape s): argument 's' is a 'Pair', which does not implement 'IShape'.",
    ),
    "_type that there is not": (
        lambda m, a: m.area({"_type": "Circle", "side": 1}),
        _BIND,
        "float area(IShape s): argument 's': module 'test_functional' knows no type 'Circle'.",
    ),
    # Enums, pointers, cells.
    "unknown case": (
        lambda m, a: m.mode("Maybe"),
        _BIND,
        "int mode(Mode m): argument 'm' is 'Maybe'; 'Mode' has Off, On.",
    ),
    "fraction for an enum": (
        lambda m, a: m.mode(1.5),
        _BIND,
        "int mode(Mode m): argument 'm' is 1.5 of type float, which does not convert to 'Mode'.",
    ),
    "NumPy array for a pointer": (
        lambda m, a: m.at(a.h, 0),
        _BIND,
        f"{AT}: argument 'p' is an array of dtype float32 and shape (3,); 'float*' takes a Tensor, an NDBuffer or an "
        "address.",
    ),
    "fraction for a pointer": (
        lambda m, a: m.at(1.5, 0),
        _BIND,
        f"{AT}: argument 'p' is 1.5; 'float*' takes a Tensor, an NDBuffer or an address.",
    ),
    "negative address": (
        lambda m, a: m.at(-1, 0),
        _BIND,
        f"{AT}: argument 'p' is -1, which does not fit 'float*' (0 to 18446744073709551615).",
    ),
    "pointer from a view with gaps": (
        lambda m, a: m.at(a.b[::2], 0),
        _BIND,
        f"{AT}: argument 'p' is a non-contiguous view; 'float*' takes elements that follow each other.",
    ),
    "pointer to another type": (
        lambda m, a: m.at(a.f8, 0),
        _BIND,
        f"{AT}: argument 'p' is a Tensor<double> of shape (3,); 'float' was expected, and device data is not "
        "converted. Make it with dtype='float', or convert it on the host with from_numpy(...).",
    ),
    "number for inout": (lambda m, a: m.bump(3.0, 1), _BIND, f"{BUMP} is 'inout' and {CELL} 3.0."),
    "None for out": (lambda m, a: m.fill(1, None), _BIND, f"{FILL} is 'out' and {CELL} None."),
    "generator for out": (
        lambda m, a: m.fill(1, spy.grid(3)),
        _BIND,
        f"{FILL} is 'out' and {CELL} grid(shape=(3,)).",
    ),
    "cell of text": (
        lambda m, a: m.bump(spy.ValueRef("x"), 1),
        _BIND,
        f"{BUMP} is 'x' of type str, which does not convert to 'float'.",
    ),
    "cell of several": (
        lambda m, a: m.bump(spy.ValueRef([1, 2]), 1),
        _BIND,
        f"{BUMP} is ValueRef([1, 2]); it takes one 'float'.",
    ),
    "cell of a struct with a field missing": (
        lambda m, a: m.raise_pair(spy.ValueRef({"a": 1}), 1),
        _BIND,
        f"{RAISE} lacks n; 'Pair' has a, n.",
    ),
    "cell for many": (
        lambda m, a: m.bump(spy.floatRef(1), a.h),
        _SHAPE,
        "void bump(inout float y, float x): 'y' of shape () is written by a call of shape (3,); elements would "
        "overwrite each other. Give it the call's shape.",
    ),
    # map.
    "map of another rank": (
        lambda m, a: m.add.map((0, 1))(a.h, 1),
        _BIND,
        f"{ADD}: argument 'a': map gives (0, 1) for 2 dimensions, but an array of dtype float32 and shape (3,) has 1 "
        "beside those of 'float'.",
    ),
    "map of a number": (
        lambda m, a: m.add.map((0,))(1, 2),
        _BIND,
        f"{ADD}: argument 'a': map gives (0,) for 1 dimension, but 1 has 0 beside those of 'float'.",
    ),
    "map of a whole container": (
        lambda m, a: m.total.map((0,))(a.t),
        _BIND,
        "float total(Tensor<float, 1> t): argument 't': map gives (0,) for 1 dimension, but a Tensor<float> of shape "
        "(3,) has 0 beside those of 'Tensor<float, 1>'.",
    ),
    "map of an unknown name": (
        lambda m, a: m.add.map(c=(0,))(a.h, 1),
        _BIND,
        f"{ADD}: map names 'c', which is no parameter; it has a, b.",
    ),
    "map of too many": (
        lambda m, a: m.add.map((0,), (0,))(a.h, b=1),
        _BIND,
        f"{ADD}: map has 2 entries by position; arguments by position: 1.",
    ),
    "map given twice": (
        lambda m, a: m.add.map((0,), a=(0,))(a.h, 1),
        _BIND,
        f"{ADD}: map says twice how 'a' runs, by position and by name.",
    ),
    "map to a negative dimension": (
        lambda m, a: m.add.map((-1,)),
        _BIND,
        "add.map: entry 0: (-1,) is not a tuple of call dimensions, which count from 0 to 31.",
    ),
    "map to a fraction": (
        lambda m, a: m.add.map(b=1.5),
        _BIND,
        "add.map: b: 1.5 says neither dimensions nor a type; give a tuple of call dimensions, such as (0,), a type "
        "or its name, such as 'float3', or a dict of these for fields.",
    ),
    "map to an unknown type": (
        lambda m, a: m.add.map("Nope")(1, 2),
        _BIND,
        f"{ADD}: argument 'a': map: module 'test_functional' knows no type 'Nope'.",
    ),
    "map to a type that Slang does not convert": (
        lambda m, a: m.add.map("float3")(1, 2),
        _BIND,
        f"{ADD}: argument 'a': map says 'float3', which Slang does not convert to 'float'.",
    ),
    "map to a type that the value does not convert to": (
        lambda m, a: m.add.map("int")(a.h, 1),
        _BIND,
        f"{ADD}: argument 'a' is an array of dtype float32 and shape (3,), which does not convert to 'int'; "
        "pass array.astype(numpy.int32).",
    ),
    "map of an unknown field": (
        lambda m, a: m.pair.map({"z": (0,)})({"a": a.h, "n": 1}),
        _BIND,
        f"{PAIR}: map names 'z', which 'Pair' has not; it has a, n.",
    ),
    "map of fields that are one array": (
        lambda m, a: m.pair.map({"a": (0,)})(a.pairs),
        _BIND,
        f"{PAIR}: map names fields, but a Tensor<Pair> of shape (3,) is taken whole; give call dimensions.",
    ),
    "map of fields at once": (
        lambda m, a: m.pair.map((0,))({"a": a.h, "n": 1}),
        _BIND,
        f"{PAIR}: map gives (0,) for a 'Pair' whose fields are given one by one; map those, as in {{'a': (0,)}}.",
    ),
    "map of the result to another rank": (
        lambda m, a: m.add.map((0, 1), _result=(0,))(a.g, 1, _result=a.g_t),
        _BIND,
        f"{ADD}: _result: map gives (0,); a Tensor<float> of shape (3, 4) has 2 dimensions.",
    ),
    "mapped shapes that differ": (
        lambda m, a: m.add.map((0,), (0,))(a.h, np.ones(4, np.float32)),
        _SHAPE,
        f"{ADD}: argument 'b' of shape (4,) does not broadcast with argument 'a' of shape (3,).{RIGHT}",
    ),
    "mapped output that would race": (
        lambda m, a: m.fill.map((0, 1), (0,))(a.g, a.t),
        _SHAPE,
        "void fill(float x, out float y): 'y' of shape (3,) is written by a call of shape (3, 4); elements would "
        "overwrite each other. Give it the call's shape.",
    ),
    # constants, set, return_type, group_size.
    "unknown constant": (
        lambda m, a: m.constants.constants({"coumt": 3})(1),
        _BIND,
        f"{CONSTANTS}: there is no constant 'coumt'; it has 'count', 'offset'. "
        "Declare it as: extern static const int coumt;",
    ),
    "fraction for a whole constant": (
        lambda m, a: m.constants.constants({"count": 1.5})(1),
        _BIND,
        f"{CONSTANTS}: constant 'count' is 1.5; a value of Slang type int was expected.",
    ),
    "constant vector of another length": (
        lambda m, a: m.constants.constants({"offset": [1, 2]})(1),
        _BIND,
        f"{CONSTANTS}: constant 'offset' is (1, 2); a value of Slang type float3 was expected.",
    ),
    "unknown uniform": (
        lambda m, a: m.lit.set(gian=3),
        _BIND,
        "lit.set: there is no uniform 'gian'; the module has gain, light.",
    ),
    "text for a uniform": (
        lambda m, a: m.lit.set(gain="x")(1),
        _BIND,
        "lit.set: uniform 'gain' is 'x' of type str, which does not convert to 'float'.",
    ),
    "uniform with a field missing": (
        lambda m, a: m.lit.set(light={"a": 1})(1),
        _BIND,
        "lit.set: uniform 'light' lacks n; 'Pair' has a, n.",
    ),
    "array for a uniform": (
        lambda m, a: m.lit.set(gain=[1.0, 2.0, 3.0], light=(1, 2))(a.h),
        _BIND,
        "lit.set: uniform 'gain' has shape (3,) beside the dimensions of 'float'; one for all is expected here.",
    ),
    "array for a field of a uniform": (
        lambda m, a: m.lit.set(gain=1, light=(a.t, 2))(1.0),
        _BIND,
        "lit.set: uniform 'light.a' has shape (3,) beside the dimensions of 'float'; one for all is expected here.",
    ),
    "number beyond a float": (
        lambda m, a: m.add(a.h, 1e300),
        _BIND,
        f"{ADD}: argument 'b' is 1e+300, which does not fit 'float'.",
    ),
    "number beyond a float in a list": (
        lambda m, a: m.turn([1.0, 2.0, -1e39]),
        _BIND,
        "float3 turn(float3 v): argument 'v' is -1e+39, which does not fit 'float3'.",
    ),
    "unknown return type": (
        lambda m, a: m.add.return_type("jax")(1, 2),
        _BIND,
        f"{ADD}: _result='jax' is not one of 'numpy', 'tensor', 'ndbuffer', 'torch'.",
    ),
    "group of no threads": (lambda m, a: m.add.group_size(0), _BIND, f"add.group_size: 0 {GROUP}"),
    "group too large": (lambda m, a: m.add.group_size((64, 32)), _BIND, f"add.group_size: (64, 32) {GROUP}"),
    "group of four dimensions": (
        lambda m, a: m.add.group_size((1, 1, 1, 1)),
        _BIND,
        f"add.group_size: (1, 1, 1, 1) {GROUP}",
    ),
    "group of a fraction": (lambda m, a: m.add.group_size(1.5), _BIND, f"add.group_size: 1.5 {GROUP}"),
    # Kernels.
    "kernel called": (
        lambda m, a: m.mark(a.b, 1),
        _BIND,
        "mark: this is a compute kernel; run it with mark.dispatch(threads, ...).",
    ),
    "negative threads": (
        lambda m, a: m.mark.dispatch(-1, a.b, 1),
        _BIND,
        f"mark.dispatch: threads is -1; {THREADS}",
    ),
    "fraction of threads": (
        lambda m, a: m.mark.dispatch(1.5, a.b, 1),
        _BIND,
        f"mark.dispatch: threads is 1.5; {THREADS}",
    ),
    "threads left out": (
        lambda m, a: m.mark.dispatch(a.b, 1),
        _BIND,
        f"mark.dispatch: threads is an NDBuffer<float> of shape (4,); {THREADS}",
    ),
    "threads of four dimensions": (
        lambda m, a: m.mark.dispatch((1, 1, 1, 1), a.b, 1),
        _BIND,
        f"mark.dispatch: threads is (1, 1, 1, 1); {THREADS}",
    ),
    "kernel argument with dimensions": (
        lambda m, a: m.mark.dispatch(4, a.b, a.h),
        _BIND,
        f"{MARK}: argument 'by' has shape (3,) beside the dimensions of 'float'; one for all is expected here.",
    ),
    "kernel argument of a value for each element": (
        lambda m, a: m.index_kernel.dispatch(4, spy.call_id()),
        _BIND,
        "void index_kernel(int k): argument 'k' is call_id(), one value for each element; one for all is expected "
        "here.",
    ),
    "kernel argument missing": (lambda m, a: m.mark.dispatch(4, a.b), _BIND, f"{MARK}: argument by missing."),
    "kernel argument of another rank": (
        lambda m, a: m.mark.dispatch(4, a.g_t, 1),
        _BIND,
        f"{MARK}: argument 'x' has shape (3,) beside the dimensions of 'NDBuffer<float, 1>'; one for all is expected "
        "here.",
    ),
    "unknown kernel argument": (
        lambda m, a: m.mark.dispatch(4, a.b, 1, c=2),
        _BIND,
        f"{MARK}: there is no parameter 'c'; it has x, by.",
    ),
    "read-only array for a kernel": (
        lambda m, a: m.mark.dispatch(4, np.broadcast_to(np.float32(7), 4), 1),
        _BIND,
        f"{MARK}: argument 'x' is an array of dtype float32 and shape (4,) and would be written to; "
        "pass a writable array.",
    ),
    "kernel with an out parameter": (
        lambda m, a: m.writes.dispatch(4, a.b),
        _BIND,
        "void writes(out float x): all threads would write to 'x'; let it be an NDBuffer or a pointer.",
    ),
    "kernel with a semantic of another stage": (
        lambda m, a: m.vertex.dispatch(4, a.b),
        _NOT,
        "vertex: parameter 't' has the semantic SV_VertexID; SV_DispatchThreadID, SV_GroupThreadID, SV_GroupID, "
        "SV_GroupIndex are supported.",
    ),
    "map of a kernel": (
        lambda m, a: m.mark.map((0,)),
        _BIND,
        "mark: map, return_type and group_size say how a function is called over arrays; the threads of a compute "
        "kernel are those of its [numthreads] and of dispatch.",
    ),
}


def refused(error: type[Exception], action: Callable[[], Any]) -> str:
    """The message of the error that an action raises."""
    with pytest.raises(error) as caught:
        action()
    assert type(caught.value) is error
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(module: spy.Module, requires: Requires, name: str) -> None:
    action, error, message = REFUSED[name]
    if message.startswith(AT):
        requires("pointers")
    arrays = Arrays(module)
    # Twice: a refusal must not be remembered as a call that works.
    for _ in range(2):
        assert refused(error, lambda: action(module, arrays)) == message
    arrays.check()
    np.testing.assert_array_equal(module.add(arrays.t, arrays.h).to_numpy(), np.full(3, 14))


def test_a_pointer_where_there_are_none(device: spy.Device, module: spy.Module) -> None:
    if "pointers" in device.caps.features:
        pytest.skip(f"{device.name} has pointers")
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


def test_generic_constraints_that_are_not_met(module: spy.Module) -> None:
    arrays = Arrays(module)
    message = refused(spy.BindError, lambda: module.mean(arrays.pairs, arrays.pairs))
    start = "T mean<T>(T a, T b): the arguments make it mean<Pair>, which Slang refuses:\n"
    assert message.startswith(start)
    assert "'Pair' does not conform to the required interface '__BuiltinFloatingPointType'" in message


def test_arrays_of_structs_written_to_stay_when_refused(module: spy.Module) -> None:
    arrays = Arrays(module)
    for target in (arrays.pairs, arrays.records):
        with pytest.raises(spy.ShapeError):
            module.raise_pair(target, np.zeros((2, 3), np.float32))
    arrays.check()


def test_a_range_that_no_call_can_have(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "long_range", "float f(float a) { return a; }")
    with pytest.raises(spy.BindError) as caught:
        module.f(range(10**30))
    assert str(caught.value) == (
        f"float f(float a): argument 'a' is range(0, {10**30}), which is longer than any call can be."
    )
