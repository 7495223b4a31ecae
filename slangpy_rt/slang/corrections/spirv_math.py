"""Replaces elementary functions of double in SPIR-V, which GLSL.std.450 has for 16 and 32 bits only.

Slang 2026.12 writes these instructions for double too, and drivers then compute garbage. Each becomes a call of a
function of ``shaders/double_math.slang``: ``%r = OpExtInst %double %glsl Sin %x`` becomes
``%r = OpFunctionCall %double %_spy_Sin %x``. For ``lanes`` they stay instructions of that set. So do ``exp2`` of a
scalar, which Slang writes as ``double(exp2(float(x)))``, and ``log10``, whose factor Slang rounds to float: both get
the precision of double.

A module without optimizations has Slang's functions under their names. In it ``exp10``, ``sinpi``, ``cospi`` and
``tanpi``, and the constants of ``rounded_constants``, are replaced too. A module without doubles stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from slangpy_rt.lanes.doubles import FURTHER
from slangpy_rt.slang import spirv
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.rounded_constants import CONSTANTS, PI, PRODUCTS, derived
from slangpy_rt.slang.corrections.spirv_search import has, lacks, uses
from slangpy_rt.slang.spirv import Assembly, Functions, Words, instruction

# Instructions by their number in GLSL.std.450. The specification demands of the operands of these "a scalar or vector
# whose component type is 16-bit or 32-bit floating-point".
LACKING = {
    11: "Radians", 12: "Degrees", 13: "Sin", 14: "Cos", 15: "Tan", 16: "Asin", 17: "Acos", 18: "Atan", 19: "Sinh",
    20: "Cosh", 21: "Tanh", 22: "Asinh", 23: "Acosh", 24: "Atanh", 25: "Atan2", 26: "Pow", 27: "Exp", 28: "Log",
    29: "Exp2", 30: "Log2",
}  # fmt: skip

_NUMBERS = {name: k for k, name in LACKING.items()} | {name.capitalize(): k for name, k in FURTHER.items()}
_EXP2, _LOG = 29, 28
_F_MUL, _VECTOR_TIMES_SCALAR, _RETURN_VALUE = 133, 142, 254
# The two words of log10(e), rounded to float; Slang writes log10(x) of double as log(x) times this constant.
_LOG10E = struct.unpack("<2I", struct.pack("<d", 0.4342944920063019))
_LN10 = struct.unpack("<2I", struct.pack("<d", 2.3025851249694824))
_ROUNDED = {struct.unpack("<2I", struct.pack("<d", old)): new for old, new in CONSTANTS.items()}
_CONSTANTS = (spirv.CONSTANT, spirv.CONSTANT_COMPOSITE)
# The positions of operands that may be constants, by opcode: calls, composites, select (169), phi (245) and
# arithmetic; a store (62) and a return.
_OPERANDS = {
    **dict.fromkeys((spirv.FUNCTION_CALL, spirv.COMPOSITE_CONSTRUCT, 169, 245, *range(126, 149)), slice(3, None)),
    62: slice(2, 3),
    _RETURN_VALUE: slice(1, 2),
}


class Use(NamedTuple):
    """An instruction to replace.

    Attributes
    ----------
    words : list of int
        The words of the instruction.
    name : str
        The function to call, without the prefix ``_spy_``.
    operands : tuple of int
        The ids of the arguments.
    size : int
        The number of components; the function is called for each.
    """

    words: Words
    name: str
    operands: tuple[int, ...]
    size: int


def with_doubles(code: bytes, library: Callable[[], bytes] | None) -> bytes:
    """Return a module that calls functions in place of instructions which GLSL.std.450 lacks for double.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    library : callable or None
        A function without parameters that returns the SPIR-V code of ``shaders/double_math.slang``. It is called only
        if one of its functions is needed. None stands for instructions in place of calls.
    """
    if not has_doubles(code):
        return code
    module = Assembly(code)
    rounded = _rounded(module)
    for _, words, place in rounded:
        words[place] = _right(module, words[place])
    found = {id(use.words): use for use in _lacking(module)}
    if not found:
        return module.bytes() if rounded else code
    set_ = next(iter(_sets(module)))
    if library is None:
        for each in found.values():
            each.words[:] = instruction(spirv.EXT_INST, *each.words[1:3], set_, _NUMBERS[each.name], *each.operands)
        return module.bytes()
    names = sorted({use.name for use in found.values()})
    old, module.body = module.body, []
    ids = Functions(library()).copy([f"_spy_{name}" for name in names], module, set_)
    copied, module.body = module.body, []
    double = module.find(spirv.TYPE_FLOAT, 64)
    for words in old:
        use = found.get(id(words))
        module.body += [words] if use is None else _calls(module, use, ids[f"_spy_{use.name}"], double)
    module.body += copied
    return module.bytes()


def lacking_double(code: bytes) -> str:
    """Return the name of a function that a module applies to double and GLSL.std.450 lacks, or an empty string."""
    if not has_doubles(code):
        return ""
    names = [use.name.lower() for use in _lacking(Assembly(code))]
    return next((name for name in names if name in PRODUCTS), names[0] if names else "")


def rounded_double(code: bytes) -> str:
    """Return the name of one of Slang's functions with a constant of double rounded to float, or an empty string."""
    found = next((within for within, _, _ in _rounded(Assembly(code))), "") if has_doubles(code) else ""
    return f"the derivative of {derived(found)}" if derived(found) else "getPi" if found else ""


