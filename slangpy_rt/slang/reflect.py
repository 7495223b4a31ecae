"""Reflection of loaded Slang modules and linked programs as frozen values of ``slangpy_rt.core.types``.

It compiles nothing and keeps no native pointer beyond a call. Slang 2026.12 ends the process when asked for
the element count, row count or scalar of a type that depends on a generic parameter, so sizes and elements
are always read from the type's generic arguments, which never fail.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from slangpy_rt.core.types import (
    EntryPoint,
    Field,
    FunctionSig,
    LayoutField,
    ModuleInfo,
    Param,
    SlangType,
    StructInfo,
)
from slangpy_rt.slang import _abi
from slangpy_rt.slang.com import ComPtr, Out
from slangpy_rt.slang.text import STAGE, STAGES, THREADS, Prepared, docs

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
CONSTRUCTOR = "$init"  # __init and what Slang makes of the fields alike
# Entries of kernels whose parameters do not show the struct, and how it lies where they read it.
_BY_NAME = {
    "range": _abi.SLANG_LAYOUT_RULES_DEFAULT,
    "handle": _abi.SLANG_LAYOUT_RULES_DEFAULT_STRUCTURED_BUFFER,
}
_OPERATOR = re.compile(r"(?:operator)?[-+*/%<>=!&|^~]+")
_CBUFFER = "SLANG_ParameterGroup_"  # the struct that Slang makes of a cbuffer's members
_BASE = "$base"  # the first member of a layout, of the struct that another one inherits from
_UNSIZED = 2**31 - 1  # Slang's own mark for T[]

Cases = tuple[tuple[str, int], ...]


class Reflector:
    """Reads one module or program; every type is walked once.

    Parameters
    ----------
    native : CDLL
        The compiler.
    cases : mapping
        Cases of the enums by name, which reflection does not have.
    layout : int
        The module's layout, which alone tells what a struct inherits; without it structs have their own fields.
    undefined : collection of str
        Structs that are declared alone.
    """

    def __init__(
        self,
        native: ctypes.CDLL,
        cases: Mapping[str, Cases] | None = None,
        layout: int = 0,
        undefined: Collection[str] = (),
    ) -> None:
        self._native = native
        self._open = undefined
        self._cases = cases or {}
        self._layout = layout
        self._types: dict[tuple[str, bool, bool], SlangType] = {}
        self._inside = False

    def type(self, address: int, whole: bool = True) -> SlangType:
        """The type. Inside a struct, what a pointer or a generic argument names comes without fields.

        That ends recursion, which Slang allows through pointers alone, and keeps linked structs small.
        """
        full = self.full_name(address)
        key = (full, self._inside, whole)
        if key not in self._types:
            self._types[key] = self._walk(address, full, whole)
        return self._types[key]

    def functions(self, decl: int) -> Iterator[FunctionSig]:
        """Functions of a module or methods of a struct, in source order, operators among them; no kernels."""
        for function, name, generics in self.declared(decl):
            space, dot, own = name.rpartition(".")
            if _OPERATOR.fullmatch(own):
                yield self.signature(function, f"{space}{dot}operator{own.removeprefix('operator')}", generics)
            elif own.isidentifier() and self._threads(function) is None and not self.stage(function):
                yield self.signature(function, name, generics)

    def kernels(self, decl: int, semantics: Mapping[str, Mapping[str, str]]) -> Iterator[EntryPoint]:
        """Compute kernels of a module, which ``text.prepare`` made functions."""
        for function, name, generics in self.declared(decl):
            size = self._threads(function)
            if size is not None and not generics:
                known = semantics.get(name.rpartition(".")[2], {})
                params = self.signature(function, name, ()).params
                yield EntryPoint(name, tuple(replace(p, semantic=known.get(p.name, "")) for p in params), size)

    def structs(self, decl: int) -> Iterator[StructInfo]:
        """Structs of a module and those inside them, each with the methods and constructors in its own braces."""
        for child in self.struct_decls(decl):
            info = self.type(self._native.spReflection_getTypeFromDecl(child))
            makers = (self.signature(f, info.name, g) for f, n, g in self.declared(child) if n == CONSTRUCTOR)
            yield StructInfo(info, tuple(self.functions(child)), tuple(makers))

    def struct_decls(self, decl: int) -> Iterator[int]:
        """Declarations of those structs."""
        for child, kind, _ in self._members(decl):
            if kind == _abi.SLANG_DECL_KIND_GENERIC:
                child = self._inner(child)
                kind = self._native.spReflectionDecl_getKind(child)
            ours = self._decl_name(child).startswith((_CBUFFER, THREADS, STAGE))
            if kind == _abi.SLANG_DECL_KIND_STRUCT and not ours:
                yield child
                yield from self.struct_decls(child)

    def names(self, decl: int) -> Iterator[str]:
        """What a module declares in its outermost scope, and what a namespace or a cbuffer may bring there."""
        for child, kind in self._children(decl):
            name = self._decl_name(child)
            yield name
            if kind == _abi.SLANG_DECL_KIND_NAMESPACE or name.startswith(_CBUFFER):
                yield from self.names(child)

    def extensions(self, decl: int) -> Iterator[int]:
        """Declarations of a module's extensions; reflection does not tell of what."""
        for child, kind, _ in self._members(decl):
            if kind == _abi.SLANG_DECL_KIND_GENERIC:
                child = self._inner(child)
                kind = self._native.spReflectionDecl_getKind(child)
            if kind == _abi.SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION and not self._decl_name(child):
                yield child

    def enums(self, decl: int, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
        """Qualified names of a module's enums with the names of their cases."""
        for child, kind, space in self._members(decl, prefix):
            name = space + self._decl_name(child)
            if kind == _abi.SLANG_DECL_KIND_ENUM:
                names = (self._decl_name(c) for c, k in self._children(child) if k != _abi.SLANG_DECL_KIND_FUNC)
                yield name, [n for n in names if n.isidentifier()]
            elif kind == _abi.SLANG_DECL_KIND_STRUCT:
                yield from self.enums(child, f"{name}.")

    def variables(self, decl: int) -> Iterator[tuple[str, int, int]]:
        """Qualified name, declaration and variable of a module's global variables."""
        for child, kind, prefix in self._members(decl):
            if kind == _abi.SLANG_DECL_KIND_VARIABLE:
                yield prefix + self._decl_name(child), child, self._native.spReflectionDecl_castToVariable(child)

    def constants(self, decl: int) -> Iterator[Param]:
        """Each ``extern static const`` of a module; text outside a namespace cannot export one inside."""
        for name, child, variable in self.variables(decl):
            wanted = (_abi.SLANG_MODIFIER_EXTERN, _abi.SLANG_MODIFIER_STATIC, _abi.SLANG_MODIFIER_CONST)
            if "." not in name and all(self._native.spReflectionDecl_findModifier(child, m) for m in wanted):
                yield self.param(variable)

    def uniforms(self, decl: int, names: Collection[str]) -> Iterator[Param]:
        """The named global variables of ordinary data."""
        for name, _, variable in self.variables(decl):
            param = self.param(variable)
            if name in names and _is_data(param.type):
                yield replace(param, name=name)

    def declared(self, decl: int) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """Function, qualified name and generic parameters of what a module or a struct declares."""
        native = self._native
        for child, kind, prefix in self._members(decl):
            names: tuple[str, ...] = ()
            if kind == _abi.SLANG_DECL_KIND_GENERIC:
                names = self.generic_names(native.spReflectionDecl_castToGeneric(child))
                child = self._inner(child)
                kind = native.spReflectionDecl_getKind(child)
            if kind == _abi.SLANG_DECL_KIND_FUNC:
                yield native.spReflectionDecl_castToFunction(child), prefix + self._decl_name(child), names

    def signature(self, function: int, name: str, generics: tuple[str, ...]) -> FunctionSig:
        """A function under a name; types are concrete where the function is specialized."""
        native = self._native
        count = native.spReflectionFunction_GetParameterCount(function)
        variables = [native.spReflectionFunction_GetParameter(function, index) for index in range(count)]

        def has(modifier: int) -> bool:
            return bool(native.spReflectionFunction_FindModifier(function, modifier))

        return FunctionSig(
            name=name,
            params=tuple(self.param(variable) for variable in variables),
            returns=self.type(native.spReflectionFunction_GetResultType(function)),
            differentiable=has(_abi.SLANG_MODIFIER_DIFFERENTIABLE),
            static=has(_abi.SLANG_MODIFIER_STATIC),
            mutating=has(_abi.SLANG_MODIFIER_MUTATING),
            generics=generics,
        )

    def param(self, variable: int) -> Param:
        """A parameter or a global variable."""
        native = self._native

        def has(modifier: int) -> bool:
            return bool(native.spReflectionVariable_FindModifier(variable, modifier))

        # Slang gives an inout parameter the out modifier as well.
        direction = "inout" if has(_abi.SLANG_MODIFIER_INOUT) else "out" if has(_abi.SLANG_MODIFIER_OUT) else "in"
        return Param(
            name=self._variable_name(variable),
            type=self.type(native.spReflectionVariable_GetType(variable)),
            direction=direction,
            no_diff=has(_abi.SLANG_MODIFIER_NO_DIFF),
            has_default=native.spReflectionVariable_HasDefaultValue(variable),
        )

    def generic_parameters(self, generic: int) -> tuple[list[int], list[int]]:
        """Type and value parameters of a generic."""
        native = self._native
        types = range(native.spReflectionGeneric_GetTypeParameterCount(generic))
        values = range(native.spReflectionGeneric_GetValueParameterCount(generic))
        return (
            [native.spReflectionGeneric_GetTypeParameter(generic, index) for index in types],
            [native.spReflectionGeneric_GetValueParameter(generic, index) for index in values],
        )

    def generic_names(self, generic: int) -> tuple[str, ...]:
        """Names of a generic's parameters, types first."""
        types, values = self.generic_parameters(generic)
        return tuple(self._variable_name(item) for item in types + values)

    def full_name(self, address: int) -> str:
        """A type's name as Slang writes it."""
        out = Out()
        self._native.spReflectionType_GetFullName(address, out.ref)
        return out.bytes().rstrip(b"\0").decode()

    def stages(self, decl: int) -> Iterator[tuple[str, str]]:
        """Functions of a module that its text has as shaders of graphics or of ray tracing, with the stage."""
        for function, name, _ in self.declared(decl):
            stage = self.stage(function)
            if stage:
                yield name, stage

    def stage(self, function: int) -> str:
        """The stage of graphics or of ray tracing that a function's attribute names; empty if there is none."""
        found = self._attribute(function, STAGE, 1)
        return STAGES[found[0]] if found else ""

    def _threads(self, function: int) -> tuple[int, int, int] | None:
        found = self._attribute(function, THREADS, 3)
        return (found[0], found[1], found[2]) if found else None

    def _attribute(self, function: int, name: str, count: int) -> list[int]:
        """Arguments of an attribute of ours; none if the function does not have it."""
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
            return SlangType("interface", full)
        if kind in _RESOURCES:
            return SlangType("resource", _short(full))
        if kind == _abi.SLANG_TYPE_KIND_NONE:  # T and T.Member, but also the type of a function
            return SlangType("generic" if full.replace(".", "").isidentifier() else "other", full)
        pointer = kind == _abi.SLANG_TYPE_KIND_POINTER
        element, sizes = self._element(address, whole and not (pointer and self._inside))
        if element is None:
            return SlangType("other", full)
        if pointer:
            plain = full.endswith(_PLAIN_POINTER)
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
            fields.append(Field(self._variable_name(variable), kind, no_diff=constant))
        base, texts = _split(full) if full.endswith(">") else (full, [])
        arguments = self._arguments(address, texts) if texts else ()
        # Slang 2026.12 ends the process when asked for the layout of some types that depend on a parameter.
        known = "<" not in base and not any(isinstance(a, SlangType) and a.kind == "generic" for a in arguments)
        # It also does where one in it is only declared, as by `extern struct V : I;`.
        known = known and full not in self._open and not any(self._is_open(field.type) for field in fields)
        parent = self._base(address) if whole and known else None
        if parent is not None:
            fields = _with_inherited(full, parent, fields)
        self._inside = inside
        if not texts:
            return SlangType("struct", full, fields=tuple(fields))
        if len(arguments) != len(texts):  # a pack such as Tuple's, which Slang does not take apart
            return SlangType("struct", full, fields=tuple(fields))
        names = (a.name if isinstance(a, SlangType) else str(a) for a in arguments)
        return SlangType("struct", f"{base}<{', '.join(names)}>", fields=tuple(fields), arguments=arguments)

    def _is_open(self, kind: SlangType) -> bool:
        inner = [field.type for field in kind.fields] + [kind.element] * (kind.element is not None)
        return kind.name in self._open or any(self._is_open(item) for item in inner if item is not None)

    def _base(self, address: int) -> SlangType | None:
        """The struct that a struct inherits from."""
        native, rules = self._native, _abi.SLANG_LAYOUT_RULES_DEFAULT
        layout = native.spReflection_GetTypeLayout(self._layout, address, rules) if self._layout else None
        if not layout or not native.spReflectionTypeLayout_GetFieldCount(layout):
            return None
        first = native.spReflectionTypeLayout_GetFieldByIndex(layout, 0)
        variable = native.spReflectionVariableLayout_GetVariable(first)
        if not variable or self._variable_name(variable) != _BASE:
            return None
        inner = native.spReflectionVariableLayout_GetTypeLayout(first)
        return self.type(native.spReflectionTypeLayout_GetType(inner))

    def _arguments(self, address: int, texts: list[str]) -> tuple[SlangType | int, ...]:
        """Generic arguments in source order, which Slang keeps only in the type's name."""
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
            if text in named:
                out.append(named[text])
            elif text.lstrip("-").isdigit():
                out.append(int(text))
            elif text:
                out.append(SlangType("generic", text))
        return tuple(out)

    def _element(self, address: int, whole: bool) -> tuple[SlangType | None, list[int]]:
        """First type argument and all value arguments of a built-in container; 0 for an unknown value."""
        native = self._native
        generic = native.spReflectionType_GetGenericContainer(address)
        types, values = self.generic_parameters(generic) if generic else ([], [])
        concrete = native.spReflectionGeneric_GetConcreteType(generic, types[0]) if types else None
        sizes = [native.spReflectionGeneric_GetConcreteIntVal(generic, value) for value in values]
        return (self.type(concrete, whole) if concrete else None), sizes

    def _members(self, decl: int, prefix: str = "") -> Iterator[tuple[int, int, str]]:
        """Children with namespaces and included files opened; the prefix is the namespaces' names."""
        native = self._native
        parent = native.spReflectionDecl_getKind(decl)
        files = parent in (_abi.SLANG_DECL_KIND_MODULE, _abi.SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION)
        for child, kind in self._children(decl):
            name = self._decl_name(child)
            if kind == _abi.SLANG_DECL_KIND_NAMESPACE:
                yield from self._members(child, f"{prefix}{name}.")
            elif files and kind == _abi.SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION and name:
                # A file has no kind of its own; an interface shares it and is told by its This type.
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

    def _variable_name(self, variable: int) -> str:
        return (self._native.spReflectionVariable_GetName(variable) or b"").decode()


def module_info(
    native: ctypes.CDLL,
    module: ComPtr,
    name: str,
    text: str,
    prepared: Prepared,
    cases: Mapping[str, Cases],
    undefined: Collection[str] = (),
) -> ModuleInfo:
    """Everything a module declares but its dependencies; kernels of graphics, and those of included files, not.

    Parameters
    ----------
    text : str
        The module's text, for the comments in it.
    prepared : Prepared
        That text as it was compiled.
    cases : mapping
        Of enums.
    undefined : collection of str
        Structs that are declared alone.
    """
    reflector = Reflector(native, cases, module.call("IComponentType.getLayout", 0, None), undefined)
    # Of included files, which the compiler reads by itself.
    others = set()
    for index in range(module.call("IModule.getDefinedEntryPointCount")):
        out = Out()
        module.call("IModule.getDefinedEntryPoint", index, out.ref)
        found = out.take()
        if found is not None:
            with found:
                # Slang 2026.12 ends the process when asked for the layout of a miss shader for C++.
                function = found.call("IEntryPoint.getFunctionReflection")
                decl = native.spReflectionFunction_asDecl(function)
                others.add((native.spReflectionDecl_getName(decl) or b"").decode())
    decl = module.call("IModule.getModuleReflection")
    notes = {key: iter(comments) for key, comments in docs(text).items()}
    return ModuleInfo(
        name,
        tuple(with_doc(f, notes) for f in reflector.functions(decl) if f.name not in others),
        tuple(struct_with_docs(s, notes) for s in reflector.structs(decl)),
        tuple(
            replace(k, doc=next(notes.get(k.name, iter(())), "")) for k in reflector.kernels(decl, prepared.semantics)
        ),
        tuple(reflector.constants(decl)),
        tuple(reflector.uniforms(decl, prepared.uniforms)),
        stages=tuple(reflector.stages(decl)),
    )


def undefined_structs(native: ctypes.CDLL, decl: int) -> list[str]:
    """Structs that a module declares by ``extern``, for another one to define."""
    reflector = Reflector(native)
    return [
        reflector.full_name(native.spReflection_getTypeFromDecl(child))
        for child in reflector.struct_decls(decl)
        if native.spReflectionDecl_findModifier(child, _abi.SLANG_MODIFIER_EXTERN)
    ]


def constant_values(native: ctypes.CDLL, decl: int) -> list[int]:
    """Values of a module's integer constants, in source order."""
    out = []
    for _, _, variable in Reflector(native).variables(decl):
        value = ctypes.c_int64()
        native.spReflectionVariable_GetDefaultValueInt(variable, ctypes.byref(value))
        out.append(value.value)
    return out


def global_variables(native: ctypes.CDLL, decl: int) -> list[tuple[str, bool, bool]]:
    """A module's global variables: whether each is static, and whether it has an initial value."""
    return [
        (
            name,
            bool(native.spReflectionDecl_findModifier(child, _abi.SLANG_MODIFIER_STATIC)),
            bool(native.spReflectionVariable_HasDefaultValue(variable)),
        )
        for name, child, variable in Reflector(native).variables(decl)
    ]


def struct_with_docs(info: StructInfo, notes: Mapping[str, Iterator[str]]) -> StructInfo:
    """A struct with the comments of its declaration, its fields and its methods."""
    base = bare(info.type.name)
    fields = tuple(replace(f, doc=next(notes.get(f"{base}.{f.name}", iter(())), "")) for f in info.type.fields)
    return StructInfo(
        replace(info.type, fields=fields),
        tuple(with_doc(m, notes, f"{base}.") for m in info.methods),
        info.constructors,
        next(notes.get(base, iter(())), ""),
    )


def with_doc(sig: FunctionSig, notes: Mapping[str, Iterator[str]], prefix: str = "") -> FunctionSig:
    """A function with the next comment of its name: overloads take them in source order."""
    return replace(sig, doc=next(notes.get(prefix + bare(sig.name), iter(())), ""))


def call_layout(native: ctypes.CDLL, layout: int, entry: str) -> tuple[tuple[LayoutField, ...], int]:
    """Members and size, in bytes, of struct ``_spy_Call`` where the kernel gets it; empty without one."""
    block = _find_call(native, layout, entry)
    if not block:
        return (), 0
    uniform = _abi.SLANG_PARAMETER_CATEGORY_UNIFORM
    fields = []
    for index in range(native.spReflectionTypeLayout_GetFieldCount(block)):
        field = native.spReflectionTypeLayout_GetFieldByIndex(block, index)
        variable = native.spReflectionVariableLayout_GetVariable(field)
        fields.append(
            LayoutField(
                name=native.spReflectionVariable_GetName(variable).decode(),
                offset=native.spReflectionVariableLayout_GetOffset(field, uniform),
                size=native.spReflectionTypeLayout_GetSize(
                    native.spReflectionVariableLayout_GetTypeLayout(field), uniform
                ),
            )
        )
    return tuple(fields), native.spReflectionTypeLayout_GetSize(block, uniform)


def _find_call(native: ctypes.CDLL, layout: int, entry: str) -> Any:
    if entry in _BY_NAME:
        found = native.spReflection_FindTypeByName(layout, b"_spy_Call")
        rules = _BY_NAME[entry]
        return native.spReflection_GetTypeLayout(layout, found, rules) if found else None
    entry = native.spReflection_getEntryPointByIndex(layout, 0)
    for index in range(native.spReflectionEntryPoint_getParameterCount(entry)):
        param = native.spReflectionEntryPoint_getParameterByIndex(entry, index)
        value = native.spReflectionVariableLayout_GetTypeLayout(param)
        for block in (value, native.spReflectionTypeLayout_GetElementTypeLayout(value)):
            type_ = native.spReflectionTypeLayout_GetType(block) if block else None
            if type_ and native.spReflectionType_GetName(type_) == b"_spy_Call":
                return block
    return None


def bare(name: str) -> str:
    """A name without generic arguments: ``"A.B"`` of ``"A<x<y>>.B<2>"``."""
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name


def _with_inherited(full: str, base: SlangType, own: list[Field]) -> list[Field]:
    """A struct's fields, those that it inherits first: text writes both alike.

    A field that it hides has no name in text. Behind padding of the base's end, which arrays do not have, its own
    fields lie elsewhere than in arrays. The types of such fields say so, and nobody can pass them.
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


def _is_data(kind: SlangType) -> bool:
    """Whether a value is bytes that anyone may fill: no resource, interface or the like in it."""
    if kind.kind == "struct":
        return all(_is_data(field.type) for field in kind.fields)
    if kind.kind == "array":
        return kind.element is not None and _is_data(kind.element)
    return kind.kind in ("scalar", "vector", "matrix", "enum", "pointer")


def _short(full: str) -> str:
    """A name with vectors and matrices written as in source, and without Slang's own default argument."""
    short = re.sub(r"\b(?:vector|matrix)<(\w+),(\d+)(?:,(\d+))?>", _abbreviate, full)
    return short.replace(", DefaultDataLayout>", ">")


def _abbreviate(match: re.Match[str]) -> str:
    return match[1] + "x".join(size for size in match.groups()[1:] if size)


def _split(full: str) -> tuple[str, list[str]]:
    """``"A.B<C<x, y>, 2>"`` as ``"A.B"`` and its arguments, the last angle brackets counting."""
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
