"""Link-time constants, linked modules, what an interface may hold, and uniforms. No device is needed."""

from pathlib import Path
from typing import Any

import pytest

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.slang.constants import export_constants
from slangpy_rt.slang.source import Source
from tests.depth import sampled

CPP, CUDA, SPIRV = Target("cpp", "", "range"), Target("cuda", "", "value"), Target("spirv", "", "pointer")
TARGETS = pytest.mark.parametrize("target", [CPP, CUDA, SPIRV], ids=["cpp", "cuda", "spirv"])
MODULE = """
enum Mode { Off, On }
extern static const int COUNT;
extern static const int STEPS = 4;
extern static const float3 COLOR;
extern static const Mode MODE = Mode.Off;
static const int PLAIN = 3;
void constants(float* q) { q[0] = COUNT * 1000 + STEPS * 100 + int(COLOR.y) * 10 + int(MODE); }
void steps(float* q) { q[0] = STEPS; }
extern float outside(float x);
void calls(float* q) { q[0] = outside(q[0]); }
[anyValueSize(16)] interface IShape { float area(float k); }
struct Disk : IShape { float r; float area(float k) { return k * r * r; } }
struct Box : IShape { float w; float h; float area(float k) { return k * w * h; } }
void shape(float* q) { IShape s = createDynamicObject<IShape>(int(q[3]), float2(q[0], q[1])); q[2] = s.area(2); }
uniform float gain;
struct Light { float power; float3 color; }
namespace ns { uniform Light light, lights[2]; }
uniform RWStructuredBuffer<float> buffer;
void lit(float* q) { q[0] = gain * ns.light.power + ns.lights[1].color.y; }
"""
HEAD = "import m;\nstruct Call { float* p; int64_t n; }\n"
GROUP = '[shader("compute")] [numthreads(64, 1, 1)] void kernel(uint3 t : SV_DispatchThreadID, '
TEXTS = {
    "range": HEAD + "export __extern_cpp void run(int64_t begin, int64_t end, Call* call)\n"
    "{ let c = *call; for (int64_t i = begin; i < end; i++) { CALL; } }\n",
    "value": HEAD + GROUP + "uniform Call c) { CALL; }\n",
    "pointer": HEAD + GROUP + "uniform Call* call) { let c = *call; CALL; }\n",
}
NEEDED = {"COUNT": 7, "COLOR": [1, 2.5, 3]}


def source(tmp_path: Path, target: Target = CUDA, name: str = "m", text: str = MODULE, **options: Any) -> Source:
    cache = DiskCache.open(tmp_path / "cache", 1 << 30)
    return Source(cache, target, name, f"{name}.slang", text, (), (), **options)


def compile_call(source: Source, target: Target, call: str, head: str = "", conformances: Any = ()) -> bytes:
    text = head + TEXTS[target.entry].replace("CALL", call)
    return source.compile(text, "k", "run" if target.entry == "range" else "kernel", conformances).code


def number(value: float) -> bytes:
    """A constant as SPIR-V holds it; the other targets write it out."""
    import struct

    return struct.pack("<f", value)


def holds(code: bytes, target: Target, value: float) -> bool:
    return (number(value) if target is SPIRV else f"= {value!r}f;".encode()) in code


def test_constants_are_listed(tmp_path: Path) -> None:
    found = source(tmp_path).info.constants
    assert [(c.name, c.type.name, c.has_default) for c in found] == [
        ("COUNT", "int", False), ("STEPS", "int", True), ("COLOR", "float3", False), ("MODE", "Mode", True)
    ]  # fmt: skip


@sampled(3)
@TARGETS
def test_constants_reach_the_code(target: Target, tmp_path: Path) -> None:
    made = source(tmp_path, target, constants=NEEDED)
    assert holds(compile_call(made, target, "constants(c.p)"), target, 7420.0)
    made = source(tmp_path, target, constants={**NEEDED, "STEPS": 9, "MODE": 1})
    assert holds(compile_call(made, target, "constants(c.p)"), target, 7921.0)


