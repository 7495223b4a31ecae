"""Devices for calls that name none, by the memory of the call's tensors; each is opened once in a process."""

from __future__ import annotations

import os
import threading

from slangpy_rt.device import Device


def default_device(index: int | None = None) -> Device:
    """Return the device for tensors on the GPU of this index, or, for -1, in host memory.

    Without an index it is PyTorch's current GPU, or the CPU if PyTorch has no GPU.

    Raises
    ------
    UnsupportedError
        If there is none.
    """
    if index is None:
        import torch

        index = torch.cuda.current_device() if torch.cuda.is_available() else -1
    return _opened("cpu", -1) if index < 0 else _opened("cuda", index)


def named_device(kind: str) -> Device:
    """Return the device of a type that ``Device`` takes, such as ``"vulkan"``."""
    return _opened(kind, -1)


# By type, index and process: a forked process cannot use the devices of its parent.
_devices: dict[tuple[str, int, int], Device] = {}
_opening = threading.Lock()


def _opened(kind: str, index: int) -> Device:
    """Return a device that is opened once, and again after it was closed."""
    key = kind, index, os.getpid()
    with _opening:
        found = _devices.get(key)
        if found is None or found.closed:
            if kind == "cpu":
                found = Device("cpu")
            else:
                found = _on_torch(index) if index >= 0 else Device(kind)
            _devices[key] = found
        return found


def _on_torch(index: int) -> Device:
    from slangpy_rt.interop.devices import torch_device

    return torch_device("cuda", {"index": index})
