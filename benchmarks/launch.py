"""Host microseconds of a cached call of ``float add(float a, float b)`` on 1000 floats.

Four ways of taking time, each a case of its own:

- plain: a batch of calls, the wait for the device after it not counted. What a program pays that has other
  work to do, as long as the device keeps up.
- "drained": the same with a wait, not counted, after every 256 calls, so that a full queue never blocks one.
- "until done": a batch with its wait counted: calls that the device completes a second, host included.
- "one call and a wait": the median of many such pairs, each from an idle device on. Beside it stands what the driver
  takes alone: an empty kernel of CUDA, or a recorded list of Vulkan without commands.

Garbage collection stays on, as in users' programs; the call of a lambda (0.05 us) is in every row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from _common import Bench, per_call, single, whole
from _cuda_floor import CudaFloor
from _peers import ALLOCATED, GIVEN, MIXED, NUMPY, SCALARS, adders
from _vulkan_floor import VulkanFloor

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
    if device not in ("cpu", "null"):
        pairs = 50 if bench.quick else 500
        once = {p.who: single(p.calls[GIVEN], p.sync, pairs) for p in peers}
        floor = _floor(bench, device)
        if floor is not None:
            once[floor[0]] = single(*floor[1:], pairs)
        bench.compare(device, "one call and a wait", "us", once)


def _floor(bench: Bench, device: str) -> tuple[str, Callable[[], object], Callable[[], object]] | None:
    if device == "cuda":
        cuda = CudaFloor()
        return "cuLaunchKernel, empty kernel", cuda.launch, cuda.sync
    if device == "vulkan":
        try:
            vulkan = VulkanFloor()
        except RuntimeError as error:
            bench.miss(device, "vkQueueSubmit, no commands", str(error))
        else:
            return "vkQueueSubmit, no commands", vulkan.submit, vulkan.sync
    return None


if __name__ == "__main__":
    sys.exit(main())
