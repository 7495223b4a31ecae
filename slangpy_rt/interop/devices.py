"""Devices that work where PyTorch works."""

from __future__ import annotations

from typing import Any

import torch

from slangpy_rt.device import Device
from slangpy_rt.errors import UnsupportedError


def torch_device(type: str, options: dict[str, Any]) -> Device:
    """As ``slangpy_rt.create_torch_device``."""
    name, _, number = type.partition(":")
    if name == "cpu" or (name == "automatic" and not torch.cuda.is_available()):
        return Device("cpu", **options)
    if name == "vulkan":
        return Device(type, **options)
    if name not in ("cuda", "automatic"):
        raise UnsupportedError(f"create_torch_device: {type!r} is not one of 'cuda', 'vulkan', 'cpu', 'automatic'.")
    if not torch.cuda.is_available():
        raise UnsupportedError(
            "create_torch_device: this PyTorch has no CUDA device; torch.cuda.is_available() is False."
        )
    index = int(number) if number else torch.cuda.current_device()
    return Device("cuda", index=index, stream=torch.cuda.current_stream(index), **options)
