"""Module: a Slang module on a device; its functions are attributes. It compiles no kernels: calls do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.scope import Scope
from slangpy_rt.calls.callable import SlangCallable, check_scope
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.calls.struct import Struct
from slangpy_rt.calls.tuned import Tuned
from slangpy_rt.core.checks import flag, short_tracebacks, table
from slangpy_rt.core.checks import path as checked_path
from slangpy_rt.core.checks import text as checked_text
from slangpy_rt.core.conversion import describe_name
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.types import ModuleInfo, SlangType, StructInfo
from slangpy_rt.core.wording import in_words, meant
from slangpy_rt.runtime.core import a_device
from slangpy_rt.runtime.pickling import reads
from slangpy_rt.slang.declarations import find_overloads
from slangpy_rt.tuning.config import Config, product_of, value_of

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore
    from slangpy_rt.slang.files import Places
    from slangpy_rt.slang.source import Source

# Attributes of a Module, which hide functions and types of their names.
_MEMBERS = frozenset({"device", "info", "load_from_file", "load_from_source", "name"})
_NEW = re.compile(r"\bnew\b")
# A module's name, which diagnostics show and which Slang looks for in the file system.
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]{1,200}")
# Functions, kernels and types that a module keeps by name; a function keeps as many prepared calls.
_MOST_ITEMS = 4096


@short_tracebacks("load_from_file", "load_from_source", "find_function", "find_struct", "__getitem__")
class Module:
    """The functions, structs and kernels of a Slang module, ready to be used on a device.

    Make one with ``load_from_file`` or ``load_from_source``. ``module.add`` is the function ``add``,
    ``module["copy<float>"]`` one with its generic arguments named; ``dir(module)`` lists all names. The next call of
    a function of the module reloads files that were edited.
    """

    def __init__(self, device: DeviceCore, source: Source, strict_broadcasting: bool = False) -> None:
        from slangpy_rt.slang.source import Source  # as in ``_source``

        self.device = a_device("Module", device)
        if not isinstance(source, Source):
            raise BindError(
                f"Module: source is {in_words(source)}; make modules with Module.load_from_file or load_from_source."
            )
        self._scope = Scope(device, source, device.hot_reload, strict_broadcasting)
        self._items: dict[str, Any] = {}
        # The modules of all combinations of choices for macros; None without choices.
        self._variants: _Variants | None = None
        self._names_found = _Names(self.__dict__, self._items, self._scope)
        self._scope.followers.add(self._names_found)
        device.followers.add(self._scope)
        hidden = [name for name in self._names() if name in _MEMBERS]
        if hidden:
            warnings.warn(
                f"module '{self.name}': it declares {', '.join(hidden)}, as Module's own members are named; use "
                f"module['{hidden[0]}'] for what the file declares.",
                stacklevel=4,
            )

    @classmethod
    def load_from_file(
        cls,
        device: DeviceCore,
        path: str | Path = "",
        defines: Mapping[str, Any] | None = None,
        constants: Mapping[str, Any] | None = None,
        link: Sequence[Module] = (),
        strict_broadcasting: bool = False,
    ) -> Module:
        """Load a Slang file.

        Parameters
        ----------
        device : Device
            The device that its functions run on.
        path : path
            The file, as given or in one of the device's include paths.
        defines : mapping, optional
            Preprocessor macros. A list has choices: functions and kernels of the module then use the fastest, see
            ``Function.tune``; its structs are those of the first choices that compile.
        constants : mapping, optional
            Values of ``extern static const`` declarations, those of linked modules included.
        link : sequence of Module, optional
            Modules that this one may ``import`` by name; their ``export`` declarations define its ``extern`` ones.
        strict_broadcasting : bool
            Whether a call refuses to broadcast arrays that have dimensions, unless ``map`` says how they run.

        Raises
        ------
        CompileError
            If there is no such file, or Slang refuses it; the message has the line and a caret.
        BindError
            If there is no such constant, or its value does not fit.
        """
        from slangpy_rt.slang.files import read_source  # as in ``_source``

        where = "Module.load_from_file"
        device, strict_broadcasting = a_device(where, device), flag(where, "strict_broadcasting", strict_broadcasting)
        path = checked_path(where, "path", path)
        if not path.name:
            raise BindError(f"{where}: path is missing; give the path of a file with Slang text.")
        choices = _choices(where, defines)
        if choices:
            return _with_choices(
                choices, lambda flags: cls.load_from_file(device, path, flags, constants, link, strict_broadcasting)
            )
        found, text, places = read_source(where, path, device.include_paths)
        source = _source(where, device, Path(found).stem, found, text, defines, constants, link, places)
        return cls(device, source, strict_broadcasting)

    @classmethod
    def load_from_source(
        cls,
        device: DeviceCore,
        name: str,
        source: str,
        defines: Mapping[str, Any] | None = None,
        constants: Mapping[str, Any] | None = None,
        link: Sequence[Module] = (),
        strict_broadcasting: bool = False,
    ) -> Module:
        """Load Slang text.

        Parameters
        ----------
        device : Device
            The device that its functions run on.
        name : str
            The name that diagnostics show, and by which other modules import this one.
        source : str
            The text.
        defines, constants, link, strict_broadcasting
            As for ``load_from_file``.

        Raises
        ------
        CompileError
            If Slang refuses it; the message has the line and a caret.
        BindError
            If the name is not valid, or there is no such constant, or its value does not fit.
        """
        where = "Module.load_from_source"
        device, strict_broadcasting = a_device(where, device), flag(where, "strict_broadcasting", strict_broadcasting)
        name, source = checked_text(where, "name", name), checked_text(where, "source", source)
        if not _PLAIN.fullmatch(name):
            raise BindError(
                f"{where}: name is {name[:80]!r}; expected at most 200 characters of one line, none of them a slash."
            )
        choices = _choices(where, defines)
        if choices:
            return _with_choices(
                choices,
                lambda flags: cls.load_from_source(device, name, source, flags, constants, link, strict_broadcasting),
            )
        made = _source(where, device, name, f"{name}.slang", source, defines, constants, link)
        return cls(device, made, strict_broadcasting)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._variants is None:
            return _of_scope, (self._scope,)
        raise TypeError(f"module '{self.name}': a module with choices is not pickled; load one without lists.")

    @property
    def name(self) -> str:
        """The module's name."""
        return self._scope.source.name

    @property
    def info(self) -> ModuleInfo:
        """The module's declarations."""
        return self._scope.source.info

    def find_function(self, name: str) -> Function | None:
        """Return a function by name, generic arguments included, or None if there is none."""
        found = self._item(checked_text("Module.find_function", "name", name))
        return found if isinstance(found, Function) else None

    def find_struct(self, name: str) -> Struct | None:
        """Return a struct, or another type with the methods of extensions, by name; None if there is none."""
        found = self._item(checked_text("Module.find_struct", "name", name))
        type_ = getattr(found, "slang_type", found)  # an enum is a class with this attribute
        if isinstance(found, Struct) or not isinstance(type_, SlangType):
            return found if isinstance(found, Struct) else None
        made: Struct = self._items.setdefault(f"{_TYPE}{name}", Struct(self._scope, StructInfo(type_)))
        return made

    def require_function(self, name: str) -> Function:
        """Return a function by name.

        Raises
        ------
        BindError
            If there is none.
        """
        if (found := self.find_function(name)) is None:
            raise BindError(self._nothing(name))
        return found

    def require_struct(self, name: str) -> Struct:
        """Return a struct by name.

        Raises
        ------
        BindError
            If there is none.
        """
        if (found := self.find_struct(name)) is None:
            raise BindError(self._nothing(name))
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self._item(name) if name.isidentifier() else None
        if found is None:
            raise AttributeError(self._nothing(name))
        # The next look-up finds it without coming here, until the module's text changes.
        self._names_found.names.add(name)
        self.__dict__[name] = found
        return found

    def __getitem__(self, name: str) -> Any:
        """Return a function, struct or kernel by name, generic arguments included: ``module["copy<float>"]``.

        Raises
        ------
        BindError
            If there is none of that name.
        CompileError
            If there is one that takes no such generic arguments.
        """
        found = self._item(checked_text(f"module '{self.name}'", "the name in []", name))
        if found is None:
            raise BindError(self._nothing(name))
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in self._names() if name.isidentifier())})

    def __repr__(self) -> str:
        return f"Module({self.name!r} on {self.device.name}: {', '.join(self._names()) or 'nothing declared'})"

    def _item(self, name: str) -> Any:
        found = self._items.get(name)
        if found is None:
            scope = self._scope
            scope.look()
            found = _find(scope, name)
            if self._variants is not None and isinstance(found, SlangCallable) and found.overloads:
                found = self._variants.tuned(found.name, name)
            if found is not None:
                if len(self._items) >= _MOST_ITEMS:
                    # A program may look up generic functions of ever other arguments.
                    self._items.clear()
                # Another thread may have been first: a name stands for one function, with one set of prepared calls.
                found = self._items.setdefault(name, found)
        # Callers keep a function whose declaration an edit removed, and it works again when the declaration is back.
        return None if isinstance(found, SlangCallable) and not found.overloads else found

    def _names(self) -> list[str]:
        info = self.info
        names = [*(f.name for f in info.functions), *(e.name for e in info.entry_points)]
        # Slang makes the Differential of a struct that has none.
        structs = (s.type.name for s in info.structs if not s.type.name.endswith(".Differential"))
        return list(dict.fromkeys([*names, *structs, *(e.name for e in info.enums)]))

    def _nothing(self, name: str) -> str:
        if stage := dict(self.info.stages).get(name):
            return (
                f"module '{self.name}': '{name}' is {'an' if stage[0] in 'aeiou' else 'a'} {stage} shader, and a "
                f'device of slangpy_rt has no such stage. Take [shader("{stage}")] away to call it as a function.'
            )
        listed = ", ".join(self._names()) or "none"
        if name in self._items:
            path = self._scope.source.path
            return f"module '{self.name}': '{path}' was edited and no longer declares '{name}'; it has {listed}."
        return (
            f"module '{self.name}' has no function or type '{describe_name(name)}'; it has {listed}."
            f"{meant(name, self._names())}"
        )


