"""KernelGradients: the node of PyTorch's graph for one call of a KernelFunction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from slangpy_rt.slangtorch.kernel_function import KernelFunction


# Stands for a tensor that PyTorch keeps.
_SAVED = torch.empty(0)


class KernelGradients(torch.autograd.Function):
    """A call of a kernel, whose gradients its backward derivative finds.

    PyTorch sees the tensors of the inputs that are pairs in Slang; others have no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, function: KernelFunction, given: dict[str, Any], *leaves: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        made = function.run(given)
        ctx.function = function
        # PyTorch keeps the tensors themselves, and sees whether they were changed since.
        ctx.given = {name: p.replaced(given[name], lambda _: _SAVED) for name, p in function.inputs.items()}
        ctx.save_for_backward(*leaves, *made)
        ctx.set_materialize_grads(False)
        plain = [value for value, pair in zip(made, function.writes_gradients(), strict=True) if not pair]
        ctx.mark_non_differentiable(*plain)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        function: KernelFunction = ctx.function
        wanted = ctx.needs_input_grad[2:]
        if all(gradient is None for gradient in gradients):
            return (None, None, *[None] * len(wanted))
        saved = ctx.saved_tensors
        leaves, made = saved[: len(wanted)], saved[len(wanted) :]
        # The library's gradients are floats, whatever the values are.
        found = [
            torch.zeros(leaf.shape, dtype=torch.float32, device=leaf.device) if needed else None
            for leaf, needed in zip(leaves, wanted, strict=True)
        ]
        pairs = iter(
            [
                (leaf, gradient) if needed else (leaf,)
                for leaf, gradient, needed in zip(leaves, found, wanted, strict=True)
            ]
        )
        values = iter(leaves)
        paired: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for name, parameter in function.inputs.items():
            paired[name] = parameter.replaced(ctx.given[name], lambda _: next(pairs))
            plain[name] = parameter.replaced(ctx.given[name], lambda _: next(values))
        for name, value, gradient, pair in zip(
            function.outputs, made, gradients, function.writes_gradients(), strict=True
        ):
            plain[name] = value
            paired[name] = _pair(value, gradient, function.consume) if pair else value
        function.launch(function.kernel.bwd, paired, plain)
        returned = [
            gradient if gradient is None else gradient.to(leaf.dtype)
            for gradient, leaf in zip(found, leaves, strict=True)
        ]
        return (None, None, *returned)


def _pair(value: torch.Tensor, gradient: torch.Tensor | None, consume: bool) -> tuple[torch.Tensor, ...]:
    """Return a result with its gradient, of which the kernel leaves zeros."""
    if gradient is None:
        return (value,)
    own = gradient.to(torch.float32).contiguous()
    if own.data_ptr() == gradient.data_ptr() and not consume:
        own = own.clone()
    return value, own
