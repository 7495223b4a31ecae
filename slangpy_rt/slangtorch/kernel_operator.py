"""Makes a PyTorch operator of a KernelFunction, which ``torch.compile`` keeps whole in its graph."""

from __future__ import annotations

from typing import Any

import torch

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slangtorch.kernel_protocols import HasGradients


def operator_of(function: HasGradients, name: str) -> Any:
    """Make a PyTorch operator, whose arguments are the function's inputs by position.

    Raises
    ------
    UnsupportedError
        If an input is a struct, an array, a vector or a matrix.
    """
    inputs = list(function.inputs)
    for parameter in inputs:
        if not function.inputs[parameter].schema:
            kind = function.inputs[parameter].type_name.replace("_spy_", "")
            raise UnsupportedError(
                f"torch_operator: '{parameter}' of {function.name} is '{kind}'; operators take tensors and numbers."
            )
    arguments = ", ".join(f"{function.inputs[p].schema} {p}" for p in inputs)
    pairs = [k for k, p in enumerate(inputs) if function.inputs[p].is_pair]
    result = "Tensor" if len(function.outputs) == 1 else "Tensor[]"

    def forward(*args: Any) -> Any:
        with torch.no_grad():
            made, _ = function.run(dict(zip(inputs, args, strict=True)))
        return made[0] if len(made) == 1 else list(made)

    def fake(*args: Any) -> Any:
        made = function.alike(dict(zip(inputs, args, strict=True)))
        return made[0] if len(made) == 1 else made

    def backward(gradients: list[Any], made: list[Any], *args: Any) -> list[Any]:
        found = function.gradients(dict(zip(inputs, args, strict=True)), made, gradients)
        return [gradient.to(args[k].dtype) for k, gradient in zip(pairs, found, strict=True)]

    def fake_backward(gradients: list[Any], made: list[Any], *args: Any) -> list[Any]:
        return [torch.empty_like(args[k]) for k in pairs]

    operator = torch.library.custom_op(name, forward, mutates_args=(), schema=f"({arguments}) -> {result}")
    operator.register_fake(fake)
    if not function.kernel.differentiable:
        return operator
    backwards = torch.library.custom_op(
        f"{name}_backward", backward, mutates_args=(),
        schema=f"(Tensor[] gradients, Tensor[] made, {arguments}) -> Tensor[]",
    )  # fmt: skip
    backwards.register_fake(fake_backward)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        made = [output] if isinstance(output, torch.Tensor) else list(output)
        tensors = [k for k, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        ctx.tensors, ctx.others = tensors, [None if k in tensors else v for k, v in enumerate(inputs)]
        ctx.save_for_backward(*made, *[inputs[k] for k in tensors])

    def propagate(ctx: Any, *given: Any) -> tuple[Any, ...]:
        count = len(function.outputs)
        made, saved = list(ctx.saved_tensors[:count]), ctx.saved_tensors[count:]
        args = list(ctx.others)
        for k, tensor in zip(ctx.tensors, saved, strict=True):
            args[k] = tensor
        gradients = list(given[0]) if isinstance(given[0], (list, tuple)) else list(given)
        gradients = [torch.zeros_like(m) if g is None else g for g, m in zip(gradients, made, strict=True)]
        returned: list[Any] = [None] * len(args)
        for k, found in zip(pairs, backwards(gradients, made, *args), strict=True):
            returned[k] = found
        return tuple(returned)

    operator.register_autograd(propagate, setup_context=keep)
    return operator