# In front of the name of a type that ``find_struct`` made a Struct of; no name in Slang begins so.
_TYPE = "type "


class _Variants:
    """Loads a module once for each combination of choices for its macros."""

    def __init__(self, configs: tuple[Config, ...], load: Callable[[Mapping[str, Any]], Module]) -> None:
        self._configs = configs
        self._load = load
        self._modules: dict[Config, Module] = {}

    def module(self, config: Config) -> Module:
        """Return the module for a combination."""
        found = self._modules.get(config)
        if found is None:
            found = self._modules.setdefault(config, self._load(config))
        return found

    def first(self) -> Module:
        """Return the first module that the compiler does not refuse; it is another one than those of functions.

        Raises
        ------
        CompileError
            If it refuses all of them: the first error.
        """
        refused: list[CompileError] = []
        for config in self._configs:
            try:
                return self._load(config)
            except CompileError as error:
                refused.append(error)
        raise refused[0]

    def tuned(self, title: str, name: str) -> Tuned:
        """Return a function or kernel of which each combination's module has a variant."""

        def make(config: Config) -> Any:
            found = self.module(config)._item(name)
            if found is None:
                raise CompileError(f"the module has no '{name}' with {config.text}.")
            return found

        return Tuned(title, make, self._configs)


class _Names:
    """Drops a module's looked-up attributes when its text changes, and items that its declaration no longer fits."""

    def __init__(self, attributes: dict[str, Any], items: dict[str, Any], scope: Scope) -> None:
        self.names: set[str] = set()
        self._attributes, self._items = attributes, items
        self._scope = scope

    def forget(self) -> None:
        """Do nothing: names remember no calls."""

    def source_changed(self) -> None:
        """Drop the attributes, so that each is looked up anew, enums, and items whose name is now of another kind."""
        while self.names:
            self._attributes.pop(self.names.pop(), None)
        info = self._scope.source.info
        kinds: dict[str, type] = {f.name: Function for f in info.functions}
        kinds |= {s.type.name: Struct for s in info.structs} | {e.name: Kernel for e in info.entry_points}
        for name, item in list(self._items.items()):
            # Enums and types are constants, where functions, structs and kernels read their declarations anew.
            constant = isinstance(item, (type, SlangType)) or name.startswith(_TYPE)
            if constant or (name in kinds and not isinstance(item, kinds[name])):
                del self._items[name]


