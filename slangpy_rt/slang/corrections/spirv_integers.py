"""Replaces SPIR-V instructions that Slang 2026.12 applies to integers, and that SPIR-V has for other types only.

Slang writes ``mad`` of integers as Fma, ``abs`` of an unsigned number as SAbs, and ``firstbitlow`` of 8 and 16 bits
as FindILsb, which "is currently limited to 32-bit width components": drivers compute garbage, or end the process. For
64 bits Slang writes FindILsb of each half, which is right. SPIR-V has only matrices of floats; Slang writes matrices
of int, uint and bool as arrays, but those of other integers as matrices. A module without these defects is returned
as it is.
"""

from __future__ import annotations

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang import spirv
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.spirv_search import has, lacks
from slangpy_rt.slang.spirv import Assembly, Words, instruction

# Numbers of instructions in GLSL.std.450.
_S_ABS, _FMA, _FIND_I_LSB = 5, 50, 73
_FIELDS = {201: "bitfieldInsert", 202: "bitfieldExtract", 203: "bitfieldExtract"}
_I_ADD, _I_MUL, _COPY, _U_CONVERT = 128, 132, 83, 113
_TYPE_MATRIX, _TYPE_ARRAY = 24, 28
_S_CONVERT, _S_NEGATE, _SHIFT_RIGHT, _SHIFT_LEFT = 114, 126, 195, 196  # OpShiftRightArithmetic, OpShiftLeftLogical


def with_integers(code: bytes) -> bytes:
    """Return a module without the instructions and types that SPIR-V lacks for integers: see this file's docstring.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    """
    code = _with_rows(code)
    words = memoryview(code).cast("I")
    at, end = 5, len(words)
    while at < end and not (words[at] & 0xFFFF == spirv.EXT_INST and words[at + 4] in (_S_ABS, _FMA, _FIND_I_LSB)):
        at += words[at] >> 16
    if at >= end:
        return code
    module = Assembly(code)
    signs: dict[int, int] = {}
    # The number of components of each type of 8-bit or 16-bit integers, by the type's id.
    short: dict[int, int] = {}
    for found in module.head:
        if found[0] & 0xFFFF == spirv.TYPE_INT:
            signs[found[1]] = found[3]
            if found[2] < 32:
                short[found[1]] = 1
        elif found[0] & 0xFFFF == spirv.TYPE_VECTOR and found[2] in signs:
            signs[found[1]] = signs[found[2]]
            if found[2] in short:
                short[found[1]] = found[3]
    # The same by the ids of values. If the first operand of an instruction is a type, the second is the result.
    values = {
        found[2]: short[found[1]] for found in (*module.head, *module.body) if len(found) > 2 and found[1] in short
    }
    old, module.body = module.body, []
    for found in old:
        module.body += _replaced(module, found, signs, values)
    return module.bytes()


def with_negatives(code: bytes) -> bytes:
    """Return a module in which 8-bit and 16-bit integers are negated as 32-bit ones and then sign-extended.

    NVIDIA's driver for Vulkan (on an H100) moves the negation after a conversion that follows it: ``int(-a)`` of the
    least int16_t is 32768 there, and ``-a < b`` is false. ``OpSNegate %short %a`` becomes
    ``short(-int(a) << 16 >> 16)``.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    """
    words = memoryview(code).cast("I")
    at, end = 5, len(words)
    while at < end and words[at] & 0xFFFF != _S_NEGATE:
        at += words[at] >> 16
    if at >= end:
        return code
    module = Assembly(code)
    # The number of bits and the number of components of each type of signed narrow integers, by the type's id.
    narrow: dict[int, tuple[int, int]] = {}
    for found in module.head:
        if found[0] & 0xFFFF == spirv.TYPE_INT and found[2] < 32 and found[3]:
            narrow[found[1]] = found[2], 1
        elif found[0] & 0xFFFF == spirv.TYPE_VECTOR and found[2] in narrow:
            narrow[found[1]] = narrow[found[2]][0], found[3]
    if not narrow:
        return code
    old, module.body = module.body, []
    for found in old:
        negates = found[0] & 0xFFFF == _S_NEGATE and found[1] in narrow
        module.body += _negated(module, found, *narrow[found[1]]) if negates else [found]
    return module.bytes()


