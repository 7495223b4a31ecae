"""Devices of slang-rhi beside ours in one process: what each computes, and what none may take from another."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.base import Dispatch
from slangpy_rt.backends.rhi import device as _rhi_device
from slangpy_rt.backends.rhi.backend import RhiBackend
from slangpy_rt.backends.rhi.device import why_missing
from slangpy_rt.backends.rhi.program import Programs
from slangpy_rt.backends.rhi.queue import RhiRecording
from tests.depth import deep

pytestmark = pytest.mark.skipif(why_missing("vulkan") is not None, reason=str(why_missing("vulkan")))

SOURCE = """
[Differentiable] float mul(float a, float b) { return a * b; }
float slow(float x) { for (int k = 0; k < 2000; ++k) x = x * 0.5 + 0.5; return x; }
"""


@pytest.fixture
def pair() -> Iterator[tuple[spy.Module, spy.Module]]:
    """A module on the CPU, and the same by slang-rhi."""
    with spy.Device("cpu") as cpu, spy.Device("rhi-vulkan") as rhi:
        yield (
            spy.Module.load_from_source(cpu, "beside", SOURCE),
            spy.Module.load_from_source(rhi, "beside", SOURCE),
        )


def test_two_devices_in_turns(pair: tuple[spy.Module, spy.Module]) -> None:
    x = np.linspace(-3, 3, 4000, dtype=np.float32)
    here, there = (spy.Tensor.from_numpy(m.device, x) for m in pair)
    for k in range(40):
        # From one to the other by the host, each behind what the other computed.
        there = spy.Tensor.from_numpy(pair[1].device, pair[0].mul(here, np.float32(1.5)).to_numpy())
        here = spy.Tensor.from_numpy(pair[0].device, pair[1].mul(there, np.float32(2 / 3)).to_numpy())
        assert (there.to_numpy()[2000:] > 0).all(), k
    np.testing.assert_allclose(here.to_numpy(), x, rtol=1e-4)


def test_two_devices_from_two_threads(pair: tuple[spy.Module, spy.Module]) -> None:
    x = np.arange(3000, dtype=np.float32)
    wrong: list[str] = []

    def work(module: spy.Module) -> None:
        for k in range(60):
            if not np.array_equal(module.mul(x, float(k)), x * k):
                wrong.append(f"{module.device!r}: {k}")

    threads = [threading.Thread(target=work, args=(m,)) for m in (*pair, *pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_of_another_device_is_refused(pair: tuple[spy.Module, spy.Module]) -> None:
    cpu, rhi = pair
    x = spy.Tensor.ones(cpu.device, 5)
    with pytest.raises(spy.BindError, match=r"is on Device\('cpu'.*the module runs on Device\('rhi-vulkan'"):
        rhi.mul(x, 2.0)
    np.testing.assert_array_equal(rhi.mul(np.ones(5, np.float32), 2.0), np.full(5, 2))


def test_one_is_closed_while_the_other_works() -> None:
    first, second = spy.Device("rhi-vulkan"), spy.Device("rhi-vulkan")
    modules = [spy.Module.load_from_source(d, "beside", SOURCE) for d in (first, second)]
    x = [spy.Tensor.ones(d, 100_000) for d in (first, second)]
    kept = [module.slow(t) for module, t in zip(modules, x, strict=True)]
    first.close()
    with pytest.raises(spy.SlangPyRtError, match="closed"):
        modules[0].mul(1.0, 2.0)
    assert (kept[1].to_numpy() == 1).all() and modules[1].mul(3.0, 2.0) == 6
    second.close()


def test_a_lost_device_says_so_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    device = spy.Device("rhi-vulkan")
    module = spy.Module.load_from_source(device, "lost", SOURCE)
    x = spy.Tensor.from_numpy(device, np.ones(8, np.float32))
    backend = device.backend
    assert isinstance(backend, RhiBackend)

    def refuse(commands: object) -> int:
        raise RuntimeError("it fell off the bus")

    monkeypatch.setattr(backend._submissions, "_send", refuse)
    lost = r"rhi-vulkan: work was refused \(it fell off the bus\)"
    with pytest.raises(spy.DeviceLostError, match=lost):
        module.mul(x, x).to_numpy()
    with pytest.raises(spy.DeviceLostError, match=lost):
        module.mul(x, x)
    with pytest.raises(spy.DeviceLostError):
        device.close()
    with pytest.raises(spy.DeviceError, match="closed"):
        module.mul(x, x)


def test_a_device_that_cannot_reach_arrays_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rhi_device, "why_unfit", lambda kind, entry, features: "has no memory")
    with pytest.raises(spy.UnsupportedError, match=r"^device rhi-vulkan: .+ has no memory\.$"):
        _rhi_device.open_device("rhi-vulkan", "vulkan", 0, False, "pointer")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that interrupt")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_lose_nothing() -> None:
    chance = random.Random(7)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with spy.Device("rhi-vulkan") as device:
            module = spy.Module.load_from_source(device, "interrupted", SOURCE)
            x, y = (spy.Tensor.from_numpy(device, np.ones(8, np.float32)) for _ in range(2))
            commands = device.command_list()
            for _ in range(12):
                module.mul.append_to(commands, x, 1.0, _result=x)
            commands.submit()
            module.mul(y, 1.0, _result=y)
            device.synchronize()
            interrupted = 0
            for k in range(400):
                y.copy_from(np.full(8, k, np.float32))
                for _ in range(5):
                    module.mul(y, 2.0, _result=y)
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 2e-3))
                    end = time.perf_counter() + 5e-3
                    while time.perf_counter() < end:
                        commands.submit()
                        device.event().record()
                        device.synchronize()
                except KeyboardInterrupt:
                    interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                # What was called before is done, and what is called now works.
                np.testing.assert_array_equal(y.to_numpy(), np.full(8, 32 * k, np.float32))
            # Some come inside of __del__, where Python drops them.
            assert interrupted > 300
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_timed_marks_gather_with_the_work_between_them() -> None:
    with spy.Device("rhi-vulkan") as device:
        module = spy.Module.load_from_source(device, "timed", SOURCE)
        x = spy.Tensor.from_numpy(device, np.ones(4, np.float32))
        module.mul(x, x, _result=x)
        device.synchronize()
        queue = device.backend.queue
        first, unsent = queue.mark(timed=True), queue.mark(timed=True)
        for _ in range(3):
            module.mul(x, x, _result=x)
        last = queue.mark(timed=True)
        # Nobody has asked yet: whoever does has it sent.
        last.sync()
        assert first.done and unsent.done and last.done
        assert last.since(first) >= last.since(unsent) > 0


def test_a_barrier_for_all_that_is_before_it() -> None:
    launch = Dispatch(None, (1, 1, 1), b"", ())  # type: ignore[arg-type]
    # 0 and 1 by themselves; 2 waits for 0; 3 too, which is behind the same barrier; 4 waits for 2.
    recording = RhiRecording([launch] * 5, [(), (), (0,), (0,), (2,)])
    assert recording.waits == [True, False, True, False, True]


def test_a_file_named_as_ours_beside_the_module(tmp_path: Path) -> None:
    """slang-rhi compiles by itself, and Slang looks beside a file before it looks in our folder."""
    (tmp_path / "slangpy_rt.slang").write_text("float other(float x) { return x; }")
    (tmp_path / "main.slang").write_text("import slangpy_rt;\nfloat f(Tensor<float, 1> t) { return t[0]; }")
    with spy.Device("rhi-vulkan") as rhi:
        ones = spy.Tensor.full(rhi, 1, 1.0)
        assert spy.Module.load_from_file(rhi, tmp_path / "main.slang").f(ones, _result="numpy") == 1


def test_an_error_of_its_compiler_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise slangpy.SlangCompileError("unknown word")

    slangpy = pytest.importorskip("slangpy")
    with spy.Device("rhi-vulkan") as rhi:
        module = spy.Module.load_from_source(rhi, "refused", SOURCE)
        with monkeypatch.context() as patched:
            patched.setattr(Programs, "_compiled", refused)
            with pytest.raises(spy.CompileError, match=r"slang-rhi could not compile .*\nunknown word"):
                module.mul(np.ones(3, np.float32), 2.0)
        np.testing.assert_array_equal(module.mul(np.ones(3, np.float32), 2.0), [2, 2, 2])


@deep
def test_its_compiler_warns_of_nothing_of_ours(tmp_path: Path) -> None:
    # In a process of its own: what another test compiled would be in the cache.
    program = '''
import numpy as np, slangpy_rt as spy
SOURCE = """
float twice(float x) { return x * 2; }
half second(half2 a, half2x2 b, vector<int8_t, 3> c) { return a.y + b[1].y + half(c.y); }
"""
with spy.Device("rhi-vulkan") as device:
    a = spy.Tensor.ones(device, (3, 4))
    module = spy.Module.load_from_source(device, "warned", SOURCE)
    module.second(np.ones(2, np.float16), [[1, 2], [3, 4]], [1, 2, 3])
    for activation in (None, "relu", module.twice):
        assert (spy.matmul(a, a.view((4, 3)), activation=activation).numpy() >= 4).all()
'''
    environment = os.environ | {"SLANGPY_RT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
