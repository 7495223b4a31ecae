"""Source: the text of one Slang module, what it declares, and the compiler session opened when needed.

With a warm cache the declarations come from there and no session is ever opened. It runs nothing and knows no arrays.
"""

from __future__ import annotations

import hashlib
import math
import re
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.conversion import as_number, kind_of
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import BindError, CompileError, SlangPyRtError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import Compiled, FunctionSig, ModuleInfo, Param, SlangType, StructInfo, from_json, to_json
from slangpy_rt.core.wording import describe
from slangpy_rt.slang.file_states import FileStates
from slangpy_rt.slang.files import checked, decoded, read_file, real

if TYPE_CHECKING:
    from slangpy_rt.slang.client import Compiler, RemoteSession
    from slangpy_rt.slang.library import Library
    from slangpy_rt.slang.session import Session

Places = tuple[tuple[str, str], ...]
Defines = tuple[tuple[str, str], ...]
Conformances = tuple[tuple[str, str, int], ...]


# Part of the key of what reflection found: raise it when reflection finds more, or something else, in the same text.
_REFLECTION = 4
# Files that are written while Slang reads them: how often to begin again, and after how many seconds.
_TRIES, _PAUSE = 10, 0.02
# Slang 2026.12 gives its own module for such a name, whatever the text.
_SLANG_MODULES = frozenset({"core", "glsl", "hlsl", "neural", "slang", "std"})
_LONGEST = 100
_LOOKS = re.compile(r"\b(?:import|include|__include)\b")
# A line that begins so is none of a comment; what an inactive #if hides is no dependency.
_IMPORTS = re.compile(r"^[ \t]*(?:__exported[ \t]+)?import[ \t]+([\w.]+)[ \t]*;", re.M)


