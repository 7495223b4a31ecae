"""Opens compiler sessions, in the compiler's own process, or in this one if the configuration says so.

This module is imported when the first session is needed, which never happens with a warm cache. It keeps one
CompilerProcess or one Library for all sessions, created on first use.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache, cache_directory
from slangpy_rt.core.target import Target
from slangpy_rt.slang.builds import warn_of_build

if TYPE_CHECKING:
    from slangpy_rt.slang.auto_import import AutoImport
    from slangpy_rt.slang.compiler_process import CompilerProcess
    from slangpy_rt.slang.compiler_session import CompilerSession
    from slangpy_rt.slang.library import Library


def new_session(
    target: Target,
    search_paths: tuple[str, ...],
    defines: tuple[tuple[str, str], ...],
    auto_import: AutoImport | None = None,
) -> CompilerSession:
    """Open a compiler session; the first one starts the compiler's process.

    A build of the compiler that was not tested is warned of, once.

    Parameters
    ----------
    target, search_paths, defines, auto_import
        See ``Session``.

    Raises
    ------
    UnsupportedError
        If the compiler is missing or does not start, or knows no such format or profile.
    """
    compiler = compiler_process()
    if compiler is None:
        from slangpy_rt.slang.session import Session

        session: CompilerSession = Session(_library(), target, search_paths, defines, auto_import)
    else:
        from slangpy_rt.slang.remote_session import RemoteSession

        session = RemoteSession(compiler, target, search_paths, defines, auto_import)
    try:
        warn_of_build(session.build_tag)
    except Warning:  # where warnings are errors
        session.close()
        raise
    return session


@lru_cache(maxsize=1)
def compiler_process() -> CompilerProcess | None:
    """Return the compiler's process, or None if the configuration makes this process compile by itself."""
    python = CONFIG.compiler_python
    if not python:
        return None
    from slangpy_rt.slang.compiler_process import CompilerProcess

    return CompilerProcess(CONFIG.slang_lib, python, CONFIG.compile_seconds, _cache())


@lru_cache(maxsize=1)
def _library() -> Library:
    from slangpy_rt.slang.library import Library

    return Library(CONFIG.slang_lib, _cache())


def _cache() -> DiskCache:
    """Return the disk cache that the configuration names."""
    return DiskCache.open(cache_directory(), CONFIG.cache_size)