_NO_FIELDS = (
    "the function uses {used}, which SPIR-V for Vulkan has for 32 bits alone, of numbers of 64 bits or of vectors of "
    "8 or 16 bits. Shift and mask the number instead, or use a device of type cuda or cpu."
)


def lacking_integer(code: bytes) -> str:
    """Return a description of the defects that ``with_integers`` corrects; empty if a module has none of them."""
    if with_integers(code) == code:
        return ""
    return "mad of integers, abs of an unsigned number, firstbitlow of 8 or 16 bits, or a matrix of 8, 16 or 64 bits"


def lacking_fields(code: bytes) -> str:
    """Return the name of a bit field function that is applied to integers of other than 32 bits, or an empty string.

    SPIR-V for Vulkan lacks these. For vectors of 8 and 16 bits Slang also writes a scalar type as that of the result.
    """
    words = memoryview(code).cast("I")
    at, end = 5, len(words)
    while at < end and words[at] & 0xFFFF not in _FIELDS:
        at += words[at] >> 16
    if at >= end:
        return ""
    module = Assembly(code)
    widths: dict[int, int] = {}
    for found in module.head:
        if found[0] & 0xFFFF == spirv.TYPE_INT:
            widths[found[1]] = found[2]
        elif found[0] & 0xFFFF == spirv.TYPE_VECTOR and found[2] in widths:
            widths[found[1]] = widths[found[2]]
    types = {found[2]: found[1] for found in (*module.head, *module.body) if len(found) > 2 and found[1] in widths}
    for found in module.body:
        name = _FIELDS.get(found[0] & 0xFFFF)
        if name and (widths[found[1]] != 32 or types[found[3]] != found[1]):
            return name
    return ""


def _with_rows(code: bytes) -> bytes:
    """Return a module in which matrices of integers are arrays of their rows.

    ``OpTypeMatrix %v3long 2`` becomes ``OpTypeArray %v3long %2``. The instructions that Slang applies to a matrix
    (loads, stores, OpCompositeConstruct, OpCompositeExtract, access chains) may be applied to arrays too.
    """
    words = memoryview(code).cast("I")
    at, end, integers, found = 5, len(words), set(), False
    while at < end and words[at] & 0xFFFF != spirv.FUNCTION:
        op = words[at] & 0xFFFF
        if op == spirv.TYPE_INT or (op == spirv.TYPE_VECTOR and words[at + 2] in integers):
            integers.add(words[at + 1])
        elif op == _TYPE_MATRIX and words[at + 2] in integers:
            found = True
        at += words[at] >> 16
    if not found:
        return code
    module = Assembly(code)
    uint = module.find(spirv.TYPE_INT, 32, 0)
    first: list[Words] = []
    rest: list[Words] = []
    counts = {k: module.find(spirv.CONSTANT, uint, k) for k in (1, 2, 3, 4)}
    for instruct in module.head:
        op = instruct[0] & 0xFFFF
        if op == _TYPE_MATRIX and instruct[2] in integers:
            instruct = instruction(_TYPE_ARRAY, instruct[1], instruct[2], counts[instruct[3]])
        moved = (op == spirv.TYPE_INT and instruct[1] == uint) or (
            op == spirv.CONSTANT and instruct[2] in counts.values()
        )
        (first if moved else rest).append(instruct)
    module.head = rest
    # SPIR-V demands that a type or constant is declared before its use, here by OpTypeArray.
    module.declare_first(first)
    return module.bytes()


def _negated(module: Assembly, words: Words, bits: int, size: int) -> list[Words]:
    wide = module.find(spirv.TYPE_INT, 32, 1)
    count = module.find(spirv.CONSTANT, wide, 32 - bits)
    if size > 1:
        wide = module.find(spirv.TYPE_VECTOR, wide, size)
        count = module.find(spirv.CONSTANT_COMPOSITE, wide, *[count] * size)
    widened, negative, shifted, value = (module.new_id() for _ in range(4))
    return [
        instruction(_S_CONVERT, wide, widened, words[3]),
        instruction(_S_NEGATE, wide, negative, widened),
        instruction(_SHIFT_LEFT, wide, shifted, negative, count),
        instruction(_SHIFT_RIGHT, wide, value, shifted, count),
        instruction(_S_CONVERT, words[1], words[2], value),
    ]