class Source:
    """One module's text for one target. An edited text needs another Source, with a compiler session of its own.

    Parameters
    ----------
    cache : DiskCache
        Where declarations are kept.
    target : Target
        What to compile for.
    name, path, text : str
        The module; the path need not exist.
    include_paths : tuple of str
        Where ``import`` and ``#include`` look besides the file's own folder.
    defines : tuple of (str, str)
        Preprocessor macros.
    constants : mapping
        Values of the module's ``extern static const``, those of linked modules included.
    link : tuple of Source
        Modules composed with this one: it may ``import`` them by name, and what they ``export`` fills its ``extern``.
    places : tuple of (str, str)
        Where ``read_source`` looked for the file.

    Raises
    ------
    CompileError
        If Slang refuses a text.
    BindError
        If there is no such constant, or its value does not fit.

    Attributes
    ----------
    name : str
        What generated text imports.
    info : ModuleInfo
        What it declares.
    digest : str
        Changes when the text, any file it includes or imports, a define, a constant, a linked module or the compiler
        does.
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
        constants: Mapping[str, Any] | None = None,
        link: tuple[Source, ...] = (),
        places: Places = (),
    ) -> None:
        began = time.time_ns()
        self.name = _module_name(name)
        self.path = path
        self.text = checked(f"module '{self.name}'", text)
        self._places = places
        self._target = target
        self._defines = defines
        self._cache = cache
        self._include_paths = include_paths
        self._constants = dict(constants or {})
        every: dict[str, Source] = {}
        for other in (other for source in link for other in (*source._linked, source)):
            if every.setdefault(other.name, other).digest != other.digest or other.name == self.name:
                raise BindError(
                    f"module '{self.name}': link has another module of the name '{other.name}', by which texts "
                    "import it; give one of them another name."
                )
        self._linked: tuple[Source, ...] = tuple(every.values())
        folders = [str(Path(p).parent) for p in (path, *(s.path for s in self._linked)) if Path(p).is_file()]
        self._search_paths = tuple(dict.fromkeys((*folders, *include_paths, shader_directory())))
        self._session: Session | RemoteSession | None = None
        self._reflected = ModuleInfo(self.name)
        self._found: dict[tuple[str, ...], Any] = {}
        self._lock = threading.Lock()
        key = cache.key(
            *("module", _REFLECTION, self.name, path, self.text, self._search_paths, defines, compiler_version()),
            target.format,
            target.entry,
            tuple(source.digest for source in self._linked),
        )
        # Slang looks for what text without a file imports in the working directory.
        place = _folder() if not Path(path).is_absolute() and _LOOKS.search(self.text) else ""
        kept = cache.key("module in", key, place)
        info = self._cached(kept)
        if info is None:
            self.session()
            info, self._files = self._reflected, self._states(self._reflected, began)
            cache.put(kept, {"kind": "module", "title": self.name, "info": to_json(info)}, b"")
        self.info: ModuleInfo = info
        known = tuple({c.name: c for s in (*self._linked, self) for c in s.info.constants}.values())
        self._exports: dict[str, str] = dict(kv for source in self._linked for kv in source._exports.items())
        self._exports |= export_constants(f"module '{self.name}'", known, constants or {})
        self.digest: str = cache.key(key, info.dependencies, _shader_digest(), tuple(self._exports.values()))

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """What its text imports, by name; kernels import that too, as types of parameters come from there."""
        found = {Path(path).stem.replace("-", "_") for path, _ in self.info.dependencies}
        named = dict.fromkeys(_IMPORTS.findall(self.text))
        return tuple(name for name in named if name.rpartition(".")[2] in found)

    def session(self) -> Session | RemoteSession:
        """The compiler session with this module and those it is linked with."""
        with self._lock:
            for _ in range(_TRIES if self._session is None else 0):
                began = time.time_ns()
                session = new_session(self._target, self._search_paths, self._defines)
                for other in self._linked:
                    _check_unchanged(other, session.load_module(other.name, other.path, other.text))
                self._reflected = session.load_module(self.name, self.path, self.text)
                if not self._states(self._reflected, began).written_since(began):
                    _check_unchanged(self, self._reflected)
                    self._session = session
                    break
                # What was hashed may be newer than what Slang read.
                session.close()
                time.sleep(_PAUSE)
            if self._session is None:
                raise CompileError(f"module '{self.name}': its files are being written all the time.")
            return self._session

    def functions(self, name: str) -> tuple[FunctionSig, ...]:
        """Overloads of a function or method by a name such as ``"copy<float>"`` or ``"S<float>.load"``.

        Generic arguments are filled in; the sigs' ``name`` is what text calls. Empty if there is no such function.

        Raises
        ------
        CompileError
            If there is one, but it takes no such generic arguments; the message has Slang's reason.
        """
        found: tuple[FunctionSig, ...] = self._lookup("functions", name)
        return found

    def type(self, name: str) -> StructInfo | SlangType | None:
        """A type by a name such as ``"S<float, 4>"``, ``"float3x4"`` or ``"Color"``; None if there is none.

        Raises
        ------
        CompileError
            If there is one, but it takes no such generic arguments; the message has Slang's reason.
        """
        found: StructInfo | SlangType | None = self._lookup("type", name)
        return found

    def conforms(self, type_name: str, interface_name: str) -> bool:
        """Whether a type implements an interface.

        Raises
        ------
        CompileError
            If there is no such type or interface.
        """
        found: bool = self._lookup("conforms", type_name, interface_name)
        return found

    def compile(self, text: str, name: str, entry: str, conformances: Conformances = ()) -> Compiled:
        """Compile generated text that imports this module.

        A constant that the text exports itself wins over one of this source. Each of ``conformances`` is the name of
        an interface, that of a type, and the number that stands for the type in an object of the interface, or -1.
        """
        exports = [line for key, line in self._exports.items() if not re.search(_EXPORT.format(key), text)]
        modules = tuple(source.name for source in (*self._linked, self))
        if exports:  # a constant's type may be one of the modules'
            exports = [*(f"import {module};" for module in modules), *exports]
        link = modules if self._linked else ()
        return self.session().compile(text, name, entry, conformances, link, "\n".join(exports))

    @property
    def prints(self) -> bool:
        """Whether its functions, or those of the modules it is linked with, may call ``printf``."""
        return any(source.info.prints for source in (*self._linked, self))

    @cached_property
    def declares(self) -> frozenset[str]:
        """Names that kernels of this text find in the outermost scope of one of its modules."""
        return frozenset(name for source in (*self._linked, self) for name in source.info.declares)

    @cached_property
    def uses_library(self) -> bool:
        """Whether its text, or that of a module it is made of, sees what users may write of ours, such as Tensor."""
        library = _library_file()
        return any(path == library for source in (*self._linked, self) for path, _ in source.info.dependencies)

    def changed(self) -> bool:
        """Whether a file that this text was made of is another one now; touching one is no change."""
        return any(source._files.changed() for source in (*self._linked, self))

    @property
    def watched(self) -> bool:
        """Whether it was made of any file that may change."""
        return any(source._files for source in (*self._linked, self))

    def renewed(self) -> Source:
        """The same module from its files as they are now, and of the modules it is linked with.

        Raises
        ------
        CompileError
            If Slang refuses a text, or a file is gone.
        """
        path, text, places = self.path, self.text, self._places
        if Path(path).is_absolute() and (places or self.path in dict(self.info.dependencies)):
            tried = [place for place, _ in places] or [path]
            try:
                path, text, places = _first(f"module '{self.name}'", path, tried)
            except FileNotFoundError:
                raise CompileError(f"module '{self.name}': there is no file '{path}' any more.") from None
        return Source(
            self._cache, self._target, self.name, path, text, self._include_paths, self._defines,
            self._constants, tuple(source.renewed() for source in self._linked), places,
        )  # fmt: skip

    def close(self) -> None:
        """Release the session; a later need opens another."""
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def _cached(self, key: str) -> ModuleInfo | None:
        """The declarations from the cache, unless one of the files changed since."""
        entry = self._cache.get(key)
        if entry is None:
            return None
        try:
            info: ModuleInfo = from_json(entry.meta["info"])
            files = self._states(info, 0)
        except (KeyError, TypeError, ValueError):
            return None
        if files.changed():
            return None
        self._files = files
        return info

    def _states(self, info: ModuleInfo, since: int) -> FileStates:
        own = {self.path: self.text} if self.path in dict(info.dependencies) else {}
        return FileStates(dict(info.dependencies), own, dict((*info.places, *self._places)), since)

    def _lookup(self, what: str, *names: str) -> Any:
        """An answer of the session's, from memory or the cache where it is known."""
        key = (what, *names)
        if key not in self._found:
            disk = self._cache.key("lookup", self.digest, *key)
            entry = self._cache.get(disk)
            try:
                value = from_json(entry.meta["found"]) if entry else ...
            except (KeyError, TypeError):
                value = ...
            if value is ...:
                value = getattr(self.session(), what)(self.name, *names)
                title = f"{self.name}: {' '.join(key)}"
                self._cache.put(disk, {"kind": "lookup", "title": title, "found": to_json(value)}, b"")
            self._found[key] = value
        return self._found[key]


