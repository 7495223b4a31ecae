"""What the devices do with large arrays: an addition, a tone curve and a Mandelbrot set.

The first two are bound by memory and given in GB/s of what has to move (12 bytes an element of an addition,
24 of the tone curve, 8 of a copy); the third by arithmetic and given in milliseconds. Several calls are
queued to one wait, which is counted. The C++ of the Mandelbrot set is compiled here by g++ with -O3.
"""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from _common import OURS, SOURCE, Bench, c_library, on_host, whole
from _cuda_floor import CudaFloor
from _peers import GIVEN, adders, open_slangpy

import slangpy_rt as spy

_LOOP = """
extern "C" void mandel(int size, float x0, float y0, float scale, int n, int *out)
{
    for (int py = 0; py < size; ++py)
        for (int px = 0; px < size; ++px) {
            float cx = x0 + scale * px, cy = y0 + scale * py, x = 0, y = 0;
            int i = 0;
            for (; i < n && x * x + y * y <= 4; ++i) {
                float t = x * x - y * y + cx;
                y = 2 * x * y + cy;
                x = t;
            }
            out[py * size + px] = i;
        }
}
"""
_FLAGS = ("-O3", "-fPIC", "-shared")
_ITERATIONS = 256
_CORNER, _WIDTH = (-2.0, -1.5), 3.0
_PEERS = (OURS, "slangpy", "torch", "Warp", "NumPy")

Sampler = Callable[[], float]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("throughput", __doc__ or "", ("cuda", "vulkan", "d3d12", "cpu"))
    bench.facts = {"iterations": _ITERATIONS, "c++": " ".join(("g++", *_FLAGS))}
    for device, info in bench.devices.items():
        host = on_host(device, info)
        size = 2**24 if device == "cpu" else 2**22 if host else 2**28
        if bench.quick:
            size //= 4
        for measure in (_add, _tone, _mandel):
            measure(bench, device, size, host)
            bench.save()
    return bench.finish()


def _add(bench: Bench, device: str, size: int, host: bool) -> None:
    a, b = np.random.default_rng(0).random((2, size), np.float32)
    calls = 4 if host else 10
    samplers = {
        p.who: _rate(12 * size, whole(p.calls[GIVEN], p.sync, calls)) for p in adders(bench, device, a, b, _PEERS)
    }
    if device == "cuda":
        floor = CudaFloor()
        samplers["device copy"] = _rate(8 * size, whole(floor.device_copy(4 * size), floor.sync, calls))
    elif device == "vulkan":
        try:
            samplers["device copy"] = _rate(8 * size, _slangpy_copy(device, a, calls))
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, "device copy", str(error))
    elif host:
        samplers["memcpy"] = _rate(8 * size, whole(lambda: np.copyto(b, a), lambda: None, calls))
    _warm(samplers, host)
    bench.compare(device, f"add, 2^{size.bit_length() - 1} floats", "GB/s", samplers)


def _tone(bench: Bench, device: str, size: int, host: bool) -> None:
    size //= 4
    x = np.random.default_rng(0).random((size, 3), np.float32)
    wanted = x[:1000] / (x[:1000] + np.float32(0.5))
    calls = 4 if host else 10
    bound, samplers = 24 * size, {}
    opened = spy.Device(device)
    module = spy.Module.load_from_source(opened, "bench", SOURCE)
    tensor, out = spy.Tensor.from_numpy(opened, x, "float3"), spy.Tensor.empty(opened, size, "float3")
    samplers[OURS] = _rate(bound, whole(lambda: module.tone(tensor, 0.5, _result=out), opened.synchronize, calls))
    if device == "cpu":
        c, k = np.empty_like(x), np.float32(0.5)
        samplers["NumPy, two steps"] = _rate(
            bound, whole(lambda: np.divide(x, np.add(x, k, out=c), out=c), lambda: None, calls)
        )
    else:
        try:
            samplers["slangpy"] = _rate(bound, _slangpy_tone(device, x, wanted, calls))
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, "slangpy", f"tone: {error}")
    if device == "cuda":
        try:
            torch: Any = importlib.import_module("torch")
            tx = torch.from_numpy(x).cuda()
            samplers["torch, two steps"] = _rate(
                bound, whole(lambda: torch.div(tx, tx + 0.5), torch.cuda.synchronize, calls)
            )
        except ImportError as error:
            bench.miss(device, "torch", str(error))
    _warm(samplers, host)
    bench.compare(device, f"tone curve, 2^{size.bit_length() - 1} float3", "GB/s", samplers)
    np.testing.assert_allclose(out[:1000].to_numpy(), wanted, rtol=1e-5)


