"""Writes shaders/double_constants.slang: numbers of shaders/double_math.slang, from series in exact integers.

Run as ``python codegen/tools/gen_double_constants.py``; a test compares the file with its output. It computes pi by
Machin's formula, logarithms and arc tangents by their Taylor series, and uses no other source.
"""

from __future__ import annotations

from fractions import Fraction
from math import factorial, frexp, ldexp
from pathlib import Path

# Bits of the fixed-point numbers that the series are added up in; of 2/pi, 1216 bits are kept.
_BITS = 1400
_ONE = 1 << _BITS
TARGET = Path(__file__).parents[2] / "shaders" / "double_constants.slang"


def text() -> str:
    """Return the text of the file."""
    pi = 4 * (4 * _arc_tangent(Fraction(1, 5)) - _arc_tangent(Fraction(1, 239)))
    # log(2) = 2 artanh(1/3)
    ln2 = 2 * _series(Fraction(1, 3), 1)
    lines = [
        "// Numbers of double_math.slang, written by codegen/tools/gen_double_constants.py.",
        "// _A, _B, ... are the parts of one number that add up to it, each but the last with 32 bits, so that its",
        "// product with a whole number below 2^20 is exact. .x and .y of a pair add up to one number as well.",
        *_parts("PIO2", pi / 2, 4),
        *_parts("LN2", ln2, 3),
        _pair("PI", pi),
        _pair("PIO2", pi / 2),
        _pair("LN2", ln2),
        _pair("LN10", ln2 + 2 * _series(Fraction(2, 3), 1)),
        _pair("LOG2E", 1 / ln2),
        _pair("LOG10E", 1 / (ln2 + 2 * _series(Fraction(2, 3), 1))),
        _pair("THIRD", Fraction(1, 3)),
        _number("TWO_OVER_PI", 2 / pi),
        _number("DEGREES", 180 / pi),
        _number("RADIANS", pi / 180),
        *(_pair(f"ATAN_{k}", _arc_tangent(Fraction(k, 4))) for k in (1, 2, 3)),
        _pair("ATAN_4", pi / 4),
        *(_number(f"FACTORIAL_{n}", Fraction(1, factorial(n))) for n in range(3, 23)),
        *(_number(f"ODD_{n}", Fraction(1, n)) for n in range(3, 33, 2)),
        "// The bits of 2 / pi, after 64 that are 0.",
        "static const uint64_t _spy_TWO_OVER_PI_BITS[20] = {",
        *(f"    0x{word:016X}ull," for word in _words(2 / pi)),
        "};",
    ]
    return "\n".join(lines) + "\n"


def _arc_tangent(x: Fraction) -> Fraction:
    return _series(x, -1)


def _series(x: Fraction, sign: int) -> Fraction:
    """Return x + sign x^3 / 3 + x^5 / 5 + sign x^7 / 7 ..."""
    total, power, n = 0, _ONE * x.numerator // x.denominator, 1
    top, bottom = sign * x.numerator**2, x.denominator**2
    while abs(power) > n:
        total += power // n
        power = power * top // bottom
        n += 2
    return Fraction(total, _ONE)


def _parts(name: str, value: Fraction, count: int) -> list[str]:
    found = []
    for letter in "ABCD"[: count - 1]:
        mantissa, exponent = frexp(float(value))
        part = ldexp(float(int(mantissa * 2**32)), exponent - 32)
        found.append(_number(f"{name}_{letter}", Fraction(part)))
        value -= Fraction(part)
    return [*found, _number(f"{name}_{'ABCD'[count - 1]}", value)]


def _number(name: str, value: Fraction) -> str:
    return f"static const double _spy_{name} = {float(value)!r}L;"


def _pair(name: str, value: Fraction) -> str:
    low = float(value - Fraction(float(value)))
    return f"static const double2 _spy_{name} = double2({float(value)!r}L, {low!r}L);"


def _words(value: Fraction) -> list[int]:
    bits = value.numerator * 2 ** (19 * 64) // value.denominator
    return [0, *(bits >> 64 * (18 - k) & (2**64 - 1) for k in range(19))]


if __name__ == "__main__":
    TARGET.write_text(text(), "utf-8")