def read_source(where: str, path: str | Path, folders: tuple[str, ...]) -> tuple[str, str, Places]:
    """Absolute path and text of a Slang file, looked up as given, in folders, and among those of this package.

    The last of the three is where it was looked for, with the file that was there, links followed.

    Raises
    ------
    CompileError
        If it is in none of them, cannot be read or is not UTF-8 text.
    """
    places = ", ".join(f"'{Path(f).resolve()}'" for f in (".", *folders))
    try:
        tried = [Path(path), *(Path(folder) / path for folder in (*folders, shader_directory()))]
        return _first(where, str(path), [str(place.absolute()) for place in tried])
    except FileNotFoundError:
        raise CompileError(
            f"{where}: there is no file '{path}' in {places}. Give a full path, or add its folder to include_paths."
        ) from None


def _first(where: str, shown: str, tried: Sequence[str]) -> tuple[str, str, Places]:
    """The first of some paths that is a file: the file's own path, its text, and the paths up to it."""
    places: dict[str, str] = {}
    for place in dict.fromkeys(tried):
        try:
            places[place] = real(place)
        except ValueError:  # a NUL
            places[place] = ""
        if places[place]:
            try:
                data = read_file(places[place])
            except OSError as error:
                raise CompileError(f"{where}: '{place}' cannot be read: {error}.") from None
            return places[place], decoded(f"{where}: '{place}'", data), tuple(places.items())
    for place in places:
        with suppress(OSError, ValueError):
            what = "a folder" if stat.S_ISDIR(Path(place).stat().st_mode) else "no ordinary file"
            raise CompileError(f"{where}: '{place}' is {what}; give the path of a file with Slang text.")
    raise FileNotFoundError(shown)


def export_constants(where: str, known: tuple[Param, ...], values: Mapping[str, Any]) -> dict[str, str]:
    """Slang text that gives link-time constants their values, by name: ``"export static const int N = 4;"``.

    Parameters
    ----------
    where : str
        Who asks, for messages.
    known : tuple of Param
        The constants that there are.
    values : mapping
        bool, int or float of a scalar or enum; a list of them, or one for all, of a vector.

    Raises
    ------
    BindError
        If there is no such constant, or its value does not fit its type.
    """
    types = {param.name: param.type for param in known}
    out = {}
    for name, value in values.items():
        if name not in types:
            listed = ", ".join(f"'{n}'" for n in types) or "none"
            raise BindError(
                f"{where}: there is no constant '{name}'; it has {listed}. "
                f"Declare it as: extern static const int {name};"
            )
        try:
            literal = _literal(types[name], value)
        except BindError:
            literal = None
        if literal is None:
            raise BindError(
                f"{where}: constant '{name}' is {describe(value)}; a value of Slang type {types[name].name} "
                "was expected."
            )
        out[name] = f"export static const {types[name].name} {name} = {literal};"
    return out


