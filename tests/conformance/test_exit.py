"""The end of a program, or of a device: whatever is queued, alive or running then, no crash, no hang and no word.

Each program runs in a process of its own, so that a crash is a failed test and not the end of all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.depth import deep, one_in, sampled

ROOT = Path(__file__).resolve().parents[2]

# A program of these takes a tenth of this time, and "every order of going" a third.
SECONDS = 120

# ``work`` queues some hundred milliseconds of kernels on a GPU of today, and returns before they are done.
PRELUDE = """
import atexit, faulthandler, gc, os, signal, sys, threading, time
# A program that hangs says where, and ends with a status of its own.
faulthandler.dump_traceback_later(SECONDS, exit=True)
# What to call after all that was registered later, by us or by libraries that we load.
LAST = []
atexit.register(lambda: [work() for work in LAST])
# A parent that ignores interrupts, such as nohup, hands that down.
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import slangpy_rt as spy

SLANG = '''
float slow(float x) { for (int k = 0; k < LOOPS; ++k) x = x * 1.5 - floor(x * 1.5); return x; }
void grow(inout float x, float by) { x += by; }
float add(float a, float b) { return a + b; }
[Differentiable] float mul(float a, float b) { return a * b; }
'''

def load(device):
    # What a GPU has no trouble with takes a processor long.
    loops = 100 if device.backend.target.format == "cpp" or "llvmpipe" in device.info else 100_000
    return spy.Module.load_from_source(device, "test_exit", SLANG, defines={"LOOPS": loops})

def recorded(module, x, calls=10):
    commands = module.device.command_list()
    for _ in range(calls):
        module.slow.append_to(commands, x, _result=x)
    return commands

