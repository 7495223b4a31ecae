"""A debugger on kernels of the CPU device: gdb stops at a line of a Slang file and prints variables.

Calls whose kernels have no groups are compiled from C++ and are no part of this.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu.debug_sources import DebugSources
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.lanes.debug_info import DebugSource
from tests.depth import deep

pytest.importorskip("llvmlite")

TEXT = """import slangpy_rt;
struct Ball { float3 at; float radius; };
groupshared float parts[4];

float lift(Ball ball, float t)
{
    float height = ball.radius * t;
    return height + ball.at.y;
}

[shader("compute")]
[numthreads(4, 1, 1)]
void drop(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, Tensor<float, 1> x, RWTensor<float, 1> y)
{
    Ball ball = { float3(x[thread.x], 2, 3), 0.5 };
    float table[3] = { 1, 2, 4 };
    parts[at] = ball.at.x;
    GroupMemoryBarrierWithGroupSync();
    float sum = 0;
    for (int k = 0; k < 3; ++k)
    {
        if (k == 1)
            continue;
        sum += table[k] * parts[3 - at];
    }
    y[thread.x] = lift(ball, sum);
}

[shader("compute")]
[numthreads(32, 1, 1)]
void waves(uint3 thread : SV_DispatchThreadID, RWTensor<float, 1> y)
{
    float mine = thread.x;
    y[thread.x] = WaveActiveSum(mine);
}

[shader("compute")]
[numthreads(4, 1, 1)]
void talk(uint3 thread : SV_DispatchThreadID, Tensor<float, 1> x, RWTensor<float, 1> y)
{
    if (thread.x == 2)
        printf("thread %d\\n", thread.x);
    y[thread.x] = x[thread.x + 1];
}
"""
PROGRAM = """
import sys
import numpy as np
import slangpy_rt as spy

with spy.Device("cpu", debug=True) as device:
    module = spy.Module.load_from_file(device, sys.argv[1])
    y = np.zeros(4, np.float32)
    module.drop.dispatch(4, x=np.arange(1, 5, dtype=np.float32), y=y)
    print("values", y)
