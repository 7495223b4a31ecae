"""Folders whose names are not UTF-8 or have backslashes, a deleted working directory, and users without a home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import slangpy_rt as spy

ROOT = Path(__file__).parents[2]
NAMES = [b"caf\xe9", b"back\\slash", "caf\xe9 \u4e2d".encode(), b"a\nb", b"a\"b'c", b"%s", b"-x", b"\x01"]


@pytest.fixture(scope="module")
def device() -> spy.Device:
    return spy.Device("cpu")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are UTF-8 or UTF-16 there")
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_folders_of_any_name(
    device: spy.Device, tmp_path: Path, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that import and include others load from the folder by a full path, by a search path and in it."""
    folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))  # noqa: PTH118
    (folder / "sub").mkdir(parents=True)
    (folder / "inner.slang").write_text(
        '#include "sub\\\\deep.h"\nmodule inner; public float g(float x) { return x + D; }'
    )
    (folder / "sub" / "deep.h").write_text("#define D 1\n")
    (folder / "head.h").write_text("#define W 2\n")
    text = 'import inner;\n#include "head.h"\nfloat f(float x) { return g(x) * W; }'
    (folder / "whole.slang").write_text(text)
    module = spy.Module.load_from_file(device, folder / "whole.slang")
    assert module.f(3.0) == 8
    assert any(path == str((folder / "head.h").resolve()) for path, _ in module.info.dependencies)
    (folder / "head.h").write_text("#define W 3\n")
    assert spy.Module.load_from_file(device, folder / "whole.slang").f(3.0) == 12
    with spy.Device("cpu", include_paths=[folder]) as other:
        assert spy.Module.load_from_file(other, "whole.slang").f(3.0) == 12
    monkeypatch.chdir(folder)
    assert spy.Module.load_from_file(device, "whole.slang").f(3.0) == 12
    assert spy.Module.load_from_source(device, f"in_{name.hex()}", text).f(3.0) == 12
    (folder / "wrong.slang").write_text("float f(float x) { return y; }")
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_file(device, "wrong.slang")
    assert "undefined identifier 'y'" in str(caught.value)
    str(caught.value).encode()  # it can be printed


def test_names_that_no_file_has(device: spy.Device) -> None:
    with pytest.raises(spy.BindError, match="which no file can be called"):
        spy.Module.load_from_file(device, "a\ud800.slang")


def run(program: str, *arguments: str, **env: str | None) -> str:
    """What a program prints in a process of its own; variables of None are not set."""
    given = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'codegen'}", **env}
    found = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, env={k: v for k, v in given.items() if v is not None},
    )  # fmt: skip
    assert not found.returncode, found.stderr
    return found.stdout


DELETED = """
import os, sys
os.chdir(sys.argv[1])
if sys.argv[2] == "before": os.rmdir(sys.argv[1])
import slangpy_rt as spy
device = spy.Device("cpu", include_paths=["relative"])
if sys.argv[2] == "after": os.rmdir(sys.argv[1])
print(spy.Module.load_from_source(device, "a", "import slangpy_rt; float f(float x) { return 2 * x; }").f(3.0))
print(spy.Module.load_from_file(device, sys.argv[3]).g(3.0))
for wrong in (
    lambda: spy.Module.load_from_file(device, "none.slang"),
    lambda: spy.Module.load_from_source(device, "b", "import none; float f(float x) { return x; }"),
    lambda: spy.load_image(device, "none.png"),
    lambda: spy.Mesh.load("none.ply"),
):
    try:
        wrong()
    except spy.SlangPyRtError as error:
        print(str(error).splitlines()[0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a working directory cannot be deleted there")
@pytest.mark.parametrize(("when", "where"), [("before", None), ("after", None), ("before", "")])
def test_a_deleted_working_directory(tmp_path: Path, when: str, where: str | None) -> None:
    folder, file = tmp_path / "gone", tmp_path / "g.slang"
    folder.mkdir()
    file.write_text("float g(float x) { return x + 1; }")
    env = {} if where is None else {"SLANGPY_RT_COMPILE_IN": where}
    found = run(DELETED, str(folder), when, str(file), **env)
    assert found.splitlines() == [
        "6.0",
        "4.0",
        "Module.load_from_file: there is no file 'none.slang' in 'the working directory, which was deleted', "
        f"'{'relative' if when == 'before' else folder / 'relative'}'. Give a full path, or add its folder to "
        "include_paths.",
        "Slang could not load module 'b' from b.slang:",
        "load_image: cannot read 'none.png' (No such file or directory); name another file.",
        "Mesh.load: 'none.ply' does not exist; name another file.",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no list of users with homes")
def test_no_home() -> None:
    """As in a container that runs under a number without a user: the cache is off, and everything else works."""
    program = """
import pwd
def none(_): raise KeyError("no such user")
pwd.getpwuid = pwd.getpwnam = none
import slangpy_rt as spy
device = spy.Device("cpu")
print(spy.Module.load_from_source(device, "a", "float f(float x) { return 2 * x; }").f(3.0))
print(device.cache.why_off)
"""
    found = run(program, HOME=None, XDG_CACHE_HOME=None, SLANGPY_RT_CACHE_DIR=None)
    assert found.splitlines() == [
        "6.0",
        "cannot make the cache directory '~/.cache/slangpy_rt' (Could not determine home directory.); set "
        "SLANGPY_RT_CACHE_DIR",
    ]
