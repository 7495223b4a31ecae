"""Compiles once what all kernels of the CPU share: Slang's C++ prelude, and the functions of ``RUN_LIST``.

Of the 0.22 s that g++ takes for a small kernel, it spends 0.07 on the prelude's 4,300 lines and 0.08 on the functions
that run kernels. What was compiled is kept for later processes. Only g++ is supported: other compilers use compiled
headers in other ways.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slangpy_rt.backends.cpu.kernel import RUN_LIST
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.programs import Programs

# The last lines of the prelude in the C++ that Slang emits.
_MARK = b"using namespace SLANG_PRELUDE_NAMESPACE;\n#endif\n"
# Files of compilers that are no longer used: a compiled header takes 14 MB.
_OLD_SECONDS = 30 * 86400.0
# The compiled header has the text of the C library's headers in it. A newer library has a newer file.
_LIBRARY_HEADER = "/usr/include/features.h"


class Prepared:
    """The compiled header and the object file that kernels of this process use.

    The first kernel leaves the header's text, and the second one finds it and compiles both, which takes as long as
    two kernels save: a machine that compiles one kernel loses nothing.

    Parameters
    ----------
    cache : DiskCache
        Where the folder is that processes share. If the cache is off, there is one that is removed with this object.
    """

    def __init__(self, cache: DiskCache) -> None:
        self._lock = threading.Lock()
        self._cache = cache
        self._folder: Path | None = None
        self._remove: Callable[[], Any] | None = None
        self._refused: set[str] = set()

    def kernel(
        self, code: bytes, command: Sequence[str], flags: Sequence[str], toolchain: str, programs: Programs
    ) -> tuple[bytes, list[str]]:
        """Return the C++ text of a kernel's library and the arguments that name what was compiled before.

        Where nothing is, the text has all that the library needs, and there are no arguments.

        Parameters
        ----------
        code : bytes
            What Slang emitted.
        command, flags : sequence of str
            The compiler and its options.
        toolchain : str
            Everything besides `code` that changes what the compiler makes.
        programs : Programs
            Runs the compiler.
        """
        prelude, mark, rest = code.partition(_MARK)
        if mark and len(command) == 1 and Path(command[0]).name.startswith("g++"):
            parts = (prelude, RUN_LIST, toolchain.encode(), _library().encode())
            name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
            with self._lock:
                folder = self._opened()
                if self._has(folder, name, prelude + mark, command, flags, programs):
                    return f'#include "{name}.h"\n'.encode() + rest, [f"-I{folder}", str(folder / f"{name}.o")]
        return code + RUN_LIST, []

    @staticmethod
    def discard(arguments: Sequence[str]) -> None:
        """Remove the files that arguments of ``kernel`` name, which are damaged; the next kernel makes others."""
        functions = Path(arguments[-1])
        for path in (functions, functions.with_suffix(".h.gch")):
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Remove the folder that is this object's own."""
        with self._lock:
            self._folder = None
            if self._remove is not None:
                self._remove()

    def _opened(self) -> Path:
        if (kept := self._cache.folder("g++")) is not None:
            return kept
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="slangpy_rt-prepared-"))
            # Not a TemporaryDirectory, which warns if a device is freed without having been closed.
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def _has(
        self,
        folder: Path,
        name: str,
        prelude: bytes,
        command: Sequence[str],
        flags: Sequence[str],
        programs: Programs,
    ) -> bool:
        """Return whether both files are there; compile them if this is not the first kernel that wants them."""
        header, compiled, functions = (folder / f"{name}.{kind}" for kind in ("h", "h.gch", "o"))
        if name in self._refused:
            return False
        try:
            if compiled.exists() and functions.exists():
                return True
            with tempfile.TemporaryDirectory(prefix="making-", dir=folder) as made:
                if not header.exists():
                    _remove_old(folder)
                    _put(header, prelude, made)
                    return False
                source = Path(made, "run.cpp")
                source.write_bytes(RUN_LIST)
                sources = {compiled: ("-x", "c++-header", str(header)), functions: ("-c", str(source))}
                outputs = {path: Path(made, path.name) for path in sources}
                made_of = [[*command, *flags, *sources[p], "-o", str(outputs[p])] for p in sources]
                if any(result.returncode for result in programs.run(*made_of)):
                    self._refused.add(name)
                    return False
                for path, output in outputs.items():
                    output.replace(path)
                return True
        except OSError:
            # The disk is full, or somebody empties the cache: the kernel is compiled as a whole.
            return False


def _put(path: Path, content: bytes, folder: str) -> None:
    """Write a file in one step; `folder` is on the same disk."""
    whole = Path(folder, path.name)
    whole.write_bytes(content)
    whole.replace(path)


def _remove_old(folder: Path) -> None:
    """Remove what was made long ago. A process that still uses it makes it again."""
    before = time.time() - _OLD_SECONDS
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _library() -> str:
    """Return what changes with the C library's headers."""
    try:
        return str(Path(_LIBRARY_HEADER).stat().st_mtime_ns)
    except OSError:
        return ""
