"""PyTorch's tensors in Slang functions, beside PyTorch's own operations: on the CPU, on CUDA, on Vulkan.

- "call": host microseconds of ``c = a + b`` into a given tensor and into a new one, 1000 floats. On a GPU the loop
  queues and does not wait.
- "forward and backward": ``a * b``, and ``a + b``, with gradients by autograd: 1000 floats in microseconds, 2^22 on
  the CPU and 2^26 on a GPU in milliseconds, until done. "floor" is PyTorch's sum inside a Function in Python, which
  hands its gradient on: what any operation of autograd costs that is not written in C++.
- "ten operations": an expression of ten operations on as many floats, forward and backward: one Slang function beside
  PyTorch's operations one by one and compiled; on a GPU the most memory that was in use as well, arguments included.

Every result and gradient is compared with PyTorch's before it is timed. Vulkan's calls copy the tensors on the GPU.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from _common import OURS, Bench, per_call, whole

import slangpy_rt as spy

_SMALL = 1000
SOURCE = """
[Differentiable] float add(float a, float b) { return a + b; }
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
    bench = Bench("pytorch", __doc__ or "", ("cpu", "cuda", "vulkan"))
    torch: Any = importlib.import_module("torch")
    for device in bench.devices:
        if device != "cpu" and not torch.cuda.is_available():
            bench.miss(device, OURS, "PyTorch sees no GPU")
            continue
        opened = spy.Device("vulkan") if device == "vulkan" else spy.create_torch_device(device)
        module = spy.Module.load_from_source(opened, "bench_pytorch", SOURCE)
        _calls(bench, device, torch, module)
        _derivatives(bench, device, torch, module)
        bench.save()
    return bench.finish()


def _calls(bench: Bench, device: str, torch: Any, module: Any) -> None:
    where = "cpu" if device == "cpu" else "cuda"
    a, b, c = (torch.rand(_SMALL, device=where) for _ in range(3))
    assert torch.equal(module.add(a, b), a + b)
    given = {OURS: lambda: module.add(a, b, _result=c), "torch": lambda: torch.add(a, b, out=c)}
    made = {OURS: lambda: module.add(a, b), "torch": lambda: torch.add(a, b)}
    seconds = 0.01 if bench.quick else 0.1
    for case, calls in (("call, result given", given), ("call, result allocated", made)):
        bench.compare(
            device,
            case,
            "us",
            {who: per_call(call, _wait(torch, device), seconds, 1000) for who, call in calls.items()},
        )


def _derivatives(bench: Bench, device: str, torch: Any, module: Any) -> None:
    def shade(a: Any, b: Any) -> Any:
        x = a * b + 0.5
        y = torch.exp(-x * x) + torch.sqrt(torch.abs(b) + 1)
        return y / (1 + x * x) - a

    where = "cpu" if device == "cpu" else "cuda"
    power = 22 if device == "cpu" else 26
    product = {OURS: module.mul, "torch": lambda a, b: a * b}
    total = {OURS: module.add, "torch": lambda a, b: a + b}
    small = {**total, "floor": _in_python(torch)}
    ten = {OURS: module.shade, "torch": shade, "torch, compiled": torch.compile(shade)}
    work: dict[str, tuple[int, str, dict[str, Callable[[Any, Any], Any]]]] = {
        f"forward and backward, add, {_SMALL}": (_SMALL, "us", small),
        f"forward and backward, mul, {_SMALL}": (_SMALL, "us", product),
        f"forward and backward, add, 2^{power}": (1 << power, "ms", total),
        f"forward and backward, mul, 2^{power}": (1 << power, "ms", product),
        f"ten operations, 2^{power}": (1 << power, "ms", ten),
    }
    for case, (size, unit, functions) in work.items():
        torch.manual_seed(0)
        a, b, grad = (torch.rand(size, device=where) for _ in range(3))
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
                lambda f=f: step(f), _wait(torch, device), 200 if unit == "us" else 3, 1e6 if unit == "us" else 1e3
            )
        bench.compare(device, case, unit, samplers)
        if case.startswith("ten") and device != "cpu":
            del expected
            bench.compare(
                device, f"memory of {case}", "GiB", {who: _peak(torch, step, functions[who]) for who in samplers}
            )


def _in_python(torch: Any) -> Callable[[Any, Any], Any]:
    class Add(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return torch.add(a, b)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            ctx.saved_tensors  # noqa: B018 - looks whether they were changed, as every backward has to
            return grad, grad

    apply: Callable[[Any, Any], Any] = Add.apply
    return apply


def _peak(torch: Any, step: Callable[[Any], Any], f: Any) -> Callable[[], float]:
    """The most that PyTorch had in use; what Vulkan copies to is its own and not counted."""

    def measure() -> float:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step(f)
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated()) / 2**30

    return measure


def _wait(torch: Any, device: str) -> Callable[[], None]:
    """Until the GPU is done; on the CPU everything is."""
    found: Callable[[], None] = _nothing if device == "cpu" else torch.cuda.synchronize
    return found


def _nothing() -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())
