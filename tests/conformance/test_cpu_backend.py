"""The CPU backend's own ways: a prelude that is compiled once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import slangpy_rt as spy
from tests.depth import one_in

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
folder = device.backend._prelude._folder
assert (folder is not None) == os.path.basename(find_compiler()[0]).startswith("g++")
print(folder or "")
"""


@pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
@pytest.mark.parametrize("compiler", one_in(2, ["zig", "g++"]))
def test_kernels_after_the_prelude_was_compiled(compiler: str) -> None:
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": "", "SLANGPY_RT_CXX": compiler}
    if compiler == "zig":
        # It looks for the libraries of another compiler by its command.
        env["PATH"] = ""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    assert not folder or not Path(folder).exists()


LARGE = """
import slangpy_rt as spy
text = "float f(float a) { float q[COUNT]; for (int i = 0; i < COUNT; i += 999) q[i] = a + i; return q[int(a)]; }"
device = spy.Device("cpu")
assert spy.Module.load_from_source(device, "small", text, defines={"COUNT": 100_000}).f(0.0) == 0
try:
    spy.Module.load_from_source(device, "large", text, defines={"COUNT": 4_000_000}).f(0.0)
except spy.UnsupportedError as error:
    assert "may not fit a thread's stack" in str(error), error
else:
    raise SystemExit("it was not refused")
"""


@pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
@pytest.mark.parametrize("compiler", one_in(2, ["g++", "zig"]))
def test_local_variables_beyond_a_threads_stack_are_refused(compiler: str) -> None:
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": "", "SLANGPY_RT_CXX": compiler}
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