@reads("a module")
def _of_scope(scope: Scope) -> Module:
    """Return a module that was pickled."""
    check_scope("pickle", scope)
    return Module(scope.device, scope.source, scope.strict)


def _find(scope: Scope, name: str) -> Any:
    """Find a name: kernels before functions, functions before types; None if the module has nothing of that name."""
    source = scope.source
    if any(name == shader for shader, _ in source.info.stages):
        return None
    # Slang 2026.12 ends the process when asked for a type that is written with the word 'new'.
    if _NEW.search(name) and not any(name == sig.name for sig in source.info.functions):
        return None
    for entry in source.info.entry_points:
        if entry.name == name:
            return Kernel.of(scope, entry)
    for struct in source.info.structs:
        if struct.type.name == name:
            return Struct(scope, struct)
    sigs = find_overloads(source, name)
    if sigs:
        return Function(scope, name, sigs)
    try:
        return element_type("module", name)
    except BindError:
        type_ = source.type(name)
    if isinstance(type_, StructInfo):
        return Struct(scope, type_)
    if type_ is not None and type_.kind == "enum":
        # Python refuses some names of cases. Functions take them as strings, and the enum as their number.
        named = [case for case in type_.cases if case[0] != "mro" and not re.fullmatch(r"_.*_", case[0])]
        cases = IntEnum(name, named)  # type: ignore[misc]
        # Arrays take the enum as their dtype by this attribute.
        cases.slang_type = type_  # type: ignore[attr-defined]
        return cases
    return type_


