"""What is read from a module's text: comments above declarations, kernels and uniforms. No compiler is needed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slangpy_rt.slang.shader_modules import needs_library
from slangpy_rt.slang.static_variables import changes_statics, has_statics
from slangpy_rt.slang.text import THREADS, blank, docs, prepare

TEXT = """
/// Adds.
/// Two of them.
[Differentiable]
float add(float a, float b) { return a + b; } /// not a comment of what follows
int none(int a) { string s = "/// no { // no"; /* } */ return a; }
/** Adds
 *  whole numbers.
 */
int add(int a, int b);
// plain
float plain(float a) { return a; }
/// too far away

float far(float a) { return a; }
/// a struct
struct S<T : IFloat, let N : int> : IFoo
{
    /// its data
    T data[N];
    float x = 3; // plain
    /// moves
    [mutating] void move(float3 by = float3(1)) { x = by.x; }
    /// inside
    struct In { int q; }
    /// width
    property float width { get { return 1; } }
}
#define BRACE {
[Differentiable]
/// below its attribute
T pick<T : IFloat, let N : int>(vector<T, N> a) where T : IBar { return a[0]; }
namespace ns
{
    /** one line */
    float f() { return 1; }
}
/// colors
enum class Color : int { Red, Green }
/// a constant
extern static const int N = 3;
extension S<float, 3> {
    /// more
    float more() { return 1; }
}
"""


@pytest.mark.parametrize(
    ("name", "comments"),
    [
        ("add", ["Adds.\nTwo of them.", "Adds\n whole numbers."]),
        ("none", [""]),
        ("plain", [""]),
        ("far", [""]),
        ("S", ["a struct"]),
        ("S.data", ["its data"]),
        ("S.x", [""]),
        ("S.move", ["moves"]),
        ("S.In", ["inside"]),
        ("S.In.q", [""]),
        ("S.width", ["width"]),
        ("S.more", ["more"]),
        ("pick", ["below its attribute"]),
        ("ns.f", ["one line"]),
        ("Color", ["colors"]),
        ("N", ["a constant"]),
    ],
)
def test_comments_are_found_by_name_and_order(name: str, comments: list[str]) -> None:
    assert docs(TEXT)[name] == comments


def test_nothing_else_is_taken_for_a_declaration() -> None:
    names = "add none plain far S S.data S.x S.move S.In S.In.q S.width pick ns.f Color N S.more"
    assert sorted(docs(TEXT)) == sorted(names.split())


def test_blank_keeps_every_offset() -> None:
    assert [len(line) for line in blank(TEXT).split("\n")] == [len(line) for line in TEXT.split("\n")]
    assert "no" not in blank(TEXT).replace("none", "")
    assert blank("a /* b\nc */ d // e") == "a     \n     d     "
    assert blank("a /* never closed") == "a                "


@pytest.mark.parametrize(
    "text",
    [
        "float f(float a) { return a; }\n",
        "// [numthreads(1, 1, 1)] uniform float a;\n",
        '[shader("no_stage")] float4 v(uniform float a) { return a; }\n',
        "int shader[3]; int i = shader[numthreads];\n",
        "uniform RWStructuredBuffer<float> a;\nuniform Texture2D t;\n",
        "[numthreads(8, 1, 1",
        "",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    prepared = prepare(text, "spirv")
    assert (prepared.text, prepared.semantics, prepared.uniforms) == (text, {}, ())


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("[numthreads(8, 4, 2)]", "[_spy_group(8, 4, 2)]"),
        ("[numthreads(64)]", "[_spy_group(64, 1, 1)]"),
        ("[ numthreads ( MAX(2, 3), 4 ) ]", "[_spy_group( MAX(2, 3), 4 , 1)]"),
        ('[shader("compute")] [numthreads(8, 1, 1)]', " " * 19 + " [_spy_group(8, 1, 1)]"),
        ('[shader("compute"), numthreads(8, 1, 1)]', "[_spy_group(8, 1, 1)]"),
        ('[numthreads(8, 1, 1)]\n[shader("compute")]', "[_spy_group(8, 1, 1)]\n" + " " * 19),
        ('[shader("compute"),\n numthreads(8, 1, 1)]', "[_spy_group(8, 1, 1)]\n"),
        ("[Differentiable] [numthreads(8, 1, 1)] [Other]", "[Differentiable] [_spy_group(8, 1, 1)] [Other]"),
    ],
)
def test_kernels_become_functions(attributes: str, expected: str) -> None:
    head = "\npublic void kernel(uint3 t : sv_dispatchthreadid, float a[2], uint g : SV_GROUPINDEX, int o : SV_Other)"
    prepared = prepare(f"int a;\n{attributes}{head} {{}}\n", "spirv")
    own, _, ours = prepared.text.partition("\n[__AttributeUsage")
    assert own == f"int a;\n{expected}{head} {{}}\n"
    assert f"struct {THREADS}Attribute" in ours
    assert prepared.semantics == {"kernel": {"t": "SV_DispatchThreadID", "g": "SV_GroupIndex", "o": "SV_Other"}}


def test_our_attribute_is_as_long_as_the_one_it_replaces() -> None:
    assert len(THREADS) == len("numthreads")


def test_uniforms_become_static() -> None:
    text = "uniform float gain;\nnamespace ns { public uniform Pair<float, 2> a, b[3]; }\nvoid f(uniform int n) {}\n"
    prepared = prepare(text, "spirv")
    assert prepared.uniforms == ("gain", "ns.a", "ns.b")
    assert re.sub("_[0-9a-f]{8}", "", prepared.text).startswith(
        "static  float gain = {};\nnamespace ns { public static  Pair<float, 2> a = _spy_zero<Pair<float, 2>>(), "
        "b[3] = _spy_zeros<Pair<float, 2>, (3)>(); }\nvoid f(uniform int n) {}\n\n_spy_T _spy_zero<_spy_T>()\n"
    )
    # There static variables are zero without.
    assert prepare(text, "hlsl").text == (
        "static  float gain;\nnamespace ns { public static  Pair<float, 2> a, b[3]; }\nvoid f(uniform int n) {}\n"
    )


def test_static_numbers_begin_as_zeros() -> None:
    text = (
        "public static float2x3 m, a[2];\nstruct S { static int64_t n; static int f(int x = 2) { static uint u; } }\n"
        "static S s; static int x = 1, y; static const int k = 2; static vector<int, 3>[2] v;\n"
        "static RWTensor<int, 1> t; groupshared static float tile[4]; static groupshared int part;\n"
    )
    assert prepare(text, "cpp").text == text
    for old, new in (("m, a[2];", "m = {}, a[2] = {};"), (" n;", " n = {};"), (" u;", " u = {};")):
        text = text.replace(old, new)
    text = text.replace(" v;", " v = {};")
    assert prepare(text.replace(" = {}", ""), "cuda").text == text


def test_static_names_of_numbers_begin_as_zeros() -> None:
    text = (
        "typealias F = float3; typedef F G; enum E { A }\nstatic F a; static G b[2]; void f() { static E c; }\n"
        "static precise float d; static vector<int, (3)> e; static int g[(1 + 1)]; static Array<int, 3> h;\n"
        "typealias T = int; void f() { struct T { int a; } }\nstatic T i; static S j; static float k IS;\n"
    )
    found = re.sub("_[0-9a-f]{8}", "", prepare(text, "spirv").text).partition("\n_spy_T _spy_zero")[0]
    ours = {"F a": "_spy_zero<F>()", "G b[2]": "_spy_zeros<G, (2)>()", "E c": "_spy_zero<E>()"}
    ours |= dict.fromkeys(("float d", "(3)> e", "g[(1 + 1)]", "3> h"), "{}")
    for old, zero in ours.items():
        text = text.replace(f"{old};", f"{old} = {zero};")
    assert found == text


PIECES = ["[", "]", "(", ")", "{", "}", "<", ">", ",", ";", "=", ":", '"', "//", "/*", "*/", "#define", "///"]
PIECES += ["numthreads", 'shader("compute")', 'shader("mesh")', "uniform", "struct"]
PIECES += ["\n", "namespace", "float a", "3", "[numthreads(3)]", '[shader("compute")]', "uniform float a", "void f("]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_text_reaches_the_compiler(pieces: list[str]) -> None:
    text = " ".join(pieces)
    prepared = prepare(text, "spirv")
    docs(text)
    ours = "".join(prepared.text.partition("\n_spy_T _spy_zero")[1:]).count("\n")
    assert prepared.text.count("\n") == text.count("\n") + 2 * (THREADS in prepared.text) + ours


def test_stages_are_marked_where_their_attributes_stood() -> None:
    text = (
        '[shader("vertex")] float4 v(uniform float a) { return a; }\n'
        '[shader("mesh")]\n[numthreads(8, 1, 1)] void m(uint3 t : SV_DispatchThreadID) {}\n'
        '[Differentiable, shader("miss")] void lost() {}\n'
    )
    prepared = prepare(text, "spirv")
    assert prepared.text.startswith(
        "[_spy_stage(0)   ] float4 v(uniform float a) { return a; }\n"
        "[_spy_stage(6) ]\n                      void m(uint3 t : SV_DispatchThreadID) {}\n"
        "[Differentiable, _spy_stage(12)] void lost() {}\n"
    )
    assert (prepared.semantics, prepared.uniforms) == ({}, ())


@pytest.mark.parametrize(
    "text",
    [
        "static float EPS = 1e-5; float f(float x) { return x + EPS * 2; }",
        "static float t[2] = { 1, 2 }; float f(int i) { return t[i] <= 2 ? t[0] : 1; }",
        "static const int a = 1; int f(int a) { a += 1; return a; }",
        "static int f(int x = 3) { x += 1; return x; }",
        "static float3 way = float3(0, 1, 0); bool f(float x) { return way.y == x && x != way.x; }",
        "static float gain, offset; float f(float x) { return x * gain + offset; }",
        "static float gain[3]; float f(float x) { return gain[2] - (x); }",
        "static float2 table[4]; float f(float x) { return table[int(x)].y; }",
        "struct S { static float gain; }; float f(float x) { return S.gain * x + (S::gain); }",
        "static bool on; float f(float x) { if (on) ++x; return on ? x : -x; }",
        "static uint flags; uint f(uint x) { return x & flags; }",
        "static Pair<float, int> a, b[3]; float f(float x) { x = g(x); return a.x + b[1].x; }",
        "#define REAL float\nstatic REAL gain; REAL f(REAL x) { return gain * x; }",
        "#define SQUARE(x) ((x) * (x))\nstatic float x; float f(float y) { return SQUARE(y) + x; }",
        "#define TABLE static const int\nTABLE n = 3; int f(int x) { return n * x; }",
        "// static int n;\nint f(int n) { n += 1; return n; }",
    ],
)
def test_statics_that_nothing_changes(text: str) -> None:
    assert not changes_statics([text])


@pytest.mark.parametrize(
    "text",
    [
        "static int n; int f(int x) { n += x; return n; }",
        "static int n = 3; int f() { return ++n; }",
        "static int n; int f() { n--; return n; }",
        "static float t[2]; void f(int i) { t[i] = 2; }",
        "static float3 v; void f() { v.x *= 2; }",
        "public static float m[2][3]; void f(int i) { m[i] [2] = 2; }",
        "static S s; void f() { s.go(); }",
        "void g(int b, inout int a) { a = 1; } static int n; void f() { g(1, n); }",
        "static int a = 1, b; void f() { b >>= 2; }",
        "static int a; static int b; void f() { b = 2; }",
        "[other] static int a; void f() { if (a == 1) a = 2; }",
        "#define BUMP n += 1\nstatic int n; int f() { BUMP; return n; }",
        "static vector<int, 3> v; void f() { v[1] -= 2; }",
        "int f() { static int inner; inner <<= 1; return inner; }",
        "struct S { static int n; }; void f() { S::n = 2; }",
        "struct S { static int n; }; void f() { S.n = 2; }",
        "struct S { static int n; }; void f() { ++S.n; }",
        "namespace ns { static int n; } void f() { --ns::n; }",
        "static int n; void f() { ++::n; }",
        "struct S { static int n; }; void f() { g(S::n, 2); }",
        "struct S<T> { static int n; }; void f() { g(S<float>.n); }",
        "static int a[4], b[2]; void f() { a[b[0]] += 1; }",
        "static int a[4], b[2]; void f() { g(a[b[0]]); }",
        "static int n; void f() { (n) += 1; }",
        "static int2 n; void f() { ++(n.x); }",
        "static int n; void f() { g(((n))); }",
        "static S n; void f() { (n).go(); }",
        "static int n; void f() { int *p = &n; }",
        "static int n; void f() { n \\\n += 1; }",
        "static var n : int = 0; void f() { n += 1; }",
        "static Pair<int, int> a = Pair<int, int>(1), b; void f() { b += 1; }",
        "static int a = x < y, b = g(1, 2), c; void f() { c = 1; }",
        "static struct S { int a; } n; void f() { n.a = 1; }",
        "#define COUNT n\nstatic int n; void f() { COUNT += 1; }",
        "#define ADD(v) v##_n += 1\nstatic int my_n; void f() { ADD(my); }",
        "#define ST static int\nST n; void f() { n += 1; }",
        "#define DECLARE(v) int v\nstatic DECLARE(n); void f() { n += 1; }",
        "#define INCREASE += 1\nstatic int n; void f() { n INCREASE; }",
        "#define LESS(v) --v\nstatic int n; void f() { LESS(n * 2); }",
        "void operator<<(inout S s, int x) {} static S n; void f() { n << 2; }",
    ],
)
def test_statics_that_a_function_may_change(text: str) -> None:
    assert changes_statics([text])
    assert changes_statics(["int x;", text])


def test_macros_of_the_module_may_name_a_static() -> None:
    text = "static int n; void f() { COUNT += 1; }"
    assert not changes_statics([text])
    assert changes_statics([text], [("COUNT", "n")])
    assert changes_statics(["VARIABLE n; void f() { n += 1; }"], [("VARIABLE", "static int")])
    assert not changes_statics([text], [("OTHER", "3")])


def test_static_variables_that_are_not_const() -> None:
    assert has_statics(["static float gain = 2;"])
    assert has_statics(["int a;", "struct S { precise static S s; }"])
    assert not has_statics(["static const int a = 1; const static int b = 2; static float f(float x) { return x; }"])
    assert not has_statics(["// static int n;\nfloat f(float x) { return x; }"], [("N", "3")])


def test_a_function_of_another_file_may_change_a_static() -> None:
    assert changes_statics(["static int n;", "void f() { n = 1; }"])
    assert changes_statics(["static S n; void f() { n << 1; }", "void operator<<(inout S s, int x) {}"])


@pytest.mark.parametrize(
    ("text", "form", "needed"),
    [
        ("void f(int *p) { InterlockedAdd(p[0], 1); }", "cpp", True),
        ("void f(int *p) { InterlockedAdd(p[0], 1); }", "spirv", False),
        ("void f(TensorView<int> p) { p.InterlockedAdd(0, 1); }", "cpp", False),
        ("// InterlockedAdd(p)\nvoid f() {}", "cpp", False),
        ("void InterlockedAdd(int x) {}\nvoid f() { InterlockedAdd(3); }", "cpp", False),
        ("void f(Tensor<float, 1> t) {}", "spirv", True),
        ("struct Tensor<T, let N : int> {}\nvoid f(Tensor<float, 1> t) {}", "cpp", False),
    ],
)
def test_texts_that_import_the_library(text: str, form: str, needed: bool) -> None:
    assert needs_library(text, form) is needed
