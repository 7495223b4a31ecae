"""Functions and arguments for calls of the functional API that are refused, with a check of each. No test is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _refusals import refused

import slangpy_rt as spy

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
BIND, SHAPE, NOT = spy.BindError, spy.ShapeError, spy.UnsupportedError


def check_refused(module: spy.Module, action: Call, error: type[Exception], message: str) -> None:
    """A call is refused with the message, twice, and afterwards the device computes and no array has changed."""
    arrays = Arrays(module)
    # Twice: a refusal must not be remembered as a call that works.
    for _ in range(2):
        assert refused(error, lambda: action(module, arrays)) == message
    arrays.check()
    np.testing.assert_array_equal(module.add(arrays.t, arrays.h).to_numpy(), np.full(3, 14))
