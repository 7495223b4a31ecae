"""Absolute paths, also for a process whose working directory was deleted, where the standard library raises."""

from __future__ import annotations

import os
from pathlib import Path


def working_directory() -> str:
    """Return the working directory; empty if it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - no path object is needed
    except OSError:
        return ""


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path that keeps ``..``, which may lead elsewhere behind a symbolic link."""
    return str(Path(working_directory(), path))


def normalized(path: str | os.PathLike[str]) -> str:
    """Return an absolute path without ``.`` and ``..``; of a deleted working directory the path as it is."""
    try:
        return os.path.abspath(path)  # noqa: PTH100
    except OSError:
        return os.fspath(path)


def resolved(path: str | os.PathLike[str]) -> str:
    """Return an absolute path with symbolic links resolved; of a deleted working directory the path as it is."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.fspath(path)
