"""Source: the text of one Slang module, its declarations, and a compiler session that is opened when needed.

With a warm cache the declarations come from the cache and no session is opened. No kernel is run here.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.paths import resolved, working_directory
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import (
    Compiled,
    Conformances,
    FunctionSig,
    ModuleInfo,
    Param,
    SlangType,
    StructInfo,
    from_json,
    to_json,
)
from slangpy_rt.slang.code_digest import code_digest
from slangpy_rt.slang.constants import export_constants
from slangpy_rt.slang.differentiable_functions import differentiable_functions
from slangpy_rt.slang.file_states import FileStates
from slangpy_rt.slang.files import (
    Places,
    checked,
    decoded,
    first_file,
    read_file,
    read_source,
)
from slangpy_rt.slang.linked_text import check_macros, with_macros
from slangpy_rt.slang.locate import compiler_version, shader_directory, shaders
from slangpy_rt.slang.text import blank, undefining

if TYPE_CHECKING:
    from slangpy_rt.slang.auto_import import AutoImport
    from slangpy_rt.slang.compiler_session import CompilerSession

Defines = tuple[tuple[str, str], ...]
# A module's path, text (None for that of the file), macros and constants, and the recipes of linked modules.
Recipe = tuple[str, "str | None", Defines, dict[str, Any], tuple[Any, ...]]

# A module whose files are written while Slang reads them is loaded again: the number of attempts, and the pause
# after each, in seconds.
_TRIES, _PAUSE = 10, 0.02
# Slang 2026.12 returns its own modules for these names, whatever text is loaded under them.
_SLANG_MODULES = frozenset({"core", "glsl", "hlsl", "neural", "slang", "std"})
_LONGEST = 100  # A module's name is cut after this many characters.
_LOOKS = re.compile(r"\b(?:import|include|__include)\b")
# An import that an inactive #if hides matches too, but is no dependency of the module.
_IMPORTS = re.compile(r"\bimport\s+([\w.]+)\s*;")
_EXPORT = r"\bexport\s+static\s+const\s+\S+\s+{}\b"  # a line of ``export_constants``, by the constant's name


class Source:
    """One module's text for one target. An edited text needs another Source, with a compiler session of its own.

    Parameters
    ----------
    cache : DiskCache
        The cache in which declarations are kept.
    target : Target
        The target to compile for.
    name, path, text : str
        The module's name, file and text; the file need not exist.
    include_paths : tuple of str
        Folders in which ``import`` and ``#include`` look besides the file's own folder.
    defines : tuple of (str, str)
        Preprocessor macros.
    constants : mapping
        Values of ``extern static const`` declarations of the module or of linked modules, by name.
    link : tuple of Source
        Modules that are linked with this one: it may ``import`` them by name, and their ``export`` declarations
        define its ``extern`` declarations.
    places : tuple of (str, str)
        The paths at which ``read_source`` looked for the file.
    auto_import : AutoImport or None
        See ``Session``.

    Raises
    ------
    CompileError
        If Slang refuses a text.
    BindError
        If there is no constant of a given name, its value does not fit, two modules have the same name, or a file
        that a linked module imports needs a macro of that module.

    Attributes
    ----------
    target : Target
        The target that the module is compiled for.
    name : str
        The name by which generated text imports the module.
    info : ModuleInfo
        The module's declarations.
    digest : str
        A digest that differs whenever the text, a file that it includes or imports, a define, a constant, a linked
        module, the compiler or this package's code differs.
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
        auto_import: AutoImport | None = None,
    ) -> None:
        began = time.time_ns()
        self._given_name = name
        self.name = _module_name(name)
        self.path = path
        self.text = checked(f"module '{self.name}'", text)
        self._places = places
        self.target = target
        self._others: dict[Target, Source] = {}
        self._defines = defines
        self._cache = cache
        self._include_paths = include_paths
        self._auto_import = auto_import
        self._constants = dict(constants or {})
        every: dict[str, Source] = {}
        for other in (other for source in link for other in (*source._linked, source)):
            if every.setdefault(other.name, other).digest != other.digest or other.name == self.name:
                raise BindError(
                    f"module '{self.name}': link has another module of the name '{other.name}', by which texts "
                    "import it; give one of them another name."
                )
        self._linked: tuple[Source, ...] = tuple(every.values())
        for s in self._linked:
            check_macros(f"module '{self.name}'", s.name, (s.path, s.text, s._search_paths), s._defines, defines)
        folders = [str(Path(p).parent) for p in (path, *(s.path for s in self._linked)) if Path(p).is_file()]
        self._search_paths: tuple[str, ...] = tuple(dict.fromkeys((*folders, *include_paths, shader_directory())))
        self._session: CompilerSession | None = None
        self._reflected = ModuleInfo(self.name)
        self._found: dict[tuple[str, ...], Any] = {}
        self._lock = threading.Lock()
        key = cache.key(
            *("module", code_digest(), self.name, path, self.text, self._search_paths, defines, compiler_version()),
            target.format,
            target.entry,
            target.flags,
            auto_import or "",
            tuple(source.digest for source in self._linked),
        )
        # For a text without a file, Slang looks for imports in the working directory.
        place = working_directory() if not Path(path).is_absolute() and _LOOKS.search(self.text) else ""
        kept = cache.key("module in", key, place)
        info = self._cached(kept)
        if info is None:
            self.session()
            info, self._files = self._reflected, self._states(self._reflected, began)
            cache.put(kept, {"kind": "module", "title": self.name, "info": to_json(info)}, b"")
        self.info: ModuleInfo = info
        self._exports: dict[str, str] = dict(kv for source in self._linked for kv in source._exports.items())
        self._exports |= export_constants(f"module '{self.name}'", self.constants, constants or {})
        self.digest: str = cache.key(key, info.dependencies, tuple(self._exports.values()))

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Names of the modules that the text imports; kernels import them too, for the types of parameters."""
        found = {Path(path).stem.replace("-", "_") for path, _ in self.info.dependencies}
        found.update(source.name for source in self._linked)
        named = dict.fromkeys(_IMPORTS.findall(blank(self.text)))
        return tuple(name for name in named if name.rpartition(".")[2] in found)

    def session(self) -> CompilerSession:
        """Return a compiler session in which this module and its linked modules are loaded; the first call opens it.

        Raises
        ------
        CompileError
            If Slang refuses a text, or a file of a module changed since the Source was created.
        """
        from slangpy_rt.slang.sessions import new_session  # not needed if everything is in the cache

        with self._lock:
            for _ in range(_TRIES if self._session is None else 0):
                began = time.time_ns()
                session = new_session(self.target, self._search_paths, self._defines, self._auto_import)
                try:
                    for other in self._linked:
                        theirs = with_macros(other.text, other._defines, self._defines)
                        _check_unchanged(other, session.load_module(other.name, other.path, theirs))
                    self._reflected = session.load_module(self.name, self.path, self.text)
                    if not self._states(self._reflected, began).written_since(began):
                        _check_unchanged(self, self._reflected)
                        self._session = session
                        break
                finally:
                    if self._session is None:
                        session.close()
                # A file was written since loading began. Slang and ``files.dependencies`` may have read different
                # texts, so the digest may not be that of the text which Slang read.
                time.sleep(_PAUSE)
            if self._session is None:
                raise CompileError(f"module '{self.name}': its files are being written all the time.")
            return self._session

    def functions(self, name: str) -> tuple[FunctionSig, ...]:
        """Return the overloads of a function or method by a name such as ``"copy<float>"`` or ``"S<float>.load"``.

        The types in the result are those of the specialized function, and its ``name`` is the one that Slang text
        calls. The result is empty if there is no such function.

        Raises
        ------
        CompileError
            If the generic arguments do not fit; the message has Slang's reason.
        """
        found: tuple[FunctionSig, ...] = self._lookup("functions", name)
        return found

    def type(self, name: str) -> StructInfo | SlangType | None:
        """Return a type by a name such as ``"S<float, 4>"``, ``"float3x4"`` or ``"Color"``; None if there is none.

        Raises
        ------
        CompileError
            If the generic arguments do not fit; the message has Slang's reason.
        """
        found: StructInfo | SlangType | None = self._lookup("type", name)
        return found

    def conforms(self, type_name: str, interface_name: str) -> bool:
        """Return whether a type implements an interface, both given by name.

        Raises
        ------
        CompileError
            If there is no such type or interface.
        """
        found: bool = self._lookup("conforms", type_name, interface_name)
        return found

    def compile(self, text: str, name: str, entry: str, conformances: Conformances = ()) -> Compiled:
        """Compile generated text that imports this module.

        A constant that the text exports itself replaces the one of the same name in this module.

        Parameters
        ----------
        text, name, entry
            See ``CompilerSession.compile``.
        conformances : tuple of (interface, type, id)
            The types that an object of an interface may have, and the number that marks each in such an object; with
            -1 Slang chooses the number.

        Raises
        ------
        CompileError, UnsupportedError
            See ``CompilerSession.compile``.
        """
        exports = [line for key, line in self._exports.items() if not re.search(_EXPORT.format(key), text)]
        modules = tuple(source.name for source in (*self._linked, self))
        if exports:  # the type of a constant, such as an enum, may be declared in one of the modules
            exports = [*(f"import {module};" for module in modules), *exports]
        link = modules if self._linked else ()
        return self.session().compile(text, name, entry, conformances, link, "\n".join(exports))

    @cached_property
    def constants(self) -> tuple[Param, ...]:
        """Each ``extern static const`` of this module or of a linked one."""
        return tuple({c.name: c for source in (*self._linked, self) for c in source.info.constants}.values())

    @property
    def prints(self) -> bool:
        """Whether functions of this module or of a linked one may call ``printf``."""
        return any(source.info.prints for source in (*self._linked, self))

    @property
    def groups(self) -> bool:
        """Whether functions of this module or of a linked one may use anything of a thread group."""
        return any(source.info.groups for source in (*self._linked, self))

    @property
    def statics(self) -> bool:
        """Whether functions of this module or of a linked one may change static variables."""
        return any(source.info.statics for source in (*self._linked, self))

    @cached_property
    def declares(self) -> frozenset[str]:
        """Names in the outermost scopes of this module and of the linked ones."""
        return frozenset(name for source in (*self._linked, self) for name in source.info.declares)

    def uses(self, name: str) -> bool:
        """Whether this module or a linked one imports one of ours, such as ``slangpy_rt``, which declares Tensor."""
        file = str(Path(shaders().library).with_name(f"{name}.slang"))
        return any(path == file for source in (*self._linked, self) for path, _ in source.info.dependencies)

    def texts(self) -> dict[str, str]:
        """Return the texts of the module, of linked modules, and of the files that they are made of, by path."""
        found: dict[str, str] = {}
        for one in (self, *self._linked):
            found.setdefault(one.path, one.text)
            for path, _ in one.info.dependencies:
                if path not in found and Path(path).is_file():
                    found[path] = decoded(f"'{path}'", read_file(path))
        return found

    def declares_no_diff(self, sig: FunctionSig, parameter: str) -> bool:
        """Return whether the texts declare a parameter of a differentiable function ``no_diff``.

        Reflection says so of every parameter whose type has no derivative.
        """
        name = sig.name.partition("<")[0].rpartition(".")[2]
        functions = (f for text in self.texts().values() for f in differentiable_functions(text)[0] if f.name == name)
        return any(p.name == parameter and not p.differentiable for f in functions for p in f.parameters)

    def changed(self) -> bool:
        """Return whether a file of this module or a linked one has other contents than when it was loaded."""
        return any(source._files.changed() for source in (*self._linked, self))

    @property
    def watched(self) -> bool:
        """Whether this module or a linked one depends on any file, which may change."""
        return any(source._files for source in (*self._linked, self))

    def renewed(self) -> Source:
        """Return a Source loaded from the present contents of the files of this module and of the linked ones.

        Raises
        ------
        CompileError
            If Slang refuses a text, or a file no longer exists.
        """
        path, text, places = self.path, self.text, self._places
        if Path(path).is_absolute() and (places or self.path in dict(self.info.dependencies)):
            tried = [place for place, _ in places] or [path]
            try:
                path, text, places = first_file(f"module '{self.name}'", path, tried)
            except FileNotFoundError:
                raise CompileError(f"module '{self.name}': there is no file '{path}' any more.") from None
        return Source(
            self._cache, self.target, self._given_name, path, text, self._include_paths, self._defines,
            self._constants, tuple(source.renewed() for source in self._linked), places, self._auto_import,
        )  # fmt: skip

    @property
    def recipe(self) -> Recipe:
        """What ``source_of`` loads the module from: its file, or its text where it was given as one."""
        text = None if self._places else self.text
        links = tuple(source.recipe for source in self._linked)
        return self.path, text, self._defines, self._constants, links

    def followed_by(self, texts: Mapping[str, str], constants: Mapping[str, Any]) -> Source:
        """Return a Source of the last of some texts of this project, which may import this module and the others.

        Macros of this module are not defined in them.

        Parameters
        ----------
        texts : mapping of str to str
            Texts by name. They are compiled as if they were files in ``shaders/``.
        constants : mapping
            Values of ``extern static const`` declarations of this module, in place of those that it was loaded with.

        Raises
        ------
        CompileError
            If Slang refuses a text.
        BindError
            If there is no constant of a given name, or its value does not fit.
        """
        head, folder = undefining(self._defines), Path(shader_directory())
        made: list[Source] = []
        for name, text in texts.items():
            last = len(made) == len(texts) - 1
            made.append(
                Source(
                    self._cache, self.target, name, str(folder / f"{name}.slang"), head + text, self._include_paths,
                    self._defines, constants if last else {}, (self, *made) if last else (),
                )
            )  # fmt: skip
        # Only the session of the last one compiles kernels.
        for source in made[:-1]:
            source.close()
        return made[-1]

    def on(self, target: Target) -> Source:
        """Return a Source of the same text for another target of the device; the first call for a target loads it.

        Raises
        ------
        CompileError
            If Slang refuses the text for that target, or a file changed since this Source was created.
        """
        if target == self.target:
            return self
        linked = tuple([source.on(target) for source in self._linked])
        with self._lock:
            found = self._others.get(target)
            if found is None:
                found = Source(
                    self._cache, target, self._given_name, self.path, self.text, self._include_paths, self._defines,
                    self._constants, linked, self._places, self._auto_import,
                )  # fmt: skip
                found.check_files(self)
                self._others[target] = found
            return found

    def check_files(self, other: Source) -> None:
        """Refuse another Source of the module, for another target, if it was made of other texts.

        A target may need modules of this project that another one does without.

        Raises
        ------
        CompileError
            If a file that both depend on changed in between.
        """
        theirs = dict(other.info.dependencies)
        changed = sorted(path for path, digest in self.info.dependencies if theirs.get(path, digest) != digest)
        if changed:
            raise CompileError(
                f"module '{self.name}': '{changed[0]}' changed since it was loaded; load the module again."
            )

    def close(self) -> None:
        """Release the compiler sessions that are open; ``session`` opens another."""
        with self._lock:
            others = list(self._others.values())
            if self._session is not None:
                self._session.close()
                self._session = None
        for other in others:
            other.close()

    def _cached(self, key: str) -> ModuleInfo | None:
        """Return the declarations from the cache, or None if there are none or one of the files changed since."""
        entry = self._cache.get(key)
        if entry is None:
            return None
        try:
            info = from_json(entry.meta["info"])
            if not isinstance(info, ModuleInfo):
                return None
            files = self._states(info, 0)
            if files.changed():
                return None
        except _FORGED:
            return None
        self._files = files
        return info

    def _states(self, info: ModuleInfo, since: int) -> FileStates:
        own = {self.path: self.text} if self.path in dict(info.dependencies) else {}
        return FileStates(dict(info.dependencies), own, dict((*info.places, *self._places)), since)

    def _lookup(self, what: str, *names: str) -> Any:
        """Return the result of the session's method `what` for `names`, from memory or the disk cache if possible."""
        key = (what, *names)
        if key not in self._found:
            disk = self._cache.key("lookup", self.digest, *key)
            entry = self._cache.get(disk)
            try:
                value = from_json(entry.meta["found"]) if entry else ...
            except _FORGED:
                value = ...
            if value is ... or not _ANSWERS[what](value):
                value = getattr(self.session(), what)(self.name, *names)
                title = f"{self.name}: {' '.join(key)}"
                self._cache.put(disk, {"kind": "lookup", "title": title, "found": to_json(value)}, b"")
            self._found[key] = value
        return self._found[key]


