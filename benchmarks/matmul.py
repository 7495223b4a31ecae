"""Products of matrices: spy.matmul beside NumPy's and PyTorch's, and cuBLAS by way of PyTorch.

- "call": host microseconds of a product of 8 x 8 numbers into a given array.
- "with gradients": a product and both of its gradients by PyTorch's automatic differentiation, 6 M N K operations.
- "last steps": what a bias and an activation cost, or a function of a user; the ratio is the plain product to theirs.
  PyTorch's are products of cuBLAS with the last steps that it has.
- on Vulkan: products of Tensors there, beside cuBLAS on CUDA in the same run.
- all others: products until they are done, in GFLOP/s (2 M N K operations) on the CPU and TFLOP/s on a GPU; the ratio
  is ours divided by the other's. NumPy and PyTorch use all cores, as ours does. TF32 is off.

On a GPU machine: ``python benchmarks/matmul.py --device cuda vulkan``. On the CPU, OPENBLAS_CORETYPE and
OPENBLAS_L2_SIZE have to be unset (``env -u``): they may make the OpenBLAS of a current NumPy slower.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from _common import OURS, Bench, per_call

import slangpy_rt as spy

_SIZES = {"cpu": (256, 512, 1000, 1023, 1024, 2048), "cuda": (1000, 1024, 2048, 4095, 4096, 4097, 8192)}
_ELEMENTS = {
    "cpu": (torch.float32, torch.float64, torch.float16, torch.bfloat16),
    "cuda": (torch.float16, torch.bfloat16, torch.float32, torch.int8),
}
_SECONDS = 0.05
# Functions of a user's module as the last step.
_STEPS = """
uniform Tensor<float, 1> factors;
float relu(float x) { return max(x, 0); }
float scaled(float x, int row, int column) { return factors[column] * x; }
"""


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("matmul", __doc__ or "", ("cuda", "cpu", "vulkan"))
    bench.facts = {name: os.environ.get(name) for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    bench.facts["threads"] = torch.get_num_threads()
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in bench.devices:
        if name == "vulkan":
            _on_vulkan(bench)
            continue
        _calls(bench, name)
        for dtype in _ELEMENTS[name]:
            # Of 16-bit numbers the largest take PyTorch seconds on a CPU without instructions for them.
            sizes = _SIZES[name][: 3 if name == "cpu" and dtype.itemsize == 2 else None]
            for size in sizes[:2] if bench.quick else sizes:
                _products(bench, name, dtype, (size, size, size))
            if name == "cuda":
                _products(bench, name, dtype, (512, 512, 512), batch=64)
        half = torch.float16 if name == "cuda" else torch.float32
        size = 4096 if name == "cuda" else 1024
        for transposed in ((True, False), (False, True), (True, True)):
            _products(bench, name, half, (size, size, size), transposed=transposed)
        for transposed in ((False, False), (True, False), (False, True), (True, True)):
            _training(bench, name, half, size, transposed)
        _epilogues(bench, name, half, size)
        bench.save()
    return bench.finish()


def _calls(bench: Bench, name: str) -> None:
    """Measure the host's time of a small product."""
    with spy.Device(name) as device:
        place = name if name == "cuda" else "cpu"
        t = torch.ones(8, 8, device=place)
        to, x = torch.zeros_like(t), spy.Tensor.ones(device, (8, 8))
        out = spy.Tensor.zeros(device, (8, 8))
        sync = torch.cuda.synchronize if name == "cuda" else device.synchronize

        def with_torch() -> None:
            with torch.no_grad():
                spy.matmul(t, t, out=to, device=device)

        callers: dict[str, Callable[[], Any]] = {
            OURS: lambda: spy.matmul(x, x, out=out),
            f"{OURS}, torch": with_torch,
            "torch": lambda: torch.matmul(t, t, out=to),
        }
        if name == "cpu":
            a, b = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
            callers |= {
                f"{OURS}, NumPy": lambda: spy.matmul(a, a, out=b, device=device),
                "NumPy": lambda: np.matmul(a, a, out=b),
            }
        seconds = 0.002 if bench.quick else 0.01
        bench.compare(name, "call, 8^3", "us", {who: per_call(f, sync, seconds, 256) for who, f in callers.items()})


