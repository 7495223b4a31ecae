"""Gradients of arguments: a pass over bound arguments that adds the gradients that a derivative reads and writes.

Arguments are first bound for the function itself; here each place that Slang differentiates gets its gradients.
Places that Slang does not differentiate, or that carry no gradient, stay constants. ``accumulation`` and
``calls.kernel_spec`` decide how gradients are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from slangpy_rt.arguments.accumulation import adding
from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.bind_array import bind_array, stored_as
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.differentials import (
    GRAD_IN,
    GRAD_OUT,
    active_fields,
    apart,
    check_carried,
    differentiates,
    dropping_part,
    dropping_struct,
    gradient_found,
    unused,
)
from slangpy_rt.arguments.host_packers import RefPacker
from slangpy_rt.arguments.mapping import Map
from slangpy_rt.arguments.nested_packers import ConvertedPacker, PartsPacker
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.seeds import seed_of
from slangpy_rt.arguments.value_packers import ValuePacker
from slangpy_rt.arguments.vectors import Matrix, Vector
from slangpy_rt.arguments.whole_gradients import whole
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.conversion import as_element
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.shapes import Shape, align
from slangpy_rt.core.types import FunctionSig, Param, SlangType
from slangpy_rt.core.wording import in_words


def with_gradients(
    where: str, scope: Scope, sig: FunctionSig, param: Param, bound: Bound, value: Any, how: Map, derivative: str
) -> Bound:
    """Return an argument with the gradients that its value carries.

    Parameters
    ----------
    where : str
        ``"f.bwds(float a): argument 'a'"``, the start of every message.
    bound : Bound
        The argument as bound for the function itself.
    derivative : str
        ``"backward"`` or ``"forward"``.

    Raises
    ------
    BindError
        If a value that is differentiated cannot have a gradient, or one is missing.
    """
    type_ = scope.struct(bound.type)
    active = not param.no_diff and differentiates(scope, type_)
    if derivative == "backward" and param.direction == "out" and bound.mode != "tensor":
        return seed_of(where, scope, param, type_, value, how) if active else unused(bound)
    dropping = dropping_struct(scope, sig, param)
    return _walk(where, scope, type_, bound, value, active, derivative, dropping)


def tangent_of(where: str, scope: Scope, bound: Bound, value: Any) -> Bound:
    """Return a result with the tangent that ``fwds`` writes.

    Raises
    ------
    BindError
        If it is an array without a gradient to write.
    """
    type_ = scope.struct(bound.type)
    if not differentiates(scope, type_):
        return bound
    if isinstance(value, NDBuffer) and (value.layout.grads is None or value.layout.grads.out is None):
        raise BindError(f"{where} is {in_words(value)} without an array for the tangent; use tensor.with_grads().")
    return _walk(where, scope, type_, bound, value, True, "forward")


def assigned(bound: Bound, shape: Shape, together: bool) -> Bound:
    """Return an argument whose fresh gradients are written instead of added to, if each place gets one value.

    ``shape`` is the call's; ``together`` says that several arguments add to gradients in one buffer.
    """
    if bound.mode == "parts":
        parts = tuple((place, assigned(part, shape, together)) for place, part in bound.parts)
        return replace(bound, parts=parts)
    g = bound.grad_out
    if g is None or not g.fresh or g.access != "accumulate" or g.mode != "array":
        return bound
    # Zeros are right where the call or the gradient has no elements.
    if prod(g.shape) != prod(shape) or 0 in shape:
        return bound
    if adding(align(g.shape, g.strides, shape, g.mapped), shape, g.count, together) != "accumulate":
        return bound
    # What is written has the call's dimensions; those that are missing have one element.
    missing = 0 if g.mapped is not None else len(shape) - len(g.shape)
    padded = replace(g, access="out", shape=(1,) * missing + g.shape, strides=(0,) * missing + g.strides)
    return replace(bound, grad_out=padded)


def _walk(
    where: str,
    scope: Scope,
    type_: SlangType,
    bound: Bound,
    value: Any,
    active: bool,
    derivative: str,
    dropping: str | None = None,
) -> Bound:
    """Return an argument with gradients at every place that is differentiated.

    ``dropping`` is the struct around it that drops derivatives, as ``dropping_part`` has it.
    """
    packer = bound.packer
    if bound.mode != "tensor" and isinstance(adapter := converter(type(value)), Adapter) and adapter.takes_results:
        # PyTorch differentiates its tensors itself; to a derivative they are constants.
        return bound
    if isinstance(packer, ConvertedPacker) and not isinstance(value, DiffPair):
        part = replace(bound, packer=packer.inner)
        inner = _walk(where, scope, type_, part, packer.convert(value), active, derivative, dropping)
        return _found_by(packer.convert, inner)
    if bound.mode == "parts" and isinstance(packer, PartsPacker):
        inside = active_fields(scope, type_) if active else None
        parts = []
        for (place, part), item in zip(bound.parts, packer.parts(value), strict=True):
            name = place.strip(".")
            kind = scope.struct(part.type)
            live = active and (inside is None or name in inside) and differentiates(scope, kind)
            at = f"{where[:-1]}{place}'" if where.endswith("'") else f"{where}{place}"
            dropped = dropping_part(scope, type_, place, kind, dropping)
            parts.append((place, _walk(at, scope, kind, part, item, live, derivative, dropped)))
        return replace(bound, parts=tuple(parts))
    if bound.mode == "tensor":
        return whole(where, scope, bound, value, derivative)
    if not active or bound.mode == "computed":
        check_carried(where, dropping, value)
        return bound
    if isinstance(value, np.ndarray) and not isinstance(value, (Vector, Matrix)):
        raise BindError(
            f"{where} is {in_words(value)}, which has no gradient; make it a Tensor with Tensor.from_numpy(...), "
            "and add .with_grads() if its gradient is wanted."
        )
    if isinstance(value, DiffPair):
        return _cell(where, scope, bound, value, derivative)
    grads = value.layout.grads if isinstance(value, NDBuffer) else None
    wants_in = bound.access == "inout" if derivative == "backward" else bound.access != "out"
    if wants_in and derivative == "backward" and (grads is None or grads.into is None):
        raise BindError(
            f"{where} is written, and the gradient of what is written there is missing; pass it with "
            "tensor.with_grads(grad_in=..., grad_out=...)."
        )
    if grads is None:
        return apart(bound, type_)
    writes = grads.out is not None and (bound.access != "in" or derivative == "backward")
    into = _gradient(where, scope, bound, type_, value.grad_in, "in") if wants_in and grads.into else None
    # An inout variable with one gradient array: the call reads the gradient of the value after the call, and replaces
    # it by that of the value before.
    access = "accumulate" if derivative == "backward" and not (wants_in and grads.shared) else "out"
    out = _gradient(where, scope, bound, type_, value.grad_out, access) if writes else None
    if out is not None and grads.fresh:
        out = replace(out, fresh=True)
    if into is None and out is None:
        return apart(bound, type_)
    return _attach(scope, apart(bound, type_), into, out)


def _attach(scope: Scope, bound: Bound, grad_in: Bound | None, grad_out: Bound | None) -> Bound:
    """Attach gradients to the places of an array; array and gradients have the same parts."""
    if bound.mode == "parts":
        inside = active_fields(scope, bound.type)
        parts = []
        for k, (place, part) in enumerate(bound.parts):
            live = inside is None or place.strip(".") in inside
            inner = (
                _attach(scope, part, grad_in and grad_in.parts[k][1], grad_out and grad_out.parts[k][1])
                if live and differentiates(scope, part.type)
                else part
            )
            parts.append((place, inner))
        return replace(bound, parts=tuple(parts))
    return replace(bound, grad_in=gradient_found(GRAD_IN, grad_in), grad_out=gradient_found(GRAD_OUT, grad_out))


def _found_by(convert: Callable[[Any], Any], bound: Bound) -> Bound:
    """Apply ``convert`` to a value before this argument and its gradients are read from it."""
    grads = [gradient_found(convert, g) for g in (bound.grad_in, bound.grad_out)]
    return replace(
        bound, packer=ConvertedPacker(convert, bound.packer, False), grad_in=grads[0], grad_out=grads[1]
    )  # fmt: skip


def _gradient(where: str, scope: Scope, bound: Bound, type_: SlangType, array: Any, access: str) -> Bound:
    """Bind a gradient, whose dimensions run along the same call dimensions as its argument's."""
    stored = stored_as(where, type_)
    name = f"{bound.name}.grad_{'in' if access == 'in' else 'out'}"
    found = bind_array(f"{where}: gradient", scope.device, name, type_, stored, "in", array)
    return apart(replace(found, access=access, mapped=bound.mapped), type_)