def _replaced(module: Assembly, words: Words, signs: dict[int, int], short: dict[int, int]) -> list[Words]:
    if words[0] & 0xFFFF != spirv.EXT_INST or words[1] not in signs:
        return [words]
    type_, result, number = words[1], words[2], words[4]
    if number == _FMA:
        product = module.new_id()
        return [
            instruction(_I_MUL, type_, product, words[5], words[6]),
            instruction(_I_ADD, type_, result, product, words[7]),
        ]
    if number == _FIND_I_LSB and words[5] in short:
        # Widening with zeros leaves the lowest set bit where it is.
        wide, size = module.find(spirv.TYPE_INT, 32, 0), short[words[5]]
        if size > 1:
            wide = module.find(spirv.TYPE_VECTOR, wide, size)
        whole = module.new_id()
        return [instruction(_U_CONVERT, wide, whole, words[5]), [*words[:5], whole]]
    if number == _S_ABS and not signs[type_]:
        return [instruction(_COPY, type_, result, words[5])]
    return [words]


def _repaired(code: bytes, emission: Emission) -> bytes:
    return with_integers(code)


def _refuse(code: bytes, emission: Emission) -> bytes:
    if used := lacking_fields(code):
        raise UnsupportedError(_NO_FIELDS.format(used=used))
    return code


def _fused(words: Words) -> bool:
    return words[0] & 0xFFFF == spirv.EXT_INST and words[4] == _FMA


def _absolute(words: Words) -> bool:
    return words[0] & 0xFFFF == spirv.EXT_INST and words[4] == _S_ABS


def _matrix(words: Words) -> bool:
    return words[0] & 0xFFFF == _TYPE_MATRIX


def _field(words: Words) -> bool:
    return words[0] & 0xFFFF in _FIELDS


def _lowest_of_16_bits(code: bytes) -> bool:
    """Return whether FindILsb is applied to a number of 16 bits."""
    short: set[int] = set()

    def found(words: Words) -> bool:
        op = words[0] & 0xFFFF
        if op == spirv.TYPE_INT and words[2] == 16:
            short.add(words[1])
        elif op != spirv.EXT_INST and len(words) > 2 and words[1] in short:
            short.add(words[2])
        return op == spirv.EXT_INST and words[4] == _FIND_I_LSB and words[5] in short

    return has(found)(code)


SPIRV_MAD = Correction(
    name="mad of integers in SPIR-V",
    why="Slang writes Fma, which is for floats.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform int *p) { p[0] = mad(p[1], p[2], p[3]); }",
        wrong=has(_fused),
        right=lacks(_fused),
    ),
)
SPIRV_ABS = Correction(
    name="abs of unsigned numbers in SPIR-V",
    why="Slang writes SAbs, which treats large unsigned integers as negative.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform uint *p) { p[0] = abs(p[1]); }",
        wrong=has(_absolute),
        right=lacks(_absolute),
    ),
)
SPIRV_LOWEST_BIT = Correction(
    name="firstbitlow of 16 bits in SPIR-V",
    why="Slang writes FindILsb of 8 and 16 bits, which is limited to 32 bits.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform uint16_t *p, uniform uint *q) { q[0] = firstbitlow(p[1]); }",
        wrong=_lowest_of_16_bits,
        right=lambda code: lacks(lambda words: False)(code) and not _lowest_of_16_bits(code),
    ),
)
SPIRV_MATRICES = Correction(
    name="matrices of integers in SPIR-V",
    why="Slang writes matrices of 8-, 16- and 64-bit integers; SPIR-V has floating-point matrices only.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="""
void canary(uniform int64_t *p)
{
    matrix<int64_t, 2, 2> m = { p[1], p[2], p[3], p[4] };
    p[0] = m[p[5]][1];
}
""",
        wrong=has(_matrix),
        right=lacks(_matrix),
    ),
)
SPIRV_BIT_FIELDS = Correction(
    name="bit fields in SPIR-V",
    why="Slang writes bit field instructions for 8, 16 and 64 bits, which Vulkan lacks; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_refuse,
    canary=Canary(
        text="void canary(uniform uint64_t *p) { p[0] = bitfieldExtract(p[1], 3, 5); }",
        wrong=has(_field),
        right=lacks(_field),
    ),
)
