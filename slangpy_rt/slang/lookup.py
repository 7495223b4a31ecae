"""Finds functions and types of a loaded module by names as users write them: ``"S<float>.load<half>"``, ``"float*"``.

Slang itself looks up names and specializes generics. Nothing is compiled here, and no error is raised. Slang 2026.12
ends the process for a name that it cannot parse, and for generic arguments that do not meet a constraint, so both are
checked first.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slangpy_rt.core.types import FunctionSig, SlangType, StructInfo
from slangpy_rt.slang import _abi
from slangpy_rt.slang.reflect import CONSTRUCTOR, Reflector
from slangpy_rt.slang.reflect_types import bare

_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|-?\d+|::|[<>,.*\[\]])")


@dataclass(frozen=True)
class Name:
    """A parsed name of a function or type.

    Attributes
    ----------
    parts : tuple of str
        The texts between the dots, as Slang's look-up takes them: ``"S<float, 4>"`` and ``"load"``.
    arguments : tuple of (str or int)
        The generic arguments of the last part.
    type : str
        The whole name in the form that Slang's look-up takes: ``"Ptr<float>[4]"``.
    shown : str
        The whole name as in Slang text: ``"float*[4]"``.
    """

    parts: tuple[str, ...]
    arguments: tuple[str | int, ...]
    type: str
    shown: str


class Lookup:
    """Looks up names in the scope of a module.

    Parameters
    ----------
    native : CDLL
        The Slang library.
    reflector : Reflector
        The reader that converts Slang's reflection objects to values.
    layout : int
        The address of the module's layout.
    notes : mapping of str to list of str
        The documentation comments of the module's text, by the name of the declaration.
    """

    def __init__(
        self, native: ctypes.CDLL, reflector: Reflector, layout: int, notes: Mapping[str, list[str]]
    ) -> None:
        self._notes = notes
        self._native = native
        self._reflector = reflector
        self._layout = layout

    def functions(self, name: Name) -> tuple[FunctionSig, ...]:
        """Return the overloads in source order; none if there are none or the generic arguments do not fit."""
        path, last = ".".join(name.parts[:-1]), name.parts[-1]
        owner = self.find_type(path) if path else 0
        shown = last_part(name.shown) if owner else name.shown
        found = self._overloads(owner, path, last)
        if not found and name.arguments:
            candidates = self._overloads(owner, path, last.partition("<")[0])
            if len(candidates) > 1:  # Slang's look-up fails wrongly only for several candidates: see _specialize
                found = [made for made in (self._specialize(f, name.arguments) for f in candidates) if made]
        signatures = (self._signature(function, shown, not name.arguments) for function in found)
        place = bare(self._reflector.types.full_name(owner)) if owner else bare(path)
        declared = f"{place}.{bare(last)}" if place else bare(last)
        return self._documented([sig for sig in signatures if "<error>" not in str(sig)], declared)

    def type(self, name: Name, modules: Sequence[int]) -> StructInfo | SlangType | None:
        """Return a type, or None if there is none; a struct comes with its methods.

        Parameters
        ----------
        modules : sequence of int
            Addresses of the declarations of modules, from which the names of the struct's methods are read. They may
            stand in the struct itself or in extensions of it.
        """
        address = self.find_type(name.type)
        if not address:
            return None
        found = self._reflector.types.type(address)
        if "<error>" in found.name:
            return None
        return self._struct(address, found, modules) if found.kind == "struct" else found

    def find_type(self, name: str) -> int:
        """Return the address of Slang's reflection object of the type `name`, or 0 if there is no such type."""
        return self._native.spReflection_FindTypeByName(self._layout, name.encode()) or 0

    def conforms(self, kind: int, interface: int) -> bool:
        """Return whether a type implements an interface, both given by their addresses."""
        return bool(self._native.spReflection_isSubType(self._layout, kind, interface))

    def _struct(self, address: int, found: SlangType, modules: Sequence[int]) -> StructInfo:
        native, reflector, names = self._native, self._reflector, dict[str, None]()
        wanted = bare(found.name)
        for module in modules:
            own = (
                decl
                for decl in reflector.struct_decls(module)
                if bare(reflector.types.full_name(native.spReflection_getTypeFromDecl(decl))) == wanted
            )
            for decl in (*own, *reflector.extensions(module)):
                names.update((name, None) for _, name, _ in reflector.declared(decl))
        methods: list[FunctionSig] = []
        for name in filter(str.isidentifier, names):
            overloads = [self._signature(f, name, True) for f in self._in_type(address, name)]
            methods += self._documented(overloads, f"{wanted}.{name}")
        makers = [self._signature(f, found.name, True) for f in self._in_type(address, CONSTRUCTOR)]
        fields = tuple(replace(f, doc=self._note(f"{wanted}.{f.name}")) for f in found.fields)
        return StructInfo(replace(found, fields=fields), tuple(methods), tuple(makers), self._note(wanted))

    def _note(self, name: str) -> str:
        return self._notes.get(name, [""])[0]

    def _documented(self, overloads: list[FunctionSig], name: str) -> tuple[FunctionSig, ...]:
        """Return overloads with their comments; without any if the numbers of overloads and comments differ."""
        notes = self._notes.get(name, [])
        if len(notes) != len(overloads):
            return tuple(overloads)
        return tuple(replace(sig, doc=note) for sig, note in zip(overloads, notes, strict=True))

    def _overloads(self, owner: int, path: str, last: str) -> list[int]:
        if owner:
            return self._in_type(owner, last)
        full = f"{path}.{last}" if path else last
        return self._split(self._native.spReflection_FindFunctionByName(self._layout, full.encode()))

    def _in_type(self, owner: int, name: str) -> list[int]:
        native = self._native
        return self._split(native.spReflection_FindFunctionByNameInType(self._layout, owner, name.encode()))

    def _split(self, function: int | None) -> list[int]:
        """Return the overloads of a function in source order, which is the reverse of Slang's order."""
        native = self._native
        if not function:
            return []
        if not native.spReflectionFunction_isOverloaded(function):
            return [function]
        count = native.spReflectionFunction_getOverloadCount(function)
        return [native.spReflectionFunction_getOverload(function, index) for index in reversed(range(count))]

    def _signature(self, function: int, name: str, generic: bool) -> FunctionSig:
        native = self._native
        names: tuple[str, ...] = ()
        parent = native.spReflectionDecl_getParent(native.spReflectionFunction_asDecl(function))
        if generic and parent and native.spReflectionDecl_getKind(parent) == _abi.SLANG_DECL_KIND_GENERIC:
            names = self._reflector.types.generic_names(native.spReflectionDecl_castToGeneric(parent))
        return self._reflector.signature(function, name, names)

    def _specialize(self, function: int, arguments: tuple[str | int, ...]) -> int:
        """Return one overload, specialized with generic arguments, or 0 if they do not fit it.

        Slang's own look-up of ``f<float>`` finds no overload of ``f`` if the arguments do not fit one of them.
        """
        native = self._native
        generic = native.spReflectionFunction_GetGenericContainer(function)
        if not generic:
            return 0
        types, values = self._reflector.types.generic_parameters(generic)
        # Only generics whose type parameters come first are specialized: reflection does not tell other orders.
        kinds = [self.find_type(argument) if isinstance(argument, str) else 0 for argument in arguments]
        if [bool(kind) for kind in kinds] != [True] * len(types) + [False] * len(values):
            return 0
        if any(isinstance(argument, str) for argument in arguments[len(types) :]):
            return 0
        if not all(self._meets(kind, generic, parameter) for kind, parameter in zip(kinds, types, strict=False)):
            return 0
        tags = (ctypes.c_int32 * len(arguments))()
        given = (ctypes.c_int64 * len(arguments))()  # each item is a C union of a pointer and an int64_t
        for index, (kind, argument) in enumerate(zip(kinds, arguments, strict=True)):
            tags[index] = _abi.SLANG_GENERIC_ARG_TYPE if kind else _abi.SLANG_GENERIC_ARG_INT
            given[index] = kind or int(argument)
        made = native.spReflection_specializeGeneric(self._layout, generic, len(arguments), tags, given, None)
        return (native.spReflectionFunction_applySpecializations(function, made) if made else None) or 0

    def _meets(self, kind: int, generic: int, parameter: int) -> bool:
        native = self._native
        for index in range(native.spReflectionGeneric_GetTypeParameterConstraintCount(generic, parameter)):
            wanted = native.spReflectionGeneric_GetTypeParameterConstraintType(generic, parameter, index)
            if not wanted or "<" in self._reflector.types.full_name(wanted) or not self.conforms(kind, wanted):
                return False
        return True


