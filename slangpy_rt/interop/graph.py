"""Slang functions in PyTorch's autograd graph, as ``torch.autograd.Function``. They have first derivatives only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from slangpy_rt.arguments.kept import copied
from slangpy_rt.arguments.stand_ins import PLAIN
from slangpy_rt.interop.unchanged import Unchanged

NO_SECOND = "Slang functions have no second derivatives; this gradient depends on one's backward pass."
# Replaces a tensor that a call writes to, which the backward pass does not need.
_WRITTEN: Any = object()
# Replaces a tensor that PyTorch keeps.
_OF_TORCH: Any = object()
_WITHOUT_MEMORY = PLAIN | {object}


class Apply(torch.autograd.Function):
    """A Slang function in torch's graph: the first three of its inputs are an AutogradCall, a stream and uniforms."""

    @staticmethod
    def forward(ctx: Any, call: Any, stream: Any, uniforms: tuple[Any, ...], *values: Any) -> Any:
        ctx.call = call, stream, uniforms
        if call.plain and not uniforms:
            ctx.others = None
            ctx.save_for_backward(*values)
            found = call.forward(stream, values, uniforms)
            if not found.is_floating_point():
                ctx.mark_non_differentiable(found)
            return found
        ctx.others = [_OF_TORCH if isinstance(v, torch.Tensor) else copied(v) for v in values]
        kept = tuple(map(copied, uniforms))
        ctx.call = call, stream, kept
        for k in call.outs:
            ctx.others[k] = _WRITTEN
        # torch raises an error if one of them is written to before the backward pass.
        also = [v for _, v in call.also if isinstance(v, torch.Tensor)]
        ctx.save_for_backward(*[v for v, o in zip(values, ctx.others, strict=True) if o is _OF_TORCH], *also)
        found = call.forward(stream, values, uniforms)
        others = zip(call.labels, (*ctx.others, *kept), strict=True)
        held = [(name, v) for name, v in (*others, *call.also) if type(v) not in _WITHOUT_MEMORY]
        ctx.unchanged = Unchanged(call.where, held) if held else None
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
        with torch.no_grad():
            found = _backward(ctx, grads)
        return once(found, (*grads, *ctx.saved_tensors))


def once(gradients: tuple[Any, ...], sources: Iterable[torch.Tensor | None]) -> tuple[Any, ...]:
    """Return gradients that torch cannot differentiate again: with ``create_graph=True`` it would try to.

    torch's own ``once_differentiable`` checks the gradients of results alone: it would treat gradients as constants
    in the inputs.

    Parameters
    ----------
    gradients : tuple of (torch.Tensor or None)
        What a backward pass has found.
    sources : iterable of (torch.Tensor or None)
        The tensors that they depend on.
    """
    given = [source for source in sources if source is not None]
    return tuple([None if g is None else _Once.apply(g, *given) for g in gradients])  # type: ignore[no-untyped-call]


def with_memory(gradient: torch.Tensor) -> torch.Tensor:
    """Return a gradient whose memory holds its values: PyTorch also passes negated ones, and zeros without memory."""
    return gradient.clone() if gradient._is_zerotensor() else gradient.resolve_neg()


class _Once(torch.autograd.Function):
    """A gradient that depends on others, and that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise RuntimeError(NO_SECOND)


def _backward(ctx: Any, grads: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    call, stream, uniforms = ctx.call
    values = ctx.saved_tensors
    if ctx.others is not None:
        if ctx.unchanged is not None:
            ctx.unchanged.check()
        saved = iter(values)
        values = tuple([next(saved) if v is _OF_TORCH else v for v in ctx.others])
    wanted = tuple([k for k, needed in enumerate(ctx.needs_input_grad[3:]) if needed])
    grads = tuple([with_memory(grad) for grad in grads])
    gradients: list[Any] = [None] * (len(values) + 3)
    for k, gradient in zip(wanted, call.backward(stream, values, uniforms, grads, wanted), strict=True):
        gradients[k + 3] = gradient
    return tuple(gradients)
