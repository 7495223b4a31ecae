"""Opens memory and semaphores of another API on the same GPU by the CUDA driver."""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver, query
from slangpy_rt.core.interrupts import finalizer

# CU_EXTERNAL_MEMORY_, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_: of Vulkan's descriptors, and of D3D12's handles.
_OPAQUE_FD, _TIMELINE_FD = 1, 9
_D3D12_RESOURCE, _D3D12_FENCE = 5, 4


class Externals:
    """The memory and semaphores that one context has opened, each once. Callers make the context current.

    Any thread may call it, and no interrupt may stop a call.

    Semaphores stay open until ``close``: a queue has one. Memory that nobody refers to any more is unmapped when
    other memory is opened, since a finalizer may run in a thread where the context is not current.
    """

    def __init__(self) -> None:
        self._memory: WeakKeyDictionary[Shared, _Memory] = WeakKeyDictionary()
        self._semaphores: WeakKeyDictionary[Shared, int] = WeakKeyDictionary()
        self._mapped: set[tuple[int, int]] = set()
        self._retired: deque[tuple[int, int]] = deque()
        self._all: list[int] = []
        self._lock = threading.Lock()

    def memory(self, shared: Shared) -> _Memory:
        """Open shared memory, map all of it, and return it."""
        with self._lock:
            found = self._memory.get(shared)
            if found is None:
                # Counted before the wait: queued work may still use memory that another thread drops meanwhile.
                retired = len(self._retired)
                if retired:
                    check(driver().cuCtxSynchronize(), "waiting for queued work")
                for _ in range(retired):
                    self._unmap(*self._retired.popleft())
                found = self._memory[shared] = _Memory(shared, self._retired)
                self._mapped.add(found.handles)
            return found

    def wait(self, shared: Shared, value: int, stream: int) -> None:
        """Make a stream wait until a timeline semaphore has reached ``value``."""
        handle = FFI_CUDA.new("uintptr_t *", self._semaphore(shared))
        params = FFI_CUDA.new("CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *")
        params.params.fence.value = value
        status = driver().cuWaitExternalSemaphoresAsync(handle, params, 1, stream)
        check(status, "letting a stream wait for a semaphore")

    def signal(self, shared: Shared, value: int, stream: int) -> None:
        """Set a timeline semaphore to ``value`` after a stream's present work."""
        handle = FFI_CUDA.new("uintptr_t *", self._semaphore(shared))
        params = FFI_CUDA.new("CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *")
        params.params.fence.value = value
        check(driver().cuSignalExternalSemaphoresAsync(handle, params, 1, stream), "letting a stream set a semaphore")

    def close(self) -> None:
        """Close all memory and semaphores that are still open; no queued work may use them."""
        for handles in list(self._mapped):
            self._unmap(*handles)
        for semaphore in self._all:
            driver().cuDestroyExternalSemaphore(semaphore)
        self._all.clear()

    def _unmap(self, handle: int, address: int) -> None:
        self._mapped.discard((handle, address))
        driver().cuMemFree_v2(address)
        driver().cuDestroyExternalMemory(handle)

    def _semaphore(self, shared: Shared) -> int:
        with self._lock:
            found = self._semaphores.get(shared)
            if found is None:
                told = FFI_CUDA.new("CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *")
                told.type = _D3D12_FENCE if shared.close else _TIMELINE_FD
                found = _opened(driver().cuImportExternalSemaphore, told, shared, "opening a semaphore")
                self._semaphores[shared] = found
                self._all.append(found)
            return found


class _Memory:
    """An allocation of another API, mapped into the CUDA context.

    Parameters
    ----------
    retired : deque
        Gets ``handles`` once nobody refers to the memory.

    Attributes
    ----------
    handles : tuple of int
        The ``CUexternalMemory``, and the CUDA device address of its first byte.
    """

    __slots__ = ("__weakref__", "_give", "handles")

    __del__ = finalizer("_give")

    def __init__(self, shared: Shared, retired: deque[tuple[int, int]]) -> None:
        told = FFI_CUDA.new("CUDA_EXTERNAL_MEMORY_HANDLE_DESC *")
        told.type, told.size = _D3D12_RESOURCE if shared.close else _OPAQUE_FD, shared.nbytes
        # 1: CUDA_EXTERNAL_MEMORY_DEDICATED, as a committed buffer of D3D12 is.
        told.flags = 1 if shared.close else 0
        handle = _opened(driver().cuImportExternalMemory, told, shared, "opening memory of another API")
        part = FFI_CUDA.new("CUDA_EXTERNAL_MEMORY_BUFFER_DESC *", {"size": shared.nbytes})
        try:
            address = query(
                driver().cuExternalMemoryGetMappedBuffer, "uintptr_t *", handle, part,
                what="mapping memory of another API",
            )  # fmt: skip
        except BaseException:
            driver().cuDestroyExternalMemory(handle)
            raise
        self.handles = handle, address
        self._give = partial(retired.append, self.handles)

    @property
    def address(self) -> int:
        """The CUDA device address of the first byte."""
        return self.handles[1]


def _opened(function: Any, told: Any, shared: Shared, what: str) -> int:
    """Import shared memory or a shared semaphore by its descriptor or handle."""
    opened = shared.open()
    if shared.close:
        told.handle.win32.handle = FFI_CUDA.cast("void *", opened)
        try:
            return query(function, "uintptr_t *", told, what=what)
        finally:
            # The driver has a reference of its own, if it succeeded.
            shared.close(opened)
    told.handle.fd = opened
    try:
        return query(function, "uintptr_t *", told, what=what)
    except BaseException:
        # The driver owns it if it succeeds.
        os.close(opened)
        raise


def is_of(shared: Shared, device: int) -> bool:
    """Tell whether a GPU has what another API shared."""
    return shared.gpu == (_luid_of(device) if shared.close else uuid_of(device))


def _luid_of(device: int) -> bytes:
    """Return what Windows calls the GPU while it runs."""
    out, mask = FFI_CUDA.new("char[8]"), FFI_CUDA.new("unsigned int *")
    check(driver().cuDeviceGetLuid(out, mask, device), "asking for its LUID")
    return bytes(FFI_CUDA.buffer(out))


def uuid_of(device: int) -> bytes:
    """Return the GPU's UUID, which is the same in every API."""
    out: Any = FFI_CUDA.new("unsigned char[16]")
    check(driver().cuDeviceGetUuid_v2(out, device), "asking for its UUID")
    return bytes(FFI_CUDA.buffer(out))