def _choices(where: str, defines: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all macros as lists of choices, a value being a list of one; empty if no value is a list."""
    given = table(where, "defines", defines)
    if not any(isinstance(v, list) for v in given.values()):
        return {}
    return {
        name: [value_of(f"{where}: a choice of defines['{name}']", x) for x in v] if isinstance(v, list) else [v]
        for name, v in given.items()
    }


def _with_choices(choices: Mapping[str, Any], load: Callable[[Mapping[str, Any]], Module]) -> Module:
    """Load the module with the first of each choice, whose functions search among all of them."""
    values = {name: v[0] for name, v in choices.items() if len(v) == 1}
    lists = {name: v for name, v in choices.items() if len(v) != 1}
    configs = product_of("defines", lists)
    variants = _Variants(configs, lambda config: load({**values, **config}))
    first = variants.first()
    first._variants = variants
    return first


def _source(
    where: str,
    device: DeviceCore,
    name: str,
    path: str,
    text: str,
    defines: Mapping[str, Any] | None,
    constants: Mapping[str, Any] | None,
    link: Sequence[Module],
    places: Places = (),
) -> Source:
    # Imported here, because no program needs these before its first module: hashes of ``slang`` take 2 ms to load.
    from slangpy_rt.calls.macros import macro_text
    from slangpy_rt.runtime.compile_progress import compiling
    from slangpy_rt.slang.shader_modules import is_ours
    from slangpy_rt.slang.source import Source

    if isinstance(link, Module) or not isinstance(link, Sequence) or not all(isinstance(m, Module) for m in link):
        raise BindError(f"{where}: link is {in_words(link)}; a list of modules was expected.")
    for module in link:
        if module.device is not device:
            raise BindError(f"module '{name}': link has {module!r}, which is for another device than {device!r}.")
    flags = tuple(sorted((k, macro_text(where, k, v)) for k, v in table(where, "defines", defines).items()))
    constants = table(where, "constants", constants)
    linked = tuple(module._scope.source for module in link)
    backend, folders = device.backend, device.include_paths
    target = backend.target_of(Path(path).stem) if is_ours(Path(path)) else backend.target
    with compiling(f"module {name}", device.name, "Slang"):
        return Source(device.cache, target, name, path, text, folders, flags, constants, linked, places)
