"""Texts with static variables and uniforms that functions change, or that nobody sets. No test is here."""

from __future__ import annotations

COUNTERS = """
static int count, others[3];
static float2x2 matrix;
namespace space { static vector<int, 2> both; }
struct Counter { static int64_t calls; int next() { calls += 1; return int(calls); } }
int counted(int x)
{
    count += x;
    others[x & 1] += 1;
    matrix[1][1] += 1;
    space::both.y += 1;
    return count + 10 * others[1] + 100 * int(matrix[1][1]) + 1000 * space::both.y;
}
int within(int x) { static int inner; inner += x; Counter c; return inner + 10 * c.next(); }
[Differentiable] float weighted(float x, float w) { count += 1; return x * w * count; }
[numthreads(32, 1, 1)] void kernel(uint3 at : SV_DispatchThreadID, RWTensor<int, 1> found)
{
    count += 1;
    if (at.x < found.shape[0]) found[at.x] = count;
}
"""

STRUCTS = """
enum Kind { First = 1, Second }
struct Inner
{
    float scale = 4; bool on = true; int small = 1; Kind kind = Kind.Second; float2x2 m = float2x2(1, 1, 1, 1);
}
struct Light { float gain = 3; Inner inner; int parts[3] = { 1, 2, 3 }; }
uniform Light light;
namespace space { uniform Inner inner; }
float total(Inner i) { return i.scale + i.on + i.small + int(i.kind) + i.m[1][1]; }
float total(Light l) { return l.gain + total(l.inner) + l.parts[1]; }
float lit(float x) { return x + total(light) + space::inner.scale; }
[Differentiable] float slope(float x) { return x * x * (1 + light.gain); }
[numthreads(4, 1, 1)] void kernel(uint3 at : SV_DispatchThreadID, RWTensor<float, 1> found) { found[at.x] = lit(2); }
"""

ARRAYS = """
struct Light { float gain GAIN; float2 at; }
static const int COUNT = 3;
uniform Light pair[2], one, grid[2][COUNT];
namespace space { uniform Light[2] lights; }
float lit(float x)
{
    return x + pair[1].gain + space::lights[0].gain + space::lights[1].at.y + one.gain + grid[1][2].gain;
}
"""
