"""Finds addresses of memory that has none, in SPIR-V. ``target_code`` refuses such code: drivers crash at it."""

from __future__ import annotations

_POINTER, _CONVERT_POINTER = 32, 117  # OpTypePointer, OpConvertPtrToU
_PHYSICAL = 5349  # the storage class of memory with addresses, PhysicalStorageBuffer
_HEADER = 5  # words before the first instruction


def takes_address(code: bytes) -> bool:
    """Return whether SPIR-V makes a number of a pointer to shared memory, or to a variable of a thread.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    """
    # Most kernels hold no such instruction, and a search of all costs milliseconds.
    if (4 << 16 | _CONVERT_POINTER).to_bytes(4, "little") not in code:
        return False
    words = memoryview(code).cast("I")
    # Types of pointers without an address, and the values whose type is one of them.
    types: set[int] = set()
    values: set[int] = set()
    at = _HEADER
    while at < len(words):
        op, length = words[at] & 0xFFFF, words[at] >> 16
        if op == _POINTER and words[at + 2] != _PHYSICAL:
            types.add(words[at + 1])
        elif op == _CONVERT_POINTER and words[at + 3] in values:
            return True
        elif length > 2 and words[at + 1] in types:
            values.add(words[at + 2])
        at += length
    return False
