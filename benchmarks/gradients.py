"""What derivatives cost: elementwise, of a number that all elements share, of a row that all rows share.

Backward passes bound by memory are given in GB/s of what has to move: 28 bytes an element of the product (three
reads, two gradients read and written). A shared number or row is compared with the forward pass of the same product,
which moves 12 bytes an element where the backward pass needs 8. Waits are counted; gradients accumulate.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, on_host, whole
from _cuda_floor import CudaFloor

import slangpy_rt as spy

SOURCE = "[Differentiable] float product(float a, float b) { return a * b; }\n"
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
    sp = importlib.import_module("slangpy")
    opened = sp.Device(
        type=getattr(sp.DeviceType, device),
        enable_rhi_validation=False,
        compiler_options={"include_paths": [sp.SHADER_PATH]},
    )
    module = sp.Module.load_from_source(opened, "bench", 'import "slangpy";\n' + SOURCE)
    rng = np.random.default_rng
    ta, tb, g = (sp.Tensor.from_numpy(opened, rng(0).random(s, np.float32)) for s in (a, b, b))
    ta = ta.with_grads(zero=True)
    tb = tb.with_grads(zero=True) if a == b else tb
    result = sp.Tensor.zeros(opened, b, "float").with_grads(grad_in=g, zero=False)
    module.product.bwds(ta, tb, result)
    _check(ta.grad_out.to_numpy(), tb.to_numpy(), g.to_numpy(), a)
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


def _check(gradient: Any, other: Any, seed: Any, shape: tuple[int, ...]) -> None:
    wanted = other.astype(np.float64) * seed
    axes = 0 if shape == (_COLUMNS,) else None
    wanted = wanted if shape == other.shape else wanted.sum(axes)
    np.testing.assert_allclose(gradient, np.broadcast_to(wanted, shape), rtol=1e-3)


def _rate(nbytes: int, seconds: Sampler) -> Sampler:
    return lambda: nbytes / seconds() / 1e9


if __name__ == "__main__":
    sys.exit(main())
