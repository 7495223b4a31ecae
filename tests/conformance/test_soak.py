"""Memory stays flat: the long runs of benchmarks/soak.py, short; and that they would notice if it did not."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slangpy_rt as spy
from tests.depth import deep

ROOT = Path(__file__).resolve().parents[2]
needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="it reads Linux's /proc")


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("soak")


@deep
@needs_proc
def test_no_kind_of_call_grows(backend_name: str, tmp_path: Path) -> None:
    # A process of its own: what other tests left behind would hide a growth.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    script = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--quick", "--device", backend_name]
    done = subprocess.run([*script, "--out", str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.iterdir()
    facts = json.loads(path.read_text())["facts"]
    assert sum(facts["calls"].values()) > 20_000 and len(facts["growth_bytes"][backend_name]) == len(facts["calls"])


@deep
@needs_proc
def test_new_shapes_stay_flat(
    device: spy.Device, soak: Any, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    calls = 100_000
    if not pytestconfig.getoption("--long"):
        # A function forgets its calls when it has so many: the sooner, the shorter this test.
        monkeypatch.setattr("slangpy_rt.calls.prepared_calls._MAX_CALLS", 200)
        calls = 3_000
    module = spy.Module.load_from_source(device, "test_soak", "float add(float a, float b) { return a + b; }")
    a, sizes = spy.Tensor.zeros(device, calls), iter(range(1, calls + 1))

    def call() -> None:
        view = a[: next(sizes)]
        module.add(view, 1.0, _result=view)

    memory = soak.soak(device, soak.Kind("new shapes", call, calls))
    assert max(memory.growth.values()) <= soak.ALLOWED, memory


LEAKS = """
import sys
import numpy as np
import soak
import slangpy_rt as spy

kept = []
with spy.Device(sys.argv[1]) as device:
    leaks = {
        "device": lambda: kept.append(spy.Tensor.ones(device, 1 << 18)),
        "host": lambda: kept.append(np.ones(1 << 18, np.float32)),
    }
    for whose, leak in leaks.items():
        # 1 MiB each, of which some were in the process's hands before.
        memory = soak.soak(device, soak.Kind(whose, leak, 400))
        assert memory.growth[whose if memory.device else "host"] > soak.ALLOWED, (whose, memory)
"""


@deep
@needs_proc
def test_a_leak_is_noticed(backend_name: str) -> None:
    # A process that has freed much takes what leaks from that.
    paths = [str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", LEAKS, backend_name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
