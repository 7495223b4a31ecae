"""Counts the bytes of each thread's variables and values in SPIR-V. ``target_code`` decides if they are too many."""

from __future__ import annotations

_INT, _FLOAT, _VECTOR, _MATRIX, _ARRAY, _STRUCT, _POINTER = 21, 22, 23, 24, 28, 30, 32  # OpType...
_CONSTANT, _VARIABLE = 43, 59
# Instructions whose result may be a whole array that is in no variable: OpUndef, OpFunctionParameter, OpFunctionCall,
# OpLoad, OpCompositeConstruct, OpCompositeInsert, OpPhi.
_VALUES = frozenset({1, 55, 57, 61, 80, 82, 245})
_PRIVATE, _FUNCTION = 6, 7  # storage classes
_WORD = 4  # the size, in bytes, of a bool, and of a type that is not listed here


def local_bytes(code: bytes) -> int:
    """Return the bytes of all variables that each thread has, local and static ones, and of the largest value.

    A local array that is read and never written has no variable: Slang writes it as an undefined value. Padding is
    not counted. The variables of a function that Slang specialized twice are counted twice.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    """
    words = memoryview(code).cast("I")
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    pointees: dict[int, int] = {}
    total, largest, at, end = 0, 0, 5, len(words)
    while at < end:
        op, first = words[at] & 0xFFFF, words[at + 1] if words[at] >> 16 > 1 else 0
        if op in (_INT, _FLOAT):
            sizes[first] = words[at + 2] // 8
        elif op in (_VECTOR, _MATRIX):
            sizes[first] = sizes.get(words[at + 2], _WORD) * words[at + 3]
        elif op == _ARRAY:
            sizes[first] = sizes.get(words[at + 2], _WORD) * values.get(words[at + 3], 1)
        elif op == _STRUCT:
            sizes[first] = sum(sizes.get(member, _WORD) for member in words[at + 2 : at + (words[at] >> 16)])
        elif op == _POINTER:
            sizes[first] = 8
            pointees[first] = words[at + 3]
        elif op == _CONSTANT:
            values[words[at + 2]] = words[at + 3]
        elif op == _VARIABLE and words[at + 3] in (_PRIVATE, _FUNCTION):
            total += sizes.get(pointees.get(first, 0), 0)
        elif op in _VALUES:
            largest = max(largest, sizes.get(first, 0))
        at += words[at] >> 16
    return total + largest
