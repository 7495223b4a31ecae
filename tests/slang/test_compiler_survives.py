"""No text ends the interpreter: what the compiler cannot bear is a CompileError, and everything else goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.core import child_process
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.memory import held_memory
from slangpy_rt.core.target import Target
from slangpy_rt.slang import compiler_process
from slangpy_rt.slang.compiler_process import CompilerProcess
from slangpy_rt.slang.remote_session import RemoteSession
from tests.depth import deep, is_deep, random_cases

ROOT = Path(__file__).parents[2]
CPP, SPIRV = Target("cpp", "", "range"), Target("spirv", "spirv_1_5", "pointer")
ADD = "float add(float a, float b) { return a + b; }"
# Slang 2026.12 crashes in reflection of its own module, which it gives for this name; Source never uses it.
FATAL = "core"
STAGES = """
struct P { float a; };
[shader("miss")] void lost(inout P p) { p.a = 1; }
[shader("closesthit")] void hit(inout P p, in BuiltInTriangleIntersectionAttributes at) { p.a = 1; }
[shader("anyhit")] void any(inout P p, in BuiltInTriangleIntersectionAttributes at) { AcceptHitAndEndSearch(); }
[shader("raygeneration")] void generate() { }
[shader("task")] [numthreads(1, 1, 1)] void several(uint i : SV_GroupIndex) { }
[shader("vertex")] float4 vs(float4 p : POSITION) : SV_Position { return p; }
[shader("fragment")] float4 fs(float4 p : SV_Position) : SV_Target { return p + ddx(p); }
[shader("mesh")] [numthreads(3, 1, 1)] [outputtopology("triangle")] void ms(uint i : SV_DispatchThreadID) { }
struct V { float4 p : SV_Position; };
struct C { float e[3] : SV_TessFactor; float i : SV_InsideTessFactor; };
C edges(InputPatch<V, 3> v) { C c; c.e = { 1, 1, 1 }; c.i = v[0].p.x; return c; }
[shader("hull")] [domain("tri")] [partitioning("integer")] [outputtopology("triangle_cw")] [outputcontrolpoints(3)]
[patchconstantfunc("edges")] V hs(InputPatch<V, 3> v, uint i : SV_OutputControlPointID) { return v[i]; }
float four(float x) { return vs(float4(x)).w; }
float g(float x) { return x + 1; }
"""


@pytest.fixture(scope="module")
def compiler() -> CompilerProcess:
    return CompilerProcess(None, sys.executable, 60)


def nested(depth: int) -> dict[str, str]:
    return {
        "brackets": "float f(float x) { return " + "(" * depth + "x" + ")" * depth + "; }",
        "signs": "float f(float x) { return " + "- " * depth + "x; }",
        "terms": "float f(float x) { return x" + " + x" * depth + "; }",
        "else": "float f(float x) { if (x < 0) x = 1; " + "else if (x < 1) x = 2; " * depth + "return x; }",
        "array": "float f(float x) { float a" + "[1]" * depth + "; return x; }",
        "type": "struct A<T> { T x; } float f(float x) { " + "A<" * depth + "float" + ">" * depth + " a; return x; }",
        "structs": "struct A { " * depth + "int x; " + "}" * depth + " float f(float x) { return x; }",
        "if": "#if 1\n" * depth + "#endif\n" * depth + "float f(float x) { return x; }",
        "calls": "float g(float x) { return x; } float f(float x) { return "
        + "g(" * depth
        + "x"
        + ")" * depth
        + "; }",
        "generic": "float f<let N : int>(float x) { return f<N + 1>(x); } float g(float x) { return f<0>(x); }",
        "include": '#include "deep.slang"\n',
        "import": "import deep;\nfloat f(float x) { return x; }",
    }


# The compiler takes 4.6 s for the array.
@pytest.mark.parametrize("name", [pytest.param(n, marks=deep) if n == "array" else n for n in nested(1)])
def test_what_nests_deep_loads_or_is_refused(compiler: CompilerProcess, name: str, tmp_path: Path) -> None:
    text = nested(3000)[name]
    (tmp_path / "deep.slang").write_text(text)
    session = RemoteSession(compiler, CPP)
    try:
        session.load_module("deep", str(tmp_path / "deep.slang"), text)
    except spy.CompileError as error:
        assert "load module 'deep'" in str(error) or "nests too deep" in str(error)
    session = RemoteSession(compiler, CPP)
    assert session.load_module("user", "user.slang", ADD).functions


CHAINS = {
    "if": "float f(float x) {{\n {} x = 2; return x; }}|if (x < 1) ",
    "else if": "float f(float x) {{\n if (x < 0) x = 1; {} return x; }}|else if (x < 1) x = 2; ",
    "else if and braces": "float f(float x) {{\n if (x < 0) {{ }} {} return x; }}|else if (x < 1) {{ x = 2; }}",
    "for": "float f(float x) {{\n {} x = 2; return x; }}|for (; x < 1;) ",
    "while": "float f(float x) {{\n {} x = 2; return x; }}|while (x < 1) ",
    "switch": "float f(float x) {{\n {} x = 2; return x; }}|switch (int(x)) ",
    "condition": "float f(float x) {{\n return {} x; }}|x < 1 ? 1 : ",
    "condition in brackets": "float f(float x) {{\n return max(x, {} x); }}|x < 1 ? 1 : ",
}


@pytest.mark.parametrize("name", CHAINS)
def test_20000_statements_in_one_another_are_refused_at_once(compiler: CompilerProcess, name: str) -> None:
    text, _, part = CHAINS[name].partition("|")
    began = time.monotonic()
    with pytest.raises(spy.CompileError) as caught:
        RemoteSession(compiler, CPP).load_module("chain", "chain.slang", text.format(part.format() * 20_000))
    assert time.monotonic() - began < 10
    count = 20_001 if "else" in name else 20_000
    assert str(caught.value) == (
        "Slang could not load module 'chain' from chain.slang:\n"
        f"from line 2 on the text nests {count} statements or conditions, each without braces in another one; "
        "at most 5000 are compiled. Take parts of it into functions of their own."
    )


@deep
def test_many_statements_after_one_another_load(compiler: CompilerProcess) -> None:
    parts = ["if (x < 1) x = 2;", "for (int i = 0; i < 2; ++i) x += 1;", "if (x < 1) { x = 2; } else { x = 3; }"]
    parts += [
        "x = x < 1 ? 2 : 3;",
        "x = max(x < 1 ? 1 : 2, x < 2 ? 1 : 2), x = x < 3 ? 1 : 2;",
        "do x += 1; while (x < 1);",
    ]
    text = "float f(float x) {\n" + "\n".join(parts * 1000) + "\nreturn x; }"
    assert RemoteSession(compiler, CPP).load_module("many", "many.slang", text).functions


def test_pointers_to_pointers_are_refused(compiler: CompilerProcess) -> None:
    with pytest.raises(spy.CompileError, match="the text nests too deep"):
        RemoteSession(compiler, CPP).load_module(
            "stars", "stars.slang", f"float f(float{'*' * 400} x) {{ return 1; }}"
        )


@deep
def test_what_took_too_long_is_not_asked_again(tmp_path: Path) -> None:
    compiler = CompilerProcess(None, sys.executable, 1)
    (tmp_path / "slow.slang").write_text(f"float g(float x) {{ {'for (; x < 1;) ' * 1500} x = 2; return x; }}")
    text, path = "import slow;\nfloat f(float x) { return g(x); }", str(tmp_path / "user.slang")
    RemoteSession(compiler, CPP).load_module("user", "user.slang", ADD)
    started = compiler.started
    messages = []
    for _ in range(3):
        with pytest.raises(spy.CompileError, match="it took more than 1 s") as caught:
            RemoteSession(compiler, CPP).load_module("user", path, text)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1
    # It is asked once, in the process that ran; opening a session for the next starts another.
    assert compiler.started == started + 1
    # Another text, other options and other files are asked.
    (tmp_path / "slow.slang").write_text("float g(float x) { return x; }")
    assert RemoteSession(compiler, CPP).load_module("user", path, text).functions
    compiler.stop()


@deep
def test_a_crash_is_an_error_that_names_the_module_and_spares_all_others(compiler: CompilerProcess) -> None:
    session = RemoteSession(compiler, CPP)
    session.load_module("user", "user.slang", ADD)
    started = compiler.started
    with pytest.raises(spy.CompileError) as caught:
        RemoteSession(compiler, CPP).load_module(FATAL, "core.slang", ADD)
    assert str(caught.value).startswith(
        "Slang could not load module 'core' from core.slang:\nthe compiler crashed (SIGSEGV), which is a defect of "
        "Slang; nothing else is harmed. Take parts of the text away to find the one that Slang cannot compile."
    )
    # Tried again in a new process, as the first could have been harmed before.
    assert compiler.started == started + 1
    assert [str(sig) for sig in session.functions("user", "add")] == ["float add(float a, float b)"]


def test_the_compilers_end_is_not_noticed(compiler: CompilerProcess) -> None:
    session = RemoteSession(compiler, SPIRV)
    session.load_module("user", "user.slang", ADD)
    for _ in range(2):
        assert compiler._process is not None
        compiler._process.kill()
        assert [str(sig) for sig in session.functions("user", "add")] == ["float add(float a, float b)"]


def test_a_session_that_refused_a_text_takes_the_next(compiler: CompilerProcess) -> None:
    session = RemoteSession(compiler, CPP)
    session.load_module("user", "user.slang", ADD)
    for _ in range(3):
        with pytest.raises(spy.CompileError, match="nothing_of_the_kind"):
            session.load_module("bad", "bad.slang", "import nothing_of_the_kind;\nfloat f() { return 1; }")
        assert session.load_module("bad2", "bad2.slang", "float f() { return 1; }").functions
        session = RemoteSession(compiler, CPP)
        session.load_module("user", "user.slang", ADD)


def test_an_edit_while_the_compiler_was_away_is_refused(compiler: CompilerProcess, tmp_path: Path) -> None:
    helper = tmp_path / "helper.slang"
    helper.write_text("float h() { return 1; }")
    session = RemoteSession(compiler, CPP)
    session.load_module("main", str(tmp_path / "main.slang"), "import helper;\nfloat f() { return h(); }")
    helper.write_text("float h() { return 2; }")
    compiler.stop()
    with pytest.raises(spy.CompileError) as caught:
        session.functions("main", "f")
    assert str(caught.value) == f"module 'main': '{helper}' changed since it was loaded; load the module again."


def test_sessions_beyond_a_number_are_closed_until_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session takes 20 MB in the compiler's process, and each pair of an operator's types has one."""
    monkeypatch.setattr(compiler_process, "_MOST_SESSIONS", 3)
    compiler = CompilerProcess(None, sys.executable, 60)
    sessions = [RemoteSession(compiler, CPP) for _ in range(8)]
    for k, session in enumerate(sessions):
        session.load_module(f"m{k}", f"m{k}.slang", ADD)
    assert [s._number > 0 for s in sessions] == [False] * 5 + [True] * 3
    assert sessions[5].functions("m5", "add")
    assert sessions[0].functions("m0", "add"), "a closed session opens again, with its modules"
    assert [s._number > 0 for s in sessions] == [True] + [False] * 4 + [True, False, True]
    assert compiler.started == 1
    compiler.stop()
    assert sessions[2].functions("m2", "add")