def _products(
    bench: Bench,
    name: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    transposed: tuple[bool, bool] = (False, False),
    batch: int = 0,
) -> None:
    """Measure one product, into a given array."""
    place = name if name == "cuda" else "cpu"
    m, n, k = shape
    ta, tb = transposed
    torch.manual_seed(1)
    outer = (batch,) if batch else ()
    a, b = (
        (torch.randn(*outer, *s, device=place) * (30 if dtype is torch.int8 else 1)).to(dtype)
        for s in ((k, m) if ta else (m, k), (n, k) if tb else (k, n))
    )
    left, right = a.mT if ta else a, b.mT if tb else b
    out = torch.empty(*outer, m, n, dtype=torch.int32 if dtype is torch.int8 else dtype, device=place)
    with spy.Device(name) as device:

        def ours() -> None:
            spy.matmul(a, b, transpose_a=ta, transpose_b=tb, out=out, device=device)

        callers: dict[str, Callable[[], Any]] = {OURS: ours}
        if dtype is not torch.int8:
            other = torch.empty_like(out)
            callers["torch"] = lambda: torch.matmul(left, right, out=other)
        elif not batch and k % 8 == 0 and n % 8 == 0:
            # What cuBLAS multiplies of bytes is a multiple of 8 wide.
            callers["torch"] = lambda: torch._int_mm(left, right)
        if dtype is torch.float16 and not batch and k % 64 == 0:
            # Imported here: on other machines there is none.
            try:
                from _triton_matmul import triton_product

                callers["Triton"] = triton_product(left, right, torch.empty_like(out))
            except ImportError as error:
                bench.miss(name, "Triton", str(error))
        if name == "cpu" and dtype in (torch.float32, torch.float64):
            c, d = left.numpy(), right.numpy()
            to = np.empty((*outer, m, n), c.dtype)
            callers["NumPy"] = lambda: np.matmul(c, d, out=to)
        ours()
        _check(left, right, out)
        work = 2 * m * n * k * max(batch, 1) / (1e12 if name == "cuda" else 1e9)
        unit = "TFLOP/s" if name == "cuda" else "GFLOP/s"
        case = f"{str(dtype).removeprefix('torch.')} {batch or ''}{' x ' * bool(batch)}{m}^3 {'nt'[ta]}{'nt'[tb]}"
        sync = torch.cuda.synchronize if name == "cuda" else device.synchronize
        samplers = {who: _rate(f, sync, work, 0.01 if bench.quick else _SECONDS) for who, f in callers.items()}
        slow = name == "cpu" and dtype in (torch.float16, torch.bfloat16)
        bench.compare(name, case, unit, samplers, 3 if slow else None)


def _on_vulkan(bench: Bench) -> None:
    """Measure products of half, by Tensors, beside PyTorch's on CUDA where there is one."""
    with spy.Device("vulkan") as device:
        for size in (256,) if bench.quick else (1024, 2048, 4096, 8192):
            rng = np.random.default_rng(1)
            a, b = (rng.standard_normal((size, size), np.float32).astype(np.float16) for _ in range(2))
            left, right, out = (spy.Tensor.from_numpy(device, x) for x in (a, b, np.zeros_like(a)))
            for turned in (False, True):
                _vulkan_product(bench, device, (left, right, out), turned)
    bench.save()


def _vulkan_product(bench: Bench, device: spy.Device, arrays: tuple[Any, Any, Any], turned: bool) -> None:
    left, right, out = arrays
    size = left.shape[0]

    def ours() -> None:
        spy.matmul(left, right, transpose_b=turned, out=out)

    ours()
    a, b = (torch.from_numpy(x.to_numpy()) for x in (left, right))
    _check(a[:3], b.mT if turned else b, torch.from_numpy(out.to_numpy())[:3])
    seconds, work = 0.01 if bench.quick else _SECONDS, 2 * size**3 / 1e12
    samplers = {OURS: _rate(ours, device.synchronize, work, seconds)}
    if torch.cuda.is_available():
        x, y = a.cuda(), b.cuda().mT if turned else b.cuda()
        other = torch.empty_like(x)
        samplers["torch, CUDA"] = _rate(lambda: torch.matmul(x, y, out=other), torch.cuda.synchronize, work, seconds)
    bench.compare("vulkan", f"float16 {size}^3 n{'nt'[turned]}", "TFLOP/s", samplers)


