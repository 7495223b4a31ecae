"""Products by tensor cores: the kernel alone, without the host's share of a call, beside cuBLAS.

A kernel is bound once and launched several times between two events of the device. TFLOP/s (2 M N K operations). The
rows of last steps say what a bias and an activation cost.
Needs a GPU of compute capability 9.0: ``python benchmarks/matmul_kernel.py --device cuda``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _common import OURS, Bench

import slangpy_rt as spy
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.tensor_cores import TensorCores
from slangpy_rt.linalg.view import View

_CASES = [
    (1, 1024, False), (1, 2048, False), (1, 4096, False), (1, 4096, True), (1, 8192, False), (1, 8192, True),
    (64, 512, False),
]  # fmt: skip


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("matmul_kernel", __doc__ or "", ("cuda",))
    for name in bench.devices:
        with spy.create_torch_device(name) as device:
            for count, size, transposed in _CASES[:2] if bench.quick else _CASES:
                _case(bench, name, device, count, size, transposed)
            for size in (2048,) if bench.quick else (2048, 4096, 8192):
                _last_steps(bench, name, device, size)
        bench.save()
    return bench.finish()


def _case(bench: Bench, name: str, device: spy.Device, count: int, size: int, transposed: bool) -> None:
    torch.manual_seed(1)
    a, b = (torch.randn(count, size, size, device="cuda").half() for _ in range(2))
    c = torch.empty_like(a)
    other = b.mT if transposed else b
    view = View("half", tuple(a.shape), a.stride())
    right = view.transposed() if transposed else view
    # It owns the descriptions of operands that the bound kernel reads.
    cores = TensorCores(device, Kind("half", "half"))
    bound = _bound(lambda: cores.run(None, (a, view, a.data_ptr()), (other, right, b.data_ptr()), (c, view), [1.0]))
    callers: dict[str, Callable[[], Any]] = {OURS: bound, "torch": lambda: torch.matmul(a, other, out=c)}
    work = 2 * count * size**3 / 1e12
    case = f"{f'{count} x ' if count > 1 else ''}{size}^3 {'nt' if transposed else 'nn'}"
    bench.compare(
        name, case, "TFLOP/s", {who: _rate(f, work, 4 if size >= 8192 else 20) for who, f in callers.items()}
    )


def _last_steps(bench: Bench, name: str, device: spy.Device, size: int) -> None:
    torch.manual_seed(1)
    a, b = (torch.randn(1, size, size, device="cuda").half() for _ in range(2))
    bias, c = torch.randn(size, device="cuda").half(), torch.empty_like(a)
    view = View("half", tuple(a.shape), a.stride())
    # They own the descriptions of operands that the bound kernels read.
    cores: list[TensorCores] = []
    callers: dict[str, Callable[[], Any]] = {}
    for who, activation in ((OURS, None), ("bias", ""), ("bias, relu", "relu"), ("bias, gelu", "gelu")):
        of = TensorCores(device, Kind("half", "half", activation or "", activation is not None))
        cores.append(of)
        given = [1.0] if activation is None else [1.0, bias]
        left, right = ((x, view, x.data_ptr()) for x in (a, b))
        callers[who] = _bound(partial(of.run, None, left, right, (c, view), given))
    x, y, out = a[0], b[0], c[0]
    fused = torch._addmm_activation  # cuBLAS's last steps
    callers["torch"] = lambda: torch.matmul(x, y, out=out)
    callers["torch, bias"] = lambda: torch.addmm(bias, x, y, out=out)
    callers["torch, bias, relu"] = lambda: fused(bias, x, y)
    callers["torch, bias, gelu"] = lambda: fused(bias, x, y, use_gelu=True)
    work = 2 * size**3 / 1e12
    rates = {who: _rate(f, work, 4 if size >= 8192 else 12) for who, f in callers.items()}
    bench.compare(name, f"{size}^3 nn, last steps", "TFLOP/s", rates)


def _bound(run: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that repeats the dispatch which ``run`` makes."""
    made: list[Callable[[], Any]] = []
    dispatch = Kernel.dispatch
    Kernel.dispatch = lambda self, *args, **named: made.append(self.bind(*args, **named))  # type: ignore
    try:
        run()
    finally:
        Kernel.dispatch = dispatch  # type: ignore[method-assign]
    return made[-1]


def _rate(run: Callable[[], Any], work: float, launches: int) -> Callable[[], float]:
    """Return a function that measures the rate of some launches on the device's clock."""

    def sample() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        return work * launches / (start.elapsed_time(end) / 1e3)

    for _ in range(3):
        run()
    return sample


if __name__ == "__main__":
    sys.exit(main())