def test_a_process_that_grew_large_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = CompilerProcess(None, sys.executable, 60)
    session = RemoteSession(compiler, CPP)
    session.load_module("m", "m.slang", ADD)
    assert (compiler.started, len(session.functions("m", "add"))) == (1, 1)
    told = child_process.receive
    monkeypatch.setattr(child_process, "receive", lambda s: (*a[:2], True) if isinstance(a := told(s), tuple) else a)
    assert len(session.functions("m", "add")) == 1, "it still answers"
    monkeypatch.undo()
    assert len(session.functions("m", "add")) == 1
    assert compiler.started == 2


def test_a_process_that_grows_large_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What opens a session again is answered by one process, whichever of its requests is one too many."""
    compiler = CompilerProcess(None, sys.executable, 60)
    session = RemoteSession(compiler, CPP)
    for name in ("m", "n", "o"):
        session.load_module(name, f"{name}.slang", ADD)
    told, counted, large = child_process.receive, 0, [0]

    def receive(stream: Any) -> Any:
        nonlocal counted
        answer = told(stream)
        if not isinstance(answer, tuple):
            return answer
        counted += 1
        return *answer[:2], not large[0] or counted == large[0]

    monkeypatch.setattr(child_process, "receive", receive)
    # Opening takes four requests, and the question is the fifth; at last each of them is one too many.
    for number in (1, 2, 3, 4, 5, 0):
        compiler.stop()
        counted, before, large[0] = 0, compiler.started, number
        for name in ("m", "o"):
            assert len(session.functions(name, "add")) == 1
        assert compiler.started == before + 2
        session.close()
        assert len(session.functions("n", "add")) == 1
    fresh = RemoteSession(compiler, SPIRV)
    fresh.load_module("m", "m.slang", ADD)
    fresh.load_module("n", "n.slang", ADD)
    assert len(fresh.functions("m", "add")) == 1


def test_memory_that_a_process_holds() -> None:
    before = held_memory()
    data = b"x" * (1 << 26)
    assert sys.platform == "win32" or held_memory() - before > len(data) // 2


@deep
def test_eight_threads_load_at_once(compiler: CompilerProcess) -> None:
    found: list[object] = []

    def work(number: int) -> None:
        for _ in range(3):
            session = RemoteSession(compiler, SPIRV)
            name, text = FATAL if number == 3 else f"m{number}", ADD.replace("add", f"add{number}")
            try:
                found.append(session.load_module(name, f"{name}.slang", text).functions[0].name)
            except spy.CompileError as error:
                found.append("crashed" in str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(found) == {True: 3} | {f"add{number}": 3 for number in range(8) if number != 3}


def test_shaders_of_stages_load_everywhere_and_are_not_called() -> None:
    for name in ("cpu", "null"):
        module = spy.Module.load_from_source(spy.Device(name), "stages", STAGES)
        assert [f.name for f in module.info.functions] == ["edges", "four", "g"]
        for shader, stage in module.info.stages:
            with pytest.raises(spy.BindError) as caught:
                module[shader]
            assert str(caught.value) == (
                f"module 'stages': '{shader}' is {'an' if stage == 'anyhit' else 'a'} {stage} shader, and a device "
                "of slangpy_rt has no such stage. "
                f'Take [shader("{stage}")] away to call it as a function.'
            )
            assert not hasattr(module, shader)
        assert len(module.info.stages) == 9
    cpu = spy.Module.load_from_source(spy.Device("cpu"), "stages", STAGES)
    assert (cpu.g(1.0), cpu.four(3.0)) == (2, 3)


def test_a_struct_that_is_only_declared_loads() -> None:
    text = "interface I { float get(); }\nextern struct V : I;\nfloat f(float x) { return x + 1; }\n"
    device = spy.Device("cpu")
    assert spy.Module.load_from_source(device, "open", text).f(1.0) == 2
    with pytest.raises(spy.SlangPyRtError):
        spy.Module.load_from_source(device, "open", f"{text}float g(float x) {{ V v; return v.get(); }}").g(1.0)


def child(program: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *args], capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, "SLANGPY_RT_CACHE_DIR": "", "PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}", **environment},
    )  # fmt: skip


START = f"""
import os, signal, sys, threading, time
import slangpy_rt as spy
from slangpy_rt.slang.sessions import compiler_process
device = spy.Device("null")
def load(text={ADD!r}):
    return spy.Module.load_from_source(device, "user", text).info.functions[0].name
