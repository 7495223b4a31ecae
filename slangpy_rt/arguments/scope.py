"""Scope: the device and the source that a module's functions are bound with, and its hot reload.

A call checks whether a file of the module has changed, and if so, everything made from the module is updated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from slangpy_rt.core.checks import flag, table, text
from slangpy_rt.core.conversion import describe_name
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import Param, SlangType, StructInfo
from slangpy_rt.core.weak import WeakMembers
from slangpy_rt.runtime.core import DeviceCore, a_device
from slangpy_rt.runtime.follower import Follower
from slangpy_rt.runtime.pickling import damaged, reads

if TYPE_CHECKING:
    from slangpy_rt.slang.source import Source

# At least _PAUSE seconds pass between two checks of the files: checking one takes 3 us, and nobody edits and calls
# again sooner. With very many files the pause is _SHARE times the duration of a check.
_PAUSE, _SHARE = 0.01, 20

# Of a name that is declared as something else.
_NO_UNIFORM = (
    "What is declared under that name cannot be set: uniforms are global variables of data, pointers and Tensors, as "
    "uniform RWTensor<float, 1> name; and blocks of data, ParameterBlock<S>. Other buffers and textures have to be "
    "parameters."
)


class Scope(Follower):
    """The device and the source that arguments are bound for, and the prepared kernels of the module.

    Parameters
    ----------
    device : Device
        Where kernels run.
    source : Source
        The module.
    watch : bool
        Whether calls check the module's files for changes.
    strict : bool
        Whether the module refuses to broadcast.

    Attributes
    ----------
    due : float
        The time, by ``time.monotonic``, from which a call has to run ``check`` first.
    age : object
        Replaced each time that all prepared calls are dropped: a call prepared at an older age is not remembered.
    followers : WeakMembers
        Objects made from the module: ``source_changed`` is called after a change, ``forget`` whenever prepared calls
        are dropped, as when the device closes.
    """

    def __init__(self, device: DeviceCore, source: Source, watch: bool = False, strict: bool = False) -> None:
        self.device = device
        self.source = source
        self.strict = strict
        self.age = object()
        self.followers: WeakMembers[Any] = WeakMembers()
        self.due = 0.0 if watch and source.watched else inf
        # Emitted and loaded kernels by their descriptions, which hold no sizes: calls of other shapes use them too.
        self.ready: dict[Any, Any] = {}
        # Descriptions of the derivatives' kernels that a debug device has checked.
        self.checked: set[Any] = set()
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return scope_of_recipe, (self.device, self.source.recipe, self.strict)

    def look(self) -> None:
        """Call ``check``, if it is due."""
        if monotonic() >= self.due:
            self.check()

    def check(self) -> None:
        """Reload the module if one of its files has changed.

        Raises
        ------
        CompileError
            If Slang refuses the new text, or a file is gone; the next call tries again.
        """
        with self._lock:
            started = thread_time()
            changed = self.source.changed()
            pause = max(_PAUSE, _SHARE * (thread_time() - started))
            if changed:
                self.reload()
            self.due = monotonic() + pause

    def reload(self) -> None:
        """Read the module anew.

        Raises
        ------
        CompileError
            As ``check``.
        """
        with self._lock:
            old, self.source = self.source, self.source.renewed()
            old.close()
            # All drop their calls before the first is updated: if an update fails, none of them runs the old text.
            self.forget()
            try:
                for follower in list(self.followers):
                    follower.source_changed()
            finally:
                # Other threads may have prepared calls of the old text or the new one meanwhile.
                self.forget()

    def forget(self) -> None:
        """Drop all prepared calls."""
        self.age = object()
        self.ready = {}
        self.checked = set()
        for follower in list(self.followers):
            follower.forget()

    def struct(self, type_: SlangType) -> SlangType:
        """Return a struct type with its fields, which reflection leaves out inside containers and pointers."""
        if type_.kind == "struct" and not type_.fields:
            return _plain(self.source.type(type_.name)) or type_
        return type_

    def uniforms(self, where: str, names: Iterable[str]) -> dict[str, Param]:
        """Return the module's global ``uniform`` variables by name, ``names`` among them.

        Raises
        ------
        BindError
            If the module has no variable of one of the names.
        """
        known = {p.name: p for p in self.source.info.uniforms}
        for name in names:
            if name not in known:
                listed = ", ".join(known) or "none"
                other = f" {_NO_UNIFORM}" if name in self.source.info.declares else ""
                raise BindError(
                    f"{where}: there is no uniform '{describe_name(name)}'; the module has {listed}.{other}"
                )
        return known

    def named(self, where: str, name: str) -> SlangType:
        """Return a type by its name in Slang.

        Raises
        ------
        BindError
            If the module knows no such type.
        """
        # Classes derived from str need not be hashable.
        name = str.__str__(name)
        try:
            return element_type(where, name)
        except BindError:
            found = _plain(self.source.type(name))
            if found is None:
                raise BindError(f"{where}: module '{self.source.name}' knows no type '{name}'.") from None
            return found


class ScopeOfUniforms(Scope):
    """The scope of a text of this package around a user's module. The uniforms that it sets are those of the module.

    Parameters
    ----------
    device : Device
        Where kernels run.
    source : Source
        The text.
    users : Source
        The user's module.
    """

    def __init__(self, device: DeviceCore, source: Source, users: Source) -> None:
        super().__init__(device, source)
        self._users = Scope(device, users)

    def uniforms(self, where: str, names: Iterable[str]) -> dict[str, Param]:
        """Return the uniforms of the user's module by name, ``names`` among them."""
        return self._users.uniforms(where, names)


@reads("a module")
def scope_of_recipe(device: DeviceCore, recipe: Any, strict: bool) -> Scope:
    """Load a module again, on a device, and return its scope.

    Raises
    ------
    BindError
        If the recipe is not as ``Source.recipe`` makes it.
    CompileError
        If the module's file is gone, or Slang refuses its text.
    """
    from slangpy_rt.slang.source import source_of  # as late as a program's first module

    device = a_device("pickle", device)
    strict = flag("pickle", "strict_broadcasting", strict)
    _check_recipe(recipe)
    device.check_open()
    source = source_of(recipe, device.cache, device.backend.target, device.include_paths)
    scope = Scope(device, source, device.hot_reload, strict)
    device.followers.add(scope)
    return scope


def _check_recipe(recipe: Any) -> None:
    """Check the items of a module's recipe; constants are checked where the module is loaded."""
    path, source, defines, constants, links = recipe
    text("pickle", "the path of a module", path)
    if source is not None:
        text("pickle", "the text of a module", source)
    if not Path(path).name or not isinstance(defines, tuple) or not isinstance(links, tuple):
        raise damaged("a module", "its macros and linked modules are no tuples, or its path is empty")
    for name, value in defines:
        text("pickle", "a macro's name", name)
        text("pickle", "a macro's value", value)
    table("pickle", "the constants of a module", constants)
    for link in links:
        _check_recipe(link)


def _plain(found: StructInfo | SlangType | None) -> SlangType | None:
    return found.type if isinstance(found, StructInfo) else found
