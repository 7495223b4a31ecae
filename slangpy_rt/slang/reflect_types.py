"""Reads Slang types from reflection, as frozen values of ``slangpy_rt.core.types``.

Nothing is compiled here, and no native pointer is kept beyond a call. Slang 2026.12 ends the process when asked for
the element count, row count or scalar of a type that depends on a generic parameter. So sizes and elements are always
read from the type's generic arguments, which never fails.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from slangpy_rt.core.types import Field, SlangType
from slangpy_rt.slang import _abi
from slangpy_rt.slang.com import Out
from slangpy_rt.slang.text import RESERVED

_SCALARS = {
    _abi.SLANG_SCALAR_TYPE_BOOL: "bool",
    _abi.SLANG_SCALAR_TYPE_INT8: "int8_t",
    _abi.SLANG_SCALAR_TYPE_INT16: "int16_t",
    _abi.SLANG_SCALAR_TYPE_INT32: "int",
    _abi.SLANG_SCALAR_TYPE_INT64: "int64_t",
    _abi.SLANG_SCALAR_TYPE_UINT8: "uint8_t",
    _abi.SLANG_SCALAR_TYPE_UINT16: "uint16_t",
    _abi.SLANG_SCALAR_TYPE_UINT32: "uint",
    _abi.SLANG_SCALAR_TYPE_UINT64: "uint64_t",
    _abi.SLANG_SCALAR_TYPE_FLOAT16: "half",
    _abi.SLANG_SCALAR_TYPE_FLOAT32: "float",
    _abi.SLANG_SCALAR_TYPE_FLOAT64: "double",
    _abi.SLANG_SCALAR_TYPE_INTPTR: "int64_t",  # every target here is 64 bits wide
    _abi.SLANG_SCALAR_TYPE_UINTPTR: "uint64_t",
}
_RESOURCES = {
    _abi.SLANG_TYPE_KIND_CONSTANT_BUFFER,
    _abi.SLANG_TYPE_KIND_RESOURCE,
    _abi.SLANG_TYPE_KIND_SAMPLER_STATE,
    _abi.SLANG_TYPE_KIND_TEXTURE_BUFFER,
    _abi.SLANG_TYPE_KIND_SHADER_STORAGE_BUFFER,
    _abi.SLANG_TYPE_KIND_PARAMETER_BLOCK,
    _abi.SLANG_TYPE_KIND_DYNAMIC_RESOURCE,
}
_PLAIN_POINTER = ", Access.ReadWrite, AddressSpace.Device, DefaultDataLayout>"
_BASE = "$base"  # Slang's name for the first member in the layout of a struct that inherits from another one
_UNSIZED = 2**31 - 1  # Slang's element count of an unsized array, T[]

# The cases of an enum, each as its name and its value.
Cases = tuple[tuple[str, int], ...]


class TypeReflector:
    """Reads the types of one module or program; every type is read only once.

    Parameters
    ----------
    native : CDLL
        The Slang library.
    cases : mapping of str to Cases
        The cases of enums, by the enum's name. Reflection has no values of cases.
    layout : int
        The address of the module's layout, from which inherited fields are read. With 0 a struct has its own fields
        only.
    undefined : collection of str
        The names of structs that are declared but not defined.
    """

    def __init__(
        self,
        native: ctypes.CDLL,
        cases: Mapping[str, Cases] | None = None,
        layout: int = 0,
        undefined: Collection[str] = (),
    ) -> None:
        self._native = native
        self._undefined = undefined
        self._cases = cases or {}
        self._layout = layout
        self._types: dict[tuple[str, bool, bool], SlangType] = {}
        self._inside = False

    def type(self, address: int, whole: bool = True) -> SlangType:
        """Return the SlangType of the reflection object at an address.

        Inside a struct, a struct behind a pointer or in a generic argument is returned without its fields. This ends
        the recursion at structs with pointers to themselves, and keeps the values small.

        Parameters
        ----------
        address : int
            The address of the type's reflection object.
        whole : bool
            Whether a struct is returned with its fields.
        """
        full = self.full_name(address)
        key = (full, self._inside, whole)
        if key not in self._types:
            self._types[key] = self._walk(address, full, whole)
        return self._types[key]

    def generic_parameters(self, generic: int) -> tuple[list[int], list[int]]:
        """Return the addresses of the type parameters and of the value parameters of a generic."""
        native = self._native
        types = range(native.spReflectionGeneric_GetTypeParameterCount(generic))
        values = range(native.spReflectionGeneric_GetValueParameterCount(generic))
        return (
            [native.spReflectionGeneric_GetTypeParameter(generic, index) for index in types],
            [native.spReflectionGeneric_GetValueParameter(generic, index) for index in values],
        )

    def generic_names(self, generic: int) -> tuple[str, ...]:
        """Return the names of a generic's parameters, types first."""
        types, values = self.generic_parameters(generic)
        return tuple(self.variable_name(item) for item in types + values)

    def full_name(self, address: int) -> str:
        """Return a type's full name as Slang writes it, such as ``"vector<float,3>"``."""
        out = Out()
        self._native.spReflectionType_GetFullName(address, out.ref)
        return out.bytes().rstrip(b"\0").decode()

    def default(self, variable: int, type_: SlangType) -> tuple[bool, int | float | None]:
        """Return whether a parameter or a field has a default, and its value; None where Slang does not tell it."""
        native = self._native
        if not native.spReflectionVariable_HasDefaultValue(variable):
            return False, None
        if type_.kind == "scalar" and type_.scalar in ("float", "half"):
            real = ctypes.c_float()
            failed = native.spReflectionVariable_GetDefaultValueFloat(variable, ctypes.byref(real))
            if failed or not math.isfinite(real.value):
                return True, None
            # The shortest text that is this float: 0.1, not 0.10000000149011612. Nine digits always suffice.
            texts = (f"{real.value:.{digits}g}" for digits in range(1, 10))
            return True, next(float(text) for text in texts if ctypes.c_float(float(text)).value == real.value)
        # Slang says 0 for the default of a double that is no whole number, and tells no boolean.
        if type_.kind != "scalar" or type_.scalar in ("double", "bool"):
            return True, None
        whole = ctypes.c_int64()
        failed = native.spReflectionVariable_GetDefaultValueInt(variable, ctypes.byref(whole))
        # The numbers of uint64_t from 2**63 on arrive as negative ones.
        return True, None if failed or (whole.value < 0 and type_.scalar.startswith("u")) else whole.value

    def variable_name(self, variable: int) -> str:
        """Return the name of a variable, a parameter or a field."""
        return (self._native.spReflectionVariable_GetName(variable) or b"").decode()

    def _walk(self, address: int, full: str, whole: bool) -> SlangType:
        native, kind = self._native, self._native.spReflectionType_GetKind(address)
        if kind == _abi.SLANG_TYPE_KIND_SCALAR:
            number = native.spReflectionType_GetScalarType(address)
            if number == _abi.SLANG_SCALAR_TYPE_VOID:
                return SlangType("void", full)
            return SlangType("scalar" if number in _SCALARS else "other", full, _SCALARS.get(number, ""))
        if kind == _abi.SLANG_TYPE_KIND_STRUCT:
            return self._struct(address, full, whole)
        if kind == _abi.SLANG_TYPE_KIND_ENUM:
            tag = self.type(native.spReflectionType_GetElementType(address))
            return SlangType("enum", full, tag.scalar, cases=self._cases.get(full, ()))
        if kind == _abi.SLANG_TYPE_KIND_INTERFACE:
            return self._interface(address, full)
        if kind in _RESOURCES:
            return SlangType("resource", _short(full))
        if kind == _abi.SLANG_TYPE_KIND_NONE:  # reflection gives it to T and T.Member, but also to a function's type
            return SlangType("generic" if full.replace(".", "").isidentifier() else "other", full)
        pointer = kind == _abi.SLANG_TYPE_KIND_POINTER
        element, sizes = self._element(address, whole and not (pointer and self._inside))
        if element is None:
            return SlangType("other", full)
        if pointer:
            plain = full.endswith(_PLAIN_POINTER)
            if full.startswith(f"Ptr<Atomic<{element.name}>,"):
                element = _atomic(element)
            return SlangType("pointer", f"{element.name}*" if plain else full, element=element)
        if kind == _abi.SLANG_TYPE_KIND_ARRAY:
            count = 0 if sizes[0] == _UNSIZED else sizes[0]
            bound = full[full.rfind("[") :] if not count else f"[{count}]"
            return SlangType("array", element.name + bound, shape=(count,), element=element)
        rank = {_abi.SLANG_TYPE_KIND_VECTOR: 1, _abi.SLANG_TYPE_KIND_MATRIX: 2}.get(kind, 0)
        if not rank:
            return SlangType("other", full)
        shape = tuple(sizes[:rank])
        known = element.kind == "scalar" and all(shape)
        name = element.name + "x".join(map(str, shape)) if known else full
        return SlangType(("vector", "matrix")[rank - 1], name, element.scalar, shape)

    def _struct(self, address: int, full: str, whole: bool) -> SlangType:
        native = self._native
        fields = []
        inside, self._inside = self._inside, True
        for index in range(native.spReflectionType_GetFieldCount(address) if whole else 0):
            variable = native.spReflectionType_GetFieldByIndex(address, index)
            kind = self.type(native.spReflectionVariable_GetType(variable))
            constant = bool(native.spReflectionVariable_FindModifier(variable, _abi.SLANG_MODIFIER_NO_DIFF))
            has_default, default = self.default(variable, kind)
            fields.append(Field(self.variable_name(variable), kind, "", constant, has_default, default))
        base, texts = split_arguments(full) if full.endswith(">") else (full, [])
        arguments = self._arguments(address, texts) if texts else ()
        # Slang 2026.12 ends the process when asked for the layout of some types that depend on a parameter.
        known = "<" not in base and not any(isinstance(a, SlangType) and a.kind == "generic" for a in arguments)
        # So it does for a struct with a field of a struct that is declared only, by ``extern struct V : I;``.
        known = known and full not in self._undefined and not any(self._has_undefined(field.type) for field in fields)
        parent = self._base(address) if whole and known else None
        if parent is not None:
            fields = _with_inherited(full, parent, fields)
        self._inside = inside
        # Of a parameter pack, such as that of Tuple, reflection has no elements.
        known = bool(texts) and len(arguments) == len(texts)
        name, arguments = (_applied(base, arguments), arguments) if known else (full, ())
        return SlangType("struct", name, fields=tuple(fields), arguments=arguments)

    def _interface(self, address: int, full: str) -> SlangType:
        """Return an interface; one of this project's, as ``ITensor<float, 2>`` is, as a struct without fields."""
        if not full.startswith(RESERVED) or not full.endswith(">"):
            return SlangType("interface", full)
        base, texts = split_arguments(full)
        arguments = self._arguments(address, texts)
        return SlangType("struct", _applied(base.removeprefix(RESERVED), arguments), arguments=arguments)

    def _has_undefined(self, kind: SlangType) -> bool:
        inner = [field.type for field in kind.fields] + [kind.element] * (kind.element is not None)
        return kind.name in self._undefined or any(self._has_undefined(item) for item in inner if item is not None)

    def _base(self, address: int) -> SlangType | None:
        """Return the struct that a struct inherits from, or None."""
        native, rules = self._native, _abi.SLANG_LAYOUT_RULES_DEFAULT
        layout = native.spReflection_GetTypeLayout(self._layout, address, rules) if self._layout else None
        if not layout or not native.spReflectionTypeLayout_GetFieldCount(layout):
            return None
        first = native.spReflectionTypeLayout_GetFieldByIndex(layout, 0)
        variable = native.spReflectionVariableLayout_GetVariable(first)
        if not variable or self.variable_name(variable) != _BASE:
            return None
        inner = native.spReflectionVariableLayout_GetTypeLayout(first)
        return self.type(native.spReflectionTypeLayout_GetType(inner))

    def _arguments(self, address: int, texts: list[str]) -> tuple[SlangType | int, ...]:
        """Return a struct's generic arguments in source order, which is known from the struct's name alone.

        Parameters
        ----------
        address : int
            The address of the struct's type.
        texts : list of str
            The arguments as they stand in the struct's name.
        """
        native = self._native
        generic = native.spReflectionType_GetGenericContainer(address)
        types, _ = self.generic_parameters(generic) if generic else ([], [])
        named: dict[str, SlangType] = {}
        for variable in types:
            concrete = native.spReflectionGeneric_GetConcreteType(generic, variable)
            if concrete:
                named[self.full_name(concrete)] = self.type(concrete, not self._inside)
        out: list[SlangType | int] = []
        for text in texts:
            # Slang 2026.12 reflects an argument Atomic<T> as T, but has its name right.
            inner = text[len("Atomic<") : -1] if text.startswith("Atomic<") else ""
            if text in named:
                out.append(named[text])
            elif inner in named:
                out.append(_atomic(named[inner]))
            elif text.lstrip("-").isdigit():
                out.append(int(text))
            elif text:
                out.append(SlangType("generic", text))
        return tuple(out)

    def _element(self, address: int, whole: bool) -> tuple[SlangType | None, list[int]]:
        """Return the first type argument and all value arguments of a built-in container; 0 for an unknown value."""
        native = self._native
        generic = native.spReflectionType_GetGenericContainer(address)
        types, values = self.generic_parameters(generic) if generic else ([], [])
        concrete = native.spReflectionGeneric_GetConcreteType(generic, types[0]) if types else None
        sizes = [native.spReflectionGeneric_GetConcreteIntVal(generic, value) for value in values]
        return (self.type(concrete, whole) if concrete else None), sizes


