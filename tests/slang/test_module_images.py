"""Intermediate code of the package's modules: sessions that read it compile what sessions that read the text do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slangpy_rt
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.target import Target
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.module_images import ModuleImages
from slangpy_rt.slang.native_session import NativeSession
from slangpy_rt.slang.session import Session
from tests.depth import deep

ROOT = Path(slangpy_rt.__file__).parents[1]
CPP = Target("cpp", "", "range")
MODULE = "import slangpy_rt;\nfloat pick(Tensor<float, 1> t, int i) { return t[i] + N; }\nstatic const float N = 2;\n"
WITH_MACRO = MODULE.replace("= 2", "= SIZE")
KERNEL = """
import slangpy_rt;
import user;
struct _spy_Call { float *a; float *out; uint n; };
export __extern_cpp void run(int64_t begin, int64_t end, _spy_Call *call)
{ for (int64_t i = begin; i < end; i++) call.out[i] = call.a[i] + N; }
"""


class Loads:
    """Notes the names of the modules whose text Slang checked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        load = NativeSession.load

        def noted(session: NativeSession, name: str, path: str, text: str, *shown: str) -> Any:
            self.names.append(name)
            return load(session, name, path, text, *shown)

        monkeypatch.setattr(NativeSession, "load", noted)

    def take(self) -> set[str]:
        taken, self.names = set(self.names), []
        return taken & {"slangpy_rt", "_spy_library", "slangpy"}


def session(library: Library, defines: tuple[tuple[str, str], ...] = (), target: Target = CPP) -> Session:
    return Session(library, target, (shader_directory(),), defines)


def compiled(library: Library, text: str = MODULE, defines: tuple[tuple[str, str], ...] = ()) -> bytes:
    one = session(library, defines)
    one.load_module("user", "user.slang", text)
    code = one.compile(KERNEL, "kernel", "run").code
    one.close()
    return code


def test_a_process_reads_what_another_one_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, loads = compiled(Library()), Loads(monkeypatch)
    cache = DiskCache(tmp_path, 1 << 30)
    assert compiled(Library(None, cache)) == plain
    assert loads.take() == {"slangpy_rt"}
    (entry,) = cache.entries()
    assert (entry.kind, entry.meta["title"]) == ("shaders", "slangpy_rt for cpp")
    # Each module comes after those that it imports, and no other one is there.
    assert [name for name, _ in entry.meta["images"]] == ["_spy_library", "slangpy_rt"]
    assert compiled(Library(None, cache)) == plain
    assert loads.take() == set()


@deep
def test_macros_of_users_change_nothing_in_them(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 30)
    plain = compiled(Library(None, cache))
    # With these the text of ``slangpy_rt`` would not compile.
    with_macros = (("SIZE", "2"), ("Tensor", "7"), ("float4", "int"))
    text = f"#undef Tensor\n#undef float4\n{WITH_MACRO}"
    assert compiled(Library(None, cache), text, with_macros) == compiled(Library(), text, with_macros) == plain


@deep
def test_a_session_with_macros_writes_what_one_without_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path, 1 << 30)
    compiled(Library(None, cache), WITH_MACRO, (("SIZE", "2"), ("float4", "int")))
    loads = Loads(monkeypatch)
    assert compiled(Library(None, cache)) == compiled(Library())
    assert loads.take() == {"slangpy_rt"}  # by the library without a cache


