"""The CPU backend's own ways: parts that all kernels share are compiled once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, one_in

PROGRAM = """
import os
import numpy as np
import slangpy_rt as spy
from slangpy_rt.backends.cpu.compile import find_compiler
device = spy.Device("cpu")
x = np.linspace(-2, 2, 999, dtype=np.float32)
for k in range(6):
    text = f"float3 f(float x) {{ return float3(sin(x), max(x, {k}), floor(x) + {k}); }}"
    module = spy.Module.load_from_source(device, f"prelude_{k}", text)
    expected = np.stack([np.sin(x), np.maximum(x, k), np.floor(x) + k], -1)
    np.testing.assert_allclose(module.f(x), expected, rtol=1e-6, atol=1e-7)
folder = device.backend._prepared._folder
kept = [*folder.iterdir()] if folder else []
cached = os.environ["SLANGPY_RT_CACHE_DIR"]
assert bool(kept) == (not cached and os.path.basename(find_compiler()[0]).startswith("g++")), kept
print(folder or "")
"""


@pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
@pytest.mark.parametrize("compiler", one_in(2, ["zig", "g++"]))
def test_kernels_after_the_prelude_was_compiled(compiler: str) -> None:
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": "", "SLANGPY_RT_CXX": compiler}
    if (importlib.util.find_spec("ziglang") if compiler == "zig" else shutil.which(compiler)) is None:
        pytest.skip(f"{compiler} is not installed")
    if compiler == "zig":
        # It looks for the libraries of another compiler by its command.
        env["PATH"] = ""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    assert not folder or not Path(folder).exists()


# zig by the name of clang, which crashes with an option that other kernels are faster by.
CRASHING = """#!/bin/sh
case "$*" in *-enable-vplan-native-path*)
    echo "clang++: error: clang frontend command failed with exit code 133 (use -v to see invocation)" >&2
    exit 1
esac
exec {zig} c++ -nostdlib++ "$@"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
def test_a_compiler_that_crashes_gets_fewer_options(tmp_path: Path) -> None:
    ziglang = pytest.importorskip("ziglang")
    program = tmp_path / "clang++"
    program.write_text(CRASHING.format(zig=Path(ziglang.__path__[0]) / "zig"))
    program.chmod(0o755)
    code = """
import slangpy_rt as spy
print(spy.Module.load_from_source(spy.Device("cpu"), "m", "float f(float x) { return x + 1; }").f(1.0))
"""
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": "", "SLANGPY_RT_CXX": str(program)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)
    assert (done.stdout, done.stderr) == ("2.0\n", "")


def run_cached(cache: Path) -> list[Path]:
    """Run the program in a process of its own with a cache without kernels, and return what g++ keeps there."""
    for entry in cache.glob("*.bin"):
        entry.unlink()
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": str(cache), "SLANGPY_RT_CXX": "g++"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return sorted(cache.glob("g++*/*"))


@deep
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_processes_share_what_was_compiled_and_do_without_what_is_damaged(tmp_path: Path) -> None:
    kept = run_cached(tmp_path)
    assert [path.suffix for path in kept] == [".h", ".gch", ".o"]
    # A kernel that the damaged file is of no use to is compiled as a whole, and the next one makes it again.
    for path, size in ((kept[2], 3000), (kept[1], 1_000_000)):
        path.write_bytes(path.read_bytes()[:2000])
        assert run_cached(tmp_path) == kept
        assert path.stat().st_size > size
    # A month later, when another compiler's kernel is the first.
    old = tmp_path / kept[0].parent.name / "old.h"
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    kept[0].unlink()
    kept[1].unlink()
    assert run_cached(tmp_path) == kept


LARGE = """
import slangpy_rt as spy
text = "float f(float a) { float q[COUNT]; for (int i = 0; i < COUNT; i += 999) q[i] = a + i; return q[int(a)]; }"
device = spy.Device("cpu")
assert spy.Module.load_from_source(device, "small", text, defines={"COUNT": 100_000}).f(0.0) == 0
try:
    spy.Module.load_from_source(device, "large", text, defines={"COUNT": 4_000_000}).f(0.0)
except spy.UnsupportedError as error:
    assert "local variables of 16,000,0" in str(error), error
else:
    raise SystemExit("it was not refused")
"""


@pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
@pytest.mark.parametrize("compiler", one_in(2, ["g++", "zig"]))
def test_local_variables_beyond_a_threads_stack_are_refused(compiler: str) -> None:
    if not (importlib.util.find_spec("ziglang") if compiler == "zig" else shutil.which(compiler)):
        pytest.skip(f"no {compiler} on this machine")
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": "", "SLANGPY_RT_CXX": compiler}
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr


IMPORTS = """
import IMPORTED;
[Differentiable] float twice(float x) { return 2 * x; }
float total(float x) { return WaveActiveSum(x); }
"""


def test_functions_that_are_faster_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a C++ compiler, functions that trace rays are C++, and gradients of those with networks."""
    with spy.Device("cpu") as device:
        if device.backend.range_target is None:
            pytest.skip("one of the two compilers is missing")
        loaded: list[bool] = []
        load = device.backend.load

        def noted(binary: bytes, info: Any) -> Any:
            kernel = load(binary, info)
            loaded.append(kernel.grouped)  # type: ignore[attr-defined]
            return kernel

        monkeypatch.setattr(device.backend, "load", noted)
        x = np.arange(32, dtype=np.float32)
        argument = spy.Tensor.from_numpy(device, x).with_grads()
        seed = spy.Tensor.empty(device, (32,)).with_grads(grad_in=spy.Tensor.full(device, (32,), 1))
        for imported, grouped in {"rays": [False, False, True], "mlp": [True, False, True]}.items():
            module: Any = spy.Module.load_from_source(
                device, f"test_imports_{imported}", IMPORTS.replace("IMPORTED", imported)
            )
            loaded.clear()
            np.testing.assert_array_equal(module.twice(x), 2 * x)
            module.twice.bwds(argument, _result=seed)
            np.testing.assert_array_equal(module.total(x), x.sum())
            assert loaded == grouped
        np.testing.assert_array_equal(argument.grad.to_numpy(), 4)
