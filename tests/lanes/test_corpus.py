"""Kernels in lanes against NumPy: elementwise, divergent, with groups and barriers, waves and atomics."""

from __future__ import annotations

import numpy as np
import pytest

from slangpy_rt.lanes.translate import translate
from tests.depth import deep
from tests.lanes._kernels import Kernels

pytest.importorskip("llvmlite")

f32 = np.float32
KERNELS = Kernels("""
[shader("compute")] [numthreads(64, 1, 1)]
void add(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform float *c, uniform uint n)
{
    if (thread.x < n)
        c[thread.x] = a[thread.x] + b[thread.x];
}

[shader("compute")] [numthreads(64, 1, 1)]
void steps(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform uint n)
{
    if (thread.x >= n)
        return;
    float x = a[thread.x], s = 0;
    for (int i = 0; i < 64; ++i)
        s += max(min(x * i, 1.0f), s * 0.5f);
    b[thread.x] = s;
}

[shader("compute")] [numthreads(64, 1, 1)]
void choices(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform uint n)
{
    if (thread.x >= n)
        return;
    float x = a[thread.x], s = 0;
    for (int i = 0; i < 64; ++i)
    {
        float p = x * i, q = s * 0.5f;
        p = p < 1.0f ? p : 1.0f;
        s += p > q ? p : q;
    }
    b[thread.x] = s;
}

[shader("compute")] [numthreads(64, 1, 1)]
void sines(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform uint n)
{
    float x = a[thread.x];
    if (thread.x < n)
        b[thread.x] = sin(x) * exp(-x) + cos(2 * x);
}

[shader("compute")] [numthreads(64, 1, 1)]
void mandelbrot(uint3 thread : SV_DispatchThreadID, uniform float2 *a, uniform int *b)
{
    float2 c = a[thread.x], z = 0;
    int n = 0;
    for (; n < 50 && dot(z, z) <= 4.0f; ++n)
        z = float2(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c;
    b[thread.x] = n;
}

int collatz(int64_t x, inout int bins[4])
{
    int steps = 0;
    while (x != 1)
    {
        if (steps == 60)
            return -1;
        bins[int(x & 3)] += 1;
        switch (int(x % 6))
        {
        case 0: x = x / 6; break;
        case 2:
        case 4: x = x / 2; break;
        case 3: x += 3;
        default: x = x + 1; break;
        }
        ++steps;
    }
    return steps;
}

[shader("compute")] [numthreads(64, 1, 1)]
void integers(uint3 thread : SV_DispatchThreadID, uniform int64_t *a, uniform int4 *b, uniform int *c)
{
    int bins[4] = { 0, 0, 0, 0 };
    c[thread.x] = collatz(a[thread.x], bins);
    b[thread.x] = int4(bins[0], bins[1], bins[2], bins[3]);
}

[shader("compute")] [numthreads(64, 1, 1)]
void histogram(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform uint *bins, uniform uint n)
{
    if (thread.x < n)
        InterlockedAdd(bins[a[thread.x] & 15], 1);
}

groupshared float sums[128];
[shader("compute")] [numthreads(128, 1, 1)]
void total(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, uint3 group : SV_GroupID,
           uniform float *a, uniform float *b)
{
    sums[at] = a[thread.x];
    GroupMemoryBarrierWithGroupSync();
    for (uint half = 64; half > 0; half >>= 1)
    {
        if (at < half)
            sums[at] += sums[at + half];
        GroupMemoryBarrierWithGroupSync();
    }
    if (at == 0)
        b[group.x] = sums[0];
}

groupshared uint keys[128];
[shader("compute")] [numthreads(64, 1, 1)]
void bitonic(uint at : SV_GroupIndex, uint3 group : SV_GroupID, uniform uint *a)
{
    uint *own = a + group.x * 128;
    keys[at] = own[at];
    keys[at + 64] = own[at + 64];
    GroupMemoryBarrierWithGroupSync();
    for (uint size = 2; size <= 128; size <<= 1)
        for (uint stride = size >> 1; stride > 0; stride >>= 1)
        {
            uint low = 2 * stride * (at / stride) + at % stride;
            uint x = keys[low], y = keys[low + stride];
            if ((x > y) == ((low & size) == 0))
            {
                keys[low] = y;
                keys[low + stride] = x;
            }
            GroupMemoryBarrierWithGroupSync();
        }
    own[at] = keys[at];
    own[at + 64] = keys[at + 64];
}

groupshared float tile_a[8][8];
groupshared float tile_b[8][8];
[shader("compute")] [numthreads(8, 8, 1)]
void product(uint3 t : SV_GroupThreadID, uint3 g : SV_GroupID, uniform float *a, uniform float *b, uniform float *c,
             uniform uint n)
{
    uint row = g.y * 8 + t.y, column = g.x * 8 + t.x;
    float sum = 0;
    for (uint k = 0; k < n; k += 8)
    {
        tile_a[t.y][t.x] = a[row * n + k + t.x];
        tile_b[t.y][t.x] = b[(k + t.y) * n + column];
        GroupMemoryBarrierWithGroupSync();
        for (uint j = 0; j < 8; ++j)
            sum += tile_a[t.y][j] * tile_b[j][t.x];
        GroupMemoryBarrierWithGroupSync();
    }
    c[row * n + column] = sum;
}

[shader("compute")] [numthreads(64, 1, 1)]
void waves(uint3 thread : SV_DispatchThreadID, uniform uint *a, uniform uint *sum, uniform uint *before,
           uniform uint *lanes)
{
    uint x = a[thread.x], all = WaveActiveSum(x);
    before[thread.x] = WavePrefixSum(x);
    if (x % 3 == 0)
        all = WaveActiveMax(x) + WaveActiveCountBits(true) * 1000;
    sum[thread.x] = all;
    lanes[thread.x] = WaveReadLaneAt(x, 1) + WaveGetLaneIndex() * 256 + WaveGetLaneCount() * 65536;
}

groupshared float values[64];
groupshared uint done_count;
[shader("compute")] [numthreads(64, 1, 1)]
void tiles(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, uniform float *a, uniform float *b,
           uniform uint count, uniform uint *touched)
{
    bool done = thread.x % 5 == 0;
    float left = 1;
    uint used = 0;
    for (uint first = 0; first < count; first += 64)
    {
        if (at == 0)
            done_count = 0;
        GroupMemoryBarrierWithGroupSync();
        if (done)
            InterlockedAdd(done_count, 1);
        GroupMemoryBarrierWithGroupSync();
        if (done_count == 64)
            break;
        if (first + at < count)
            values[at] = a[first + at];
        GroupMemoryBarrierWithGroupSync();
        uint some = min(64, count - first);
        for (uint j = 0; j < some && !done; ++j)
        {
            float x = values[j] * ((thread.x & 7) + 1);
            if (x < 0.5f)
                continue;
            float next = left * (1 - 0.03125f * x);
            if (next < 0.01f)
            {
                done = true;
                continue;
            }
            left = next;
            ++used;
        }
        GroupMemoryBarrierWithGroupSync();
    }
    b[thread.x] = left;
    InterlockedAdd(touched[0], used);
}

[Differentiable] float shade(float a, float b)
{
    let x = a * b + 0.5f;
    return (exp(-x * x) + sqrt(abs(b) + 1)) / (1 + x * x) - a;
}
[shader("compute")] [numthreads(64, 1, 1)]
void gradient(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform float *c)
{
    var x = diffPair(a[thread.x], 0.0f);
    var y = diffPair(b[thread.x], 0.0f);
    bwd_diff(shade)(x, y, 1.0f);
    c[2 * thread.x] = x.d;
    c[2 * thread.x + 1] = y.d;
}

[shader("compute")] [numthreads(8, 8, 1)]
void edges(uint3 t : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform uint n)
{
    float sum = 0;
    if (t.x < n && t.y < n)
    {
        for (int dy = -1; dy <= 1; ++dy)
            for (int dx = -1; dx <= 1; ++dx)
            {
                uint x = t.x + dx, y = t.y + dy;
                if (x < n && y < n)
                    sum += a[y * n + x];
            }
        b[t.y * n + t.x] = sum;
    }
}
""")
RANDOM = np.random.default_rng(1)


