"""PyTorch's tensors on a CUDA GPU in Slang functions, against PyTorch's own values and gradients."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _torch_cuda import SOURCE, module, needs_cuda, on_gpu, same

import slangpy_rt as spy

__all__ = ["module"]  # the fixture

pytestmark = needs_cuda


def test_tensors_in_tensors_out(module: spy.Module) -> None:
    a = on_gpu(3, 4)
    same(module.mul(a, 2.0), 4 * a)
    same(module.mul(a, a[0]), a * a[0] ** 2)
    same(module.mul(a, torch.tensor(3.0, device="cuda")), 9 * a)
    same(module.mul(a.T, a.T), a.T**3)
    same(module.mul(a[::2, 1:3], 1.0), a[::2, 1:3])
    same(module.mul(torch.ones(1, device="cuda").expand(5), 3.0), torch.full((5,), 9.0, device="cuda"))
    same(module.mul(torch.empty(0, 4, device="cuda"), 1.0), torch.empty(0, 4, device="cuda"))
    for start in range(1, 9):  # not at multiples of what a thread reads at once
        x = on_gpu(1000)[start:]
        same(module.mul(x, x), x**3)
    same(module.unit(a[:, :3]), a[:, :3] / a[:, :3].norm(dim=-1, keepdim=True))
    same(module.halves(a.half(), 2.0), 2 * a.half())
    same(module.cubic(a.double(), 2.0), 2 * a.double() ** 3)
    same(module.along({"slope": a, "offset": 1.0}, 2.0), 2 * a + 1)
    same(module.mul.map((0,), (1,))(a[0], a[1]), a[0][:, None] * a[1] ** 2)
    x, k = on_gpu(10), torch.arange(10, dtype=torch.int32, device="cuda")
    same(module.total(x, k), x + x[0])
    same(module.through(x, k), x)


def test_results_and_what_is_written(module: spy.Module) -> None:
    a, out = on_gpu(1000), torch.zeros(1000, device="cuda")
    assert module.mul(a, 3.0, _result=out) is out
    same(out, 9 * a)
    assert module.mul(a, 2.0, out=out) is out
    module.grow(out, 1.0)
    same(out, 4 * a + 1)
    out.add_(1)
    module.grow(out, a)
    same(out, 5 * a + 2)
    wide = torch.zeros(4, 6, device="cuda")
    module.grow(wide[:, ::2], torch.arange(4.0, device="cuda")[:, None])
    assert wide.sum() == 18 and (wide[:, 1::2] == 0).all()
    np.testing.assert_allclose(module.mul(a, 1.0, _result="numpy"), a.cpu().numpy())
    assert isinstance(module.mul(a, 1.0, _result="tensor"), spy.Tensor)
    y = torch.zeros(100, device="cuda")
    module.twice.dispatch(100, a[:100], y)
    same(y, 2 * a[:100])


def test_beside_the_devices_own_arrays(module: spy.Module) -> None:
    a = on_gpu(1 << 16)
    own = spy.Tensor.from_numpy(module.device, a.cpu().numpy())
    for _ in range(20):
        own = module.slow(own, 50, _result="tensor")
        mixed = module.mul(own, a)
        # torch's stream goes on with what the device's queue wrote, and the other way round.
        expected = torch.from_numpy(own.numpy()).cuda() * a * a
        same(mixed + 0, expected)
        module.mul(mixed, 1.0, _result=own)
        np.testing.assert_allclose(own.numpy(), expected.cpu().numpy(), rtol=1e-6)
        own = spy.Tensor.from_numpy(module.device, a.cpu().numpy())
    host = np.ones(1 << 16, np.float32)
    same(module.mul(a, host), a)
    same(module.mul(a, torch.ones(1 << 16)), a)


def test_streams(module: spy.Module) -> None:
    """Calls run where PyTorch works: no wait is missing, and none is needed."""
    x = torch.zeros(1 << 20, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for turn in range(12):
        s = streams[turn % 3]
        s.wait_stream(streams[(turn - 1) % 3])
        with torch.cuda.stream(s):
            x.add_(1)
            y = module.slow(x, 200)
            x = (y - y + x).mul_(1)
            module.grow(x, 1.0)
            x = x + 0
    torch.cuda.synchronize()
    assert (x == 24).all()
    own = module.device.stream()
    for _ in range(10):
        x.add_(1)
        module.grow.stream(own)(x, 1.0)
    assert (x == 44).all()


def test_a_captured_graph(module: spy.Module) -> None:
    if module.device.debug or module.device.name == "vulkan":
        return  # neither a wait after each launch nor Vulkan's work can be captured
    a, b, out = on_gpu(1000), on_gpu(1000), torch.zeros(1000, device="cuda")
    for _ in range(6):
        module.mul(a, b, _result=out)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(6):
            module.mul(a, b, _result=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        module.mul(a, b, _result=out)
        out.add_(1)
        module.grow(out, b)
    a.fill_(2)
    b.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 22).all()


def test_a_captured_graph_of_calls_bound_and_recorded_before() -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), spy.create_torch_device("cuda") as device:
        module = spy.Module.load_from_source(device, "torch_cuda", SOURCE)
        a, b, out = on_gpu(1000), on_gpu(1000), torch.zeros(1000, device="cuda")
        x, y, z = (spy.Tensor.from_dlpack(device, t) for t in (a, b, out))
        bound = module.mul.bind(x, y, _result=z)
        commands = device.command_list()
        module.grow.append_to(commands, z, y)
        module.mul.append_to(commands, z, y, _result=z)
        for _ in range(6):
            bound()
            commands.submit()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            bound()
            commands.submit()
        a.fill_(2)
        b.fill_(3)
        graph.replay()
        torch.cuda.synchronize()
        assert (out == (2 * 9 + 3) * 9).all()
        a.fill_(1)
        bound()
        commands.submit()
        torch.cuda.synchronize()
        assert (out == (9 + 3) * 9).all()


def test_gradients(module: spy.Module) -> None:
    def both(f: Callable[..., Any], g: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
        torch.manual_seed(0)
        mine = [on_gpu(*s, low=0.5).requires_grad_() for s in shapes]
        theirs = [t.detach().clone().requires_grad_() for t in mine]
        got, expected = f(*mine), g(*theirs)
        same(got.detach(), expected.detach())
        weights = on_gpu(*expected.shape)
        (got * weights).sum().backward()
        (expected * weights).sum().backward()
        for m, t in zip(mine, theirs, strict=True):
            same(m.grad, t.grad, 1e-4)

    for _ in range(6):  # the first launches of a kernel go another way
        both(module.mul, lambda a, b: a * b * b, (1000,), (1000,))
        both(module.mul, lambda a, b: a * b * b, (300, 40), (40,))
        both(module.mul, lambda a, b: a * b * b, (30, 1), (1,))
        both(lambda a, b: module.mul(a.T, b[:, 1:]), lambda a, b: a.T * b[:, 1:] ** 2, (5, 6), (6, 6))
    both(module.unit, lambda v: v / v.norm(dim=-1, keepdim=True), (100, 3))
    both(module.weighted, lambda v: 2 * (v[:, 0] + v[:, 1] * v[:, 2]), (100, 3))
    both(module.scaled.set(scale=3.0), lambda x: 3 * x * x, (50,))
    both(module.mul.map((0,), (1,)), lambda a, b: a[:, None] * b * b, (9,), (300,))
    own = module.device.stream()
    both(module.mul.stream(own), lambda a, b: a * b * b, (1 << 18,), (1 << 18,))
    k = torch.tensor([1, 1, 4], dtype=torch.int32, device="cuda")
    both(lambda x: module.pick(x, k), lambda x: x[k] ** 2, (10,))
    x = on_gpu(3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: module.cubic(t, 2.0), (x,))
    y = on_gpu(7).requires_grad_()
    (module.mul(y, 2.0) + module.mul(y, y) + module.mul(3.0, y)).sum().backward()
    same(y.grad, 4 + 3 * y.detach() ** 2 + 6 * y.detach())


def test_gradients_on_another_stream(module: spy.Module) -> None:
    side = torch.cuda.Stream()
    x = on_gpu(1 << 20).requires_grad_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = (module.slow(x.detach(), 300) * 0).sum() + module.mul(x, x).sum()
        loss.backward()
    torch.cuda.current_stream().wait_stream(side)
    same(x.grad, 3 * x.detach() ** 2, 1e-4)


def test_training(module: spy.Module) -> None:
    torch.manual_seed(0)
    layer = spy.torch_module(module.blend, b=torch.tensor([0.1]), t=torch.tensor([0.2])).cuda()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    x = on_gpu(200)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = ((layer(x) - (0.4 * x + 0.3)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-4 < losses[0]


def test_operators(module: spy.Module) -> None:
    mul = spy.torch_operator(module.mul)

    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(mul(a * 2, b)).sum()

    def run(f: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        a, b = (on_gpu(30).requires_grad_() for _ in range(2))
        f(a, b).backward()
        return [a.grad, b.grad]  # type: ignore[list-item]

    expected = run(lambda a, b: torch.relu(2 * a * b * b).sum())
    for f in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        for got, want in zip(run(f), expected, strict=True):
            same(got, want, 1e-4)
    a, b = (on_gpu(3, 4).requires_grad_() for _ in range(2))
    torch.library.opcheck(mul, (a, b))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model(module: spy.Module) -> None:
    mul = spy.torch_operator(module.mul)
    f = torch.compile(lambda a, b: torch.relu(mul(a * 2, b)) * 3, fullgraph=True)
    a, b = on_gpu(1000), on_gpu(1000)
    same(f(a, b), torch.relu(2 * a * b * b) * 3, 1e-4)


def test_memory_is_flat_and_threads_agree(module: spy.Module) -> None:
    def steps(n: int) -> torch.Tensor:
        x = torch.linspace(0, 1, 5000, device="cuda", requires_grad=True)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(n):
                module.mul(x, 2.0).sum().backward()
            torch.cuda.current_stream().synchronize()
        assert x.grad is not None
        return x.grad

    steps(5)
    gc.collect()
    before = sum(isinstance(o, (torch.Tensor, spy.Tensor)) for o in gc.get_objects())
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(steps(50))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for r in results:
        same(r, torch.full((5000,), 200.0, device="cuda"))
    results.clear()
    gc.collect()
    assert sum(isinstance(o, (torch.Tensor, spy.Tensor)) for o in gc.get_objects()) <= before + 4


def test_what_is_refused(module: spy.Module) -> None:
    x = on_gpu(3).requires_grad_()
    plain = on_gpu(3)
    for call, message in [
        (lambda: module.slow(plain, plain), "'int' was expected"),
        (lambda: module.mul(plain.double(), 1.0), "'float' was expected"),
        (lambda: module.grow(x, 1.0), "needs a derivative"),
        (lambda: module.mul(x, torch.ones(3)), "lie in one place for a gradient, not on cuda:0, cpu"),
        (lambda: module.mul(x, 1.0, _result=plain), "leave it out, or call within torch.no_grad"),
        (lambda: module.mul.append_to(module.device.command_list(), plain, 1.0), "a command list does not take"),
        (lambda: module.halves(plain.bfloat16(), 1), "an array of bfloat16, which goes where functions take"),
        (lambda: module.mul(plain.to_sparse(), 1.0), "does not hold its values"),
        (lambda: module.mul(plain, torch.ones(4, device="cuda")), "do not broadcast|shape"),
        (lambda: module.unit(plain.expand(4, 3)[:, :2]), "3"),
    ]:
        with pytest.raises((spy.BindError, spy.ShapeError), match=message):
            call()
    with spy.Device("cpu") as other:
        f = spy.Module.load_from_source(other, "elsewhere", "float f(float x) { return x; }").f
        with pytest.raises(spy.BindError, match=r"on cuda:0; Device\('cpu'.* does not work there"):
            f(plain)
    same(module.mul(plain, 1.0), plain)
