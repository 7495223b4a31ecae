"""Functions that the tests of arguments and of empty calls share. No test is here."""

from __future__ import annotations

import pytest

import slangpy_rt as spy

SLANG = """
import slangpy_rt;
float add(float a, float b) { return a + b; }
int add_int(int a, int b) { return a + b; }
uint8_t small(uint8_t a) { return a; }
bool negate(bool b) { return !b; }
float3 scale(float3 v, float s) { return v * s; }
float total(float x[4]) { return x[0]; }
void fill(float x, out float y) { y = x; }
void bump(inout float y, float x) { y += x; }
int index(int2 p) { return p.x; }
float first(Tensor<float, 2> t) { return t[0, 0]; }
float over(float a) { return a; }
float over(float a, float b) { return a; }
float sample(Texture2DMS<float4> t) { return 1; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_messages", SLANG)
