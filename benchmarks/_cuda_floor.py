"""What the CUDA driver itself takes: an empty launch, a copy on the device, copies from and to pinned memory.

Called through cffi with a declaration of its own, so that nothing of the library under test is in a floor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cffi import FFI

_FFI = FFI()
_FFI.cdef("""
int cuInit(unsigned int flags);
int cuDevicePrimaryCtxRetain(uintptr_t *context, int device);
int cuCtxSetCurrent(uintptr_t context);
int cuStreamCreate(uintptr_t *stream, unsigned int flags);
int cuStreamSynchronize(uintptr_t stream);
int cuModuleLoadData(uintptr_t *module, const char *image);
int cuModuleGetFunction(uintptr_t *function, uintptr_t module, const char *name);
int cuLaunchKernel(uintptr_t function, unsigned int gx, unsigned int gy, unsigned int gz,
                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared_bytes,
                   uintptr_t stream, void **params, void **extra);
int cuMemAlloc_v2(uintptr_t *address, size_t nbytes);
int cuMemHostAlloc(uintptr_t *address, size_t nbytes, unsigned int flags);
int cuMemcpyHtoDAsync_v2(uintptr_t device, uintptr_t host, size_t nbytes, uintptr_t stream);
int cuMemcpyDtoHAsync_v2(uintptr_t host, uintptr_t device, size_t nbytes, uintptr_t stream);
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t nbytes, uintptr_t stream);
""")
# 7.5 is the oldest architecture that CUDA 13 drivers take; newer GPUs compile it for themselves.
_PTX = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
"""
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class CudaFloor:
    """A stream of the first device's primary context. Memory it allocates stays until the process ends.

    Raises
    ------
    OSError
        If the machine has no CUDA driver.
    RuntimeError
        If the driver refuses a call.
    """

    def __init__(self) -> None:
        self._cu: Any = _FFI.dlopen("libcuda.so.1")
        _check(self._cu.cuInit(0))
        self._context = self._get(self._cu.cuDevicePrimaryCtxRetain, 0)
        self._enter()
        self._stream = self._get(self._cu.cuStreamCreate, _NON_BLOCKING)
        image = _FFI.new("char[]", _PTX)
        module = self._get(self._cu.cuModuleLoadData, image)
        self._function = self._get(self._cu.cuModuleGetFunction, module, b"nothing")
        self._launch = self._cu.cuLaunchKernel

    def launch(self) -> None:
        """Queue an empty kernel over the groups that 1000 floats take at four a thread."""
        if self._launch(self._function, 1, 1, 1, 256, 1, 1, 0, self._stream, _FFI.NULL, _FFI.NULL):
            raise RuntimeError("the CUDA driver refused to launch an empty kernel")

    def sync(self) -> None:
        """Wait for the stream, and make its context current for the launches that follow."""
        self._enter()
        _check(self._cu.cuStreamSynchronize(self._stream))

    def device_copy(self, nbytes: int) -> Callable[[], None]:
        """A call that queues a copy on the device."""
        self._enter()
        to, source = (self._get(self._cu.cuMemAlloc_v2, nbytes) for _ in range(2))

        def call() -> None:
            _check(self._cu.cuMemcpyDtoDAsync_v2(to, source, nbytes, self._stream))

        return call

    def pinned_add(self, nbytes: int) -> Callable[[], None]:
        """A call that queues the copies of an addition: two up from pinned memory, one down to it."""
        self._enter()
        device = [self._get(self._cu.cuMemAlloc_v2, nbytes) for _ in range(3)]
        host = [self._get(self._cu.cuMemHostAlloc, nbytes, 0) for _ in range(3)]
        for address in host:  # touched, as memory in use is
            np.frombuffer(_FFI.buffer(_FFI.cast("char *", address), nbytes), np.uint8)[:] = 0

        def call() -> None:
            _check(self._cu.cuMemcpyHtoDAsync_v2(device[0], host[0], nbytes, self._stream))
            _check(self._cu.cuMemcpyHtoDAsync_v2(device[1], host[1], nbytes, self._stream))
            _check(self._cu.cuMemcpyDtoHAsync_v2(host[2], device[2], nbytes, self._stream))

        return call

    def _enter(self) -> None:
        _check(self._cu.cuCtxSetCurrent(self._context))

    def _get(self, function: Any, *args: Any) -> int:
        out = _FFI.new("uintptr_t *")
        _check(function(out, *args))
        return int(out[0])


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver answered with error {status}")
