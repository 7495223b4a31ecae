"""The compiler of one CPU device for kernels that use thread groups; llvmlite is imported for the first one.

LLVM compiles in a thread that an interrupt, or the limit of time, leaves behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.builds import Builds
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.target import KernelInfo

if TYPE_CHECKING:
    from slangpy_rt.backends.cpu.debug_sources import DebugSources


class GroupCompiler:
    """Compiles and loads kernels that use thread groups.

    Parameters
    ----------
    cache : DiskCache
        Where the code is kept that threads share launches by. Kernels are kept by those who load them.
    debug : bool
        Whether kernels are compiled for a debugger.
    """

    def __init__(self, cache: DiskCache, debug: bool = False) -> None:
        self._cache = cache
        self._debug = debug
        self._builds = Builds("LLVM", CONFIG.build_seconds)
        self._lock = threading.Lock()
        self._opened: tuple[Any, Any] | None = None
        self._sources: DebugSources | None = None

    def compile(self, code: bytes, check: Callable[[], Any]) -> bytes:
        """Return the binary of a kernel's SPIR-V; ``check`` raises an exception when the device is closed.

        Raises
        ------
        UnsupportedError
            If the kernel has something that ``lanes`` does not translate.
        CompileError
            If LLVM takes too long.
        """
        while True:
            build = apart(self._builds.begin, code, partial(self._compile, code))
            self._builds.wait(build, check)
            # Another thread that waited for the same kernel may have taken it.
            if taken := self._builds.take(build):
                found: bytes = taken[0]
                return found

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        """Load a binary that ``compile`` returned. No interrupt stops it."""
        from slangpy_rt.backends.cpu.group_kernel import load_groups

        compiler, shared = apart(self._open)
        found: Kernel = apart(load_groups, compiler, binary, shared, info)
        return found

    def close(self) -> None:
        """Let the threads end once LLVM has returned."""
        self._builds.after(self._forget)

    def _forget(self) -> None:
        self._opened = None

    def _open(self) -> tuple[Any, Any]:
        from slangpy_rt.backends.cpu.group_kernel import SHARED
        from slangpy_rt.backends.cpu.llvm import LlvmCompiler

        with self._lock:
            if self._opened is None:
                compiler = LlvmCompiler()
                key = DiskCache.key("shared launches", SHARED, compiler.toolchain())
                entry = self._cache.get(key)
                code = compiler.compile(SHARED) if entry is None else entry.payload
                self._opened = compiler, compiler.load(code)
                if entry is None:
                    self._cache.put(key, {"kind": "launches", "title": "shared launches of groups"}, code)
            return self._opened

    def _compile(self, code: bytes) -> bytes:
        from slangpy_rt.backends.cpu.group_code import compile_groups

        compiler = self._open()[0]
        if not self._debug:
            return compile_groups(compiler, code)
        from slangpy_rt.backends.cpu.debug_sources import DebugSources

        with self._lock:
            if self._sources is None:
                self._sources = DebugSources(self._cache)
        return compile_groups(compiler, code, self._sources.settings)
