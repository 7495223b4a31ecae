"""ValueRef: a Python value that a Slang function may write to."""

from __future__ import annotations

from typing import Any


class ValueRef:
    """A cell for an ``out`` or ``inout`` parameter of one value.

    Parameters
    ----------
    value : number, list, array or dict
        What an ``inout`` parameter starts with; what a call left there afterwards.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


def intRef(value: int = 0) -> ValueRef:
    """A ValueRef that holds an int."""
    return ValueRef(int(value))


def floatRef(value: float = 0.0) -> ValueRef:
    """A ValueRef that holds a float."""
    return ValueRef(float(value))
