"""Opens memory and semaphores of another API on the same GPU by the CUDA driver."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver, query

_OPAQUE_FD, _TIMELINE_FD = 1, 9  # CU_EXTERNAL_MEMORY_, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_


class Externals:
    """The memory and semaphores that one context has opened, each once. Callers make the context current."""

    def __init__(self) -> None:
        self._memory: WeakKeyDictionary[Shared, _Memory] = WeakKeyDictionary()
        self._semaphores: WeakKeyDictionary[Shared, int] = WeakKeyDictionary()
        self._all: list[int] = []

    def memory(self, shared: Shared) -> _Memory:
        """Open shared memory, map all of it, and return it."""
        found = self._memory.get(shared)
        if found is None:
            found = self._memory[shared] = _Memory(shared)
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
        for memory in list(self._memory.values()):
            memory.close()
        for semaphore in self._all:
            driver().cuDestroyExternalSemaphore(semaphore)
        self._all.clear()

    def _semaphore(self, shared: Shared) -> int:
        found = self._semaphores.get(shared)
        if found is None:
            told = FFI_CUDA.new("CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *")
            told.type, told.handle.fd = _TIMELINE_FD, shared.open()
            # The driver owns the file descriptor from here on.
            found = query(driver().cuImportExternalSemaphore, "uintptr_t *", told, what="opening a semaphore")
            self._semaphores[shared] = found
            self._all.append(found)
        return found


class _Memory:
    """An allocation of another API, mapped into the CUDA context.

    Attributes
    ----------
    address : int
        The CUDA device address of its first byte.
    """

    def __init__(self, shared: Shared) -> None:
        told = FFI_CUDA.new("CUDA_EXTERNAL_MEMORY_HANDLE_DESC *")
        told.type, told.handle.fd, told.size = _OPAQUE_FD, shared.open(), shared.nbytes
        cu = driver()
        self._handle = query(cu.cuImportExternalMemory, "uintptr_t *", told, what="opening memory of another API")
        part = FFI_CUDA.new("CUDA_EXTERNAL_MEMORY_BUFFER_DESC *", {"size": shared.nbytes})
        what = "mapping memory of another API"
        self.address = query(cu.cuExternalMemoryGetMappedBuffer, "uintptr_t *", self._handle, part, what=what)

    def close(self) -> None:
        """Unmap the memory."""
        handle, self._handle = self._handle, 0
        if handle:
            driver().cuMemFree_v2(self.address)
            driver().cuDestroyExternalMemory(handle)


def uuid_of(device: int) -> bytes:
    """Return the GPU's UUID, which is the same in every API."""
    out: Any = FFI_CUDA.new("unsigned char[16]")
    check(driver().cuDeviceGetUuid_v2(out, device), "asking for its UUID")
    return bytes(FFI_CUDA.buffer(out))
