"""Opening a device that works in PyTorch's memory. It chooses a type and an index, and leaves the rest to Device."""

from __future__ import annotations

from typing import Any

import torch

from slangpy_rt.backends.selection import named
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device


def torch_device(type: str, options: dict[str, Any]) -> Device:
    """Open a device for ``slangpy_rt.create_torch_device``."""
    given = options.pop("index", None)
    name, index = named(type, 0 if given is None else given)
    index = -1 if given is None and ":" not in type else index
    if name == "cpu" or (name == "automatic" and not torch.cuda.is_available()):
        return Device("cpu", **options)
    if name == "vulkan":
        return Device("vulkan", index=max(index, 0), **options)
    if name not in ("cuda", "automatic"):
        raise UnsupportedError(
            f"create_torch_device: {in_words(type)} is not one of 'cuda', 'vulkan', 'cpu', 'automatic'."
        )
    if not torch.cuda.is_available():
        raise UnsupportedError(
            "create_torch_device: this PyTorch has no CUDA device; torch.cuda.is_available() is False."
        )
    index = torch.cuda.current_device() if index < 0 else index
    return Device("cuda", index=index, stream=torch.cuda.current_stream(index), **options)
