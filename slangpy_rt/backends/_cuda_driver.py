"""The part of the CUDA driver library that the backend calls, and its error codes as exceptions.

The library is called through cffi and not through cuda.bindings: the package imports in 0.02 s instead of
0.09, and a launch costs 0.4 us less of Python. Nothing here holds a device or a context.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from cffi import FFI

from slangpy_rt.errors import DeviceError, DeviceLostError, OutOfMemoryError

# Handles are declared as integers because a backend only hands them on. Names with _v2 are what cuda.h
# renames the plain names to since CUDA 4.0 (primary context: 11.0), so every 12.x and 13.x driver has them.
FFI_CUDA = FFI()
FFI_CUDA.cdef("""
int cuInit(unsigned int flags);
int cuGetErrorName(int status, const char **name);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int length, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceTotalMem_v2(size_t *nbytes, int device);
int cuDevicePrimaryCtxRetain(uintptr_t *context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(uintptr_t context);
int cuStreamCreate(uintptr_t *stream, unsigned int flags);
int cuStreamDestroy_v2(uintptr_t stream);
int cuStreamSynchronize(uintptr_t stream);
int cuEventCreate(uintptr_t *event, unsigned int flags);
int cuEventDestroy_v2(uintptr_t event);
int cuEventRecord(uintptr_t event, uintptr_t stream);
int cuEventSynchronize(uintptr_t event);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuMemAlloc_v2(uintptr_t *address, size_t nbytes);
int cuMemFree_v2(uintptr_t address);
int cuMemHostAlloc(uintptr_t *address, size_t nbytes, unsigned int flags);
int cuMemFreeHost(uintptr_t address);
int cuMemcpyHtoDAsync_v2(uintptr_t device, uintptr_t host, size_t nbytes, uintptr_t stream);
int cuMemcpyDtoHAsync_v2(uintptr_t host, uintptr_t device, size_t nbytes, uintptr_t stream);
int cuModuleLoadData(uintptr_t *module, const char *image);
int cuModuleGetFunction(uintptr_t *function, uintptr_t module, const char *name);
int cuModuleUnload(uintptr_t module);
typedef struct {
    unsigned int gx, gy, gz, bx, by, bz, shared_bytes;
    uintptr_t stream;
    void *attributes;
    unsigned int attribute_count;
} CUlaunchConfig;
int cuLaunchKernelEx(const CUlaunchConfig *config, uintptr_t function, void **params, void **extra);
int cuLaunchKernel(uintptr_t function, unsigned int gx, unsigned int gy, unsigned int gz,
                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared_bytes,
                   uintptr_t stream, void **params, void **extra);
""")

# Numbers of CUresult in cuda.h.
OUT_OF_MEMORY = 2
NO_DEVICE = 100
# After these the context answers every call with an error: uncorrectable ECC and NVLink errors, a kernel's
# bad address, time-out, assert, stack, instruction, alignment, address space, program counter, trap or leak.
_LOST = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721}


@functools.cache
def driver() -> Any:
    """The driver library, opened.

    Raises
    ------
    OSError
        If the machine has none.
    """
    return FFI_CUDA.dlopen("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def check(status: int, what: str) -> None:
    """Raise what a status of the driver stands for; ``what`` names the action that failed."""
    if status:
        name = FFI_CUDA.new("const char **")
        driver().cuGetErrorName(status, name)
        text = FFI_CUDA.string(name[0]).decode() if name[0] else "unknown error"
        message = f"device cuda: {what} failed: {text} ({status})"
        if status == OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{message}. Free some arrays or use smaller ones.")
        if status in _LOST:
            raise DeviceLostError(
                f"{message}. An earlier kernel may be the cause: open the device with debug=True to have "
                "every launch checked. This process cannot use the device any more; start a new one."
            )
        raise DeviceError(message)


def query(function: Any, ctype: str, *args: Any, what: str) -> int:
    """Call a driver function whose first parameter receives its result, and return that result."""
    out = FFI_CUDA.new(ctype)
    check(function(out, *args), what)
    return int(out[0])