def _applied(base: str, arguments: tuple[SlangType | int, ...]) -> str:
    """Return the name of a generic type with its arguments, as source code writes it."""
    return f"{base}<{', '.join(a.name if isinstance(a, SlangType) else str(a) for a in arguments)}>"


def _atomic(inner: SlangType) -> SlangType:
    """Return the type of Slang's ``Atomic<T>`` for a T."""
    return SlangType("atomic", f"Atomic<{inner.name}>", element=inner)


def _with_inherited(full: str, base: SlangType, own: list[Field]) -> list[Field]:
    """Return the fields of a struct that inherits from `base`: those of the base, then its own.

    Two kinds of fields get a type of kind ``"other"``, to which no value can be converted: a field of the base that
    is hidden by one of the same name, because no text can name it; and the struct's own first field if the base is
    empty or ends in padding, because the storage of arrays of structs has no padding there.
    """

    def refused(field: Field, why: str) -> Field:
        return replace(field, type=SlangType("other", f"{field.type.name} ({why}; make {base.name} a field)"))

    from slangpy_rt.core.dtypes import storage  # imports NumPy, which few modules need: 0.1 s

    names = {field.name for field in own}
    inherited = [refused(f, f"hidden by {full}.{f.name}") if f.name in names else f for f in base.fields]
    stored = storage(base)
    fields = list((stored.dtype.fields or {}).values()) if stored is not None else []
    end = max((offset + dtype.itemsize for dtype, offset, *_ in fields), default=0)
    if own and (stored is None or end != stored.dtype.itemsize):
        own = [refused(own[0], f"behind {base.name}, which ends in padding or is empty"), *own[1:]]
    return inherited + own


