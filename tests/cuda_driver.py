"""A stand-in in host memory for the driver of CUDA with two GPUs: each call checks which context is current."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slangpy_rt.backends.cuda import driver as _cuda_driver

FFI = _cuda_driver.FFI_CUDA

# What makes a handle, returned through the first parameter, and what gives one back, the first parameter.
MAKES = {
    "cuStreamCreate", "cuEventCreate", "cuModuleLoadData", "cuModuleGetFunction", "cuGraphCreate",
    "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags", "cuMipmappedArrayCreate", "cuTexObjectCreate",
    "cuSurfObjectCreate",
}  # fmt: skip
GIVES = {
    "cuStreamDestroy_v2", "cuEventDestroy_v2", "cuModuleUnload", "cuGraphDestroy", "cuGraphExecDestroy",
    "cuMemFree_v2", "cuMemFreeHost", "cuMipmappedArrayDestroy", "cuTexObjectDestroy", "cuSurfObjectDestroy",
}  # fmt: skip
ASKS = {"cuEventQuery", "cuStreamIsCapturing", "cuStreamGetCtx", "cuMemGetInfo_v2"}


class Driver:
    """Two GPUs. ``wrong`` has the calls that were not right."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.retained = [0, 0]
        self.owner: dict[int, int] = {}
        self.memory: dict[int, Any] = {}
        self.wrong: list[str] = []
        self.calls: list[str] = []
        self.texels: dict[tuple[int, int], Any] = {}
        self._next = itertools.count(1 << 20)

    @property
    def current(self) -> int:
        return int(getattr(self.local, "context", 0))

    def cuInit(self, flags: int) -> int:
        return 0

    def cuGetErrorName(self, status: int, name: Any) -> int:
        return 0

    def cuFuncGetAttribute(self, out: Any, attribute: int, function: int) -> int:
        out[0] = 1024 if attribute == 0 else 0
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out: Any, function: int, threads: int, shared: int) -> int:
        if not self.current:
            self.wrong.append("cuOccupancyMaxActiveBlocksPerMultiprocessor")
        # A kernel of 168 registers a thread, of 65536.
        out[0] = 65536 // 168 // threads
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out[0] = 2
        return 0

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:
        out[0] = ordinal
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> int:
        out[0] = 9
        return 0

    def cuDeviceGetName(self, out: Any, length: int, device: int) -> int:
        out[0:5] = b"fake\0"
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, device: int) -> int:
        out[0] = 1 << 30
        return 0

    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> int:
        self.retained[device] += 1
        out[0] = 1000 + device
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> int:
        self.retained[device] -= 1
        if not self.retained[device]:
            kept = [h for h, context in self.owner.items() if context == 1000 + device]
            self.wrong += [f"handle {h} outlives its context" for h in kept]
        return 0

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:
        active[0] = self.retained[device] > 0
        return 0

    def cuCtxGetCurrent(self, out: Any) -> int:
        out[0] = self.current
        return 0

    def cuCtxSetCurrent(self, context: int) -> int:
        if context and not self.retained[context - 1000]:
            self.wrong.append(f"a context that is gone was made current: {context}")
        self.local.context = context
        return 0

    def cuStreamGetCtx(self, stream: int, out: Any) -> int:
        out[0] = self.owner[stream]
        return 0

    def cuMemAlloc_v2(self, out: Any, nbytes: int) -> int:
        return self._allocate(out, nbytes)

    def cuMemHostAlloc(self, out: Any, nbytes: int, flags: int) -> int:
        return self._allocate(out, nbytes)

    def cuMemHostGetDevicePointer_v2(self, out: Any, host: int, flags: int) -> int:
        self._check("cuMemHostGetDevicePointer_v2", host)
        out[0] = host
        return 0

    def cuMemcpyHtoDAsync_v2(self, device: int, host: int, nbytes: int, stream: int) -> int:
        self._check("cuMemcpyHtoDAsync_v2", stream)
        ctypes.memmove(device, host, nbytes)
        return 0

    cuMemcpyDtoHAsync_v2 = cuMemcpyAsync = cuMemcpyHtoDAsync_v2

    def cuMemsetD8Async(self, device: int, value: int, nbytes: int, stream: int) -> int:
        self._check("cuMemsetD8Async", stream)
        ctypes.memset(device, value, nbytes)
        return 0

    def cuMipmappedArrayGetLevel(self, out: Any, array: int, level: int) -> int:
        self._check("cuMipmappedArrayGetLevel", array)
        out[0] = array << 8 | level
        return 0

    def cuMemcpy3DAsync_v2(self, told: Any, stream: int) -> int:
        """Copy between memory and one layer of a level, which is a block of its own here."""
        into = told.dst.type == 3
        array, memory = (told.dst, told.src) if into else (told.src, told.dst)
        self._check("cuMemcpy3DAsync_v2", stream, array.array >> 8)
        if (memory.type, memory.pitch, memory.height) != (2, told.nbytes, told.height):
            self.wrong.append("cuMemcpy3DAsync_v2: memory with gaps")
        nbytes = told.nbytes * told.height * told.depth
        block = self.texels.setdefault((array.array, array.z), FFI.new("char[]", nbytes))
        there = int(FFI.cast("uintptr_t", block))
        ctypes.memmove(*((there, memory.device) if into else (memory.device, there)), nbytes)
        return 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*args: Any) -> int:
            self.calls.append(name)
            if name in MAKES:
                self._check(name, *args[1:])
                handle = args[0][0] = next(self._next)
                if name not in ("cuModuleGetFunction", "cuGraphAddKernelNode_v2"):
                    self.owner[handle] = self.current
            elif name in GIVES:
                if self.owner.get(args[0]) is None:
                    self.wrong.append(f"{name}({args[0]}): it was given back before, or is not ours")
                self._check(name, *args)
                self.owner.pop(args[0], None)
                self.memory.pop(args[0], None)
            elif name not in ASKS:
                self._check(name, *args)
            return 0

        setattr(self, name, call)
        return call

    def bytes_of(self, params: Any, nbytes: int) -> bytes:
        """Return the argument block of a graph's node."""
        return bytes(FFI.buffer(FFI.cast("char *", params.params[0]), nbytes))

    def _allocate(self, out: Any, nbytes: int) -> int:
        self._check("an allocation")
        # CUDA's allocations begin at multiples of 256 bytes.
        block = FFI.new("char[]", nbytes + 255)
        address = out[0] = int(FFI.cast("uintptr_t", block)) + 255 & -256
        self.memory[address], self.owner[address] = block, self.current
        return 0

    def _check(self, name: str, *args: Any) -> None:
        if not self.current:
            self.wrong.append(f"{name}: no context is current")
        for handle in args:
            owner = self.owner.get(handle) if isinstance(handle, int) else None
            if owner is not None and owner != self.current:
                self.wrong.append(f"{name}({handle} of {owner}) while {self.current} is current")


class Library:
    """cffi's view of the stand-in."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def dlopen(self, name: str) -> Driver:
        return self._driver

    def __getattr__(self, name: str) -> Any:
        return getattr(FFI, name)


@contextmanager
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Put a stand-in in the place of the driver's library."""
    fake = Driver()
    monkeypatch.setattr(_cuda_driver, "FFI_CUDA", Library(fake))
    _cuda_driver.driver.cache_clear()
    yield fake
    _cuda_driver.driver.cache_clear()
