"""Values of functions and their gradients at once: a call, its sum, and a call of the backward derivative."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.differentials import active_fields, differentiates
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.stand_ins import ask
from slangpy_rt.arguments.wrapped import optional_item, tuple_items
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor, gradient_type, has_floats
from slangpy_rt.calls.callee import Callee
from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words

# What Slang differentiates although it is no ``IDifferentiable``: whole arrays with a gradient beside them.
_WHOLE = ("DiffTensor<", "RWDiffTensor<", "WDiffTensor<", "IDiffTensor<")
_NUMBERS = ("scalar", "vector", "matrix")


class _Place(NamedTuple):
    """One argument: the place of its value, its parameter's name and type, and whether it may have a gradient."""

    place: int
    name: str
    type: SlangType
    live: bool


class _OnHost(NamedTuple):
    """The gradient of a NumPy array, which the caller gets as one."""

    tensor: Tensor


def value_and_grad(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the sum of a call's results, and its gradient by the parameters' names; see ``Function``."""
    callee = Callee(function)
    where = f"{function.name}.value_and_grad"
    if callee.is_derivative:
        raise BindError(f"{where}: derivatives of derivatives are not supported.")
    values, _ = ask((*args, *named.values()))
    names = tuple(named)
    places: tuple[_Place, ...] = callee.planned(values, names, lambda: _places(where, callee, values, names))
    gradients = {}
    given = list(values)
    for place, name, type_, live in places:
        told = f"{where}: argument '{name}'"
        given[place], gradient = _carrying(told, callee.scope, type_, values[place], live)
        if gradient is not None:
            gradients[name] = gradient
    count = len(args)
    result: Any = function(*values[:count], **dict(zip(names, values[count:], strict=True)), _result="tensor")
    one = result.device.once(f"one {result.dtype.name}", lambda: Tensor.ones(result.device, (), result.dtype))
    seed = one.broadcast_to(result.shape)
    function.bwds(
        *given[:count], **dict(zip(names, given[count:], strict=True)), _result=result.with_grads(grad_in=seed)
    )
    total = result.sum() if result.shape else result
    return (total if _has_tensor(values) else total.item()), {n: _read(g) for n, g in gradients.items()}


def _places(where: str, callee: Callee, values: tuple[Any, ...], names: tuple[str, ...]) -> tuple[_Place, ...]:
    """Choose the overload for a call's values, and return what is known of each argument; refuse other functions."""
    found = callee.chosen(values, names)
    sig = found.sig
    callee.check_differentiable(sig, "value_and_grad")
    if sig.returns.kind != "scalar" or not has_floats(sig.returns):
        raise BindError(
            f"{where}: {sig} returns '{sig.returns.name}'; a half, float or double was expected, whose sum is "
            "differentiated. Use bwds for other results."
        )
    written = [p.name for p in sig.params if p.direction != "in"]
    if written:
        raise BindError(f"{where}: {sig} writes to {', '.join(written)}; use bwds for such functions.")
    params = {p.name: p for p in sig.params}
    return tuple([
        _Place(place, b.name, params[b.name].type, not params[b.name].no_diff)
        for b, place in zip(found.bound, found.order, strict=True)
    ])  # fmt: skip


def _carrying(where: str, scope: Scope, type_: SlangType, value: Any, live: bool) -> tuple[Any, Any]:
    """Return an argument that carries a gradient of its own, and that gradient; None for a constant."""
    if isinstance(value, NDBuffer):
        whole = type_.name.startswith(_WHOLE)
        plain: Any = value.detach() if isinstance(value, Tensor) else value
        # Reflection calls whole arrays no_diff, because Slang does not differentiate them itself.
        if not (whole or (live and _differentiates(scope, type_))) or not has_floats(value.dtype):
            return plain, None
        if not isinstance(value, Tensor):
            raise BindError(f"{where} is {in_words(value)}; a Tensor was expected, which can have a gradient.")
        gradient = Tensor.zeros(value.device, value.shape, gradient_type(value.dtype))
        return plain.with_grads(grad_out=gradient), gradient
    if not live or not _differentiates(scope, type_):
        return value, None
    item, items = optional_item(scope, type_), tuple_items(scope, type_)
    if item is not None:
        return (None, None) if value is None else _carrying(where, scope, item, value, live)
    if items and isinstance(value, (list, tuple)) and len(value) == len(items):
        every = [
            _carrying(f"{where}[{k}]", scope, t, v, live) for k, (t, v) in enumerate(zip(items, value, strict=True))
        ]
        return tuple([carried for carried, _ in every]), tuple([gradient for _, gradient in every])
    type_ = scope.struct(type_)
    if isinstance(value, dict) and type_.kind == "struct":
        inside = active_fields(scope, type_) or set()
        fields = {f.name: f.type for f in type_.fields}
        parts = {
            name: _carrying(f"{where}.{name}", scope, fields[name], item, name in inside)
            if name in fields
            else (item, None)
            for name, item in value.items()
        }
        carried = {name: part for name, (part, _) in parts.items()}
        return carried, {name: gradient for name, (_, gradient) in parts.items() if gradient is not None}
    if isinstance(value, np.ndarray) and value.ndim > len(type_.shape) and type_.kind in _NUMBERS:
        tensor = Tensor.from_numpy(scope.device, value, type_)
        gradient = Tensor.zeros(scope.device, tensor.shape, gradient_type(type_))
        return tensor.with_grads(grad_out=gradient), _OnHost(gradient)
    if type_.kind in _NUMBERS and (kind_of(value) in "biuf" or isinstance(value, (list, tuple, np.ndarray))):
        pair = DiffPair(value)
        return pair, pair
    return value, None


def takes_gradients(scope: Scope, param: Param) -> bool:
    """Return whether Slang differentiates what a function does with a parameter."""
    return param.type.name.startswith(_WHOLE) or (not param.no_diff and _differentiates(scope, param.type))


def _differentiates(scope: Scope, type_: SlangType) -> bool:
    return differentiates(scope, scope.struct(type_))


def _read(gradient: Any) -> Any:
    """Return a gradient as the caller gets it."""
    if isinstance(gradient, _OnHost):
        return gradient.tensor.to_numpy()
    if isinstance(gradient, dict):
        return {name: _read(item) for name, item in gradient.items()}
    if isinstance(gradient, tuple):
        return tuple(map(_read, gradient))
    return gradient.grad if isinstance(gradient, DiffPair) else gradient


def _has_tensor(values: Any) -> bool:
    """Tell whether an argument, or a part of one, is an array on the device."""
    return any(
        _has_tensor(v.values())
        if isinstance(v, dict)
        else _has_tensor(v)
        if isinstance(v, tuple)
        else isinstance(v, NDBuffer)
        for v in values
    )
