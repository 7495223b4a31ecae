"""ValueRef: a Python value that a Slang function may write to."""

from __future__ import annotations

from reprlib import recursive_repr
from typing import Any

from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words


class ValueRef:
    """A cell for an ``out`` or ``inout`` parameter of one value.

    Parameters
    ----------
    value : number, list, array or dict
        The value that an ``inout`` parameter starts with; after a call, the value that the function wrote.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    @recursive_repr()
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


def intRef(value: int = 0) -> ValueRef:
    """Make a ValueRef that holds an int."""
    if kind_of(value) not in "biu":
        raise BindError(f"intRef: {in_words(value)} was given; a whole number was expected.")
    return ValueRef(int(value))


def floatRef(value: float = 0.0) -> ValueRef:
    """Make a ValueRef that holds a float."""
    if kind_of(value) not in "biuf" or (isinstance(value, int) and value.bit_length() > 1000):
        raise BindError(f"floatRef: {in_words(value)} was given; a number was expected.")
    return ValueRef(float(value))
