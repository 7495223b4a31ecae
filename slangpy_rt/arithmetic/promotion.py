"""The element types of results: NumPy's rules for integers, and the operands' own floating-point types otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.core.dtypes import NUMPY_OF, SLANG_OF
from slangpy_rt.core.errors import BindError

# From the narrowest. half and bfloat16 hold numbers that the other does not.
_FLOATS = ("half", "bfloat16", "float", "double")


def is_float(scalar: str) -> bool:
    """Tell whether a scalar type, bfloat16 included, holds floating-point numbers."""
    return scalar in _FLOATS


def promoted(a: str, b: str) -> str:
    """Return the scalar type that holds the numbers of two: of an integer and a float it is the float's.

    NumPy would compute ``int`` and ``float`` in double; a device computes that many times slower, or not at all.
    """
    if is_float(a) and is_float(b):
        return "float" if {a, b} == {"half", "bfloat16"} else max(a, b, key=_FLOATS.index)
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    found = np.promote_types(NUMPY_OF[a], NUMPY_OF[b])
    # uint64_t and a signed type have no common integer type; to NumPy it is double.
    return SLANG_OF[found]


def promoted_with(scalar: str, number: Any) -> str:
    """Return the scalar type of an array's operation with a Python number, which has the array's type if it can."""
    if isinstance(number, bool) or is_float(scalar):
        return scalar
    if isinstance(number, int):
        return "int" if scalar == "bool" else scalar
    return "float"


def check_kind(where: str, found: str, target: str) -> None:
    """Refuse to write numbers of one scalar type to an array of another that is of a smaller kind.

    Raises
    ------
    BindError
        If floats would be written to integers, or integers to bool.
    """
    kinds = [("float" if is_float(s) else "bool" if s == "bool" else "int") for s in (found, target)]
    if ("bool", "int", "float").index(kinds[0]) > ("bool", "int", "float").index(kinds[1]):
        raise BindError(
            f"{where}: the result is '{found}', and the array holds '{target}'. Convert one of them: "
            f"array.astype('{found}')."
        )
