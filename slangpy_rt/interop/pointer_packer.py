"""PointerPacker: arrays of another library that are used in place, by their addresses. It keeps no array."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.packer import Packer
from slangpy_rt.backends.base import Buffer
from slangpy_rt.interop.pointer_call import PointerCall

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class PointerPacker(Packer):
    """An array of another library that is used in place, by its ``data_ptr()``.

    Attributes
    ----------
    alike : callable
        Takes a call's arrays and returns a function that tells whether other dense arrays have the same signature, or
        None if there is no such check.
    """

    buffers = 1
    lasting = False
    call = PointerCall

    def __init__(
        self,
        device: DeviceCore,
        stream: Callable[[Any], int] | None,
        alike: Callable[[tuple[Any, ...]], Callable[..., bool] | None],
    ) -> None:
        self._placeholder = device.placeholder
        self.streams = () if stream is None else (stream,)
        self.alike = alike

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.data_ptr())
        buffers.append(self._placeholder)
