"""Frames and stages of memory of a device of slang-rhi, and its addresses. Nothing here calls slang-rhi."""

from __future__ import annotations

from typing import Any

import numpy as np

# Where an address without pointers has its descriptor, and what it may count: shaders/_spy_handles.slang.
HANDLE_SHIFT = 40
OFFSET_MASK = (1 << 32) - 1
_HANDLES = 1 << 24


class Stage:
    """Memory for copies from the host, and the batch after which it is free again."""

    __slots__ = ("batch", "buffer")

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.batch: Any = None


class Frame:
    """Argument blocks of one submission, which go to the device together."""

    __slots__ = ("address", "array", "data", "memory", "size", "used")

    def __init__(self, memory: Any, address: int, size: int) -> None:
        self.memory = memory
        self.address = address
        self.size = size
        self.used = 0
        self.array = np.zeros(size, np.uint8)
        self.data = self.array.data


def pack_address(handle: int, offset: int = 0) -> int:
    """Return the address of a byte behind a descriptor.

    Raises
    ------
    ValueError
        If the descriptor's index has more than 24 bits or the offset more than 32.
    """
    if not (0 <= handle < _HANDLES and 0 <= offset <= OFFSET_MASK):
        raise ValueError(f"descriptor {handle} and byte {offset}: an address has 24 bits of one and 32 of the other.")
    return handle << HANDLE_SHIFT | offset
