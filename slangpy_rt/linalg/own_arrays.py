"""OwnArrays: Tensor and NDBuffer in products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slangpy_rt.arguments.signature import carries_gradients
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.base import Buffer
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.dtypes import element_type, scalar_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.overlap import Walk
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore, another


class OwnArrays(Arrays):
    """Tensor and NDBuffer."""

    name = "a Tensor or an NDBuffer"
    recorded = True

    def is_array(self, value: Any) -> bool:
        return isinstance(value, NDBuffer)

    def view(self, array: NDBuffer) -> View:
        layout = array.layout
        return View(layout.element.name, layout.full_shape, layout.strides)

    def strided(self, array: NDBuffer, view: View, stored: str) -> NDBuffer:
        address = array.address + view.offset * array.layout.unit
        layout = layout_of(array.device, Tensor, scalar_type(stored), view.shape, view.strides, address % 32 == 0)
        return Tensor.of(layout, array.buffer, address)

    def empty(self, device: DeviceCore, shape: Shape, element: str, like: NDBuffer) -> NDBuffer:
        return type(like)(device, element, shape)

    def copied(self, array: NDBuffer, commands: CommandList | None) -> NDBuffer:
        layout, device = array.layout, array.device
        # All bytes from the first to the last element, so that the strides stay the same.
        low, high = Walk(layout.strides, (), 1).span(layout.full_shape)
        element = scalar_type("int16_t") if layout.element.name == "bfloat16" else layout.element
        start = array.address + low * layout.unit
        span = NDBuffer.of(
            layout_of(device, NDBuffer, element, (high - low,), None, start % 32 == 0), array.buffer, start
        )
        to = NDBuffer(device, element, high - low)
        found = CommandList(device) if commands is None else commands
        found.copy(to, span)
        if commands is None:
            found.submit()
        at = to.address - low * layout.unit
        copy = layout_of(device, Tensor, layout.element, layout.full_shape, layout.strides, at % 32 == 0)
        return Tensor.of(copy, to.buffer, at)

    def check_place(self, device: DeviceCore, values: Mapping[str, NDBuffer]) -> None:
        for name, value in values.items():
            if value.device is not device:
                raise BindError(
                    f"matmul: {name} lies on {value.device!r}, and the product runs on "
                    f"{another(device, value.device)}; copy it there."
                )

    def element(self, where: str, dtype: Any) -> str:
        return element_type(where, dtype).name

    def signature(self, array: NDBuffer) -> Any:
        # Arrays of equal layouts have one, which knows the device. In a block of grad_tape, known products of arrays
        # with gradients are not repeated.
        layout = array.layout
        return layout if layout.grads is None else (layout, RECORDER.get() is None)

    def records(self, values: Sequence[NDBuffer]) -> bool:
        return RECORDER.get() is not None and any(map(carries_gradients, values))

    def device(self, array: NDBuffer, given: DeviceCore | None) -> DeviceCore:
        return array.layout.device if given is None else given

    def launch(self, device: DeviceCore, array: NDBuffer) -> Callable[..., None]:
        return device.launch

    def buffers(self, arrays: Sequence[NDBuffer]) -> Sequence[Buffer]:
        return [array.buffer for array in arrays]

    def address(self, array: NDBuffer) -> int:
        return array.address

    def lies_on(self, device: DeviceCore, array: NDBuffer) -> bool:
        return array.device is device
