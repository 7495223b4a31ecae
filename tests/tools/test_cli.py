"""The command line: what it prints, what it leaves behind, how it ends. No device is needed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import BindError
from slangpy_rt.slang.corrections.swizzled_stores import SWIZZLED_STORES
from slangpy_rt.slang.corrections.verdicts import State, Verdict
from slangpy_rt.slang.library import Library
from slangpy_rt.tools import cli, machine

KERNEL = {"kind": "kernel", "title": "float add(float a, float b)", "device": "cpu", "text": "// kernel\n"}
ALIKE = ("ab" + "0" * 62, "ab" + "1" * 62)
OTHER = "c" * 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    """A cache with three entries, which the command line uses."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("slangpy_rt.core.disk_cache.CONFIG", replace(CONFIG, cache_dir=str(folder)))
    cache = DiskCache.open(folder, 1 << 20)
    for key in ALIKE:
        cache.put(key, KERNEL, b"binary")
    cache.put(OTHER, {"kind": "module", "title": "example", "info": {}}, b"")
    return cache


def test_without_a_command_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: slangpy_rt") and err == ""
    assert all(name in out for name in ("info", "cache", "explain", "stubs", "demo"))
    assert cli.main(["cache"]) == 0
    assert "verify" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"slangpy_rt {importlib.metadata.version('slangpy_rt')}\n"


