"""Source: the text of one Slang module, what it declares, and the compiler session opened when needed.

With a warm cache the declarations come from there and no session is ever opened.
"""

from __future__ import annotations

import hashlib
import re
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from slangpy_rt.backends.base import Target
from slangpy_rt.cache import DiskCache
from slangpy_rt.config import CONFIG
from slangpy_rt.errors import CompileError, SlangPyRtError
from slangpy_rt.types import Compiled, ModuleInfo, from_json, to_json

if TYPE_CHECKING:
    from slangpy_rt.slang.session import Library, Session

Defines = tuple[tuple[str, str], ...]


class Source:
    """One module's text for one target.

    Attributes
    ----------
    name : str
        What generated text imports.
    info : ModuleInfo
        What it declares.
    digest : str
        Changes when the text, any file it includes or imports, a define or the compiler does.
    """

    def __init__(
        self,
        cache: DiskCache,
        target: Target,
        name: str,
        path: str,
        text: str,
        include_paths: tuple[str, ...],
        defines: Defines,
    ) -> None:
        self.name = _module_name(name)
        self.path = path
        self.text = text
        self._target = target
        self._defines = defines
        folder = (str(Path(path).parent),) if Path(path).is_file() else ()
        self._search_paths = (*folder, *include_paths, shader_directory())
        self._session: Session | None = None
        self._reflected = ModuleInfo(self.name)
        self._lock = threading.Lock()
        key = cache.key(
            "module", self.name, path, text, self._search_paths, defines, compiler_version(), target.format
        )
        info = _cached_info(cache, key)
        if info is None:
            self.session()
            info = self._reflected
            cache.put(key, {"kind": "module", "title": self.name, "info": to_json(info)}, b"")
        self.info: ModuleInfo = info
        self.digest = cache.key(key, info.dependencies, _shader_digest())

    def session(self) -> Session:
        """The compiler session with this module in it."""
        with self._lock:
            if self._session is None:
                session = new_session(self._target, self._search_paths, self._defines)
                self._reflected = session.load_module(self.name, self.path, self.text)
                self._session = session
            return self._session

    def compile(self, text: str, name: str, entry: str) -> Compiled:
        """Compile generated text that imports this module."""
        return self.session().compile(text, name, entry)

    def close(self) -> None:
        """Release the session; a later need opens another."""
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None


def read_source(where: str, path: str | Path, folders: tuple[str, ...]) -> tuple[str, str]:
    """Absolute path and text of a Slang file, looked up as given and then in folders.

    Raises
    ------
    CompileError
        If it is in none of them or is not UTF-8 text.
    """
    tried = [Path(path), *(Path(folder) / path for folder in folders)]
    for candidate in tried:
        if candidate.is_file():
            try:
                return str(candidate.resolve()), candidate.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise CompileError(f"{where}: '{candidate}' is not UTF-8 text ({error.reason}).") from None
    places = ", ".join(f"'{Path(f).resolve()}'" for f in (".", *folders))
    raise CompileError(
        f"{where}: there is no file '{path}' in {places}. Give a full path, or add its folder to include_paths."
    )


def new_session(target: Target, search_paths: tuple[str, ...], defines: Defines) -> Session:
    """A compiler session, which loads the Slang library when it is the first."""
    from slangpy_rt.slang.session import Session

    return Session(_library(), target, search_paths, defines)


def _module_name(name: str) -> str:
    """An identifier of Slang's for a file's name, other than our own module's."""
    identifier = re.sub(r"\W", "_", name)
    return f"_{identifier}" if identifier == "slangpy_rt" or not identifier[:1].isidentifier() else identifier


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """Which Slang build compiles here, found without loading it."""
    from slangpy_rt.slang.locate import library_version

    return library_version(CONFIG.slang_lib)


@lru_cache(maxsize=1)
def shader_directory() -> str:
    """Where the installed shaders/ lie."""
    from importlib.util import find_spec

    spec = find_spec("slangpy_rt.shaders")
    if spec is None or not spec.submodule_search_locations:
        raise SlangPyRtError("slangpy_rt.shaders is missing: install the package again.")
    return next(iter(spec.submodule_search_locations))


@lru_cache(maxsize=1)
def _shader_digest() -> str:
    """Changes with the Slang library that every kernel imports."""
    texts = (path.read_bytes() for path in sorted(Path(shader_directory()).glob("*.slang")))
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


@lru_cache(maxsize=1)
def _library() -> Library:
    from slangpy_rt.slang.session import Library

    return Library(CONFIG.slang_lib)


def _cached_info(cache: DiskCache, key: str) -> ModuleInfo | None:
    """A module's declarations from the cache, unless one of its files changed since."""
    entry = cache.get(key)
    if entry is None:
        return None
    try:
        info: ModuleInfo = from_json(entry.meta["info"])
        for path, digest in info.dependencies:
            if hashlib.sha256(Path(path).read_bytes()).hexdigest() != digest:
                return None
    except (KeyError, TypeError, OSError):
        return None
    return info
