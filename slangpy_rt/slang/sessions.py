"""Opens compiler sessions: in the compiler's own process, or in this one where the configuration says so.

It is imported when the first session is needed, which a process with a warm cache never is. It holds the two
process-wide objects of the compiler, its process and its library, each made on first use.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.target import Target

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

    Parameters
    ----------
    target, search_paths, defines, auto_import
        As of ``Session``.
    """
    compiler = compiler_process()
    if compiler is None:
        from slangpy_rt.slang.session import Session

        return Session(_library(), target, search_paths, defines, auto_import)
    from slangpy_rt.slang.remote_session import RemoteSession

    return RemoteSession(compiler, target, search_paths, defines, auto_import)


@lru_cache(maxsize=1)
def compiler_process() -> CompilerProcess | None:
    """Return the compiler's process, or None where this process compiles by itself."""
    python = CONFIG.compiler_python
    if not python:
        return None
    from slangpy_rt.slang.compiler_process import CompilerProcess

    return CompilerProcess(CONFIG.slang_lib, python, CONFIG.compile_seconds)


@lru_cache(maxsize=1)
def _library() -> Library:
    from slangpy_rt.slang.library import Library

    return Library(CONFIG.slang_lib)
