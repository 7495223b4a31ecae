"""A digest of this package's code that makes what the disk cache holds, as a part of the cache's keys.

Declarations and kernels of the same text change when the code changes that reads texts, generates kernels and
corrects what the compiler writes. The digest is of the contents of all of its files, so that it is the same on every
machine with the same version, and another after each edit.
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
    """Return the digest of the files of ``slang``, ``core``, the code generator and ``shaders``.

    Reading 176 files takes 2.5 ms in each process, so the cache keeps the digest under their names, sizes, times and
    inodes, which take 0.6 ms. An edit, a new installation and a restored file differ in at least one of these: the
    time of the last change of an inode cannot be set.
    """
    return folders_digest(_folders(), DiskCache.open(cache_directory(), CONFIG.cache_size), _LOADED)


def folders_digest(folders: list[Path], cache: DiskCache, loaded: int | None = None) -> str:
    """Return the digest of the code in folders, from the cache if their files are those that it was made of.

    Parameters
    ----------
    folders : list of Path
        The folders, which are searched with all below them.
    cache : DiskCache
        Where digests stay.
    loaded : int, optional
        The time, in nanoseconds, at which the process loaded the code. If a file changed after it, as in an upgrade
        of a package that is in use, the code that runs is not the code in the files, and what it makes must not be
        found by another process: the result is random.
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
    # By names relative to the folders, in an order that no file system chooses.
    names = sorted((name, file) for name, file in _named(folders))
    for name, file in names:
        data = Path(file).read_bytes()
        whole.update(f"{name}\0{len(data)}\0".encode() + data)
    digest = whole.hexdigest()
    # A file that was written meanwhile has another state than the one that the key holds.
    if states == [(file, *_state(found)) for file, found in _files(folders)]:
        cache.put(key, {"kind": "code", "title": "digest of slangpy_rt's own code", "digest": digest}, b"")
    return digest


def _folders() -> list[Path]:
    package = Path(__file__).parents[1]
    # In a wheel the code generator lies beside the package, in a checkout in a folder of its own.
    beside = (package.parent / "slangpy_rt_codegen", package.parent / "codegen" / "slangpy_rt_codegen")
    return [package / "slang", package / "core", *filter(Path.is_dir, beside), Path(shader_directory())]


def _files(folders: list[Path]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the paths of all files with code, in an order of their own, each with its entry."""
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
    """Yield the name of each file, from its folder's name on, and its path."""
    for folder in folders:
        for file, _ in _files([folder]):
            yield f"{folder.name}/{Path(file).relative_to(folder).as_posix()}", file


def _state(entry: os.DirEntry[str]) -> tuple[int, int, int, int]:
    state = entry.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino
