"""Reads declarations of loaded Slang modules from reflection, as frozen values of ``slangpy_rt.core.types``.

Nothing is compiled here, and no native pointer is kept beyond a call.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from slangpy_rt.core.types import EntryPoint, FunctionSig, Param, SlangType, StructInfo
from slangpy_rt.slang import _abi
from slangpy_rt.slang.reflect_types import Cases, TypeReflector
from slangpy_rt.slang.text import RESERVED, STAGE, STAGES, THREADS

CONSTRUCTOR = "$init"  # Slang's name for each __init and for the constructor that it generates from the fields
_OPERATOR = re.compile(r"(?:operator)?[-+*/%<>=!&|^~]+")
_CBUFFER = "SLANG_ParameterGroup_"  # prefix of the name of the struct that Slang generates from a cbuffer's members


class Reflector:
    """Reads the declarations of one module or program.

    The argument `decl` of methods is the address of Slang's reflection object of a module, a namespace or a struct.

    Parameters
    ----------
    native : CDLL
        The Slang library.
    cases, layout, undefined
        See ``TypeReflector``.

    Attributes
    ----------
    types : TypeReflector
        The reader of the types in the declarations.
    """

    def __init__(
        self,
        native: ctypes.CDLL,
        cases: Mapping[str, Cases] | None = None,
        layout: int = 0,
        undefined: Collection[str] = (),
    ) -> None:
        self._native = native
        self.types = TypeReflector(native, cases, layout, undefined)

    def functions(self, decl: int) -> Iterator[FunctionSig]:
        """Yield the functions of a module or the methods of a struct, operators included, in source order.

        Kernels and shaders are left out.
        """
        for function, name, generics in self.declared(decl):
            space, dot, own = name.rpartition(".")
            if _OPERATOR.fullmatch(own):
                yield self.signature(function, f"{space}{dot}operator{own.removeprefix('operator')}", generics)
            elif own.isidentifier() and self._threads(function) is None and not self.stage(function):
                yield self.signature(function, name, generics)

    def kernels(self, decl: int, semantics: Mapping[str, Mapping[str, str]]) -> Iterator[EntryPoint]:
        """Yield the compute kernels of a module, which ``text.prepare`` has turned into functions with an attribute.

        Parameters
        ----------
        decl : int
            The address of the module's declaration.
        semantics : mapping
            System values such as ``"SV_GroupID"`` by kernel and parameter: ``Prepared.semantics``.
        """
        for function, name, generics in self.declared(decl):
            size = self._threads(function)
            if size is not None and not generics:
                known = semantics.get(name.rpartition(".")[2], {})
                params = self.signature(function, name, ()).params
                yield EntryPoint(name, tuple(replace(p, semantic=known.get(p.name, "")) for p in params), size)

    def structs(self, decl: int) -> Iterator[StructInfo]:
        """Yield the structs of a module and their inner structs, with methods and constructors but no extensions."""
        for child in self.struct_decls(decl):
            info = self.types.type(self._native.spReflection_getTypeFromDecl(child))
            makers = (self.signature(f, info.name, g) for f, n, g in self.declared(child) if n == CONSTRUCTOR)
            yield StructInfo(info, tuple(self.functions(child)), tuple(makers))

    def struct_decls(self, decl: int) -> Iterator[int]:
        """Yield the declarations of the structs of a module and of their inner structs."""
        for child, kind, _ in self._members(decl):
            if kind == _abi.SLANG_DECL_KIND_GENERIC:
                child = self._inner(child)
                kind = self._native.spReflectionDecl_getKind(child)
            ours = self._decl_name(child).startswith((_CBUFFER, THREADS, STAGE))
            if kind == _abi.SLANG_DECL_KIND_STRUCT and not ours:
                yield child
                yield from self.struct_decls(child)

    def names(self, decl: int) -> Iterator[str]:
        """Yield the names in a module's outermost scope, and those in its namespaces and cbuffers.

        Text can use a member of a cbuffer, and after ``using`` one of a namespace, by its name alone.
        """
        for child, kind in self._children(decl):
            name = self._decl_name(child)
            yield name
            if kind == _abi.SLANG_DECL_KIND_NAMESPACE or name.startswith(_CBUFFER):
                yield from self.names(child)

    def extensions(self, decl: int) -> Iterator[int]:
        """Yield the declarations of a module's extensions. Reflection does not say which type they extend."""
        for child, kind, _ in self._members(decl):
            if kind == _abi.SLANG_DECL_KIND_GENERIC:
                child = self._inner(child)
                kind = self._native.spReflectionDecl_getKind(child)
            if kind == _abi.SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION and not self._decl_name(child):
                yield child

    def enums(self, decl: int) -> Iterator[tuple[str, list[str]]]:
        """Yield the qualified name of each of a module's enums, and the names of its cases."""
        for child, name in self._enum_decls(decl):
            names = (self._decl_name(c) for c, k in self._children(child) if k != _abi.SLANG_DECL_KIND_FUNC)
            yield name, [n for n in names if n.isidentifier()]

    def enum_types(self, decl: int) -> Iterator[SlangType]:
        """Yield a module's enums whose cases are known, as types."""
        for child, _ in self._enum_decls(decl):
            type_ = self.types.type(self._native.spReflection_getTypeFromDecl(child))
            if type_.cases:
                yield type_

    def variables(self, decl: int) -> Iterator[tuple[str, int, int]]:
        """Yield (qualified name, address of the declaration, address of the variable) of each global variable."""
        for child, kind, prefix in self._members(decl):
            if kind == _abi.SLANG_DECL_KIND_VARIABLE:
                yield prefix + self._decl_name(child), child, self._native.spReflectionDecl_castToVariable(child)

    def constants(self, decl: int) -> Iterator[Param]:
        """Yield each ``extern static const`` of a module.

        Those in namespaces are left out, because no text outside a namespace can export a constant inside it.
        """
        for name, child, variable in self.variables(decl):
            wanted = (_abi.SLANG_MODIFIER_EXTERN, _abi.SLANG_MODIFIER_STATIC, _abi.SLANG_MODIFIER_CONST)
            if "." not in name and all(self._native.spReflectionDecl_findModifier(child, m) for m in wanted):
                yield self.param(variable)

    def uniforms(self, decl: int, names: Collection[str]) -> Iterator[Param]:
        """Yield the global variables of the given names whose types are plain data: see ``_is_data``."""
        for name, _, variable in self.variables(decl):
            param = self.param(variable)
            if name in names and _is_data(param.type):
                yield replace(param, name=name)

    def declared(self, decl: int) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """Yield (address, qualified name, names of generic parameters) of each function of a module or a struct."""
        native = self._native
        for child, kind, prefix in self._members(decl):
            names: tuple[str, ...] = ()
            if kind == _abi.SLANG_DECL_KIND_GENERIC:
                names = self.types.generic_names(native.spReflectionDecl_castToGeneric(child))
                child = self._inner(child)
                kind = native.spReflectionDecl_getKind(child)
            if kind == _abi.SLANG_DECL_KIND_FUNC:
                yield native.spReflectionDecl_castToFunction(child), prefix + self._decl_name(child), names

    def signature(self, function: int, name: str, generics: tuple[str, ...]) -> FunctionSig:
        """Return the FunctionSig of a function, under a given name. Types of a specialized function are concrete."""
        native = self._native
        count = native.spReflectionFunction_GetParameterCount(function)
        variables = [native.spReflectionFunction_GetParameter(function, index) for index in range(count)]

        def has(modifier: int) -> bool:
            return bool(native.spReflectionFunction_FindModifier(function, modifier))

        return FunctionSig(
            name=name,
            params=tuple(self.param(variable) for variable in variables),
            returns=self.types.type(native.spReflectionFunction_GetResultType(function)),
            differentiable=has(_abi.SLANG_MODIFIER_DIFFERENTIABLE),
            static=has(_abi.SLANG_MODIFIER_STATIC),
            mutating=has(_abi.SLANG_MODIFIER_MUTATING),
            generics=generics,
            attributes=tuple(name for name in self._attributes(function) if name.startswith(RESERVED)),
        )

    def param(self, variable: int) -> Param:
        """Return the Param of a parameter or a global variable, given by its address."""
        native = self._native

        def has(modifier: int) -> bool:
            return bool(native.spReflectionVariable_FindModifier(variable, modifier))

        # Slang gives an inout parameter the out modifier as well.
        direction = "inout" if has(_abi.SLANG_MODIFIER_INOUT) else "out" if has(_abi.SLANG_MODIFIER_OUT) else "in"
        type_ = self.types.type(native.spReflectionVariable_GetType(variable))
        has_default, default = self.types.default(variable, type_)
        return Param(
            name=self.types.variable_name(variable),
            type=type_,
            direction=direction,
            no_diff=has(_abi.SLANG_MODIFIER_NO_DIFF),
            has_default=has_default,
            default=default,
        )

    def stages(self, decl: int) -> Iterator[tuple[str, str]]:
        """Yield (qualified name, stage) of each function that the module's text marks as a shader."""
        for function, name, _ in self.declared(decl):
            stage = self.stage(function)
            if stage:
                yield name, stage

    def stage(self, function: int) -> str:
        """Return the graphics or ray tracing stage that a function's attribute names, or an empty string."""
        found = self._attribute(function, STAGE, 1)
        return STAGES[found[0]] if found else ""

    def _enum_decls(self, decl: int, prefix: str = "") -> Iterator[tuple[int, str]]:
        """Yield the declaration and the qualified name of each of a module's enums, those in its structs included."""
        for child, kind, space in self._members(decl, prefix):
            name = space + self._decl_name(child)
            if kind == _abi.SLANG_DECL_KIND_ENUM:
                yield child, name
            elif kind == _abi.SLANG_DECL_KIND_STRUCT:
                yield from self._enum_decls(child, f"{name}.")

    def _threads(self, function: int) -> tuple[int, int, int] | None:
        found = self._attribute(function, THREADS, 3)
        return (found[0], found[1], found[2]) if found else None

    def _attributes(self, function: int) -> Iterator[str]:
        """Yield the names of those attributes of a function that are declared in Slang text."""
        native = self._native
        for index in range(native.spReflectionFunction_GetUserAttributeCount(function)):
            attribute = native.spReflectionFunction_GetUserAttribute(function, index)
            yield native.spReflectionUserAttribute_GetName(attribute).decode()

    def _attribute(self, function: int, name: str, count: int) -> list[int]:
        """Return the first `count` arguments of the attribute `name`; an empty list if the function lacks it."""
        native = self._native
        for index in range(native.spReflectionFunction_GetUserAttributeCount(function)):
            attribute = native.spReflectionFunction_GetUserAttribute(function, index)
            if native.spReflectionUserAttribute_GetName(attribute) == name.encode():
                values = [ctypes.c_int32() for _ in range(count)]
                for at, value in enumerate(values):
                    native.spReflectionUserAttribute_GetArgumentValueInt(attribute, at, ctypes.byref(value))
                return [value.value for value in values]
        return []

    def _inner(self, decl: int) -> int:
        native = self._native
        inner: int = native.spReflectionGeneric_GetInnerDecl(native.spReflectionDecl_castToGeneric(decl))
        return inner

    def _members(self, decl: int, prefix: str = "") -> Iterator[tuple[int, int, str]]:
        """Yield each child declaration, its kind and the names of the namespaces around it, as ``"outer.inner."``.

        Namespaces and included files are replaced by their own children.
        """
        native = self._native
        parent = native.spReflectionDecl_getKind(decl)
        files = parent in (_abi.SLANG_DECL_KIND_MODULE, _abi.SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION)
        for child, kind in self._children(decl):
            name = self._decl_name(child)
            if kind == _abi.SLANG_DECL_KIND_NAMESPACE:
                yield from self._members(child, f"{prefix}{name}.")
            elif files and kind == _abi.SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION and name:
                # Reflection has no kind for an included file, nor for an interface; only the latter has a member
                # ``This``.
                if all(self._decl_name(inner) != "This" for inner, _ in self._children(child)):
                    yield from self._members(child, prefix)
            else:
                yield child, kind, prefix

    def _children(self, decl: int) -> Iterator[tuple[int, int]]:
        for index in range(self._native.spReflectionDecl_getChildrenCount(decl)):
            child = self._native.spReflectionDecl_getChild(decl, index)
            yield child, self._native.spReflectionDecl_getKind(child)

    def _decl_name(self, decl: int) -> str:
        return (self._native.spReflectionDecl_getName(decl) or b"").decode()


def _is_data(kind: SlangType) -> bool:
    """Return whether a type is plain data, which the host can write: no resource or interface is part of it."""
    if kind.kind == "struct":
        return all(_is_data(field.type) for field in kind.fields)
    if kind.kind == "array":
        return kind.element is not None and _is_data(kind.element)
    return kind.kind in ("scalar", "vector", "matrix", "enum", "pointer")
