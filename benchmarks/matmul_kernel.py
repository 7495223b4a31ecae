"""Products by tensor cores: the kernel alone, without the host's share of a call, beside cuBLAS.

A kernel is bound once and launched several times between two events of the device. TFLOP/s (2 M N K operations).
Needs a GPU of compute capability 9.0: ``python benchmarks/matmul_kernel.py --device cuda``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
