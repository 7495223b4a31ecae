"""Kernels of slang-torch that the CPU device refuses run on the GPU, which gets copies of tensors in host memory."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from _slangtorch import ONE, Files, files

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
from slangpy_rt.slangtorch import devices as chosen
from tests.depth import one_device
from tests.lanes_off import without_lanes

__all__ = ["files"]  # the fixture

pytestmark = one_device
TEXT = """
groupshared float parts[64];
[AutoPyBindCUDA] [CudaKernel]
void sums(TensorView<float> a, TensorView<float> output)
{
    uint i = cudaThreadIdx().x;
    parts[i] = a[cudaBlockIdx().x * 64 + i];
    GroupMemoryBarrierWithGroupSync();
    float sum = 0;
    for (uint k = 0; k < 64; ++k)
        sum += parts[k];
    if (i == 0)
        output[cudaBlockIdx().x] = sum;
}
[AutoPyBindCUDA] [CudaKernel]
void plain(TensorView<float> output) { output[cudaThreadIdx().x] = 3; }
[TorchEntryPoint]
TorchTensor<float> host(TorchTensor<float> a)
{
    var output = TorchTensor<float>.alloc(a.size(0) / 64);
    __dispatch_kernel(sums, uint3(output.size(0), 1, 1), uint3(64, 1, 1))(a, output);
    return output;
}
"""
GROUP = (64, 1, 1)


@pytest.fixture(autouse=True)
def _without_llvmlite(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU device has no thread groups."""
    monkeypatch.setattr("slangpy_rt.backends.cpu.backend.llvmlite_identity", str)
    for device in (chosen.default_device(-1), files.device):
        without_lanes(device, monkeypatch)


@pytest.fixture
def gpu(files: Files, monkeypatch: pytest.MonkeyPatch) -> spy.Device:
    """The device as PyTorch's GPU."""
    if files.device.name == "cpu":
        pytest.skip("a device beside the CPU is needed")
    if files.device.name != "cuda":
        kept = chosen.default_device
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(chosen, "default_device", lambda at=None: files.device if at is None else kept(at))
    return files.device


def test_host_memory_on_the_gpu(files: Files, gpu: spy.Device) -> None:
    m = slangtorch.loadModule(files.write("module.slang", TEXT))
    a, output = torch.rand(256), torch.zeros(4)
    kernel = m.sums(a=a, output=output)
    with pytest.warns(RuntimeWarning, match=r"sums: it runs on Device\(.*copied there and back.*GroupMemoryBarrier"):
        kernel.launchRaw(GROUP, (4, 1, 1))
    assert torch.allclose(output, a.view(4, 64).sum(1))
    # It is said once a kernel.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a += 1
        kernel.launchRaw(GROUP, (4, 1, 1))
        assert torch.allclose(output, a.view(4, 64).sum(1))
        b = torch.rand(128)
        m.sums(a=b, output=output).launchTotal(GROUP, (128, 1, 1))
        assert torch.allclose(output[:2], b.view(2, 64).sum(1))
        made: Any = m.sums.function(outputs={"output": lambda _: (4, torch.float32)}, threads=(256,), block=GROUP)(a)
        assert torch.allclose(made, a.view(4, 64).sum(1))
        m.plain(output=output).launchRaw((4, 1, 1), ONE)
    assert output.tolist() == [3, 3, 3, 3]
    with pytest.warns(RuntimeWarning, match="sums: it runs on"):
        made = m.host(a)
    assert made.device.type == "cpu" and torch.allclose(made, a.view(4, 64).sum(1))


def test_not_where_the_device_is_given_or_nothing_is_copied_back(files: Files, gpu: spy.Device) -> None:
    a, output = torch.rand(64), torch.zeros(1)
    cpu = spy.create_torch_device("cpu")
    said = "GroupMemoryBarrierWithGroupSync, which needs thread groups"
    given = slangtorch.loadModule(files.write("module.slang", TEXT), device=cpu)
    with pytest.raises(spy.UnsupportedError, match=said):
        given.sums(a=a, output=output).launchRaw(GROUP, ONE)
    with pytest.raises(spy.UnsupportedError, match=said):
        given.sums(a=a, output=output).append_to(cpu.command_list(), GROUP, ONE)


def test_without_a_gpu(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    m = slangtorch.loadModule(files.write("module.slang", TEXT))
    said = r"sums: .*or run it on a GPU \(device type cuda or vulkan\)\. loadModule has device= for that\."
    for run in (m.sums(a=torch.rand(64), output=torch.zeros(1)).launchRaw, lambda *_: m.precompile()):
        with pytest.raises(spy.UnsupportedError, match=said):
            run(GROUP, ONE)
    # As the message says.
    output = files.on(torch.zeros(1))
    if files.device.name != "cpu":
        files.load(TEXT).sums(a=files.on(torch.ones(64)), output=output).launchRaw(GROUP, ONE)
        assert output.item() == 64
