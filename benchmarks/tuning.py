"""Tuned functions: the host time of a call whose configuration is known, the time of a search, and what it chooses.

- "call": host microseconds of a call over 1000 floats into a given array, by the function itself, by a tuned function
  with a winner in memory, and by Triton's autotuner with a winner in memory.
- "search": seconds of the first call of a blur of 2048 x 2048 floats with 16 configurations in a new process, with
  nothing on disk (compiled and measured), with all kernels on disk (measured), and with all times on disk.
- "choice / best": the time of the configuration that a search chose, divided by that of the best of an exhaustive
  measurement: 31 runs of each configuration in turn, medians. One number for each of ten searches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, per_call
from _peers import _from_text

import slangpy_rt as spy

_ELEMENTS = 1000
_CHILD = """
import json, sys, time
import numpy as np
import slangpy_rt as spy
from statistics import median
SOURCE = '''
extern static const int STEP = 1;
float blur(int2 at, Tensor<float, 2> image)
{
    float sum = 0;
    for (int y = -4; y <= 4; ++y)
        for (int x = -4; x <= 4; x += STEP)
            [ForceUnroll] for (int k = 0; k < STEP; ++k)
                if (x + k <= 4)
                    sum += image[clamp(at.y + y, 0, SIZE - 1), clamp(at.x + x + k, 0, SIZE - 1)];
    return sum / 81;
}
'''
size, searches = int(sys.argv[2]), int(sys.argv[3])
device = spy.Device(sys.argv[1])
module = spy.Module.load_from_source(device, "blurs", SOURCE, defines={"SIZE": size})
image = spy.Tensor.from_numpy(device, np.random.default_rng(0).random((size, size), dtype=np.float32))
out = spy.Tensor.empty(device, (size, size))
steps, groups = [1, 2, 4, 9], [(4, 8), (8, 32), (2, 128), 256]
at = spy.grid((size, size))
tuned = module.blur.constants({"STEP": steps}).group_size(groups)
began = time.perf_counter()
tuned(at, image, _result=out)
device.synchronize()
first = time.perf_counter() - began
ratios = []
if searches:
    functions = {c: module.blur.constants({"STEP": c.STEP}).group_size(c.group_size) for c in tuned.configs}
    timer = device.timer()
    seconds = {c: [] for c in functions}
    for _ in range(31):
        for c, f in functions.items():
            with timer:
                f(at, image, _result=out)
            seconds[c].append(timer.seconds)
    every = {c: median(s) for c, s in seconds.items()}
    for _ in range(searches):
        chosen = tuned.tune().best(at, image, _result=out)
        ratios.append(every[chosen] / min(every.values()))
print(json.dumps([first, ratios]))
"""
_TRITON = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"B": 128}), triton.Config({"B": 256})], key=["n"])
@triton.jit
def add(a, b, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < n
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)
"""


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("tuning", __doc__ or "")
    bench.facts = {"elements": _ELEMENTS}
    for name in bench.devices:
        _calls(bench, name)
        _searches(bench, name)
        bench.save()
    return bench.finish()


def _calls(bench: Bench, name: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(_ELEMENTS, np.float32), rng.random(_ELEMENTS, np.float32)
    with spy.Device(name) as device:
        add = spy.Module.load_from_source(device, "tuned", "float add(float a, float b) { return a + b; }").add
        x, y, out = (spy.Tensor.from_numpy(device, v) for v in (a, b, a))
        tuned = add.group_size([128, 256])
        seconds = 0.0005 if bench.quick else 0.002
        callers: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            OURS: (lambda: tuned(x, y, _result=out), device.synchronize),
            f"{OURS}, not tuned": (lambda: add(x, y, _result=out), device.synchronize),
            f"{OURS}, new result": (lambda: tuned(x, y), device.synchronize),
        }
        if name == "cuda":
            try:
                callers["Triton"] = _triton(a, b)
            except Exception as error:  # whatever its compiler raises
                bench.miss(name, "Triton", f"call: {error}")
        for call, sync in callers.values():
            call()
            sync()
        np.testing.assert_array_equal(out.to_numpy(), a + b)
        bench.compare(
            name, "call", "us", {who: per_call(call, sync, seconds, 256) for who, (call, sync) in callers.items()}
        )


def _triton(a: Any, b: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    kernel = _from_text("bench_tuned_triton", _TRITON).add
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    out = torch.empty_like(x)

    def call() -> None:
        kernel[lambda meta: ((_ELEMENTS + meta["B"] - 1) // meta["B"],)](x, y, out, _ELEMENTS)

    return call, torch.cuda.synchronize


def _searches(bench: Bench, name: str) -> None:
    size = 512 if bench.quick or name == "cpu" else 2048
    searches = 2 if bench.quick else 10
    with tempfile.TemporaryDirectory() as folder:

        def run(count: int, tune: str) -> tuple[float, list[float]]:
            env = {**os.environ, "SLANGPY_RT_CACHE_DIR": folder, "SLANGPY_RT_TUNE": tune}
            words = [sys.executable, "-c", _CHILD, name, str(size), str(count)]
            done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise RuntimeError(done.stderr[-500:])
            first, ratios = json.loads(done.stdout)
            return first, ratios

        bench.add(name, "search, nothing on disk", "s", OURS, [run(0, "on")[0]])
        bench.add(name, "search, times on disk", "s", OURS, [run(0, "on")[0] for _ in range(3)])
        bench.add(name, "search, kernels on disk", "s", OURS, [run(0, "force")[0] for _ in range(3)])
        bench.add(name, "choice / best", "", OURS, run(searches, "force")[1])


if __name__ == "__main__":
    sys.exit(main())
