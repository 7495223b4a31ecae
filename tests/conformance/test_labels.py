"""Labels for profilers, which SLANGPY_RT_LABELS asks for: in a process of its own, with an nvtx that keeps count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.depth import one_device

NVTX = """
said = []
def push_range(text): said.append(text)
def pop_range(): said.append(None)
"""
PROGRAM = """
import sys
import numpy as np, slangpy_rt as spy, nvtx
device = spy.Device(sys.argv[1], debug=sys.argv[1] == "vulkan")
seen = []
if device.name == "vulkan":
    commands = device.backend._commands
    begin, end = commands._labels
    text = device.backend._device.ffi.string
    commands._labels = (
        lambda command, info: (seen.append(text(info.pLabelName).decode()), begin(command, info)),
        lambda command: (seen.append(None), end(command)),
    )
module = spy.Module.load_from_source(device, "labelled", "float add(float a, float b) { return a + b; }")
x = spy.Tensor.ones(device, 100)
title = "float add(float a, float b)"
for _ in range(70):  # more than one submission
    module.add(x, 1.0, _result=x)
bound = module.add.bind(x, x, _result=x)
bound()
module.add.stream(device.stream())(x, x, _result=x)
assert nvtx.said == [title, None] * 72, nvtx.said
recorded = device.command_list()
module.add.append_to(recorded, x, x, _result=x)
recorded.submit()
assert nvtx.said[144:] == ["command list of 1 calls", None], nvtx.said[144:]
assert x.numpy()[0] == 71 * 8
assert seen == ([title, None] * 73 if device.name == "vulkan" else []), seen
if device.name == "vulkan":
    wrong = [m for m in device.backend.messages if "abel" in m]
    assert not wrong, wrong
"""


def run(backend: str, folder: Path, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SLANGPY_RT_LABELS": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", program, backend], capture_output=True, text=True, env=env, timeout=120
    )


@one_device
def test_calls_are_labelled(backend_name: str, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(NVTX)
    done = run(backend_name, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_named(backend_name: str, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text("raise ImportError('none here')")
    program = PROGRAM.replace("spy, nvtx", "spy")
    done = run(backend_name, tmp_path, program)
    assert done.returncode and "UnsupportedError: SLANGPY_RT_LABELS: the nvtx package" in done.stderr, done.stderr
