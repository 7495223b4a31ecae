"""What a driver compiles and does not finish: Ctrl-C and the limit leave it behind, and the device goes on.

The driver is Vulkan's, of which one function is replaced by one that does not return until it is told to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.builds import Builds
from slangpy_rt.core.errors import CompileError, CompileLimitError

ROOT = Path(__file__).resolve().parents[2]
HAS_VULKAN = any(info.type == "vulkan" and info.available for info in spy.devices())
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX has them")

# The texts of two modules, a device whose driver gets stuck on pipelines from ``stick`` on, and what it was given.
PROGRAM = """
import gc, os, signal, sys, threading, time
from functools import partial
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import slangpy_rt as spy

device = spy.Device("vulkan")
quick = spy.Module.load_from_source(device, "quick", "float g(float x) { return 2 * x; }")
assert quick.g([3.0]) == [6]
TEXT = "float f(float x) { return 3 * x; } float h(float x) { return x; }"
slow = spy.Module.load_from_source(device, "slow", TEXT)
pipelines, builds = device.backend._pipelines, device.backend._builds
make, wait, given, waits, free = pipelines._create, builds.wait, [], [], threading.Event()

def create(*args):
    given.append(args)
    free.wait()
    return make(*args)

def count_waits(*args):
    waits.append(args)
    wait(*args)

def interrupt(count):
    until(lambda: len(waits) == count)
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(call, count=1):
    threading.Thread(target=interrupt, args=(len(waits) + count,), daemon=True).start()
    try:
        call()
    except KeyboardInterrupt:
        return True

def until(condition):
    while not condition():
        time.sleep(0.01)

pipelines._create, builds.wait = create, count_waits
"""


def run(program: str, **environment: str) -> tuple[int, str, str]:
    """Run a program after ``PROGRAM``; return its exit status and what it wrote."""
    if not HAS_VULKAN:
        pytest.skip("no Vulkan device")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        capture_output=True, text=True, timeout=120, start_new_session=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}"} | environment,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_an_interrupt_leaves_the_driver_and_a_later_call_takes_what_it_made() -> None:
    program = """
assert interrupted(lambda: slow.f([1.0])) and builds.running
assert quick.g([4.0]) == [8]
pipelines._create = make
assert slow.h([5.0]) == [5] and len(given) == 1
pipelines._create = create
assert interrupted(lambda: slow.f([1.0]))
free.set()
assert slow.f([2.0]) == [6] and len(given) == 1 and not builds.running and not builds._builds
device.close()
print("good")
"""
    assert run(program) == (0, "good\n", "")


def test_the_limit_leaves_the_driver_and_names_the_kernel() -> None:
    program = """
for _ in range(2):
    try:
        slow.f([1.0])
    except spy.CompileError as error:
        print(type(error) is spy.CompileError, str(error).replace(device.info, "X"))
assert quick.g([4.0]) == [8] and len(given) == 1
free.set()
until(lambda: not builds.running)
assert slow.f([2.0]) == [6] and len(given) == 1
"""
    said = (
        "True float f(float x): the driver of X took more than 1 s, which is all that one kernel gets "
        "(SLANGPY_RT_BUILD_SECONDS). Take the function apart, or raise the limit. Nothing stops such a compiler: "
        "it goes on in a thread of this process, and a later call takes what it made.\n"
    )
    assert run(program, SLANGPY_RT_BUILD_SECONDS="1") == (0, said * 2, "")


@pytest.mark.parametrize("how", ["close()", "close in a with", "drop", "exit", "nothing"])
def test_a_device_is_left_while_its_driver_compiles(how: str) -> None:
    program = {
        "close()": """
release = device.backend._release
assert interrupted(lambda: slow.f([1.0]))
device.close()
try:
    quick.g([1.0])
except spy.DeviceError:
    print(release.alive)
free.set()
until(lambda: not release.alive and not builds.running)
""",
        "close in a with": """
with device:
    x = spy.Tensor.from_numpy(device, np.ones(100_000, np.float32))
    quick.g(x)
    assert interrupted(lambda: slow.f(x))
print(device.backend._release.alive)
""",
        "drop": """
assert interrupted(lambda: slow.f([1.0]))
release = device.backend._release
waits.clear()
del device, quick, slow, pipelines
gc.collect()
print(release.alive)
free.set()
until(lambda: gc.collect() < 0 or not release.alive)
""",
        "exit": """
assert interrupted(lambda: slow.f([1.0]))
print(builds.running)
sys.exit(0)
""",
        "nothing": """
assert interrupted(lambda: slow.f([1.0]))
print(builds.running)
""",
    }[how]
    assert run(program) == (0, "True\n", "")


def test_threads_end_with_an_interrupt_and_with_the_device() -> None:
    program = """
calls = [partial(slow.f, [1.0]), partial(slow.h, [1.0])]
assert interrupted(lambda: spy.compile(calls), 2) and len(given) == 2
said = []

def call():
    try:
        slow.f([1.0])
    except spy.DeviceError as error:
        said.append(str(error))

before = len(waits)
threads = [threading.Thread(target=call) for _ in range(3)]
for thread in threads:
    thread.start()
until(lambda: len(waits) > before)
device.close()
for thread in threads:
    thread.join()
print(len({text for text in said if "closed" in text}), len(given))
"""
    assert run(program) == (0, "1 2\n", "")


def test_threads_that_wait_for_one_pipeline_have_one_each() -> None:
    program = """
results = []
backend = device.backend
begin, loaded = backend._begin_load, []
backend._begin_load = lambda *what: loaded.append(what) or begin(*what)
assert interrupted(lambda: slow.f([1.0]))
(binary, info), = loaded
threads = [threading.Thread(target=lambda: results.append(backend.load(binary, info))) for _ in range(4)]
for thread in threads:
    thread.start()
until(lambda: len(given) == 1)
free.set()
for thread in threads:
    thread.join()
print(len({kernel.pipeline for kernel in results}), len(given), builds._builds)
"""
    assert run(program) == (0, "4 4 {}\n", "")


def test_an_import_starts_nothing() -> None:
    program = """
import sys, threading
import slangpy_rt
late = "slangpy_rt.runtime.compile_progress", "slangpy_rt.backends.builds"
names = [name for name in late if name in sys.modules]
print(threading.active_count(), names)
"""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("1 []\n", "")


def test_what_a_build_raises_is_raised_by_each_wait_for_it() -> None:
    builds = Builds("X", 60)

    def refuse() -> None:
        raise CompileError("refused")

    for _ in range(2):
        build = builds.begin("a", refuse)
        builds.wait(build, lambda: None)
        with pytest.raises(CompileError, match="refused"):
            builds.take(build)
    assert not builds._builds
    done: list[bool] = []
    builds.after(lambda: done.append(builds.running))
    assert done == [False]


def test_a_wait_ends_with_what_its_check_raises() -> None:
    builds, free, done = Builds("X", 60), threading.Event(), []
    build = builds.begin("a", free.wait)

    def check() -> None:
        raise CompileLimitError("enough")

    with pytest.raises(CompileLimitError, match="enough"):
        builds.wait(build, check)
    builds.after(lambda: done.append(1))
    builds.after(lambda: done.append(2))
    assert builds.running and not done
    free.set()
    build.ended.wait()
    while len(done) < 2:
        pass
    assert done == [1, 2] and not builds.running
