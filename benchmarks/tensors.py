"""Operators and reductions of Tensors, beside those of NumPy and PyTorch over the same data.

- "a + b" and its like: host microseconds of an operator over 1000 floats; queues are emptied after every 256 of them,
  which is not counted.
- reductions: GB/s of floats read until the result is there; all elements, the rows and the columns of a matrix.
- "a * a - b": GB/s of three operators' worth of memory (12 bytes read and 8 written for each element), until done.

NumPy and PyTorch use all cores, as ours does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, per_call, whole

import slangpy_rt as spy

_DRAIN = 256
_SMALL = 1000


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("tensors", __doc__ or "")
    for name in bench.devices:
        _measure(bench, name)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, name: str) -> None:
    seconds = 0.005 if bench.quick else 0.05
    side = 1024 if bench.quick or name == "vulkan" else 8192 if name == "cuda" else 4096
    with spy.Device(name) as device:
        libraries = _libraries(bench, name, device)
        small = np.random.default_rng(0).random((2, _SMALL), np.float32)
        large = np.random.default_rng(1).random((2, side, side), np.float32)
        for title, operation in {
            "a + b": lambda a, b: a + b,
            "a * 2.0": lambda a, b: a * 2.0,
            "a < b": lambda a, b: a < b,
            "sum": lambda a, b: a.sum(),
        }.items():
            samplers = {}
            for who, (make, sync) in libraries.items():
                a, b = make(small[0]), make(small[1])
                samplers[who] = per_call(lambda f=operation, a=a, b=b: f(a, b), sync, seconds, _DRAIN)
            bench.compare(name, f"{title}, {_SMALL}", "us", samplers)
        for title, (operation, nbytes) in {
            "sum": (lambda a, b: a.sum(), 4),
            "sum of rows": (lambda a, b: a.sum(1), 4),
            "sum of columns": (lambda a, b: a.sum(0), 4),
            "max": (lambda a, b: a.max(), 4),
            "a * a - b": (lambda a, b: a * a - b, 20),
        }.items():
            samplers = {}
            for who, (make, sync) in libraries.items():
                a, b = make(large[0]), make(large[1])
                operation(a, b)
                moved = nbytes * side * side / 1e9
                timer = whole(lambda f=operation, a=a, b=b: f(a, b), sync)
                samplers[who] = lambda timer=timer, moved=moved: moved / timer()
            bench.compare(name, f"{title}, {side} x {side}", "GB/s", samplers)


def _libraries(
    bench: Bench, name: str, device: spy.Device
) -> dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]]:
    """What makes an array of a NumPy array, and what waits, for each library."""
    found: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
        OURS: (lambda a: spy.Tensor.from_numpy(device, a), device.synchronize)
    }
    if name == "cpu":
        found["NumPy"] = (lambda a: a, lambda: None)
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
        return found
    if name == "cpu":
        found["torch"] = (torch.from_numpy, lambda: None)
    elif torch.cuda.is_available():
        found["torch"] = (lambda a: torch.from_numpy(a).cuda(), torch.cuda.synchronize)
    return found


if __name__ == "__main__":
    sys.exit(main())
