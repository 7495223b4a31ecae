"""NumPy arrays in, NumPy array out: ``module.add(a, b)`` from call to result, copies included.

Every call makes a new result, as a user's would. The floor on a GPU is two copies up from pinned memory and
one down to it; for Vulkan in software three copies by memcpy; the CPU device copies nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from _common import Bench, on_host, per_call, whole
from _cuda_floor import CudaFloor
from _peers import NUMPY, Array, adders


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("transfer", __doc__ or "", ("cuda", "vulkan", "d3d12", "cpu"))
    for device in bench.devices:
        for size in (1000, 2**22 if bench.quick else 2**24):
            _measure(bench, device, size)
            bench.save()
    return bench.finish()


def _measure(bench: Bench, device: str, size: int) -> None:
    a, b = np.random.default_rng(0).random((2, size), np.float32)
    calls = {p.who: (p.calls[NUMPY], p.sync) for p in adders(bench, device, a, b) if NUMPY in p.calls}
    if device != "cpu":
        try:
            host = on_host(device, bench.devices[device])
            calls |= {"memcpy": _host_copies(a)} if host else {"pinned copies": _pinned_copies(a.nbytes)}
        except (OSError, RuntimeError) as error:
            bench.miss(device, "pinned copies", str(error))
    if size == 1000:
        seconds = 0.005 if bench.quick else 0.05
        small = {who: per_call(call, sync, seconds) for who, (call, sync) in calls.items()}
        bench.compare(device, "1000 floats", "us", small)
    else:
        large = {who: whole(call, sync, 1, 1e3) for who, (call, sync) in calls.items()}
        bench.compare(device, f"2^{size.bit_length() - 1} floats", "ms", large)


def _pinned_copies(nbytes: int) -> tuple[Callable[[], object], Callable[[], object]]:
    floor = CudaFloor()
    queue = floor.pinned_add(nbytes)

    def call() -> None:
        queue()
        floor.sync()

    return call, floor.sync


def _host_copies(a: Array) -> tuple[Callable[[], object], Callable[[], object]]:
    targets = [np.zeros_like(a) for _ in range(3)]

    def call() -> None:
        for target in targets:
            np.copyto(target, a)

    return call, lambda: None


if __name__ == "__main__":
    sys.exit(main())
