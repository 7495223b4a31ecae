"""Numbers of 16 bits on the CPU: a * b + b over 2^22 elements into a given array, beside NumPy and PyTorch.

NumPy and PyTorch take two operations and round in between, as ours does for half. PyTorch uses all cores, as ours
does. SLANGPY_RT_CXX chooses the compiler of ours, which the results name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from _common import OURS, Bench

import slangpy_rt as spy
from slangpy_rt.backends.cpu.compile import find_compiler

_SOURCE = """
float mad_float(float a, float b) { return a * b + b; }
half mad_half(half a, half b) { return a * b + b; }
"""
_CASES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("narrow_floats", __doc__ or "", ("cpu",))
    bench.facts = {"compiler": find_compiler(), "threads": torch.get_num_threads()}
    count = 1 << (16 if bench.quick else 22)
    for name in bench.devices:
        with spy.Device(name) as device:
            module = spy.Module.load_from_source(device, "narrow_floats", _SOURCE)
            for kind, dtype in _CASES.items():
                _measure(bench, name, module, kind, dtype, count)
    return bench.finish()


def _measure(bench: Bench, name: str, module: spy.Module, kind: str, dtype: torch.dtype, count: int) -> None:
    torch.manual_seed(1)
    a, b = (torch.randn(count).to(dtype) for _ in range(2))
    out, between, theirs = (torch.empty(count, dtype=dtype) for _ in range(3))
    # Functions have no bfloat16: arrays of it go where they have float.
    function = module.mad_half if kind == "half" else module.mad_float

    def ours() -> None:
        function(a, b, _result=out)

    def with_torch() -> None:
        torch.mul(a, b, out=between)
        torch.add(between, b, out=theirs)

    callers: dict[str, Callable[[], object]] = {OURS: ours, "torch": with_torch}
    if kind != "bfloat16":
        c, d, to = a.numpy(), b.numpy(), np.empty(count, a.numpy().dtype)
        callers["NumPy"] = lambda: np.add(np.multiply(c, d, out=to), d, out=to)
    ours()
    with_torch()
    torch.testing.assert_close(out.float(), theirs.float(), rtol=2**-7, atol=2**-7)
    bench.compare(name, f"a * b + b, {kind}", "ms", {who: _sampler(call) for who, call in callers.items()})


def _sampler(call: Callable[[], object]) -> Callable[[], float]:
    """Return a sampler of milliseconds of one call."""

    def sample() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return sample


if __name__ == "__main__":
    sys.exit(main())
