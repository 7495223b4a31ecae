"""Gradients of arguments: a pass over bound arguments that adds the gradients that a derivative reads and writes.

Arguments are first bound for the function itself; here each place that Slang differentiates gets its gradients, and
arrays of structs are split into arrays of their fields. Places that Slang does not differentiate, or that carry no
gradient, stay constants. ``accumulation`` and ``calls.kernel_spec`` decide how gradients are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from slangpy_rt.arguments.accumulation import adding
from slangpy_rt.arguments.bind import bind
from slangpy_rt.arguments.bind_array import as_tensor, bind_array, container, stored_as
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.device_feeds import FieldFeed
from slangpy_rt.arguments.host_feeds import RefFeed
from slangpy_rt.arguments.mapping import Map
from slangpy_rt.arguments.nested_feeds import ConvertedFeed, PartsFeed
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.value_feeds import NoFeed, ValueFeed
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.conversion import as_element
from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.shapes import Shape, align
from slangpy_rt.core.types import Param, SlangType, StructInfo
from slangpy_rt.core.wording import in_words

_GRAD_IN, _GRAD_OUT = attrgetter("grad_in"), attrgetter("grad_out")
_HOW_IN = "pass a Tensor as tensor.with_grads(grad_in=gradient), or diff_pair(None, gradient)"


def with_gradients(
    where: str, scope: Scope, param: Param, bound: Bound, value: Any, how: Map, derivative: str
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
        return _seed(where, scope, param, type_, value, how) if active else _unused(bound)
    return _walk(where, scope, type_, bound, value, active, derivative)


def bind_seed(where: str, scope: Scope, returns: SlangType, value: Any, how: Map) -> Bound | None:
    """Bind the result's gradient, which ``bwds`` reads; None if Slang does not differentiate the result.

    Raises
    ------
    BindError
        If it is missing, or if one is given for a result that has none.
    """
    type_ = scope.struct(returns)
    if returns.kind == "void" or not differentiates(scope, type_):
        if value is not None:
            raise BindError(f"{where}: '{returns.name}' has no gradient to propagate back; leave _result out.")
        return None
    if value is None:
        raise BindError(f"{where}: the gradient of the result is missing; {_HOW_IN}, as _result.")
    return _seed(f"{where}: _result", scope, Param("_result", returns), type_, value, how)


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
        raise BindError(f"{where} is {in_words(value)} without room for the tangent; use tensor.with_grads().")
    return _walk(where, scope, type_, bound, value, True, "forward")


def differentiates(scope: Scope, type_: SlangType) -> bool:
    """Return whether Slang differentiates values of a type."""
    if type_.kind == "array" and type_.element is not None:
        return differentiates(scope, scope.struct(type_.element))
    if type_.kind == "struct":
        return scope.source.conforms(type_.name, "IDifferentiable")
    return type_.kind in ("scalar", "vector", "matrix") and type_.scalar in ("half", "float", "double")


def assigned(bound: Bound, shape: Shape, together: bool) -> Bound:
    """Return an argument whose fresh gradients are written instead of added to, if each place gets one value.

    ``shape`` is the call's; ``together`` says that several arguments add to gradients in one buffer.
    """
    if bound.mode == "parts":
        parts = tuple((place, assigned(part, shape, together)) for place, part in bound.parts)
        return replace(bound, parts=parts)
    g = bound.grad_out
    if g is None or not g.fresh or g.access != "accumulate" or g.mode != "array" or prod(g.shape) != prod(shape):
        return bound
    if adding(align(g.shape, g.strides, shape, g.mapped), shape, g.count, together) != "accumulate":
        return bound
    return replace(bound, grad_out=replace(g, access="out"))


def _walk(
    where: str, scope: Scope, type_: SlangType, bound: Bound, value: Any, active: bool, derivative: str
) -> Bound:
    """Return an argument with gradients at every place that is differentiated."""
    feed = bound.feed
    if isinstance(feed, ConvertedFeed) and not isinstance(value, DiffPair):
        inner = _walk(where, scope, type_, replace(bound, feed=feed.inner), feed.convert(value), active, derivative)
        return _found_by(feed.convert, inner)
    if bound.mode == "parts" and isinstance(feed, PartsFeed):
        inside = _active_fields(scope, type_) if active else None
        parts = []
        for (place, part), item in zip(bound.parts, feed.parts(value), strict=True):
            name = place.strip(".")
            live = active and (inside is None or name in inside) and differentiates(scope, scope.struct(part.type))
            at = f"{where[:-1]}{place}'" if where.endswith("'") else f"{where}{place}"
            parts.append((place, _walk(at, scope, scope.struct(part.type), part, item, live, derivative)))
        return replace(bound, parts=tuple(parts))
    if bound.mode == "tensor":
        return _whole(where, scope, bound, value, derivative)
    if not active or bound.mode == "computed":
        return bound
    if isinstance(value, np.ndarray):
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
        return _apart(bound, type_)
    writes = grads.out is not None and (bound.access != "in" or derivative == "backward")
    into = _gradient(where, scope, bound, type_, value.grad_in, "in") if wants_in and grads.into else None
    # An inout variable with one gradient array: the call reads the gradient of the value after the call, and replaces
    # it by that of the value before.
    access = "accumulate" if derivative == "backward" and not (wants_in and grads.shared) else "out"
    out = _gradient(where, scope, bound, type_, value.grad_out, access) if writes else None
    if out is not None and grads.fresh:
        out = replace(out, fresh=True)
    if into is None and out is None:
        return _apart(bound, type_)
    return _attach(scope, _apart(bound, type_), into, out)


def _attach(scope: Scope, bound: Bound, grad_in: Bound | None, grad_out: Bound | None) -> Bound:
    """Attach gradients to the places of an array; array and gradients have the same parts."""
    if bound.mode == "parts":
        inside = _active_fields(scope, bound.type)
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
    return replace(bound, grad_in=_found(_GRAD_IN, grad_in), grad_out=_found(_GRAD_OUT, grad_out))


def _found(find: Callable[[Any], Any], gradient: Bound | None) -> Bound | None:
    """Return a gradient whose feed takes the argument's value and finds the gradient's array in it."""
    return gradient and replace(gradient, feed=ConvertedFeed(find, gradient.feed, False))


def _found_by(convert: Callable[[Any], Any], bound: Bound) -> Bound:
    """Apply ``convert`` to a value before this argument and its gradients are read from it."""
    grads = [_found(convert, g) for g in (bound.grad_in, bound.grad_out)]
    return replace(
        bound, feed=ConvertedFeed(convert, bound.feed, False), grad_in=grads[0], grad_out=grads[1]
    )  # fmt: skip


def _gradient(where: str, scope: Scope, bound: Bound, type_: SlangType, array: Any, access: str) -> Bound:
    """Bind a gradient, whose dimensions run along the same call dimensions as its argument's."""
    stored = stored_as(where, type_)
    name = f"{bound.name}.grad_{'in' if access == 'in' else 'out'}"
    found = bind_array(f"{where}: gradient", scope.device, name, type_, stored, "in", array)
    return _apart(replace(found, access=access, mapped=bound.mapped), type_)


