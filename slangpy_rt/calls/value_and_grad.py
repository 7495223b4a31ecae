"""Values of functions and their gradients at once: a call, its sum, and a call of the backward derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.live_places import Visit, replaced, writes_whole
from slangpy_rt.arguments.stand_ins import ask
from slangpy_rt.arrays.differentiable import DiffPair, NDDifferentiableBuffer
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor, gradient_type, has_floats
from slangpy_rt.calls.callee import Callee
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.wording import in_words

if TYPE_CHECKING:
    from slangpy_rt.core.types import SlangType
    from slangpy_rt.runtime.core import DeviceCore


class _Place(NamedTuple):
    """One argument: the place of its value, its parameter's name, how it is bound, and whether it is not no_diff."""

    place: int
    name: str
    bound: Bound
    live: bool


class _OnHost(NamedTuple):
    """The gradient of host data, which the caller gets as an array of NumPy or of another library."""

    tensor: Tensor
    adapter: Adapter | None


class _Sum(NamedTuple):
    """The gradients of a vector that was given as one number, whose gradient is their sum."""

    pair: DiffPair


def value_and_grad(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the sum of a call's results, and its gradient by the parameters' names; see ``Function``."""
    callee = Callee(function)
    where = f"{function.name}.value_and_grad"
    if callee.is_derivative:
        raise BindError(f"{where}: derivatives of derivatives are not supported.")
    values, asked = ask((*args, *named.values()))
    names = tuple(named)
    places: tuple[_Place, ...] = callee.planned(values, names, lambda: _places(where, callee, values, names))
    gradients: dict[str, tuple[Any, Any]] = {}
    given = list(values)
    visit = _giving(callee.scope.device)
    for place, name, bound, live in places:
        told = f"{where}: argument '{name}'"
        given[place], gradient = replaced(told, callee.scope, bound, live, values[place], visit)
        if gradient is not None:
            gradients[name] = gradient, values[place]
    count = len(args)
    result: Any = function(*values[:count], **dict(zip(names, values[count:], strict=True)), _result="tensor")
    one = result.device.once(f"one {result.dtype.name}", lambda: Tensor.ones(result.device, (), result.dtype))
    seed = one.broadcast_to(result.shape)
    function.bwds(
        *given[:count], **dict(zip(names, given[count:], strict=True)), _result=result.with_grads(grad_in=seed)
    )
    total = result.sum() if result.shape else result
    owners = {id(a.meant): a.value for a in asked if hasattr(a.value, "gradient_of_this")}
    found = {name: _read(gradient, value, owners) for name, (gradient, value) in gradients.items()}
    return (total if _has_tensor(values) else total.item()), found


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
    written = [
        p.name for p, b in zip(sig.params, found.bound, strict=False) if p.direction != "in" or writes_whole(b)
    ]
    if written:
        raise BindError(f"{where}: {sig} writes to {', '.join(written)}; use bwds for such functions.")
    params = {p.name: p for p in sig.params}
    return tuple([
        _Place(place, b.name, b, not params[b.name].no_diff)
        for b, place in zip(found.bound, found.order, strict=True)
    ])  # fmt: skip


def _giving(device: DeviceCore) -> Visit:
    """Return the function that gives a place of an argument a gradient of its own; constants stay as they are."""

    def visit(where: str, bound: Bound, value: Any, live: bool) -> tuple[Any, Any]:
        if isinstance(value, NDBuffer):
            plain = without_gradients(value)
            if not live or not has_floats(value.dtype):
                return plain, None
            if not isinstance(value, Tensor):
                raise BindError(f"{where} is {in_words(value)}; a Tensor was expected, which can have a gradient.")
            gradient = Tensor.zeros(device, value.shape, gradient_type(value.dtype))
            return plain.with_grads(grad_out=gradient), gradient
        if not live or bound.mode not in ("value", "array", "tensor"):
            return value, None
        adapter = converter(type(value))
        if isinstance(adapter, Adapter):
            found = adapter.on(device, value)
            if isinstance(found, NDBuffer):
                raise BindError(
                    f"{where} is {in_words(value)}; a Tensor was expected, which can have a gradient: "
                    "Tensor.from_dlpack(device, array)."
                )
            return _of_host_data(device, bound, found, adapter if adapter.takes_results else None)
        return _of_host_data(device, bound, value, None)

    return visit


def _of_host_data(device: DeviceCore, bound: Bound, value: Any, adapter: Adapter | None) -> tuple[Any, Any]:
    """Return numbers of the host that carry a gradient, and the gradient."""
    value = value.value if isinstance(value, DiffPair) else value
    if not bound.shape and bound.mode != "tensor" and not bound.struct:
        count = 1 if np.ndim(value) or bound.count == 1 else bound.count
        if count == 1:
            pair = DiffPair(value)
            return pair, pair
        # One number for all numbers of a vector.
        pair = DiffPair(np.full(bound.type.shape, value).tolist())
        return pair, _Sum(pair)
    tensor = Tensor.from_numpy(device, value, dtype=_element_of(bound))
    gradient = Tensor.zeros(device, tensor.shape, gradient_type(tensor.dtype))
    return tensor.with_grads(grad_out=gradient), _OnHost(gradient, adapter)


def _element_of(bound: Bound) -> SlangType:
    """Return the type of the elements of an argument's array."""
    found = container(bound.type)
    return bound.struct or (bound.type if found is None else found[0])


def without_gradients(value: NDBuffer) -> Any:
    """Return an array without the gradients that it carries."""
    if isinstance(value, Tensor):
        return value.detach()
    return value.primal if isinstance(value, NDDifferentiableBuffer) else value


def _read(gradient: Any, value: Any, owners: dict[int, Any]) -> Any:
    """Return the gradient of a value as the caller gets it: from the stand-in, if the value is one's."""
    found: Any
    if isinstance(gradient, _OnHost):
        found = gradient.tensor.to_numpy()
        if gradient.adapter is not None:
            adapter, device = gradient.adapter, gradient.tensor.device
            made = adapter.result_maker(device, found.shape, found.dtype, "torch")()
            adapter(made)[...] = found
            return made
        return found
    if isinstance(gradient, _Sum):
        return float(np.sum(gradient.pair.grad))
    if isinstance(gradient, dict):
        fields = fields_of(value) or {}
        found = {name: _read(item, fields.get(name), owners) for name, item in gradient.items()}
        owner = owners.get(id(value))
        return found if owner is None else owner.gradient_of_this(found)
    if isinstance(gradient, (list, tuple)):
        return type(gradient)([_read(g, v, owners) for g, v in zip(gradient, value, strict=True)])
    return gradient.grad if isinstance(gradient, DiffPair) else gradient


def _has_tensor(value: Any) -> bool:
    """Return whether a value, or a part of it, is an array on the device."""
    if isinstance(value, NDBuffer):
        return True
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    fields = fields_of(value)
    return fields is not None and any(map(_has_tensor, fields.values()))
