"""TorchArrays: PyTorch's tensors in products, and the products as operations of PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.conversion import is_lazy
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.interop.graph import with_memory
from slangpy_rt.interop.opened_devices import default_device
from slangpy_rt.interop.torch_memory import current_stream, lies_on
from slangpy_rt.interop.torch_types import element_of_dtype
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.launch import Product, multiply
from slangpy_rt.linalg.program import SUMS
from slangpy_rt.linalg.user_functions import UserFunction
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.runtime.foreign_stream import foreign_stream

_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
_DTYPES = {
    "bfloat16": torch.bfloat16,
    "half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "int8_t": torch.int8,
    "int16_t": torch.int16,
    "int": torch.int32,
}


class TorchArrays(Arrays):
    """PyTorch's tensors."""

    name = "a torch tensor"

    def is_array(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def lasting(self, device: DeviceCore, array: torch.Tensor) -> Tensor | None:
        element = element_of_dtype(array.dtype)
        if element is None or array.layout is not torch.strided or is_lazy(array):
            return None
        layout = layout_of(device, Tensor, element, tuple(array.shape), array.stride(), False)
        return Tensor.of(layout, device.placeholder, array.data_ptr())

    def view(self, array: torch.Tensor) -> View:
        if array.layout is not torch.strided or is_lazy(array):
            raise BindError("matmul: a torch tensor's memory does not hold its values; pass a dense copy of it.")
        element = element_of_dtype(array.dtype)
        if element is None:
            raise BindError(
                f"matmul: a torch tensor has elements of {array.dtype}, which are not multiplied; convert it with "
                "tensor.to(...)."
            )
        return View(element.name, tuple(array.shape), array.stride())

    def strided(self, array: torch.Tensor, view: View, stored: str) -> torch.Tensor:
        array = array.detach()
        dtype = _DTYPES[stored]
        if array.dtype is not dtype:
            array = array.view(dtype)
        return array.as_strided(view.shape, view.strides, array.storage_offset() + view.offset)

    def empty(self, device: DeviceCore, shape: Shape, element: str, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(shape, dtype=_DTYPES[element], device=like.device)

    def copied(self, array: torch.Tensor, commands: CommandList | None) -> torch.Tensor:
        return array.detach().clone()

    def signature(self, array: torch.Tensor) -> Any:
        recorded = array.requires_grad and torch.is_grad_enabled()
        lazy = array.is_neg() or array._is_zerotensor()
        return array.dtype, array.shape, array.stride(), array.device, lazy, recorded

    def device(self, array: torch.Tensor, given: DeviceCore | None) -> DeviceCore:
        return default_device(array.get_device()) if given is None else given

    def launch(self, device: DeviceCore, array: torch.Tensor) -> Callable[..., None]:
        if not array.is_cuda:
            return device.launch
        handle = current_stream(array.get_device())(array)
        return (device.foreign_streams.get(handle) or foreign_stream(device, handle)).direct

    def address(self, array: torch.Tensor) -> int:
        return array.data_ptr()

    def lies_on(self, device: DeviceCore, array: torch.Tensor) -> bool:
        return lies_on(device, array)

    def captures(self) -> bool:
        # torch.cuda.is_current_stream_capturing is this, where PyTorch has CUDA.
        return _capturing is not None and _capturing()

    def records(self, values: Sequence[torch.Tensor]) -> bool:
        return torch.is_grad_enabled() and any(value.requires_grad for value in values)

    def differentiable(self, product: Product) -> torch.Tensor:
        values = product.values
        if "out" in values:
            raise BindError("matmul: PyTorch records no gradients through out; leave it out, or use torch.no_grad().")
        a, b, bias = values["a"], values["b"], values.get("bias")
        left, right = (a.unsqueeze(0) if a.ndim == 1 else a), (b.unsqueeze(1) if b.ndim == 1 else b)
        plain = replace(
            product,
            transpose_a=product.transpose_a and a.ndim > 1,
            transpose_b=product.transpose_b and b.ndim > 1,
            activation=None,
        )
        found: torch.Tensor = _Operation.apply(left, right, bias, plain)  # type: ignore[no-untyped-call]
        last = product.activation
        if isinstance(last, UserFunction):
            found = _applied(last, found, SUMS[self.view(a).element])
        if a.ndim == 1:
            found = found.squeeze(-2)
        if b.ndim == 1:
            found = found.squeeze(-1)
        return _ACTIVATIONS[last](found) if isinstance(last, str) else found

    def check_place(self, device: DeviceCore, values: Mapping[str, torch.Tensor]) -> None:
        places = sorted({str(value.device) for value in values.values()})
        if len(places) > 1:
            raise BindError(
                f"matmul: its tensors are on {' and '.join(places)}; move them to one device with .to(...)."
            )
        if values["a"].device.type not in ("cpu", "cuda"):
            raise BindError(f"matmul: its tensors are on {places[0]}; move them to a CUDA device or to the CPU.")

    def element(self, where: str, dtype: Any) -> str:
        if isinstance(dtype, torch.dtype):
            found = element_of_dtype(dtype)
            if found is None:
                raise BindError(f"{where}: {dtype} is no element type.")
            return found.name
        return element_type(where, dtype).name


class _Operation(torch.autograd.Function):
    """A product without activation, of operands of at least two dimensions."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, product: Product) -> Any:
        ctx.save_for_backward(a, b)
        ctx.product = product
        ctx.bias = None if bias is None else bias.shape
        values = {"a": a, "b": b} if bias is None else {"a": a, "b": b, "bias": bias}
        return multiply(replace(product, values=values))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        product = ctx.product
        left, right = (a.mT if product.transpose_a else a), (b.mT if product.transpose_b else b)
        grad_a = grad_b = grad_bias = None
        grad = with_memory(grad)
        seed = grad.to(a.dtype)
        if ctx.needs_input_grad[0]:
            grad_a = _multiplied(product, seed, right.mT).sum_to_size(left.shape)
            grad_a = grad_a.mT if product.transpose_a else grad_a
        if ctx.needs_input_grad[1]:
            grad_b = _multiplied(product, left.mT, seed).sum_to_size(right.shape)
            grad_b = grad_b.mT if product.transpose_b else grad_b
        if ctx.bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad.sum_to_size(ctx.bias)
        return grad_a, grad_b, grad_bias, None


def _applied(last: UserFunction, found: torch.Tensor, sums: str) -> torch.Tensor:
    """Return a user's function of each element of products, which PyTorch can differentiate."""
    places = last.places(sums)
    rows = torch.arange(found.shape[-2], dtype=torch.int32, device=found.device).unsqueeze(1)
    columns = torch.arange(found.shape[-1], dtype=torch.int32, device=found.device)
    given = {"row": rows, "column": columns}
    applied: torch.Tensor = last.function(found.to(_DTYPES[sums]), *[given[name] for name in places])
    return applied.to(found.dtype)


def _multiplied(product: Product, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of two tensors, which PyTorch can differentiate again."""
    plain = Product(
        product.arrays, {"a": a, "b": b}, alpha=product.alpha, device=product.device, precision=product.precision
    )
    found: torch.Tensor = product.arrays.differentiable(plain) if product.arrays.records((a, b)) else multiply(plain)
    return found


_ACTIVATIONS: dict[str, Any] = {
    "relu": torch.relu,
    "gelu": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
