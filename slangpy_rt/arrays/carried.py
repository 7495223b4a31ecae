"""Tensors that carry gradients, made without the checks of ``with_grads``, for callers that made the gradients."""

from __future__ import annotations

from slangpy_rt.arrays.layout import Layout
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.base import Buffer


def carrying_layout(plain: Tensor, grad_in: Tensor | None, grad_out: Tensor | None, fresh: bool = False) -> Layout:
    """Return the layout of a tensor that carries these gradients; ``fresh`` if ``grad_out`` has no contents yet."""
    return plain._carrying(grad_in, grad_out, fresh).layout


def carrying(layout: Layout, buffer: Buffer, address: int, grad_in: Tensor | None, grad_out: Tensor | None) -> Tensor:
    """Make a tensor that carries these gradients, of a layout that ``carrying_layout`` returned."""
    out = Tensor.of(layout, buffer, address)
    out._grads = grad_in, grad_out
    return out
