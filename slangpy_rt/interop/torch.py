"""PyTorch tensors in host memory as arguments and as results, looked at where they lie.

Tensors on a GPU are refused here. Nothing outside of this folder imports torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from slangpy_rt.errors import BindError, UnsupportedError


class AsArray:
    """What a tensor is to a call: its memory as a NumPy array.

    Attributes
    ----------
    host : str
        What kind of result it asks for.
    """

    host = "torch"

    def __call__(self, value: torch.Tensor) -> np.ndarray[Any, Any]:
        """Its memory.

        Raises
        ------
        BindError
            If it has none that NumPy can see, or autograd would lose track of it.
        """
        if value.requires_grad and torch.is_grad_enabled():
            raise BindError(
                f"{described(value)} that requires a gradient, which only arguments of a function's plain call may; "
                "pass tensor.detach() here."
            )
        try:
            return value.detach().numpy()
        except (TypeError, RuntimeError) as error:
            raise BindError(f"{described(value)}, whose memory cannot be used ({error}).") from None

    def asks_for_autograd(self, value: torch.Tensor) -> bool:
        """Whether a call on it has to be differentiable; part of its signature."""
        return value.requires_grad and torch.is_grad_enabled()

    def signature(self, value: torch.Tensor) -> tuple[Any, ...]:
        """What tells calls apart; looked at without making a NumPy array, which takes 2 us."""
        autograd = value.requires_grad and torch.is_grad_enabled()
        strides = value.stride() if value.layout is _STRIDED else value.layout
        return "torch", value.dtype, value.shape, strides, value.device, value.is_neg(), autograd


_STRIDED = torch.strided


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A NumPy array's memory as a tensor."""
    found: torch.Tensor = torch.from_numpy(array)
    return found


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
    """A new host tensor for a result.

    Raises
    ------
    UnsupportedError
        If torch has no such element type.
    """
    return torch.empty(shape, dtype=dtype_of(dtype))


def dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    """PyTorch's name of a NumPy dtype.

    Raises
    ------
    UnsupportedError
        If it has none.
    """
    found = getattr(torch, dtype.name, None)
    if dtype.names is not None or not isinstance(found, torch.dtype):
        raise UnsupportedError(f"torch has no element type for results of {dtype}; ask for another kind of _result.")
    return found


def described(value: torch.Tensor) -> str:
    """A tensor in a few words, for messages."""
    return f"a torch tensor of {value.dtype} and shape {tuple(value.shape)} on {value.device}"
