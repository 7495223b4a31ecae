"""Compilers that do not finish: Ctrl-C ends them, and so does a limit of time, with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu.compile import find_compiler
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.backends.cuda.nvrtc_process import NvrtcProcess
from slangpy_rt.backends.d3d12.dxc import compile_hlsl
from slangpy_rt.backends.d3d12.dxc_process import DxcProcess
from slangpy_rt.core.jobs import Jobs
from slangpy_rt.core.programs import Programs

ROOT = Path(__file__).resolve().parents[2]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")
ADD = b'extern "C" __global__ void kernel(float *x) { x[threadIdx.x] += 1; }'
# Each level has two types of its own, 2 to the power of 30 in all.
ENDLESS = b"""
struct Zero {};
template <int N, class T> struct A { static const int value = A<N - 1, A<N, T>>::value + A<N - 1, A<-N, T>>::value; };
template <class T> struct A<0, T> { static const int value = 1; };
extern "C" __global__ void kernel(float *x) { x[0] = A<30, Zero>::value; }
"""
# A library of DXC that is never done.
ENDLESS_DXC = (
    'extern "C" long DxcCreateInstance(void *, void *, void **) { for (volatile unsigned k = 0;; k = k + 1) {} }'
)
# A compiler that starts another program and waits for it: both write down their numbers.
STUCK = """#!/bin/sh
echo $$ >>{log}
sh -c 'echo $$ >>{log}; exec sleep 1000'
"""


def has_nvrtc() -> bool:
    try:
        nvrtc_version()
    except spy.UnsupportedError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen within 30 s")


def numbers(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.is_file() else []


@pytest.fixture
def stuck(tmp_path: Path) -> tuple[Path, Path]:
    """A compiler that never ends, and the file with the numbers of its processes."""
    program, log = tmp_path / "g++", tmp_path / "log"
    program.write_text(STUCK.format(log=log))
    program.chmod(0o755)
    return program, log


def interrupted(program: str, begun: Any, **environment: str) -> str:
    """Run a program, interrupt it once something has begun, and return the last line of its standard error."""
    child = subprocess.Popen(
        [sys.executable, "-c", f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{program}"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}", "SLANGPY_RT_CACHE_DIR": ""} | environment,
    )  # fmt: skip
    try:
        wait_for(lambda: begun(child.pid))
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1]
    finally:
        child.kill()
    return said.strip().splitlines()[-1]


def is_busy(found: list[int], pid: int) -> bool:
    """Whether a child of a process has used half a second of a processor; ``found`` gets the children."""
    found[:] = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found.extend(map(int, (thread / "children").read_text().split()))
    times = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11] for child in found]
    return any(int(ticks) > 0.5 * os.sysconf("SC_CLK_TCK") for ticks in times)


@POSIX
@pytest.mark.parametrize("how", ["call", "compile"])
def test_an_interrupt_ends_a_cpp_compiler(stuck: tuple[Path, Path], how: str) -> None:
    program, log = stuck
    calls = {"call": "m.f(1.0); m.f([1.0])", "compile": "spy.compile([partial(m.f, 1.0), partial(m.g, [1.0])])"}
    text = f"""
import slangpy_rt as spy
import slangpy_rt.backends.cpu.backend
from functools import partial
slangpy_rt.backends.cpu.backend.llvmlite_identity = str  # as where llvmlite is missing
text = "float f(float x) {{ return x; }} float g(float x) {{ return 2; }}"
m = spy.Module.load_from_source(spy.Device("cpu"), "m", text)
{calls[how]}
"""
    # The second kernel compiles two files that all kernels share.
    count = 2 if how == "call" else 6
    said = interrupted(text, lambda pid: len(numbers(log)) == count, SLANGPY_RT_CXX=str(program))
    assert said == "KeyboardInterrupt"
    wait_for(lambda: not any(map(runs, numbers(log))))
    assert len(numbers(log)) == count


@POSIX
def test_a_limit_ends_programs(stuck: tuple[Path, Path]) -> None:
    program, log = stuck
    programs = Programs(1)
    with pytest.raises(spy.CompileError) as caught:
        programs.run([str(program)], [str(program)])
    assert str(caught.value) == (
        "g++ took more than 1 s for the code that Slang emitted, which is all that one kernel gets "
        "(SLANGPY_RT_BUILD_SECONDS). Take the function apart, or raise the limit."
    )
    wait_for(lambda: not any(map(runs, numbers(log))))
    # The limit is that of all together.
    with pytest.raises(spy.CompileError, match="took more than 1 s"):
        programs.run([str(program)])


@POSIX
def test_a_limit_names_the_kernel_and_the_device_goes_on(stuck: tuple[Path, Path]) -> None:
    program, _ = stuck
    text = """