def _whole(where: str, scope: Scope, bound: Bound, value: Any, derivative: str) -> Bound:
    """Return an array that is passed whole, with its gradients."""
    found = container(bound.type)
    if found is None or not bound.type.name.partition("<")[0].endswith("DiffTensor"):
        return bound
    element, rank, writable = found
    grads = value.layout.grads if isinstance(value, NDBuffer) else None
    if derivative == "forward":
        return _whole_tangents(where, scope, bound, value, element, rank)
    if writable and (grads is None or grads.into is None):
        raise BindError(
            f"{where} is {in_words(value)}; the gradient of what '{bound.type.name}' writes there is missing: "
            "pass it with tensor.with_grads(grad_in=...)."
        )
    if grads is None:
        return bound
    into = _whole_gradient(where, scope, bound, value.grad_in, "seed", element, rank) if writable else None
    out = None
    if grads.out is not None:
        out = _whole_gradient(where, scope, bound, value.grad_out, "accumulate", element, rank)
    return replace(bound, grad_in=_found(_GRAD_IN, into), grad_out=_found(_GRAD_OUT, out))


def _whole_tangents(where: str, scope: Scope, bound: Bound, value: Any, element: SlangType, rank: int) -> Bound:
    """Return an array that is passed whole, with tangents: those read are ``grad_out``, those written ``grad_in``."""
    grads = value.layout.grads if isinstance(value, NDBuffer) else None
    if grads is None:
        return bound
    reads, writes = (bound.type.name.partition("<")[0] != w for w in ("WDiffTensor", "DiffTensor"))
    into = out = None
    if reads and grads.into is not None:
        out = _found(_GRAD_IN, _whole_gradient(where, scope, bound, value.grad_in, "tangent", element, rank))
    if writes and grads.out is not None:
        into = _found(_GRAD_OUT, _whole_gradient(where, scope, bound, value.grad_out, "seed", element, rank))
    return replace(bound, grad_in=into, grad_out=out)


def _whole_gradient(
    where: str, scope: Scope, bound: Bound, array: Any, access: str, element: SlangType, rank: int
) -> Bound:
    name = f"{bound.name}.grad_{'in' if access == 'seed' else 'out'}"
    flat = bind_array(where, scope.device, name, element, stored_as(where, element), "in", array)
    return replace(as_tensor(f"{where}: gradient", flat, bound.type, rank), access=access, mapped=bound.mapped)


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
        number = ConvertedFeed(attrgetter("grad"), ValueFeed(f"{where}: gradient", bound.type, bound.scalar), False)
        into = replace(plain, name=f"{bound.name}.grad_in", mode="value", access="in", feed=number)
    if derivative == "backward" or bound.access != "in":
        adds = derivative == "backward" and not reads
        access = "accumulate" if adds else "out"
        cell = RefFeed(f"{where}: gradient", scope.device, bound.type, access, "grad")
        out = replace(plain, name=f"{bound.name}.grad_out", mode="array", access=access, feed=cell)
    return replace(bound, grad_in=into, grad_out=out)


