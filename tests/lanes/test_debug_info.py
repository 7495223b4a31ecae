"""Debug information of kernels in lanes: lines and variables of the Slang text in LLVM IR and in the object file."""

from __future__ import annotations

import re

import numpy as np
import pytest

from slangpy_rt.backends.cpu.group_format import DEBUG_FLAGS
from slangpy_rt.lanes.debug_info import DebugSource
from slangpy_rt.lanes.debug_text import DebugSettings
from slangpy_rt.lanes.empty_blocks import without_empty_blocks
from slangpy_rt.lanes.module import parse
from slangpy_rt.lanes.translate import LaneKernel, translate
from tests.lanes._kernels import DEBUG, Kernels, compiler, run

pytest.importorskip("llvmlite")

TEXT = """
struct Ball { float3 at; bool seen; int16_t kind; };
struct Pile { Ball balls[3]; };

float lift(Ball ball, float t)
{
    float height = ball.at.y * t;
    return height + ball.at.x;
}

void change(inout float value, int times)
{
    for (int step = 0; step < times; ++step)
        value += 1;
}

groupshared float shared[16];

[shader("compute")] [numthreads(16, 1, 1)]
void plain(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform uint n)
{
    if (thread.x >= n)
        return;
    Pile pile;
    for (int k = 0; k < 3; ++k)
    {
        pile.balls[k].at = float3(a[thread.x], k, 2);
        pile.balls[k].seen = k == 1;
        pile.balls[k].kind = int16_t(k);
    }
    float sum = lift(pile.balls[2], 3) + lift(pile.balls[thread.x % 3], 1);
    change(sum, int(thread.x));
    b[thread.x] = pile.balls[(thread.x + 1) % 3].seen ? sum : -sum;
}

[shader("compute")] [numthreads(16, 1, 1)]
void groups(uint3 thread : SV_GroupThreadID, uniform float *a, uniform float *b)
{
    float table[4] = { 1, 2, 3, 4 };
    table[thread.x % 4] = a[thread.x];
    shared[thread.x] = table[thread.x % 3];
    GroupMemoryBarrierWithGroupSync();
    float other = shared[15 - thread.x];
    GroupMemoryBarrierWithGroupSync();
    b[thread.x] = other + table[3];
}

[shader("compute")] [numthreads(64, 1, 1)]
void waves(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b)
{
    float mine = a[thread.x];
    bool odd = thread.x % 2 == 1;
    int count = 7;
    Ball ball;
    ball.at = float3(mine, 1, 2);
    ball.seen = odd;
    ball.kind = int16_t(count);
    float total = WaveActiveSum(ball.at.x);
    if (ball.seen)
        total += count;
    b[thread.x] = total;
}
"""
KERNELS = Kernels(TEXT, DEBUG_FLAGS)


def translated(entry: str, debug: DebugSettings = DEBUG) -> LaneKernel:
    return translate(KERNELS.code(entry), debug=debug)


def line_of(part: str) -> int:
    """Return the number of the line that contains a part of the text."""
    return next(k for k, line in enumerate(TEXT.split("\n"), 1) if part in line)


def test_lines_of_the_text() -> None:
    text = translated("plain").text
    lines = {int(k) for k in re.findall(r"!DILocation\(line: (\d+)", text)}
    wanted = ("if (thread.x >= n)", "return;", "for (int k", "balls[k].at =", "balls[k].kind =", "float sum =",
              "float height =", "return height", "for (int step", "value += 1", "b[thread.x] = pile")  # fmt: skip
    assert {line_of(part) for part in wanted} <= lines


def test_variables_of_the_text() -> None:
    text = translated("plain").text
    names = set(re.findall(r'!DILocalVariable\(name: "(\w+)"', text))
    assert {"thread", "n", "a", "b", "pile", "k", "sum", "ball", "t", "height", "value", "times", "step"} <= names
    assert re.search(r'!DILocalVariable\(name: "t", arg: 2, ', text)


def test_inlined_calls_have_places_of_their_own() -> None:
    """Two calls in one line: a debugger shows the variables of each."""
    text = translated("plain").text
    height = re.search(r'!(\d+) = !DILocalVariable\(name: "height"', text)
    assert height
    places = re.findall(rf"#dbg_declare\(ptr %v\d+, !{height[1]}, !DIExpression\(\), !(\d+)\)", text)
    assert len(set(places)) == 2
    sites = [
        re.search(rf"^!{k} = !DILocation\(line: \d+, scope: !\d+, inlinedAt: !(\d+)\)", text, re.M) for k in places
    ]
    calls = {found[1] for found in sites if found}
    assert len(calls) == 2
    for call in calls:
        assert re.search(rf"^!{call} = distinct !DILocation\(line: {line_of('float sum =')}, ", text, re.M)


