"""Tensors that carry gradients, made without the checks of ``with_grads``: for who made the gradients themselves."""

from __future__ import annotations

from slangpy_rt.arrays.layout import Layout
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.base import Buffer


def carrying_layout(plain: Tensor, grad_in: Tensor | None, grad_out: Tensor | None, fresh: bool = False) -> Layout:
    """The layout of a tensor that carries such gradients; ``fresh`` if what is written may lose its contents."""
    return plain._carrying(grad_in, grad_out, fresh).layout


def carrying(layout: Layout, buffer: Buffer, address: int, grad_in: Tensor | None, grad_out: Tensor | None) -> Tensor:
    """A tensor of a layout that says it carries gradients, with these."""
    out = Tensor.of(layout, buffer, address)
    out._grads = grad_in, grad_out
    return out