@sampled(3)
@TARGETS
def test_constants_of_a_text_win(target: Target, tmp_path: Path) -> None:
    head = "export static const int COUNT = 2;\nexport static const float3 COLOR = float3(1, 5, 1);\n"
    assert holds(compile_call(source(tmp_path, target), target, "constants(c.p)", head), target, 2450.0)
    made = source(tmp_path, target, constants={**NEEDED, "STEPS": 1})
    assert holds(compile_call(made, target, "constants(c.p)", head), target, 2150.0)
    assert holds(compile_call(made, target, "steps(c.p)", "export static const int STEPS = 6;\n"), target, 6.0)


@sampled(3)
@TARGETS
def test_a_default_needs_no_value_and_others_do(target: Target, tmp_path: Path) -> None:
    made = source(tmp_path, target)
    assert holds(compile_call(made, target, "steps(c.p)"), target, 4.0)
    with pytest.raises(CompileError, match="unresolved external symbol 'COUNT'"):
        compile_call(made, target, "constants(c.p)")


def test_an_unknown_constant_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BindError) as caught:
        source(tmp_path, constants={"PLAIN": 1})
    assert str(caught.value) == (
        "module 'm': there is no constant 'PLAIN'; it has 'COUNT', 'STEPS', 'COLOR', 'MODE'. "
        "Declare it as: extern static const int PLAIN;"
    )


def constant(kind: str) -> Param:
    if kind[-1] in "234" and kind[:-1] in ("float", "int", "bool"):
        return Param("C", SlangType("vector", kind, kind[:-1], (int(kind[-1]),)))
    return Param("C", SlangType("scalar", kind, kind))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("bool", True, "bool C = true"),
        ("int", -3, "int C = int(-3LL)"),
        ("uint64_t", 2**64 - 1, "uint64_t C = uint64_t(18446744073709551615ULL)"),
        ("int64_t", -(2**63), "int64_t C = int64_t(-9223372036854775807LL - 1)"),
        ("uint8_t", 255, "uint8_t C = uint8_t(255LL)"),
        ("float", 2, "float C = float(2.0)"),
        ("half", 0.5, "half C = half(0.5)"),
        ("double", 1e-300, "double C = double(1e-300lf)"),
        ("float3", (1, 2.5, -3), "float3 C = float3(float(1.0), float(2.5), float(-3.0))"),
        ("int2", 4, "int2 C = int2(int(4LL), int(4LL))"),
        ("bool2", [True, False], "bool2 C = bool2(true, false)"),
    ],
)
def test_values_become_text(kind: str, value: Any, text: str) -> None:
    assert export_constants("f", (constant(kind),), {"C": value}) == {"C": f"export static const {text};"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5), ("int", True), ("int", 2**31), ("int", "1"), ("int", [1]), ("uint8_t", 256), ("uint64_t", -1),
        ("bool", 2), ("float", 1e39), ("float", float("nan")), ("float", "x"), ("half", 65505.0), ("float", True),
        ("float3", [1, 2]), ("int2", [1, 2.5]),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(kind: str, value: Any) -> None:
    with pytest.raises(BindError) as caught:
        export_constants("f", (constant(kind),), {"C": value})
    assert str(caught.value) == f"f: constant 'C' is {value!r}; a value of Slang type {kind} was expected."


@sampled(3)
@TARGETS
def test_linked_modules_fill_what_is_extern(target: Target, tmp_path: Path) -> None:
    text = "extern static const int FACTOR;\nexport float outside(float x) { return x * FACTOR; }\n"
    other = source(tmp_path, target, "other", text)
    with pytest.raises(CompileError, match="unresolved external symbol 'outside'"):
        compile_call(source(tmp_path, target), target, "calls(c.p)")
    linked = source(tmp_path, target, constants={"FACTOR": 12}, link=(other,))
    code = compile_call(linked, target, "calls(c.p)")
    assert (number(12.0) if target is SPIRV else b"* 12.0f;") in code


