"""Tensors of PyTorch as Tensors of a device, for gradients: in their own memory, or as copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError
from slangpy_rt.interop.torch_memory import address_of, in_place, lies_on, on_host, placed
from slangpy_rt.interop.torch_types import check_plain, element_of

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


def check_places(where: str, values: Sequence[Any]) -> None:
    """Refuse tensors of which some lie in host memory and others on a GPU.

    Raises
    ------
    BindError
        If they do.
    """
    places = list(dict.fromkeys(str(v.device) for v in values if isinstance(v, torch.Tensor)))
    if len(places) > 1:
        raise BindError(
            f"{where}: torch tensors have to lie in one place for a gradient, not on {', '.join(places)}; move them."
        )


def as_tensors(where: str, device: DeviceCore, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a backward pass, each tensor of PyTorch as a Tensor of its own element type.

    Raises
    ------
    BindError
        If some tensors lie in host memory and others on a GPU, or as ``as_tensor``.
    """
    check_places(where, values)
    return tuple([as_tensor(device, v) if isinstance(v, torch.Tensor) else v for v in values])


def as_tensor(device: DeviceCore, value: torch.Tensor) -> Tensor:
    """Return a tensor as a Tensor of a device: in its own memory where the device works there, else as a copy.

    Raises
    ------
    BindError
        If it lies on a GPU where the device does not work, has no memory, or Slang has no such element type.
    """
    if value.is_cuda:
        return placed(device, value)
    if lies_on(device, value):
        return in_place(device, value)
    check_plain(value)
    address_of(value)
    if value.dtype == torch.bfloat16:
        value = value.float()
    copied: Tensor = Tensor.from_numpy(device, on_host(value.detach()), dtype=element_of(value))
    return copied
