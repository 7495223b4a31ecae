"""Kernels of slang-torch's tutorial, and the fixture ``files``, which loads texts as modules. No test is here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
from tests.depth import fixture_needs

ONE = (1, 1, 1)

COMPONENTS = """
[AutoPyBindCUDA] [CudaKernel] void put(TensorView<float3> t, TensorView<int4> k)
{
    t[cudaThreadIdx().x].y = 2;
    t[0u].xz += 1;
    t[1u].zy = t[0u].xy;
    t[2u].yz = float2(t[0u].x);
    k[0u].wzyx = k[1u];
    k[1u].wx = 3;
}
"""

SQUARE = """
[AutoPyBindCUDA]
[CUDAKernel]
void square(TensorView<float> input, TensorView<float> output)
{
    // Get the 'global' index of this thread.
    uint3 dispatchIdx = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (dispatchIdx.x >= input.size(0))
        return;
    output[dispatchIdx.x] = input[dispatchIdx.x] * input[dispatchIdx.x];
}
"""

DIFF_SQUARE = """
[AutoPyBindCUDA]
[CUDAKernel]
[Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    uint3 dispatchIdx = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (dispatchIdx.x >= input.size(0))
        return;
    output[dispatchIdx.x] = input[dispatchIdx.x] * input[dispatchIdx.x];
}
"""


class Files:
    """Writes Slang files and loads them for one device."""

    def __init__(self, device: spy.Device, folder: Path) -> None:
        self.device, self.folder = device, folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def load(self, text: str, name: str = "module.slang", **options: Any) -> Any:
        return slangtorch.loadModule(self.write(name, text), device=self.device, **options)

    def on(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor where the device's library of tensors has them."""
        return value.cuda(self.device.index) if self.device.name == "cuda" else value


@pytest.fixture
@fixture_needs("pointers")
def files(device: spy.Device, tmp_path: Path) -> Files:
    """Files of a test in a folder of its own."""
    return Files(device, tmp_path)