def has_doubles(code: bytes) -> bool:
    """Return whether a module declares the capability Float64."""
    # Capabilities are the first instructions, each of them two words.
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


def _sizes(module: Assembly) -> dict[int, int]:
    """Return the numbers of components of double (1) and of its vectors, by the type's id."""
    sizes: dict[int, int] = {}
    for words in module.head:
        op = words[0] & 0xFFFF
        if op == spirv.TYPE_FLOAT and words[2] == 64:
            sizes[words[1]] = 1
        elif op == spirv.TYPE_VECTOR and words[2] in sizes:
            sizes[words[1]] = words[3]
    return sizes


def _constants(module: Assembly, sizes: dict[int, int], wanted: Container[tuple[int, ...]]) -> set[int]:
    """Return the ids of double constants whose words are in `wanted`, and of vectors of only these."""
    found: set[int] = set()
    for words in module.head:
        op = words[0] & 0xFFFF
        number = op == spirv.CONSTANT and words[1] in sizes and tuple(words[3:]) in wanted
        if number or (op == spirv.CONSTANT_COMPOSITE and found.issuperset(words[3:])):
            found.add(words[2])
    return found


def _names(module: Assembly) -> dict[int, str]:
    """Return the names of Slang's functions to correct, by id. Some ids may be of variables with the same name."""
    named = (words for words in module.head if words[0] & 0xFFFF == spirv.NAME)
    every = {words[1]: spirv.string(words[2:]) for words in named}
    return {id_: name for id_, name in every.items() if name == PI or name in PRODUCTS or derived(name)}


def _within(module: Assembly) -> Iterator[tuple[str, Words]]:
    """Yield (function, words) for each instruction; `function` is empty if it is none of those in ``_names``."""
    names, within = _names(module), ""
    for words in module.body:
        if words[0] & 0xFFFF == spirv.FUNCTION:
            within = names.get(words[2], "")
        yield within, words


def _rounded(module: Assembly) -> list[tuple[str, Words, int]]:
    """Return (function, words, position of the operand) for each use of a rounded constant in Slang's functions."""
    constants = _constants(module, _sizes(module), _ROUNDED)
    found = []
    for within, words in _within(module) if constants else ():
        op = words[0] & 0xFFFF
        if op in _OPERANDS and (within == PI or derived(within)):
            places = range(len(words))[_OPERANDS[op]]
            found += [(within, words, k) for k in places if words[k] in constants]
    return found


def _right(module: Assembly, rounded: int) -> int:
    """Return the id of the right constant, declared if necessary, for the id of a rounded one."""
    words = next(words for words in module.head if words[0] & 0xFFFF in _CONSTANTS and words[2] == rounded)
    if words[0] & 0xFFFF == spirv.CONSTANT_COMPOSITE:
        return module.find(spirv.CONSTANT_COMPOSITE, words[1], *(_right(module, part) for part in words[3:]))
    value = _ROUNDED[words[3], words[4]]
    return module.find(spirv.CONSTANT, words[1], *struct.unpack("<2I", struct.pack("<d", value)))


