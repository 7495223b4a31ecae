"""Running sums, compaction and sorting of Tensors, beside those of NumPy, PyTorch and CuPy over the same data.

Milliseconds until the result is there. Floats and whole numbers are random, and for nonzero half of the floats are 0.
Sorting is stable everywhere; indices have 32 bits in ours and 64 bits elsewhere. NumPy uses one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, whole

import slangpy_rt as spy

# What makes an array of a NumPy array, what waits, and the functions by name.
Library = tuple[Callable[[Any], Any], Callable[[], Any], dict[str, Callable[[Any], Any]]]
# Bits of the number of elements; CUDA alone has the last one.
_SIZES = (16, 20, 24)


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("sorting", __doc__ or "")
    for name in bench.devices:
        _measure(bench, name)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, name: str) -> None:
    random = np.random.default_rng(0)
    sizes = _SIZES[:1] if bench.quick else _SIZES if name == "cuda" else _SIZES[:2]
    with spy.Device(name) as device:
        libraries = _libraries(bench, name, device)
        for bits in sizes:
            dense = random.standard_normal(2**bits, np.float32)
            sparse = np.where(random.random(2**bits) < 0.5, dense, np.float32(0))
            keys = random.integers(0, 2**31 - 1, 2**bits, dtype=np.int32)
            for case, data in {"cumsum": dense, "nonzero": sparse, "argsort": dense, "argsort of ints": keys}.items():
                samplers = {}
                for who, (make, sync, functions) in libraries.items():
                    array, function = make(data), functions[case.split()[0]]
                    function(array)
                    sync()
                    timer = whole(lambda f=function, a=array: f(a), sync)
                    samplers[who] = lambda timer=timer: 1000 * timer()
                bench.compare(name, f"{case}, 2^{bits}", "ms", samplers)


def _libraries(
    bench: Bench, name: str, device: spy.Device
) -> dict[str, tuple[Any, Callable[[], Any], dict[str, Any]]]:
    """The libraries by name."""
    ours = {"cumsum": spy.cumsum, "nonzero": spy.nonzero, "argsort": spy.argsort}
    found: dict[str, Any] = {OURS: (lambda a: spy.Tensor.from_numpy(device, a), device.synchronize, ours)}
    if name == "cpu":
        theirs = {"cumsum": np.cumsum, "nonzero": np.nonzero, "argsort": lambda a: np.argsort(a, kind="stable")}
        found["NumPy"] = (lambda a: a, lambda: None, theirs)
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
    else:
        torchs = {
            "cumsum": lambda a: torch.cumsum(a, 0),
            "nonzero": torch.nonzero,
            "argsort": lambda a: torch.argsort(a, stable=True),
        }
        if name == "cpu":
            found["torch"] = (torch.from_numpy, lambda: None, torchs)
        elif name == "cuda" and torch.cuda.is_available():
            found["torch"] = (lambda a: torch.from_numpy(a).cuda(), torch.cuda.synchronize, torchs)
    if name == "cuda":
        try:
            import cupy
        except ImportError as error:
            bench.miss(name, "CuPy", str(error))
        else:
            theirs = {"cumsum": cupy.cumsum, "nonzero": cupy.nonzero, "argsort": cupy.argsort}
            found["CuPy"] = (cupy.asarray, cupy.cuda.get_current_stream().synchronize, theirs)
    return found


if __name__ == "__main__":
    sys.exit(main())