"""


def test_the_compiler_may_run_in_this_process() -> None:
    found = child(f"{START}print(load(), compiler_process())", SLANGPY_RT_COMPILE_IN="")
    assert (found.stdout, found.stderr) == ("add None\n", "")


def test_a_compiler_that_does_not_start_is_named(tmp_path: Path) -> None:
    none = tmp_path / "python3"
    none.write_text("#!/bin/sh\necho no python here >&2\nexit 3\n")
    none.chmod(0o755)
    found = child(
        f"{START}\ntry: load()\nexcept spy.SlangPyRtError as error: print(error)", SLANGPY_RT_COMPILE_IN=str(none)
    )
    assert (found.stdout, found.stderr) == (
        f"the compiler's process does not start: {none}: exit status 3\nno python here\n"
        "SLANGPY_RT_COMPILE_IN names the Python that runs it, without it the one that runs this.\n",
        "",
    )


def test_an_interpreter_that_cannot_be_run(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Permission denied")):
        with pytest.raises(UnsupportedError) as caught:
            CompilerProcess(None, str(path), 5).start()
        assert str(caught.value) == (
            f"the compiler's process does not start: {path}: {why}\n"
            "SLANGPY_RT_COMPILE_IN names the Python that runs it, without it the one that runs this."
        )


def test_a_program_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"print('started')\n{START}\nprint(load())\n")
    found = child(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert (found.stdout, found.stderr) == ("started\nadd\n", "")


def test_an_interrupt_leaves_nothing_behind() -> None:
    found = child(f"""{START}
