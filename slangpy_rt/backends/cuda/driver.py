"""Opens the CUDA driver library, and raises its error codes as exceptions.

The library is called through cffi, which imports in 1 ms, and not through cuda.bindings, which takes 31 ms (two
cores) and 0.5 us more for a launch (H200). codegen/tools/gen_cuda_ffi.py declares the functions. Nothing here holds a
device or a context.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from slangpy_rt.backends.cuda.ffi import ffi
from slangpy_rt.core.errors import DeviceError, DeviceLostError, OutOfMemoryError

FFI_CUDA: Any = ffi

# Numbers of CUresult in cuda.h.
OUT_OF_MEMORY = 2
NO_DEVICE = 100
NOT_READY = 600
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# After these errors every call in the context fails: uncorrectable ECC and NVLink errors, a kernel's bad address,
# time-out, assert, stack, instruction, alignment, address space, program counter, trap or leak.
_LOST = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721}


@functools.cache
def driver() -> Any:
    """Open the driver library once, and return it.

    Raises
    ------
    OSError
        If the machine has none.
    """
    return FFI_CUDA.dlopen("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def check(status: int, what: str) -> None:
    """Raise an exception if a driver's status is an error; ``what`` names the action for the message.

    Raises
    ------
    OutOfMemoryError, DeviceLostError, DeviceError
        By the status.
    """
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
