"""Compiles Slang's C++ prelude once for the kernels of a process.

Of the 0.12 s that g++ takes for a small kernel, 0.07 s are spent on the prelude's 4,300 lines. Only g++ is supported:
other compilers use compiled headers in other ways.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# The prelude is compiled with the fourth kernel of a process: compiling it takes as long as three kernels save.
_FEW = 4
# The last lines of the prelude in the C++ that Slang emits.
_MARK = b"using namespace SLANG_PRELUDE_NAMESPACE;\n#endif\n"


class Prelude:
    """The compiled prelude of one process, in a folder that is removed with this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kernels = 0
        self._text = b""
        self._folder: Path | None = None
        self._remove: Callable[[], Any] | None = None

    def without(self, code: bytes, command: Sequence[str], flags: Sequence[str]) -> tuple[bytes, list[str]]:
        """Return C++ text that includes the compiled prelude instead of its text, and the flags for that.

        Where there is no compiled prelude for this text, return the text unchanged and no flags.
        """
        text, mark, rest = code.partition(_MARK)
        if not mark or len(command) > 1 or not Path(command[0]).name.startswith("g++"):
            return code, []
        with self._lock:
            self._kernels += 1
            if self._kernels == _FEW:
                self._compile(text + mark, command, flags)
            if self._folder is None or text + mark != self._text:
                return code, []
            return b'#include "prelude.h"\n' + rest, [f"-I{self._folder}"]

    def close(self) -> None:
        """Remove the folder of the compiled prelude."""
        with self._lock:
            self._folder = None
            if self._remove is not None:
                self._remove()

    def _compile(self, text: bytes, command: Sequence[str], flags: Sequence[str]) -> None:
        import subprocess  # 10 ms

        folder = Path(tempfile.mkdtemp(prefix="slangpy_rt-prelude-"))
        # Not a TemporaryDirectory, which warns if a device is freed without having been closed.
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        header = folder / "prelude.h"
        header.write_bytes(text)
        made = [*command, *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        # Without a compiled header kernels are compiled with the text of the prelude, so an error is ignored.
        if subprocess.run(made, capture_output=True, check=False).returncode == 0:
            self._text, self._folder = text, folder
