"""Tuned functions on PyTorch's tensors in the memory of a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch

import slangpy_rt as spy

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or not any(d.type == "cuda" and d.available for d in spy.devices()),
    reason="needs CUDA, and a PyTorch that has it",
)

SOURCE = """
extern static const int STEPS = 1;
float slow(float x)
{
    float s = x;
    for (int i = 0; i < STEPS * 2000; ++i)
        s = s * 0.5f + 0.25f;
    return s > 1e9f ? 0 : x + 1;
}
void count(inout float x) { x += 1.0f; }
[Differentiable] float cube(float x) { return x * x * x; }
"""


@pytest.fixture(scope="module")
def module() -> spy.Module:
    return spy.Module.load_from_source(spy.create_torch_device(), "tuned_torch", SOURCE)


def test_results_and_arguments(module: spy.Module) -> None:
    x = torch.rand(5000, device="cuda")
    slow = module.slow.constants({"STEPS": [32, 1]})
    assert torch.equal(slow(x), x + 1)
    assert slow.best(x).STEPS == 1
    count = module.count.constants({"STEPS": [1, 2, 3]})
    y = x.clone()
    count(y)
    assert torch.equal(y, x + 1)
    # Every second element: what lies between them is not the call's.
    z = x.clone()
    count(z[::2])
    assert torch.equal(z[::2], x[::2] + 1) and torch.equal(z[1::2], x[1::2])


def test_on_a_stream_of_torch(module: spy.Module) -> None:
    count = module.count.constants({"STEPS": [4, 5, 6]})
    x = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Work of PyTorch before and after, on the same stream.
        x += 1
        count(x)
        x += 1
    stream.synchronize()
    assert torch.equal(x, torch.full_like(x, 3))


def test_gradients(module: spy.Module) -> None:
    cube = module.cube.constants({"STEPS": [1, 2]})
    x = torch.rand(1000, device="cuda", requires_grad=True)
    for _ in range(2):
        x.grad = None
        cube(x).sum().backward()
        torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_a_capture(module: spy.Module) -> None:
    count = module.count.constants({"STEPS": [7, 8]})
    x = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        # PyTorch warns of a graph without kernels.
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(spy.SlangPyRtError, match="before the capture"), torch.cuda.graph(graph):
            count(x)
    torch.cuda.synchronize()
    count(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        count(x)
    assert x[0].item() == 1
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, 3))
