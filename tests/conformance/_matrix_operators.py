"""Slang functions with every operator of matrices: one test runs them, another compiles them as CUDA."""

from __future__ import annotations

TYPES = {
    "float": "f4", "double": "f8", "half": "f2", "int": "i4", "uint": "u4", "int64_t": "i8", "uint64_t": "u8",
    "int16_t": "i2", "uint16_t": "u2", "int8_t": "i1", "uint8_t": "u1",
}  # fmt: skip
NUMBERS = ("-a", "a + b", "a - b", "a * b", "a / b", "a % b")
BITS = ("~a", "a & b", "a | b", "a ^ b", "a << b", "a >> b")
COMPARISONS = ("a < b", "a >= b", "a == b", "a != b")


def operators(name: str, integer: bool) -> tuple[str, ...]:
    """Return the operators whose results have the type of the operands."""
    if name == "half":
        return NUMBERS[:-1]  # Slang's prelude for CUDA lacks % of vectors of half
    return NUMBERS + BITS if integer else NUMBERS


def function(name: str, integer: bool) -> str:
    """Return a function that applies all operators to two matrices of 2 x 3."""
    found = operators(name, integer)
    stores = " ".join(f"r[{k}] = {text};" for k, text in enumerate(found))
    matrix = f"matrix<{name}, 2, 3>"
    return f"void all({matrix} a, {matrix} b, out {matrix} r[{len(found)}]) {{ {stores} }}\n"


def comparisons(name: str) -> str:
    """Return a function that compares two matrices of 2 x 3, and negates what it finds."""
    stores = " ".join(f"r[{k}] = !({text});" for k, text in enumerate(COMPARISONS))
    matrix = f"matrix<{name}, 2, 3>"
    return f"void compare({matrix} a, {matrix} b, out bool2x3 r[{len(COMPARISONS)}]) {{ {stores} }}\n"
