"""Scratch: how to call cuLaunchKernel most cheaply from Python, and what the backend makes of it.

Run once on a GPU: python benchmarks/_cuda_launch_variants.py
"""

from __future__ import annotations

import ctypes
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from cuda.bindings import driver as cu

from slangpy_rt.backends._cuda_driver import FFI_CUDA as ffi
from slangpy_rt.backends._cuda_driver import driver
from slangpy_rt.backends.base import KernelInfo
from slangpy_rt.backends.cuda import CudaBackend

CODE = b"""
struct Call { unsigned n; float* a; float* b; float* r; };
extern "C" __global__ void kernel(Call call) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < call.n) call.r[i] = call.a[i] + call.b[i];
}
"""
BATCH, BATCHES = 500, 40  # 20,000 launches; the queue holds 1024, so a batch never waits for the device

t0 = time.perf_counter()
backend = CudaBackend()
print(f"{backend.description}; Python {sys.version.split()[0]}; open {time.perf_counter() - t0:.3f} s")
print(f"toolchain: {backend.toolchain()}")
t0 = time.perf_counter()
binary = backend.compile(CODE, "kernel")
print(f"first compile, NVRTC load included: {time.perf_counter() - t0:.3f} s")
kernel = backend.load(binary, KernelInfo("kernel", (256, 1, 1), 32, (False, False, True)))
function: int = kernel.function  # type: ignore[attr-defined]
n = 1000
a, b, r = (backend.alloc(4 * n) for _ in range(3))
args = struct.pack("<I4xQQQ", n, a.address, b.address, r.address)
stream = backend.stream
lock = threading.Lock()


def measure(name: str, call: Callable[[], object], wait: bool = True) -> None:
    times = []
    for _ in range(BATCHES + 3):
        t = time.perf_counter()
        for _ in range(BATCH):
            call()
        times.append((time.perf_counter() - t) / BATCH * 1e6)
        if wait:
            backend.sync()
    print(f"{name:58s} median {statistics.median(times[3:]):6.3f}  min {min(times[3:]):6.3f} us")


# cuda.bindings: an address of an array of pointers, or of the extra list, as plain integers.
block = ctypes.create_string_buffer(args, 32)
block_at = ctypes.addressof(block)
params = (ctypes.c_void_p * 1)(block_at)
params_at = ctypes.addressof(params)
size = ctypes.c_size_t(32)
extra = (ctypes.c_void_p * 5)(1, block_at, 2, ctypes.addressof(size), 0)
extra_at = ctypes.addressof(extra)
h_function, h_stream = cu.CUfunction(function), cu.CUstream(stream)


def bindings(function: object, stream: object, params_at: int, extra_at: int) -> Callable[[], object]:
    def call() -> None:
        with lock:
            ctypes.memmove(block_at, args, 32)
            cu.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, params_at, extra_at)

    return call


# cffi, with a block to copy the arguments into, or the bytes' own address.
c_block = ffi.new("char[32]")
c_view = ffi.buffer(c_block)
c_params = ffi.new("void *[1]", [c_block])
c_size = ffi.new("size_t *", 32)
c_extra = ffi.new("void *[5]", [ffi.cast("void *", 1), c_block, ffi.cast("void *", 2), c_size, ffi.NULL])
launch, NULL, from_buffer = driver().cuLaunchKernel, ffi.NULL, ffi.from_buffer


def cffi_params() -> None:
    with lock:
        c_view[:] = args
        launch(function, 4, 1, 1, 256, 1, 1, 0, stream, c_params, NULL)


def cffi_extra() -> None:
    with lock:
        c_view[:] = args
        launch(function, 4, 1, 1, 256, 1, 1, 0, stream, NULL, c_extra)


def cffi_bytes() -> None:
    launch(function, 4, 1, 1, 256, 1, 1, 0, stream, [from_buffer(args)], NULL)


c_config = ffi.new("CUlaunchConfig *", (4, 1, 1, 256, 1, 1, 0, stream))
launch_ex = driver().cuLaunchKernelEx


def cffi_ex() -> None:
    launch_ex(c_config, function, [from_buffer(args)], NULL)


groups, buffers = (4, 1, 1), (a, b, r)
measure("cuda.bindings kernelParams, int handles", bindings(function, stream, params_at, 0))
measure("cuda.bindings extra, int handles", bindings(function, stream, 0, extra_at))
measure("cuda.bindings kernelParams, object handles", bindings(h_function, h_stream, params_at, 0))
measure("cuda.bindings extra, object handles", bindings(h_function, h_stream, 0, extra_at))
measure("cffi kernelParams, lock and copy", cffi_params)
measure("cffi extra, lock and copy", cffi_extra)
measure("cffi kernelParams, address of the bytes, no lock", cffi_bytes)
measure("cffi cuLaunchKernelEx, address of the bytes, no lock", cffi_ex)
measure("backend.launch", lambda: backend.launch(kernel, groups, args, buffers))
measure("backend.alloc and free", lambda: backend.alloc(4000), wait=False)

x, y = np.ones(n, np.float32), np.empty(n, np.float32)
mx, my = memoryview(x), memoryview(y)
measure("upload 4 KB", lambda: backend.upload(a, 0, mx))
measure("download 4 KB", lambda: backend.download(r, 0, my))

big = 1 << 24
ba, bb, br = (backend.alloc(4 * big) for _ in range(3))
big_args = struct.pack("<I4xQQQ", big, ba.address, bb.address, br.address)
p, q = np.random.default_rng(0).random((2, big), np.float32)
for turn in range(6):
    t0 = time.perf_counter()
    backend.upload(ba, 0, memoryview(p))
    t1 = time.perf_counter()
    backend.upload(bb, 0, memoryview(q))
    t2 = time.perf_counter()
    backend.launch(kernel, (big // 256, 1, 1), big_args, (ba, bb, br))
    out = np.empty(big, np.float32)  # fresh pages each time, as a user's result has
    backend.download(br, 0, memoryview(out))
    t3 = time.perf_counter()
    assert np.array_equal(out, p + q)
    print(
        f"64 MiB up, up, add, down (turn {turn}): {(t1 - t0) * 1e3:.2f} + {(t2 - t1) * 1e3:.2f} + "
        f"{(t3 - t2) * 1e3:.2f} = {(t3 - t0) * 1e3:.2f} ms"
    )
    t0 = time.perf_counter()
    backend.download(br, 0, memoryview(out))
    print(f"    download again into touched pages {(time.perf_counter() - t0) * 1e3:.2f} ms")
    del out
backend.close()
