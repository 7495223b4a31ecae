"""Finds the declarations of a name in a module, and converts them to Python signatures.

Which overload a call means is decided in ``arguments.resolve``.
"""

from __future__ import annotations

import inspect
import keyword
from dataclasses import replace
from typing import TYPE_CHECKING

from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.types import FunctionSig, Param, SlangType, StructInfo

if TYPE_CHECKING:
    from slangpy_rt.slang.source import Source


def find_overloads(source: Source, name: str) -> tuple[FunctionSig, ...]:
    """Return the function declarations of a name; empty if there are none.

    The name is that of a function (``"add"``, ``"copy<float>"``), of a struct (``"Ray"``: its constructors) or of a
    method (``"Ray.advance"``: with its object as the first parameter).
    """
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
    """Return a method as a function that takes its object as the first parameter, ``this``, unless it is static."""
    if sig.static:
        return replace(sig, owner=type_.name)
    this = Param("this", type_, "inout" if sig.mutating else "in")
    return replace(sig, owner=type_.name, params=(this, *sig.params))


def gone(name: str, source: Source) -> CompileError:
    """Return the error for a name that an edited module no longer declares, or declares as something else."""
    info = source.info
    kinds = {sig.name: "function" for sig in info.functions} | {e.name: "compute kernel" for e in info.entry_points}
    if name in kinds:
        return CompileError(
            f"{name}: '{source.path}' was edited, and it is a {kinds[name]} now; take it from the module again."
        )
    known = ", ".join(kinds) or "no functions"
    return CompileError(f"{name}: '{source.path}' was edited and no longer declares it; it has {known}.")


def python_signature(sig: FunctionSig) -> inspect.Signature:
    """Return a declaration as an ``inspect.Signature``, with Slang's type names as annotations."""
    parameters = []
    for p in sig.params:
        # A Slang parameter may be named as a Python keyword, `from`, which inspect refuses.
        name = f"{p.name}_" if keyword.iskeyword(p.name) else p.name
        # A default whose value reflection does not tell is shown as ``...``.
        default = (... if p.default is None else p.default) if p.has_default else inspect.Parameter.empty
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=p.type.name))
    return inspect.Signature(parameters, return_annotation=sig.returns.name)
