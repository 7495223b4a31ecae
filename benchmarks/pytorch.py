"""PyTorch's tensors in Slang functions, beside PyTorch's own operations, on the CPU.

- "call": host microseconds of ``c = a + b`` into a given tensor and into a new one, 1000 floats.
- "forward and backward": ``a * b`` and its gradients by autograd, 1000 floats in microseconds, 2^22 in milliseconds.
- "ten operations": an expression of ten operations on 2^22 floats, forward and backward: one Slang function beside
  PyTorch's operations one by one and compiled.

Every result and gradient is compared with PyTorch's before it is timed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from _common import OURS, Bench, per_call, whole

import slangpy_rt as spy

_SMALL, _LARGE = 1000, 1 << 22
SOURCE = """
float add(float a, float b) { return a + b; }
[Differentiable] float mul(float a, float b) { return a * b; }
[Differentiable] float shade(float a, float b)
{
    let x = a * b + 0.5;
    let y = exp(-x * x) + sqrt(abs(b) + 1);
    return y / (1 + x * x) - a;
}
"""


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("pytorch", __doc__ or "", ("cpu",))
    bench.facts = {"elements": [_SMALL, _LARGE]}
    torch: Any = importlib.import_module("torch")
    for device in bench.devices:
        module = spy.Module.load_from_source(spy.Device(device), "bench_pytorch", SOURCE)
        _calls(bench, device, torch, module)
        _derivatives(bench, device, torch, module)
        bench.save()
    return bench.finish()


def _calls(bench: Bench, device: str, torch: Any, module: Any) -> None:
    a, b, c = (torch.rand(_SMALL) for _ in range(3))
    assert torch.equal(module.add(a, b), a + b)
    given = {OURS: lambda: module.add(a, b, _result=c), "torch": lambda: torch.add(a, b, out=c)}
    made = {OURS: lambda: module.add(a, b), "torch": lambda: torch.add(a, b)}
    seconds = 0.01 if bench.quick else 0.1
    for case, calls in (("call, result given", given), ("call, result allocated", made)):
        bench.compare(
            device, case, "us", {who: per_call(call, _nothing, seconds, 1000) for who, call in calls.items()}
        )


def _derivatives(bench: Bench, device: str, torch: Any, module: Any) -> None:
    def shade(a: Any, b: Any) -> Any:
        x = a * b + 0.5
        y = torch.exp(-x * x) + torch.sqrt(torch.abs(b) + 1)
        return y / (1 + x * x) - a

    product = {OURS: module.mul, "torch": lambda a, b: a * b}
    work: dict[str, tuple[int, str, dict[str, Callable[[Any, Any], Any]]]] = {
        f"forward and backward, {_SMALL}": (_SMALL, "us", product),
        "forward and backward, 2^22": (_LARGE, "ms", product),
        "ten operations, 2^22": (
            _LARGE,
            "ms",
            {OURS: module.shade, "torch": shade, "torch, compiled": torch.compile(shade)},
        ),
    }
    for case, (size, unit, functions) in work.items():
        torch.manual_seed(0)
        a, b, grad = (torch.rand(size) for _ in range(3))
        a.requires_grad_()
        b.requires_grad_()

        def step(f: Callable[[Any, Any], Any], a: Any = a, b: Any = b, grad: Any = grad) -> tuple[Any, Any]:
            a.grad = b.grad = None
            f(a, b).backward(grad)
            return a.grad, b.grad

        expected = step(functions["torch"])
        samplers = {}
        for who, f in functions.items():
            try:
                for got, want in zip(step(f), expected, strict=True):
                    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            except Exception as error:  # a peer may raise whatever it likes
                bench.miss(device, who, f"{case}: {' '.join(str(error).split())[:200]}")
                continue
            samplers[who] = whole(
                lambda f=f: step(f), _nothing, 200 if unit == "us" else 3, 1e6 if unit == "us" else 1e3
            )
        bench.compare(device, case, unit, samplers)


def _nothing() -> None:
    """On the CPU everything is done."""


if __name__ == "__main__":
    sys.exit(main())
