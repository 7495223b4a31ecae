"""A digest of the code that produces the disk cache's entries, as a part of the cache's keys.

An entry depends on the code that parses sources, generates kernels and corrects the compiler's output. The digest
covers the contents of these files: it is the same on every machine with the same version, and changes with each edit.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache, cache_directory
from slangpy_rt.slang.locate import shader_directory

_LOADED = time.time_ns()
_SUFFIXES = (".py", ".pyc", ".slang", ".hpp")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return the digest of ``slang``, ``core``, ``lanes``, ``backends/cpu``, the code generator and ``shaders``.

    Reading the files takes 2.5 ms in each process; their names, sizes, times and inodes take 0.6 ms, and the cache
    holds the digest under these. Every edit, installation or restored backup changes at least one of them, because
    programs cannot set the change time of an inode.
    """
    return folders_digest(_folders(), DiskCache.open(cache_directory(), CONFIG.cache_size), _LOADED)


def folders_digest(folders: list[Path], cache: DiskCache, loaded: int | None = None) -> str:
    """Return the digest of the code in folders, from the cache if the files are unchanged.

    Parameters
    ----------
    folders : list of Path
        The folders, which are searched recursively.
    cache : DiskCache
        The cache of digests.
    loaded : int, optional
        The time, in nanoseconds, at which the process loaded the code. If a file changed later, as in an upgrade of a
        package in use, the running code is not the code in the files. The digest is random then, so that no other
        process finds entries of this one.
    """
    states = [(file, *_state(entry)) for file, entry in _files(folders)]
    if loaded is not None and any(max(modified, changed) > loaded for _, _, modified, changed, _ in states):
        return os.urandom(32).hex()
    key = cache.key("code", repr(states))
    entry = cache.get(key)
    kept = entry.meta.get("digest") if entry else None
    if isinstance(kept, str):
        return kept
    whole = hashlib.sha256()
    # Sorted by names relative to the folders: the order of a directory's entries differs by file system.
    names = sorted((name, file) for name, file in _named(folders))
    for name, file in names:
        data = Path(file).read_bytes()
        whole.update(f"{name}\0{len(data)}\0".encode() + data)
    digest = whole.hexdigest()
    # If a file was written meanwhile, the key does not describe the contents.
    if states == [(file, *_state(found)) for file, found in _files(folders)]:
        cache.put(key, {"kind": "code", "title": "digest of slangpy_rt's own code", "digest": digest}, b"")
    return digest


def _folders() -> list[Path]:
    package = Path(__file__).parents[1]
    # In a wheel the code generator lies beside the package, in a checkout in a folder of its own.
    beside = (package.parent / "slangpy_rt_codegen", package.parent / "codegen" / "slangpy_rt_codegen")
    own = [package / "slang", package / "core", package / "lanes", package / "backends" / "cpu"]
    return [*own, *filter(Path.is_dir, beside), Path(shader_directory())]


def _files(folders: list[Path]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the path and the directory entry of each file with code."""
    todo = [str(folder) for folder in folders]
    while todo:
        with os.scandir(todo.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if entry.name.endswith(_SUFFIXES):
                yield entry.path, entry
            elif entry.name != "__pycache__" and entry.is_dir():
                todo.append(entry.path)


def _named(folders: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield the name of each file, relative to its folder's parent, and its path."""
    for folder in folders:
        for file, _ in _files([folder]):
            yield f"{folder.name}/{Path(file).relative_to(folder).as_posix()}", file


def _state(entry: os.DirEntry[str]) -> tuple[int, int, int, int]:
    state = entry.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino
