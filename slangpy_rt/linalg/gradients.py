"""Gradients of a product of Tensors: products again, added to what the Tensors' gradients hold."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.linalg.launch import Product, Work, as_matrices, as_operand, fitted
from slangpy_rt.linalg.own_arrays import OwnArrays
from slangpy_rt.linalg.program import SUMS, Kind
from slangpy_rt.linalg.view import View


def add_gradients(a: Any, b: Any, bias: Any, result: Any, transpose_a: bool, transpose_b: bool, alpha: float) -> None:
    """Add to the gradients of ``a``, ``b`` and ``bias``; see ``Matmul.bwds``."""
    arrays = OwnArrays()
    given = {"a": a, "b": b} | ({} if bias is None else {"bias": bias})
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise BindError(f"matmul.bwds: {name} is {in_words(value)}; a Tensor was expected.")
    seed = result.grad if isinstance(result, DiffPair) else result
    if isinstance(seed, Tensor):
        seed = seed.grad_in if seed.grad_in is not None else seed
    if not isinstance(seed, Tensor):
        raise BindError(
            f"matmul.bwds: _result is {in_words(result)}; a Tensor of the product's gradient was expected."
        )
    left, right, shape = fitted(
        Product(arrays, given, transpose_a, transpose_b), arrays.view(a.detach()), arrays.view(b.detach())
    )
    if SUMS[left.element] == "int":
        raise BindError(f"matmul.bwds: elements of type '{left.element}' have no gradients.")
    if seed.layout.full_shape != shape or seed.layout.element.name != left.element:
        raise ShapeError(
            f"matmul.bwds: the gradient in _result has the shape {seed.layout.full_shape} and elements of type "
            f"'{seed.layout.element.name}'; {shape} and '{left.element}' were expected."
        )
    wanted = {name: value.grad_out for name, value in given.items() if value.grad_out is not None}
    if not wanted:
        raise BindError("matmul.bwds: no argument has a gradient to add to; make one with tensor.with_grads().")
    if "bias" in wanted and wanted["bias"].layout.full_shape != shape[-1:]:
        raise ShapeError(f"matmul.bwds: bias has the shape {bias.shape}; {shape[-1:]} was expected.")
    if 0 in shape:
        return
    device, kind = a.device, Kind(left.element, left.element, adds=True)
    grad = as_matrices(arrays.view(seed), a.ndim, b.ndim)
    works = []
    if "a" in wanted:
        target = as_operand(arrays.view(wanted["a"]), transpose_a, row=True)
        works.append(Work(arrays, kind, (seed, grad), (b, right.transposed()), (wanted["a"], target), alpha))
    if "b" in wanted:
        target = as_operand(arrays.view(wanted["b"]), transpose_b, row=False)
        works.append(Work(arrays, kind, (a, left.transposed()), (seed, grad), (wanted["b"], target), alpha))
    if "bias" in wanted:
        # A row of ones times the gradient is the sum of its rows.
        ones = Tensor.ones(device, 1, left.element)
        view = View(left.element, (1, grad.shape[-2]), (0, 0))
        target = as_operand(arrays.view(wanted["bias"]), False, row=True)
        works.append(Work(arrays, kind, (ones, view), (seed, grad), (wanted["bias"], target)))
    planned = []
    for work in works:
        # A gradient that was broadcast is added to by one launch after the other.
        work = work._replace(c=(work.c[0], work.c[1].spread(grad.batch)))
        planned.append((work, work.parts(device)))
    for work, parts in planned:
        work.run(device, parts)
