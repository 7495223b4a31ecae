"""What derivatives cost: elementwise, of a number that all elements share, of a row that all rows share.

Backward passes bound by memory are given in GB/s of what has to move: 28 bytes an element of the product (three
reads, two gradients read and written; torch makes new gradients instead and moves 20). A shared number or row is
compared with the forward pass of the same product, which moves 12 bytes an element where the backward pass needs 8.
Waits are counted; gradients accumulate.

The network has four layers of 64 x 64 with biases, ReLU between them; a step is the mean squared error of a batch,
its gradient and Adam. It takes 6 x 64 x 64 x 4 floating-point operations a sample, the floor given beside it by
matrix products of torch's of as many operations. All numbers are 32-bit floats; torch's products also with TF32. On
GPUs the step is also measured with operands of half and of bfloat16: ours keeps parameters and sums in float, torch's
network, inputs and optimizer have the narrow type throughout.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, on_host, whole
from _cuda_floor import CudaFloor
from _peers import open_slangpy

import slangpy_rt as spy

SOURCE = "[Differentiable] float product(float a, float b) { return a * b; }\n"
NETWORK = """
import mlp;
[Differentiable]
float loss(Network<64, 64, 64, 3, ReLU, Identity, OPERAND> network, no_diff float x[64], no_diff float target[64])
{
    return l2Loss(network.run(x), target);
}
"""
_COLUMNS = 64

Sampler = Callable[[], float]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("gradients", __doc__ or "")
    for device, info in bench.devices.items():
        host = on_host(device, info)
        size = 2**22 if host and device != "cpu" else 2**24
        if bench.quick:
            size //= 4
        _products(bench, device, size, host)
        bench.save()
        batch = 2**14 if bench.quick or (host and device != "cpu") else 2**18
        for operand in ("float",) if host else ("float", "half", "bfloat16"):
            _training(bench, device, batch, operand)
            bench.save()
    return bench.finish()


def _products(bench: Bench, device: str, size: int, host: bool) -> None:
    """Three kinds of broadcast of one product."""
    calls = 2 if host else 20
    large = size if host else 2**26
    makers: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], tuple[Callable[[], Any], Callable[[], Any]]]] = {
        OURS: lambda a, b: _ours(device, a, b)
    }
    if device != "cpu":
        makers["slangpy"] = lambda a, b: _slangpy(device, a, b)
    if device != "vulkan":
        makers["torch"] = lambda a, b: _torch(device, a, b)
    cases = {
        f"elementwise, 2^{large.bit_length() - 1}": ((large,), (large,)),
        f"one number for 2^{size.bit_length() - 1}": ((1,), (size,)),
        f"one row of {_COLUMNS} for 2^{size.bit_length() - 1}": ((_COLUMNS,), (size // _COLUMNS, _COLUMNS)),
    }
    for case, (a, b) in cases.items():
        bulk = case.startswith("elementwise")
        samplers: dict[str, Sampler] = {}
        for who, make in makers.items():
            try:
                call, sync = make(a, b)
                call()
                sync()
            except Exception as error:  # a peer may raise whatever it likes
                bench.miss(device, who, f"{case}: {' '.join(str(error).split())[:200]}")
                continue
            n = calls if who == OURS or bulk else 2
            samplers[who] = _rate(28 * large, whole(call, sync, n)) if bulk else whole(call, sync, n, 1e3)
        if bulk and device == "cuda":
            floor = CudaFloor()
            samplers["device copy"] = _rate(8 * size, whole(floor.device_copy(4 * size), floor.sync, calls))
        elif not bulk:
            forward, sync = _ours(device, a, b, forward=True)
            samplers["slangpy_rt, forward"] = whole(forward, sync, calls, 1e3)
        bench.compare(device, f"backward, {case}", "GB/s" if bulk else "ms", samplers, 5)


def _ours(
    device: str, a: tuple[int, ...], b: tuple[int, ...], forward: bool = False
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    opened = spy.Device(device)
    module = spy.Module.load_from_source(opened, "bench", SOURCE)
    ta, tb = (_filled(opened, shape) for shape in (a, b))
    out = spy.Tensor.empty(opened, b)
    if forward:
        return (lambda: module.product(ta, tb, _result=out)), opened.synchronize
    result = out.with_grads(grad_in=_filled(opened, b))
    ta = ta.with_grads()
    tb = tb.with_grads() if a == b else tb
    module.product.bwds(ta, tb, _result=result)
    assert ta.grad is not None and result.grad_in is not None
    _check(ta.grad.to_numpy(), tb.to_numpy(), result.grad_in.to_numpy(), a)
    return (lambda: module.product.bwds(ta, tb, _result=result)), opened.synchronize


def _filled(device: spy.Device, shape: tuple[int, ...]) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.random.default_rng(0).random(shape, np.float32))


def _slangpy(device: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    sp, opened, module = open_slangpy(device, 'import "slangpy";\n' + SOURCE)
    rng = np.random.default_rng
    ta, tb, g = (sp.Tensor.from_numpy(opened, rng(0).random(s, np.float32)) for s in (a, b, b))
    ta = ta.with_grads(zero=True)
    tb = tb.with_grads(zero=True) if a == b else tb
    result = sp.Tensor.zeros(opened, b, "float").with_grads(grad_in=g, zero=False)
    module.product.bwds(ta, tb, result)
    # 2^24 atomic additions to one float lose 2 percent of the sum.
    _check(ta.grad_out.to_numpy(), tb.to_numpy(), g.to_numpy(), a, 0.05)
    return (lambda: module.product.bwds(ta, tb, result)), opened.wait


def _torch(device: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Autograd's own part: the graph is made once, and its gradients are new tensors each time."""
    torch: Any = importlib.import_module("torch")
    rng = np.random.default_rng
    ta, tb, g = (torch.from_numpy(rng(0).random(s, np.float32)).to(device) for s in (a, b, b))
    wanted = [ta.requires_grad_(), tb.requires_grad_()] if a == b else [ta.requires_grad_()]
    y = ta * tb
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    return (lambda: torch.autograd.grad(y, wanted, g, retain_graph=True)), sync