def new_session(target: Target, search_paths: tuple[str, ...], defines: Defines) -> Session | RemoteSession:
    """A compiler session, in a process of the compiler's own, which the first one starts."""
    compiler = _compiler()
    if compiler is None:
        from slangpy_rt.slang.session import Session

        return Session(_library(), target, search_paths, defines)
    from slangpy_rt.slang.client import RemoteSession

    return RemoteSession(compiler, target, search_paths, defines)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _module_name(name: str) -> str:
    """An identifier of Slang's for a file's name, other than those of Slang's own modules and of ours."""
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if len(name) > _LONGEST or not name.isascii():  # what is left alone could be that of another module
        identifier = f"{identifier[:_LONGEST]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"
    taken = identifier in _SLANG_MODULES or identifier in _our_modules() or not identifier[:1].isidentifier()
    return f"_{identifier}" if taken else identifier


@lru_cache(maxsize=1)
def _library_file() -> str:
    """What users import of ours, as Slang names it among the files of a module."""
    return str((Path(shader_directory()) / "slangpy_rt.slang").resolve())


@lru_cache(maxsize=1)
def _our_modules() -> frozenset[str]:
    return frozenset(path.stem for path in Path(shader_directory()).glob("*.slang"))


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
def _compiler() -> Compiler | None:
    """The compiler's process; None where texts are compiled in this one."""
    python = CONFIG.compiler_python
    if not python:
        return None
    from slangpy_rt.slang.client import Compiler

    return Compiler(CONFIG.slang_lib, python, CONFIG.compile_seconds)


@lru_cache(maxsize=1)
def _library() -> Library:
    from slangpy_rt.slang.library import Library

    return Library(CONFIG.slang_lib)


_EXPORT = r"\bexport\s+static\s+const\s+\S+\s+{}\b"
_BITS = {"int8_t": 8, "int16_t": 16, "int": 32, "int64_t": 64}
_FLOATS = {"half": 65504.0, "float": 3.4028234663852886e38, "double": math.inf}


def _literal(kind: SlangType, value: Any) -> str | None:
    """A value as Slang writes it, None if it does not fit."""
    if kind.kind == "vector":
        items = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value] * kind.shape[0]
        parts = [_literal(SlangType("scalar", kind.scalar, kind.scalar), item) for item in items]
        if len(parts) != kind.shape[0] or None in parts:
            return None
        return f"{kind.name}({', '.join(filter(None, parts))})"
    if kind.kind not in ("scalar", "enum") or isinstance(value, str):
        return None
    if kind.scalar == "bool":
        flag = bool(value) if kind_of(value) in "iu" and value in (0, 1) else as_number("", kind, value)
        return str(bool(flag)).lower()
    if isinstance(value, (bool, np.bool_)):
        return None
    number = as_number("", kind, value)
    if kind.scalar in _FLOATS:
        return _float_literal(kind.scalar, number)
    return f"{kind.name}({_int_literal(int(number))})"


def _int_literal(number: int) -> str:
    if number == -1 << 63:  # its magnitude is no int64_t
        return "-9223372036854775807LL - 1"
    return f"{number}{'ULL' if number >= 1 << 63 else 'LL'}"


def _float_literal(scalar: str, value: Any) -> str | None:
    number = float(value)
    if not math.isfinite(number) or abs(number) > _FLOATS[scalar]:
        return None
    return f"{scalar}({number!r}{'lf' if scalar == 'double' else ''})"


def _check_unchanged(source: Source, fresh: ModuleInfo) -> None:
    """Refuse files that changed since they were read: what they give would be kept under the old ones' key."""
    known: ModuleInfo | None = getattr(source, "info", None)
    own = str(Path(source.path).resolve())  # its text is in memory
    files = set(known.dependencies) ^ set(fresh.dependencies) if known else set()
    changed = sorted(path for path, _ in files if path != own)
    if changed:
        raise CompileError(
            f"module '{source.name}': '{changed[0]}' changed since it was loaded; load the module again."
        )
