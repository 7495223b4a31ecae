"""Types, functions and arguments that tests of resolution share, Slang's and the model's. No test is here."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import _model_types as kinds
import numpy as np
import pytest
from _gaps import narrowest
from _model_types import CallId, Data, Grid, Type

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF

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

FLOAT, INT, BYTE = kinds.scalar("float", "f4"), kinds.scalar("int", "i4"), kinds.scalar("uint8_t", "u1")
HALF, DOUBLE, BOOL = kinds.scalar("half", "f2"), kinds.scalar("double", "f8"), kinds.scalar("bool", "?")
UINT, WORD = kinds.scalar("uint", "u4"), kinds.scalar("uint64_t", "u8")
FLOAT3, INT2, MATRIX = kinds.vector(FLOAT, 3), kinds.vector(INT, 2), kinds.matrix(FLOAT, 2, 3)
FLOAT4 = kinds.vector(FLOAT, 4)
FLOATS, VECTORS2 = kinds.array(FLOAT, 4), kinds.array(FLOAT3, 2)
S, MODE = kinds.struct("S", a=FLOAT, b=INT), kinds.enum("Mode", first=0, second=1, seventh=7)

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
    "of_tensor": kinds.tensor(FLOAT, 1),
    "of_tensor2": kinds.tensor(FLOAT3, 2),
    "of_pointer": kinds.pointer(FLOAT),
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


def label(value: Any) -> str:
    """A row's name: type and value."""
    text = repr(value).replace("\n", "")
    return text if isinstance(value, (Data, Grid, CallId)) else f"{type(value).__name__} {text}"


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
    placed = [kinds.place(module.device, module, value)[0] for value in values]
    return module[function](*placed, _result="tensor")


def narrow_function(module: spy.Module) -> tuple[spy.Function, np.dtype[Any], int]:
    """The function of the shortest unsigned integers, their dtype and the largest of them."""
    scalar = narrowest(module.device)
    return module[f"of_{scalar}"], NUMPY_OF[scalar], int(np.iinfo(NUMPY_OF[scalar]).max)
