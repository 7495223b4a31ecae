"""Functions, numbers and views of one array that tests of shared memory use. No test is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.arrays.layout import layout_of

SLANG = """
import slangpy_rt;

float line(float x) { return 2 * x + 1; }
float add(float a, float b) { return a + b; }
float3 turned(float3 v) { return v.yzx; }
void update(inout float a, float b) { a += 3 * b; }
void split(float x, out float a, out float b) { a = x; b = -x; }
float halved(float x, out float half) { half = x / 2; return 2 * x; }
float first(Tensor<float, 1> row) { return row[0]; }
float near(int i, Tensor<float, 1> all) { return all[i] + all[(i + 1) % all.shape[0]]; }
void spread(int i, Tensor<float, 1> from, RWTensor<float, 1> to) { to[i] = from[(i + 1) % from.shape[0]]; }
float stored(int i, RWTensor<float, 1> all) { all[i] = 1; return 2; }
struct Pair { float a; float b; }
float sum(Pair p) { return p.a + p.b; }
Pair swapped(Pair p) { return { p.b, p.a }; }
uniform float offset[4];
float shifted(float x) { return x + offset[0]; }

void cut(float x, out float3 v, out float s) { v = float3(x, x + 1, x + 2); s = -x; }

[Differentiable] float multiply(float a, float b) { return a * b; }
[Differentiable] void grow(inout float a, float b) { a = a * b; }
[Differentiable] void parts(float x, out float a, out float b) { a = x * x; b = 3 * x; }
"""

Floats = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_overlap", SLANG)


def tensor(module: spy.Module, values: Any) -> Any:
    """A new Tensor of floats."""
    return spy.Tensor.from_numpy(module.device, np.asarray(values, np.float32))


def numbers(n: int = 24) -> Floats:
    """Small whole numbers, all different: floats add them exactly."""
    return np.arange(n, dtype=np.float32)


@dataclass(frozen=True)
class View:
    """A view of one base array of one dimension: where it begins, and its shape and strides in elements."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of_numpy(self, base: Floats) -> Any:
        """The view of a NumPy array."""
        strides = tuple(s * base.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(base[self.start :], self.shape, strides)

    def of_tensor(self, base: Any) -> Any:
        """The view of a Tensor."""
        device, address = base.device, base.address + 4 * self.start
        layout = layout_of(device, spy.Tensor, base.dtype, self.shape, self.strides, address % 32 == 0)
        return spy.Tensor.of(layout, base.buffer, address)

    @property
    def places(self) -> list[int]:
        """Which elements of the base it has."""
        return self.of_numpy(np.arange(SIZE, dtype=np.float32)).astype(int).ravel().tolist()


SIZE = 48
