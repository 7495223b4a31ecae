"""DiffTensorView: a tensor with the tensor of its gradient, as slang-torch's modules have it."""

from __future__ import annotations

from typing import Any, NamedTuple


class DiffTensorView(NamedTuple):
    """The value of a ``DiffTensorView`` parameter.

    Attributes
    ----------
    value : torch.Tensor
        The tensor that the kernel reads or writes.
    grad : torch.Tensor or None
        The tensor that its derivative adds gradients to or reads them from; without it gradients are dropped.
    """

    value: Any
    grad: Any = None
