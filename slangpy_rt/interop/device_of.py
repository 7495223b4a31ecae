"""The device that a call runs on if the user names none: that of the memory in which its arrays lie."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.errors import BindError
from slangpy_rt.device import Device
from slangpy_rt.interop.opened_devices import default_device, named_device


def device_of(where: str, values: Sequence[Any]) -> Device:
    """Return the device of the first array of this package's, or else the device for PyTorch's tensors.

    Without either, as for NumPy's arrays, it is the first device that works here, opened once in a process.

    Raises
    ------
    BindError
        If PyTorch's tensors lie on several devices, or on one that there is no device for.
    UnsupportedError
        If there is no device.
    """
    torch = sys.modules.get("torch")
    places = []
    for value in values:
        if isinstance(value, NDBuffer):
            # Arrays are made with a public Device, and know it as the part that they use.
            return value.device  # type: ignore[return-value]
        if torch is not None and isinstance(value, torch.Tensor):
            places.append(value.device)
    if not places:
        return named_device("automatic")
    if len(set(places)) > 1:
        listed = " and ".join(sorted(set(map(str, places))))
        raise BindError(f"{where}: its tensors are on {listed}; move them to one device with .to(...).")
    if places[0].type not in ("cpu", "cuda"):
        raise BindError(f"{where}: its tensors are on {places[0]}; move them to a CUDA device or to the CPU.")
    return default_device(-1 if places[0].type == "cpu" else places[0].index)