@sampled(3)
@TARGETS
def test_linked_modules_can_be_imported(target: Target, tmp_path: Path) -> None:
    base = source(tmp_path, target, "base", "float deep(float x) { return x + 17; }\n")
    other = source(
        tmp_path, target, "other", "import base;\nfloat shown(float x) { return deep(x); }\n", link=(base,)
    )
    user = source(tmp_path, target, "m", "import other;\nvoid f(float* q) { q[0] = shown(q[0]); }\n", link=(other,))
    assert (number(17.0) if target is SPIRV else b"+ 17.0f;") in compile_call(user, target, "f(c.p)")


@sampled(3)
@TARGETS
def test_an_interface_holds_what_it_is_told_to(target: Target, tmp_path: Path) -> None:
    made = source(tmp_path, target)
    both = compile_call(made, target, "shape(c.p)", "", (("IShape", "Disk", 70), ("IShape", "Box", 90)))
    one = compile_call(made, target, "shape(c.p)", "", (("IShape", "Disk", 70),))
    assert len(one) < len(both)
    if target is not SPIRV:
        assert [word in both for word in (b"case 70U:", b"case 90U:", b"Disk_area", b"Box_area")] == [True] * 4
        assert b"Box_area" not in one
    assert compile_call(made, target, "shape(c.p)", "", (("IShape", "Disk", -1),))
    with pytest.raises(CompileError, match="no type conformances found"):
        compile_call(made, target, "shape(c.p)")
    with pytest.raises(CompileError, match="let 'IShape' hold 'Light'"):
        compile_call(made, target, "shape(c.p)", "", (("IShape", "Light", 1),))
    with pytest.raises(CompileError, match="there is no type 'INothing' in 'm'"):
        compile_call(made, target, "shape(c.p)", "", (("INothing", "Disk", 1),))


def test_uniforms_are_listed(tmp_path: Path) -> None:
    found = source(tmp_path).info.uniforms
    assert [(u.name, u.type.name) for u in found] == [
        ("gain", "float"), ("ns.light", "Light"), ("ns.lights", "Light[2]")
    ]  # fmt: skip
    assert [f.name for f in found[1].type.fields] == ["power", "color"]


@sampled(3)
@TARGETS
def test_a_kernel_sets_uniforms(target: Target, tmp_path: Path) -> None:
    call = "gain = 41.0; ns.light.power = c.p[1]; ns.lights[1].color = float3(c.p[2]); lit(c.p)"
    code = compile_call(source(tmp_path, target), target, call)
    assert (number(41.0) if target is SPIRV else b"gain_0 = 41.0f;") in code


@sampled(3)
@TARGETS
def test_a_uniform_that_nobody_sets_is_zero(target: Target, tmp_path: Path) -> None:
    code = compile_call(source(tmp_path, target), target, "lit(c.p)")
    zeros = {CPP: b"KernelContext_0 globals = {};", CUDA: b"gain_0 = 0.0f;", SPIRV: number(0.0)}
    assert zeros[target] in code


def test_everything_is_in_the_digest(tmp_path: Path) -> None:
    other = source(tmp_path, name="other", text="float a() { return 1; }\n")
    edited = source(tmp_path, name="other", text="float a() { return 2; }\n")
    made = [
        source(tmp_path), source(tmp_path, constants={"STEPS": 1}), source(tmp_path, constants={"STEPS": 2}),
        source(tmp_path, constants={"COUNT": 1}), source(tmp_path, link=(other,)), source(tmp_path, link=(edited,)),
    ]  # fmt: skip
    assert len({s.digest for s in made}) == len(made)
    assert source(tmp_path, constants={"STEPS": 1}).digest == made[1].digest