@deep
def test_other_versions_targets_and_damage_are_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path, 1 << 30)
    compiled(Library(None, cache))
    loads = Loads(monkeypatch)
    library = Library(None, cache)
    monkeypatch.setattr(Library, "version", "another build")
    compiled(library)
    assert loads.take() == {"slangpy_rt"}
    monkeypatch.undo()
    loads = Loads(monkeypatch)
    session(Library(None, cache), (), Target("cuda", "", "value")).load_module("user", "user.slang", MODULE)
    assert loads.take() == {"slangpy_rt"}
    for file in tmp_path.glob("*.bin"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 255
        file.write_bytes(data)
    assert compiled(Library(None, cache)) == compiled(Library())
    assert loads.take() == {"slangpy_rt"}


@deep
def test_without_a_cache_the_third_session_reads_what_the_second_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    library, loads = Library(), Loads(monkeypatch)
    found = [(compiled(library), loads.take()) for _ in range(3)]
    assert [names for _, names in found] == [{"slangpy_rt"}, {"slangpy_rt"}, set()]
    assert len({code for code, _ in found}) == 1


@deep
@pytest.mark.parametrize("name", ["slangpy_rt", "slangpy"])
@pytest.mark.parametrize("form", ["cpp", "cuda", "spirv", "hlsl"])
def test_images_hold_what_a_module_imports(name: str, form: str, tmp_path: Path) -> None:
    target = {
        "cpp": CPP,
        "spirv": Target("spirv", "spirv_1_5", "pointer"),
        "hlsl": Target("hlsl", "sm_6_6", "handle"),
    }
    cache = DiskCache(tmp_path, 1 << 30)
    one = session(Library(None, cache), (), target.get(form, Target("cuda", "", "value")))
    one.load_module("user", "user.slang", f"import {name};\nfloat f(float x) {{ return x; }}")
    held = {e.meta["title"].partition(" ")[0]: [n for n, _ in e.meta["images"]] for e in cache.entries()}
    folder = Path(shader_directory())
    for title, names in held.items():
        assert names[-1] == title
        for k, each in enumerate(names):
            text = (folder / f"{each}.slang").read_text()
            imports = set(re.findall(r"^(?:__exported )?import (\w+);", text, re.M))
            # This import stands in an #if for targets without pointers.
            assert imports - ({"_spy_handles"} if form != "hlsl" else set()) <= set(names[:k])


def test_a_cache_that_refuses_keeps_them_in_memory(tmp_path: Path) -> None:
    images = ModuleImages(DiskCache(tmp_path, 10))
    key = images.key("1", "name")
    assert images.wanted(key)
    images.put(key, "name for cpp", (("a", b"12345678901"), ("b", b"")))
    assert images.get(key) == (("a", b"12345678901"), ("b", b""))
    assert list(tmp_path.iterdir()) == []
    images.clear()
    assert images.get(key) == ()


def test_the_compilers_process_loads_no_numpy() -> None:
    program = """
import sys, types
from importlib.machinery import ModuleSpec
package = sys.modules["slangpy_rt"] = types.ModuleType("slangpy_rt")
package.__spec__ = ModuleSpec("slangpy_rt", None, is_package=True)
package.__path__ = package.__spec__.submodule_search_locations = [sys.argv[1]]
sys.path += sys.argv[2:]
import slangpy_rt.slang.worker
print([name for name in ("numpy", "filelock", "platformdirs", "subprocess", "slangpy") if name in sys.modules])
"""
    package = str(Path(slangpy_rt.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", program, package, *filter(None, sys.path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


IN_DELETED = """
import os, sys
import numpy as np

gone, *names = sys.argv[1:]
if gone:
    os.chdir(gone)
    os.rmdir(gone)
import slangpy_rt as spy

device = spy.Device("cpu", include_paths=["relative"])
for name in names:
    text = f"import slangpy_rt; float {name}(Tensor<float, 1> t, int i) {{ return 2 * t[i]; }}"
    module = spy.Module.load_from_source(device, name, text)
    print(module[name](spy.Tensor.from_numpy(device, np.ones(3, np.float32)), np.arange(3)).tolist())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a working directory cannot be deleted")
def test_images_of_a_deleted_working_directory_are_not_kept(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # The program's own process compiles: the compiler's process may have started before.
    given = {"SLANGPY_RT_CACHE_DIR": str(tmp_path / "cache"), "SLANGPY_RT_COMPILE_IN": ""}
    given["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'codegen'}"
    for folder, names in ((gone, ("first", "second")), ("", ("third", "fourth"))):
        command = [sys.executable, "-c", IN_DELETED, str(folder), *names]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **given})
        assert done.stdout.splitlines() == 2 * ["[2.0, 2.0, 2.0]"], done.stderr