def test_files_that_are_hidden() -> None:
    text = translated("plain", DebugSettings(lambda path: True, lambda source: source.path)).text
    assert "!DILocalVariable" not in text
    # The kernel itself is there; functions that it calls are passed over.
    lines = {int(k) for k in re.findall(r"!DILocation\(line: (\d+)", text)}
    assert line_of("float sum =") in lines
    assert lines.isdisjoint({line_of("float height ="), line_of("value += 1"), line_of("return height")})


def test_paths_of_files() -> None:
    asked: list[DebugSource] = []

    def path(source: DebugSource) -> str:
        asked.append(source)
        return '/a "folder"/größe.slang'

    text = translated("plain", DebugSettings(lambda path: False, path)).text
    assert TEXT in [source.text for source in asked]
    assert r'!DIFile(filename: "/a \22folder\22/gr\C3\B6\C3\9Fe.slang"' in text


def test_object_files_have_lines() -> None:
    import llvmlite.binding as llvm

    def sections(text: str, debug: bool) -> dict[str, int]:
        found = llvm.ObjectFileRef.from_data(compiler().compile(text, debug))
        return {(each.name() or b"").decode(): each.size() for each in found.sections()}

    with_lines = sections(translated("plain").text, True)
    for name in (".debug_line", ".debug_info"):
        assert next(size for key, size in with_lines.items() if name.strip(".") in key) > 100
    assert not any("debug_" in name for name in sections(translate(KERNELS.code("plain")).text, False))


def test_one_thread_a_lane_without_waves() -> None:
    assert translated("plain").width == translated("groups").width == 1
    assert translated("waves").width == 32
    assert translate(KERNELS.code("plain")).width > 1
    assert "<" not in re.sub(r"[!;].*", "", translated("plain").text.partition("attributes")[0])  # no vectors


@pytest.mark.parametrize("width", [None, 4, 16])
def test_values(width: int | None) -> None:
    a = np.arange(1, 65, dtype=np.float32)
    b = np.zeros(64, np.float32)
    run(KERNELS.code("plain"), (4, 1, 1), a, b, 61, width=width, debug=DEBUG)
    k = np.arange(64)
    sums = (3 * 2 + a) + (k % 3 + a) + k
    np.testing.assert_array_equal(b, np.where(k < 61, np.where((k + 1) % 3 == 1, sums, -sums), 0))
    b = np.zeros(16, np.float32)
    run(KERNELS.code("groups"), (1, 1, 1), a, b, width=width, debug=DEBUG)
    k = np.arange(16)
    shared = np.where(k % 4 == k % 3, a[:16], k % 3 + 1)
    np.testing.assert_array_equal(b, shared[::-1] + np.where(k % 4 == 3, a[:16], 4))


def test_values_of_waves() -> None:
    a = np.arange(1, 65, dtype=np.float32)
    b = np.zeros(64, np.float32)
    run(KERNELS.code("waves"), (1, 1, 1), a, b, width=None, debug=DEBUG)
    k = np.arange(64)
    np.testing.assert_array_equal(b, np.where(k < 32, a[:32].sum(), a[32:].sum()) + k % 2 * 7)


def test_variables_too_large_for_frames_are_kept_while_they_are_read() -> None:
    text = """
        groupshared float shared[1024];
        [shader("compute")] [numthreads(1024, 1, 1)]
        void large(uint3 thread : SV_GroupThreadID, uniform float *b)
        {
            float4x4 m[8];
            for (int k = 0; k < 8; ++k)
                m[k] = float4x4(k);
            shared[thread.x] = m[2][1][2] + m[3][3][3];
            float after = 1;
            GroupMemoryBarrierWithGroupSync();
            b[thread.x] = shared[1023 - thread.x] + after;
        }
    """
    code, b = Kernels(text, DEBUG_FLAGS).code("large"), np.zeros(1024, np.float32)
    kernel = run(code, (1, 1, 1), b, width=None, debug=DEBUG)
    np.testing.assert_array_equal(b, 2 + 3 + 1)
    assert 'name: "after"' in kernel.text


def test_text_without_debug_information() -> None:
    kernel = translate(Kernels(TEXT).code("plain"), debug=DEBUG)
    assert kernel.width == 1 and "!dbg" not in kernel.text


def test_functions_and_names_that_were_read() -> None:
    module = parse(KERNELS.code("plain"))
    assert module.debug is not None
    names = {function.name for function in module.debug.functions.values()}
    assert {"plain", "lift", "change"} <= names
    assert module.debug.functions[module.debug.defined[module.entry]].name == "plain"
    assert parse(Kernels(TEXT).code("plain")).debug is None


def test_blocks_that_are_a_jump_are_removed() -> None:
    lines = ["start:", "  br i1 %a, label %b, label %c", "b:", "  br label %d, !dbg !3", "c:", "  x", "  br label %b",
             "d:", "  br label %e", "e:", "  y", "loop:", "  br label %loop"]  # fmt: skip
    assert without_empty_blocks(lines) == [
        "start:", "  br i1 %a, label %e, label %c", "c:", "  x", "  br label %e", "e:", "  y", "loop:",
        "  br label %loop",
    ]  # fmt: skip
