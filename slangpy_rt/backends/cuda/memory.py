"""Allocates the memory of a CUDA context: device memory, and page-locked memory that host and device address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer
from slangpy_rt.backends.blocks import SizeClasses
from slangpy_rt.backends.cuda.context import enter, keep_current
from slangpy_rt.backends.cuda.driver import FFI_CUDA, OUT_OF_MEMORY, check, driver, query
from slangpy_rt.backends.host_blocks import HostBlocks
from slangpy_rt.backends.shared_pool import SharedPool
from slangpy_rt.core.errors import OutOfMemoryError

_SHARED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP


class Memory:
    """The memory of one backend.

    Parameters
    ----------
    small, slab : int
        As in ``SizeClasses``.
    several : bool
        Whether there are several GPUs, so that methods have to restore the current context.

    Attributes
    ----------
    blocks : SizeClasses
        The blocks of device memory.
    shared : SharedPool
        The blocks of page-locked host memory that the device addresses too.
    hosts : HostBlocks
        The blocks of ordinary host memory for results.
    allocations : set of int
        Device addresses of the memory that the driver allocated.
    slabs : list of int
        Host addresses of the page-locked memory that the driver allocated.
    """

    def __init__(self, backend: Backend, context: int, small: int, slab: int, several: bool) -> None:
        self._backend = backend
        self._context = context
        self._cu = driver()
        # For ``grow`` and ``add_slab`` only. Free lists change in single steps without a lock, because the garbage
        # collector calls ``give`` at any moment, also while this thread holds the lock.
        self._lock = threading.Lock()
        self.blocks = SizeClasses(self._allocate, small, slab)
        self.shared = SharedPool()
        # Not page-locked: other libraries' copies from page-locked memory do not wait, and these arrays may be freed.
        self.hosts = HostBlocks(self._entered)
        self.allocations: set[int] = set()
        self.slabs: list[int] = []
        if several:
            keep_current(self, context, ("grow", "add_slab"))

    def grow(self, size: int, buffer: Buffer) -> None:
        """Give a buffer a new block of ``size`` bytes. No interrupt may stop it."""
        backend = self._backend
        with backend.inside[threading.get_ident()], self._lock:
            backend.require_open()
            enter(self._context)
            self.blocks.grow(size, buffer)

    def add_slab(self, nbytes: int) -> bool:
        """Add the slab for a size to ``shared`` if it has none; return whether it had none. Not to be interrupted."""
        cu, pool, backend = self._cu, self.shared, self._backend
        with backend.inside[threading.get_ident()], self._lock:
            backend.require_open()
            size = pool.missing(nbytes)
            if size:
                enter(self._context)
                host = query(cu.cuMemHostAlloc, "uintptr_t *", size, _SHARED, what="page-locking host memory")
                try:
                    what = "mapping host memory"
                    address = query(cu.cuMemHostGetDevicePointer_v2, "uintptr_t *", host, 0, what=what)
                except BaseException:
                    cu.cuMemFreeHost(host)
                    raise
                self.slabs.append(host)
                pool.add(nbytes, None, address, memoryview(FFI_CUDA.buffer(FFI_CUDA.cast("char *", host), size)))
        return size > 0

    def close(self) -> None:
        """Refuse further requests."""
        self.shared.close()
        self.hosts.close()
        self.blocks.close()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._lock:
            self._backend.require_open()
            yield

    def _allocate(self, nbytes: int) -> tuple[int, None]:
        """Allocate memory by the driver; if it has none left, free the unused blocks and try again."""
        cu, out = self._cu, FFI_CUDA.new("uintptr_t *")
        status = cu.cuMemAlloc_v2(out, nbytes)
        if status == OUT_OF_MEMORY:
            self._backend.sync_all()
            for address, _ in self.blocks.drop():
                self.allocations.remove(address)
                check(cu.cuMemFree_v2(address), "giving memory back")
            status = cu.cuMemAlloc_v2(out, nbytes)
        if status == OUT_OF_MEMORY:
            free, total = FFI_CUDA.new("size_t *"), FFI_CUDA.new("size_t *")
            check(cu.cuMemGetInfo_v2(free, total), "asking for free memory")
            raise OutOfMemoryError(
                f"device cuda: {nbytes:,} bytes could not be allocated; {free[0]:,} of {total[0]:,} bytes "
                "are free. Free some arrays or use smaller ones."
            )
        check(status, f"allocating {nbytes:,} bytes")
        self.allocations.add(int(out[0]))
        return int(out[0]), None


class ForeignBuffer(Buffer):
    """A buffer in memory of another API, which ``owner`` keeps alive."""

    __slots__ = ("owner",)

    def __init__(self, backend: Backend, address: int, nbytes: int, owner: Any) -> None:
        super().__init__(backend, address, nbytes)
        self.owner = owner