signal.signal(signal.SIGINT, signal.default_int_handler)
load()
for wait in (0.0, 0.001, 0.01, 0.05, 0.2):
    try:
        threading.Timer(wait, os.kill, (os.getpid(), signal.SIGINT)).start()
        for number in range(100000):
            load("float add() {{ return %d; }}" % number + "/**/" * 1000)
    except KeyboardInterrupt:
        pass
    assert load() == "add"
print("well")
""")
    assert (found.stdout, found.stderr) == ("well\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_process_has_a_compiler_of_its_own() -> None:
    found = child(f"""{START}
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
load()
with compiler_process().lock:  # as if another thread waited for an answer
    pid = os.fork()
    if pid == 0:
        device = spy.Device("null")
        print(load(), compiler_process().started, flush=True)
        sys.exit()
os.waitpid(pid, 0)
print(load("float other() {{ return 1; }}"), compiler_process().started)
""")
    assert (found.stdout, found.stderr) == ("add 3\nother 1\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the processes")
@pytest.mark.parametrize("how", ["exit", "kill"])
def test_the_compilers_process_ends_with_its_parent(how: str) -> None:
    end = "os.kill(os.getpid(), signal.SIGKILL)" if how == "kill" else ""
    found = child(f"{START}\nload()\nprint(compiler_process()._process.pid, flush=True)\n{end}")
    pid = int(found.stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes():
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the compiler's process outlived the one that started it")


@deep
def test_a_text_that_takes_too_long_is_refused() -> None:
    bomb = "#define A0 x + x\n" + "".join(f"#define A{i + 1} A{i} + A{i}\n" for i in range(30))
    found = child(
        f"""{START}
