"""PyTorch's tensors as arguments and as results, looked at where they lie: in host memory or on a GPU.

Nothing outside of this folder imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.feeds import Feed
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
    """What a tensor is to a call: a NumPy array, or a Tensor of the device that it lies on."""

    takes_results = True
    signature = staticmethod(signature)

    def result_kind(self, value: torch.Tensor) -> str:
        """What kind of result it asks for."""
        return "torch_gpu" if value.is_cuda else "torch"

    def __call__(self, value: torch.Tensor) -> np.ndarray[Any, Any]:
        """Its memory, of the host.

        Raises
        ------
        BindError
            If it has none that NumPy can see, or autograd would lose track of it.
        """
        return on_host(value)

    def on(self, device: DeviceCore, value: torch.Tensor) -> Any:
        """Its memory as a call on a device finds it.

        Raises
        ------
        BindError
            As above, or if it lies where the device does not work.
        """
        if not value.is_cuda and not (value.dtype == torch.bfloat16 and lies_on(device, value)):
            return on_host(value)
        refuse_autograd(value)
        return placed(device, value)

    def feed(self, device: DeviceCore, value: torch.Tensor, access: str) -> Feed:
        """How its memory reaches a kernel."""
        if value.is_cuda and isinstance(device.backend, ExportsMemory):
            from slangpy_rt.interop.bridge import StagedFeed

            return StagedFeed(device, value, access)
        return PointerFeed(device, current_stream(value.device.index) if value.is_cuda else None, alike)

    def result_maker(
        self, device: DeviceCore, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str
    ) -> Callable[[], torch.Tensor]:
        """What makes new tensors for a result, where the arguments lie or else in host memory."""
        return maker(device, shape, dtype, kind == "torch_gpu")

    def asks_for_autograd(self, value: torch.Tensor) -> bool:
        """Whether a call on it has to be differentiable; part of its signature."""
        return value.requires_grad and torch.is_grad_enabled()

    def call_for_autograd(self, function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """A call in PyTorch's graph, checked as far as it can be before it runs."""
        from slangpy_rt.interop.autograd import autograd_call

        return autograd_call(function, args, names)
