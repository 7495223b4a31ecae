"""Finds calls of HLSL functions that have no form for ``double``: their argument would silently become a float.

The HLSL that Slang writes is read and not changed. In it the names of the user's functions and variables end in ``_``
and a number, so every other name before a parenthesis is a type or a function of HLSL itself.
"""

from __future__ import annotations

import re

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission

# The functions for which DXC 1.8 warns of a "conversion from larger type 'double' to smaller type 'float'", and
# ``dot``, which its validator refuses. ``atan2`` precedes its prefix ``atan``, and so on.
_CALL = re.compile(
    r"(?<![\w.])(acos|asin|atan2|atan|ceil|cosh|cos|cross|ddx|ddy|degrees|distance|dot|exp2|exp|floor|fmod|frac|isfinite|"
    r"isinf|isnan|ldexp|length|lerp|log10|log2|log|normalize|pow|radians|reflect|round|rsqrt|sinh|sin|smoothstep|sqrt|"
    r"step|tanh|tan|trunc)\("
)
# Matches the declaration of a double, ``double3 x_0``, ``vector<double,3> f_0`` or ``S<double> s_0``; takes the name.
_DECLARED = re.compile(
    r"\b(?:double(?:[1-4](?:x[1-4])?)?|(?:vector|matrix)<double,[^<>]*>|\w+<\s*(?:double\w*|vector<double,[^<>]*>)\s*>)\s+"
    r"(\w+)"
)
# Matches a name, with the parenthesis after it if it is a call: ``x_0``, ``f_0(``; the bracket of an index, ``[``; or
# a cast to a vector or matrix of another type: ``(vector<float,3>)``.
_PART = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?P<call>\()?|(?P<index>\[)|\((?P<cast>(?:vector|matrix)<(?!double)[^<>]*>)\)"
)
_OWN = re.compile(r"_\d+$")
_TYPE = re.compile(r"(?:bool|u?int(?:16_t|64_t)?|half|float(?:16_t)?)(?:[1-4](?:x[1-4])?)?")
_OPERAND = re.compile(r"[\w.]*")
_CLOSES = {"(": ")", "[": "]"}


_NARROWED = (
    "the function uses {used} of double, which HLSL has for floats alone. Use float, or a device of type vulkan, "
    "cuda or cpu."
)


def narrows_double(code: bytes) -> str:
    """Return the name of a function that HLSL has only for floats and that `code` applies to a double, else empty."""
    text = code.decode()
    doubles = {"double", "asdouble", *_DECLARED.findall(text)} if "double" in text else set()
    calls = _CALL.finditer(text) if doubles else ()
    return next((call[1] for call in calls if _is_double(text, call.end(), _end(text, call.end() - 1), doubles)), "")


def _is_double(text: str, start: int, end: int, doubles: set[str]) -> bool:
    """Return whether the expression at these offsets, or one of several separated by commas, has type double.

    Arguments of the user's functions, operands of casts, and indices do not count: ``f_0(d_0)`` is a double only if
    ``f_0`` is one of `doubles`.
    """
    while part := _PART.search(text, start, end):
        start, name = part.end(), part["name"]
        if name in doubles:
            return True
        if part["index"]:
            start = _end(text, part.start()) + 1
        elif part["cast"]:
            # The type of the operand of a cast does not matter.
            start = _end(text, start) + 1 if text[start] == "(" else _OPERAND.match(text, start).end()  # type: ignore[union-attr]
        elif part["call"] and (_OWN.search(name) or _TYPE.fullmatch(name)):
            start = _end(text, start - 1) + 1
    return False


def _end(text: str, at: int) -> int:
    """Return the offset of the bracket that closes the one at offset `at`."""
    opens, closes = text[at], _CLOSES[text[at]]
    depth = 0
    for k in range(at, len(text)):
        depth += (text[k] == opens) - (text[k] == closes)
        if not depth:
            return k
    return len(text)


def _refuse(code: bytes, emission: Emission) -> bytes:
    if used := narrows_double(code):
        raise UnsupportedError(_NARROWED.format(used=used))
    return code


HLSL_DOUBLES = Correction(
    name="functions of double in HLSL",
    why="Slang writes sin(x) of a double x into HLSL, where the argument silently becomes a float; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("hlsl",),
    applies=_refuse,
    canary=Canary(
        text="void canary(uniform RWStructuredBuffer<double> p) { p[0] = sin(p[1]); }",
        wrong=rb"= sin\(\w+\[int\(1\)\]\);",
        right=rb"error\[E\d+\]|double\(sin\(float\(",
    ),
)
