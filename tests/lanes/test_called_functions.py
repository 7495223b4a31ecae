"""Functions that kernels call in lanes: which are called, with what, and that they do what inlined ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from slangpy_rt.lanes.translate import translate
from tests.lanes._kernels import Kernels, run

pytest.importorskip("llvmlite")

STEPS = 80
_LONG = "x = x * 1664525u + 1013904223u; x ^= x >> 13; " * STEPS
KERNELS = Kernels(f"""
struct Pair {{ uint a; float2 b; }}

[noinline] uint mixed(uint x, uint most, bool odd)
{{
    {_LONG}
    uint sum = 0;
    for (uint i = 0; i < most; ++i)
    {{
        if ((x >> i & 3) == 2)
            return sum + i;
        sum += odd ? x ^ i : x + i;
    }}
    return sum;
}}
[noinline] void put(uint *to, uint at, uint x) {{ {_LONG} to[at] = x; }}
[noinline] Pair paired(uint x, half y, float2x2 m) {{ {_LONG} return {{x, mul(m, float2(float(y), 1))}}; }}
[noinline] uint inner(uint x) {{ {_LONG} return x; }}
[noinline] uint outer(uint x) {{ {_LONG} return inner(x) + (x & 1 ? inner(x + 1) : 0); }}
[noinline] uint small(uint x) {{ return x * 3; }}
groupshared uint shared[64];
[noinline] uint grouped(uint x, uint i) {{ {_LONG} shared[i] = x; return shared[i] + 1; }}
[noinline] uint waved(uint x) {{ {_LONG} return WaveActiveSum(x); }}

[shader("compute")] [numthreads(64, 1, 1)]
void kernel(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform uint *b, uniform uint n, uniform uint most)
{{
    uint i = thread.x;
    if (i >= n)
        return;
    b[i] = 7;
    if ((a[i] & 1) != 0)
        b[i] = mixed(a[i], most, (i & 2) != 0) + mixed(a[i] + 1, most, true);
    else if ((a[i] & 2) != 0)
        put(b, i, a[i]);
}}

[shader("compute")] [numthreads(64, 1, 1)]
void other(uint3 thread : SV_DispatchThreadID, uniform float *c, uniform uint *a, uniform uint *b, uniform uint most)
{{
    b[thread.x] = uint(c[thread.x]) + mixed(a[thread.x] + 1, most, true);
}}

[shader("compute")] [numthreads(64, 1, 1)]
void same(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform uint *b, uniform uint most)
{{
    uint count = mixed(a[0], most, false) & 7, sum = 0;
    for (uint i = 0; i < count; ++i)
        sum += a[thread.x + i];
    b[thread.x] = sum;
}}

[shader("compute")] [numthreads(64, 1, 1)]
void pairs(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform float *b, uniform float k)
{{
    uint x = a[thread.x];
    let found = paired(x, half(x & 15), float2x2(1, 2, k, float(x & 7)));
    b[3 * thread.x] = float(found.a >> 8);
    b[3 * thread.x + 1] = found.b.x;
    b[3 * thread.x + 2] = found.b.y;
}}

[shader("compute")] [numthreads(64, 1, 1)]
void nested(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform uint *b)
{{
    b[thread.x] = outer(a[thread.x]);
}}

