"""A device on another GPU than PyTorch's current one: what is current stays so, and results are right."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import slangpy_rt as spy

try:
    import cupy
except ImportError:
    cupy = None

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2 or not any(d.type == "cuda" and d.available for d in spy.devices()),
    reason="needs two CUDA GPUs, and a PyTorch that has them",
)

SOURCE = "[Differentiable] float mul(float a, float b) { return a * b; }"


@pytest.fixture(params=[0, 1])
def current(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.cuda.set_device(request.param)
    torch.zeros(1, device="cuda")
    yield request.param
    torch.cuda.set_device(0)
    everybody_works()


def everybody_works() -> None:
    """PyTorch and CuPy write and read memory of every GPU: fresh memory, and what they have kept for themselves."""
    before = torch.cuda.current_device()
    for k in range(torch.cuda.device_count()):
        found = torch.ones(1000, device=f"cuda:{k}")
        found += k
        assert found.tolist() == [1 + k] * 1000 and found.device.index == k
        torch.cuda.synchronize(k)
        if cupy is not None:
            with cupy.cuda.Device(k):
                theirs = cupy.arange(1000, dtype=cupy.float32)
                theirs += k
                assert (theirs.get() == np.arange(1000, dtype=np.float32) + k).all()
    assert torch.cuda.current_device() == before


def test_the_current_gpu_stays_current(current: int) -> None:
    def unchanged() -> None:
        assert torch.cuda.current_device() == current
        found = torch.ones(1, device="cuda")
        # Read, since a write to the wrong GPU is an error only later.
        assert found.device.index == current and found.item() == 1

    devices = [spy.Device("cuda:0"), spy.Device("cuda:1")]
    unchanged()
    for k, device in enumerate(devices):
        mul = spy.Module.load_from_source(device, "there", SOURCE).mul
        x = spy.Tensor.from_numpy(device, np.arange(5000, dtype=np.float32))
        unchanged()
        out = spy.Tensor(device, "float", (5000,))
        for _ in range(6):  # from the fourth on a graph is launched
            mul(x, 2.0, _result=out)
            unchanged()
        np.testing.assert_array_equal(out.numpy(), 2 * np.arange(5000, dtype=np.float32))
        unchanged()
        again = mul.bind(x, 3.0, _result=out)
        again()
        unchanged()
        stream = device.stream()
        mul.stream(stream)(x, 4.0, _result=out)
        event = stream.record()
        event.synchronize()
        unchanged()
        commands = device.command_list()
        mul.append_to(commands, x, 5.0, _result=out)
        commands.submit()
        device.synchronize()
        unchanged()
        np.testing.assert_array_equal(out.numpy(), 5 * np.arange(5000, dtype=np.float32))
        t = torch.arange(3000.0, device=f"cuda:{k}", requires_grad=True)
        for _ in range(6):
            found = mul(t, t)
            found.sum().backward()
            unchanged()
        assert found.device.index == k
        torch.testing.assert_close(found.detach(), t.detach() ** 2)
        torch.testing.assert_close(t.grad, 12 * t.detach())
    for device in devices:
        device.close()
    unchanged()
    everybody_works()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("in_thread", [False, True])
def test_closing_leaves_others_alone(current: int, order: tuple[int, int], in_thread: bool) -> None:
    kept = [torch.arange(100_000.0, device=f"cuda:{k}") for k in (0, 1)]
    theirs = []
    for k in (0, 1) if cupy is not None else ():
        with cupy.cuda.Device(k):
            theirs.append(cupy.arange(100_000, dtype=cupy.float32))

    def run() -> None:
        torch.cuda.set_device(current)
        devices = [spy.Device(f"cuda:{k}") for k in (0, 1)]
        for k in order:
            module = spy.Module.load_from_source(devices[k], "closing", SOURCE)
            x = spy.Tensor.from_numpy(devices[k], np.arange(5000, dtype=np.float32))
            for _ in range(6):
                module.mul(x, 2.0)
                module.mul(kept[k], 2.0)
            assert x.torch().device.index == k
            x.to_numpy()
            devices[k].close()
            assert torch.cuda.current_device() == current
            assert torch.full((10,), 3.0, device="cuda").tolist() == [3.0] * 10
            everybody_works()

    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)

    if in_thread:
        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
    else:
        guarded()
    assert not failed, failed
    for k in (0, 1):
        kept[k] += 1
        assert torch.equal(kept[k].cpu(), torch.arange(100_000.0) + 1)
    for k, array in enumerate(theirs):
        with cupy.cuda.Device(k):
            array += 1
            assert (array.get() == np.arange(100_000, dtype=np.float32) + 1).all()
    everybody_works()


def test_a_device_opened_before_others_use_its_gpu() -> None:
    """In a process of its own, where PyTorch comes to the second GPU while only our device has a context there."""
    program = """
import numpy as np
import slangpy_rt as spy
first, second = spy.Device("cuda:0"), spy.Device("cuda:1")
x = spy.Tensor.from_numpy(second, np.arange(1000, dtype=np.float32))
import torch
a, b = torch.ones(1000, device="cuda:1"), torch.ones(1000, device="cuda:0")
second.close()
a += 1
first.close()
b += 1
for k, t in ((1, a), (0, b)):
    assert t.tolist() == [2.0] * 1000
    torch.cuda.set_device(k)
    assert torch.ones(5, device="cuda").tolist() == [1.0] * 5
torch.cuda.synchronize(0), torch.cuda.synchronize(1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
