"""OwnArrays: Tensor and NDBuffer in products."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.dtypes import element_type, scalar_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore


class OwnArrays(Arrays):
    """Tensor and NDBuffer."""

    name = "a Tensor or an NDBuffer"

    def view(self, array: NDBuffer) -> View:
        layout = array.layout
        return View(layout.element.name, layout.full_shape, layout.strides)

    def strided(self, array: NDBuffer, view: View, stored: str) -> NDBuffer:
        address = array.address + view.offset * array.layout.unit
        layout = layout_of(array.device, Tensor, scalar_type(stored), view.shape, view.strides, address % 32 == 0)
        return Tensor.of(layout, array.buffer, address)

    def empty(self, device: DeviceCore, shape: Shape, element: str, like: NDBuffer) -> NDBuffer:
        if element == "bfloat16":
            raise BindError(
                "matmul: out_dtype is bfloat16, of which there are no new Tensors; give out_dtype='float'."
            )
        return type(like)(device, element, shape)

    def element(self, where: str, dtype: Any) -> str:
        return element_type(where, dtype).name

    def address(self, array: NDBuffer) -> int:
        return array.address

    def lies_on(self, device: DeviceCore, array: NDBuffer) -> bool:
        return array.device is device
