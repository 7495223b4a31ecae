"""Numbers of bfloat16 in host memory: the bits that floats round to, and arrays of them for users.

NumPy has no such type; the package ml_dtypes adds it, and is needed only where a NumPy array of it is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.dtypes import cast, is_bfloat16
from slangpy_rt.core.errors import BindError


def bits_of(what: str, array: npt.NDArray[Any], listed: bool = False) -> npt.NDArray[np.uint16]:
    """Return an array's numbers as bits of bfloat16, rounded to the nearest, ties to even.

    Parameters
    ----------
    what, array, listed
        As for ``cast``.

    Raises
    ------
    BindError
        If the dtype is of a kind that does not convert to a float, or a number is beyond the range.
    """
    if is_bfloat16(array.dtype):
        return array.view(np.uint16)
    floats = cast(what, "bfloat16", array, np.dtype(np.float32), listed)
    bits = floats.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    lost = ((nearest & 0x7FFF) == 0x7F80) & np.isfinite(floats)
    if lost.any():
        raise BindError(f"{what} holds {floats[lost].flat[0]}, which does not fit 'bfloat16'.")
    # The sum could carry a NaN beyond all bits, or leave those of infinity.
    return np.where(np.isnan(floats), bits >> np.uint32(16) | np.uint32(0x40), nearest).astype(np.uint16)


def floats_of(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the numbers whose bits of bfloat16 an array holds."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def seen_as_bfloat16(where: str, bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of bits as a NumPy array of bfloat16, in the same memory.

    Raises
    ------
    BindError
        If the package ml_dtypes is not there.
    """
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise BindError(
            f"{where}: NumPy knows 'bfloat16' with the package ml_dtypes alone; install that, or use tensor.torch() "
            "on devices in host memory and on CUDA."
        ) from None
    return bits.view(bfloat16)