[shader("compute")] [numthreads(64, 1, 1)]
void inlines(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform uint *b)
{{
    uint x = a[thread.x];
    b[thread.x] = small(x) + grouped(x, thread.x & 63) + waved(x);
}}
""")
WIDTHS = [4, 8, 16, 32]
RNG = np.random.default_rng(3)
Array = npt.NDArray[Any]


def numbers(count: int) -> Array:
    return RNG.integers(0, 2**32, count, dtype=np.uint32)


def long(x: Array) -> Array:
    """What the long part of each function computes."""
    for _ in range(STEPS):
        x = x * np.uint32(1664525) + np.uint32(1013904223)
        x = x ^ x >> np.uint32(13)
    return x


def mixed(x: Array, most: int, odd: Array) -> Array:
    x, total, found = long(x), np.zeros_like(x), np.full(len(x), -1, np.int64)
    for i in range(most):
        found = np.where((found < 0) & ((x >> np.uint32(i) & 3) == 2), total + np.uint32(i), found)
        total = np.where(odd, (x ^ np.uint32(i)) + total, x + np.uint32(i) + total)
    return np.where(found < 0, total, found).astype(np.uint32)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("most", [0, 20])
def test_lanes_that_differ(width: int, most: int) -> None:
    a, b, n = numbers(192), np.zeros(192, np.uint32), 150
    kernel = KERNELS.run("kernel", (3, 1, 1), a, b, n, most, width=width)
    index = np.arange(192)
    odd = mixed(a, most, (index & 2) != 0) + mixed(a + np.uint32(1), most, np.ones(192, bool))
    wanted = np.where(a & 1, odd, np.where(a & 2, long(a), 7))
    np.testing.assert_array_equal(b[:n], wanted[:n])
    assert not b[n:].any()
    # Two of ``mixed``, whose last argument is or is not the same in all lanes.
    assert len(kernel.functions) == 3


def test_names_tell_texts_apart() -> None:
    """A function has one name in all kernels; other arguments, widths and functions have other names."""
    names = {each.name for each in translate(KERNELS.code("kernel"), 8).functions}
    other = {each.name for each in translate(KERNELS.code("other"), 8).functions}
    assert len(other) == 1 and other < names
    assert not other & {each.name for each in translate(KERNELS.code("other"), 16).functions}
    assert not other & {each.name for each in translate(KERNELS.code("same"), 8).functions}
    changed = Kernels(KERNELS.text.replace("sum + i;", "sum + i + 1;"))
    assert not other & {each.name for each in translate(changed.code("other"), 8).functions}


@pytest.mark.parametrize("width", WIDTHS)
def test_one_result_for_all_lanes(width: int) -> None:
    """Arguments that are the same in all lanes give a result that is, too: the loop does not divide the lanes."""
    a, b = numbers(80), np.zeros(64, np.uint32)
    (function,) = KERNELS.run("same", (1, 1, 1), a, b, 9, width=width).functions
    assert function.call.uniform
    count = int(mixed(a[:1], 9, np.zeros(1, bool))[0] & 7)
    np.testing.assert_array_equal(b, sum((a[i : i + 64] for i in range(count)), np.zeros(64, np.uint32)))


@pytest.mark.parametrize("width", WIDTHS)
def test_structs_matrices_and_halves(width: int) -> None:
    a, b = numbers(64), np.zeros(192, np.float32)
    KERNELS.run("pairs", (1, 1, 1), a, b, 0.25, width=width)
    y = (a & 15).astype(np.float32)
    wanted = [(long(a) >> np.uint32(8)).astype(np.float32), y + 2, np.float32(0.25) * y + (a & 7)]
    np.testing.assert_array_equal(b.reshape(64, 3), np.stack(wanted, -1))


def test_functions_inside_of_functions() -> None:
    a, b = numbers(64), np.zeros(64, np.uint32)
    kernel = KERNELS.run("nested", (1, 1, 1), a, b)
    x = long(a)
    np.testing.assert_array_equal(b, long(x) + np.where(x & 1, long(x + np.uint32(1)), 0).astype(np.uint32))
    assert len(kernel.functions) == 1


def test_what_is_inlined() -> None:
    """Short functions, and those with anything of a group or a wave."""
    a, b = numbers(64), np.zeros(64, np.uint32)
    kernel = KERNELS.run("inlines", (1, 1, 1), a, b, width=32)
    x = long(a)
    wanted = 3 * a + x + np.uint32(1) + np.repeat(x.reshape(2, 32).sum(1, dtype=np.uint32), 32)
    np.testing.assert_array_equal(b, wanted)
    assert kernel.functions == ()


def test_one_lane_is_inlined_for_a_debugger() -> None:
    a, b = numbers(64), np.zeros(64, np.uint32)
    kernel = run(KERNELS.code("nested"), (1, 1, 1), a, b, width=1)
    x = long(a)
    np.testing.assert_array_equal(b, long(x) + np.where(x & 1, long(x + np.uint32(1)), 0).astype(np.uint32))
    assert kernel.width == 1
