"""Host memory that an array's contents are copied to. It works on layouts and copies nothing from a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.layout import Layout
from slangpy_rt.core.checks import no_memory
from slangpy_rt.core.dtypes import BFLOAT16
from slangpy_rt.core.errors import OutOfMemoryError


def host_memory(where: str, layout: Layout) -> tuple[npt.NDArray[Any], int]:
    """Allocate host memory for an array's contents.

    Returns
    -------
    tuple of (numpy.ndarray, int)
        The memory, and the offset of its first byte from the array's address; it is negative if strides are.

    Raises
    ------
    OutOfMemoryError
        If the host has no such memory.
    """
    try:
        if layout.contiguous:
            return layout.device.host_array(layout.full_shape, layout.numpy_dtype), 0
        reach = [(n - 1) * s * layout.unit for n, s in zip(layout.full_shape, layout.strides, strict=True)]
        first, last = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
        # An array without elements has no first byte.
        size = last - first + layout.numpy_dtype.itemsize if 0 not in layout.full_shape else 0
        return np.empty(size, np.uint8), first
    except OutOfMemoryError:
        raise  # the device's, with its own message
    except MemoryError as error:
        raise no_memory(where, error) from None


def seen_in(where: str, layout: Layout, host: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
    """Return filled memory of ``host_memory`` as an array of the layout's shape, without gaps.

    Raises
    ------
    OutOfMemoryError
        If the host has no memory for a copy without gaps.
    BindError
        If NumPy does not know the element type.
    """
    return shown_to_numpy(where, layout, _dense(where, layout, host, first))


def shown_to_numpy(where: str, layout: Layout, host: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as users see it: of bfloat16, if its integers are the bits of such numbers.

    Raises
    ------
    BindError
        If NumPy does not know the element type.
    """
    if layout.element is not BFLOAT16:
        return host
    from slangpy_rt.core.bfloat16 import seen_as_bfloat16

    return seen_as_bfloat16(where, host)


def _dense(where: str, layout: Layout, host: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
    if layout.contiguous:
        return host
    strides = tuple(s * layout.unit for s in layout.strides)
    if not host.nbytes:
        return np.empty(layout.full_shape, layout.numpy_dtype)
    try:
        return np.ndarray(layout.full_shape, layout.numpy_dtype, host.data, -first, strides).copy()
    except MemoryError as error:
        raise no_memory(where, error) from None
