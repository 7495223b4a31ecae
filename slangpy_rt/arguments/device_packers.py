"""Packers of arrays on the device: their addresses. They move no data."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arguments.packer import Packer
from slangpy_rt.backends.base import Buffer


class ArrayPacker(Packer):
    """A Tensor or NDBuffer: its address."""

    buffers = 1
    finds = (None,)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.address)
        buffers.append(value.buffer)


class FieldPacker(Packer):
    """One field of an array of structs: where it begins in the first of them."""

    buffers = 1

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.address + self.offset)
        buffers.append(value.buffer)
