"""Functions that take numbers without data, and NumPy models of indices and hashes. No test is here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy

SLANG = """
struct Sample { int place; float2 noise; float weight; };

int one(int x) { return x; }
uint one_u(uint x) { return x; }
int64_t one_wide(int64_t x) { return x; }
float one_f(float x) { return x; }
double one_d(double x) { return x; }
int2 two(int2 x) { return x; }
uint2 two_u(uint2 x) { return x; }
float2 two_f(float2 x) { return x; }
int3 three(int3 x) { return x; }
uint3 three_u(uint3 x) { return x; }
float3 three_f(float3 x) { return x; }
uint4 four_u(uint4 x) { return x; }
int[1] array1(int x[1]) { return x; }
int[2] array2(int x[2]) { return x; }
int[3] array3(int x[3]) { return x; }
uint[5] array5(uint x[5]) { return x; }
float[5] array5_f(float x[5]) { return x; }
float sum(int x, float a) { return x + a; }
float sum2(int2 p, float a) { return 1000 * p.x + 100 * p.y + a; }
float sum3(int3 p, float a) { return 1000 * p.x + 100 * p.y + 10 * p.z + a; }
uint beside(uint x, float a) { return x + uint(a); }
float beside_f(float x, float a) { return x + a; }
float apart(uint x, float x_0) { return x_0 - x; }
float pairs(int x, int y) { return 100 * x + y; }
float at_place(Sample s) { return 10 * s.place + s.weight; }
float2 noise(Sample s) { return s.noise; }
int kind(int x) { return 1; }
int kind(float x) { return 2; }
uint wangHash(uint x) { return x + 1; }
uint scramble(uint x) { return x + 2; }
"""
Array = npt.NDArray[Any]
SEEDS = [0, 1, 7, 2640457667, 2**32 - 1]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_generators", SLANG)


def ramp(*shape: int) -> Array:
    """Every element another number."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def wang(seed: Any) -> Any:
    """Thomas Wang's 32-bit integer hash, with the multiplication by 9 as he wrote it."""
    with np.errstate(over="ignore"):
        x = np.asarray(seed, np.uint32)
        x = (x ^ np.uint32(61)) ^ (x >> np.uint32(16))
        x = x + (x << np.uint32(3))
        x = x ^ (x >> np.uint32(4))
        x = x * np.uint32(0x27D4EB2D)
        return x ^ (x >> np.uint32(15))


def hashes(shape: tuple[int, ...], n: int, seed: int = 2640457667, warmup: int = 0, hash_seed: bool = True) -> Array:
    """A chain of ``n`` hashes for each element, from its number times ``n``."""
    x = np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(n)
    for _ in range(warmup):
        x = wang(x)
    x = x ^ (wang(seed) if hash_seed else np.uint32(seed))
    out = []
    for _ in range(n):
        x = wang(x)
        out.append(x)
    return np.stack(out, -1).reshape(shape if n == 1 else (*shape, n))


def floats(bits: Any, low: float, high: float) -> Array:
    """The same numbers as floats in ``[low, high)``, every operation rounded to 32 bits."""
    f4 = np.float32
    u = (bits & np.uint32(0x7FFFFF)).astype(f4) / f4(2**23)
    value = f4(low) + (f4(high) - f4(low)) * u
    below: Array = np.minimum(value, np.nextafter(f4(high), f4(low)))
    return below


def index(shape: tuple[int, ...]) -> Array:
    """The index of each element, dimensions last and in NumPy's order."""
    return np.moveaxis(np.indices(shape), 0, -1)
