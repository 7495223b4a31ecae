"""AutogradCall: a call of a Slang function on PyTorch tensors that require gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slangpy_rt.arguments.live_places import replaced
from slangpy_rt.arguments.vectors import Matrix, Vector
from slangpy_rt.arguments.wrapped import optional_item, tuple_items
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.prepared_calls import MISS
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.interop.backward import Backward
from slangpy_rt.interop.graph import Apply, with_memory
from slangpy_rt.interop.own_node import Pass, direct_apply, own_node, transforms_active
from slangpy_rt.interop.placement import as_tensors
from slangpy_rt.interop.torch_memory import NO_TRANSFORMS, refuse_transforms, same_places, signature

if TYPE_CHECKING:
    from slangpy_rt.arguments.bound import Bound
    from slangpy_rt.arguments.resolve import Candidate
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.calls.function import Function
    from slangpy_rt.calls.prepared import PreparedCall
    from slangpy_rt.core.types import FunctionSig
    from slangpy_rt.runtime.foreign_stream import ForeignStream
    from slangpy_rt.runtime.stream import Stream

# The indices of the arguments that get gradients, whether tensors are like those of a backward pass, and the pass.
Known = tuple[tuple[int, ...], "Callable[..., bool] | None", Backward]


class AutogradCall:
    """A call of a Slang function whose arguments require gradients; it takes a PreparedCall's place.

    Its gradients are those that ``function.bwds`` computes. Its outputs are the result and the tensors passed for
    ``out`` parameters, which become part of the graph.

    Parameters
    ----------
    callee : Callee
        The function without values for uniforms, and on the device's own queue.
    positional, names
        How many values come by position, and the names of those that come by name; uniforms follow.
    sig : FunctionSig
        The declaration that is called.
    outs : tuple of int
        Indices of the values for ``out`` parameters.
    tensors : bool
        Whether all values are tensors.

    Attributes
    ----------
    plain : bool
        Whether all values are tensors, of which none is written.
    """

    def __init__(
        self,
        callee: Callee,
        positional: int,
        names: tuple[str, ...],
        sig: FunctionSig,
        outs: tuple[int, ...],
        tensors: bool,
    ) -> None:
        self._callee = callee
        self._positional = positional
        self._names = names
        self._given = positional + len(names)
        self._uniforms = callee.uniforms
        self._sig = sig
        self.outs = outs
        self.plain = tensors and not outs
        # The names of parameters and then of uniforms, in the order of the values.
        self.labels = (*[p.name for p in sig.params[:positional]], *names, *callee.options.uniforms)
        self.returns = sig.returns.kind != "void"
        self._forward: PreparedCall | None = None
        self._kind: tuple[str, ...] = ()
        # By the arguments that get gradients, and the signatures of all tensors and of the outputs' gradients.
        self._backward: dict[Any, Known] = {}
        self._last: Known | None = None
        self._guarded: Callable[[tuple[Any, ...]], Any] | None = None
        # Of ``_node``: the backward passes last made.
        self._passes: dict[tuple[bool, ...], Pass] = {}
        alone = self.plain and not self._uniforms and not callee.has_result_kind and sig.returns.scalar in _FLOATS
        self._node = (
            own_node(callee.function.name, self._plain_forward, self._plain_backward, self._passes) if alone else None
        )

    guards = True

    def guarded(
        self, values: tuple[Any, ...], failed: Callable[[tuple[Any, ...]], Any] | None
    ) -> Callable[[tuple[Any, ...]], Any] | None:
        """Return a function that runs the call on similar tensors after one check; see ``PointerCall.guarded``."""
        if self._node is None or len(values) != self._given:
            return None
        if self._guarded is None or self._guarded is failed:
            same, count, apply = same_places(values), self._given, direct_apply(self._node)
            grad_enabled = torch.is_grad_enabled

            def run(values: tuple[Any, ...]) -> Any:
                # The check sees which tensors require gradients, and not whether gradients are recorded.
                if len(values) != count or not grad_enabled() or transforms_active():
                    return MISS
                return apply(*values) if same(*values) else MISS  # type: ignore[misc]

            self._guarded = run if same is not None else None
        return self._guarded

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run the call on arguments of the signature it was made for."""
        return self._applied(None, values)

    def run_on(self, stream: Stream, values: tuple[Any, ...]) -> Any:
        """Run the call on a stream; the gradients are computed on that stream too."""
        return self._applied(stream, values)

    def freeze(self, values: tuple[Any, ...], stream: Any) -> Any:
        """Refuse to bind the call to values.

        Raises
        ------
        BindError
            Always: a bound call would not be recorded again.
        """
        raise BindError(f"{self._sig}: bind does not take tensors that require a gradient; pass tensor.detach().")

    # All tensors that the backward pass reads are arguments.
    also = ()

    @property
    def where(self) -> str:
        """The function, for messages."""
        return str(self._sig)

    def written(self, values: tuple[Any, ...]) -> set[int]:
        """Return the indices, among the call's values, of those that it writes."""
        return set(self.outs)

    def outputs(self, values: tuple[Any, ...]) -> list[Any]:
        """Return the tensors that the call writes, as such that are no part of a graph."""
        return [values[k].detach() for k in self.outs if isinstance(values[k], torch.Tensor)]

    def run_apart(self, stream: Stream | None, values: tuple[Any, ...]) -> Any:
        """Run the function on the arguments of a call and leave PyTorch's graph as it is."""
        with torch.no_grad():
            return self.forward(stream, values[: self._given], values[self._given : self._given + self._uniforms])

    @property
    def returns_host_data(self) -> bool:
        """Refuse to be part of a command list, which reads this property before it records a call.

        Raises
        ------
        BindError
            Always: a list has no gradients.
        """
        raise BindError(
            f"{self._sig}: a command list does not take tensors that require a gradient; pass tensor.detach()."
        )

    def forward(self, stream: Stream | None, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> Any:
        """Run the function without autograd; return its outputs, one by itself, several as a tuple."""
        call = self._forward_call(values, uniforms)
        every = (*values, *uniforms, *self._kind)
        out = call.run(every) if stream is None else call.run_on(stream, every)
        if not self.outs:
            return out
        return (*((out,) if self.returns else ()), *[values[k] for k in self.outs])

    def foreign_streams(self, values: tuple[Any, ...]) -> list[ForeignStream]:
        """Return the streams that the function runs on without autograd."""
        given, uniforms = values[: self._given], values[self._given : self._given + self._uniforms]
        with torch.no_grad():
            return self._forward_call(given, uniforms).foreign_streams((*given, *uniforms, *self._kind))

    def backward(
        self,
        stream: Stream | None,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
        wanted: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """Compute the gradients of the values at the indices in ``wanted`` from those of the outputs."""
        return self._backward_pass(values, uniforms, grads, wanted)[2].run(stream, values, uniforms, grads)

    def _backward_pass(
        self,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
        wanted: tuple[int, ...],
    ) -> Known:
        """Find or make the backward pass for such tensors."""
        # Hooks may restore saved tensors in another layout than the call had.
        tensors = [t for t in (*grads, *values) if isinstance(t, torch.Tensor)]
        known = self._last
        if known is None or known[0] != wanted or known[1] is None or not known[1](*tensors):
            key = wanted, *[signature(t) for t in tensors]
            known = self._backward.get(key)
            if known is None:
                args, named = self._split(values)
                callee = self._callee.with_values(uniforms)
                made = Backward(callee, self._sig, args, named, grads, wanted, self.outs)
                known = self._backward[key] = wanted, same_places(tuple(tensors)), made
            self._last = known
        return known

    def _plain_forward(self, values: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Run the function without autograd, if its values are tensors alone; return its result."""
        call = self._forward or self._forward_call(values, ())
        found: torch.Tensor = call.run(values)
        return found

    def _plain_backward(
        self, values: tuple[torch.Tensor, ...], grad: torch.Tensor, needed: tuple[bool, ...]
    ) -> tuple[torch.Tensor | None, ...]:
        """Compute a gradient, or None, for each value from that of the result, and note the pass."""
        grads, wanted = (with_memory(grad),), tuple([k for k, need in enumerate(needed) if need])
        _, same, made = self._backward_pass(values, (), grads, wanted)
        if same is not None and made.direct is not None:
            self._passes[needed] = same, made.direct
        found = iter(made.run(None, values, (), grads))
        return tuple([next(found) if need else None for need in needed])

    def _forward_call(self, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> PreparedCall:
        call = self._forward
        if call is None:
            args, named = self._split(values)
            # A modifier may ask for another kind of result than torch tensors.
            kind = "torch" if self._callee.has_result_kind else None
            self._kind = () if kind is None else (kind,)
            call = self._forward = self._callee.with_values(uniforms).prepared(args, kind, named)
        return call

    def _split(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return values[: self._positional], dict(zip(self._names, values[self._positional :], strict=True))

    def _applied(self, stream: Stream | None, values: tuple[Any, ...]) -> Any:
        end = self._given + self._uniforms
        if any(value is not None for value in values[end:]):
            raise BindError(
                f"{self._sig}: an argument requires a gradient, and autograd does not see what is written to "
                "_result; leave it out, or call within torch.no_grad()."
            )
        if transforms_active():
            raise BindError(f"{self._sig}: {NO_TRANSFORMS}")
        given = values[: self._given]
        for k in self.outs:
            if not isinstance(given[k], torch.Tensor):
                raise BindError(
                    f"{self._sig}: an argument requires a gradient, and what goes to an 'out' parameter then goes to "
                    "a torch tensor; pass one, or call within torch.no_grad()."
                )
            # Autograd refuses it too, but only once the kernel has written to them.
            if given[k]._is_view() and len(self.outs) + self.returns > 1:
                raise BindError(
                    f"{self._sig}: of several outputs none may be a view of a torch tensor; pass tensor.clone(), or "
                    "call within torch.no_grad()."
                )
        if self._node is not None and stream is None:
            return self._node.apply(*given)
        found = Apply.apply(self, stream, values[self._given : end], *given)  # type: ignore[no-untyped-call]
        if not self.outs:
            return found
        return (found if isinstance(found, torch.Tensor) else found[0]) if self.returns else None


_FLOATS = {"half": torch.float16, "float": torch.float32, "double": torch.float64}


def autograd_call(function: Function, args: tuple[Any, ...], names: tuple[str, ...]) -> AutogradCall:
    """Make a call for PyTorch's graph, checked as far as it can be before it runs.

    Parameters
    ----------
    function : Function
        A function without values for uniforms, on the device's own queue.
    args, names
        Values by position and then by name, and the names of the latter.

    Raises
    ------
    BindError
        If the function is not differentiable, or its arguments do not allow it.
    """
    refuse_transforms(function.name, args)
    callee = Callee(function)
    if callee.is_derivative:
        raise BindError(
            f"{function.name}: derivatives take Tensors with_grads, not torch tensors that require a gradient; torch "
            "calls them itself, in tensor.backward()."
        )
    plain = tuple([a.detach() if isinstance(a, torch.Tensor) else a for a in args])
    first = callee.chosen(plain, names)
    try:
        chosen = callee.chosen(as_tensors(function.name, function.device, plain), names)
    except BindError:
        refuse_conversions(first.sig, [plain[k] for k in first.order])
        raise
    callee.check_differentiable(chosen.sig, "an argument that requires a gradient")
    params = chosen.sig.params
    if any(p.direction == "inout" for p in params):
        raise BindError(
            f"{chosen.sig}: of an 'inout' parameter, autograd would need what was there before; return the "
            "result, write it to an 'out' parameter, or call within torch.no_grad()."
        )
    if optional_item(callee.scope, chosen.sig.returns) or tuple_items(callee.scope, chosen.sig.returns):
        raise BindError(
            f"{chosen.sig}: autograd takes no results of type '{chosen.sig.returns.name}'; write to 'out' "
            "parameters, or call within torch.no_grad()."
        )
    refuse_host_arrays(callee.scope, chosen, plain)
    outs = tuple(k for p, k in zip(params, chosen.order, strict=False) if p.direction == "out")
    if chosen.sig.returns.kind == "void" and not outs:
        raise BindError(f"{chosen.sig}: a function without a result has no place in autograd.")
    tensors = all(isinstance(a, torch.Tensor) for a in args)
    return AutogradCall(callee, len(args) - len(names), names, chosen.sig, outs, tensors)


def refuse_host_arrays(scope: Scope, chosen: Candidate, values: Sequence[Any]) -> None:
    """Refuse NumPy arrays where gradients could go, which the derivative would refuse only in the backward pass.

    Raises
    ------
    BindError
        If there is such an array.
    """

    def visit(where: str, bound: Bound, value: Any, live: bool) -> tuple[Any, Any]:
        if (
            live
            and isinstance(value, np.ndarray)
            and bound.access == "in"
            and not isinstance(value, (Vector, Matrix))
        ):
            raise BindError(
                f"{where} is {in_words(value)}, and another argument is a tensor that requires a gradient; pass "
                "torch.from_numpy(array)."
            )
        return value, None

    for param, bound, k in zip(chosen.sig.params, chosen.bound, chosen.order, strict=False):
        replaced(f"{chosen.sig}: argument '{param.name}'", scope, bound, not param.no_diff, values[k], visit)


def refuse_conversions(sig: FunctionSig, values: Sequence[Any]) -> None:
    """Refuse tensors of other dtypes than those of their parameters: gradients have the dtype of the values.

    Parameters
    ----------
    sig : FunctionSig
        The declaration that is called.
    values : sequence
        A value for each of its parameters; the last ones may be left out.

    Raises
    ------
    BindError
        If there is such a tensor.
    """
    for param, value in zip(sig.params, values, strict=False):
        wanted = _FLOATS.get(param.type.scalar)
        if not isinstance(value, torch.Tensor) or wanted is None or param.type.kind == "struct":
            continue
        # Elements of bfloat16 are read as floats, where they lie.
        if value.dtype != wanted and (value.dtype, wanted) != (torch.bfloat16, torch.float32):
            dtype = str(value.dtype).removeprefix("torch.")
            raise BindError(
                f"{sig}: argument '{param.name}' is a torch.Tensor of {dtype} and shape {tuple(value.shape)}; "
                f"'{param.type.name}' was expected, and a call that PyTorch differentiates converts none. Pass "
                f"x.to({wanted}): PyTorch converts its gradient back."
            )