import slangpy_rt as spy
import slangpy_rt.backends.cpu.backend
slangpy_rt.backends.cpu.backend.llvmlite_identity = str  # as where llvmlite is missing
device = spy.Device("cpu")
m = spy.Module.load_from_source(device, "m", "float f(float x) { return x; }")
x = spy.Tensor.from_numpy(device, [1.0, 2.0])
try:
    m.f(x)
except spy.CompileError as error:
    print(error, type(error) is spy.CompileError, x.to_numpy().tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}", "SLANGPY_RT_CACHE_DIR": ""}
        | {"SLANGPY_RT_CXX": str(program), "SLANGPY_RT_BUILD_SECONDS": "1"},
    )  # fmt: skip
    assert (done.stderr, done.stdout) == (
        "",
        "float f(float x): g++ took more than 1 s for the code that Slang emitted, which is all that one kernel gets "
        "(SLANGPY_RT_BUILD_SECONDS). Take the function apart, or raise the limit. True [1.0, 2.0]\n",
    )


@POSIX
def test_programs_of_jobs_are_stopped_together(stuck: tuple[Path, Path]) -> None:
    program, log = stuck
    jobs, said = Jobs(), []

    def work() -> None:
        jobs.enter()
        for _ in range(2):  # The second is not started.
            try:
                Programs(100).run([str(program)])
            except spy.CompileError as error:
                said.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(numbers(log)) == 4)
    jobs.stop()
    for thread in threads:
        thread.join(30)
    assert said == ["the compilation was stopped by an interrupt."] * 4
    wait_for(lambda: not any(map(runs, numbers(log))))
    assert len(numbers(log)) == 4


@POSIX
def test_what_programs_write_is_returned() -> None:
    good, bad = Programs(60).run(
        ["sh", "-c", "echo $WORD >&2; echo out"], ["sh", "-c", "exit 3"], environment={"WORD": "x"}
    )
    assert (good.returncode, good.stderr, bad.returncode, bad.stderr) == (0, "x\n", 3, "")


@needs_nvrtc
def test_nvrtc_in_its_process_makes_the_same_binary() -> None:
    process = NvrtcProcess(sys.executable, 60)
    assert process.compile(ADD, "sm_90") == nvrtc_compile(ADD, "sm_90")
    with pytest.raises(spy.CompileError) as caught:
        process.compile(b"nonsense", "sm_90")
    with pytest.raises(spy.CompileError) as here:
        nvrtc_compile(b"nonsense", "sm_90")
    assert str(caught.value) == str(here.value)
    process.stop()


@needs_nvrtc
def test_a_limit_ends_nvrtc_and_the_same_text_is_refused_at_once() -> None:
    process = NvrtcProcess(sys.executable, 1)
    for _ in range(2):
        with pytest.raises(spy.CompileError) as caught:
            process.compile(ENDLESS, "sm_90")
        assert str(caught.value) == (
            "NVRTC could not compile the CUDA text that Slang emitted for sm_90:\n"
            "it took more than 1 s, which is all that one compilation gets (SLANGPY_RT_BUILD_SECONDS). Take the text "
            "apart, or raise the limit."
        )
        assert process.started == 1
    assert process.compile(ADD, "sm_90")
    process.stop()


