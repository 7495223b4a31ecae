"""Host microseconds of a cached call of ``float add(float a, float b)`` on 1000 floats.

Three ways of taking time, each a case of its own:

- plain: a batch of calls, the wait for the device after it not counted. What a program pays that has other
  work to do, as long as the device keeps up.
- "drained": the same with a wait, not counted, after every 256 calls, so that a full queue never blocks one.
- "until done": a batch with its wait counted: calls that the device completes a second, host included.

Garbage collection stays on, as in users' programs; the call of a lambda (0.05 us) is in every row.
"""

from __future__ import annotations

import sys

import numpy as np
from _common import Bench, per_call, whole
from _cuda_floor import CudaFloor
from _peers import ALLOCATED, GIVEN, MIXED, NUMPY, SCALARS, adders

_ELEMENTS = 1000
_DRAIN = 256  # more than the calls of any one submission of ours, so that each period submits several times


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("launch", __doc__ or "", ("cuda", "vulkan", "d3d12", "cpu", "null", "rhi-vulkan", "rhi-cuda"))
    bench.facts = {"elements": _ELEMENTS, "drained_after": _DRAIN}
    for device in bench.devices:
        _measure(bench, device)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, device: str) -> None:
    a, b = np.random.default_rng(0).random((2, _ELEMENTS), np.float32)
    peers = adders(bench, device, a, b)
    seconds = 0.005 if bench.quick else 0.05
    for case in (GIVEN, ALLOCATED, NUMPY, SCALARS, MIXED):
        able = [p for p in peers if case in p.calls]
        plain = {p.who: per_call(p.calls[case], p.sync, seconds) for p in able}
        if case == GIVEN and device == "cuda":
            floor = CudaFloor()
            plain["cuLaunchKernel, empty kernel"] = per_call(floor.launch, floor.sync, seconds)
        bench.compare(device, case, "us", plain)
        if case in (GIVEN, ALLOCATED, MIXED) and device not in ("cpu", "null"):
            drained = {p.who: per_call(p.calls[case], p.sync, seconds, _DRAIN) for p in able}
            bench.compare(device, f"{case}, drained", "us", drained)
            calls = 200 if bench.quick else 2000
            done = {p.who: whole(p.calls[case], p.sync, calls, 1e6) for p in able}
            bench.compare(device, f"{case}, until done", "us", done)


if __name__ == "__main__":
    sys.exit(main())
