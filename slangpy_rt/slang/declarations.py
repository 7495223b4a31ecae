"""Which declarations a name stands for, and how Python shows them. Which of them a call means is ``resolve``'s."""

from __future__ import annotations

import inspect
import keyword
from dataclasses import replace

from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.types import FunctionSig, Param, SlangType, StructInfo
from slangpy_rt.slang.source import Source


def find_overloads(source: Source, name: str) -> tuple[FunctionSig, ...]:
    """Declarations by a name such as ``"add"``, ``"copy<float>"``, ``"Ray"`` or ``"Ray.advance"``; empty if none."""
    plain = tuple(sig for sig in source.info.functions if sig.name == name)
    if plain:
        return plain
    for struct in source.info.structs:
        if struct.type.name == name:
            return struct.constructors
    owner = name.rpartition(".")[0]
    found = source.functions(name)
    type_ = source.type(owner) if owner and found else None
    if isinstance(type_, StructInfo):
        return tuple(with_this(type_.type, sig) for sig in found)
    return found


def with_this(type_: SlangType, sig: FunctionSig) -> FunctionSig:
    """A method as a function of its object."""
    if sig.static:
        return replace(sig, owner=type_.name)
    this = Param("this", type_, "inout" if sig.mutating else "in")
    return replace(sig, owner=type_.name, params=(this, *sig.params))


def gone(name: str, source: Source) -> CompileError:
    """The error for what an edited module no longer declares."""
    known = ", ".join(dict.fromkeys(sig.name for sig in source.info.functions)) or "no functions"
    return CompileError(f"{name}: '{source.path}' was edited and no longer declares it; it has {known}.")


def python_signature(sig: FunctionSig) -> inspect.Signature:
    """A declaration as ``inspect.signature`` shows it."""
    parameters = []
    for p in sig.params:
        # `in` is a fine name in Slang; inspect refuses it, and help() is better with `in_` than without.
        name = f"{p.name}_" if keyword.iskeyword(p.name) else p.name
        # What Slang fills in is not known here, only that it does.
        default = ... if p.has_default else inspect.Parameter.empty
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=p.type.name))
    return inspect.Signature(parameters, return_annotation=sig.returns.name)