@needs_nvrtc
@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the processes")
def test_an_interrupt_ends_nvrtc() -> None:
    text = f"""
from slangpy_rt.backends.cuda.nvrtc_process import compile_apart
compile_apart({ENDLESS!r}, "sm_90")
"""
    found: list[int] = []
    assert interrupted(text, partial(is_busy, found)) == "KeyboardInterrupt"
    wait_for(lambda: not any(map(runs, found)))


@needs_nvrtc
def test_nvrtc_that_is_killed_is_an_error_and_the_next_text_compiles() -> None:
    process = NvrtcProcess(sys.executable, 60)
    process.start()
    running = process._process
    assert running is not None
    threading.Timer(1, running.kill).start()
    with pytest.raises(spy.CompileError) as caught:
        process.compile(ENDLESS, "sm_90")
    assert str(caught.value).startswith(
        "NVRTC could not compile the CUDA text that Slang emitted for sm_90:\n"
        "the compiler crashed (SIGKILL), which is a defect of NVRTC; nothing else is harmed. Take parts of the text "
        "away to find the one that NVRTC cannot compile."
    )
    assert process.compile(ADD, "sm_90")
    process.stop()


@needs_nvrtc
def test_nvrtc_may_run_in_this_process() -> None:
    program = """
import sys
from slangpy_rt.backends.cuda.nvrtc_process import begin_nvrtc, compile_apart
begin_nvrtc()
print(len(compile_apart(b'extern "C" __global__ void kernel() {}', "sm_90")) > 0, "subprocess" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=os.environ | {"SLANGPY_RT_COMPILE_IN": "", "PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}"},
    )  # fmt: skip
    assert found.stdout.split()[0] == "True", found.stderr


def test_dxc_in_its_process_makes_the_same_binary(dxc: object) -> None:
    process, text = DxcProcess(sys.executable, 60), b"[numthreads(1, 1, 1)] void main() {}"
    assert process.compile(text, "main") == compile_hlsl(text, "main")
    with pytest.raises(spy.CompileError) as caught:
        process.compile(b"nonsense x;", "main")
    with pytest.raises(spy.CompileError) as here:
        compile_hlsl(b"nonsense x;", "main")
    assert str(caught.value) == str(here.value)
    process.stop()


@pytest.fixture
def endless_dxc(tmp_path: Path) -> str:
    """The path of a library that takes the place of DXC's and is never done."""
    command = find_compiler()
    if command is None:
        pytest.skip("no C++ compiler for the library")
    source, library = tmp_path / "dxc.cpp", tmp_path / "dxc.so"
    source.write_text(ENDLESS_DXC)
    subprocess.run([*command, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return str(library)


@POSIX
def test_a_limit_ends_dxc(endless_dxc: str) -> None:
    text = """
import sys
from slangpy_rt.backends.d3d12.dxc_process import compile_apart
for _ in range(2):
    try:
        compile_apart(b"void main() {}", "main")
    except Exception as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}", "SLANGPY_RT_DXC": endless_dxc}
        | {"SLANGPY_RT_BUILD_SECONDS": "1"},
    )  # fmt: skip
    said = (
        "DXC could not compile the HLSL that Slang emitted:\n"
        "it took more than 1 s, which is all that one compilation gets (SLANGPY_RT_BUILD_SECONDS). Take the text "
        "apart, or raise the limit.\n"
    )
    assert (done.stdout, done.stderr) == (said * 2, "")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the processes")
def test_an_interrupt_ends_dxc(endless_dxc: str) -> None:
    text = """
from slangpy_rt.backends.d3d12.dxc_process import compile_apart
compile_apart(b"void main() {}", "main")
"""
    found: list[int] = []
    assert interrupted(text, partial(is_busy, found), SLANGPY_RT_DXC=endless_dxc) == "KeyboardInterrupt"
    wait_for(lambda: not any(map(runs, found)))
