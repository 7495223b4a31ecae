"""KernelGradients: the node of PyTorch's graph for one call of a KernelFunction."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from slangpy_rt.arguments.kept import rebuilt
from slangpy_rt.interop.graph import once
from slangpy_rt.slangtorch.kernel_protocols import HasGradients


class KernelGradients(torch.autograd.Function):
    """A call of a kernel, whose gradients its backward derivative computes.

    PyTorch sees the tensors of the inputs that are pairs in Slang; others have no gradient.
    """

    @staticmethod
    def forward(ctx: Any, function: HasGradients, given: dict[str, Any], *leaves: torch.Tensor) -> Any:
        made, ctx.sizes = function.run(given)
        ctx.function = function
        # PyTorch keeps the tensors themselves, and checks whether they were changed since.
        rest = function.without_leaves(given, leaves)
        others: list[torch.Tensor] = []
        ctx.given = _as_now(rest, others) if rest else rest
        ctx.save_for_backward(*leaves, *made, *others)
        ctx.count = len(leaves) + len(made)
        ctx.set_materialize_grads(False)
        if function.has_plain:
            ctx.mark_non_differentiable(
                *[value for value, pair in zip(made, function.pairs_out, strict=True) if not pair]
            )
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if not torch.is_grad_enabled():
            return _backward(ctx, *gradients)
        with torch.no_grad():
            found = _backward(ctx, *gradients)
        return once(found, (*gradients, *ctx.saved_tensors))


def _backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
    function: HasGradients = ctx.function
    wanted = ctx.needs_input_grad[2:]
    count = len(wanted)
    saved = ctx.saved_tensors[: ctx.count]
    leaves = saved[:count]
    found = function.backward(ctx.given, ctx.sizes, leaves, saved[count:], gradients, wanted, function.consume)
    for k, leaf in enumerate(leaves):
        if wanted[k] and leaf.dtype is not torch.float32:
            found[k] = found[k].to(leaf.dtype)
    return None, None, *found


def _as_now(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return inputs that stay as they are, and note the tensors among them, whose versions PyTorch compares."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return value
    return value.copy() if isinstance(value, np.ndarray) else rebuilt(value, lambda part: _as_now(part, tensors))
