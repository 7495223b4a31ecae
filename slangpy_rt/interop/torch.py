"""PyTorch's tensors as arguments and as results, looked at where they lie: in host memory or on a GPU.

Nothing outside of this folder imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.feed import Feed
from slangpy_rt.backends.extras import ExportsMemory
from slangpy_rt.interop.pointer_feed import PointerFeed
from slangpy_rt.interop.torch_memory import (
    alike,
    current_stream,
    lies_on,
    maker,
    on_host,
    placed,
    refuse_autograd,
    signature,
)

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class TorchAdapter(Adapter):
    """Says how a call takes a torch tensor: as a NumPy array, or as a Tensor of the device that it lies on."""

    takes_results = True
    signature = staticmethod(signature)

    def result_kind(self, value: torch.Tensor) -> str:
        """Return the kind of result that a tensor asks for."""
        return "torch_gpu" if value.is_cuda else "torch"

    def __call__(self, value: torch.Tensor) -> np.ndarray[Any, Any]:
        """Return a tensor's host memory as a NumPy array.

        Raises
        ------
        BindError
            If it has none that NumPy can see, or autograd would lose track of it.
        """
        return on_host(value)

    def on(self, device: DeviceCore, value: torch.Tensor) -> Any:
        """Return a tensor's memory as a call on a device takes it.

        Raises
        ------
        BindError
            As ``__call__``, or if it lies where the device does not work.
        """
        if not value.is_cuda and not (value.dtype == torch.bfloat16 and lies_on(device, value)):
            return on_host(value)
        refuse_autograd(value)
        return placed(device, value)

    def feed(self, device: DeviceCore, value: torch.Tensor, access: str) -> Feed:
        """Return the feed that passes a tensor's memory to a kernel."""
        if value.is_cuda and isinstance(device.backend, ExportsMemory):
            from slangpy_rt.interop.bridge import StagedFeed

            return StagedFeed(device, value, access)
        return PointerFeed(device, current_stream(value.device.index) if value.is_cuda else None, alike)

    def result_maker(
        self, device: DeviceCore, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str
    ) -> Callable[[], torch.Tensor]:
        """Return a function that makes tensors for a result, where the arguments lie or else in host memory."""
        return maker(device, shape, dtype, kind == "torch_gpu")

    def asks_for_autograd(self, value: torch.Tensor) -> bool:
        """Tell whether a call on a tensor has to be differentiable; part of its signature."""
        return value.requires_grad and torch.is_grad_enabled()

    def call_for_autograd(self, function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """Make a call for PyTorch's graph, checked as far as it can be before it runs."""
        from slangpy_rt.interop.autograd import autograd_call

        return autograd_call(function, args, names)
