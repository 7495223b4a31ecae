"""ArgumentCopies: copies in the place of tensors that kernels may read and may not write."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from slangpy_rt.slangtorch.errors import TensorError

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ArgumentCopies:
    """Copies of tensors among the arguments of one call, each in the dtype and the memory that the kernel needs.

    A kernel gets the copy, and ``check`` raises an error if it has written to it. Elements of a broadcast view share
    memory; PyTorch makes such views itself: the gradient of a sum is one.

    A backward derivative may also take a gradient, which leaves zero. A sum of gradients that is zero looks the same.
    """

    def __init__(self) -> None:
        self._made: list[_Copy] = []

    def of(self, path: str, value: Any, dtype: torch.dtype | None = None) -> Any:
        """Return a copy of a broadcast view, or of a tensor of another dtype; return any other value itself.

        While a CUDA graph is captured it returns that too, because ``check`` waits for the device.

        Parameters
        ----------
        path : str
            The value's name in messages.
        dtype : torch.dtype, optional
            The dtype of the copy; that of the value if not given.
        """
        if not isinstance(value, torch.Tensor) or not (is_broadcast(value) or dtype not in (None, value.dtype)):
            return value
        if value.is_cuda and torch.cuda.is_current_stream_capturing():
            return value
        copy = value.detach().to(dtype or value.dtype, memory_format=torch.contiguous_format).contiguous()
        self._made.append(_Copy(path, value, copy, copy.clone()))
        return copy

    def original(self, tensor: Any) -> Any:
        """Return the tensor of which another one is a copy of the same dtype; return any other tensor itself."""
        found = next((made.value for made in self._made if made.copy is tensor), tensor)
        return found if found.dtype is tensor.dtype else tensor

    def check(self, where: str, consumed: bool = False, returned: Any = None) -> None:
        """Check that no kernel has written to a copy.

        Parameters
        ----------
        where : str
            The kernel's or the function's name.
        consumed : bool
            Whether elements may have become zero, as gradients of what a kernel stores do.
        returned : object, optional
            The function's result: a copy that it returns may have been written.

        Raises
        ------
        TensorError
            If one has.
        """
        for path, value, copy, kept in self._made:
            if copy is returned:
                continue
            same = _bits(copy) == _bits(kept)
            if consumed:
                same |= _bits(copy) == 0
            if not bool(same.all()):
                what, how = "a broadcast view, whose elements share memory", ".contiguous()"
                if copy.dtype is not value.dtype:
                    what, how = f"which is {value.dtype} and was converted", f".to({copy.dtype})"
                raise TensorError(
                    f"{where}: it writes to {path}, {what}, and what it wrote is lost; pass {path}{how}."
                )


class _Copy(NamedTuple):
    """A tensor with its name in messages, its copy, and a second copy that no kernel gets."""

    path: str
    value: torch.Tensor
    copy: torch.Tensor
    kept: torch.Tensor


def is_broadcast(tensor: torch.Tensor) -> bool:
    """Tell whether elements of a tensor share memory because a stride is zero."""
    if tensor.layout is not torch.strided or 0 in tensor.shape:
        return False
    return any(n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as integers: a NaN equals itself so."""
    return tensor.view(_INTEGERS[tensor.element_size()])
