"""Snapshot: the contents of the arguments that a call writes, kept on the device and written back after each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.errors import BindError, SlangPyRtError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.tuning.comparison import as_arrays


class Snapshot:
    """Copies of arguments, gradients included.

    Parameters
    ----------
    where : str
        The function, for messages.
    device : DeviceCore
        The device whose memory is copied.
    values : iterable
        The arguments that are written: arrays, or dicts, lists and objects that hold arrays.

    Raises
    ------
    BindError
        If an argument is of a type whose contents cannot be kept.
    OutOfMemoryError
        If the device has no memory for the copies.
    """

    def __init__(self, where: str, device: DeviceCore, values: list[Any]) -> None:
        self._where = where
        self._device = device
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()
        self.arrays: list[Any] = []
        for value in values:
            self._keep(value)

    def restore(self) -> None:
        """Write the contents back.

        Raises
        ------
        DeviceError
            If the device refuses a copy, as one that was closed; all other contents are back then.
        """
        failed: SlangPyRtError | None = None
        for undo in self._undo:
            try:
                undo()
            except SlangPyRtError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def results(self) -> list[np.ndarray[Any, Any]]:
        """Return the present contents of the arguments as NumPy arrays of their own memory."""
        return [array for a in self.arrays for array in as_arrays(a.value if isinstance(a, ValueRef) else a)]

    def _keep(self, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, (bool, int, float, str, bytes, np.generic, type(None))):
            return
        self._seen.add(id(value))
        stand_in = converter(type(value))
        if isinstance(value, NDBuffer):
            self._keep_array(value)
            if isinstance(value, Tensor):
                self._keep(value.grad_in)
                self._keep(value.grad_out)
        elif isinstance(value, np.ndarray):
            copy = value.copy()
            self.arrays.append(value)
            self._undo.append(lambda: np.copyto(value, copy))
        elif isinstance(value, ValueRef):
            kept = value.value
            self.arrays.append(value)
            self._undo.append(lambda: setattr(value, "value", kept))
            if isinstance(value, DiffPair):
                gradient = value.grad
                self._undo.append(lambda: setattr(value, "grad", gradient))
        elif isinstance(stand_in, Adapter):
            self._keep(stand_in.on(self._device, value))
        elif (fields := fields_of(value)) is not None:
            for item in fields.values():
                self._keep(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._keep(item)
        elif hasattr(value, "__dict__"):
            for item in list(vars(value).values()):
                self._keep(item)
        else:
            raise BindError(
                f"{self._where}: tuning writes to an argument and has to write its contents back, which it cannot "
                f"for {in_words(value)}; pass a Tensor, an NDBuffer or an array."
            )

    def _keep_array(self, array: NDBuffer) -> None:
        """Copy the bytes from the array's lowest to its highest element; views with gaps keep the gaps too."""
        low, high = array.layout.span
        self.arrays.append(array)
        if high <= low:
            return
        device, nbytes = self._device, high - low
        source, offset = array.buffer, array.address + low - array.buffer.address
        copy = device.alloc(nbytes)
        queue = device.backend.queue
        queue.copy(copy, 0, source, offset, nbytes)
        self._undo.append(lambda: queue.copy(source, offset, copy, 0, nbytes))
