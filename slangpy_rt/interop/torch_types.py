"""PyTorch's element types and those of Slang and NumPy that they correspond to, and tensors in words for messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from slangpy_rt.core.dtypes import BFLOAT16, SLANG_OF, scalar_type
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.types import SlangType


def element_of(value: torch.Tensor) -> Any:
    """Return the Slang type of a tensor's elements.

    Raises
    ------
    BindError
        If there is none.
    """
    found = element_of_dtype(value.dtype)
    if found is None:
        raise BindError(
            f"{tensor_in_words(value)}, an element type that arrays do not have; convert it with tensor.to(...)."
        )
    return found


def element_of_dtype(dtype: torch.dtype) -> SlangType | None:
    """Return the Slang type of elements of a dtype; None if arrays have none."""
    return _ELEMENTS.get(dtype)


def check_plain(value: torch.Tensor) -> None:
    """Refuse tensors whose memory does not hold their values.

    Raises
    ------
    BindError
        If the tensor is sparse, or marked to be negated or set to zero when it is read.
    """
    if value.layout is not torch.strided or value.is_neg() or value._is_zerotensor():
        raise BindError(f"{tensor_in_words(value)}, whose memory does not hold its values; pass a dense copy of it.")


def dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    """Return PyTorch's type of a NumPy dtype.

    Raises
    ------
    UnsupportedError
        If it has none.
    """
    found = getattr(torch, dtype.name, None)
    if dtype.names is not None or not isinstance(found, torch.dtype):
        raise UnsupportedError(f"torch has no element type for results of {dtype}; ask for another kind of _result.")
    return found


def tensor_in_words(value: torch.Tensor) -> str:
    """Describe a tensor in a few words, for messages."""
    if value.is_nested:
        return f"a nested torch tensor of {value.dtype} on {value.device}"
    return f"a torch tensor of {value.dtype} and shape {tuple(value.shape)} on {value.device}"


_ELEMENTS = {
    getattr(torch, dtype.name): scalar_type(name) for dtype, name in SLANG_OF.items() if hasattr(torch, dtype.name)
} | {torch.bfloat16: BFLOAT16}
