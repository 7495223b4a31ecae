"""Slang functions as operators and modules of PyTorch, for ``torch.compile`` and for models. They hold no kernels."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slangpy_rt.arguments.kept import copied
from slangpy_rt.calls.callee import Callee
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.interop.autograd import refuse_conversions
from slangpy_rt.interop.backward import Backward
from slangpy_rt.interop.graph import NO_SECOND
from slangpy_rt.interop.torch_callable import TorchCallable
from slangpy_rt.interop.torch_types import dtype_of
from slangpy_rt.interop.unchanged import Unchanged

if TYPE_CHECKING:
    from slangpy_rt.calls.function import Function

# PyTorch knows operators by name and keeps them until the process ends: each gets a name of its own.
_NUMBERS = itertools.count()
_SCHEMA = re.compile(r"\s*[A-Za-z][\w\[\]?]* +\w+\s*(,\s*[A-Za-z][\w\[\]?]* +\w+\s*)*")


class SlangModule(torch.nn.Module):
    """A Slang function whose parameters, or some of them, are learned.

    Parameters
    ----------
    function : Function or TorchCallable
        A ``[Differentiable]`` function without ``out`` parameters.
    **parameters : torch.Tensor
        First values of the learned parameters, by their names in Slang.
    """

    def __init__(self, function: Function | TorchCallable, **parameters: Any) -> None:
        super().__init__()
        _check_function("torch_module", function)
        self._function = function
        if isinstance(function, TorchCallable):
            known = list(function.parameter_names)
        else:
            known = [p.name for sig in function.overloads for p in sig.params]
        for name, value in parameters.items():
            if name not in known:
                raise BindError(
                    f"torch_module: {function.name} has no parameter '{name}'; it has {', '.join(known)}."
                )
            if not isinstance(value, torch.Tensor):
                raise BindError(
                    f"torch_module: '{name}' is {in_words(value)}; a parameter that is learned is a torch tensor."
                )
            self.register_parameter(name, torch.nn.Parameter(value.detach().clone()))

    def forward(self, /, *args: Any, **named: Any) -> Any:
        """Call the function with these arguments and the learned parameters."""
        return self._function(*args, **named, **dict(self.named_parameters(recurse=False)))

    def extra_repr(self) -> str:
        """Return the function's signature, which the module's repr shows."""
        return self._function.signature


def operator_of(function: Function | TorchCallable, arguments: str | None) -> Any:
    """Make an operator of PyTorch of a function; see ``slangpy_rt.torch_operator``."""
    _check_function("torch_operator", function)
    plain = re.sub(r"\W", "_", function.name)
    name = f"slangpy_rt::{plain}_{next(_NUMBERS)}"
    if isinstance(function, TorchCallable):
        if arguments is not None:
            raise BindError(f"torch_operator: {function.name} knows its arguments itself; leave them out.")
        return function.operator(name)
    if arguments is not None and not (isinstance(arguments, str) and _SCHEMA.fullmatch(arguments)):
        raise BindError(
            f"torch_operator: arguments is {in_words(arguments)}; kinds and names were expected, as in "
            "'Tensor x, float exposure'."
        )
    if len(function.overloads) != 1:
        raise BindError(f"torch_operator: {function.name} has overloads; an operator stands for one function.")
    callee, sig = Callee(function), function.overloads[0]
    # What the operator was made with, whatever becomes of lists and arrays of the host in values of ``set``.
    callee = callee.with_values(tuple(map(copied, callee.values)))
    function = callee.function
    if any(p.direction != "in" for p in sig.params) or sig.returns.kind == "void":
        raise BindError(f"torch_operator: {sig} writes to its parameters or returns nothing; return the result.")
    arguments = arguments or ", ".join(f"Tensor {p.name}" for p in sig.params)
    kinds = [part.split()[0] for part in arguments.split(",")]
    tensors = [k for k, kind in enumerate(kinds) if kind == "Tensor"]

    def forward(*args: Any) -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = function(*args, _result="torch")
        return out

    def fake(*args: Any) -> torch.Tensor:
        # torch passes tensors without contents; their shapes and types give those of the result.
        models = [np.empty(tuple(map(int, a.shape)), _numpy_of(a)) if k in tensors else a for k, a in enumerate(args)]
        shape, dtype = callee.result_of(tuple(models))
        first = args[tensors[0]] if tensors else None
        return torch.empty(shape, dtype=dtype_of(dtype), device=None if first is None else first.device)

    def backward(grad: torch.Tensor, *args: Any) -> list[torch.Tensor]:
        wanted = [k for k in tensors if args[k].is_floating_point()]
        found = Backward(callee, sig, args, {}, (grad,), wanted).run(None, args, callee.values, (grad,))
        gradients = dict(zip(wanted, found, strict=True))
        return [gradients[k] if k in gradients else torch.zeros_like(args[k]) for k in tensors]

    def fake_backward(grad: torch.Tensor, *args: Any) -> list[torch.Tensor]:
        return [torch.empty_like(args[k], memory_format=torch.contiguous_format) for k in tensors]

    operator = torch.library.custom_op(name, forward, mutates_args=(), schema=f"({arguments}) -> Tensor")
    operator.register_fake(fake)
    backwards = torch.library.custom_op(
        f"{name}_backward", backward, mutates_args=(), schema=f"(Tensor gradient, {arguments}) -> Tensor[]"
    )
    backwards.register_fake(fake_backward)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        refuse_conversions(sig, inputs)
        ctx.others = [None if k in tensors else v for k, v in enumerate(inputs)]
        ctx.unchanged = Unchanged(str(sig), zip(callee.options.uniforms, callee.values, strict=True))
        ctx.save_for_backward(*[inputs[k] for k in tensors])

    def propagate(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        ctx.unchanged.check()
        args = list(ctx.others)
        for k, saved in zip(tensors, ctx.saved_tensors, strict=True):
            args[k] = saved
        gradients: list[Any] = [None] * len(args)
        for k, found in zip(tensors, backwards(grad, *args), strict=True):
            gradients[k] = found if args[k].is_floating_point() else None
        return tuple(gradients)

    def refuse(ctx: Any, grads: list[torch.Tensor]) -> None:
        raise RuntimeError(NO_SECOND)

    if sig.differentiable:
        backwards.register_autograd(refuse)
        operator.register_autograd(propagate, setup_context=keep)
    return operator


def _check_function(where: str, function: Any) -> None:
    if not hasattr(type(function), "append_to") and not isinstance(function, TorchCallable):
        raise BindError(f"{where}: function is {in_words(function)}; a function of a module was expected.")


def _numpy_of(tensor: torch.Tensor) -> Any:
    # Elements of bfloat16, which NumPy lacks, are read as floats.
    return np.dtype("float32" if tensor.dtype == torch.bfloat16 else str(tensor.dtype).removeprefix("torch."))
