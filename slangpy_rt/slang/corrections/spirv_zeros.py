"""Gives variables in SPIR-V zeros as initial values, since Slang 2026.12 leaves static variables undefined.

A static variable of Slang becomes a variable of storage class Private, or Function if only the entry point uses it,
and Slang may split a struct into several variables. They cannot be told from other variables, so all get zeros.
"""

from __future__ import annotations

from slangpy_rt.slang import spirv
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.spirv_search import has, lacks
from slangpy_rt.slang.spirv import Assembly, instruction

_ARRAY, _STRUCT, _POINTER, _VARIABLE = 28, 30, 32, 59
_PRIVATE, _FUNCTION = 6, 7
# Opcodes of the types that OpConstantNull may have here: numbers, vectors, matrices (24) and pointers, but no images
# or ray queries.
_PLAIN = frozenset({spirv.TYPE_BOOL, spirv.TYPE_INT, spirv.TYPE_FLOAT, spirv.TYPE_VECTOR, 24, _POINTER})


def with_zeros(code: bytes) -> bytes:
    """Return a module in which each Private or Function variable has an initial value, zeros if it had none.

    ``%v = OpVariable %ptr Private`` becomes ``%v = OpVariable %ptr Private %null``. Variables of opaque types, such
    as images, stay as they are.

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
    # The variables have to come after the constants of zeros, which ``find`` has appended to the head.
    made = [zeroed(words) for words in private]
    module.body = [zeroed(words) if lacks(words, _FUNCTION) else words for words in module.body]
    module.head += made
    return module.bytes()


def _unset(words: spirv.Words) -> bool:
    return words[0] == 4 << 16 | _VARIABLE and words[3] in (_PRIVATE, _FUNCTION)


SPIRV_ZEROS = Correction(
    name="static variables in SPIR-V",
    why="Static variables without an initial value are undefined instead of zero.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=lambda code, emission: with_zeros(code) if emission.statics else code,
    canary=Canary(
        text="""
static float total;
void add(float x) { total += x; }
void canary(uniform float *p) { add(p[1]); add(p[2]); p[0] = total; }
""",
        wrong=has(_unset),
        right=lacks(_unset),
    ),
)
