"""Arrays for other libraries: by DLPack, by the array interfaces of NumPy and of CUDA, as tensors of PyTorch.

On a GPU, the library's stream waits for work on the array that the device has queued so far. Later work of both is
not ordered here.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.dlpack import CUDA, LEGACY, as_bfloat16, handed_over
from slangpy_rt.arrays.layout import Layout
from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.extras import foreign_streams
from slangpy_rt.core.dtypes import BFLOAT16
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.runtime.host_view import host_view


class DeviceArray(Protocol):
    """The attributes of an NDBuffer that are used here; a protocol, because ``ndbuffer`` imports this file."""

    address: int
    buffer: Buffer
    layout: Layout

    @property
    def summary(self) -> str:
        """Kind, element type and shape in words."""

    def host_view(self) -> npt.NDArray[Any]:
        """Return the array's memory as a NumPy array."""


def capsule(
    array: DeviceArray,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Make a DLPack capsule of an array; on a GPU, the consumer's ``stream`` waits for the device's work on it.

    Raises
    ------
    BufferError
        If the array cannot be shared without a copy.
    """
    device = array.layout.device
    if device.caps.dlpack_device != CUDA:
        try:
            # NumPy takes these parameters from 2.1 on.
            asked: dict[str, Any] = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
            view = _forward(array, _host_bits(array), bool(copy))
            made = view.__dlpack__(**{k: v for k, v in asked.items() if v is not None})
            return as_bfloat16(made) if array.layout.element is BFLOAT16 else made
        except UnsupportedError as error:
            raise BufferError(str(error)) from None
    if copy or (dl_device is not None and tuple(dl_device) != (CUDA, device.index)):
        raise BufferError(f"{array.summary} is shared where it lies, on {device!r}; copy it with to_numpy().")
    _refuse_structs(array)
    view = _forward(array, _bytes_of(array), False)
    # -1 says that the consumer orders its work itself.
    if stream != -1:
        wait_for(array, 0 if stream in (None, LEGACY) else int(stream))
    # The view has addresses of the GPU; nothing reads through it.
    made = handed_over(view, device.index, max_version)
    return as_bfloat16(made) if array.layout.element is BFLOAT16 else made


def place(array: DeviceArray) -> tuple[int, int]:
    """Return the DLPack device of an array: its type (1 for host memory, 2 for CUDA) and its number.

    Raises
    ------
    BufferError
        If other libraries cannot reach its memory.
    """
    device = array.layout.device
    kind = device.caps.dlpack_device
    if not kind:
        raise BufferError(f"{array.summary} lies in memory of {device!r}; copy it with to_numpy().")
    return kind, device.index if kind == CUDA else 0


def host_interface(array: DeviceArray) -> dict[str, Any]:
    """Return an array's ``__array_interface__`` for NumPy, version 3.

    Raises
    ------
    AttributeError
        If it does not lie in host memory, or holds structs.
    """
    if "zero_copy" not in array.layout.device.caps.features:
        raise AttributeError(f"{array.summary} lies in memory of {array.layout.device!r}; copy it with to_numpy().")
    # NumPy would show the gaps of a struct as fields, and has no name for bfloat16.
    if array.layout.numpy_dtype.names is not None:
        raise AttributeError(f"{array.summary} holds structs; copy it with to_numpy().")
    if array.layout.element is BFLOAT16:
        raise AttributeError(f"{array.summary} holds no type of NumPy's; take to_numpy(), host_view() or torch().")
    found: dict[str, Any] = array.host_view().__array_interface__
    return found


def cuda_interface(array: DeviceArray) -> dict[str, Any]:
    """Return the CUDA array interface of an array, version 3.

    Raises
    ------
    AttributeError
        If it does not lie on a CUDA GPU, or holds structs.
    """
    layout = array.layout
    if layout.device.caps.dlpack_device != CUDA:
        raise AttributeError(f"{array.summary} lies on {layout.device!r}, no CUDA GPU; copy it with to_numpy().")
    if layout.element is BFLOAT16:
        raise AttributeError(f"{array.summary} holds no type of the CUDA array interface; it goes by DLPack.")
    try:
        _refuse_structs(array)
        # PyTorch takes them for the strides of a dense array.
        strides = None if layout.contiguous else _forward(array, _bytes_of(array), False).strides
    except BufferError as error:
        raise AttributeError(str(error)) from None
    _gather(array)
    return {
        "version": 3,
        "shape": layout.full_shape,
        "typestr": layout.numpy_dtype.str,
        "strides": strides,
        "data": (array.address, False),
        "stream": layout.device.backend.queue.handle or LEGACY,
    }


def as_torch(array: DeviceArray) -> Any:
    """Make a tensor of PyTorch in the memory of an array.

    Raises
    ------
    BufferError
        If the array has negative strides.
    """
    import torch

    if array.layout.device.caps.dlpack_device != CUDA:
        host = torch.from_numpy(_forward(array, _host_bits(array), False))
        return host.view(torch.bfloat16) if array.layout.element is BFLOAT16 else host
    return torch.from_dlpack(array)  # type: ignore[attr-defined]


def _host_bits(array: DeviceArray) -> npt.NDArray[Any]:
    """Return an array in host memory as NumPy's, one of bfloat16 as integers."""
    if array.layout.element is not BFLOAT16:
        return array.host_view()
    layout = array.layout
    layout.device.check_open()
    if "zero_copy" not in layout.device.caps.features:
        raise UnsupportedError(f"{array.summary} lies in memory of {layout.device!r}; copy it with to_numpy().")
    return _bytes_of(array)


def _bytes_of(array: DeviceArray) -> npt.NDArray[Any]:
    """Return an array's memory as NumPy's, by the addresses that its device has."""
    layout = array.layout
    strides = tuple(s * layout.unit for s in layout.strides)
    return host_view(array.buffer, layout.full_shape, layout.numpy_dtype, array.address, strides)


def _forward(array: DeviceArray, view: npt.NDArray[Any], copied: bool) -> npt.NDArray[Any]:
    """Return a view for libraries without negative strides: PyTorch ends the process when DLPack brings some.

    Raises
    ------
    BufferError
        If the array has negative strides, where it has several elements, and is not going to be copied.
    """
    if copied or all(step >= 0 for step in view.strides):
        return view
    if all(step >= 0 or size == 1 for size, step in zip(view.shape, view.strides, strict=True)) or not view.size:
        # Strides that lead nowhere.
        return np.lib.stride_tricks.as_strided(view, strides=tuple(map(abs, view.strides)))
    raise BufferError(
        f"{array.summary} has negative strides, which tensors of other libraries do not have; copy it with copy() or "
        "to_numpy()."
    )


def wait_for(array: DeviceArray, stream: int) -> None:
    """Let a stream of another library wait for the device's work on an array."""
    device = array.layout.device
    device.check_open()
    _gather(array)
    queue, own = foreign_streams(device.backend).foreign_queue(stream), device.backend.queue
    if queue is not own:
        queue.wait(own.mark())


def _gather(array: DeviceArray) -> None:
    """Let the device's own queue wait for the work of its other streams on an array."""
    device = array.layout.device
    if device.ordered:
        with device.order.lock:
            device.order.order_use(device.order.main, (array.buffer,), (True,))


def _refuse_structs(array: DeviceArray) -> None:
    if array.layout.numpy_dtype.names is not None:
        raise BufferError(
            f"{array.summary} holds structs, which other libraries' arrays do not; copy it with to_numpy()."
        )
