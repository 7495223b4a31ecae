"""Broadcast views, such as PyTorch's gradient of a sum, as arguments of slang-torch's kernels and host functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _slangtorch import DIFF_SQUARE, ONE, Files, files

import slangpy_rt as spy
from tests.depth import one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device

HOST = """
struct Pair { TorchTensor<float> a; TorchTensor<int> b[1]; }
[CudaKernel] void add(TensorView<float> a, TensorView<int> b, TensorView<float> sum)
{
    uint2 at = cudaThreadIdx().xy;
    sum[at] = a[at] + b[at];
}
[CudaKernel] void step(TensorView<float> a) { a[cudaThreadIdx().xy] += 1; }
[TorchEntryPoint] TorchTensor<float> added(Pair pair, float times)
{
    var sum = TorchTensor<float>.alloc(pair.a.size(0), pair.a.size(1));
    __dispatch_kernel(add, uint3(1), uint3(sum.size(0), sum.size(1), 1))(pair.a, pair.b[0], sum);
    return sum;
}
[TorchEntryPoint] TorchTensor<float> stepped(TorchTensor<float> a)
{
    __dispatch_kernel(step, uint3(1), uint3(2, 3, 1))(a);
    return a;
}
[TorchEntryPoint] void step_only(TorchTensor<float> a)
{
    __dispatch_kernel(step, uint3(1), uint3(2, 3, 1))(a);
}
[TorchEntryPoint] TorchTensor<float> same(TorchTensor<float> a) { return a; }
"""


def test_host_functions_read_them(files: Files) -> None:
    m = files.load(HOST)
    a = files.on(torch.tensor([1.0, float("nan"), -0.0])).expand(2, 3)
    b = files.on(torch.tensor([[5], [6]], dtype=torch.int32)).expand(2, 3)
    for _ in range(2):
        found = m.added({"a": a, "b": [b]}, 1.5)
        torch.testing.assert_close(found, a + b, equal_nan=True)
    # A tensor that comes back unchanged is the caller's own.
    assert m.same(a) is a
    assert m.same(a[:, :0]).shape == (2, 0)


def test_host_functions_do_not_write_them(files: Files) -> None:
    m = files.load(HOST)
    row = files.on(torch.arange(3.0))
    with pytest.raises(RuntimeError, match=r"step_only: it writes to a, a broadcast view.*a\.contiguous"):
        m.step_only(row.expand(2, 3))
    assert row.tolist() == [0, 1, 2]
    # Neither the function nor the device has suffered.
    assert m.stepped(row.expand(2, 3).contiguous()).tolist() == [[1, 2, 3]] * 2


def test_host_functions_do_not_write_what_is_converted(files: Files) -> None:
    if files.device.name == "cuda":
        pytest.skip("tensors on a GPU are not converted")
    m = files.load(HOST)
    whole = torch.arange(6).reshape(2, 3)
    with pytest.raises(
        RuntimeError, match=r"step_only: it writes to a, which is torch\.int64.*a\.to\(torch\.float32"
    ):
        m.step_only(whole)
    assert whole.tolist() == [[0, 1, 2], [3, 4, 5]]
    # What is returned is not lost.
    assert m.stepped(whole).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert m.same(whole).dtype is torch.float32
    row = torch.tensor([5, 6, 7]).expand(2, 3)
    assert m.same(row).tolist() == row.tolist()
    torch.testing.assert_close(m.added({"a": whole.half(), "b": (row.char(),)}, 0.0), whole + row.float())


def test_the_gradient_of_a_sum(files: Files) -> None:
    m = files.load(DIFF_SQUARE)
    size = {"blockSize": (4, 1, 1), "gridSize": ONE}

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: torch.Tensor) -> torch.Tensor:
            output = torch.zeros_like(input)
            m.square(input=input, output=output).launchRaw(**size)
            ctx.save_for_backward(input, output)
            return output

        @staticmethod
        def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            input, output = ctx.saved_tensors
            assert grad_output.stride() == (0,)
            input_grad = torch.zeros_like(input)
            m.square.bwd(input=(input, input_grad), output=(output, grad_output)).launchRaw(**size)
            assert (grad_output == 1).all()
            return input_grad

    x = files.on(torch.tensor((3.0, 4.0))).requires_grad_()
    for _ in range(2):
        x.grad = None
        Square.apply(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [6, 8]


def test_gradients_that_the_kernel_adds_to(files: Files) -> None:
    m = files.load(DIFF_SQUARE)
    size = {"blockSize": (4, 1, 1), "gridSize": ONE}
    x, y = files.on(torch.tensor((3.0, 4.0))), files.on(torch.zeros(2))
    one = files.on(torch.ones(1))
    bound = m.square.bwd(input=(x, one.expand(2)), output=(y, torch.ones_like(y)))
    with pytest.raises(RuntimeError, match=r"square\.bwd: it writes to input\.grad, a broadcast view.*contiguous"):
        bound.launchRaw(**size)
    assert one.item() == 1
    # Values are refused as before, and so are tangents, which .fwd writes.
    with pytest.raises(RuntimeError, match="input is a broadcast view"):
        m.square.bwd(input=(one.expand(2), torch.zeros_like(x)), output=(y, torch.ones_like(y)))
    with pytest.raises(RuntimeError, match=r"output\.grad is a broadcast view"):
        m.square.fwd(input=(x, x.clone()), output=(y, one.expand(2)))


def test_a_command_list_has_no_copies(device: spy.Device, files: Files) -> None:
    m = files.load(DIFF_SQUARE)
    x, y = files.on(torch.ones(2)), files.on(torch.zeros(2))
    bound = m.square.bwd(input=(x, torch.zeros_like(x)), output=(y, x[:1].expand(2)))
    with pytest.raises(RuntimeError, match=r"broadcast view|does not work in"):
        bound.append_to(device.command_list(), blockSize=(2, 1, 1), gridSize=ONE)
