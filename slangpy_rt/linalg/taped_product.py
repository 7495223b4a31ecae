"""TapedProduct: a product of Tensors that carry gradients, in a block of ``grad_tape``. It computes no gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError
from slangpy_rt.linalg.gradients import add_gradients
from slangpy_rt.linalg.launch import Product, multiply


class TapedProduct:
    """A product as a recorder calls it.

    Parameters
    ----------
    product : Product
        Of Tensors alone, without an activation.
    """

    def __init__(self, product: Product) -> None:
        self._product = product

    def run(self) -> Any:
        """Return the product of the arrays without gradients."""
        values = {n: v.detach() if isinstance(v, Tensor) else v for n, v in self._product.values.items()}
        return multiply(replace(self._product, values=values))

    def bwds(self, a: Any, b: Any, *, _result: Any, bias: Any = None) -> None:
        """Add to the gradients of the arrays; ``_result`` carries that of the product."""
        own = self._product
        add_gradients(a, b, bias, _result, own.transpose_a, own.transpose_b, own.alpha)


def taped(product: Product) -> Any:
    """Compute a product and record it.

    Raises
    ------
    BindError
        If it has what is not recorded, or its operands are no Tensors.
    """
    recorder, values = RECORDER.get(), product.values
    assert recorder is not None
    if "out" in values or product.activation is not None or product.out_dtype is not None:
        raise BindError(
            "matmul: an operand carries a gradient, and a GradTape records products without out, out_dtype and "
            "activation; leave them out, apply the activation in a call of its own, or pass tensor.detach()."
        )
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise BindError(f"matmul: {name} is {value.summary}; a GradTape records products of Tensors alone.")
    of = TapedProduct(product)
    named = {"bias": values["bias"]} if "bias" in values else {}
    return recorder.call(of, (values["a"], values["b"]), named, of.run)
