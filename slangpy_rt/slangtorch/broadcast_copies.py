"""BroadcastCopies: copies in the place of broadcast views, which kernels may read and may not write."""

from __future__ import annotations

from typing import Any

import torch

from slangpy_rt.slangtorch.errors import TensorError

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class BroadcastCopies:
    """Copies of the broadcast views among the tensors of one call.

    A kernel cannot write to such a view, because its elements share memory. It gets a copy, and ``check`` raises an
    error if it has written to the copy. PyTorch makes such views itself: the gradient of a sum is one.

    A backward derivative may also take a gradient, which leaves zero. A sum of gradients that is zero looks the same.
    """

    def __init__(self) -> None:
        # The name in messages, the view, its copy, and a second copy that no kernel gets.
        self._made: list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def of(self, path: str, value: Any) -> Any:
        """Return a copy of a broadcast view; return any other value itself.

        While a CUDA graph is captured it returns the view too, because ``check`` waits for the device.

        Parameters
        ----------
        path : str
            The value's name in messages.
        """
        if not isinstance(value, torch.Tensor) or not is_broadcast(value):
            return value
        if value.is_cuda and torch.cuda.is_current_stream_capturing():
            return value
        view = value.detach()
        copy = view.contiguous()
        self._made.append((path, value, copy, copy.clone()))
        return copy

    def view_of(self, tensor: Any) -> Any:
        """Return the view of which a tensor is the copy; return any other tensor itself."""
        return next((view for _, view, copy, _ in self._made if copy is tensor), tensor)

    def check(self, where: str, consumed: bool = False) -> None:
        """Check that copies have the contents that their views had.

        Parameters
        ----------
        where : str
            The kernel's or the function's name.
        consumed : bool
            Whether elements may have become zero, as gradients of what a kernel stores do.

        Raises
        ------
        TensorError
            If the kernel has written to a copy.
        """
        for path, view, copy, kept in self._made:
            same = _bits(copy) == _bits(kept)
            if consumed:
                same |= _bits(copy) == 0
            if not bool(same.all()):
                raise TensorError(
                    f"{where}: it writes to {path}, a broadcast view whose elements share memory (shape "
                    f"{tuple(view.shape)}, strides {view.stride()}), and what it wrote is lost; use .contiguous() to "
                    "make it a tensor of its own."
                )

    def __bool__(self) -> bool:
        return bool(self._made)


def is_broadcast(tensor: torch.Tensor) -> bool:
    """Tell whether elements of a tensor share memory because a stride is zero."""
    if tensor.layout is not torch.strided or 0 in tensor.shape:
        return False
    return any(n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as integers: a NaN equals itself so."""
    return tensor.view(_INTEGERS[tensor.element_size()])