def _short(full: str) -> str:
    """Return a shorter name of a type: ``"Buffer<float3>"`` for ``"Buffer<vector<float,3>, DefaultDataLayout>"``."""
    short = re.sub(r"\b(?:vector|matrix)<(\w+),(\d+)(?:,(\d+))?>", _abbreviate, full)
    return short.replace(", DefaultDataLayout>", ">")


def _abbreviate(match: re.Match[str]) -> str:
    return match[1] + "x".join(size for size in match.groups()[1:] if size)


def split_arguments(full: str) -> tuple[str, list[str]]:
    """Split a name before its last generic arguments: ``"A.B"`` and ``["C<x, y>", "2"]`` of ``"A.B<C<x, y>, 2>"``."""
    parts: list[str] = []
    depth, text = 0, ""
    for at in range(len(full) - 2, -1, -1):
        letter = full[at]
        if letter == "<" and depth == 0:
            return full[:at], [part.strip() for part in [*parts, text[::-1]]][::-1]
        depth += {">": 1, "]": 1, ")": 1, "<": -1, "[": -1, "(": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[::-1])
            text = ""
        else:
            text += letter
    return full, []


def bare(name: str) -> str:
    """Return a name without generic arguments: ``"A.B"`` of ``"A<x<y>>.B<2>"``."""
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name
