"""Where the elements of a NumPy array lie in host memory."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

Find = Callable[[npt.NDArray[Any]], int]

# An array begins with Python's own header, and then the pointer to its elements (PyArrayObject_fields of NumPy).
_HEADER = object.__basicsize__
_pointer = c_void_p.from_address


def _read(array: npt.NDArray[Any]) -> int:
    return _pointer(id(array) + _HEADER).value or 0


def _ask(array: npt.NDArray[Any]) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _reads_right() -> bool:
    """Tell whether this Python and this NumPy keep an array's data pointer where ``address_of`` reads it."""
    whole = np.zeros(4, np.uint8)
    return np.ndarray.__basicsize__ > _HEADER and all(_read(a) == _ask(a) for a in (whole, whole[1:], whole[::-2]))


# 0.2 us; the interface takes 0.9, for it is a new dict each time.
address_of: Find = _read if _reads_right() else _ask
