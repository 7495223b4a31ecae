"""Finds the installed Slang compiler and this project's Slang files, and identifies their versions.

Every process needs this for its cache keys. So nothing is imported that a process with a warm cache would not need,
and the compiler is found without being loaded.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import SlangPyRtError, UnsupportedError

_PATTERNS = ("libslang-compiler.so*", "slang-compiler.dll", "slang.dll", "libslang-compiler*.dylib")


class Shaders(NamedTuple):
    """The installed folder ``shaders/``: the Slang files that come with this package.

    Attributes
    ----------
    modules : frozenset of str
        Names of the modules in the folder.
    library : str
        Resolved path of ``slangpy_rt.slang``, which users import. Slang lists this path among a module's files.
    """

    modules: frozenset[str]
    library: str


def find_library(path: str | None = None) -> Path:
    """Return the file of the Slang compiler: `path` if given, else the one inside the slangpy wheel.

    Raises
    ------
    UnsupportedError
        If there is no such file.
    """
    if path is not None:
        if Path(path).is_file():
            return Path(path)
        wrong = "no ordinary file" if Path(path).exists() else "no such file"
        raise UnsupportedError(
            f"Slang library {path!r}: {wrong}; point SLANGPY_RT_SLANG_LIB at libslang-compiler or unset it."
        )
    # find_spec does not import slangpy, which would take 1.2 s and start a second runtime.
    spec = find_spec("slangpy")
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
    """Return a string that identifies the build of the compiler, for cache keys; the compiler is not loaded.

    It holds the file's name and size in bytes, and the slangpy version, or for a given `path` the modification time.

    Raises
    ------
    UnsupportedError
        If there is no compiler.
    """
    file = find_library(path)
    stat = file.stat()
    if path is not None:  # Builds of a compiler under development have one name, and differ in modification time.
        return f"{file.name} {stat.st_size} {stat.st_mtime_ns}"
    dist = sorted(entry.name for entry in file.parent.parent.glob("slangpy-*.dist-info"))
    return " ".join([*dist, file.name, str(stat.st_size)])


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """Return the ``library_version`` of the compiler that the configuration selects."""
    return library_version(CONFIG.slang_lib)


@lru_cache(maxsize=1)
def shader_directory() -> str:
    """Return the path of the folder ``shaders/``: inside the package, or beside it in a checkout.

    Raises
    ------
    SlangPyRtError
        If the package is installed without it.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "shaders", package.parent / "shaders"):
        if (folder / "slangpy_rt.slang").is_file():
            return str(folder)
    raise SlangPyRtError("slangpy_rt.shaders is missing: install the package again.")


@lru_cache(maxsize=1)
def shaders() -> Shaders:
    """Return the names and the main file of the installed folder ``shaders/``."""
    folder = Path(shader_directory())
    files = (*folder.glob("*.slang"), *folder.glob("*.hpp"))
    return Shaders(frozenset(file.stem for file in files), str((folder / "slangpy_rt.slang").resolve()))


@cache
def shader_header(name: str) -> bytes:
    """Return the text of a C++ or CUDA header in ``shaders/``."""
    return (Path(shader_directory()) / name).read_bytes()
