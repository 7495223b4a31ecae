"""Replaces elementary functions of double in SPIR-V, which GLSL.std.450 has for 16 and 32 bits only.

Slang 2026.12 writes them for double too, and drivers then compute garbage. Bytes go in and bytes come out: each such
instruction becomes a call of a function of ``shaders/double_math.slang``. So do ``exp2`` of a scalar, which Slang
writes as ``double(exp2(float(x)))``, and ``log10``, whose factor Slang rounds to float: both get the precision of
double. A module without doubles is returned as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from slangpy_rt.slang import spirv
from slangpy_rt.slang.spirv import Assembly, Functions, Words, instruction

# By their number in GLSL.std.450, whose specification wants "a scalar or vector whose component type is 16-bit or
# 32-bit floating-point" of these.
LACKING = {
    11: "Radians", 12: "Degrees", 13: "Sin", 14: "Cos", 15: "Tan", 16: "Asin", 17: "Acos", 18: "Atan", 19: "Sinh",
    20: "Cosh", 21: "Tanh", 22: "Asinh", 23: "Acosh", 24: "Atanh", 25: "Atan2", 26: "Pow", 27: "Exp", 28: "Log",
    29: "Exp2", 30: "Log2",
}  # fmt: skip

_EXP2, _LOG = 29, 28
_F_MUL, _VECTOR_TIMES_SCALAR = 133, 142
# log10(e) rounded to float, by which Slang multiplies log(x) of double for log10(x).
_LOG10E = struct.unpack("<2I", struct.pack("<d", 0.4342944920063019))


class Use(NamedTuple):
    """An instruction to replace: its words, the function to call, that one's arguments, its number of components."""

    words: Words
    name: str
    operands: tuple[int, ...]
    size: int


def with_doubles(code: bytes, library: Callable[[], bytes]) -> bytes:
    """Return a module that calls functions where GLSL.std.450 has no instruction for double.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    library : callable
        Returns ``shaders/double_math.slang`` as SPIR-V; it is called only if a function of it is needed.
    """
    if not _has_doubles(code):
        return code
    module = Assembly(code)
    found = {id(use.words): use for use in _lacking(module)}
    if not found:
        return code
    names = sorted({use.name for use in found.values()})
    old, module.body = module.body, []
    set_ = next(iter(_sets(module)))
    ids = Functions(library()).copy([f"_spy_{name}" for name in names], module, set_)
    copied, module.body = module.body, []
    double = module.find(spirv.TYPE_FLOAT, 64)
    for words in old:
        use = found.get(id(words))
        module.body += [words] if use is None else _calls(module, use, ids[f"_spy_{use.name}"], double)
    module.body += copied
    return module.bytes()


def lacking_double(code: bytes) -> str:
    """Return the name of a function that a module applies to double and GLSL.std.450 lacks; else empty."""
    if not _has_doubles(code):
        return ""
    return next((use.name.lower() for use in _lacking(Assembly(code))), "")


def _has_doubles(code: bytes) -> bool:
    # Capabilities come first, each of them two words.
    words = memoryview(code).cast("I")
    at = 5
    while words[at] == 2 << 16 | spirv.CAPABILITY:
        if words[at + 1] == spirv.FLOAT64:
            return True
        at += 2
    return False


def _sets(module: Assembly) -> set[int]:
    """Return the ids under which a module imports GLSL.std.450."""
    imports = (words for words in module.head if words[0] & 0xFFFF == spirv.EXT_INST_IMPORT)
    return {words[1] for words in imports if spirv.string(words[2:]) == "GLSL.std.450"}


def _lacking(module: Assembly) -> Iterator[Use]:
    sizes: dict[int, int] = {}
    for words in module.head:
        op = words[0] & 0xFFFF
        if op == spirv.TYPE_FLOAT and words[2] == 64:
            sizes[words[1]] = 1
        elif op == spirv.TYPE_VECTOR and words[2] in sizes:
            sizes[words[1]] = words[3]
    sets = _sets(module)
    converted: dict[int, int] = {}
    powers: dict[int, int] = {}
    logarithms: dict[int, int] = {}
    factors: set[int] = set()
    for words in module.head:
        op = words[0] & 0xFFFF
        ours = tuple(words[3:]) == _LOG10E if op == spirv.CONSTANT else op == spirv.CONSTANT_COMPOSITE
        if ours and words[1] in sizes and (op == spirv.CONSTANT or factors.issuperset(words[3:])):
            factors.add(words[2])
    for words in module.body:
        op = words[0] & 0xFFFF
        if op == spirv.EXT_INST and words[3] in sets and words[4] in LACKING:
            if words[1] in sizes:
                yield Use(words, LACKING[words[4]], tuple(words[5:]), sizes[words[1]])
                if words[4] == _LOG:
                    logarithms[words[2]] = words[5]
            elif words[4] == _EXP2 and words[5] in converted:
                powers[words[2]] = converted[words[5]]
        elif op in (_F_MUL, _VECTOR_TIMES_SCALAR) and words[3] in logarithms and words[4] in factors:
            yield Use(words, "Log10", (logarithms[words[3]],), sizes[words[1]])
        elif op == spirv.F_CONVERT:
            if words[1] in sizes and words[3] in powers:
                yield Use(words, "Exp2", (powers[words[3]],), sizes[words[1]])
            elif words[1] not in sizes:
                converted[words[2]] = words[3]


def _calls(module: Assembly, use: Use, function: int, double: int) -> Iterator[Words]:
    """Yield the instructions that call a function for each component of an instruction's operands."""
    type_, result = use.words[1:3]
    if use.size == 1:
        yield instruction(spirv.FUNCTION_CALL, type_, result, function, *use.operands)
        return
    parts = []
    for k in range(use.size):
        taken = [module.new_id() for _ in use.operands]
        for part, operand in zip(taken, use.operands, strict=True):
            yield instruction(spirv.COMPOSITE_EXTRACT, double, part, operand, k)
        parts.append(module.new_id())
        yield instruction(spirv.FUNCTION_CALL, double, parts[-1], function, *taken)
    yield instruction(spirv.COMPOSITE_CONSTRUCT, type_, result, *parts)
