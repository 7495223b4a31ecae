"""How binaries and argument blocks of kernels that use thread groups begin. Nothing here makes or reads one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

# The first bytes of a binary from ``group_code``, and of SPIR-V.
MARK = b"slangpy_rt groups\n"
SPIRV = b"\x03\x02\x23\x07"
# After the mark: how many object files there are, and of each its size before it.
COUNT, SIZE = struct.Struct("<I"), struct.Struct("<Q")
# The number of groups each way, and the address and the bytes of what is written past the caches: before the argument
# block, whose 16 byte alignment it keeps.
HEAD = struct.Struct("<3qQq8x")
# Options of Slang's command line for a debugger: lines and variables in SPIR-V that is not optimized.
DEBUG_FLAGS = ("-g2", "-O0")


def packed(objects: Sequence[bytes]) -> bytes:
    """Return the binary of a kernel from its object file and the object files of the functions that it calls."""
    parts = (part for each in objects for part in (SIZE.pack(len(each)), each))
    return b"".join((MARK, COUNT.pack(len(objects)), *parts))


def unpacked(binary: bytes) -> list[bytes]:
    """Return the object files of a binary that begins with the mark."""
    at, found = len(MARK) + COUNT.size, []
    for _ in range(COUNT.unpack_from(binary, len(MARK))[0]):
        (size,) = SIZE.unpack_from(binary, at)
        found.append(binary[at + SIZE.size : at + SIZE.size + size])
        at += SIZE.size + size
    return found
