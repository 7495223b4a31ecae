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

# Functions that return 1 for every element if it begins with zeros of its own.
CHANGED = {
    "an index in an index": "static int arr[4], at[2]; float f(float x) { arr[at[0]] += 1; return arr[at[0]]; }",
    "prefix of a member": "struct S { static int n; };\nfloat f(float x) { ++S.n; return S.n; }",
    "prefix in a namespace": "namespace S { static int n; }\nfloat f(float x) { ++S::n; return S::n; }",
    "argument of a member": """
struct S { static int n; };
void inc(inout int k) { ++k; }
float f(float x) { inc(S.n); return S.n; }
""",
    "argument of a generic": """
struct S<T> { static int n; };
void inc(inout int k) { ++k; }
float f(float x) { inc(S<float>.n); return S<float>.n; }
""",
    "argument in brackets": """
static int n[3], at[1];
void inc(inout int k) { ++k; }
float f(float x) { inc((n[at[0]])); return n[0]; }
""",
    "a macro": "#define COUNT n\nstatic int n; float f(float x) { COUNT += 1; return COUNT; }",
    "a macro of the module": "static int n; float f(float x) { MODULE_COUNT += 1; return n; }",
    "a name of parts": "#define ADD(v) v##_n += 1\nstatic int my_n; float f(float x) { ADD(my); return my_n; }",
    "a macro's argument": "#define INC(v) ++v\nstatic int n[2]; float f(float x) { INC(n[0]); return n[0]; }",
    "a line of two": "static int n; float f(float x) { n \\\n += 1; return n; }",
    "brackets": "static int2 n; float f(float x) { ++(n.x); (n.x) += 1; return n.x - 1; }",
}

# The same, by what declares the variable: where its text shows that it is a number, and elsewhere.
DECLARED = {
    "alias": "typealias F = float; static F n; float f(float x) { n += 1; return n; }",
    "alias of an alias": "typealias F = float; typealias G = F; static G n; float f(float x) { n += 1; return n; }",
    "typedef": "typedef float F; static F n[2]; float f(float x) { n[1] += 1; return n[1]; }",
    "alias in a function": "typealias F = float; float f(float x) { static F n; n += 1; return n; }",
    "precise": "static precise float n; float f(float x) { n += 1; return n; }",
    "precise static": "precise static float n; float f(float x) { n += 1; return n; }",
    "vector": "static vector<float, (3)> n; float f(float x) { n += 1; return n.z; }",
    "Array": "static Array<int, 3> n; float f(float x) { n[1] += 1; return n[1]; }",
    "size": "static int n[(1 + 1)]; float f(float x) { n[int(x)] += 1; return n[int(x)]; }",
    "enum": "enum E { A, B, C }\nstatic E e; float f(float x) { e = E(int(e) + 1); return int(e); }",
}
BY_CODE = {
    "macro": "#define ST static int\nST n; float f(float x) { n += 1; return n; }",
    "generic struct": """
struct S<T : __BuiltinFloatingPointType> { static T n; static void up() { n = n + T(1); } };
float f(float x) { S<float>.up(); S<double>.up(); return S<float>.n; }
""",
    "generic function": """
T up<T : __BuiltinFloatingPointType>(T x) { static T n; n = n + T(1); return n; }
float f(float x) { return up(x); }
""",
    "struct": """
struct S { int a = 3; float b[3]; };
static S n, m[2];
float f(float x) { n.b[int(x)] += 1; m[1].a += 1; return n.b[int(x)] * m[1].a; }
""",
    "tuple": "static Tuple<int, float> n; float f(float x) { n._1 += 1; return n._1 + n._0; }",
    "pointer": "static float *p; float f(float x) { return p == nullptr ? 1 : 0; }",
    "within": """
struct S { int a = 3; };
typealias F = float;
static F n;
float g(float x) { n += x; return n; }
float f(float x)
{
    static S s;
    s.a += 1; n += 1;
    float last = g(x);
    return n + s.a + last - 4;
}
""",
}
