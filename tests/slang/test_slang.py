"""The Slang compiler: reflection, target code, layouts, diagnostics. No device is needed."""

import hashlib
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import slangpy_rt as spy
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import EntryPoint, FunctionSig, ModuleInfo, SlangType, StructInfo, from_json, to_json
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import library_version
from slangpy_rt.slang.reflect_types import split_arguments
from slangpy_rt.slang.session import Session

CUDA = Target("cuda", "", "value")
ADD = "float add(float a, float b) { return a + b; }"
BLOCK = "struct _spy_Call { uint n; float* a; uint s[3]; int64_t k; double d; float v[4]; };\nimport user;\n"
BODY = "{ uint i = t.x; if (i < call.n) call.a[i] = add(call.a[i], call.v[1]); }\n"
THREADS = '[shader("compute")] [numthreads(64, 1, 1)]\n'
VALUE = BLOCK + THREADS + "void kernel(uint3 t : SV_DispatchThreadID, uniform _spy_Call call) " + BODY
POINTER = BLOCK + THREADS + "void kernel(uint3 t : SV_DispatchThreadID, uniform _spy_Call* call) " + BODY
RANGE = (
    BLOCK
    + "export __extern_cpp void run(int64_t begin, int64_t end, _spy_Call* call)\n"
    + "{ for (int64_t i = begin; i < end; i++) call.a[i] = add(call.a[i], call.v[1]); }\n"
)
RESOURCE = (
    "import user;\nstruct _spy_Call { uint n; float x; };\nRWStructuredBuffer<float> a;\n"
    + THREADS
    + "void kernel(uint3 t : SV_DispatchThreadID, uniform _spy_Call call) { a[t.x] = add(a[t.x], call.x); }\n"
)