def test_list_shows_every_entry(cache: DiskCache, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["key", "kind", "device", "size", "age", "title"]
    assert sorted(row.split()[0] for row in rows) == sorted(key[:12] for key in (*ALIKE, OTHER))
    assert sum(row.endswith("float add(float a, float b)") and " cpu " in row for row in rows) == 2


def test_what_a_terminal_would_obey_is_escaped(cache: DiskCache, capsys: pytest.CaptureFixture[str]) -> None:
    """An imported bundle may bring any text."""
    text = "a\x1b[2J\x07\x9b31m\u202eb\nc\r\ud800"
    cache.put(OTHER, {"kind": text, "device": text, "title": text, "text": text}, b"")
    assert cli.main(["cache", "list"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1 + len((*ALIKE, OTHER))
    assert all(c.isprintable() or c == "\n" for c in out)
    assert "a\\x1b[2J\\x07\\x9b31m\\u202eb c \\ud800" in out


def test_show_takes_an_entry_apart(cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shown"
    assert cli.main(["cache", "show", "ab0", "--out", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["kernel.slang", "kernel.so", "meta.json"]
    assert capsys.readouterr().out.splitlines() == [str(out / n) for n in ("kernel.slang", "kernel.so", "meta.json")]
    assert (out / "kernel.slang").read_text() == KERNEL["text"]
    assert (out / "kernel.so").read_bytes() == b"binary"
    meta = json.loads((out / "meta.json").read_text())
    assert meta["key"] == ALIKE[0] and meta["title"] == KERNEL["title"]


def test_show_names_the_directory_after_the_key(
    cache: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["cache", "show", OTHER]) == 0
    assert [p.name for p in (tmp_path / "slangpy_rt_cccccccccccc").iterdir()] == ["meta.json"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("ab", "cache: 2 keys begin with 'ab'; give more of it.\n"),
        ("f", "cache: no entry has a key that begins with 'f'; `cache list` shows them.\n"),
    ],
)
def test_unknown_and_ambiguous_keys_exit_with_2(
    cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, message: str
) -> None:
    for command in (["show", key], ["export", str(tmp_path / "bundle"), key]):
        assert cli.main(["cache", *command]) == 2
        assert capsys.readouterr() == ("", message)
    assert not (tmp_path / "bundle").exists()


def test_export_clear_import(cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some, everything = tmp_path / "some", tmp_path / "all"
    assert cli.main(["cache", "export", str(some), "ab0"]) == 0
    assert capsys.readouterr().out == f"wrote 1 entry to {some}\n"
    assert cli.main(["cache", "export", str(everything)]) == 0
    folder = cache.folder("other-1.2")
    assert folder is not None
    (folder / "file").write_bytes(bytes(2048))
    assert cli.main(["cache", "info"]) == 0
    assert "beside it  2.0 KiB that other-1.2 keeps\n" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert not folder.exists()
    assert f"removed 3 entries and what other-1.2 kept from {cache.directory}\n" in capsys.readouterr().out
    assert cli.main(["cache", "import", str(some)]) == 0
    assert [entry.key for entry in cache.entries()] == [ALIKE[0]]
    assert cli.main(["cache", "import", str(everything)]) == 0
    assert len(cache.entries()) == 3


def test_verify_names_damaged_entries(cache: DiskCache, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == "3 whole, 0 damaged\n"
    assert cache.directory is not None
    file = cache.directory / f"{OTHER}.bin"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert cli.main(["cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert OTHER in out and out.endswith("2 whole, 1 damaged\n")


def test_a_cache_that_is_off_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("slangpy_rt.core.disk_cache.CONFIG", replace(CONFIG, cache_dir=""))
    assert cli.main(["cache", "list"]) == 1
    assert capsys.readouterr() == ("", "cache: the disk cache is turned off.\n")
    assert cli.main(["cache", "info"]) == 0
    assert capsys.readouterr().out.split(maxsplit=1) == ["off", "the disk cache is turned off\n"]


def test_info_survives_everything_missing(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any) -> Any:
        raise OSError("it is broken")

    for name in ("compiler_version", "cxx", "nvrtc", "open_cache", "device_rows"):
        monkeypatch.setattr(machine, name, broken)
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert out.count("OSError: it is broken") >= 4
    monkeypatch.setattr(spy, "devices", broken)
    assert cli.main(["info"]) == 0
    assert "devices\n  OSError: it is broken\n" in capsys.readouterr().out


def test_info_tells_of_each_kind_of_device(cache: DiskCache, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"slangpy_rt {spy.__version__}, ")
    for info in spy.devices():
        line = next(line for line in out.splitlines() if line.startswith(f"  {info.type} "))
        assert line.split()[1] == ("yes" if info.available else "no")
        assert info.available or str(info.reason) in line
    assert f"directory  {cache.directory}" in out and "entries    3" in out


def test_argument_descriptions() -> None:
    array = cli._value("float[3, 4]")
    assert array.shape == (3, 4) and array.dtype == np.float32
    assert cli._value("int3[5]").shape == (5, 3)
    assert cli._value("half").dtype == np.float16 and cli._value("half").shape == ()
    assert cli._value("float2x3").shape == (2, 3)
    assert (cli._value("3"), cli._value("3.5"), cli._value("true")) == (3, 3.5, True)
    assert type(cli._value("3")) is int
    assert cli._value("grid[4,4]") == spy.grid((4, 4)) and cli._value("call_id") == spy.call_id()
    for text in ("float[", "float[4.5]", "nothing[3]", ""):
        with pytest.raises(BindError, match="--args"):
            cli._value(text)


def test_explain_on_the_null_device(cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "example.slang"
    file.write_text(
        "import slangpy_rt;\n"
        "float add(float a, float b) { return a + b; }\n"
        "float at(Tensor<float, 2> t, int2 p) { return t[p]; }\n"
        "void count(int i, RWTensor<Atomic<uint>, 1> t) { t[i] += 1; }\n"
    )
    explain = ["explain", str(file), "--device", "null"]
    assert cli.main([*explain, "add", "--args", "float[8,3]", "2.5"]) == 0
    out = capsys.readouterr().out
    assert (
        out.startswith("float add(float a, float b)\n") and "call shape (8, 3)" in out and "struct _spy_Call" in out
    )
    assert cli.main([*explain, "add"]) == 0
    assert "call shape (1024,)" in capsys.readouterr().out
    assert cli.main([*explain, "at"]) == 0
    assert "(4, 4)" in capsys.readouterr().out
    assert cli.main([*explain, "count"]) == 0
    assert "RWTensor<Atomic<uint>, 1>" in capsys.readouterr().out
    assert cli.main([*explain, "sub"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "has no function or type 'sub'" in err and "Traceback" not in err
    assert cli.main(["explain", str(tmp_path / "none.slang"), "f", "--device", "null"]) == 1
    assert "there is no file" in capsys.readouterr().err


def test_names_of_members_are_names_of_functions(
    cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands find functions by name, so that they do not warn of what only attributes hide."""
    file = tmp_path / "hidden.slang"
    file.write_text("float info(float x) { return x; }\nfloat device(float x) { return x; }\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cli.main(["explain", str(file), "info", "--device", "null"]) == 0
        assert capsys.readouterr().out.startswith("float info(float x)\n")
        assert cli.main(["stubs", str(file), "-o", "-"]) == 0
        assert "device" in capsys.readouterr().out


def test_stubs_lie_beside_the_file(cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, stub = tmp_path / "my_tool.slang", tmp_path / "my_tool.pyi"
    file.write_text("float add(float a, float b) { return a + b; }\n")
    assert cli.main(["stubs", str(file)]) == 0
    assert capsys.readouterr() == (f"{stub}\n", "")
    first = stub.read_text()
    assert "class MyToolModule(" in first and "    add: " in first
    # What it wrote itself it writes again.
    file.write_text("float sub(float a, float b) { return a - b; }\n")
    assert cli.main(["stubs", str(file)]) == 0
    assert stub.read_text() == first.replace("add", "sub")
    capsys.readouterr()
    assert cli.main(["stubs", str(file), "-o", "-"]) == 0
    assert capsys.readouterr() == (stub.read_text(), "")
    other = tmp_path / "other.pyi"
    assert cli.main(["stubs", str(file), "-o", str(other)]) == 0
    assert capsys.readouterr().out == f"{other}\n" and other.read_text() == stub.read_text()
    dashed = file.rename(tmp_path / "my-tool.2.slang")
    stub.unlink()
    assert cli.main(["stubs", str(dashed)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'my_tool_2.pyi'}\n"


def test_stubs_leave_alone_what_is_not_theirs(
    cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, stub, program = (tmp_path / f"tool{suffix}" for suffix in (".slang", ".pyi", ".py"))
    file.write_text("float one() { return 1; }\n")
    stub.write_text("x: int\n")
    assert cli.main(["stubs", str(file)]) == 1
    assert capsys.readouterr() == (
        "",
        f"stubs: '{stub}' was not written by this command and is left alone; name another file with -o.\n",
    )
    assert stub.read_text() == "x: int\n"
    stub.unlink()
    program.write_text("")
    assert cli.main(["stubs", str(file)]) == 1
    assert capsys.readouterr() == (
        "",
        f"stubs: to type checkers '{stub}' would take the place of '{program}'; name another file with -o.\n",
    )
    assert not stub.exists()
    assert cli.main(["stubs", str(file), "-o", str(tmp_path / "none" / "tool.pyi")]) == 1
    assert capsys.readouterr().err.startswith("stubs: cannot write '")


def test_stubs_find_imports_and_report_errors(
    cache: DiskCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "base.slang").write_text("public float two() { return 2; }\n")
    file = tmp_path / "top.slang"
    file.write_text("import base;\nfloat four() { return two() * 2; }\n")
    assert cli.main(["stubs", str(file), "-o", "-"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "base" in err and "Traceback" not in err
    assert cli.main(["stubs", str(file), "-I", str(tmp_path), "-I", str(tmp_path / "parts"), "-o", "-"]) == 0
    out, err = capsys.readouterr()
    assert "    four: " in out and err == ""
    file.write_text("float broken( { return 1; }\n")
    # A stub goes beside its file, so the file itself is not looked for elsewhere.
    assert cli.main(["stubs", str(tmp_path / "base.slang"), "-I", str(tmp_path / "parts")]) == 1
    assert cli.main(["stubs", "base.slang", "-I", str(tmp_path / "parts")]) == 1
    assert capsys.readouterr().err.count("there is no file") == 2
    for bad in (file, tmp_path / "none.slang"):
        assert cli.main(["stubs", str(bad)]) == 1
        out, err = capsys.readouterr()
        assert out == "" and bad.name in err and "Traceback" not in err
    assert not list(tmp_path.glob("*.pyi"))


def test_what_it_does_not_understand_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["nonsense"], ["stubs"], ["demo", "--size", "7"], ["demo", "--device", "abacus"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
        assert stop.value.code == 2
    assert "7" in capsys.readouterr().err


def test_the_demo_names_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("run", "pictures"):
        monkeypatch.delitem(sys.modules, f"slangpy_rt.demo.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr() == ("", "demo: the package PIL is missing; `pip install 'slangpy_rt[demo]'`.\n")


def test_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "open_cache", interrupted)
    assert cli.main(["cache", "info"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes are POSIX's")
def test_interrupt_and_closed_pipe_from_outside(tmp_path: Path) -> None:
    # It says that it has begun, then waits in a command: the signal can only arrive inside main.
    code = (
        "import signal, sys, time; from slangpy_rt.tools import cli\n"
        # A parent that ignores interrupts, such as nohup, hands that down.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "cli.open_cache = lambda: (print('begun', file=sys.stderr, flush=True), time.sleep(60))\n"
        "sys.exit(cli.main(['cache', 'info']))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SLANGPY_RT_CACHE_DIR": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=env)
    assert child.stderr is not None and child.stderr.readline() == "begun\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[1] == "interrupted\n" and child.returncode == 130

    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        command = [sys.executable, "-m", "slangpy_rt", "cache", "info"]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=env, timeout=60)
        assert done.stderr == b"" and done.returncode == 141


def test_editor_adds_our_folder_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / ".vscode" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"editor.rulers": [118]}')
    for _ in range(2):
        assert cli.main(["editor", str(tmp_path)]) == 0
    settings = json.loads(file.read_text())
    (folder,) = settings.pop("slang.additionalSearchPaths")
    assert settings == {"editor.rulers": [118]} and (Path(folder) / "slangpy_rt.slang").is_file()
    file.write_text("{} // mine")
    capsys.readouterr()
    assert cli.main(["editor", str(tmp_path)]) == 1
    assert "is not plain JSON" in capsys.readouterr().err and file.read_text() == "{} // mine"


def test_doctor_ends_with_0_if_a_device_works(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spy, "devices", lambda: [spy.DeviceInfo("cpu", False, "it is away")])
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "no      it is away" in out and out.endswith(
        "No device works. The shortest way to one: pip install llvmlite\n"
    )
    monkeypatch.setattr(spy, "devices", lambda: [spy.DeviceInfo("cpu", True, None)])
    assert cli.main(["doctor"]) == 0
    assert "works   " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("states", "said", "status"),
    [
        (("needed", "needed"), "needed (cpp, cuda)", 0),
        (("needed", "obsolete"), "needed (cpp); obsolete (cuda)", 1),
        (("does not match any more", "not tried"), "does not match any more (cpp); not tried (cuda)", 1),
        (("needed", "not tried"), "needed (cpp); not tried (cuda)", 0),
    ],
)
def test_doctor_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: tuple[State, State],
    said: str,
    status: int,
) -> None:
    found = [Verdict(SWIZZLED_STORES, *each) for each in zip(("cpp", "cuda"), states, strict=True)]
    monkeypatch.setattr("slangpy_rt.tools.doctor.compiler_verdicts", lambda library: found)
    assert cli.main(["doctor", "--compiler"]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Slang {Library(CONFIG.slang_lib).build_tag}" and lines[-1].split(maxsplit=2)[2] == said


def test_explain_makes_examples_of_structs_with_whole_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "whole.slang"
    file.write_text(
        "import slangpy_rt;\nstruct S { Tensor<float, 2> t; float k; }\nstruct Two { S s; int n; }\n"
        "float f(Two two, float x) { return two.s.t[0, 0] * two.s.k * x; }"
    )
    assert cli.main(["explain", str(file), "f", "--device", "cpu"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("two.")]
    assert [row[0] for row in rows] == ["two.s.t", "two.s.k", "two.n"]
    assert rows[0][3:] == ["()", "of", "whole", "(4,", "4)", "tensor", "in"]
