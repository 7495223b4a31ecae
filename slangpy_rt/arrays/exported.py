"""Arrays on a CUDA GPU for other libraries: by DLPack, by the CUDA array interface, as tensors of PyTorch.

Whoever takes one waits for the device's work on it; what both do with it later they have to order themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slangpy_rt.arrays.dlpack import CUDA, LEGACY, handed_over
from slangpy_rt.backends.extras import foreign_streams
from slangpy_rt.runtime.host_view import host_view

if TYPE_CHECKING:
    from slangpy_rt.arrays.ndbuffer import NDBuffer


def capsule(
    array: NDBuffer,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A DLPack capsule; ``stream`` is the consumer's, which waits for the device's work on the array.

    Raises
    ------
    BufferError
        If the array cannot be handed over where it lies.
    """
    device = array.device
    if copy or (dl_device is not None and tuple(dl_device) != (CUDA, device.index)):
        raise BufferError(f"{array.summary} is handed over where it lies, on {device!r}; copy it with to_numpy().")
    _refuse_structs(array)
    # -1 says that the consumer orders its work itself.
    if stream != -1:
        wait_for(array, 0 if stream in (None, LEGACY) else int(stream))
    layout = array.layout
    strides = tuple(s * layout.unit for s in layout.strides)
    # Looks at memory of the GPU, which nobody reads through it.
    view = host_view(array.buffer, layout.full_shape, layout.numpy_dtype, array.address, strides)
    return handed_over(view, device.index, max_version)


def interface(array: NDBuffer) -> dict[str, Any]:
    """The CUDA array interface, version 3.

    Raises
    ------
    AttributeError
        If it holds structs.
    """
    layout = array.layout
    try:
        _refuse_structs(array)
    except BufferError as error:
        raise AttributeError(str(error)) from None
    _gather(array)
    return {
        "version": 3,
        "shape": layout.full_shape,
        "typestr": layout.numpy_dtype.str,
        "strides": None if layout.contiguous else tuple(s * layout.unit for s in layout.strides),
        "data": (array.address, False),
        "stream": layout.device.backend.queue.handle or LEGACY,
    }


def as_torch(array: NDBuffer) -> Any:
    """A tensor of PyTorch in the same memory."""
    import torch

    if array.device.name != "cuda":
        return torch.from_numpy(array.host_view())
    return torch.from_dlpack(array)  # type: ignore[attr-defined]


def wait_for(array: NDBuffer, stream: int) -> None:
    """Let a stream of another library wait for the device's work on an array."""
    device = array.device
    device.check_open()
    _gather(array)
    queue, own = foreign_streams(device.backend).guest_queue(stream), device.backend.queue
    if queue is not own:
        queue.wait(own.mark())


def _gather(array: NDBuffer) -> None:
    """Let the device's own queue wait for what its other streams do with an array."""
    device = array.device
    if device.ordered:
        with device.order.lock:
            device.order.order_use(device.order.main, (array.buffer,), (True,))


def _refuse_structs(array: NDBuffer) -> None:
    if array.layout.numpy_dtype.names is not None:
        raise BufferError(f"{array.summary} holds structs, which other libraries' arrays do not.")