try: load({bomb!r} + "float f(float x) {{ return A30; }}")
except spy.CompileError as error: print(error)
print(load())
""",
        SLANGPY_RT_COMPILE_SECONDS="2",
    )
    assert "it took more than 2 s, which is all that one compilation gets" in found.stdout or "memory" in found.stdout
    assert found.stdout.endswith("\nadd\n") and found.stderr == ""


def test_a_kernel_that_takes_too_long_is_named() -> None:
    endless = "float f(float x) { [ForceUnroll] for (int i = 0; i < 4000; ++i) x = sin(x) * x; return x; }"
    found = child(
        f"""{START}
module = spy.Module.load_from_source(spy.Device("cpu"), "m", {endless!r} + "float g(float x) {{ return x; }}")
for _ in range(2):
    try: module.f([1.0])
    except spy.CompileError as error: print(type(error) is spy.CompileError, error)
print(module.g([1.0]))
""",
        SLANGPY_RT_COMPILE_SECONDS="1",
    )
    said = re.sub("kernel_[0-9a-f]+", "K", found.stdout)
    refused = (
        "True float f(float x): Slang could not compile K:\n"
        "it took more than 1 s, which is all that one compilation gets (SLANGPY_RT_COMPILE_SECONDS). Take the text "
        "apart, or raise the limit.\n"
    )
    assert (said, found.stderr) == (refused * 2 + "[1.]\n", "")


@random_cases
def test_mutated_modules(pytestconfig: pytest.Config) -> None:
    deeper = is_deep(pytestconfig)
    count, each = (2000, 250) if pytestconfig.getoption("--long") else (30, 30) if deeper else (8, 8)
    for first in range(0, count, each):
        found = subprocess.run(
            [sys.executable, "-m", "tests.slang._fuzz_child", str(first), str(first + each)],
            capture_output=True, text=True, timeout=3600, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}"},
        )  # fmt: skip
        lines = found.stdout.splitlines()
        assert found.returncode == 0, f"module {len(lines) + first} ended its process:\n{found.stderr}"
        assert len(lines) == each and any("loaded" in line for line in lines)


def test_a_session_that_was_closed_is_not_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of the number that it had before named the session that was being opened."""
    monkeypatch.setattr("slangpy_rt.slang.compiler_process._MOST_SESSIONS", 1)
    with spy.Device("cpu") as device:
        m: Any = spy.Module.load_from_source(
            device, "closed_again", "float f(float x) { return x + 1; } float g(float x) { return x * 2; }"
        )
        session = m._scope.source.session()
        session.close()
        assert session.functions("closed_again", "g")
        assert m.f(1.0) == 2
