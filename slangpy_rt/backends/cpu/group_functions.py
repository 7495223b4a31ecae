"""Object files of functions that kernels call (``lanes/calls.py``): compiled once, and kept for other kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from slangpy_rt.backends.cpu.llvm import LlvmCompiler
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.lanes import translate
from slangpy_rt.lanes.translate import LaneFunction


class GroupFunctions:
    """The functions of one device.

    Parameters
    ----------
    cache : DiskCache
        Where they stay for other processes.
    """

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache
        self._found: dict[str, bytes] = {}
        self._version = ""

    def compiled(self, compiler: LlvmCompiler, functions: Sequence[LaneFunction]) -> list[bytes]:
        """Return the object files of functions.

        Raises
        ------
        UnsupportedKernel
            If a function has something that ``lanes`` does not translate.
        RuntimeError
            If LLVM refuses a text.
        """
        return [self._compiled(compiler, each) for each in functions]

    def _compiled(self, compiler: LlvmCompiler, function: LaneFunction) -> bytes:
        code = self._found.get(function.name)
        if code is None:
            self._version = self._version or _code_version()
            key = DiskCache.key("lane function", function.name, self._version, compiler.toolchain())
            entry = self._cache.get(key)
            code = compiler.compile(function.write()) if entry is None else entry.payload
            if entry is None:
                self._cache.put(key, {"kind": "function", "title": function.name}, code)
            self._found[function.name] = code
        return code


def _code_version() -> str:
    """Return a digest of what makes code of a function: ``lanes``, and this folder."""
    digest = hashlib.sha256()
    for folder in (Path(translate.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.glob("*.py*")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