def _training(bench: Bench, device: str, batch: int, operand: str) -> None:
    """Steps that train a network whose products have operands of that type."""
    rng = np.random.default_rng(0)
    x, target = (rng.standard_normal((batch, 64), np.float32) for _ in range(2))
    weights = rng.standard_normal((4, 65, 64), np.float32) * np.float32(np.sqrt(2 / 64))
    weights[:, 64] = 0
    makers: dict[str, Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]] = {
        OURS: lambda: _our_training(device, x, target, weights, operand)
    }
    if device != "vulkan":
        makers["torch, eager"] = lambda: _torch_training(device, x, target, weights, operand)
        makers["torch, compiled"] = lambda: _torch_training(device, x, target, weights, operand, compiled=True)
    if device == "cuda" and operand == "float":
        makers["torch, eager, TF32"] = lambda: _torch_training(device, x, target, weights, operand, tf32=True)
        makers["torch, compiled, TF32"] = lambda: _torch_training(device, x, target, weights, operand, True, True)
    if device == "cuda":
        makers["floor: matrix products"] = lambda: _matrix_products(batch, operand)
    if device != "cpu" and operand == "float":
        # Loops over IDiffTensor: not compiled after 200 s on lavapipe, and the process ended in its call on an H200.
        bench.miss(device, "slangpy", "training: it has no library for networks")
    samplers: dict[str, Sampler] = {}
    for who, make in makers.items():
        try:
            call, sync = make()
            call()
            sync()
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, who, f"training: {' '.join(str(error).split())[:200]}")
            continue
        samplers[who] = whole(call, sync, 1 if device == "cpu" else 10, 1e3)
    kind = "" if operand == "float" else f"{operand}, "
    bench.compare(device, f"training step, {kind}2^{batch.bit_length() - 1}", "ms", samplers, 3)


def _our_training(
    device: str, x: Any, target: Any, weights: Any, operand: str
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    opened = spy.Device(device)
    module = spy.Module.load_from_source(opened, "network", NETWORK, defines={"OPERAND": operand})
    mlp: Any = spy.Module.load_from_file(opened, "mlp.slang")
    batch = len(x)
    network = spy.Tensor.from_numpy(opened, weights.reshape(-1)).with_grads()
    tx, tt = (spy.Tensor.from_numpy(opened, a, "float[64]") for a in (x, target))
    share = spy.Tensor.full(opened, (1,), 1 / batch).broadcast_to((batch,))
    result = spy.Tensor.empty(opened, (batch,)).with_grads(grad_in=share)
    mean, variance = spy.Tensor.zeros_like(network), spy.Tensor.zeros_like(network)
    steps = iter(range(1, 1 << 30))

    def step() -> None:
        assert network.grad is not None
        network.grad.clear()
        module.loss.bwds(network, tx, tt, _result=result)
        mlp.adam(network, network.grad, mean, variance, 1e-3, next(steps))

    before = float(module.loss(network, tx, tt).to_numpy().mean())
    for _ in range(5):
        step()
    after = float(module.loss(network, tx, tt).to_numpy().mean())
    assert after < before, (before, after)
    return step, opened.synchronize


def _torch_training(
    device: str, x: Any, target: Any, weights: Any, operand: str, compiled: bool = False, tf32: bool = False
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    torch: Any = importlib.import_module("torch")
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    layers = [linear(64, 64), relu(), linear(64, 64), relu(), linear(64, 64), relu(), linear(64, 64)]
    with torch.no_grad():
        for layer, w in zip(layers[::2], weights, strict=True):
            layer.weight.copy_(torch.from_numpy(w[:64].T.copy()))
            layer.bias.copy_(torch.from_numpy(w[64]))
    kind = getattr(torch, operand)
    network = torch.nn.Sequential(*layers).to(device, kind)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
    tx, tt = (torch.from_numpy(a).to(device, kind) for a in (x, target))

    def loss(a: Any, b: Any) -> Any:
        return torch.nn.functional.mse_loss(network(a), b)

    loss_of = torch.compile(loss) if compiled else loss

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        optimizer.zero_grad()
        loss_of(tx, tt).backward()
        optimizer.step()

    return step, torch.cuda.synchronize if device == "cuda" else lambda: None


def _matrix_products(batch: int, operand: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Twelve products of as many operations as the step's, TF32 allowed."""
    torch: Any = importlib.import_module("torch")
    kind = getattr(torch, operand)
    a, b = (torch.randn(rows, 64, device="cuda", dtype=kind) for rows in (batch, 64))
    out = torch.empty(batch, 64, device="cuda", dtype=kind)

    def products() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        for _ in range(12):
            torch.matmul(a, b, out=out)

    return products, torch.cuda.synchronize


def _check(gradient: Any, other: Any, seed: Any, shape: tuple[int, ...], rtol: float = 1e-3) -> None:
    wanted = other.astype(np.float64) * seed
    axes = 0 if shape == (_COLUMNS,) else None
    wanted = wanted if shape == other.shape else wanted.sum(axes)
    np.testing.assert_allclose(gradient, np.broadcast_to(wanted, shape), rtol=rtol)


def _rate(nbytes: int, seconds: Sampler) -> Sampler:
    return lambda: nbytes / seconds() / 1e9


if __name__ == "__main__":
    sys.exit(main())
