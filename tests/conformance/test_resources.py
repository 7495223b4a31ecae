"""What a process has of the system stays level: memory mappings, threads and files, whatever is opened and closed.

Each program runs in a process of its own, whose counts nobody else changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.depth import is_deep, one_in, sampled

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell")

PRELUDE = '''
import gc, os, sys, time
from pathlib import Path
import numpy as np
import slangpy_rt as spy

TEXT = "float add(float a, float b) { return a + b + %d; }"
host = np.ones(200_000, np.float32)

def counts():
    gc.collect()
    own = Path("/proc/self")
    files, threads = len(os.listdir(own / "fd")), len(os.listdir(own / "task"))
    return {"mappings": (own / "maps").read_text().count("\\n"), "threads": threads, "files": files}

def level(turn, times):
    """Do something often; the first few times may leave something."""
    for k in range(5):
        turn(k)
    before = counts()
    for k in range(times):
        turn(k)
    # An allocator may have a few mappings more; a leak has one or more each time.
    # slangpy keeps something of each device.
    more = {"mappings": 200 if NAME.startswith("rhi-") else max(10, times // 4), "threads": 0, "files": 0}
    until = time.monotonic() + 10
    while True:
        after = counts()
        grown = {name: after[name] - n for name, n in before.items() if after[name] > n + more[name]}
        if not grown or time.monotonic() > until:
            break
        time.sleep(0.01)  # a thread that closes what was dropped may not be done yet
    assert not grown, (before, after)
'''

PROGRAMS = {
    "devices": """
        def turn(k):
            with spy.Device(NAME) as device:
                module = spy.Module.load_from_source(device, "opened", TEXT % 0)
                assert (module.add(host, host) == 2).all()
                module.add(spy.Tensor.ones(device, 100), 1.0)
                device.stream().record().synchronize()
                device.command_list().submit()
        level(turn, TIMES)
        """,
    "devices that nobody closes": """
        def turn(k):
            device = spy.Device(NAME)
            module = spy.Module.load_from_source(device, "opened", TEXT % 0)
            module.add(host, host)
            del device, module
            gc.collect()
            # They are closed by threads of their own.
            until = time.monotonic() + 10
            while len(os.listdir("/proc/self/task")) > most and time.monotonic() < until:
                time.sleep(0.001)
        most = 1 << 20
        turn(0)
        time.sleep(0.5)
        most = len(os.listdir("/proc/self/task"))
        level(turn, TIMES // 4)
        """,
    "modules that are dropped": """
        device = spy.Device(NAME)
        def turn(k):
            module = spy.Module.load_from_source(device, "dropped", TEXT % (k % 4))
            assert (module.add(host, host) == 2 + k % 4).all()
        level(turn, TIMES)
        """,
    "a module that is edited": """
        import tempfile
        device = spy.Device(NAME)
        path = Path(tempfile.mkdtemp()) / "edited.slang"
        path.write_text(TEXT % 0)
        module = spy.Module.load_from_file(device, path)
        def turn(k):
            path.write_text(TEXT % (k % 4))
            device.reload()
            assert (module.add(host, host) == 2 + k % 4).all()
        level(turn, TIMES)
        """,
}  # fmt: skip


@sampled(6)
@pytest.mark.parametrize("program", one_in(2, PROGRAMS))
def test_nothing_is_left(backend_name: str, program: str, pytestconfig: pytest.Config) -> None:
    times = 100 if (is_deep(pytestconfig) and backend_name == "cpu") or pytestconfig.getoption("--long") else 20
    text = f"NAME, TIMES = {backend_name!r}, {times}\n{PRELUDE}\n{textwrap.dedent(PROGRAMS[program])}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=600, env=environment
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr[-4000:]
