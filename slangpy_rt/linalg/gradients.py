"""Gradients of a product of Tensors: products again, added to what the Tensors' gradients hold."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.checks import flag
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.linalg.launch import Product, Work, as_matrices, as_operand, factor, fitted, sharing
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
    for name, flagged in (("transpose_a", transpose_a), ("transpose_b", transpose_b)):
        flag("matmul.bwds", name, flagged)
    product = Product(arrays, given, transpose_a, transpose_b)
    fitted(product, arrays.view(a), arrays.view(b))
    product = product.bias_last()
    given, transpose_a, transpose_b = dict(product.values), product.transpose_a, product.transpose_b
    a, b = given["a"], given["b"]
    left, right, shape = fitted(product, arrays.view(a), arrays.view(b))
    if SUMS[left.element] == "int":
        raise BindError(f"matmul.bwds: elements of type '{left.element}' have no gradients.")
    if seed.layout.full_shape != shape or seed.layout.element.name != left.element:
        raise ShapeError(
            f"matmul.bwds: the gradient in _result has the shape {seed.layout.full_shape} and elements of type "
            f"'{seed.layout.element.name}'; {shape} and '{left.element}' were expected."
        )
    alpha = factor("matmul.bwds", left.element, alpha)
    wanted = {name: value.grad_out for name, value in given.items() if value.grad_out is not None}
    if not wanted:
        raise BindError("matmul.bwds: no argument has a gradient to add to; make one with tensor.with_grads().")
    if "bias" in wanted and wanted["bias"].layout.full_shape != shape[-1:]:
        raise ShapeError(f"matmul.bwds: bias has the shape {bias.shape}; {shape[-1:]} was expected.")
    if 0 in shape:
        return
    device = a.device
    arrays.check_place(device, {**given, "_result": seed, **{f"the gradient of {n}": v for n, v in wanted.items()}})
    kind = Kind(left.element, left.element, adds=True)
    # What is read keeps its values while gradients that share its memory are written.
    shared = [v for target in wanted.values() for v in sharing(arrays, target, (seed, a, b))]
    seed, a, b = (arrays.copied(v, None) if any(v is found for found in shared) else v for v in (seed, a, b))
    grad = as_matrices(arrays.view(seed), len(a.shape), len(b.shape))
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