def parse(text: str) -> Name | None:
    """Return a name parsed from `text`, or None if the text does not have the form of a name."""
    tokens = []
    at = 0
    while match := _TOKEN.match(text, at):
        tokens.append("." if match[1] == "::" else match[1])
        at = match.end()
    if text[at:].strip() or not tokens:
        return None
    name, stop = _name(tokens, 0)
    return replace(name, shown="".join(tokens).replace(",", ", ")) if name and stop == len(tokens) else None


def _name(tokens: list[str], at: int) -> tuple[Name | None, int]:
    parts: list[str] = []
    arguments: tuple[str | int, ...] = ()
    while True:
        if not _at(tokens, at).isidentifier():
            return None, at
        part, arguments = tokens[at], ()
        at += 1
        if _at(tokens, at) == "<":
            found, at = _arguments(tokens, at + 1)
            if found is None:
                return None, at
            arguments = found
            part += f"<{', '.join(map(str, arguments))}>"
        parts.append(part)
        if _at(tokens, at) != ".":
            break
        at += 1
    whole = ".".join(parts)
    while _at(tokens, at) in ("*", "["):
        if tokens[at] == "*":  # Slang's look-up takes a pointer type only in the form ``Ptr<T>``
            whole, at = f"Ptr<{whole}>", at + 1
            continue
        size = _at(tokens, at + 1) if _at(tokens, at + 1).isdigit() else ""
        at += 2 if size else 1
        if _at(tokens, at) != "]":
            return None, at
        whole, at = f"{whole}[{size}]", at + 1
    return Name(tuple(parts), arguments, whole, ""), at


def _arguments(tokens: list[str], at: int) -> tuple[tuple[str | int, ...] | None, int]:
    out: list[str | int] = []
    while True:
        if _at(tokens, at).lstrip("-").isdigit():
            out.append(int(tokens[at]))
            at += 1
        else:
            name, at = _name(tokens, at)
            if name is None:
                return None, at
            out.append(name.type)
        if _at(tokens, at) == ">":
            return tuple(out), at + 1
        if _at(tokens, at) != ",":
            return None, at
        at += 1


def _at(tokens: list[str], at: int) -> str:
    return tokens[at] if at < len(tokens) else ""


def last_part(shown: str) -> str:
    """Return the text after the last dot outside angle brackets: ``"load<N.T>"`` of ``"S<float>.load<N.T>"``."""
    depth = 0
    for at in range(len(shown) - 1, -1, -1):
        depth += (shown[at] == ">") - (shown[at] == "<")
        if shown[at] == "." and depth == 0:
            return shown[at + 1 :]
    return shown
