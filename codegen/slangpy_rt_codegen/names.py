"""Names in emitted text: the prefix that only ours have, and other spellings of Slang's names that a user's hide.

A kernel's text holds names of three kinds: ours, which begin with ``_spy_`` and which no module of a user may take;
the user's; and those of Slang's core module. The last are in an outer scope: a struct ``uint3`` of an imported module
hides Slang's. In such a kernel the description marks the user's names, and hidden names of Slang's are replaced by
names of our library.
"""

from __future__ import annotations

import re
from collections.abc import Collection

RESERVED = "_spy_"
SCALARS = (
    "bool", "int8_t", "int16_t", "int", "int64_t", "uint8_t", "uint16_t", "uint", "uint64_t",
    "half", "float", "double",
)  # fmt: skip
# What shaders/_spy_library.slang has under a second name, vectors and matrices by their generic names.
_ALIASED = frozenset(
    {*SCALARS, "vector", "matrix", "Array", "DifferentialPair", "ConstantBuffer", "diffPair", "detach", "min", "max"}
)
_SIZED = re.compile(rf"({'|'.join(SCALARS)})([1-4])(?:x([1-4]))?")
# Words without a second name.
_WORDS = frozenset((
    *("bwd_diff", "fwd_diff", "no_diff", "for", "if", "else", "return", "void", "out", "inout", "uniform", "struct"),
    *("shaderAttribute", "numthreadsAttribute", "ForceUnrollAttribute", "DifferentiableAttribute"),
))  # fmt: skip
# For each kernel, its modules' names are looked up among these; a module may have hundreds of names.
_HIDEABLE = _ALIASED | _WORDS | {f"{s}{n}" for s in SCALARS for n in range(1, 5)}
_HIDEABLE |= {f"{s}{n}x{m}" for s in SCALARS for n in range(1, 5) for m in range(1, 5)}
# Words with which Slang begins a statement: no type that has one of these names can be written in a function.
STATEMENTS = frozenset((
    *("break", "case", "class", "continue", "default", "defer", "discard", "do", "enum", "for", "if", "return"),
    *("switch", "throw", "try", "typealias", "typedef", "while"),
    *("__GPU_FOREACH", "__intrinsic_asm", "__stage_switch", "__target_switch"),
))  # fmt: skip
# A statement that begins with the name of a variable or a function has these names in parentheses.
PARENTHESIZED = STATEMENTS | {"new", "no_diff", "operator", "spirv_asm"}
_OPERATORS = frozenset((
    *("new", "sizeof", "alignof", "countof", "nonuniform", "bwd_diff", "fwd_diff", "no_diff", "expand", "each"),
    "spirv_asm",
))  # fmt: skip
# Types of Slang's that kernels do not write, but whose constructors Slang takes for a function of the same name.
_TYPES = (
    "float16_t", "float32_t", "float64_t", "int32_t", "uint32_t", "intptr_t", "uintptr_t", "size_t", "usize_t",
    "ssize_t", "int8_t4_packed", "uint8_t4_packed", "String", "string", "BFloat16", "FloatE4M3", "FloatE5M2",
)  # fmt: skip
_CONSTRUCTED = re.compile(rf"({'|'.join((*SCALARS, *_TYPES))})([1-4](x[1-4])?)?")
OPEN, _CLOSE = "\x02", "\x03"
_OWN = re.compile(f"({OPEN}[^{_CLOSE}]*{_CLOSE})")
# A name that is not a member of something.
_NAME = re.compile(r"(?<![\w.])[A-Za-z]\w*")


def hidden(names: Collection[str]) -> tuple[str, ...]:
    """Return which of the names that a kernel's modules declare are also names of Slang's that kernels use."""
    return tuple(sorted(_HIDEABLE.intersection(names)))


def nameless(names: Collection[str]) -> tuple[str, ...]:
    """Return those of the names that are words which kernels need and which have no second name."""
    return tuple(sorted(_WORDS.intersection(names)))


def is_taken(name: str) -> bool:
    """Tell whether Slang reads a call of that name otherwise: as a number, vector or matrix, or as an operator."""
    return name in _OPERATORS or _CONSTRUCTED.fullmatch(name) is not None


def own(text: str) -> str:
    """Return a user's text marked as such: its names mean the declarations of the user's module."""
    return f"{OPEN}{text}{_CLOSE}"


def respelled(text: str, hidden: Collection[str]) -> str:
    """Return a kernel's text with other names for Slang's that are hidden, and without the marks of ``own``."""
    if not hidden:
        return text
    title, line, rest = text.partition("\n")
    pieces = _OWN.split(rest)
    kept = (p[1:-1] if p.startswith(OPEN) else _NAME.sub(lambda m: _name(m[0], hidden), p) for p in pieces)
    return title + line + "".join(kept)


def _name(name: str, hidden: Collection[str]) -> str:
    if name not in hidden:
        return name
    sized = _SIZED.fullmatch(name)
    if sized is None:
        return RESERVED + name if name in _ALIASED else name
    scalar = _name(sized[1], hidden)
    if sized[3]:
        return f"{_name('matrix', hidden)}<{scalar}, {sized[2]}, {sized[3]}>"
    return f"{_name('vector', hidden)}<{scalar}, {sized[2]}>"
