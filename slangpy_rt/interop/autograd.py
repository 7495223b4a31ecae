"""Slang functions in PyTorch's autograd: a call whose arguments require gradients, and its backward pass.

Tensors lie in host memory. A device that works there uses them in place; for others they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.dtypes import SLANG_OF, scalar_type
from slangpy_rt.errors import BindError
from slangpy_rt.interop.torch import AsArray, described, tensor_of
from slangpy_rt.tensor import Tensor

if TYPE_CHECKING:
    from slangpy_rt.device import Device
    from slangpy_rt.function import Function


# Larger gradients come from the device's pool, whose pages are there already: 3.7 ms instead of 6.7 for 2^22 floats.
_SMALL = 256 << 10


class AutogradCall:
    """A call whose arguments require gradients: what a function's calls go through then.

    Its gradients are those that ``function.bwds`` computes. The result is the call's only output.

    Parameters
    ----------
    function : Function
        Without values for uniforms, and on the device's own queue.
    positional, names, uniforms
        How many values come by position, the names of those that come by name, and how many uniforms follow.
    """

    def __init__(
        self, function: Function, device: Device, positional: int, names: tuple[str, ...], uniforms: int, title: str
    ) -> None:
        self.device = device
        self._function = function
        self._positional = positional
        self._names = names
        self._uniforms = uniforms
        self._title = title

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run it on arguments of the signature it was made for."""
        return self._applied(self._function, values)

    def run_on(self, stream: Any, values: tuple[Any, ...]) -> Any:
        """As ``run``; the gradients are computed on that stream too."""
        return self._applied(self._function.stream(stream), values)

    def bound_to(self, values: tuple[Any, ...], stream: Any) -> Any:
        """Refused.

        Raises
        ------
        BindError
            Always: a bound call would not be recorded again.
        """
        raise BindError(f"{self._title}: bind does not take tensors that require a gradient; pass tensor.detach().")

    @property
    def returns_host_data(self) -> bool:
        """As of a prepared call, which asks for it before it is recorded.

        Raises
        ------
        BindError
            Always: nobody would compute the gradients of a list.
        """
        raise BindError(
            f"{self._title}: a command list does not take tensors that require a gradient; pass tensor.detach()."
        )

    def called(self, function: Any, values: Sequence[Any], **more: Any) -> Any:
        """The function, or its derivative, on values that stand in the order of the call's."""
        named = dict(zip(self._names, values[self._positional :], strict=True))
        return function(*values[: self._positional], **named, **more)

    def _applied(self, function: Any, values: tuple[Any, ...]) -> Any:
        given = self._positional + len(self._names)
        end = given + self._uniforms
        if any(value is not None for value in values[end:]):
            raise BindError(
                f"{self._title}: an argument requires a gradient, and autograd does not see what is written to "
                "_result; leave it out, or call within torch.no_grad()."
            )
        if self._uniforms:
            function = function._with_values(values[given:end])
        return _Apply.apply(self, function, *values[:given])  # type: ignore[no-untyped-call]


class _Apply(torch.autograd.Function):
    """A Slang function in torch's graph."""

    @staticmethod
    def forward(ctx: Any, call: AutogradCall, function: Any, *values: Any) -> torch.Tensor:
        seen = [on_device(call.device, v) if isinstance(v, torch.Tensor) else v for v in values]
        out = call.called(function, seen, _result="tensor")
        ctx.call, ctx.function, ctx.result = call, function, out
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in values]
        ctx.places = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor)]
        # torch notices if one is written to before the gradient is asked for.
        ctx.save_for_backward(*[v for v in values if isinstance(v, torch.Tensor)])
        return on_host(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        call: AutogradCall = ctx.call
        values: list[Any] = list(ctx.others)
        for k, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            values[k] = tensor
        wanted = [k for k in ctx.places if ctx.needs_input_grad[k + 2]]

        def derivative(seen: list[Any], seeded: Any) -> None:
            call.called(ctx.function.bwds, seen, _result=seeded)

        found = _propagated(call.device, derivative, values, grad, wanted, ctx.result)
        gradients: list[Any] = [None] * len(values)
        for k, gradient in zip(wanted, found, strict=True):
            gradients[k] = gradient
        return (None, None, *gradients)


def gradients_of(
    function: Function, args: Sequence[Any], grad: torch.Tensor, places: Sequence[int]
) -> list[torch.Tensor | None]:
    """Gradients of the tensors at those places among the arguments, None of those that are no floats."""
    device = function.device
    wanted = [k for k in places if args[k].is_floating_point()]
    found = iter(_propagated(device, lambda v, r: function.bwds(*v, _result=r), args, grad, wanted, None))
    return [next(found) if k in wanted else None for k in places]


def _propagated(
    device: Device,
    derivative: Callable[[list[Any], Any], None],
    args: Sequence[Any],
    grad: torch.Tensor,
    wanted: Sequence[int],
    result: Tensor | None,
) -> list[torch.Tensor]:
    """The gradients of some arguments: what the derivative adds to zeros.

    ``result`` is what the function returned, where that is known.
    """
    values = [on_device(device, v) if isinstance(v, torch.Tensor) else v for v in args]
    in_place = "zero_copy" in device.caps.features
    sums: list[Any] = []
    for k in wanted:
        if in_place and args[k].nbytes <= _SMALL:
            sums.append(torch.zeros(args[k].shape, dtype=args[k].dtype))
            gradient = on_device(device, sums[-1])
        else:
            gradient = Tensor.zeros(device, values[k].shape, values[k].dtype)
            sums.append(gradient)
        # Not with_grads, whose checks take 5 us: what is made here fits.
        values[k] = values[k]._carrying(None, gradient)
    seed = on_device(device, grad.contiguous())
    if result is None:
        # Its values have no part in a derivative.
        result = Tensor(device, seed.dtype, seed.shape)
    layout = device.layout(Tensor, result.dtype, result.shape)
    derivative(values, result._carrying(Tensor.of(layout, seed.buffer, seed.address), None))
    return [on_host(g) if isinstance(g, Tensor) else g for g in sums]


def on_device(device: Device, value: torch.Tensor) -> Tensor:
    """A host tensor as one of a device: the same memory where the device works in the host's, else a copy.

    Raises
    ------
    BindError
        If Slang has no such element type.
    """
    element = _ELEMENTS.get(value.dtype)
    if element is None:
        raise BindError(f"{described(value)}; Slang has no such element type.")
    if "zero_copy" not in device.caps.features:
        copied: Tensor = Tensor.from_numpy(device, AsArray()(value.detach()), dtype=element)
        return copied
    address = value.data_ptr()
    layout = device.layout(Tensor, element, tuple(value.shape), value.stride(), address % 32 == 0)
    buffer = device.backend.wrap(address, value.nbytes or 1, value)
    assert buffer is not None
    found: Tensor = Tensor.of(layout, buffer, address)
    return found


def on_host(array: Tensor) -> torch.Tensor:
    """A device's array as a host tensor: the same memory where the device works in the host's, else a copy."""
    return tensor_of(array.host_view() if "zero_copy" in array.device.caps.features else array.numpy())


_ELEMENTS = {
    getattr(torch, dtype.name): scalar_type(name) for dtype, name in SLANG_OF.items() if hasattr(torch, dtype.name)
}
