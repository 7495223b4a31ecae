"""A ``torch.autograd.Function`` of its own for each prepared call whose values are tensors alone.

It takes fewer steps than ``graph.Apply``: nothing but tensors passes through PyTorch, and a backward pass on tensors
that are like those of an earlier pass is one check and one launch. Calls with numbers, uniforms, ``out`` parameters
or a stream use ``Apply``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from slangpy_rt.interop.graph import once

# A check that tells whether a result's gradient and the arguments are like those of an earlier pass, and a function
# that makes the pass: it takes the arguments and a tuple with that gradient, and returns a gradient or None for each.
Pass = tuple[Callable[..., bool], Callable[..., tuple[Any, ...]]]


def own_node(
    title: str,
    run: Callable[[tuple[torch.Tensor, ...]], torch.Tensor],
    find: Callable[..., tuple[Any, ...]],
    known: dict[tuple[bool, ...], Pass],
) -> Any:
    """Return a class derived from ``torch.autograd.Function`` that calls a Slang function.

    Parameters
    ----------
    title : str
        The function's name: ``grad_fn`` of its results shows it.
    run : callable
        Takes a tuple of tensors, and returns the result, a tensor of floats.
    find : callable
        Takes the tensors, the result's gradient and whether each tensor needs a gradient. It returns a gradient, or
        None, for each, and may note the pass in ``known``.
    known : dict
        Passes by whether each tensor needs a gradient.
    """
    grad_enabled = torch.is_grad_enabled

    def forward(ctx: Any, *values: torch.Tensor) -> torch.Tensor:
        # torch raises an error if one of them is written to before the backward pass.
        ctx.save_for_backward(*values)
        return run(values)

    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        values, needed, recorded = ctx.saved_tensors, ctx.needs_input_grad, grad_enabled()
        same, again = known.get(needed, _UNKNOWN)
        # Hooks may restore saved tensors in another layout than the call had.
        if not recorded and same(grad, *values):
            return again(values, (grad,))
        with torch.no_grad():
            found = find(values, grad, needed)
        return once(found, (grad, *values)) if recorded else found

    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    kind: Any = type(torch.autograd.Function)
    return kind(title, (torch.autograd.Function,), parts)


def direct_apply(node: Any) -> Callable[..., torch.Tensor]:
    """Return the ``apply`` of a class of ``own_node`` without PyTorch's own checks, which take 2 of its 5 us.

    They are whether a transform of ``torch.func`` is active, which the caller asks ``transforms_active``, and whether
    an argument is a tensor of a transform that has ended, which the caller knows. A version of torch that cannot be
    asked has all checks made.
    """
    found: Callable[..., torch.Tensor] = super(torch.autograd.Function, node).apply if _CHECKED else node.apply
    return found


def _no(*_: Any) -> bool:
    return False


_UNKNOWN: Pass = _no, lambda *_: ()
_CHECKED = hasattr(torch._C, "_are_functorch_transforms_active")
transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", _no)