def _lacking(module: Assembly) -> Iterator[Use]:
    sizes, sets, names = _sizes(module), _sets(module), _names(module)
    factors, tens = _constants(module, sizes, {_LOG10E}), _constants(module, sizes, {_LN10})
    floats = {words[2]: words[1] for words in module.head if words[0] & 0xFFFF == spirv.TYPE_FLOAT}
    # The ids of scalar doubles; of floats converted from a double, with that double; of powers of 2 and logarithms,
    # with their arguments; of products, with their factors; and of pi and vectors of it.
    numbers = {words[2] for words in module.head if words[0] & 0xFFFF == spirv.CONSTANT and words[1] == floats[64]}
    converted: dict[int, int] = {}
    powers: dict[int, int] = {}
    logarithms: dict[int, int] = {}
    products: dict[int, Words] = {}
    pi: set[int] = set()
    for within, words in _within(module):
        op = words[0] & 0xFFFF
        if words[1:2] == [floats[64]]:
            numbers.add(words[2])
        if op == spirv.EXT_INST and words[3] in sets and words[4] in LACKING:
            if words[1] in sizes:
                name, operands = LACKING[words[4]], tuple(words[5:])
                product = products.get(words[5], [])
                others = [factor for factor in product if factor not in (tens if within == "exp10" else pi)]
                if PRODUCTS.get(within) == name.lower() and len(product) == 2 and len(others) == 1:
                    name, operands = within.capitalize(), (others[0],)
                yield Use(words, name, operands, sizes[words[1]])
                if words[4] == _LOG:
                    logarithms[words[2]] = words[5]
            elif words[4] == _EXP2 and words[5] in converted:
                powers[words[2]] = converted[words[5]]
        elif op in (_F_MUL, _VECTOR_TIMES_SCALAR):
            if words[3] in logarithms and words[4] in factors:
                yield Use(words, "Log10", (logarithms[words[3]],), sizes[words[1]])
            elif within in PRODUCTS:
                products[words[2]] = words[3:]
        elif (op == spirv.FUNCTION_CALL and names.get(words[3]) == PI) or (
            op == spirv.COMPOSITE_CONSTRUCT and pi.issuperset(words[3:])
        ):
            pi.add(words[2])
        elif op == spirv.F_CONVERT:
            if words[1] in sizes and words[3] in powers:
                yield Use(words, "Exp2", (powers[words[3]],), sizes[words[1]])
            elif words[1] == floats.get(32) and words[3] in numbers:
                converted[words[2]] = words[3]


def _calls(module: Assembly, use: Use, function: int, double: int) -> Iterator[Words]:
    """Yield the instructions that call a function for each component of the operands and combine the results.

    `function` and `double` are the ids of the function and of the type double.
    """
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


def _repaired(code: bytes, emission: Emission) -> bytes:
    return with_doubles(code, emission.double_math)


def _sine(words: Words) -> bool:
    return words[0] & 0xFFFF == spirv.EXT_INST and LACKING.get(words[4]) == "Sin"


def _narrowed_power(code: bytes) -> bool:
    """Return whether a number becomes a double that is the result of Exp2."""
    powers: set[int] = set()

    def found(words: Words) -> bool:
        op = words[0] & 0xFFFF
        if op == spirv.EXT_INST and words[4] == _EXP2:
            powers.add(words[2])
        return op == spirv.F_CONVERT and words[3] in powers

    return has(found)(code)


_DEGREES = struct.unpack("<2I", struct.pack("<d", 57.295780181884766))
SPIRV_DOUBLES = Correction(
    name="functions of double in SPIR-V",
    why="Slang writes GLSL.std.450 instructions for double that exist for 16 and 32 bits only.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform double *p) { p[0] = sin(p[1]); }",
        wrong=has(_sine),
        right=lacks(_sine),
    ),
)
SPIRV_POWERS = Correction(
    name="exp2 of double in SPIR-V",
    why="Slang computes exp2 of a double in float.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform double *p) { p[0] = exp2(p[1]); }",
        wrong=_narrowed_power,
        right=lambda code: lacks(_sine)(code) and not _narrowed_power(code),
    ),
)
SPIRV_CONSTANTS = Correction(
    name="constants of double in SPIR-V",
    why="Slang rounds constants in functions of double, and in their derivatives, to float.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform double *p) { p[0] = fwd_diff(degrees)(diffPair(p[1], 1.0)).d; }",
        wrong=uses(_DEGREES, _F_MUL),
        right=uses(struct.unpack("<2I", struct.pack("<d", 57.29577951308232)), _F_MUL),
    ),
)
