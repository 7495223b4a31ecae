"""Steps of optimizers, beside those of PyTorch over the same numbers.

- "AdamW" and its like: GB/s of the memory that a step has to move, over one parameter of floats: parameter, gradient
  and state are read, parameter and state are written, which is 12, 20 or 28 bytes a number. "device copy" and
  "memcpy" are the rate of a copy, the floor: no step is faster than memory.
- "32 parameters": host microseconds of a step over parameters of 1000 floats; "command list" is ``append_to``.

PyTorch's are ``torch.optim`` as it chooses by itself, and with ``fused=True``. All use all cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, per_call, whole
from _cuda_floor import CudaFloor

import slangpy_rt as spy

_MANY, _SMALL = 32, 1000
# Options, and the bytes of a number that a step moves.
_CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "SGD": ("SGD", {"lr": 1e-3}, 12),
    "SGD, momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}, 20),
    "AdamW": ("AdamW", {"lr": 1e-3}, 28),
}


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("optim", __doc__ or "")
    for name in bench.devices:
        _measure(bench, name)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, name: str) -> None:
    seconds = 0.01 if bench.quick else 0.1
    power = 20 if bench.quick else 28 if name == "cuda" else 24
    with spy.Device(name) as device:
        for case, (kind, options, moved) in _CASES.items():
            samplers = {}
            for who, (step, sync) in _steps(bench, name, device, kind, options, 1, 1 << power).items():
                timer = whole(step, sync, 8 if name == "cuda" else 1)
                samplers[who] = lambda timer=timer, moved=moved: moved * (1 << power) / timer() / 1e9
            samplers |= _floor(bench, name, 1 << power)
            bench.compare(name, f"{case}, 2^{power}", "GB/s", samplers)
        for case, (kind, options, _) in _CASES.items():
            samplers = {}
            for who, (step, sync) in _steps(bench, name, device, kind, options, _MANY, _SMALL).items():
                samplers[who] = per_call(step, sync, seconds, 8)
            bench.compare(name, f"{case}, {_MANY} parameters", "us", samplers)


def _steps(
    bench: Bench, name: str, device: spy.Device, kind: str, options: dict[str, Any], count: int, size: int
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """A step, and what waits, for each library."""
    rng = np.random.default_rng(0)
    values, slopes = rng.random((2, size), np.float32)
    parameters = [spy.Tensor.from_numpy(device, values).with_grads() for _ in range(count)]
    for parameter in parameters:
        parameter.grad.copy_from(slopes)
    ours = getattr(spy.optim, kind)(parameters, **options)
    found = {OURS: (ours.step, device.synchronize)}
    if count > 1:
        commands = device.command_list()
        getattr(spy.optim, kind)(parameters, **options).append_to(commands)
        found[f"{OURS}, command list"] = (commands.submit, device.synchronize)
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
        return found
    if name == "vulkan" or (name == "cuda" and not torch.cuda.is_available()):
        return found
    sync = torch.cuda.synchronize if name == "cuda" else lambda: None
    for who, more in (("torch", {}), ("torch, fused", {"fused": True})):
        theirs = [torch.tensor(values, device=name, requires_grad=True) for _ in range(count)]
        for tensor in theirs:
            tensor.grad = torch.tensor(slopes, device=name)
        found[who] = (getattr(torch.optim, kind)(theirs, **options, **more).step, sync)
    return found


def _floor(bench: Bench, name: str, size: int) -> dict[str, Callable[[], float]]:
    """The rate of a copy of as many floats."""
    if name == "cuda":
        try:
            floor = CudaFloor()
        except Exception as error:  # whatever the driver says
            bench.miss(name, "device copy", str(error))
            return {}
        timer = whole(floor.device_copy(4 * size), floor.sync, 8)
        return {"device copy": lambda: 8 * size / timer() / 1e9}
    source, target = np.ones(size, np.float32), np.ones(size, np.float32)
    timer = whole(lambda: np.copyto(target, source), lambda: None)
    return {"memcpy": lambda: 8 * size / timer() / 1e9}


if __name__ == "__main__":
    sys.exit(main())
