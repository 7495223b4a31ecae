"""spy.matmul of PyTorch's tensors on a CUDA GPU, by tensor cores where it has them: threads, streams and captures."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from _torch_cuda import needs_cuda

import slangpy_rt as spy

pytestmark = needs_cuda


def whole(*shape: int) -> torch.Tensor:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-2, 3, shape, device="cuda").half()


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double()).half()


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_gradients(transposed: tuple[bool, bool]) -> None:
    """PyTorch computes gradients in a thread of its own, in which no CUDA context may be current."""
    ta, tb = transposed
    a, b, seed = (whole(256, 256) for _ in range(3))
    for _ in range(3):
        found = []
        for multiply in (spy.matmul, None):
            x, y = (t.clone().requires_grad_() for t in (a, b))
            if multiply is None:
                out = torch.matmul(x.mT if ta else x, y.mT if tb else y)
            else:
                out = multiply(x, y, transpose_a=ta, transpose_b=tb)
            found.append((out.detach(), *torch.autograd.grad(out, (x, y), seed)))
        for got, want in zip(*found, strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_a_thread_of_its_own() -> None:
    a, b = whole(384, 512), whole(512, 640)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(spy.matmul(a, b)))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], product(a, b), rtol=0, atol=0)


def test_streams() -> None:
    """Operands are written, multiplied and overwritten on each of several streams."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    a, b = ([whole(512, 512) for _ in streams] for _ in range(2))
    outs = [torch.zeros(512, 512, device="cuda", dtype=torch.half) for _ in streams]
    want = [product(x + 1, y) for x, y in zip(a, b, strict=True)]
    torch.cuda.synchronize()
    for _ in range(5):
        for stream, x, y, out in zip(streams, a, b, outs, strict=True):
            with torch.cuda.stream(stream):
                x.add_(1)
                spy.matmul(x, y, out=out)
                x.sub_(1)
    torch.cuda.synchronize()
    for got, expected in zip(outs, want, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_memory_that_is_used_again() -> None:
    """Another operand of another shape at the same address has a description of its own."""
    for turn in range(6):
        rows = 256 if turn % 2 else 512
        a, b = whole(rows, 65536 // rows * 2), whole(65536 // rows * 2, 128)
        torch.testing.assert_close(spy.matmul(a, b), product(a, b), rtol=0, atol=0)
        del a, b


def test_a_capture() -> None:
    """A graph of PyTorch's takes products that were computed before, and ones at addresses of its own memory."""
    a, b = whole(512, 512), whole(512, 512)
    first = spy.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inner = spy.matmul(a, b)
        out = spy.matmul(inner.clamp(-2, 2), b)
    torch.testing.assert_close(first, product(a, b), rtol=0, atol=0)
    for _ in range(3):
        a.copy_(whole(512, 512))
        graph.replay()
        torch.testing.assert_close(inner, product(a, b), rtol=0, atol=0)
        torch.testing.assert_close(out, product(inner.clamp(-2, 2), b), rtol=0, atol=0)
