"""A device on another GPU than PyTorch's current one: what is current stays so, and results are right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import slangpy_rt as spy

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


def test_the_current_gpu_stays_current(current: int) -> None:
    def unchanged() -> None:
        assert torch.cuda.current_device() == current
        assert torch.ones(1, device="cuda").device.index == current

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
