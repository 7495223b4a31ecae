"""Slang functions in PyTorch's autograd: a call whose arguments require gradients, and its backward pass.

Tensors are used where they lie if the device works there; on others they are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.errors import BindError
from slangpy_rt.interop.torch import (
    AsArray,
    current_stream,
    element_of,
    empty,
    empty_there,
    in_place,
    lies_on,
    tensor_of,
)
from slangpy_rt.tensor import Tensor

if TYPE_CHECKING:
    from slangpy_rt.device import Device
    from slangpy_rt.function import Function
    from slangpy_rt.layout import Layout
    from slangpy_rt.prepared import PreparedCall
    from slangpy_rt.stream import Stream
    from slangpy_rt.types import FunctionSig


class AutogradCall:
    """A call whose arguments require gradients: what a function's calls go through then.

    Its gradients are those that ``function.bwds`` computes. The result is the call's only output.

    Parameters
    ----------
    function : Function
        Without values for uniforms, and on the device's own queue.
    positional, names, uniforms
        How many values come by position, the names of those that come by name, and how many uniforms follow.
    sig : FunctionSig
        Which of its declarations is called.
    """

    def __init__(
        self, function: Function, positional: int, names: tuple[str, ...], uniforms: int, sig: FunctionSig
    ) -> None:
        self._function = function
        self._positional = positional
        self._names = names
        self._given = positional + len(names)
        self._uniforms = uniforms
        self._sig = sig
        self._forward: PreparedCall | None = None
        # By the arguments that get gradients, and how the gradient of the result lies.
        self._backward: dict[Any, Backward] = {}

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run it on arguments of the signature it was made for."""
        return self._applied(None, values)

    def run_on(self, stream: Stream, values: tuple[Any, ...]) -> Any:
        """As ``run``; the gradients are computed on that stream too."""
        return self._applied(stream, values)

    def bound_to(self, values: tuple[Any, ...], stream: Any) -> Any:
        """Refused.

        Raises
        ------
        BindError
            Always: a bound call would not be recorded again.
        """
        raise BindError(f"{self._sig}: bind does not take tensors that require a gradient; pass tensor.detach().")

    @property
    def returns_host_data(self) -> bool:
        """As of a prepared call, which asks for it before it is recorded.

        Raises
        ------
        BindError
            Always: nobody would compute the gradients of a list.
        """
        raise BindError(
            f"{self._sig}: a command list does not take tensors that require a gradient; pass tensor.detach()."
        )

    def forward(self, stream: Stream | None, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> torch.Tensor:
        """Run the function; autograd does not look."""
        call = self._forward
        if call is None:
            function, args, named = self._split(values, uniforms)
            call = self._forward = function._prepared(args, "torch", named)
        every = (*values, *uniforms, "torch")
        out: torch.Tensor = call.run(every) if stream is None else call.run_on(stream, every)
        return out

    def backward(
        self,
        stream: Stream | None,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grad: torch.Tensor,
        wanted: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """The gradients of the values at those places."""
        key = wanted, *AsArray().signature(grad)
        found = self._backward.get(key)
        if found is None:
            function, args, named = self._split(values, uniforms)
            found = self._backward[key] = Backward(function, self._sig, args, named, grad, wanted)
        return found.run(stream, values, uniforms, grad)

    def _split(self, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> tuple[Function, Any, dict[str, Any]]:
        function = self._function._with_values(uniforms) if uniforms else self._function
        return function, values[: self._positional], dict(zip(self._names, values[self._positional :], strict=True))

    def _applied(self, stream: Stream | None, values: tuple[Any, ...]) -> Any:
        end = self._given + self._uniforms
        if any(value is not None for value in values[end:]):
            raise BindError(
                f"{self._sig}: an argument requires a gradient, and autograd does not see what is written to "
                "_result; leave it out, or call within torch.no_grad()."
            )
        return _Apply.apply(self, stream, values[self._given : end], *values[: self._given])  # type: ignore[no-untyped-call]


class _Apply(torch.autograd.Function):
    """A Slang function in torch's graph."""

    @staticmethod
    def forward(
        ctx: Any, call: AutogradCall, stream: Stream | None, uniforms: tuple[Any, ...], *values: Any
    ) -> torch.Tensor:
        ctx.call = call, stream, uniforms
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in values]
        # torch notices if one is written to before the gradient is asked for.
        ctx.save_for_backward(*[v for v in values if isinstance(v, torch.Tensor)])
        return call.forward(stream, values, uniforms)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        call, stream, uniforms = ctx.call
        saved = iter(ctx.saved_tensors)
        values = tuple([next(saved) if v is None else v for v in ctx.others])
        wanted = tuple([k for k, needed in enumerate(ctx.needs_input_grad[3:]) if needed])
        gradients: list[Any] = [None] * (len(values) + 3)
        for k, gradient in zip(wanted, call.backward(stream, values, uniforms, grad, wanted), strict=True):
            gradients[k + 3] = gradient
        return tuple(gradients)


class Backward:
    """The derivative of a call, prepared for tensors that lie as the ones it was made with.

    Gradients come into new memory: written where every element of it gets one value, else added to zeros.

    Parameters
    ----------
    function : Function
        With values for its uniforms.
    sig : FunctionSig
        Which of its declarations is called.
    args, named
        What the call was given.
    grad : torch.Tensor
        The gradient of its result.
    wanted : tuple of int
        Places of the arguments, in their order, that get gradients.
    """

    def __init__(
        self,
        function: Function,
        sig: FunctionSig,
        args: tuple[Any, ...],
        named: dict[str, Any],
        grad: torch.Tensor,
        wanted: Sequence[int],
    ) -> None:
        device = self._device = function.device
        values = (*args, *named.values())
        self._wanted = tuple(wanted)
        self._tensors = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor)]
        self._in_place = all(lies_on(device, t) for t in (grad, *(values[k] for k in self._tensors)))
        # The scalars of a vector lie side by side, and what is copied has no gaps.
        self._dense = not self._in_place or sig.returns.kind != "scalar"
        self._on_gpu = grad.is_cuda
        self._stream = current_stream(grad.device.index) if grad.is_cuda and self._in_place else None
        # What is the same for all: how values, their gradients and the result's gradient lie.
        self._layouts: dict[int, Layout] = {}
        self._gradients: dict[int, Layout] = {}
        self._adds: dict[int, bool] = dict.fromkeys(wanted, True)
        seen, seed, _ = self._arrays(values, grad)
        given = seen[: len(args)], dict(zip(named, seen[len(args) :], strict=True))
        self._call = function.bwds._prepared(tuple(given[0]), seed, given[1])
        self._adds = {k: self._call.adds_to_gradients_of(k) for k in wanted}

    def run(
        self, stream: Stream | None, values: tuple[Any, ...], uniforms: tuple[Any, ...], grad: torch.Tensor
    ) -> list[torch.Tensor]:
        """The gradients of the wanted arguments."""
        device = self._device
        device.check_open()
        seen, seed, gradients = self._arrays(values, grad)
        every = (*seen, *uniforms, seed)
        if stream is not None:
            if self._stream is None:
                self._call.run_on(stream, every)
            else:
                theirs = device.stream(self._stream(grad))
                stream.wait(theirs)
                self._call.run_on(stream, every)
                theirs.wait(stream)
        elif self._stream is None:
            self._call.run(every)
        else:
            self._call.run_with(device.guests(self._stream(grad)).launch, every)
            if device.deterministic:
                # Exact sums are added to the gradients by the device's own queue.
                device.stream(self._stream(grad)).wait(device)
        return [tensor_of(g.numpy()) if isinstance(g, Tensor) else g for g in gradients]

    def _arrays(self, values: tuple[Any, ...], grad: torch.Tensor) -> tuple[list[Any], Tensor, list[Any]]:
        """The values as Tensors with gradients, the result's gradient, and the gradients that were made."""
        if self._dense:
            grad = grad.contiguous()
        seen, made = list(values), []
        for k in self._tensors:
            seen[k] = self._seen(k, values[k])
        for k in self._wanted:
            gradient, array = self._gradient(k, values[k])
            made.append(gradient)
            if self._adds[k]:
                gradient.zero_() if gradient is not array else array.clear()
            seen[k]._grads = None, array
        seed = self._seen(-1, grad)
        assert seed.layout.grads is not None and seed.layout.grads.into is not None
        seed._grads = Tensor.of(seed.layout.grads.into, seed.buffer, seed.address), None
        return seen, seed, made

    def _seen(self, place: int, value: torch.Tensor) -> Tensor:
        """A value as a Tensor, its layout saying that it carries gradients; the result is -1."""
        device, layout = self._device, self._layouts.get(place)
        if layout is not None and self._in_place:
            return Tensor.of(layout, device.guest, value.data_ptr())
        plain = as_tensor(device, value)
        if layout is None:
            layout = plain.layout
            if place < 0:
                layout = plain._carrying(plain, None).layout
            elif place in self._wanted:
                dense = device.layout(Tensor, layout.element, layout.shape)
                self._gradients[place] = dense
                layout = plain._carrying(None, Tensor.of(dense, device.guest, 0), fresh=True).layout
            self._layouts[place] = layout
        return Tensor.of(layout, plain.buffer, plain.address)

    def _gradient(self, place: int, value: torch.Tensor) -> tuple[Any, Tensor]:
        """New memory for a gradient: as it is returned, and as a Tensor."""
        device, layout = self._device, self._gradients[place]
        if not self._in_place:
            array = Tensor(device, layout.element, layout.shape)
            return array, array
        made = (empty_there if self._on_gpu else empty)(device, layout.shape, layout.numpy_dtype)
        return made, Tensor.of(layout, device.guest, made.data_ptr())


def as_tensor(device: Device, value: torch.Tensor) -> Tensor:
    """A tensor as one of a device: its own memory where the device works there, else a copy of host memory.

    Raises
    ------
    BindError
        If it lies on a GPU where the device does not work, or Slang has no such element type.
    """
    if value.is_cuda or lies_on(device, value):
        return in_place(device, value)
    copied: Tensor = Tensor.from_numpy(device, AsArray()(value.detach()), dtype=element_of(value))
    return copied
