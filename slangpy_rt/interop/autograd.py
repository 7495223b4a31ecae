"""Slang functions in PyTorch's autograd: a call whose arguments require gradients, and its backward pass.

Tensors are used where they lie if the device works there; on others they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.dtypes import BFLOAT16, scalar_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.interop.torch import (
    AsArray,
    current_stream,
    in_place,
    lies_on,
    maker,
    placed,
    tensor_of,
)
from slangpy_rt.interop.torch_types import element_of
from slangpy_rt.runtime.foreign_stream import foreign_stream

if TYPE_CHECKING:
    from slangpy_rt.arrays.layout import Layout
    from slangpy_rt.calls.function import Function
    from slangpy_rt.calls.prepared import PreparedCall
    from slangpy_rt.core.types import FunctionSig
    from slangpy_rt.runtime.core import DeviceCore
    from slangpy_rt.runtime.stream import Stream


class AutogradCall:
    """A call whose arguments require gradients: what a function's calls go through then.

    Its gradients are those that ``function.bwds`` computes. Its outputs are the result and what goes to ``out``
    parameters, where the tensors that were passed become part of the graph.

    Parameters
    ----------
    function : Function
        Without values for uniforms, and on the device's own queue.
    positional, names, uniforms
        How many values come by position, the names of those that come by name, and how many uniforms follow.
    sig : FunctionSig
        Which of its declarations is called.
    outs : tuple of int
        Places of the values for ``out`` parameters.
    """

    def __init__(
        self,
        function: Function,
        positional: int,
        names: tuple[str, ...],
        uniforms: int,
        sig: FunctionSig,
        outs: tuple[int, ...],
    ) -> None:
        self._function = function
        self._positional = positional
        self._names = names
        self._given = positional + len(names)
        self._uniforms = uniforms
        self._sig = sig
        self.outs = outs
        self.returns = sig.returns.kind != "void"
        self._forward: PreparedCall | None = None
        self._kind: tuple[str, ...] = ()
        # By the arguments that get gradients, and how the gradient of the result lies.
        self._backward: dict[Any, Backward] = {}

    # Which calls it serves, the gradients that are asked for say too.
    pointers = False

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

    def forward(self, stream: Stream | None, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> Any:
        """Run the function; autograd does not look. Returns its outputs, one by itself."""
        call = self._forward
        if call is None:
            function, args, named = self._split(values, uniforms)
            # What a modifier says the result shall be is no tensor.
            kind = None if function._options.returns is None else "torch"
            self._kind = () if kind is None else (kind,)
            call = self._forward = function._prepared(args, kind, named)
        every = (*values, *uniforms, *self._kind)
        out = call.run(every) if stream is None else call.run_on(stream, every)
        if not self.outs:
            return out
        return (*((out,) if self.returns else ()), *[values[k] for k in self.outs])

    def backward(
        self,
        stream: Stream | None,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
        wanted: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """The gradients of the values at those places, from those of the outputs."""
        # Hooks may bring saved tensors back in another layout than the call had.
        key = wanted, *[_SIGN(t) for t in (*grads, *values) if isinstance(t, torch.Tensor)]
        found = self._backward.get(key)
        if found is None:
            function, args, named = self._split(values, uniforms)
            found = self._backward[key] = Backward(
                function, self._sig, args, named, grads, wanted, self.outs
            )  # fmt: skip
        return found.run(stream, values, uniforms, grads)

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
        given = values[: self._given]
        for k in self.outs:
            if not isinstance(given[k], torch.Tensor):
                raise BindError(
                    f"{self._sig}: an argument requires a gradient, and what goes to an 'out' parameter then goes to "
                    "a torch tensor; pass one, or call within torch.no_grad()."
                )
            # What autograd itself would say once they are written.
            if given[k]._is_view() and len(self.outs) + self.returns > 1:
                raise BindError(
                    f"{self._sig}: of several outputs none may be a view of a torch tensor; pass tensor.clone(), or "
                    "call within torch.no_grad()."
                )
        found = _Apply.apply(self, stream, values[self._given : end], *given)  # type: ignore[no-untyped-call]
        if not self.outs:
            return found
        return (found if isinstance(found, torch.Tensor) else found[0]) if self.returns else None


_SIGN = AsArray().signature
# Stands for what a call writes to, of which the backward pass needs nothing.
_WRITTEN: Any = object()


class _Apply(torch.autograd.Function):
    """A Slang function in torch's graph."""

    @staticmethod
    def forward(ctx: Any, call: AutogradCall, stream: Stream | None, uniforms: tuple[Any, ...], *values: Any) -> Any:
        ctx.call = call, stream, uniforms
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in values]
        for k in call.outs:
            ctx.others[k] = _WRITTEN
        # torch notices if one is written to before the gradient is asked for.
        ctx.save_for_backward(*[v for v, o in zip(values, ctx.others, strict=True) if o is None])
        found = call.forward(stream, values, uniforms)
        if call.outs:
            ctx.mark_dirty(*[values[k] for k in call.outs])
        whole = [t for t in (found if call.outs else (found,)) if not t.is_floating_point()]
        if whole:
            ctx.mark_non_differentiable(*whole)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        if not torch.is_grad_enabled():
            return _backward(ctx, grads)
        # A graph of the backward pass is made: whoever comes back to here is told. torch's once_differentiable looks
        # at ``grad`` alone, and would let gradients pass for constants that depend on the saved tensors.
        with torch.no_grad():
            found = _backward(ctx, grads)
        return tuple([None if g is None else _Once.apply(g, *grads, *ctx.saved_tensors) for g in found])  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """A gradient that depends on others, and that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise RuntimeError(
            "Slang functions have no second derivatives; this gradient depends on one's backward pass."
        )


def _backward(ctx: Any, grads: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    call, stream, uniforms = ctx.call
    saved = iter(ctx.saved_tensors)
    values = tuple([next(saved) if v is None else v for v in ctx.others])
    wanted = tuple([k for k, needed in enumerate(ctx.needs_input_grad[3:]) if needed])
    grads = tuple([grad.resolve_neg() for grad in grads])
    gradients: list[Any] = [None] * (len(values) + 3)
    for k, gradient in zip(wanted, call.backward(stream, values, uniforms, grads, wanted), strict=True):
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
    grads : tuple of torch.Tensor
        The gradients of its outputs: the result, if there is one, and ``out`` parameters.
    wanted, outs : sequence of int
        Places of the arguments, in their order, that get gradients, and of those for ``out`` parameters.
    """

    def __init__(
        self,
        function: Function,
        sig: FunctionSig,
        args: tuple[Any, ...],
        named: dict[str, Any],
        grads: tuple[torch.Tensor, ...],
        wanted: Sequence[int],
        outs: Sequence[int] = (),
    ) -> None:
        device = self._device = function.device
        values = (*args, *named.values())
        self._wanted = tuple(wanted)
        check_places(sig.name, (*grads, *values))
        # Where the gradients of outputs belong, None of whole numbers; the result is at -1.
        places = (*((-1,) if sig.returns.kind != "void" else ()), *outs)
        self._seeds = tuple(p if g.is_floating_point() else None for p, g in zip(places, grads, strict=True))
        self._tensors = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and k not in outs]
        self._in_place = all(lies_on(device, t) for t in (*grads, *(values[k] for k in self._tensors)))
        # The scalars of a vector lie side by side, and what is copied has no gaps.
        written = (sig.returns, *[p.type for p in sig.params if p.direction == "out"])
        self._dense = not self._in_place or any(t.kind not in ("scalar", "void") for t in written)
        self._on_gpu = grads[0].is_cuda
        self._stream = current_stream(grads[0].device.index) if self._on_gpu and self._in_place else None
        # What is the same for all: how values, their gradients and the result's gradient lie.
        self._layouts: dict[int, Layout] = {}
        self._gradients: dict[int, Layout] = {}
        self._makers: dict[int, Callable[[], torch.Tensor]] = {}
        self._adds: dict[int, bool] = dict.fromkeys(wanted, True)
        seen, result, _, _ = self._arrays(values, grads)
        given = tuple(seen[: len(args)]), dict(zip(named, seen[len(args) :], strict=True))
        self._call = function.bwds._prepared(given[0], result, given[1])
        self._adds = {k: self._call.adds_to_gradients_of(k) for k in wanted}
        # Uniforms may be values of the host, which a trial could not tell.
        self._sources = self._find_sources(values, grads) if self._in_place and not function._values else None

    def run(
        self,
        stream: Stream | None,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
    ) -> list[torch.Tensor]:
        """The gradients of the wanted arguments."""
        device = self._device
        device.check_open()
        if self._sources is not None and stream is None:
            return self._run_in_place(values, grads)
        seen, result, gradients, _kept = self._arrays(values, grads)
        every = (*seen, *uniforms, *(() if result is None else (result,)))
        if stream is not None:
            if self._stream is None:
                self._call.run_on(stream, every)
            else:
                theirs = foreign_stream(device, self._stream(grads)).stream()
                stream.wait(theirs)
                self._call.run_on(stream, every)
                theirs.wait(stream)
        elif self._stream is None:
            self._call.run(every)
        else:
            self._call.run_with(foreign_stream(device, self._stream(grads)).launch, every)
            if device.deterministic:
                # Exact sums are added to the gradients by the device's own queue.
                foreign_stream(device, self._stream(grads)).stream().wait(device)
        return [self._brought(g) if isinstance(g, Tensor) else g for g in gradients]

    def _find_sources(self, values: tuple[Any, ...], grads: tuple[torch.Tensor, ...]) -> tuple[int, ...] | None:
        """Which of values, gradients of outputs and new gradients each address of the block is, by a trial.

        None if the block holds anything else.
        """
        many = len(values)
        places = range(1, 1 + many + len(grads) + len(self._wanted))
        seen: list[Any] = [None] * many
        for k in self._tensors:
            seen[k] = Tensor.of(self._layouts[k], self._device.guest, places[k])
        if None in [s for k, s in enumerate(seen) if k not in self._seeds]:
            return None
        for n, k in enumerate(self._wanted, many + len(grads)):
            seen[k]._grads = None, Tensor.of(self._gradients[k], self._device.guest, places[n])
        result: tuple[Tensor, ...] = ()
        for n, place in enumerate(self._seeds, many):
            if place is None:
                continue
            layout = self._layouts[place]
            assert layout.grads is not None and layout.grads.into is not None
            seed = Tensor.of(layout, self._device.guest, places[n])
            seed._grads = Tensor.of(layout.grads.into, self._device.guest, places[n]), None
            if place < 0:
                result = (seed,)
            else:
                seen[place] = seed
        block = self._call.addresses((*seen, *result))
        return None if block is None else tuple(places.index(address) for address in block)

    def _run_in_place(self, values: tuple[Any, ...], grads: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """As ``run``, where the block is nothing but addresses of tensors."""
        device = self._device
        assert self._sources is not None
        if self._dense:
            grads = tuple([grad.contiguous() for grad in grads])
        made = [self._makers[k]() for k in self._wanted]
        for k, gradient in zip(self._wanted, made, strict=True):
            if self._adds[k]:
                gradient.zero_()
        launch = device.launch if self._stream is None else foreign_stream(device, self._stream(grads)).direct
        every = (*values, *grads, *made)
        self._call.launch_at(launch, [every[k].data_ptr() for k in self._sources])
        return made

    def _brought(self, array: Tensor) -> torch.Tensor:
        """A gradient from where the device works to where the tensors lie."""
        if not self._on_gpu:
            return tensor_of(array.numpy())
        out = maker(self._device, array.shape, array.layout.numpy_dtype, True)()
        from slangpy_rt.interop.bridge import bridge_on

        bridge_on(self._device).fetch(array, out)
        return out

    def _arrays(
        self, values: tuple[Any, ...], grads: tuple[torch.Tensor, ...]
    ) -> tuple[list[Any], Tensor | None, list[Any], Any]:
        """The values as Tensors with gradients, the result, the gradients that were made, and what has to be kept."""
        if self._dense:
            grads = tuple([grad.contiguous() for grad in grads])
        seen, made = list(values), []
        for k in self._tensors:
            seen[k] = self._seen(k, values[k])
        for k in self._wanted:
            gradient, array = self._gradient(k, values[k])
            made.append(gradient)
            if self._adds[k]:
                gradient.zero_() if gradient is not array else array.clear()
            seen[k]._grads = None, array
        result = None
        for place, grad in zip(self._seeds, grads, strict=True):
            if place is None:
                continue
            seed = self._seen(place, grad)
            assert seed.layout.grads is not None and seed.layout.grads.into is not None
            seed._grads = Tensor.of(seed.layout.grads.into, seed.buffer, seed.address), None
            if place < 0:
                result = seed
            else:
                seen[place] = seed
        return seen, result, made, grads

    def _seen(self, place: int, value: torch.Tensor) -> Tensor:
        """A value as a Tensor whose layout says that it carries gradients; of an output, its gradient."""
        device, layout = self._device, self._layouts.get(place)
        if layout is not None and self._in_place:
            return Tensor.of(layout, device.guest, value.data_ptr())
        plain = as_tensor(device, value)
        if layout is None:
            layout = plain.layout
            if place in self._seeds:
                layout = plain._carrying(plain, None).layout
            elif place in self._wanted:
                # What is read as floats has gradients of floats, which torch rounds.
                element = scalar_type("float") if layout.element is BFLOAT16 else layout.element
                dense = layout_of(device, Tensor, element, layout.shape)
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
        make = self._makers.get(place)
        if make is None:
            make = self._makers[place] = maker(device, layout.shape, layout.numpy_dtype, self._on_gpu)
        made = make()
        return made, Tensor.of(layout, device.guest, made.data_ptr())


def check_places(where: str, values: Sequence[Any]) -> None:
    """Refuse tensors of which some lie in host memory and others on a GPU.

    Raises
    ------
    BindError
        Then.
    """
    places = list(dict.fromkeys(str(v.device) for v in values if isinstance(v, torch.Tensor)))
    if len(places) > 1:
        raise BindError(
            f"{where}: torch tensors have to lie in one place for a gradient, not on {', '.join(places)}; move them."
        )


def as_tensors(where: str, device: DeviceCore, values: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as the backward pass sees them: tensors of PyTorch as Tensors, not converted.

    Raises
    ------
    BindError
        If some tensors lie in host memory and others on a GPU, or as ``as_tensor``.
    """
    check_places(where, values)
    return tuple([as_tensor(device, v) if isinstance(v, torch.Tensor) else v for v in values])


def as_tensor(device: DeviceCore, value: torch.Tensor) -> Tensor:
    """A tensor as one of a device: its own memory where the device works there, else a copy of host memory.

    Raises
    ------
    BindError
        If it lies on a GPU where the device does not work, or Slang has no such element type.
    """
    if value.is_cuda:
        return placed(device, value)
    if lies_on(device, value):
        return in_place(device, value)
    if value.dtype == torch.bfloat16:
        value = value.float()
    copied: Tensor = Tensor.from_numpy(device, AsArray()(value.detach()), dtype=element_of(value))
    return copied
