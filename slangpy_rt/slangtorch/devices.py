"""Devices: chooses the device for each call of a slang-torch module by the memory that its tensors lie in.

It knows nothing of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from slangpy_rt.arrays.dlpack import CUDA
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.device import Device
from slangpy_rt.interop.opened_devices import default_device
from slangpy_rt.interop.torch_memory import current_stream, lies_on
from slangpy_rt.slangtorch.errors import TensorError


class Place(NamedTuple):
    """How a device works on the tensors of one call.

    Attributes
    ----------
    device : Device
        The device.
    straight : bool
        Whether it works in the tensors' own memory; else they are copied to it and back.
    stream : callable or None
        Returns the handle of PyTorch's current stream, and ignores its argument; None if the work does not run on a
        stream of PyTorch.
    """

    device: Device
    straight: bool
    stream: Callable[[Any], int] | None


class Devices:
    """The devices of a module.

    Parameters
    ----------
    given : Device or None
        The device of all the module's kernels; None for the device on which the tensors of each call lie.
    """

    def __init__(self, given: Device | None) -> None:
        self.given = given
        self._places: dict[torch.device | None, Place] = {}

    def place(self, where: str, tensors: Sequence[torch.Tensor]) -> Place:
        """Return the Place for a call with these tensors; ``where`` is the call's name in messages.

        Raises
        ------
        TensorError
            If they lie on several devices, or on one whose memory the given device cannot use.
        UnsupportedError
            If there is no device for them.
        """
        first = tensors[0].device if tensors else None
        for tensor in tensors[1:]:
            if tensor.device != first:
                listed = " and ".join(sorted({str(tensor.device) for tensor in tensors}))
                raise TensorError(f"{where}: its tensors are on {listed}; move them to one device with .to(...).")
        found = self._places.get(first)
        # In a forked process the parent's devices are closed.
        if found is None or found.device.closed:
            found = self._places[first] = self._find(where, tensors[0] if tensors else None)
        return found

    def first(self) -> Device:
        """Return the device for work without tensors."""
        return self.given or default_device()

    def home(self, tensors: Sequence[torch.Tensor]) -> torch.device:
        """Return PyTorch's device on which a call with these tensors allocates others."""
        if tensors:
            there: torch.device = tensors[0].device
            return there
        if self.given is None:
            return torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
        on_gpu = self.given.caps.dlpack_device == CUDA
        return torch.device("cuda", self.given.index) if on_gpu else torch.device("cpu")

    def instead_of(self, device: Device) -> Place | None:
        """Return the Place of a call on tensors in host memory, for a kernel that the CPU device refuses.

        It is PyTorch's current GPU, to which the tensors are copied; None if there is none, or if the device is not
        the CPU or was given.
        """
        if self.given is not None or "zero_copy" not in device.caps.features or not torch.cuda.is_available():
            return None
        return Place(default_device(), False, None)

    def host(self) -> Device:
        """Return the device for host functions: the CPU, or, without a compiler for it, the kernels' device."""
        try:
            return default_device(-1)
        except UnsupportedError:
            return self.given or default_device(torch.cuda.current_device())

    def _find(self, where: str, tensor: torch.Tensor | None) -> Place:
        device = self.given
        if tensor is None:
            return Place(self.first(), True, None)
        there = tensor.device
        if there.type not in ("cpu", "cuda"):
            raise TensorError(f"{where}: its tensors are on {there}; move them to a CUDA device or to the CPU.")
        if device is None:
            device = default_device(-1 if there.type == "cpu" else there.index)
        straight = lies_on(device, tensor)
        if there.type != "cpu" and not straight:
            raise TensorError(f"{where}: a tensor is on {there}; {device!r} does not work there.")
        return Place(device, straight, current_stream(there.index) if straight and there.type == "cuda" else None)
