"""KernelGradients: the node of PyTorch's graph for one call of a KernelFunction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from slangpy_rt.slangtorch.kernel_function import KernelFunction


class KernelGradients(torch.autograd.Function):
    """A call of a kernel, whose gradients its backward derivative finds.

    PyTorch sees the tensors of the inputs that are pairs in Slang; others have no gradient.
    """

    @staticmethod
    def forward(ctx: Any, function: KernelFunction, given: dict[str, Any], *leaves: torch.Tensor) -> Any:
        made, ctx.sizes = function.run(given)
        ctx.function = function
        # PyTorch keeps the tensors themselves, and sees whether they were changed since.
        ctx.given = function.with_leaves(given, [_SAVED] * len(leaves))
        ctx.save_for_backward(*leaves, *made)
        ctx.set_materialize_grads(False)
        if not all(function.pairs_out):
            ctx.mark_non_differentiable(
                *[value for value, pair in zip(made, function.pairs_out, strict=True) if not pair]
            )
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        # PyTorch's wrapper refuses gradients of gradients, which a graph of this graph alone could ask for; it takes
        # 4 us.
        return _refusing(ctx, *gradients) if torch.is_grad_enabled() else _backward(ctx, *gradients)


# Stands for a tensor that PyTorch keeps.
_SAVED = torch.empty(0)


def _backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
    function: KernelFunction = ctx.function
    wanted = ctx.needs_input_grad[2:]
    if all(gradient is None for gradient in gradients):
        return (None, None, *[None] * len(wanted))
    saved = ctx.saved_tensors
    count = len(wanted)
    # The library's gradients are floats, whatever the values are.
    found = [
        torch.zeros_like(leaf, dtype=torch.float32, memory_format=torch.contiguous_format) if needed else None
        for leaf, needed in zip(saved, wanted, strict=False)
    ]
    given = function.with_leaves(
        ctx.given, [(v,) if g is None else (v, g) for v, g in zip(saved, found, strict=False)]
    )
    for k, name in enumerate(function.outputs):
        value = saved[count + k]
        given[name] = _pair(value, gradients[k], function.consume) if function.pairs_out[k] else value
    function.kernel.bwd.launch(given, *ctx.sizes)
    return (None, None, *[g if g is None else g.to(v.dtype) for v, g in zip(saved, found, strict=False)])


_refusing = once_differentiable(_backward)


def _pair(value: torch.Tensor, gradient: torch.Tensor | None, consume: bool) -> tuple[torch.Tensor, ...]:
    """Return a result with its gradient, of which the kernel leaves zeros."""
    if gradient is None:
        return (value,)
    if gradient.dtype is not torch.float32:
        return value, gradient.to(torch.float32, memory_format=torch.contiguous_format)
    if consume:
        return value, gradient.contiguous()
    return value, gradient.clone(memory_format=torch.contiguous_format)
