"""Where the Slang compiler is installed, and which build it is; it is not loaded for that.

Every process asks this for its cache keys, so nothing is imported that a warm process would not need.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from slangpy_rt.core.errors import UnsupportedError

_PATTERNS = ("libslang-compiler.so*", "slang-compiler.dll", "slang.dll", "libslang-compiler*.dylib")


def find_library(path: str | None = None) -> Path:
    """File of the Slang compiler: ``path`` if given, else the one inside the slangpy wheel.

    Raises
    ------
    UnsupportedError
        If there is no such file.
    """
    if path is not None:
        if Path(path).is_file():
            return Path(path)
        raise UnsupportedError(
            f"Slang library {path!r}: no such file; point SLANGPY_RT_SLANG_LIB at libslang-compiler or unset it."
        )
    # find_spec reads metadata only: importing slangpy costs 1.2 s and starts a second runtime.
    spec = importlib.util.find_spec("slangpy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for pattern in _PATTERNS:
            found = sorted(Path(folder).glob(pattern))
            if found:
                return found[0]
    raise UnsupportedError(
        "the Slang compiler is not installed: expected libslang-compiler inside the slangpy wheel.\n"
        "Run 'pip install slangpy', or set SLANGPY_RT_SLANG_LIB to the library's path."
    )


def library_version(path: str | None = None) -> str:
    """Identify the compiler build without loading it, for cache keys.

    Raises
    ------
    UnsupportedError
        If there is no compiler.
    """
    file = find_library(path)
    stat = file.stat()
    if path is not None:  # a compiler under development keeps its name, so its age tells builds apart
        return f"{file.name} {stat.st_size} {stat.st_mtime_ns}"
    dist = sorted(entry.name for entry in file.parent.parent.glob("slangpy-*.dist-info"))
    return " ".join([*dist, file.name, str(stat.st_size)])
