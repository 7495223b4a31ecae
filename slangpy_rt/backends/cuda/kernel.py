"""Loads and unloads the modules of a CUDA device, each with one kernel."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from math import prod

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.cuda.compile import parts
from slangpy_rt.backends.cuda.driver import check, driver, query
from slangpy_rt.backends.cuda.graph import CudaNode
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.target import KernelInfo

MAX_ARGUMENTS = 4096  # bytes of kernel parameters that every CUDA device accepts
_MOST_THREADS = 0  # CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# Modules are unloaded in groups of this size, because unloading waits for the device's work.
_MANY_RETIRED = 64


class CudaKernel(Kernel):
    """A function of a loaded module, which is unloaded some time after the last reference to the kernel is dropped.

    Attributes
    ----------
    function : int
        The ``CUfunction``.
    node : CudaNode or None
        The graph of its latest launch.
    nodes : dict
        Its graphs, by queue.
    launches : int
        The number of launches on queues where it had no graph.
    shared_bytes : int
        Group memory of a launch, beside what the kernel declares.
    """

    __slots__ = ("function", "give", "launches", "node", "nodes", "shared_bytes")

    __del__ = finalizer("give")

    def __init__(self, info: KernelInfo, function: int, shared_bytes: int, give: Callable[[], None]) -> None:
        super().__init__(info)
        self.function = function
        self.shared_bytes = shared_bytes
        # Appends the module to those that ``Modules`` unloads.
        self.give = give
        self.launches = 0
        self.node: CudaNode | None = None
        self.nodes: dict[object, CudaNode] = {}


class Modules:
    """The modules of one context, which is current where it is called.

    Attributes
    ----------
    all : set of int
        The ``CUmodule`` of each loaded module.
    """

    def __init__(self) -> None:
        self.all: set[int] = set()
        # Modules of kernels without references; the device may still run them.
        self._retired: deque[int] = deque()
        self._lock = threading.Lock()

    def load(self, binary: bytes, info: KernelInfo) -> CudaKernel:
        """Load a binary of ``compile`` and return its kernel. No interrupt may stop it.

        Raises
        ------
        UnsupportedError
            If the kernel needs too many registers for thread groups of its size.
        DeviceError
            If the driver refuses the CUBIN.
        """
        cu, what = driver(), f"loading kernel {info.entry!r}"
        # Counted before the wait: the device may still run a kernel that another thread drops meanwhile.
        with self._lock:
            retired = len(self._retired)
            if retired >= _MANY_RETIRED:
                check(cu.cuCtxSynchronize(), "waiting for queued work")
                for _ in range(retired):
                    gone = self._retired.popleft()
                    self.all.discard(gone)
                    cu.cuModuleUnload(gone)
        shared_bytes, cubin = parts(binary)
        module = query(cu.cuModuleLoadData, "uintptr_t *", cubin, what=what)
        try:
            function = query(cu.cuModuleGetFunction, "uintptr_t *", module, info.entry.encode(), what=what)
            most = query(cu.cuFuncGetAttribute, "int *", _MOST_THREADS, function, what=what)
            if prod(info.group_size) > most:
                raise UnsupportedError(
                    f"device cuda: {info.title}: a thread group has {prod(info.group_size)} threads, at most {most} "
                    "have the registers that this kernel needs; make the group smaller."
                )
            if shared_bytes:
                status = cu.cuFuncSetAttribute(function, _SHARED_BYTES, shared_bytes)
                check(status, f"reserving {shared_bytes:,} bytes of group memory for {info.title}")
        except BaseException:
            cu.cuModuleUnload(module)
            raise
        self.all.add(module)
        return CudaKernel(info, function, shared_bytes, partial(self._retired.append, module))


def require_fit(info: KernelInfo) -> None:
    """Raise UnsupportedError if a kernel's arguments have more than ``MAX_ARGUMENTS`` bytes."""
    if info.args_size > MAX_ARGUMENTS:
        raise UnsupportedError(
            f"device cuda: kernel {info.entry!r} has {info.args_size} bytes of arguments, at most "
            f"{MAX_ARGUMENTS} fit; pass large values as arrays."
        )
