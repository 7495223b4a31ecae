"""NumPy arrays on a buffer's host memory, which keep the buffer alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.shapes import Shape

if TYPE_CHECKING:
    from slangpy_rt.backends.host_blocks import HostBlock

# Results from this size on lie in memory of the device's pools.
POOLED_BYTES = 1 << 20


class _HostView:
    """The owner of an array's memory: it keeps a buffer alive as long as the array lives."""

    def __init__(self, buffer: Buffer | HostBlock, interface: dict[str, Any]) -> None:
        self._buffer = buffer
        self.__array_interface__ = interface


def host_view(
    buffer: Buffer | HostBlock,
    shape: Shape,
    dtype: np.dtype[Any],
    address: int | None = None,
    strides: Shape | None = None,
) -> npt.NDArray[Any]:
    """Return host memory of a buffer, by default from its first byte on, as an array that keeps the buffer alive."""
    interface = {
        "version": 3, "shape": shape, "strides": strides, "typestr": dtype.str,
        "data": (buffer.address if address is None else address, False),
    }  # fmt: skip
    # The interface would tell of a struct's padding as of fields.
    seen = np.asarray(_HostView(buffer, interface))
    return seen if dtype.names is None else seen.view(dtype)