# What a bundle or a file with a valid checksum may make of the reading of an entry.
_FORGED = (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)


def _are_signatures(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, FunctionSig) for item in value)


# Tests of what the compiler answers to each question.
_ANSWERS: dict[str, Callable[[Any], bool]] = {
    "functions": _are_signatures,
    "type": lambda value: value is None or isinstance(value, (StructInfo, SlangType)),
    "conforms": lambda value: isinstance(value, bool),
}


def source_of(recipe: Recipe, cache: DiskCache, target: Target, include_paths: tuple[str, ...]) -> Source:
    """Load a module from a recipe.

    Raises
    ------
    CompileError
        If its file is gone, or Slang refuses the text.
    """
    path, text, defines, constants, links = recipe
    places: Places = ()
    if text is None:
        path, text, places = read_source("pickle", path, include_paths)
    linked = tuple(source_of(link, cache, target, include_paths) for link in links)
    return Source(cache, target, Path(path).stem, path, text, include_paths, defines, constants, linked, places)


def _module_name(name: str) -> str:
    """Return an identifier for a module's name, which no module of Slang or of ``shaders/`` has."""
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if len(name) > _LONGEST or not name.isascii():  # a digest keeps the identifiers of such names distinct
        identifier = f"{identifier[:_LONGEST]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"
    taken = identifier in _SLANG_MODULES or identifier in shaders().modules or not identifier[:1].isidentifier()
    return f"_{identifier}" if taken else identifier


def _check_unchanged(source: Source, fresh: ModuleInfo) -> None:
    """Refuse a module whose files changed since `source` was created: results would be cached under an old key."""
    known: ModuleInfo | None = getattr(source, "info", None)
    own = resolved(source.path)  # the module's own text is in memory, so its file may differ
    files = set(known.dependencies) ^ set(fresh.dependencies) if known else set()
    changed = sorted(path for path, _ in files if path != own)
    if changed:
        raise CompileError(
            f"module '{source.name}': '{changed[0]}' changed since it was loaded; load the module again."
        )