def work(module, x, commands=None, turns=100):
    for _ in range(turns):
        module.slow(x, _result=x)
        module.add(x, 1.0)
    for _ in range(turns // 20 if commands else 0):
        commands.submit()

device = spy.Device(NAME)
module = load(device)
x = spy.Tensor.full(device, 2000, 0.3)
commands = recorded(module, x)
# All kernels are there, so that the rest of the program is nothing but calls.
module.slow(x, _result=x); module.add(x, 1.0); commands.submit(); device.synchronize()
"""

PROGRAMS = {
    "calls in flight": "work(module, x)",
    "lists in flight": "work(module, x, commands)",
    "a list in flight whose owner is gone": "recorded(module, x).submit(); work(module, x, recorded(module, x))",
    "copies and derivatives in flight": """
        a = x.with_grads()
        host = np.ones(2000, np.float32)
        for _ in range(20):
            work(module, x, turns=1)
            x.copy_from(host)
            module.mul.bwds(a, x, _result=spy.diff_pair(None, 1.0))
            module.add(x, host)
            module.grow(x, 1.0)
        """,
    "large copies": """
        host = np.ones(5_000_000, np.float32)
        big = spy.Tensor.from_numpy(device, host)
        assert (module.add(host, host) == 2).all() and (big.to_numpy() == 1).all()
        work(module, x)
        """,
    "a cycle of everything": """
        class Holder: pass
        holder = Holder()
        holder.all = [holder, device, module, module.slow, x, commands]
        work(module, x, commands)
        del holder, device, module, x, commands
        """,
    "two devices": """
        other = spy.Device(NAME)
        twin = load(other)
        y = spy.Tensor.zeros(other, 2000)
        work(module, x, commands); work(twin, y)
        """,
    "results that nobody keeps": "[module.slow(x) for _ in range(300)]",
    "a global that uses the device as it goes": """
        class Last:
            def __init__(self, tensor): self.tensor = tensor
            def __del__(self):
                # Modules may be gone by then, and errors with them.
                try: self.tensor.copy_from(np.zeros(2000, np.float32)); self.tensor.to_numpy()
                except Exception: pass
        last = Last(x)
        work(module, x, commands)
        """,
    "a function at exit that uses the device": """
        @atexit.register
        def save():
            work(module, x, commands, turns=20)
            assert len(x.to_numpy()) == 2000
            big = spy.Tensor.from_numpy(device, np.ones(3_000_000, np.float32))
            assert (module.add(big, 1.0).to_numpy() == 2).all()
        """,
    "a function at exit that is older than the device": """
        del device, module, x, commands
        def save():
            work(module, x, commands, turns=20)
            assert len(x.to_numpy()) == 2000
        atexit.register(save)
        device = spy.Device(NAME)
        module = load(device)
        x = spy.Tensor.full(device, 2000, 0.3)
        commands = recorded(module, x)
        """,
    "dropped with work in flight": """
        work(module, x, commands, turns=400)
        del device, module, x, commands
        gc.collect()
        """,
    "a function at exit that is older than the drivers' libraries": """
        def save():
            try: work(module, x, commands, turns=20); device.synchronize(); x.copy_from(x.to_numpy() + 1)
            except spy.DeviceError as error: assert "closed" in str(error), error
        LAST.append(save)
        work(module, x, commands)
        """,
    "threads that still work": """
        def run():
            own = spy.Tensor.zeros(device, 1000)
            for _ in range(100): module.grow(own, 1.0)
            assert (own.to_numpy() == 100).all()
        for _ in range(4): threading.Thread(target=run).start()
        """,
    "daemon threads that call": """
        def run():
            own = spy.Tensor.zeros(device, 1000)
            while True: own = module.add(own, 1.0)
        for _ in range(4): threading.Thread(target=run, daemon=True).start()
        time.sleep(0.1)
        """,
    "daemon threads that copy": """
        def run(n):
            host = np.ones(n, np.float32)
            own = spy.Tensor.zeros(device, n)
            while True: own.copy_from(host); own.to_numpy(); module.add(host, host)
        for n in (10, 30_000, 300_000, 3_000_000): threading.Thread(target=run, args=(n,), daemon=True).start()
        time.sleep(0.2)
        """,
    "daemon threads that submit lists": """
        def run():
            own = spy.Tensor.zeros(device, 1000)
            kept = recorded(module, own, 3)
            while True: kept.submit(); recorded(module, own, 3).submit(); device.synchronize()
        for _ in range(4): threading.Thread(target=run, daemon=True).start()
        time.sleep(0.1)
        """,
    "daemon threads that compile": """
        import os
        def run():
            while True:
                text = f"float f(float x) {{ return x + {int.from_bytes(os.urandom(3), 'big')}; }}"
                spy.Module.load_from_source(device, "fresh", text).f(x)
        for _ in range(3): threading.Thread(target=run, daemon=True).start()
        time.sleep(0.3)
        """,
    "collections beside calls": """
        def collect():
            for _ in range(60):
                cycle = [spy.Tensor.zeros(device, 500), recorded(module, x, 2)]
                cycle.append(cycle)
                del cycle
                gc.collect()
        thread = threading.Thread(target=collect)
        thread.start()
        y = spy.Tensor.zeros(device, 500)
        while thread.is_alive(): y = module.add(y, 1.0)
        """,
    "an exit inside a thread": """
        def run():
            work(module, x, commands)
            sys.exit(5)
        thread = threading.Thread(target=run)
        thread.start(); thread.join()
        work(module, x, commands)
        """,
    "closed with work in flight": """
        numbers = np.ones(2000, np.float32)
        bound = module.add.bind(x, x, _result=x)
        y = module.add(x, 1.0)
        work(module, x, commands)
        device.close()
        uses = [
            device.synchronize, commands.submit, bound, x.to_numpy, x.clear, device.command_list, y.numpy,
            lambda: x.copy_from(numbers), lambda: module.slow(x), lambda: module.slow(x, _result=x),
            lambda: module.add(numbers, 1.0), lambda: module.grow(x, 1.0), lambda: spy.Tensor.zeros(device, 4),
            lambda: module.slow.append_to(commands, x), lambda: commands.update(0, x, _result=x),
            lambda: module.mul.bwds(x.with_grads(), x, _result=x), lambda: commands.clear(x), lambda: load(device),
        ]
        for k, use in enumerate(uses):
            try: use()
            except spy.DeviceError as error: assert "closed" in str(error), (k, error)
            else: assert k == len(uses) - 1, f"use {k} went through"
        device.close()
        """,
    "every order of going": """
        import itertools
        del device, module, x, commands
        for order in itertools.permutations(["device", "module", "x", "commands"]):
            own = {"device": spy.Device(NAME)}
            own["module"] = load(own["device"])
            own["x"] = spy.Tensor.full(own["device"], 2000, 0.3)
            own["commands"] = recorded(own["module"], own["x"], 3)
            work(own["module"], own["x"], own["commands"], turns=20)
            for name in order:
                del own[name]
                gc.collect()
        """,
}  # fmt: skip

# What threads do while another one closes the device.
BUSY = {
    "calls": "x = module.add(x, 1.0)",
    "NumPy arguments": "module.add(host, 1.0)",
    "large NumPy arguments": "module.add(large, 1.0)",
    "lists": "commands.submit()",
    "lists made and dropped": "commands = device.command_list(); module.grow.append_to(commands, x, 1.0); "
    "commands.submit()",
    "copies": "x.copy_from(host); x.to_numpy()",
    "large copies": "big.copy_from(large); big.to_numpy()",
    "waiting": "module.add(x, 1.0); device.synchronize()",
    "streams": "s = device.stream(); module.grow.stream(s)(x, 1.0); s.record().synchronize(); s.wait(device); "
    "commands.submit(s); s.synchronize()",
    "events": "device.event().record().elapsed(device.event().record()); "
    "e = device.event().record(); module.add(x, 1.0); e.done; e.wait()",
    "arrays": "y = spy.Tensor.zeros(device, 70_000); y.clear(); spy.NDBuffer(device, 'float', 3); y[3:10].to_numpy()",
    "replays": "bound()",
    "derivatives": "module.mul.bwds(x.with_grads(), x, _result=spy.diff_pair(None, 1.0))",
    "compiling": "text = 'float f(float x) { return x + %d; }' % int.from_bytes(os.urandom(3), 'big'); "
    "spy.Module.load_from_source(device, 'fresh', text).f(x)",
    "everything": "module.add(x, 1.0); module.add(host, 1.0); commands.submit(); x.to_numpy(); device.synchronize(); "
    "x.copy_from(host); y = spy.Tensor.zeros(device, 10); y.clear()",
}
CLOSING = """
    host, large = np.ones(2000, np.float32), np.ones(3_000_000, np.float32)
    for turn in range(4):
        device = spy.Device(NAME)
        module = load(device)
        module.add(spy.Tensor.zeros(device, 1), 1.0), module.add(host, 1.0)
        told, start = [], threading.Barrier(9)

        def run():
            x, big = spy.Tensor.zeros(device, 2000), spy.Tensor.zeros(device, 3_000_000)
            commands = device.command_list()
            module.grow.append_to(commands, x, 1.0)
            bound = module.grow.bind(x, 1.0)
            start.wait()
            try:
                while True:
                    BUSY
            except spy.DeviceError as error:
                assert type(error) is spy.DeviceError and "closed" in str(error), repr(error)
                told.append(error)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads: thread.start()
        start.wait()
        time.sleep(0.02 + 0.01 * turn)
        device.close()
        for thread in threads: thread.join()
        assert len(told) == 8
    """


@sampled(24)
@pytest.mark.parametrize("program", one_in(3, sorted(PROGRAMS, key="every order of going".__eq__)))
def test_the_end_is_silent(backend_name: str, program: str) -> None:
    done = run(backend_name, PROGRAMS[program])
    assert (done.returncode, done.stdout) == (0, "") and not done.stderr, done.stderr


@deep
@sampled(3)
@pytest.mark.parametrize("busy", one_in(5, reversed(BUSY)))
def test_threads_are_told_that_their_device_was_closed(backend_name: str, busy: str) -> None:
    done = run(backend_name, CLOSING.replace("BUSY", BUSY[busy]))
    assert done.returncode == 0 and not done.stderr, done.stderr


@deep
def test_a_status_is_kept(backend_name: str) -> None:
    done = run(backend_name, "work(module, x, commands); sys.exit(3)")
    assert done.returncode == 3 and not done.stderr, done.stderr


def test_an_error_is_all_that_is_said(backend_name: str) -> None:
    program = """
        def fail(kept):
            work(module, x, commands)
            raise RuntimeError("the program's own")
        fail(spy.Tensor.zeros(device, 100))
        """
    done = run(backend_name, program)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[0] == "Traceback (most recent call last):"
    # The traceback's frames are indented.
    assert [line for line in lines[1:] if not line.startswith(" ")] == ["RuntimeError: the program's own"]


def test_an_interrupt_is_all_that_is_said(backend_name: str) -> None:
    program = """
        import _thread
        def interrupt():
            time.sleep(0.2)
            _thread.interrupt_main()
        threading.Thread(target=interrupt).start()
        while True:
            work(module, x, commands)
            x.to_numpy()
        """
    done = run(backend_name, program)
    lines = done.stderr.splitlines()
    assert done.returncode != 0 and lines[0] == "Traceback (most recent call last):"
    # An interrupt at a method's first instruction, which spans no column: Python 3.11 draws an empty line of carets.
    assert [line for line in lines[1:] if line and not line.startswith(" ")] == ["KeyboardInterrupt"]


def test_a_crash_would_be_seen() -> None:
    done = run("null", "import ctypes; ctypes.string_at(0)")
    assert done.returncode != 0 and "Segmentation fault" in done.stderr


def run(backend_name: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program on a device to its end."""
    text = f"NAME = {backend_name!r}\nSECONDS = {SECONDS}\n{PRELUDE}\n{textwrap.dedent(program).strip()}\n"
    if backend_name == "null":
        text = textwrap.dedent(program).strip()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-X", "faulthandler", "-c", text]
    # One that hangs where no Python runs any more is ended from here.
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 30, env=environment)