def _seed(where: str, scope: Scope, param: Param, type_: SlangType, value: Any, how: Map) -> Bound:
    """Bind the gradient of a value that the function writes."""

    def seed(v: Any) -> Any:
        return _gradients_in(where, scope, type_, v)

    bound = bind(where, scope, Param(f"{param.name}.grad_in", type_), seed(value), how)
    seeds = _as_seeds(scope, bound, type_)
    find = _GRAD_IN if isinstance(value, NDBuffer) else seed
    return replace(seeds, feed=ConvertedFeed(find, seeds.feed, False))


def _gradients_in(where: str, scope: Scope, type_: SlangType, value: Any) -> Any:
    """Return the gradient that ``bwds`` reads of a value, or of each of its parts; 0 for fields that have none."""
    if isinstance(value, NDBuffer):
        if value.layout.grads is None or value.layout.grads.into is None:
            raise BindError(f"{where} is {in_words(value)} without a gradient to read; {_HOW_IN}.")
        return _GRAD_IN(value)
    if isinstance(value, DiffPair):
        if value.grad is None:
            raise BindError(f"{where} is {in_words(value)}, whose gradient is missing; {_HOW_IN}.")
        return value.grad
    if isinstance(value, dict) and type_.kind == "struct":
        live, fields = _active_fields(scope, type_) or set(), {f.name: scope.struct(f.type) for f in type_.fields}
        found = {name: _zeros(t) for name, t in fields.items() if name not in live or not differentiates(scope, t)}
        for name, v in value.items():
            if name not in found:
                known = name != "_type" and name in fields
                found[name] = _gradients_in(f"{where}.{name}", scope, fields[name], v) if known else v
        return found
    if isinstance(value, (list, tuple)) and type_.kind == "array" and type_.element is not None:
        item = scope.struct(type_.element)
        return [_gradients_in(f"{where}[{k}]", scope, item, v) for k, v in enumerate(value)]
    raise BindError(f"{where} is {in_words(value)}, which has no gradient to read; {_HOW_IN}.")


def _zeros(type_: SlangType) -> Any:
    """Return zeros as a value of a type, for a field that is not used."""
    if type_.kind == "struct":
        return {f.name: _zeros(f.type) for f in type_.fields}
    stored = storage(type_)
    return np.zeros(stored.dims).tolist() if stored is not None and stored.dims else 0


def _as_seeds(scope: Scope, bound: Bound, type_: SlangType) -> Bound:
    """Return an argument whose places are seeds where Slang differentiates them, and unused elsewhere."""
    bound = _apart(bound, type_)
    if bound.mode == "parts":
        inside = _active_fields(scope, type_)
        parts = []
        for place, part in bound.parts:
            live = inside is None or place.strip(".") in inside
            inner = scope.struct(part.type)
            parts.append((place, _as_seeds(scope, part, inner) if live else _unused(part)))
        assert isinstance(bound.feed, PartsFeed)
        return replace(
            bound, parts=tuple(parts), access="seed", feed=PartsFeed(bound.feed.parts, [p.feed for _, p in parts])
        )
    return replace(bound, access="seed") if differentiates(scope, type_) else _unused(bound)


def _unused(bound: Bound) -> Bound:
    return replace(
        bound, mode="unused", access="out", shape=(), strides=(), feed=NoFeed(), struct=None, parts=(), host=""
    )


def _active_fields(scope: Scope, type_: SlangType) -> set[str] | None:
    """Return the fields of a struct that Slang differentiates; None for a type that is no struct."""
    if type_.kind != "struct":
        return None
    found = scope.source.type(f"{type_.name}.Differential")
    own = {f.name for f in type_.fields}
    names = {f.name for f in found.type.fields} & own if isinstance(found, StructInfo) else set()
    # A Differential that the user wrote may have other field names; Slang then knows which field each is for.
    return names or own - {f.name for f in type_.fields if f.no_diff}


def _apart(bound: Bound, type_: SlangType) -> Bound:
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
            strides=tuple(s // unit for s in bound.strides), feed=FieldFeed(offset),
        )  # fmt: skip
    feeds = [p.feed for _, p in parts]
    n = len(parts)
    return replace(
        bound, type=type_, mode="parts", shape=(), strides=(), scalar="", count=0, struct=None, parts=tuple(parts),
        feed=PartsFeed(lambda v: (v,) * n, feeds),
    )  # fmt: skip
