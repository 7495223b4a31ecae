"""Raw kernels called by kernels of ours, and what C++ cannot express of thread groups. No device is needed."""

import array
from pathlib import Path

import pytest

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import EntryPoint
from slangpy_rt.slang.emitted import has_no_body, nesting
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session

CPP, CUDA, SPIRV = Target("cpp", "", "range"), Target("cuda", "", "value"), Target("spirv", "", "pointer")
TARGETS = pytest.mark.parametrize("target", [CPP, CUDA, SPIRV], ids=["cpp", "cuda", "spirv"])
GPUS = pytest.mark.parametrize("target", [CUDA, SPIRV], ids=["cuda", "spirv"])
MODULE = """
#define WIDTH 16
static const int HEIGHT = 2;
groupshared float tile[64];
static float2 scratch;
static float started = 2;
static float _ = 2;
StructuredBuffer<float> resource;
float implicit;
/// Fills.
[numthreads(WIDTH, HEIGHT)]
void fill(uint3 t : SV_DispatchThreadID, uniform int n, uint g : sv_groupindex, float* q) { q[t.x] = n + g; }
[shader("compute")] [numthreads(8, 8, 1)]
void marked(uint3 t : SV_DispatchThreadID, uint3 i : SV_GroupThreadID, uint3 g : SV_GroupID, uniform float* q)
{ q[t.x] = i.y + g.z; }
[numthreads(64)]
void reverse(int t : SV_DispatchThreadID, uint g : SV_GroupIndex, float* q)
{ tile[g] = q[t]; GroupMemoryBarrierWithGroupSync(); q[t] = tile[63 - g]; }
void barrier_only(float* q) { q[0] = 1; AllMemoryBarrierWithGroupSync(); q[0] = 2; }
void shared_only(float* q) { tile[0] = q[0]; q[1] = tile[1]; }
void wave(float* q) { q[0] = WaveActiveSum(q[0]); }
void branch(float* q) { if (q[0] > 1) q[1] = WaveGetLaneIndex(); else q[2] = 2; }
void quad(float* q) { q[0] = QuadReadAcrossX(q[0]); }
interface ISum { float sum(float* q); }
struct WaveSum : ISum { float sum(float* q) { return WaveActiveSum(q[1]); } }
float any<T : ISum>(T t, float* q) { return t.sum(q); }
void hidden(float* q) { WaveSum s; q[0] = any(s, q); }
void atomic(float* q) { InterlockedAdd(*(uint*)q, 1u); }
void nothing(float* q) {}
void statics(float* q) { scratch.x = q[0]; q[1] = scratch.x; }
void initial(float* q) { started += 1; q[0] = started; }
void unnamed(float* q) { q[0] = _; }
void counts(float* q) { static int calls = 0; calls += 1; q[0] = calls; }
void reads(float* q) { q[0] = resource[0]; }
void bare(float* q) { q[0] = implicit; }
"""
CALLS = {"fill": "fill(uint3(i, 0, 0), 3, 0, c.p)", "marked": "marked(uint3(i, 0, 0), uint3(1), uint3(2), c.p)",
         "reverse": "reverse(int(i), 0, c.p)"}  # fmt: skip
HEAD = "import m;\nstruct Call { float* p; int64_t n; }\n"
GROUP = '[shader("compute")] [numthreads(64, 1, 1)] void kernel(uint3 t : SV_DispatchThreadID, '
TEXTS = {
    "range": HEAD + "export __extern_cpp void run(int64_t begin, int64_t end, Call* call)\n"
    "{ let c = *call; for (int64_t i = begin; i < end; i++) { CALL; } }\n",
    "value": HEAD + GROUP + "uniform Call c) { let i = t.x; CALL; }\n",
    "pointer": HEAD + GROUP + "uniform Call* call) { let c = *call; let i = t.x; CALL; }\n",
}


@pytest.fixture(scope="module")
def sessions() -> dict[str, Session]:
    library = Library()
    made = {target.format: Session(library, target) for target in (CPP, CUDA, SPIRV)}
    for session in made.values():
        session.load_module("m", "m.slang", MODULE)
    return made


def compile_call(session: Session, name: str) -> bytes:
    entry = session.target.entry
    text = TEXTS[entry].replace("CALL", CALLS.get(name, f"{name}(c.p)"))
    return session.compile(text, f"k_{name}", "run" if entry == "range" else "kernel").code


@TARGETS
def test_kernels_are_listed_with_their_group_size(target: Target, sessions: dict[str, Session]) -> None:
    info = Session(Library(), target).load_module("m", "m.slang", MODULE)
    assert [(e.name, e.group_size) for e in info.entry_points] == [
        ("fill", (16, 2, 1)), ("marked", (8, 8, 1)), ("reverse", (64, 1, 1))
    ]  # fmt: skip
    assert not {"fill", "marked", "reverse"} & {f.name for f in info.functions}
    assert [(p.name, p.type.name, p.semantic) for p in info.entry_points[0].params] == [
        ("t", "uint3", "SV_DispatchThreadID"), ("n", "int", ""), ("g", "uint", "SV_GroupIndex"), ("q", "float*", "")
    ]  # fmt: skip
    assert [p.semantic for p in info.entry_points[1].params] == [
        "SV_DispatchThreadID", "SV_GroupThreadID", "SV_GroupID", ""
    ]  # fmt: skip
    assert isinstance(info.entry_points[0], EntryPoint)
    assert (info.entry_points[0].doc, info.entry_points[1].doc) == ("Fills.", "")
    assert "_spy_groupAttribute" not in [s.type.name for s in info.structs]