def _cell(where: str, scope: Scope, bound: Bound, value: DiffPair, derivative: str) -> Bound:
    """Return a single value with its gradient, which is a cell of device memory."""
    stored = stored_as(where, bound.type)
    if stored.struct:
        raise UnsupportedError(f"{where}: a pair of structs is not supported; give a dict of pairs, one a field.")
    reads = bound.access == "inout" if derivative == "backward" else bound.access != "out"
    if reads and value.grad is None:
        if derivative == "backward":
            raise BindError(f"{where} is {in_words(value)} and written; its gradient is missing.")
        return bound
    plain: Any = replace(bound, shape=(), strides=(), aligned=True)
    into = out = None
    if value.grad is not None:
        as_element(f"{where}: gradient", bound.type, value.grad)
    if reads:
        packed = ValuePacker(f"{where}: gradient", bound.type, bound.scalar)
        number = ConvertedPacker(attrgetter("grad"), packed, False)
        into = replace(plain, name=f"{bound.name}.grad_in", mode="value", access="in", packer=number)
    if derivative == "backward" or bound.access != "in":
        adds = derivative == "backward" and not reads
        access = "accumulate" if adds else "out"
        cell = RefPacker(f"{where}: gradient", scope.device, bound.type, access, "grad")
        out = replace(plain, name=f"{bound.name}.grad_out", mode="array", access=access, packer=cell)
    return replace(bound, grad_in=into, grad_out=out)
