"""Reads the declarations of a loaded module into a ModuleInfo, with the documentation comments of its text.

Other functions return a module's undefined structs, files, values of constants, and global variables. Nothing is
loaded here; the session passes modules and their texts.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from slangpy_rt.core.types import FunctionSig, ModuleInfo, StructInfo
from slangpy_rt.slang import _abi
from slangpy_rt.slang.com import ComPtr, Out
from slangpy_rt.slang.reflect import Reflector
from slangpy_rt.slang.reflect_types import Cases, bare
from slangpy_rt.slang.text import RESERVED, Prepared, docs, entries_elsewhere, prints_in


def module_info(
    native: ctypes.CDLL,
    module: ComPtr,
    name: str,
    text: str,
    prepared: Prepared,
    cases: Mapping[str, Cases],
    undefined: Collection[str] = (),
    texts: Collection[str] = (),
) -> ModuleInfo:
    """Return the declarations of a module; the session adds dependencies, paths, names, ``statics`` and ``groups``.

    Shaders of graphics and ray tracing, and entry points of included files, are left out.

    Parameters
    ----------
    native : CDLL
        The Slang library.
    module : ComPtr
        The loaded module.
    name : str
        The module's name.
    text : str
        The module's text as the user wrote it, for its comments.
    prepared : Prepared
        The text as it was compiled.
    cases, undefined
        See ``TypeReflector``.
    texts : collection of str
        The texts of other files that the module includes or imports.
    """
    reflector = Reflector(native, cases, module.call("IComponentType.getLayout", 0, None), undefined)
    # Entry points left in the module come from included files: ``prepare`` made those of the text plain functions.
    others = entries_elsewhere(text, texts)
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
    functions = [f for f in reflector.functions(decl) if f.name not in others and not f.name.startswith(RESERVED)]
    notes = {key: iter(comments) for key, comments in docs(text).items()}
    return ModuleInfo(
        name,
        tuple(with_doc(f, notes) for f in functions),
        tuple(struct_with_docs(s, notes) for s in reflector.structs(decl)),
        tuple(
            replace(k, doc=next(notes.get(k.name, iter(())), "")) for k in reflector.kernels(decl, prepared.semantics)
        ),
        tuple(reflector.constants(decl)),
        tuple(reflector.uniforms(decl, prepared.uniforms)),
        stages=tuple(reflector.stages(decl)),
        enums=tuple(reflector.enum_types(decl)),
        prints=any(map(prints_in, [text, *texts])),
    )


def undefined_structs(native: ctypes.CDLL, decl: int) -> list[str]:
    """Return the names of the structs that a module declares as ``extern``, which another module has to define."""
    reflector = Reflector(native)
    return [
        reflector.types.full_name(native.spReflection_getTypeFromDecl(child))
        for child in reflector.struct_decls(decl)
        if native.spReflectionDecl_findModifier(child, _abi.SLANG_MODIFIER_EXTERN)
    ]


def files_of(module: ComPtr) -> list[str]:
    """Return the paths of the files that a module was read from."""
    count = module.call("IModule.getDependencyFileCount")
    return [os.fsdecode(module.call("IModule.getDependencyFilePath", index)) for index in range(count)]


def constant_values(native: ctypes.CDLL, decl: int) -> list[int]:
    """Return the values of a module's global variables, all of them integer constants, in source order."""
    out = []
    for _, _, variable in Reflector(native).variables(decl):
        value = ctypes.c_int64()
        native.spReflectionVariable_GetDefaultValueInt(variable, ctypes.byref(value))
        out.append(value.value)
    return out


def global_variables(native: ctypes.CDLL, decl: int) -> list[tuple[str, bool, bool]]:
    """Return (qualified name, is static, has an initial value) for each global variable of a module."""
    return [
        (
            name,
            bool(native.spReflectionDecl_findModifier(child, _abi.SLANG_MODIFIER_STATIC)),
            bool(native.spReflectionVariable_HasDefaultValue(variable)),
        )
        for name, child, variable in Reflector(native).variables(decl)
    ]


def struct_with_docs(info: StructInfo, notes: Mapping[str, Iterator[str]]) -> StructInfo:
    """Return a struct with the documentation comments of its declaration, its fields and its methods."""
    base = bare(info.type.name)
    fields = tuple(replace(f, doc=next(notes.get(f"{base}.{f.name}", iter(())), "")) for f in info.type.fields)
    return StructInfo(
        replace(info.type, fields=fields),
        tuple(with_doc(m, notes, f"{base}.") for m in info.methods),
        info.constructors,
        next(notes.get(base, iter(())), ""),
    )


def with_doc(sig: FunctionSig, notes: Mapping[str, Iterator[str]], prefix: str = "") -> FunctionSig:
    """Return a function with the next comment in `notes` for its name: overloads get theirs in source order."""
    return replace(sig, doc=next(notes.get(prefix + bare(sig.name), iter(())), ""))
