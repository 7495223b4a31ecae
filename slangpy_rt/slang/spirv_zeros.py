"""Gives variables in SPIR-V zeros as initial values, which Slang 2026.12 leaves undefined.

A static variable is one of storage class Private, or Function where only the entry point uses it, and Slang may make
several of one struct: nothing tells them from other variables.
"""

from __future__ import annotations

from slangpy_rt.slang import spirv
from slangpy_rt.slang.spirv import Assembly, instruction

_ARRAY, _STRUCT, _POINTER, _VARIABLE = 28, 30, 32, 59
_PRIVATE, _FUNCTION = 6, 7
# Numbers, vectors, matrices and pointers; not images, ray queries and the like.
_PLAIN = frozenset({spirv.TYPE_BOOL, spirv.TYPE_INT, spirv.TYPE_FLOAT, spirv.TYPE_VECTOR, 24, _POINTER})


def with_zeros(code: bytes) -> bytes:
    """Return a module in which each variable of a thread's own begins with an initial value, zeros if it had none.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    """
    module = Assembly(code)
    plain: set[int] = set()
    pointees: dict[int, int] = {}
    for words in module.head:
        op = words[0] & 0xFFFF
        if op in _PLAIN or (op == _ARRAY and words[2] in plain) or (op == _STRUCT and plain.issuperset(words[2:])):
            plain.add(words[1])
        if op == _POINTER:
            pointees[words[1]] = words[3]

    def zeroed(words: spirv.Words) -> spirv.Words:
        null = module.find(spirv.CONSTANT_NULL, pointees[words[1]])
        return instruction(_VARIABLE, *words[1:], null)

    def lacks(words: spirv.Words, storage: int) -> bool:
        bare = words[0] == 4 << 16 | _VARIABLE and words[3] == storage
        return bare and pointees[words[1]] in plain

    private = [words for words in module.head if lacks(words, _PRIVATE)]
    module.head = [words for words in module.head if not lacks(words, _PRIVATE)]
    # The variables come behind the constants of zeros, which ``find`` has added.
    made = [zeroed(words) for words in private]
    module.body = [zeroed(words) if lacks(words, _FUNCTION) else words for words in module.body]
    module.head += made
    return module.bytes()
