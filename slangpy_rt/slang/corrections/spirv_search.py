"""Tests of SPIR-V that canaries consist of: whether a module has an instruction."""

from __future__ import annotations

import array
from collections.abc import Callable

from slangpy_rt.slang.spirv import Words, instructions

_MAGIC = (0x07230203).to_bytes(4, "little")


def has(test: Callable[[Words], bool]) -> Callable[[bytes], bool]:
    """Return a test of SPIR-V: whether `test` is true of an instruction, given as its words."""
    return lambda code: any(map(test, _every(code)))


def lacks(test: Callable[[Words], bool]) -> Callable[[bytes], bool]:
    """Return a test of SPIR-V: whether `test` is true of no instruction. It is false for what is no SPIR-V."""
    return lambda code: code.startswith(_MAGIC) and not any(map(test, _every(code)))


def uses(value: tuple[int, ...], op: int) -> Callable[[bytes], bool]:
    """Return a test of SPIR-V: whether an instruction `op` has the constant with the words `value` as an operand."""

    def found(code: bytes) -> bool:
        every = _every(code)
        ids = {words[2] for words in every if words[0] & 0xFFFF == 43 and tuple(words[3:]) == value}  # OpConstant
        return any(words[0] & 0xFFFF == op and not ids.isdisjoint(words[3:]) for words in every)

    return found


def _every(code: bytes) -> list[Words]:
    return list(instructions(array.array("I", code).tolist())) if code.startswith(_MAGIC) else []