@TARGETS
@pytest.mark.parametrize("name", ["fill", "marked"])
def test_a_kernel_can_be_called(target: Target, name: str, sessions: dict[str, Session]) -> None:
    code = compile_call(sessions[target.format], name)
    assert target is SPIRV or f" {name}_0(".encode() in code


@GPUS
@pytest.mark.parametrize("name", ["reverse", "wave", "statics", "initial"])
def test_a_gpu_has_groups_and_statics(target: Target, name: str, sessions: dict[str, Session]) -> None:
    assert compile_call(sessions[target.format], name)


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("reverse", "GroupMemoryBarrierWithGroupSync"),
        ("barrier_only", "AllMemoryBarrierWithGroupSync"),
        ("shared_only", "groupshared variable 'tile'"),
        ("wave", "WaveActiveSum"),
        ("branch", "WaveGetLaneIndex"),
        ("quad", "QuadReadAcrossX"),
        ("hidden", "WaveActiveSum"),
    ],
)
def test_cpp_refuses_what_needs_a_group(name: str, used: str, sessions: dict[str, Session]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_call(sessions["cpp"], name)
    assert str(caught.value) == (
        f"the function uses {used}, which needs thread groups; this device has none without the llvmlite package. "
        "Run: pip install llvmlite; or run it on a GPU (device type cuda or vulkan)."
    )


def test_cpp_has_atomics_and_empty_functions(sessions: dict[str, Session]) -> None:
    assert b"_slang_atomic_add_u32(" in compile_call(sessions["cpp"], "atomic")
    compile_call(sessions["cpp"], "nothing")


def test_cpp_gives_every_call_its_own_statics(sessions: dict[str, Session]) -> None:
    code = compile_call(sessions["cpp"], "statics").decode()
    (head,) = [line for line in code.split("\n") if line.startswith("SLANG_PRELUDE_EXPORT void run(")]
    assert "KernelContext" not in head
    assert "KernelContext_0 globals = {};" in code


@pytest.mark.parametrize(("name", "variable"), [("initial", "started"), ("counts", "calls"), ("unnamed", "_")])
def test_cpp_refuses_an_initial_value_that_it_would_lose(
    name: str, variable: str, sessions: dict[str, Session]
) -> None:
    with pytest.raises(UnsupportedError, match=f"static variable '{variable}', whose initial value is lost"):
        compile_call(sessions["cpp"], name)


@TARGETS
@pytest.mark.parametrize("name", ["reads", "bare"])
def test_what_only_a_binding_could_fill_is_refused(target: Target, name: str, sessions: dict[str, Session]) -> None:
    with pytest.raises(UnsupportedError, match="global resource, a cbuffer, a global variable without 'uniform'"):
        compile_call(sessions[target.format], name)


def test_has_no_body_reads_emitted_text() -> None:
    missing = b"static float WaveActiveSum_0(float expr_0)\n{\n}\n\nstatic void f_0()\n{\n    return;\n}\n"
    assert has_no_body(missing, "cpp") == "WaveActiveSum"
    assert has_no_body(missing.partition(b"\n\n")[2], "cpp") == ""


def test_kernels_of_included_files_are_neither_listed_nor_called(tmp_path: Path) -> None:
    part = 'implementing whole;\n[shader("compute")] [numthreads(1, 1, 1)] void k(uint3 t : SV_DispatchThreadID) {}\n'
    (tmp_path / "part.slang").write_text(part)
    text = "module whole;\n__include part;\nint f() { return 1; }\n"
    info = Session(Library(), CUDA).load_module("whole", str(tmp_path / "whole.slang"), text)
    assert ([f.name for f in info.functions], info.entry_points) == (["f"], ())


def test_a_group_size_that_is_no_constant_is_shown(sessions: dict[str, Session]) -> None:
    with pytest.raises(CompileError, match="UNKNOWN"):
        sessions["cuda"].load_module("bad", "bad.slang", "[numthreads(UNKNOWN, 1, 1)] void k() {}\n")


def test_an_overflowed_length_ends_with_a_message() -> None:
    """A constant of 65,600 elements, as Slang writes it where SPIR-V's optimizer is not installed."""
    length = (3 + 65_600) & 0xFFFF
    words = [0x07230203, 0x00010500, 0, 70_000, 0, length << 16 | 44, 1, 2, *[3] * 65_600]
    with pytest.raises(CompileError, match=r"holds at most 65,532 elements: pass a larger one as a parameter"):
        nesting(array.array("I", words).tobytes(), "spirv")
