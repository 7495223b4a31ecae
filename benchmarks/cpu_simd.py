"""Loops over elements on the CPU, beside the same work in C++, by torch.compile, and on lavapipe.

- "64 steps" is a loop of ``s += max(min(x * i, 1), s * 0.5)`` in each of 2^20 elements, by ``min`` and ``max`` and by
  ``?:``; "sin exp cos" is ``sin(x) * exp(-x) + cos(2 * x)``; "ten operations" is that of ``pytorch.py``, forward and
  backward; "raymarch" draws a sphere and a box by steps of a distance, whose number differs between pixels, as in
  the Mandelbrot set.
- "C++, one thread" is the same loop written by hand and compiled by g++ with ``-O3 -march=native -fopenmp-simd`` and
  ``#pragma omp simd`` on the loop over elements. "lavapipe" is our call on a Vulkan device that is one in software.
- "first call" is the first call of a new kernel without a cache: Slang's compiler and the C++ compiler, in seconds.

Results are compared with NumPy's or with those of the C++ before they are timed.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# Before the package is imported, which reads it once: first calls are to compile.
os.environ["SLANGPY_RT_CACHE_DIR"] = ""

import numpy as np
import numpy.typing as npt
from _common import OURS, Bench, c_library, whole, with_lavapipe
from pytorch import SOURCE as TEN

import slangpy_rt as spy

Array = npt.NDArray[Any]

_SLANG = """
float steps(float x)
{
    float s = 0;
    for (int i = 0; i < 64; ++i)
        s += max(min(x * i, 1.0f), s * 0.5f);
    return s;
}
float choices(float x)
{
    float s = 0;
    for (int i = 0; i < 64; ++i)
    {
        float a = x * i, b = s * 0.5f;
        a = a < 1.0f ? a : 1.0f;
        s += a > b ? a : b;
    }
    return s;
}
float waves(float x) { return sin(x) * exp(-x) + cos(2 * x); }
float distance_to(float3 p)
{
    float3 q = abs(p - float3(0.8f, 0.3f, 0)) - float3(0.5f);
    float box = length(max(q, 0.0f)) + min(max(q.x, max(q.y, q.z)), 0.0f);
    return max(min(length(p) - 1.0f, box), p.y - 0.9f);
}
float march(float2 at)
{
    float3 from = float3(0, 0, -4), along = normalize(float3(at, 1.5f));
    float t = 0;
    for (int i = 0; i < 96; ++i)
    {
        float h = distance_to(from + along * t);
        if (h < 0.001f || t > 20.0f)
            break;
        t += clamp(h, 0.001f, 1.0f);
    }
    return t;
}
int mandel(float2 c)
{
    float2 z = 0;
    int n = 0;
    for (; n < 256 && dot(z, z) <= 4.0f; ++n)
        z = float2(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c;
    return n;
}
"""
_FLAGS = ("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
_CPP = """
#include <math.h>
#include <stdint.h>
#pragma omp declare simd notinbranch
extern "C" float sinf(float) noexcept;
#pragma omp declare simd notinbranch
extern "C" float cosf(float) noexcept;
#pragma omp declare simd notinbranch
extern "C" float expf(float) noexcept;
static inline float least(float a, float b) { return b != b ? a : a < b ? a : b; }
static inline float most(float a, float b) { return b != b ? a : a > b ? a : b; }
static inline float far(float x, float y, float z)
{
    float a = fabsf(x - 0.8f) - 0.5f, b = fabsf(y - 0.3f) - 0.5f, c = fabsf(z) - 0.5f;
    float u = most(a, 0), v = most(b, 0), w = most(c, 0);
    float box = sqrtf(u * u + v * v + w * w) + least(most(a, most(b, c)), 0);
    return most(least(sqrtf(x * x + y * y + z * z) - 1, box), y - 0.9f);
}
#define LOOP(NAME, FROM, TO, BODY)                                                  \\
    extern "C" void NAME(const FROM *in, TO *out, int64_t n)                        \\
    {                                                                               \\
        _Pragma("omp simd") for (int64_t k = 0; k < n; ++k) { BODY }                \\
    }
LOOP(steps, float, float, float s = 0; for (int i = 0; i < 64; ++i) s += most(least(in[k] * i, 1), s * 0.5f);
     out[k] = s;)
LOOP(choices, float, float, float s = 0; for (int i = 0; i < 64; ++i)
     { float a = in[k] * i; float b = s * 0.5f; a = a < 1 ? a : 1; s += a > b ? a : b; } out[k] = s;)
LOOP(waves, float, float, out[k] = sinf(in[k]) * expf(-in[k]) + cosf(2 * in[k]);)
LOOP(march, float, float, float x = in[2 * k]; float y = in[2 * k + 1]; float r = 1 / sqrtf(x * x + y * y + 2.25f);
     x *= r; y *= r; float z = 1.5f * r; float t = 0;
     for (int i = 0; i < 96; ++i)
     { float h = far(x * t, y * t, z * t - 4); if (h < 0.001f || t > 20) break; t += least(most(h, 0.001f), 1); }
     out[k] = t;)
LOOP(mandel, float, int, float a = in[2 * k]; float b = in[2 * k + 1]; float x = 0; float y = 0; int i = 0;
     for (; i < 256 && x * x + y * y <= 4; ++i) { float t = x * x - y * y + a; y = 2 * x * y + b; x = t; }
     out[k] = i;)
"""
_CPP_WHO = "C++, one thread"


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("cpu_simd", __doc__ or "", ("cpu",))
    bench.facts = {"c++": " ".join(("g++", *_FLAGS)), "compiler of ours": os.environ.get("SLANGPY_RT_CXX", "g++")}
    for device in bench.devices:
        modules = _modules(bench, device)
        try:
            loops: Any = _compiled()
        except (OSError, subprocess.CalledProcessError) as error:
            bench.miss(device, _CPP_WHO, str(error))
            loops = None
        size = 1 << (18 if bench.quick else 20)
        x = np.random.default_rng(0).random(size, np.float32)
        row = np.arange(180)[:, None], np.arange(320)[None]
        view = np.stack(np.broadcast_arrays((row[1] - 160) / 180, (row[0] - 90) / 180), -1).astype(np.float32)
        side = 512 if bench.quick else 2048
        line = np.arange(side) / side * 3
        plane = np.stack(np.meshgrid(line - 2, line - 1.5), -1).astype(np.float32)
        for case, name, data, kind in (
            (f"64 steps by min and max, 2^{size.bit_length() - 1}", "steps", x, "float"),
            (f"64 steps by ?:, 2^{size.bit_length() - 1}", "choices", x, "float"),
            (f"sin exp cos, 2^{size.bit_length() - 1}", "waves", x, "float"),
            ("raymarch, 180 x 320", "march", view, "float"),
            (f"Mandelbrot, {side} x {side}", "mandel", plane, "int"),
        ):
            _row(bench, device, case, modules, loops, name, data, kind)
            bench.save()
        _ten(bench, device, 1 << (20 if bench.quick else 22))
    return bench.finish()


def _modules(bench: Bench, device: str) -> dict[str, tuple[spy.Device, spy.Module]]:
    """The functions on the CPU, and on a Vulkan device in software where there is one."""
    return {
        who: (d, spy.Module.load_from_source(d, "bench_simd", _SLANG))
        for who, d in with_lavapipe(bench, device).items()
    }


def _row(
    bench: Bench, device: str, case: str, modules: dict[str, Any], loops: Any, name: str, data: Array, kind: str
) -> None:
    samplers: dict[str, Callable[[], float]] = {}
    found: dict[str, Array] = {}
    shape = data.shape[: data.ndim - (data.shape[-1] == 2)]
    for who, (opened, module) in modules.items():
        element = "float2" if data.ndim > len(shape) else "float"
        given = spy.Tensor.from_numpy(opened, data, element)
        out = spy.Tensor.empty(opened, shape, kind)
        f = getattr(module, name)
        start = time.perf_counter()
        f(given, _result=out)
        opened.synchronize()
        if who == OURS:
            bench.add(device, f"first call, {name}", "s", OURS, [time.perf_counter() - start])
        found[who] = out.to_numpy()
        samplers[who] = whole(lambda f=f, given=given, out=out: f(given, _result=out), opened.synchronize, 3, 1e3)
    if loops is not None:
        result = np.empty(shape, np.int32 if kind == "int" else np.float32)
        loop, at = getattr(loops, name), (data.ctypes.data, result.ctypes.data, result.size)
        loop(*at)
        found[_CPP_WHO] = result
        samplers[_CPP_WHO] = whole(lambda: loop(*at), lambda: None, 1, 1e3)
    _compare(bench, device, case, found)
    torch_call = _torch_waves(data) if name == "waves" else None
    if torch_call is not None:
        samplers["torch, compiled"] = whole(torch_call, lambda: None, 3, 1e3)
    bench.compare(device, case, "ms", samplers)


def _compare(bench: Bench, device: str, case: str, found: dict[str, Array]) -> None:
    """Note how many elements differ from ours by more than rounding; at edges of pictures some may."""
    for who, result in found.items():
        off = np.abs(result.astype(np.float64) - found[OURS]) > 1e-3
        share = float(np.mean(off))
        if who != OURS:
            bench.facts[f"{case}: elements of {who} that differ"] = share
        if share > 0.01:
            bench.miss(device, who, f"{case}: {share:.1%} of its elements differ from ours")


def _torch_waves(data: Array) -> Callable[[], object] | None:
    """The function by torch.compile; None without PyTorch or a compiler for it."""
    try:
        torch: Any = importlib.import_module("torch")
        x = torch.from_numpy(data)
        f = torch.compile(lambda x: torch.sin(x) * torch.exp(-x) + torch.cos(2 * x))
        f(x)
    except Exception:  # a peer may raise whatever it likes
        return None
    return lambda: f(x)


def _ten(bench: Bench, device: str, size: int) -> None:
    """Forward and backward of ten operations on PyTorch's tensors, and backward alone on ours."""
    case = f"ten operations, 2^{size.bit_length() - 1}"
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        bench.miss(device, "torch", str(error))
        return
    module: Any = spy.Module.load_from_source(spy.create_torch_device(device), "bench_ten", TEN)

    def shade(a: Any, b: Any) -> Any:
        x = a * b + 0.5
        y = torch.exp(-x * x) + torch.sqrt(torch.abs(b) + 1)
        return y / (1 + x * x) - a

    a, b, grad = (torch.rand(size) for _ in range(3))
    a.requires_grad_()
    b.requires_grad_()

    def step(f: Any) -> tuple[Any, Any]:
        a.grad = b.grad = None
        f(a, b).backward(grad)
        return a.grad, b.grad

    expected = step(shade)
    samplers = {}
    for who, f in {OURS: module.shade, "torch": shade, "torch, compiled": torch.compile(shade)}.items():
        try:
            for got, want in zip(step(f), expected, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, who, f"{case}: {' '.join(str(error).split())[:200]}")
            continue
        samplers[who] = whole(lambda f=f: step(f), lambda: None, 3, 1e3)
    bench.compare(device, case, "ms", samplers)


def _compiled() -> Any:
    """The C++ loops as a library.

    Raises
    ------
    OSError
        If there is no g++, or its output does not load.
    subprocess.CalledProcessError
        If it refuses the text.
    """
    loops = c_library(_CPP, *_FLAGS)
    for name in ("steps", "choices", "waves", "march", "mandel"):
        loop = getattr(loops, name)
        loop.argtypes, loop.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
    return loops


if __name__ == "__main__":
    sys.exit(main())
