"""Gradients of arrays that a function takes whole, as a ``DiffTensor``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slangpy_rt.arguments.bind_array import as_tensor, bind_array, stored_as
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.differentials import GRAD_IN, GRAD_OUT, gradient_found
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words


def whole(where: str, scope: Scope, bound: Bound, value: Any, derivative: str) -> Bound:
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
    return replace(bound, grad_in=gradient_found(GRAD_IN, into), grad_out=gradient_found(GRAD_OUT, out))


def _whole_tangents(where: str, scope: Scope, bound: Bound, value: Any, element: SlangType, rank: int) -> Bound:
    """Return an array that is passed whole, with tangents: those read are ``grad_out``, those written ``grad_in``."""
    grads = value.layout.grads if isinstance(value, NDBuffer) else None
    if grads is None:
        return bound
    reads, writes = (bound.type.name.partition("<")[0] != w for w in ("WDiffTensor", "DiffTensor"))
    into = out = None
    if reads and grads.into is not None:
        out = gradient_found(GRAD_IN, _whole_gradient(where, scope, bound, value.grad_in, "tangent", element, rank))
    if writes and grads.out is not None:
        into = gradient_found(GRAD_OUT, _whole_gradient(where, scope, bound, value.grad_out, "seed", element, rank))
    return replace(bound, grad_in=into, grad_out=out)


def _whole_gradient(
    where: str, scope: Scope, bound: Bound, array: Any, access: str, element: SlangType, rank: int
) -> Bound:
    name = f"{bound.name}.grad_{'in' if access == 'seed' else 'out'}"
    flat = bind_array(where, scope.device, name, element, stored_as(where, element), "in", array)
    return replace(as_tensor(f"{where}: gradient", flat, bound.type, rank), access=access, mapped=bound.mapped)
