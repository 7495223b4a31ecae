"""PyTorch's tensors as arguments and as results, used in place: in host memory or on a GPU.

Files outside of ``interop`` and ``slangtorch`` import torch only inside of functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.backends.extras import ExportsMemory
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.wording import in_words
from slangpy_rt.interop.pointer_packer import PointerPacker
from slangpy_rt.interop.torch_memory import (
    alike,
    current_stream,
    lies_on,
    maker,
    on_host,
    placed,
    refuse_autograd,
    signature,
    transformed,
)
from slangpy_rt.interop.torch_types import tensor_in_words

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class TorchAdapter(Adapter):
    """How a call uses a torch tensor: as a NumPy array in host memory, or as a Tensor on a GPU."""

    takes_results = True
    draws = True
    signature = staticmethod(signature)

    def result_kind(self, value: torch.Tensor) -> str:
        """Return the kind of result of calls on a tensor: ``"torch_gpu"`` or ``"torch"``."""
        return "torch_gpu" if value.is_cuda else "torch"

    def __call__(self, value: torch.Tensor) -> np.ndarray[Any, Any]:
        """Return a tensor's host memory as a NumPy array.

        Raises
        ------
        BindError
            If NumPy cannot use its memory, or autograd would lose track of it.
        """
        return on_host(value)

    def on(self, device: DeviceCore, value: torch.Tensor) -> Any:
        """Return an array in a tensor's memory, or, on Vulkan, in a copy of it.

        Raises
        ------
        BindError
            As ``__call__`` does, or if the device cannot use the memory.
        """
        if not value.is_cuda and not (value.dtype == torch.bfloat16 and lies_on(device, value)):
            return on_host(value)
        refuse_autograd(value)
        return placed(device, value)

    def copied(self, value: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor, without its graph."""
        return value.detach().clone()

    def in_its_words(self, message: str, value: torch.Tensor, other: Any) -> str:
        """Return a message with what PyTorch calls a tensor, its types and its conversions."""
        message = message.replace(in_words(other), tensor_in_words(value))
        message = re.sub(r"\barray\.astype\(numpy\.(\w+)\)", r"tensor.to(torch.\1)", message)
        message = re.sub(r"\barray\.astype\('(\w+)'\)", _of_slang, message)
        return re.sub(r"\ban array of dtype (\w+)", r"a tensor of torch.\1", message)

    def packer(self, device: DeviceCore, value: torch.Tensor, access: str) -> Packer:
        """Return the packer that passes a tensor's memory to a kernel."""
        if value.is_cuda and isinstance(device.backend, ExportsMemory):
            from slangpy_rt.interop.bridge import StagedPacker

            return StagedPacker(device, value, access)
        return PointerPacker(device, current_stream(value.device.index) if value.is_cuda else None, alike)

    def result_maker(
        self, device: DeviceCore, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str
    ) -> Callable[[], torch.Tensor]:
        """Return a function that makes tensors for a result: on the GPU for ``"torch_gpu"``, else in host memory.

        Raises
        ------
        UnsupportedError
            If torch has no such element type.
        """
        return maker(device, shape, dtype, kind == "torch_gpu")

    def thread_state(self) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function whose context records gradients in another thread if this one does."""
        return partial(torch.set_grad_enabled, torch.is_grad_enabled())

    def asks_for_autograd(self, value: torch.Tensor) -> bool:
        """Tell whether a call on a tensor has to be differentiable; part of its signature."""
        return (value.requires_grad and torch.is_grad_enabled()) or transformed(value)

    def call_for_autograd(self, function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """Make a call for PyTorch's graph, checked as far as it can be before it runs."""
        from slangpy_rt.interop.autograd import autograd_call

        return autograd_call(function, args, names)

    def draw(self, raster: Any, faces: Any, named: dict[str, Any]) -> Any:
        """Draw a picture of triangles on tensors, as a part of PyTorch's graph where it needs gradients."""
        from slangpy_rt.interop.raster import draw

        return draw(raster, faces, named)

    def step(self, task: Any, faces: Any, named: dict[str, Any]) -> Any:
        """Call a step of drawing on tensors, as a part of PyTorch's graph where it needs gradients."""
        from slangpy_rt.interop.step import step

        return step(task, faces, named)


def _of_slang(found: re.Match[str]) -> str:
    """Return how a tensor of PyTorch is converted to a type that is named as in Slang."""
    dtype = NUMPY_OF.get(found[1])
    return found[0] if dtype is None or found[1] == "bfloat16" else f"tensor.to(torch.{dtype.name})"
