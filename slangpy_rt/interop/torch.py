"""PyTorch tensors as arguments and as results, looked at where they lie: in host memory or on a GPU.

Nothing outside of this folder imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slangpy_rt.dtypes import SLANG_OF, scalar_type
from slangpy_rt.errors import BindError, UnsupportedError
from slangpy_rt.feeds import PointerFeed
from slangpy_rt.tensor import Tensor

if TYPE_CHECKING:
    from slangpy_rt.device import Device

# From here on host memory comes from the device's pool: 2^22 floats take 3.7 ms so, 6.7 with fresh pages.
_POOLED_BYTES = 1 << 20


def torch_device(type: str, options: dict[str, Any]) -> Device:
    """As ``slangpy_rt.create_torch_device``."""
    from slangpy_rt.device import Device

    name, _, number = type.partition(":")
    if name == "cpu" or (name == "automatic" and not torch.cuda.is_available()):
        return Device("cpu", **options)
    if name not in ("cuda", "automatic"):
        raise UnsupportedError(f"create_torch_device: PyTorch's tensors lie on 'cuda' or 'cpu', not on {type!r}.")
    if not torch.cuda.is_available():
        raise UnsupportedError(
            "create_torch_device: this PyTorch has no CUDA device; torch.cuda.is_available() is False."
        )
    index = int(number) if number else torch.cuda.current_device()
    return Device("cuda", index=index, stream=torch.cuda.current_stream(index), **options)


class AsArray:
    """What a tensor is to a call: a NumPy array, or a Tensor of the device that it lies on.

    Attributes
    ----------
    host : str
        What kind of result it asks for.
    """

    host = "torch"

    def __call__(self, value: torch.Tensor) -> np.ndarray[Any, Any]:
        """Its memory, of the host.

        Raises
        ------
        BindError
            If it has none that NumPy can see, or autograd would lose track of it.
        """
        _refuse_autograd(value)
        try:
            return value.detach().numpy()
        except (TypeError, RuntimeError) as error:
            raise BindError(f"{described(value)}, whose memory cannot be used ({error}).") from None

    def on(self, device: Device, value: torch.Tensor) -> Any:
        """Its memory as a call on a device finds it.

        Raises
        ------
        BindError
            As above, or if it lies where the device does not work.
        """
        if not value.is_cuda:
            return self(value)
        _refuse_autograd(value)
        return in_place(device, value)

    def feed(self, device: Device, value: torch.Tensor, access: str) -> PointerFeed:
        """How its memory reaches a kernel."""
        return PointerFeed(device, current_stream(value.device.index) if value.is_cuda else None)

    def asks_for_autograd(self, value: torch.Tensor) -> bool:
        """Whether a call on it has to be differentiable; part of its signature."""
        return value.requires_grad and torch.is_grad_enabled()

    def signature(self, value: torch.Tensor) -> tuple[Any, ...]:
        """What tells calls apart; looked at without making an array of it, which takes 2 us."""
        autograd = value.requires_grad and torch.is_grad_enabled()
        try:
            strides: Any = value.stride()
            # Kernels read several elements at once where they lie at multiples of 32 bytes.
            place = value.is_cuda and value.data_ptr() % 32
        except RuntimeError:  # a sparse one
            strides, place = value.layout, 0
        return value.dtype, value.shape, strides, value.device, value.is_neg(), autograd, place


def _refuse_autograd(value: torch.Tensor) -> None:
    if value.requires_grad and torch.is_grad_enabled():
        raise BindError(
            f"{described(value)} that requires a gradient, which only arguments of a function's plain call may; "
            "pass tensor.detach() here."
        )


def lies_on(device: Device, value: torch.Tensor) -> bool:
    """Whether a device works in a tensor's own memory."""
    if value.is_cuda:
        return device.name == "cuda" and device.index == value.device.index
    return value.device.type == "cpu" and "zero_copy" in device.caps.features


def in_place(device: Device, value: torch.Tensor) -> Tensor:
    """A tensor's memory as a Tensor of the device that works there; nothing keeps it.

    Raises
    ------
    BindError
        If it lies elsewhere, or Slang has no such element type.
    """
    if not lies_on(device, value):
        raise BindError(f"{described(value)}; {device!r} does not work there. Move it with tensor.to(...).")
    if value.layout is not torch.strided or value.is_neg():
        raise BindError(f"{described(value)}, whose memory does not hold its values; pass tensor.contiguous().")
    address = value.data_ptr()
    layout = device.layout(Tensor, element_of(value), tuple(value.shape), value.stride(), address % 32 == 0)
    return Tensor.of(layout, device.guest, address)


def element_of(value: torch.Tensor) -> Any:
    """The Slang type of a tensor's elements.

    Raises
    ------
    BindError
        If there is none.
    """
    found = _ELEMENTS.get(value.dtype)
    if found is None:
        raise BindError(f"{described(value)}; Slang has no such element type.")
    return found


def current_stream(index: int) -> Callable[[Any], int]:
    """What finds the stream that PyTorch works on just then, on a GPU, whatever it is given."""
    # 0.1 us; torch.cuda.current_stream takes 2.
    found = torch._C._cuda_getCurrentRawStream
    return lambda value: found(index)


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A NumPy array's memory as a tensor."""
    found: torch.Tensor = torch.from_numpy(array)
    return found


def empty(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
    """A new host tensor for a result.

    Raises
    ------
    UnsupportedError
        If torch has no such element type.
    """
    if prod(shape) * dtype.itemsize < _POOLED_BYTES:
        return torch.empty(shape, dtype=dtype_of(dtype))
    dtype_of(dtype)
    return tensor_of(device.host_array(shape, dtype))


def empty_there(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
    """A new tensor on the GPU of a device.

    Raises
    ------
    UnsupportedError
        If torch has no such element type.
    """
    return torch.empty(shape, dtype=dtype_of(dtype), device=torch.device("cuda", device.index))


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


_ELEMENTS = {
    getattr(torch, dtype.name): scalar_type(name) for dtype, name in SLANG_OF.items() if hasattr(torch, dtype.name)
}
