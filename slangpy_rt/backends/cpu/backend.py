"""The CPU backend: kernels run over ranges of thread groups or of elements, divided among the threads of a pool.

Device memory is host memory, so NumPy arrays are used in place. ``group_compiler`` compiles kernels from SPIR-V by
the llvmlite package; the lanes of a vector are W threads. For kernels that it does not translate, and those that are
faster as C++, Slang emits C++ with ``run(begin, end, call)``. g++, clang++ or the zig of the ziglang wheel compiles
it to a shared library. If llvmlite or the C++ compiler is missing, the other one compiles all kernels.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from slangpy_rt.backends.base import Buffer, Dispatch, Kernel, Recording
from slangpy_rt.backends.blocks import ALIGN, SizeClasses
from slangpy_rt.backends.cpu.compile import NO_COMPILER, compile_library, find_compiler, toolchain
from slangpy_rt.backends.cpu.group_compiler import GroupCompiler
from slangpy_rt.backends.cpu.group_format import DEBUG_FLAGS, MARK, SPIRV
from slangpy_rt.backends.cpu.images import CpuImages
from slangpy_rt.backends.cpu.kernel import load
from slangpy_rt.backends.cpu.llvm import llvmlite_identity
from slangpy_rt.backends.cpu.prepared import Prepared
from slangpy_rt.backends.cpu.queue import CpuQueue
from slangpy_rt.backends.cpu.recording import CpuRecording
from slangpy_rt.backends.cpu.threads import Threads
from slangpy_rt.backends.extras import Records, ZeroCopy
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache, cache_directory
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.programs import Programs
from slangpy_rt.core.target import Caps, KernelInfo, Target

_SCALARS = frozenset(
    "bool int8_t int16_t int int64_t uint8_t uint16_t uint uint64_t half float double".split()  # noqa: SIM905
)
_CACHE_LIMIT = 1 << 30
# ``WAVE`` of lanes/translate.py, which is imported with the first kernel that uses groups.
_WAVE = 32
# Few of their threads have anything to do, so that most lanes of a vector wait.
_RANGE_MODULES = frozenset({"_spy_antialias", "_spy_silhouettes"})
# As on CUDA, so that their product fits 64 bits. Launches over elements are not limited.
_MAX_GROUPS = (2**31 - 1, 65535, 65535)


class CpuBackend(CpuImages, Records, ZeroCopy):
    """A device that runs kernels on the cores of this machine, by default on all.

    Parameters
    ----------
    index : int
        0, since there is one such device.
    debug : bool
        Whether kernels from SPIR-V are compiled for a debugger, one thread after the other.
    deterministic : bool
        Whether a launch has to be divided among threads in the same way each time.

    Raises
    ------
    UnsupportedError
        If there is neither llvmlite nor a C++ compiler, or ``index`` is not 0.
    """

    name = "cpu"
    range_modules = _RANGE_MODULES
    # Lanes whose rays end wait for the others: 256 x 256 rays take 19.5 ms in lanes and 9.9 in C++.
    range_imports = frozenset({"rays"})
    # LLVM takes 5 s for the gradients of a network in a function, g++ 1; they are as fast.
    range_gradients = frozenset({"mlp"})
    queue: CpuQueue

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        if reason := self.why_unavailable():
            raise UnsupportedError(f"device cpu: {reason}.")
        if index:
            raise UnsupportedError(f"device cpu: there is one, number 0, and none of number {index}.")
        ranges = Target("cpp", "", "range")
        features, self._llvm = frozenset({"pointers", "textures", "zero_copy"}), llvmlite_identity()
        command = find_compiler()
        if self._llvm:
            features |= {"group_shared", "wave"}
            groups = Caps(_MAX_GROUPS, _SCALARS, features | {"atomic_float"}, _WAVE)
            # Neighbouring threads are the lanes of a vector, which loads their elements at once.
            target = target_of("spirv", "spirv_1_5", "pointer", groups)
            constants = *target.constants, "export static const bool _spy_packed_vectors = true;"
            modules = ("_spy_addresses",)
            self.target = replace(target, constants=constants, lane_threads=True, texture_modules=modules)
            if debug:
                self.target = replace(self.target, flags=DEBUG_FLAGS)
                self._llvm += " for a debugger"
            self.range_target = ranges if command else None
        else:
            self.target = ranges
        self.caps = Caps(_MAX_GROUPS, _SCALARS, features, _WAVE if self._llvm else 0, dlpack_device=1)
        threads = CONFIG.threads
        self.description = f"{platform.processor() or platform.machine()}, {threads} threads"
        self.compilers = (Path(command[0]).name, "the system's loader") if command else ("LLVM", "LLVM")
        cache = DiskCache.open(cache_directory(), CONFIG.cache_size)
        self._prepared = Prepared(cache)
        self._groups = GroupCompiler(cache, debug)
        self._threads = Threads(threads)
        self._deterministic = deterministic
        # Held during launches and copies, so that they run one after the other. Reentrant: a replay makes launches.
        self._turn = threading.RLock()
        self._blocks = SizeClasses(_allocate, limit=_CACHE_LIMIT)
        self._takes = self._blocks.takes
        self._queues: list[CpuQueue] = []
        self._samplers = {}
        self.queue = self.open_queue()

    @classmethod
    def why_unavailable(cls) -> str | None:
        if find_compiler():
            return None
        if CONFIG.cxx and CONFIG.cxx != NO_COMPILER:
            return f"environment variable SLANGPY_RT_CXX={CONFIG.cxx!r}: no such C++ compiler was found"
        if llvmlite_identity():
            return None
        return (
            "no compiler: neither the llvmlite package nor g++, clang++ or the ziglang package was found; run: "
            "pip install llvmlite"
        )

    def toolchain(self) -> str:
        return f"{toolchain()} {self._llvm}"

    def compilers_of(self, target: Target) -> tuple[str, str]:
        return ("LLVM", "LLVM") if target.groups else self.compilers

    def compile(self, code: bytes, entry: str) -> bytes:
        if code.startswith(SPIRV):
            return self._groups.compile(code, self.require_open)
        programs = Programs(CONFIG.build_seconds)
        # ``apart``, because an interrupt could leave the temporary folder and the compiler's process behind.
        return apart(compile_library, code, self._prepared, programs, stop=programs.stop)

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        self.require_open()
        if binary.startswith(MARK):
            return self._groups.load(binary, info)
        return apart(load, binary, info)

    def alloc(self, nbytes: int) -> Buffer:
        size = 1 << max(8, (nbytes - 1).bit_length()) if nbytes <= 1 << 20 else -(-nbytes >> 20) << 20
        buffer = CpuBuffer.__new__(CpuBuffer)
        try:
            # The chunk moves from the list to the buffer in one step, so that an interrupt finds it in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            self._grow(nbytes, size, buffer)
        buffer.backend = self
        buffer.address = buffer.chunk.address
        buffer.nbytes = size
        return buffer

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        source = np.frombuffer(src, np.uint8)
        with self._turn:
            self.require_open()
            ctypes.memmove(dst.address + offset, source.ctypes.data, source.nbytes)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        target = np.frombuffer(dst, np.uint8)
        with self._turn:
            self.require_open()
            ctypes.memmove(target.ctypes.data, src.address + offset, target.nbytes)

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        with self._turn:
            self.require_open()
            ctypes.memset(dst.address + offset, 0, nbytes)

    def open_queue(self) -> CpuQueue:
        with self._turn:
            self.require_open()
            queue = CpuQueue(self, self._threads, self._turn, self._deterministic)
            self._queues.append(queue)
            return queue

    def close(self) -> None:
        with self._turn:
            self.closed = True
            for queue in self._queues:
                queue.close()
        apart(self._close)

    def wrap(self, address: int, nbytes: int, owner: Any) -> Buffer:
        buffer = CpuBuffer(self, address, nbytes)
        buffer.chunk = (owner,)  # the caller keeps the memory, so that this buffer gives none back
        return buffer

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        return CpuRecording(list(dispatches), self.queue.launch)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, CpuRecording)
        recording.update(place, dispatch)

    def _grow(self, nbytes: int, size: int, buffer: Buffer) -> None:
        self.require_open()
        try:
            self._blocks.grow(size, buffer)
        except MemoryError:
            raise OutOfMemoryError(
                f"device cpu: {nbytes:,} bytes could not be allocated; free some arrays or use smaller ones."
            ) from None

    def _close(self) -> None:
        self._blocks.close()
        self._threads.close()
        self._groups.close()
        self._prepared.close()


class CpuBuffer(Buffer):
    """A buffer in host memory, which its chunk keeps alive."""

    __slots__ = ()


def _allocate(nbytes: int) -> tuple[int, Any]:
    # NumPy asks the operating system for huge pages, which malloc does not.
    owner = np.empty(nbytes + ALIGN, np.uint8)
    return owner.ctypes.data, owner