def _mandel(bench: Bench, device: str, size: int, host: bool) -> None:
    side = 1024 if bench.quick else 4096
    scale = _WIDTH / side
    opened = spy.Device(device)
    module = spy.Module.load_from_source(opened, "bench", SOURCE)
    out = spy.Tensor.empty(opened, (side, side), "int")
    corner = np.array(_CORNER, np.float32)
    samplers: dict[str, Sampler] = {
        OURS: whole(
            lambda: module.mandel(spy.call_id(), corner, scale, _ITERATIONS, _result=out),
            opened.synchronize,
            1 if host else 10,
            1e3,
        )
    }
    if device == "cpu":
        try:
            loop, reference = _compiled_loop(), np.empty((side, side), np.int32)
            args = (side, *_CORNER, scale, _ITERATIONS, reference.ctypes.data)
            samplers["C++ -O3, one thread"] = whole(lambda: loop(*args), lambda: None, 1, 1e3)
        except (OSError, subprocess.CalledProcessError) as error:
            bench.miss(device, "C++ -O3, one thread", str(error))
    else:
        try:
            samplers["slangpy"] = _slangpy_mandel(device, side, 1 if host else 10)
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, "slangpy", f"mandelbrot: {error}")
    _warm(samplers, host)
    bench.compare(device, f"Mandelbrot, {side} x {side}", "ms", samplers, 3 if host else None)
    if device == "cpu" and "C++ -O3, one thread" in samplers:
        # Rounding may differ at the set's edge: Slang and g++ order and fuse the same operations differently.
        bench.facts["mandelbrot pixels equal to C++"] = float(np.mean(out.to_numpy() == reference))


def _warm(samplers: dict[str, Sampler], host: bool) -> None:
    """Let a GPU work for a second first: one that was idle may have a lower clock, which others' turns hide."""
    end = time.perf_counter() + (OURS in samplers and not host)
    while time.perf_counter() < end:
        samplers[OURS]()


def _rate(nbytes: int, seconds: Sampler) -> Sampler:
    return lambda: nbytes / seconds() / 1e9


def _slangpy_copy(device: str, a: npt.NDArray[Any], calls: int) -> Sampler:
    sp, opened, _ = open_slangpy(device)
    source, to = sp.Tensor.from_numpy(opened, a), sp.Tensor.zeros(opened, a.shape, "float")

    def copy() -> None:
        encoder = opened.create_command_encoder()
        encoder.copy_buffer(to.storage, 0, source.storage, 0, a.nbytes)
        opened.submit_command_buffer(encoder.finish())

    return whole(copy, opened.wait, calls)


def _slangpy_tone(device: str, x: npt.NDArray[Any], wanted: npt.NDArray[Any], calls: int) -> Sampler:
    sp, opened, module = open_slangpy(device)
    tensor, out = sp.Tensor.from_numpy(opened, x), sp.Tensor.zeros(opened, (len(x),), "float3")
    module.tone(tensor, 0.5, _result=out)
    np.testing.assert_allclose(out.to_numpy()[: len(wanted)], wanted, rtol=1e-5)
    return whole(lambda: module.tone(tensor, 0.5, _result=out), opened.wait, calls)


def _slangpy_mandel(device: str, side: int, calls: int) -> Sampler:
    sp, opened, module = open_slangpy(device)
    out = sp.Tensor.zeros(opened, (side, side), "int")
    corner, index = sp.float2(*_CORNER), sp.call_id()
    return whole(
        lambda: module.mandel(index, corner, _WIDTH / side, _ITERATIONS, _result=out), opened.wait, calls, 1e3
    )


def _compiled_loop() -> Callable[..., None]:
    """The C++ loop as a function.

    Raises
    ------
    OSError
        If there is no g++, or its output does not load.
    subprocess.CalledProcessError
        If it refuses the text.
    """
    loop: Any = c_library(_LOOP, *_FLAGS).mandel
    loop.argtypes = (ctypes.c_int, *[ctypes.c_float] * 3, ctypes.c_int, ctypes.c_void_p)
    loop.restype = None
    found: Callable[..., None] = loop
    return found


if __name__ == "__main__":
    sys.exit(main())
