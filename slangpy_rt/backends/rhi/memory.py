"""Memory for argument blocks and uploads of a device of slang-rhi, and addresses. Nothing here calls slang-rhi."""

from __future__ import annotations

from typing import Any

import numpy as np

# On a device without pointers an address has the index of a descriptor from bit 40 on, and an offset of 32 bits
# (shaders/_spy_handles.slang).
HANDLE_SHIFT = 40
OFFSET_MASK = (1 << 32) - 1
_HANDLES = 1 << 24


class Stage:
    """A buffer for uploads, and the batch that reads it: it may be written again when that is done."""

    __slots__ = ("batch", "buffer")

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.batch: Any = None


class Frame:
    """Memory for argument blocks of one submission, which are copied to the device together.

    Attributes
    ----------
    memory : object
        The buffer of slang-rhi.
    address : int
        Its address, as kernels take it.
    array, data : numpy.ndarray, memoryview
        ``size`` bytes of host memory, which are copied to the buffer.
    used : int
        Bytes that have argument blocks.
    """

    __slots__ = ("address", "array", "data", "memory", "size", "used")

    def __init__(self, memory: Any, address: int, size: int) -> None:
        self.memory = memory
        self.address = address
        self.size = size
        self.used = 0
        self.array = np.zeros(size, np.uint8)
        self.data = self.array.data


def pack_address(handle: int, offset: int = 0) -> int:
    """Return the address of a byte, on a device without pointers, of its descriptor's index and its offset in bytes.

    Raises
    ------
    ValueError
        If the descriptor's index has more than 24 bits or the offset more than 32.
    """
    if not (0 <= handle < _HANDLES and 0 <= offset <= OFFSET_MASK):
        raise ValueError(f"descriptor {handle} and byte {offset}: an address has 24 bits of one and 32 of the other.")
    return handle << HANDLE_SHIFT | offset
