"""Gradients through operators in a block of ``grad_tape``, beside PyTorch's autograd over the same formula.

- "mean((a * b + c)^2)": milliseconds of the formula and its gradients by three operands, until the work is done, over
  so many floats. "one function" is ``value_and_grad`` of a Slang function that computes the square of one element.
- "the formula alone" is computed without gradients: what the block adds to it is the difference.
- "call of a function": host microseconds of a call into a given result, on arrays without gradients, and outside of a
  block on an array that carries one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, per_call, whole

import slangpy_rt as spy

_SLANG = "[Differentiable] float error(float a, float b, float c) { let e = a * b + c; return e * e; }"


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("grad_tape", __doc__ or "")
    for name in bench.devices:
        _measure(bench, name)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, name: str) -> None:
    with spy.Device(name) as device:
        for power in (10, 16 if bench.quick else 24):
            data = list(np.random.default_rng(0).random((3, 1 << power), np.float32))
            ours, sync = _ours(device, data), device.synchronize
            samplers = {who: whole(call, sync, 4, 1e3) for who, call in ours.items()} | _theirs(bench, name, data)
            alone = {who: samplers.pop(f"{who} alone") for who in (OURS, "torch") if f"{who} alone" in samplers}
            bench.compare(name, f"mean((a * b + c)^2), 2^{power}", "ms", samplers)
            bench.compare(name, f"the formula alone, 2^{power}", "ms", alone)
        _calls(bench, name, device)


def _ours(device: spy.Device, data: list[Any]) -> dict[str, Callable[[], Any]]:
    plain = [spy.Tensor.from_numpy(device, x) for x in data]
    a, b, c = (x.with_grads() for x in plain)
    error = spy.Module.load_from_source(device, "grad_tape_bench", _SLANG).error

    def taped() -> None:
        with spy.grad_tape() as tape:
            loss = ((a * b + c) ** 2).mean()
        tape.backward(loss)

    def alone() -> Any:
        x, y, z = plain
        return ((x * y + z) ** 2).mean()

    return {
        OURS: taped,
        f"{OURS} alone": alone,
        f"{OURS}, one function": lambda: error.value_and_grad(*plain),
    }


def _theirs(bench: Bench, name: str, data: list[Any]) -> dict[str, Callable[[], float]]:
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
        return {}
    if name not in ("cpu", "cuda") or (name == "cuda" and not torch.cuda.is_available()):
        return {}
    a, b, c = (torch.tensor(x, device=name, requires_grad=True) for x in data)
    sync = torch.cuda.synchronize if name == "cuda" else lambda: None

    def step() -> None:
        ((a * b + c) ** 2).mean().backward()

    def alone() -> Any:
        with torch.no_grad():
            return ((a * b + c) ** 2).mean()

    return {"torch": whole(step, sync, 4, 1e3), "torch alone": whole(alone, sync, 4, 1e3)}


def _calls(bench: Bench, name: str, device: spy.Device) -> None:
    a, b, c, out = (spy.Tensor.zeros(device, 1000) for _ in range(4))
    carrying = a.with_grads()
    error = spy.Module.load_from_source(device, "grad_tape_bench", _SLANG).error
    seconds = 0.01 if bench.quick else 0.1
    samplers = {
        OURS: per_call(lambda: error(a, b, c, _result=out), device.synchronize, seconds, 8),
        "an operand carries a gradient": per_call(
            lambda: error(carrying, b, c, _result=out), device.synchronize, seconds, 8
        ),
    }
    bench.compare(name, "call of a function", "us", samplers)


if __name__ == "__main__":
    sys.exit(main())
