"""Wall time of a fresh process that adds two arrays of 1000 floats and has the result in NumPy.

Every sample is a new interpreter, its files in the system's page cache. The row without "cold" finds its
kernels in a cache on disk; it must not load the Slang compiler, which it proves by its memory map. The
floor is an interpreter that imports NumPy and, for a GPU, opens an empty context through ctypes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from _common import OURS, Bench

_ADD = "float add(float a, float b) { return a + b; }"
_ARRAYS = "import numpy as np\na = np.arange(1000, dtype=np.float32)\n"
_CHECK = "assert (c == a + a).all()\nprint(int('libslang' in open('/proc/self/maps').read()))\n"
_OURS = f"""{_ARRAYS}
import slangpy_rt as spy
device = spy.Device("@device@")
c = spy.Module.load_from_source(device, "bench", "{_ADD}").add(a, a)
{_CHECK}"""
_SLANGPY = f"""{_ARRAYS}
import slangpy as spy
device = spy.Device(
    type=spy.DeviceType.@device@, enable_rhi_validation=False,
    compiler_options={{"include_paths": [spy.SHADER_PATH]}}, @cache@
)
c = spy.Module.load_from_source(device, "bench", "{_ADD}").add(a, a, _result="numpy")
{_CHECK}"""
_FLOOR = {
    "cpu": f"{_ARRAYS}c = a + a\n{_CHECK}",
    "cuda": f"""{_ARRAYS}
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
c = a + a
{_CHECK}""",
    # The structures of vulkan_core.h as arrays of 64-bit words, which start with their type: 0 describes an
    # application, 1 creates an instance, 2 a queue, 3 a device. 1 << 32 is the count in a word's upper half.
    "vulkan": f"""{_ARRAYS}
import ctypes
from ctypes import addressof, byref, c_float, c_uint32, c_uint64, c_void_p
vk = ctypes.CDLL("libvulkan.so.1")
application = (c_uint64 * 6)(0, 0, 0, 0, 0, (1 << 22 | 3 << 12) << 32)
instance = c_void_p()
create = (c_uint64 * 8)(1, 0, 0, addressof(application), 0, 0, 0, 0)
assert vk.vkCreateInstance(create, None, byref(instance)) == 0
number, devices = c_uint32(1), (c_void_p * 1)()
assert vk.vkEnumeratePhysicalDevices(instance, byref(number), devices) in (0, 5)
priority = c_float(1)
queue = (c_uint64 * 5)(2, 0, 0, 1, addressof(priority))
made = c_void_p()
create = (c_uint64 * 9)(3, 0, 1 << 32, addressof(queue), 0, 0, 0, 0, 0)
assert vk.vkCreateDevice(c_void_p(devices[0]), create, None, byref(made)) == 0
c = a + a
{_CHECK}""",
}


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("startup", __doc__ or "")
    # Some machines forbid it: every start would compile every package again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for device in bench.devices:
        with tempfile.TemporaryDirectory(prefix="slangpy_rt_bench_") as folder:
            _measure(bench, device, Path(folder))
        bench.save()
    return bench.finish()


def _measure(bench: Bench, device: str, folder: Path) -> None:
    ours = _OURS.replace("@device@", device)
    fresh = count()
    caches = ", ".join(f'{kind}_cache_path="{folder / kind}"' for kind in ("module", "shader"))
    samplers: dict[str, Callable[[], float]] = {
        OURS: _process(ours, folder / "warm", may_load_slang=False),
        f"{OURS}, cold cache": lambda: _process(ours, folder / f"cold{next(fresh)}")(),
        "floor": _process(_FLOOR[device]),
    }
    if device != "cpu":
        theirs = _SLANGPY.replace("@device@", device)
        samplers["slangpy, default"] = _process(theirs.replace("@cache@", ""))
        samplers["slangpy, both caches warm"] = _process(theirs.replace("@cache@", caches))
    else:
        bench.miss(device, "slangpy", "its functional calls do not run on its CPU device")
    # What the first, uncounted turn of ``compare`` is to the others, this is to the proof of a warm cache.
    _process(ours, folder / "warm")()
    bench.compare(device, "first result", "s", samplers, 3 if bench.quick else 7)


def _process(text: str, cache: Path | None = None, may_load_slang: bool = True) -> Callable[[], float]:
    """A sampler of a new interpreter's seconds; ``cache`` is where ours keeps its kernels.

    ``env`` sets the variable, which costs a millisecond; the floor goes through it too.
    """
    command = ["env", f"SLANGPY_RT_CACHE_DIR={cache or ''}", sys.executable, "-c", text]

    def sample() -> float:
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-400:])
        if not may_load_slang and done.stdout.strip() != "0":
            raise RuntimeError("a process with a warm cache loaded the Slang compiler")
        return seconds

    return sample


if __name__ == "__main__":
    sys.exit(main())