"""
X = np.arange(1, 5, dtype=np.float32)
EXPECTED = 0.5 * 5 * X[::-1] + 2


def line_of(part: str) -> int:
    return next(k for k, line in enumerate(TEXT.split("\n"), 1) if part in line)


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Any:
    with spy.Device("cpu", debug=True) as device:
        yield spy.Module.load_from_source(device, "test_cpu_debugger", TEXT)


def gdb(program: Path, argument: Path, cache: Path, *commands: str) -> str:
    """Return what gdb prints for some commands; without gdb the test is skipped."""
    found = shutil.which("gdb")
    if found is None:
        pytest.skip("there is no gdb")
    settings = ("set pagination off", "set breakpoint pending on", "set debuginfod enabled off", "set width 0")
    given = [word for command in (*settings, *commands) for word in ("-ex", command)]
    environment = os.environ | {"SLANGPY_RT_CACHE_DIR": str(cache), "SLANGPY_RT_THREADS": "1"}
    ended = subprocess.run(
        [found, "-nx", "-batch", *given, "--args", sys.executable, str(program), str(argument)],
        capture_output=True, text=True, timeout=300, env=environment, check=False,
    )  # fmt: skip
    if "ptrace: Operation not permitted" in ended.stderr:
        pytest.skip("this machine lets no process debug another one")
    return ended.stdout + ended.stderr


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    program, slang = tmp_path / "program.py", tmp_path / "balls.slang"
    program.write_text(PROGRAM, "utf-8")
    slang.write_text(TEXT, "utf-8")
    return program, slang, tmp_path / "cache"


def test_gdb_stops_at_lines_and_prints_variables(files: tuple[Path, Path, Path]) -> None:
    line, body, loop = line_of("if (k == 1)"), line_of("float height"), line_of("for (int k")
    text = gdb(
        *files, f"break balls.slang:{line}", "run", "info locals", "print table[k + 1] + 1", "print ball.at.y",
        "backtrace 2", "echo steps\n", "continue", *["next"] * 5, "echo function\n", "delete",
        f"break balls.slang:{body}", "continue", "info args", "backtrace 2", "next", "print height", "delete",
        "continue",
    )  # fmt: skip
    stop, steps, function = re.split(r"^(?:steps|function)$", text, flags=re.M)
    assert f"balls.slang:{line}\n{line}\t        if (k == 1)\n" in stop, text
    assert "ball = {at = {x = 1, y = 2, z = 3}, radius = 0.5}\n" in stop, text
    assert "table = {1, 2, 4}\n" in stop and "\nsum = 0\n" in stop and "\nk = 0\n" in stop, text
    assert "$1 = 3\n" in stop and "$2 = 2\n" in stop, text
    assert re.search(r"#0 +drop \(thread=\.\.\., at=0\) at .*balls\.slang", stop), text
    shown = [int(k) for k in re.findall(r"^(\d+)\t", steps, re.M)]
    assert shown == [line, line_of("continue;"), loop, line, line_of("sum += table"), loop], text
    call = rf"#0 +lift \(ball=\.\.\., t=20\).*\n#1 +(?:0x\w+ in )?drop .*balls\.slang:{line_of('= lift')}\n"
    assert re.search(call, function), text
    assert "ball = {at = {x = 1, y = 2, z = 3}, radius = 0.5}\nt = 20\n" in function, text
    assert "$3 = 10\n" in function and f"values {EXPECTED}" in function, text


@deep
def test_gdb_with_a_kernel_from_the_disk_cache(files: tuple[Path, Path, Path]) -> None:
    for _ in range(2):
        text = gdb(*files, f"break balls.slang:{line_of('sum += table')}", "run", "print ball", "delete", "continue")
        assert "$1 = {at = {x = 1, y = 2, z = 3}, radius = 0.5}\n" in text, text
        assert f"values {EXPECTED}" in text


def test_values_are_those_without_a_debugger(module: Any) -> None:
    for debug in (False, True):
        with spy.Device("cpu", debug=debug) as device:
            m: Any = spy.Module.load_from_source(device, "test_cpu_debugger", TEXT)
            y, z = np.zeros(4, np.float32), np.zeros(64, np.float32)
            m.drop.dispatch(4, x=X, y=y)
            np.testing.assert_array_equal(y, EXPECTED)
            m.waves.dispatch(64, y=z)
            np.testing.assert_array_equal(z, np.repeat(np.arange(64.0).reshape(2, 32).sum(1), 32))


def test_kernels_for_a_debugger_are_other_entries_of_the_cache(tmp_path: Path) -> None:
    text, kernels = f"{TEXT}// {tmp_path}\n", []
    for debug in (False, True, False, True):
        with spy.Device("cpu", debug=debug) as device:
            m: Any = spy.Module.load_from_source(device, "test_cpu_debugger", text)
            m.drop.dispatch(4, x=X, y=np.zeros(4, np.float32))
            kernels.append({each.key for each in device.cache.entries() if each.kind == "kernel"})
    assert len(kernels[1] - kernels[0]) == 1
    assert kernels[1] == kernels[2] == kernels[3]


def test_printf_and_bounds(module: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(spy.OutOfBoundsError, match=r"argument 'x' of shape \(4,\) was read at \(4,\)"):
        module.talk.dispatch(4, x=X, y=np.zeros(4, np.float32))
        module.device.synchronize()
    assert capfd.readouterr().out == "thread 2\n"


def test_files_for_texts(tmp_path: Path) -> None:
    sources = DebugSources(DiskCache.open(tmp_path / "cache", 1 << 20))
    user = tmp_path / "user.slang"
    user.write_text("int x;", "utf-8")
    assert sources.path(DebugSource(str(user), "int x;")) == str(user)
    copy = Path(sources.path(DebugSource("in memory", "int y;")))
    assert copy.name == "in_memory.slang" and copy.read_text("utf-8") == "int y;"
    assert copy.is_relative_to(tmp_path / "cache")
    assert sources.path(DebugSource("in memory", "int z;")) != str(copy)
    ours = Path(spy.__file__).parents[1] / "shaders" / "printf.slang"
    assert sources.settings.hidden(str(ours)) and not sources.settings.hidden(str(user))


def test_files_without_a_cache() -> None:
    sources = DebugSources(DiskCache.open(None, 0))
    copies = [Path(sources.path(DebugSource("m.slang", text))) for text in ("int y;", "int z;")]
    assert [copy.name for copy in copies] == 2 * ["m.slang"]
    assert [copy.read_text("utf-8") for copy in copies] == ["int y;", "int z;"]
    assert copies[0].parents[1] == copies[1].parents[1]
    del sources
    gc.collect()
    assert not copies[0].parents[1].exists()
