"""What Slang differentiates of a type, and arguments cut into the places that gradients are of.

No gradient is bound here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from slangpy_rt.arguments.bind_array import stored_as
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.device_packers import FieldPacker
from slangpy_rt.arguments.nested_packers import ConvertedPacker, PartsPacker
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.value_packers import NoPacker
from slangpy_rt.arguments.wrapped import optional_item, tuple_items
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import FunctionSig, Param, SlangType, StructInfo

GRAD_IN, GRAD_OUT = attrgetter("grad_in"), attrgetter("grad_out")


def differentiates(scope: Scope, type_: SlangType) -> bool:
    """Return whether Slang differentiates values of a type."""
    if type_.kind == "array" and type_.element is not None:
        return differentiates(scope, scope.struct(type_.element))
    if type_.kind == "struct":
        if not type_.fields:
            # Slang 2026.12 crashes when it is asked about these.
            item = optional_item(scope, type_)
            items = tuple_items(scope, type_) if item is None else (item,)
            if items:
                return all(differentiates(scope, scope.struct(item)) for item in items)
        return scope.source.conforms(type_.name, "IDifferentiable")
    return type_.kind in ("scalar", "vector", "matrix") and type_.scalar in ("half", "float", "double")


def active_fields(scope: Scope, type_: SlangType) -> set[str] | None:
    """Return the fields of a struct that Slang differentiates; None for a type that has no fields."""
    if type_.kind != "struct" or not type_.fields:
        return None
    found = scope.source.type(f"{type_.name}.Differential")
    own = {f.name for f in type_.fields}
    names = {f.name for f in found.type.fields} & own if isinstance(found, StructInfo) else set()
    # A Differential that the user wrote may have other field names; Slang then knows which field each is for.
    return names or own - {f.name for f in type_.fields if f.no_diff}


def dropping_struct(scope: Scope, sig: FunctionSig, param: Param) -> str | None:
    """Return the name of a parameter's struct that drops derivatives of its fields because it is not IDifferentiable.

    Returns
    -------
    str or None
        Empty for types that Slang differentiates and for those without floats; None if the parameter is declared
        ``no_diff``, so that it is a constant on purpose.
    """
    struct = _undifferentiable(scope, scope.struct(param.type))
    declared = param.no_diff and (not struct or scope.source.declares_no_diff(sig, param.name))
    return None if declared else struct


def dropping_part(scope: Scope, owner: SlangType, place: str, part: SlangType, struct: str | None) -> str | None:
    """Return the struct that drops derivatives of a part of a value; `struct` is the result for the value."""
    declared = any(f.no_diff for f in owner.fields if f.name == place.strip("."))
    return None if struct is None or declared else struct or _undifferentiable(scope, scope.struct(part))


def check_carried(where: str, struct: str | None, value: Any) -> None:
    """Refuse a gradient of a field whose struct drops it.

    Parameters
    ----------
    where : str
        ``"f.bwds(float a): argument 'a'"``, the start of the message.
    struct : str or None
        What ``dropping_struct`` and ``dropping_part`` return.

    Raises
    ------
    BindError
        If the value carries a gradient.
    """
    if struct and (isinstance(value, DiffPair) or (isinstance(value, NDBuffer) and value.layout.grads is not None)):
        raise BindError(
            f"{where} carries a gradient, and Slang computes none for it, because '{struct}' is not IDifferentiable. "
            f"Write 'struct {struct} : IDifferentiable', or pass x.detach()."
        )


def _undifferentiable(scope: Scope, type_: SlangType) -> str:
    while type_.kind == "array" and type_.element is not None:
        type_ = scope.struct(type_.element)
    # Slang 2026.12 crashes when it is asked about some containers, which hold no numbers themselves.
    if type_.kind != "struct" or not type_.fields or container(type_) is not None:
        return ""
    return "" if differentiates(scope, type_) else type_.name


def unused(bound: Bound) -> Bound:
    """Return an argument that the derivative gets a place for, and that nobody reads."""
    return replace(
        bound, mode="unused", access="out", shape=(), strides=(), packer=NoPacker(), struct=None, parts=(), host=""
    )


def apart(bound: Bound, type_: SlangType) -> Bound:
    """Return an array of structs as a struct of arrays in the same memory; other arguments as they are."""
    if bound.mode != "array" or bound.struct is None:
        return bound
    stored = storage(type_)
    assert stored is not None
    return _fields(bound, type_, stored.dtype, stored.dims, 0)


def _fields(bound: Bound, type_: SlangType, dtype: np.dtype[Any], dims: tuple[int, ...], offset: int) -> Bound:
    if type_.kind == "struct":
        assert dtype.fields is not None
        parts = []
        for f in type_.fields:
            inner, at = dtype.fields[f.name][:2]
            item, shape = inner.subdtype or (inner, ())
            parts.append((f".{f.name}", _fields(bound, f.type, item, shape, offset + at)))
    elif type_.kind == "array" and type_.element is not None and dtype.names is not None:
        step = dtype.itemsize * int(np.prod(dims[1:]))
        parts = [
            (f"[{k}]", _fields(bound, type_.element, dtype, dims[1:], offset + k * step))
            for k in range(type_.shape[0])
        ]
    else:
        stored = stored_as(bound.name, type_)
        unit = NUMPY_OF[stored.scalar].itemsize
        return replace(
            bound, type=type_, scalar=stored.scalar, count=stored.count, aligned=False, struct=None,
            strides=tuple(s // unit for s in bound.strides), packer=FieldPacker(offset),
        )  # fmt: skip
    packers = [p.packer for _, p in parts]
    n = len(parts)
    return replace(
        bound, type=type_, mode="parts", shape=(), strides=(), scalar="", count=0, struct=None, parts=tuple(parts),
        packer=PartsPacker(lambda v: (v,) * n, packers),
    )  # fmt: skip


def gradient_found(find: Callable[[Any], Any], gradient: Bound | None) -> Bound | None:
    """Return a gradient whose packer takes the argument's value and finds the gradient's array in it."""
    return gradient and replace(gradient, packer=ConvertedPacker(find, gradient.packer, False))