def _training(bench: Bench, name: str, dtype: torch.dtype, size: int, transposed: tuple[bool, bool]) -> None:
    """Measure a product and the gradients of both operands, through PyTorch's automatic differentiation."""
    place = name if name == "cuda" else "cpu"
    ta, tb = transposed
    torch.manual_seed(1)
    a, b, seed = (torch.randn(size, size, device=place).to(dtype) for _ in range(3))
    a.requires_grad_()
    b.requires_grad_()
    with spy.Device(name) as device:

        def step(product: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, ...]:
            return torch.autograd.grad(product(), (a, b), seed)

        def ours() -> Any:
            return step(lambda: spy.matmul(a, b, transpose_a=ta, transpose_b=tb, device=device))

        def theirs() -> Any:
            return step(lambda: torch.matmul(a.mT if ta else a, b.mT if tb else b))

        for got, want in zip(ours(), theirs(), strict=True):
            bound = 2e-2 if dtype is torch.float16 else 1e-3
            torch.testing.assert_close(got, want, rtol=bound, atol=bound * size**0.5)
        work = 6 * size**3 / (1e12 if name == "cuda" else 1e9)
        unit = "TFLOP/s" if name == "cuda" else "GFLOP/s"
        case = f"{str(dtype).removeprefix('torch.')} {size}^3 {'nt'[ta]}{'nt'[tb]}, with gradients"
        sync = torch.cuda.synchronize if name == "cuda" else device.synchronize
        seconds = 0.01 if bench.quick else _SECONDS
        bench.compare(
            name, case, unit, {OURS: _rate(ours, sync, work, seconds), "torch": _rate(theirs, sync, work, seconds)}
        )


def _epilogues(bench: Bench, name: str, dtype: torch.dtype, size: int) -> None:
    """Measure what a bias and an activation add to a product."""
    place = name if name == "cuda" else "cpu"
    torch.manual_seed(1)
    a, b = (torch.randn(size, size, device=place).to(dtype) for _ in range(2))
    bias, out = torch.randn(size, device=place).to(dtype), torch.empty(size, size, dtype=dtype, device=place)
    with spy.Device(name) as device:
        sync = torch.cuda.synchronize if name == "cuda" else device.synchronize
        work = 2 * size**3 / (1e12 if name == "cuda" else 1e9)
        seconds = 0.01 if bench.quick else _SECONDS

        def rate(**options: Any) -> Callable[[], float]:
            return _rate(lambda: spy.matmul(a, b, out=out, device=device, **options), sync, work, seconds)

        samplers = {OURS: rate(), "bias": rate(bias=bias), "bias, relu": rate(bias=bias, activation="relu")}
        samplers["bias, gelu"] = rate(bias=bias, activation="gelu")
        module = spy.Module.load_from_source(device, "steps", _STEPS)
        scaled = module.scaled.set(factors=torch.ones(size, device=place))
        samplers["bias, a user's relu"] = rate(bias=bias, activation=module.relu)
        samplers["bias, a user's factors"] = rate(bias=bias, activation=scaled)
        if name == "cuda":
            fused = torch._addmm_activation  # cuBLAS's last steps
            samplers["torch, bias"] = _rate(lambda: torch.addmm(bias, a, b, out=out), sync, work, seconds)
            for which in (False, True):
                step = "gelu" if which else "relu"
                theirs = partial(fused, bias, a, b, use_gelu=which)
                samplers[f"torch, bias, {step}"] = _rate(theirs, sync, work, seconds)
        unit = "TFLOP/s" if name == "cuda" else "GFLOP/s"
        bench.compare(name, f"{str(dtype).removeprefix('torch.')} {size}^3, last steps", unit, samplers)


def _rate(call: Callable[[], Any], sync: Callable[[], Any], work: float, seconds: float) -> Callable[[], float]:
    """Return a sampler of operations a second, of as many calls as take about ``seconds``."""

    def timed(count: int) -> float:
        sync()
        start = time.perf_counter()
        for _ in range(count):
            call()
        sync()
        return time.perf_counter() - start

    timed(1)
    count = max(1, int(seconds / timed(1)))
    return lambda: work * count / timed(count)


def _check(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Compare some rows of a product with those in double precision."""
    rows = left[..., :3, :].double()
    want = rows @ right.double()
    bound = 2e-2 if out.dtype in (torch.float16, torch.bfloat16) else 1e-3
    torch.testing.assert_close(out[..., :3, :].double(), want, rtol=bound, atol=bound * left.shape[-1] ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
