"""slang-torch's kernels on PyTorch's streams, in its CUDA graphs, and in groups of a size that suits them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch has no GPU", allow_module_level=True)

import slangpy_rt.slangtorch as slangtorch  # noqa: E402
from slangpy_rt.slangtorch.kernel_code import SUITED  # noqa: E402

N = 1 << 20
TEXT = """
[AutoPyBindCUDA] [CudaKernel] [Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    uint at = (cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim()).x;
    if (at < input.size(0))
        output[at] = input[at] * input[at];
}
[AutoPyBindCUDA] [CudaKernel]
void block(TensorView<int> t) { t[0] = cudaBlockDim().x; }
groupshared float parts[64];
[AutoPyBindCUDA] [CudaKernel]
void last(TensorView<float> input, TensorView<float> output)
{
    parts[cudaThreadIdx().x] = input[cudaThreadIdx().x];
    GroupMemoryBarrierWithGroupSync();
    Ptr<float> there = &parts[0];
    output[cudaThreadIdx().x] = there[63 - cudaThreadIdx().x];
}
"""
LAUNCH = {"blockSize": (256, 1, 1), "gridSize": (N // 256, 1, 1)}


@pytest.fixture
def m(tmp_path: Path) -> Any:
    path = tmp_path / "module.slang"
    path.write_text(TEXT)
    return slangtorch.loadModule(path)


def test_the_current_stream(m: Any) -> None:
    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    m.square(input=x, output=y).launchRaw(**LAUNCH)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    bound = m.square(input=x, output=y)
    for _ in range(50):
        with torch.cuda.stream(stream):
            # Without the stream's order the launch would read what is not there yet.
            torch.cuda._sleep(1_000_000)
            x.fill_(3)
            bound.launchRaw(**LAUNCH)
            z = y.clone()
            x.fill_(0)
        stream.synchronize()
        assert (z == 9).all()


def test_a_captured_graph(m: Any) -> None:
    x, y, z = (torch.ones(N, device="cuda") for _ in range(3))
    dx, dy = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    square = m.square.function(outputs={"output": "input"}, threads=(N,))

    def step() -> None:
        dy.fill_(1)
        dx.zero_()
        m.square(input=x, output=y).launchRaw(**LAUNCH)
        m.square.bwd(input=(x, dx), output=(y, dy)).launchRaw(**LAUNCH)
        z.copy_(square(x))

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for value in (2.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert (y == value**2).all() and (dx == 2 * value).all() and (z == value**2).all()


def test_groups_that_suit_the_kernel(m: Any) -> None:
    t = torch.zeros(1, dtype=torch.int32, device="cuda")
    m.block(t=t).autoLaunch(totalSize=(1000, 1, 1))
    # The kernel has few registers: all sizes keep as many threads running, and the first one is taken.
    assert t.item() == SUITED[0]


def test_host_memory_and_group_memory(m: Any) -> None:
    x, y = torch.arange(64.0), torch.zeros(64)
    # The CPU device runs both. A copy to the GPU would give a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.last(input=x, output=y).launchRaw((64, 1, 1), (1, 1, 1))
    assert torch.equal(y, x.flip(0))
    m.square(input=x, output=y).launchRaw((64, 1, 1), (1, 1, 1))
    assert torch.equal(y, x * x)