MODULE = """
enum Color : uint8_t { Red, Green }
interface IShape { float area(); }
struct Tensor<T, let N : int> { T* data; uint shape[N]; T load(uint i) { return data[i]; } }
struct Node { int value; Node* next; }
struct Disk : IShape
{
    float3 center;
    float4x4 frame;
    half radius;
    __init() { center = 0; frame = float4x4(0); radius = half(1); }
    float area() { return 3 * radius * radius; }
    [mutating] void move(float3 by) { center += by; }
    static float unit(int n) { return n; }
    struct Part { int id; }
    property float width { get { return 2 * radius; } }
}
[Differentiable] float add(float a, float b) { return a + b; }
int add(int a, int b) { return a + b; }
[BackwardDifferentiable] float scale(float a, no_diff float b = 2) { return a * b; }
void scalars(bool a, int8_t b, int16_t c, int d, int64_t e, uint8_t f, uint16_t g, uint h, uint64_t i, half j,
             float k, double l, size_t m) {}
void shapes(int2 v, bool3 b, float3x4 m, float a[4], float aa[2][3], uint u[]) {}
void directions(in float a, out float b, inout float3 c, float d) { b = a; }
float objects(Disk d, Node n, Node* p, Tensor<float, 2> t, Tensor<float3, 1> u, Color c, Disk.Part q, void* r)
{ return 0; }
T pick<T : IFloat, let N : int>(T a[N], vector<T, N> v, Tensor<T, N> t) { return a[0]; }
float shaped(IShape s, Texture2D<float4> x, SamplerState y, functype(float) -> int g) { return s.area(); }
cbuffer Globals { float fog; }
namespace inner { float half_of(float a) { return a / 2; } struct Box { int side; }; }
float3 operator+(Disk a, Disk b) { return 0; }
[shader("compute")] [numthreads(8, 4, 2)]
void kern(uint3 t : SV_DispatchThreadID, uniform float* p, uniform int n) {}
[shader("vertex")] float4 vert(float3 p : POSITION) : SV_Position { return float4(p, 1); }
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


@pytest.fixture
def session(library: Library) -> Iterator[Session]:
    session = Session(library, CUDA)
    yield session
    session.close()


@pytest.fixture(scope="module")
def info(library: Library) -> ModuleInfo:
    session = Session(library, CUDA)
    info = session.load_module("m", "m.slang", MODULE)
    session.close()
    return info


def function(info: ModuleInfo, name: str) -> FunctionSig:
    (found,) = [f for f in info.functions if f.name == name]
    return found


def struct(info: ModuleInfo, name: str) -> StructInfo:
    (found,) = [s for s in info.structs if s.type.name == name]
    return found


def types(sig: FunctionSig) -> list[SlangType]:
    return [p.type for p in sig.params]


def test_functions_stand_in_source_order_without_kernels(info: ModuleInfo) -> None:
    assert [f.name for f in info.functions] == [
        "add", "add", "scale", "scalars", "shapes", "directions", "objects", "pick", "shaped",
        "inner.half_of", "operator+",
    ]  # fmt: skip


def test_overloads_print_as_declared(info: ModuleInfo) -> None:
    first, second = [f for f in info.functions if f.name == "add"]
    assert str(first) == "float add(float a, float b)"
    assert str(second) == "int add(int a, int b)"
    assert first.differentiable
    assert not second.differentiable


def test_backward_differentiable_no_diff_and_default(info: ModuleInfo) -> None:
    scale = function(info, "scale")
    assert scale.differentiable
    assert [(p.no_diff, p.has_default) for p in scale.params] == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ("float x = 2.5", "2.5"),
        ("float x = 0.1", "0.1"),
        ("float x = -1e30", "-1e+30"),
        ("float x = 3", "3.0"),
        ("half x = 0.5h", "0.5"),
        ("int x = -5", "-5"),
        ("uint x = 0xffffffffu", "4294967295"),
        ("int64_t x = 9223372036854775807ll", "9223372036854775807"),
        # Slang's reflection does not tell these.
        ("float x = 1.0 / 3.0", "..."),
        ("float x = 1e39", "..."),
        ("double x = 0.1", "..."),
        ("bool x = true", "..."),
        ("uint64_t x = 0xffffffffffffffffull", "..."),
        ("float2 x = float2(1, 2)", "..."),
    ],
)
def test_defaults(declared: str, shown: str) -> None:
    with spy.Device("null") as device:
        module = spy.Module.load_from_source(device, "m", f"void f({declared}) {{}}")
    assert str(module.f.overloads[0]) == f"void f({declared.partition(' =')[0]} = {shown})"
    default = inspect.signature(module.f).parameters["x"].default
    assert default is ... if shown == "..." else repr(default) == shown


def test_scalars(info: ModuleInfo) -> None:
    found = types(function(info, "scalars"))
    expected = [
        "bool", "int8_t", "int16_t", "int", "int64_t", "uint8_t", "uint16_t", "uint", "uint64_t", "half",
        "float", "double",
    ]  # fmt: skip
    assert [t.name for t in found[:-1]] == expected
    assert [t.scalar for t in found] == [*expected, "uint64_t"]
    assert {t.kind for t in found} == {"scalar"}


def test_vectors_matrices_and_arrays(info: ModuleInfo) -> None:
    found = types(function(info, "shapes"))
    assert [(t.kind, t.name, t.scalar, t.shape) for t in found] == [
        ("vector", "int2", "int", (2,)),
        ("vector", "bool3", "bool", (3,)),
        ("matrix", "float3x4", "float", (3, 4)),
        ("array", "float[4]", "", (4,)),
        ("array", "float[3][2]", "", (2,)),
        ("array", "uint[]", "", (0,)),
    ]
    assert found[4].element is not None
    assert found[4].element.shape == (3,)


def test_directions(info: ModuleInfo) -> None:
    assert [p.direction for p in function(info, "directions").params] == ["in", "out", "inout", "in"]


def test_structs_pointers_and_enums(info: ModuleInfo) -> None:
    disk, node, pointer, tensor, vectors, color, part, anything = types(function(info, "objects"))
    assert [(f.name, f.type.name) for f in disk.fields] == [
        ("center", "float3"), ("frame", "float4x4"), ("radius", "half")
    ]  # fmt: skip
    assert (pointer.kind, pointer.name, pointer.element) == ("pointer", "Node*", node)
    assert (tensor.kind, tensor.name) == ("struct", "Tensor<float, 2>")
    assert tensor.arguments == (SlangType("scalar", "float", "float"), 2)
    assert [(f.name, f.type.name) for f in tensor.fields] == [("data", "float*"), ("shape", "uint[2]")]
    assert vectors.name == "Tensor<float3, 1>"
    assert (color.kind, color.name, color.scalar) == ("enum", "Color", "uint8_t")
    assert info.enums == (color,) and color.cases == (("Red", 0), ("Green", 1))
    assert part.name == "Disk.Part"
    assert anything.name == "void*"


def test_a_recursive_type_ends(info: ModuleInfo) -> None:
    node = struct(info, "Node").type
    follow = node.fields[1].type
    assert follow.kind == "pointer"
    assert follow.element == SlangType("struct", "Node")


def test_generic_function(info: ModuleInfo) -> None:
    pick = function(info, "pick")
    assert pick.generics == ("T", "N")
    assert (pick.returns.kind, pick.returns.name) == ("generic", "T")
    array, vector, tensor = types(pick)
    assert (array.name, array.shape) == ("T[N]", (0,))
    assert (vector.kind, vector.shape) == ("vector", (0,))
    assert tensor.arguments == (SlangType("generic", "T"), SlangType("generic", "N"))


def test_interfaces_and_resources(info: ModuleInfo) -> None:
    assert [(t.kind, t.name) for t in types(function(info, "shaped"))] == [
        ("interface", "IShape"), ("resource", "Texture2D<float4>"), ("resource", "SamplerState"),
        ("other", "(float) -> int"),
    ]  # fmt: skip


def test_methods(info: ModuleInfo) -> None:
    area, move, unit = struct(info, "Disk").methods
    assert (str(area), area.mutating, area.static) == ("float area()", False, False)
    assert (str(move), move.mutating, move.static) == ("void move(float3 by)", True, False)
    assert (str(unit), unit.mutating, unit.static) == ("float unit(int n)", False, True)


def test_nested_and_generic_structs_are_listed(info: ModuleInfo) -> None:
    assert [s.type.name for s in info.structs] == ["Tensor<T, N>", "Node", "Disk", "Disk.Part", "inner.Box"]


def test_entry_points(info: ModuleInfo) -> None:
    (kern,) = info.entry_points
    assert isinstance(kern, EntryPoint)
    assert (kern.name, kern.group_size) == ("kern", (8, 4, 2))
    assert [(p.name, p.type.name, p.semantic) for p in kern.params] == [
        ("t", "uint3", "SV_DispatchThreadID"), ("p", "float*", ""), ("n", "int", "")
    ]  # fmt: skip


def test_reflection_survives_the_cache(info: ModuleInfo) -> None:
    assert from_json(to_json(info)) == info


@pytest.mark.parametrize(
    ("target", "text", "entry", "holds"),
    [
        (Target("cpp", "", "range"), RANGE, "run", b"\nSLANG_PRELUDE_EXPORT void run(int64_t"),
        (CUDA, VALUE, "kernel", b'extern "C" __global__ void kernel(_spy_Call'),
        (Target("spirv", "", "pointer"), POINTER, "kernel", b"\x03\x02\x23\x07\x00\x05\x01\x00"),
        (Target("spirv", "spirv_1_3", "pointer"), POINTER, "kernel", b"kernel\0"),
        (Target("hlsl", "", "value"), RESOURCE, "kernel", b"[numthreads(64, 1, 1)]\nvoid kernel("),
        (Target("metal", "", "value"), RESOURCE, "kernel", b"[[kernel]] void kernel("),
        (Target("wgsl", "", "value"), RESOURCE, "kernel", b"fn kernel("),
    ],
    ids=["cpp", "cuda", "spirv", "spirv_1_3", "hlsl", "metal", "wgsl"],
)
def test_compile(library: Library, target: Target, text: str, entry: str, holds: bytes) -> None:
    session = Session(library, target)
    session.load_module("user", "user.slang", ADD)
    compiled = session.compile(text, "k", entry)
    session.close()
    assert holds in compiled.code
    assert b"#line" not in compiled.code
    assert compiled.layout[0].name == "n"


@pytest.mark.parametrize(
    ("target", "text", "entry"),
    [
        (Target("cpp", "", "range"), RANGE, "run"),
        (CUDA, VALUE, "kernel"),
        (Target("spirv", "", "pointer"), POINTER, "kernel"),
    ],
    ids=["cpp", "cuda", "spirv"],
)
def test_a_plain_block_has_one_layout(library: Library, target: Target, text: str, entry: str) -> None:
    session = Session(library, target)
    session.load_module("user", "user.slang", ADD)
    compiled = session.compile(text, "k", entry)
    session.close()
    assert [(f.name, f.offset, f.size) for f in compiled.layout] == [
        ("n", 0, 4), ("a", 8, 8), ("s", 16, 12), ("k", 32, 8), ("d", 40, 8), ("v", 48, 16)
    ]  # fmt: skip
    assert compiled.size == 64


def test_a_kernel_without_a_block_has_no_layout(session: Session) -> None:
    compiled = session.compile(THREADS + "void kernel() {}\n", "k", "kernel")
    assert (compiled.layout, compiled.size) == ((), 0)


def test_texts_of_one_name_are_told_apart(session: Session) -> None:
    texts = [THREADS + f"void kernel(uniform float* p) {{ p[0] = {n}; }}\n" for n in (11, 22)]
    first, second, again = [session.compile(text, "k", "kernel").code for text in (*texts, texts[0])]
    assert b"11.0f" in first
    assert b"22.0f" in second
    assert again == first


def test_a_syntax_error_shows_file_line_and_caret(session: Session) -> None:
    with pytest.raises(CompileError) as caught:
        session.load_module("bad", "/somewhere/bad.slang", "float f(float a)\n{\n    return a + nothing;\n}\n")
    message = str(caught.value)
    assert message.startswith("Slang could not load module 'bad' from /somewhere/bad.slang:\n")
    assert "/somewhere/bad.slang:3:" in message
    lines = message.splitlines()
    at = next(i for i, line in enumerate(lines) if "return a + nothing;" in line)
    assert lines[at + 1].index("^") == lines[at].index("nothing")
    assert "\x1b" not in message


def test_a_refused_module_can_be_mended(session: Session) -> None:
    with pytest.raises(CompileError, match="undefined identifier"):
        session.load_module("user", "user.slang", "float add(float a, float b) { return c; }")
    assert session.load_module("user", "user.slang", ADD).functions[0].name == "add"
    assert session.compile(VALUE, "k", "kernel").size == 64


def test_a_module_does_not_change_within_a_session(session: Session) -> None:
    first = session.load_module("user", "user.slang", ADD)
    assert session.load_module("user", "user.slang", ADD) == first
    for name, path, text in (
        ("user", "user.slang", ADD + " "),
        ("user", "elsewhere.slang", ADD),
        ("other", "user.slang", ADD),
    ):
        with pytest.raises(CompileError, match=r"already holds module 'user' .* open a new session"):
            session.load_module(name, path, text)


def test_warnings_are_no_errors(session: Session) -> None:
    info = session.load_module("w", "w.slang", "int f(float a) { int x; return x; }\n")
    assert [f.name for f in info.functions] == ["f"]


def test_a_missing_entry_point_is_an_error(session: Session, library: Library) -> None:
    with pytest.raises(CompileError, match="find entry point 'other' of k"):
        session.compile(THREADS + "void kernel() {}\n", "k", "other")
    cpp = Session(library, Target("cpp", "", "range"))
    with pytest.raises(CompileError, match="no function 'other' to export"):
        cpp.compile("export __extern_cpp void run() {}\n", "k", "other")


def test_defines_and_search_paths(library: Library, tmp_path: Path) -> None:
    (tmp_path / "slangpy_rt.slang").write_text(
        "struct Tensor<T, let N : int> { T* data; uint shape[N]; }\n", encoding="utf-8"
    )
    session = Session(library, CUDA, (str(tmp_path),), (("WIDTH", "4"),))
    text = "import slangpy_rt;\nvector<float, WIDTH> f(Tensor<float, 2> t) { return 0; }\n"
    (found,) = session.load_module("user", "user.slang", text).functions
    assert str(found) == "float4 f(Tensor<float, 2> t)"
    with pytest.raises(CompileError, match="slangpy_rt"):
        Session(library, CUDA).load_module("user", "user.slang", text)


def test_dependencies_are_files_with_their_hashes(session: Session, tmp_path: Path) -> None:
    files = {
        "main.slang": "import other;\nint f(int a) { return square(a) + cube(a); }\n",
        "other.slang": "module other;\n__include part;\npublic int square(int a) { return a * a; }\n",
        "part.slang": 'implementing other;\n#include "deep/h.slangh"\npublic int cube(int a) { return C; }\n',
        "deep/h.slangh": "#define C a * a * a\n",
    }
    (tmp_path / "deep").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    expected = {str(tmp_path / name): hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    info = session.load_module("main", str(tmp_path / "main.slang"), files["main.slang"])
    assert dict(info.dependencies) == expected
    assert [f.name for f in info.functions] == ["f"]


def test_included_files_belong_to_the_module(session: Session, tmp_path: Path) -> None:
    (tmp_path / "part.slang").write_text("implementing whole;\npublic struct S { int a; }\nint g() { return 1; }\n")
    text = "module whole;\n__include part;\nint f() { return g(); }\n"
    info = session.load_module("whole", str(tmp_path / "whole.slang"), text)
    assert sorted(f.name for f in info.functions) == ["f", "g"]
    assert [s.type.name for s in info.structs] == ["S"]
    assert [Path(path).name for path, _ in info.dependencies] == ["part.slang"]


def test_sessions_come_and_go(library: Library) -> None:
    for _ in range(100):
        session = Session(library, CUDA)
        session.load_module("user", "user.slang", ADD)
        session.close()
        session.close()
    with pytest.raises(UnsupportedError, match="closed"):
        session.load_module("user", "user.slang", ADD)


def test_threads_take_turns(library: Library) -> None:
    codes: list[bytes] = []

    def work() -> None:
        session = Session(library, CUDA)
        session.load_module("user", "user.slang", ADD)
        codes.append(session.compile(VALUE, "k", "kernel").code)
        session.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == 4
    assert len(set(codes)) == 1


def test_unknown_format_and_profile(library: Library) -> None:
    with pytest.raises(UnsupportedError, match=r"target format 'glsl'.*use one of cpp"):
        Session(library, Target("glsl", "", "value"))
    with pytest.raises(UnsupportedError, match="profile 'sm_nothing' is unknown"):
        Session(library, Target("hlsl", "sm_nothing", "value"))


def test_library_version_loads_nothing(tmp_path: Path) -> None:
    assert "slang" in library_version()
    assert library_version() == library_version()
    fake = tmp_path / "libslang-compiler.so"
    fake.write_bytes(b"no library")
    before = library_version(str(fake))
    fake.write_bytes(b"another build")
    assert library_version(str(fake)) != before


def test_an_unusable_library_is_named(tmp_path: Path) -> None:
    fake = tmp_path / "libslang-compiler.so"
    with pytest.raises(UnsupportedError, match="no such file; point SLANGPY_RT_SLANG_LIB"):
        Session(Library(str(fake)), CUDA)
    with pytest.raises(UnsupportedError, match="no ordinary file; point SLANGPY_RT_SLANG_LIB"):
        Session(Library(str(tmp_path)), CUDA)
    fake.write_bytes(b"no library")
    with pytest.raises(UnsupportedError, match=r"is unusable; expected Slang 20\d\d"):
        Session(Library(str(fake)), CUDA)


def test_build_tag(library: Library) -> None:
    assert library.build_tag[:4].isdigit()


def test_generic_names_are_split_at_their_own_brackets() -> None:
    assert split_arguments("A<B<x, y>, 2>") == ("A", ["B<x, y>", "2"])
    assert split_arguments("A<int>.B<vector<float,3>>") == ("A<int>.B", ["vector<float,3>"])