@pytest.fixture(params=[8, *(pytest.param(w, marks=deep) for w in (4, 16, 32))])
def width(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


def test_a_check_of_bounds(width: int) -> None:
    a, b = RANDOM.random((2, 192), f32)
    c = np.zeros(192, f32)
    KERNELS.run("add", (3, 1, 1), a, b, c, 150, width=width)
    np.testing.assert_array_equal(c, np.where(np.arange(192) < 150, a + b, 0))


@pytest.mark.parametrize("name", ["steps", "choices"])
def test_loops_that_end_for_all_lanes_at_once(name: str, width: int) -> None:
    a, b = RANDOM.random(192, f32), np.zeros(192, f32)
    KERNELS.run(name, (3, 1, 1), a, b, 150, width=width)
    s = np.zeros_like(a)
    for i in range(64):
        s = s + np.maximum(np.minimum(a * f32(i), f32(1)), s * f32(0.5))
    np.testing.assert_allclose(b, np.where(np.arange(192) < 150, s, 0), 1e-5)


def test_functions(width: int) -> None:
    a, b = RANDOM.uniform(-3, 3, 192).astype(f32), np.zeros(192, f32)
    KERNELS.run("sines", (3, 1, 1), a, b, 150, width=width)
    wide = a.astype(float)
    expected = np.sin(wide) * np.exp(-wide) + np.cos(2 * wide)
    np.testing.assert_allclose(b, np.where(np.arange(192) < 150, expected, 0), 1e-5, 1e-6)


def test_loops_that_lanes_leave_at_different_times(width: int) -> None:
    line = np.arange(16) / 16 * 3
    a = np.stack(np.meshgrid(line - 2, line - 1.5), -1).reshape(-1, 2).astype(f32)
    b = np.zeros(256, np.int32)
    KERNELS.run("mandelbrot", (4, 1, 1), a, b, width=width, contract=False)
    z, n, c = np.zeros((256, 2), f32), np.zeros(256, np.int32), a
    for _ in range(50):
        go = z[:, 0] * z[:, 0] + z[:, 1] * z[:, 1] <= 4
        n += go
        new = np.stack([z[:, 0] * z[:, 0] - z[:, 1] * z[:, 1], 2 * z[:, 0] * z[:, 1]], 1) + c
        z = np.where(go[:, None], new, z)
    np.testing.assert_array_equal(b, n)


def test_calls_that_return_from_loops_switches_and_arrays(width: int) -> None:
    a = RANDOM.integers(1, 100000, 128)
    b, c = np.zeros((128, 4), np.int32), np.zeros(128, np.int32)
    KERNELS.run("integers", (2, 1, 1), a, b, c, width=width)
    bins, steps = np.zeros_like(b), np.zeros_like(c)
    for k, x in enumerate(map(int, a)):
        while x != 1:
            if steps[k] == 60:
                steps[k] = -1
                break
            bins[k, x & 3] += 1
            kind = x % 6
            x = x // 6 if kind == 0 else x // 2 if kind in (2, 4) else x + 4 if kind == 3 else x + 1
            steps[k] += 1
    np.testing.assert_array_equal(c, steps)
    np.testing.assert_array_equal(b, bins)


def test_atomics(width: int) -> None:
    a, bins = RANDOM.integers(0, 1 << 31, 192, np.uint32), np.zeros(16, np.uint32)
    KERNELS.run("histogram", (3, 1, 1), a, bins, 150, width=width)
    np.testing.assert_array_equal(bins, np.bincount(a[:150] & 15, minlength=16))


def test_barriers_in_a_loop(width: int) -> None:
    a, b = RANDOM.random(512, f32), np.zeros(4, f32)
    KERNELS.run("total", (4, 1, 1), a, b, width=width)
    np.testing.assert_allclose(b, a.reshape(4, 128).sum(1), 1e-6)


def test_barriers_in_two_loops(width: int) -> None:
    a = RANDOM.integers(0, 1 << 32, 512, np.uint32)
    expected = np.sort(a.reshape(4, 128), 1).reshape(-1)
    KERNELS.run("bitonic", (4, 1, 1), a, width=width)
    np.testing.assert_array_equal(a, expected)


def test_tiles_of_a_product(width: int) -> None:
    a, b = RANDOM.random((2, 24, 24), f32)
    c = np.zeros((24, 24), f32)
    KERNELS.run("product", (3, 3, 1), a, b, c, 24, width=width)
    np.testing.assert_allclose(c, a @ b, 1e-5)


def test_waves(width: int) -> None:
    a = RANDOM.integers(0, 200, 128, np.uint32)
    total, before, lanes = np.zeros((3, 128), np.uint32)
    KERNELS.run("waves", (2, 1, 1), a, total, before, lanes, width=width)
    rows = a.reshape(-1, width)
    hit = rows % 3 == 0
    most = np.where(hit, rows, 0).max(1, keepdims=True) + 1000 * hit.sum(1, keepdims=True)
    expected = np.where(hit, most, rows.sum(1, keepdims=True))
    np.testing.assert_array_equal(total, expected.reshape(-1))
    np.testing.assert_array_equal(before, (np.cumsum(rows, 1) - rows).reshape(-1))
    np.testing.assert_array_equal(lanes, (rows[:, 1:2] + np.arange(width) * 256 + width * 65536).reshape(-1))


def test_groups_that_stop_early(width: int) -> None:
    a = RANDOM.random(200, f32)
    b, touched = np.zeros(128, f32), np.zeros(1, np.uint32)
    KERNELS.run("tiles", (2, 1, 1), a, b, 200, touched, width=width, contract=False)
    left, used = np.ones(128, f32), 0
    for thread in range(128):
        for x in a * f32((thread & 7) + 1) if thread % 5 else ():
            if x < 0.5:
                continue
            after = left[thread] * (f32(1) - f32(0.03125) * x)
            if after < 0.01:
                break
            left[thread] = after
            used += 1
    np.testing.assert_array_equal(b, left)
    assert touched[0] == used


def test_a_gradient(width: int) -> None:
    a, b = RANDOM.random((2, 64), f32)
    c = np.zeros((64, 2), f32)
    KERNELS.run("gradient", (1, 1, 1), a, b, c, width=width)

    def shade(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = a * b + 0.5
        return (np.exp(-x * x) + np.sqrt(abs(b) + 1)) / (1 + x * x) - a

    wide, e = (a.astype(float), b.astype(float)), 1e-6
    np.testing.assert_allclose(
        c[:, 0], (shade(wide[0] + e, wide[1]) - shade(wide[0] - e, wide[1])) / 2e-6, 1e-4, 1e-5
    )
    np.testing.assert_allclose(
        c[:, 1], (shade(wide[0], wide[1] + e) - shade(wide[0], wide[1] - e)) / 2e-6, 1e-4, 1e-5
    )


def test_indices_that_wrap_between_lanes(width: int) -> None:
    """The column left of the first one has index 2^32 - 1, and lanes beside it have 0 and 1."""
    n = 13
    a, b = RANDOM.random((n, n), f32), np.zeros((n, n), f32)
    KERNELS.run("edges", (2, 2, 1), a, b, n, width=width)
    wide = np.pad(a, 1)
    expected = sum(wide[y : y + n, x : x + n] for y in range(3) for x in range(3))
    np.testing.assert_allclose(b, expected, 1e-5)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_arrays_of_bool_whose_index_differs(width: int) -> None:
    """Bits have no addresses: every element has a byte for each lane."""
    kernels = Kernels("""
        [shader("compute")] [numthreads(32, 1, 1)]
        void bools(uint3 thread : SV_DispatchThreadID, uniform int *b)
        {
            bool found[4];
            for (int k = 0; k < 4; ++k)
                found[k] = (thread.x >> k) % 2 == 1;
            found[(thread.x + 1) % 4] = thread.x > 9;
            int sum = 0;
            for (int k = 0; k < 4; ++k)
                sum += found[(thread.x + 3 * k) % 4] ? 1 << k : 0;
            b[thread.x] = sum;
        }
    """)
    b, expected = np.zeros(32, np.int32), []
    kernels.run("bools", (1, 1, 1), b, width=width)
    for t in range(32):
        found = [(t >> k) % 2 == 1 for k in range(4)]
        found[(t + 1) % 4] = t > 9
        expected.append(sum(found[(t + 3 * k) % 4] << k for k in range(4)))
    assert len(set(expected)) > 4
    np.testing.assert_array_equal(b, expected)


def test_waves_have_32_lanes_also_without_built_in_variables() -> None:
    code = Kernels("""
        [shader("compute")] [numthreads(64, 1, 1)]
        void sums(uint3 thread : SV_DispatchThreadID, uniform float *b)
        {
            b[thread.x] = WaveActiveSum(b[thread.x]);
        }
    """).code("sums")
    assert translate(code, widest=8).width == 32
