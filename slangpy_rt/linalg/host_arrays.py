"""HostArrays: NumPy's arrays, and lists of numbers, in products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.dtypes import NUMPY_OF, element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.interop.opened_devices import named_device
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

_ELEMENTS = {dtype: name for name, dtype in NUMPY_OF.items()}


class HostArrays(Arrays):
    """NumPy's arrays, and lists of numbers."""

    name = "a NumPy array"

    def view(self, array: np.ndarray[Any, Any]) -> View:
        size = array.dtype.itemsize
        # Strides that are no multiples of the element's size are those of fields of structured arrays.
        if any(s % size for s in array.strides):
            raise BindError("matmul: an array's elements do not lie at multiples of their size; pass a copy of it.")
        name = _ELEMENTS.get(array.dtype, array.dtype.name if array.dtype.isnative else str(array.dtype))
        return View(name, array.shape, tuple([s // size for s in array.strides]))

    def strided(self, array: np.ndarray[Any, Any], view: View, stored: str) -> np.ndarray[Any, Any]:
        dtype = NUMPY_OF[stored]
        size = dtype.itemsize
        address, read_only = array.__array_interface__["data"]
        found = {
            "data": (address + view.offset * size, read_only),
            "shape": view.shape,
            "strides": tuple([s * size for s in view.strides]),
            "typestr": dtype.str,
            "version": 3,
        }
        return np.asarray(_Memory(found, array))

    def empty(self, device: DeviceCore, shape: Shape, element: str, like: Any) -> np.ndarray[Any, Any]:
        dtype: Any = NUMPY_OF.get(element)
        if dtype is None:
            dtype = like.dtype if like.dtype.name == element else None
        if dtype is None:
            raise BindError(f"matmul: NumPy has no element type '{element}' for the result.")
        return np.empty(shape, dtype)

    def element(self, where: str, dtype: Any) -> str:
        return element_type(where, dtype).name

    def copied(self, array: np.ndarray[Any, Any], commands: CommandList | None) -> np.ndarray[Any, Any]:
        return array.copy()

    def signature(self, array: np.ndarray[Any, Any]) -> Any:
        return array.dtype, array.shape, array.strides, array.flags.writeable

    def device(self, array: np.ndarray[Any, Any], given: DeviceCore | None) -> DeviceCore:
        return named_device("automatic") if given is None else given

    def launch(self, device: DeviceCore, array: np.ndarray[Any, Any]) -> Callable[..., None]:
        return device.launch

    def address(self, array: np.ndarray[Any, Any]) -> int:
        found: int = array.__array_interface__["data"][0]
        return found

    def lies_on(self, device: DeviceCore, array: np.ndarray[Any, Any]) -> bool:
        return "zero_copy" in device.caps.features

    def check_writable(self, array: np.ndarray[Any, Any]) -> None:
        if not array.flags.writeable:
            raise BindError("matmul: out must not be changed; pass a writable array.")


class _Memory:
    """Memory by NumPy's protocol."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self._owner = owner
