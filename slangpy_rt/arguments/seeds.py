"""Seeds: the gradients of what a function writes, which its backward derivative reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from slangpy_rt.arguments.bind import bind
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.differentials import GRAD_IN, active_fields, apart, differentiates, unused
from slangpy_rt.arguments.mapping import Map
from slangpy_rt.arguments.nested_packers import ConvertedPacker, PartsPacker
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.wrapped import optional_item, tuple_items
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words

_HOW_IN = "pass a Tensor as tensor.with_grads(grad_in=gradient), or diff_pair(None, gradient)"


def bind_seed(where: str, scope: Scope, returns: SlangType, value: Any, how: Map) -> Bound | None:
    """Bind the result's gradient, which ``bwds`` reads; None if Slang does not differentiate the result.

    Raises
    ------
    BindError
        If it is missing, or if one is given for a result that has none.
    UnsupportedError
        If the result is an Optional.
    """
    type_ = scope.struct(returns)
    if optional_item(scope, type_) is not None:
        raise UnsupportedError(f"{where}: it returns '{returns.name}', which has no derivative here; return a value.")
    if returns.kind == "void" or not differentiates(scope, type_):
        if value is not None:
            raise BindError(f"{where}: '{returns.name}' has no gradient to propagate back; leave _result out.")
        return None
    if value is None:
        raise BindError(f"{where}: the gradient of the result is missing; {_HOW_IN}, as _result.")
    return seed_of(f"{where}: _result", scope, Param("_result", returns), type_, value, how)


def seed_of(where: str, scope: Scope, param: Param, type_: SlangType, value: Any, how: Map) -> Bound:
    """Bind the gradient of a value that the function writes."""

    def seed(v: Any) -> Any:
        return _gradients_in(where, scope, type_, v)

    bound = bind(where, scope, Param(f"{param.name}.grad_in", type_), seed(value), how)
    seeds = _as_seeds(scope, bound, type_)
    find = GRAD_IN if isinstance(value, NDBuffer) else seed
    return replace(seeds, packer=ConvertedPacker(find, seeds.packer, False))


def _gradients_in(where: str, scope: Scope, type_: SlangType, value: Any) -> Any:
    """Return the gradient that ``bwds`` reads of a value, or of each of its parts; 0 for fields that have none."""
    if isinstance(value, NDBuffer):
        if value.layout.grads is None or value.layout.grads.into is None:
            raise BindError(f"{where} is {in_words(value)} without a gradient to read; {_HOW_IN}.")
        return GRAD_IN(value)
    if isinstance(value, DiffPair):
        if value.grad is None:
            raise BindError(f"{where} is {in_words(value)}, whose gradient is missing; {_HOW_IN}.")
        return value.grad
    if isinstance(value, dict) and type_.kind == "struct":
        live, fields = active_fields(scope, type_) or set(), {f.name: scope.struct(f.type) for f in type_.fields}
        found = {name: _zeros(t) for name, t in fields.items() if name not in live or not differentiates(scope, t)}
        for name, v in value.items():
            if name not in found:
                known = name != "_type" and name in fields
                found[name] = _gradients_in(f"{where}.{name}", scope, fields[name], v) if known else v
        return found
    if isinstance(value, (list, tuple)) and type_.kind == "array" and type_.element is not None:
        item = scope.struct(type_.element)
        return [_gradients_in(f"{where}[{k}]", scope, item, v) for k, v in enumerate(value)]
    items = tuple_items(scope, type_)
    if isinstance(value, (list, tuple)) and len(items) == len(value):
        return [
            _gradients_in(f"{where}[{k}]", scope, scope.struct(t), v)
            for k, (t, v) in enumerate(zip(items, value, strict=True))
        ]
    raise BindError(f"{where} is {in_words(value)}, which has no gradient to read; {_HOW_IN}.")


def _zeros(type_: SlangType) -> Any:
    """Return zeros as a value of a type, for a field that is not used."""
    if type_.kind == "struct":
        return {f.name: _zeros(f.type) for f in type_.fields}
    stored = storage(type_)
    return np.zeros(stored.dims).tolist() if stored is not None and stored.dims else 0


def _as_seeds(scope: Scope, bound: Bound, type_: SlangType) -> Bound:
    """Return an argument whose places are seeds where Slang differentiates them, and unused elsewhere."""
    bound = apart(bound, type_)
    if bound.mode == "parts":
        inside = active_fields(scope, type_)
        parts = []
        for place, part in bound.parts:
            live = inside is None or place.strip(".") in inside
            inner = scope.struct(part.type)
            parts.append((place, _as_seeds(scope, part, inner) if live else unused(part)))
        assert isinstance(bound.packer, PartsPacker)
        packer = PartsPacker(bound.packer.parts, [p.packer for _, p in parts])
        return replace(bound, parts=tuple(parts), access="seed", packer=packer)
    return replace(bound, access="seed") if differentiates(scope, type_) else unused(bound)
