"""Cursor: the values of uniforms that the user's function of ``write`` sets, place by place.

Nothing here reads a uniform's type; the call checks the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words


class Cursor:
    """A place in the uniforms of a module: all of them, one, or a field of one.

    ``cursor.params.k = 10``, ``cursor["params"]["k"] = 10`` and ``cursor.write({"params": {"k": 10}})`` are the same.
    """

    __slots__ = ("_name", "_parent", "_values")

    def __init__(self, parent: Cursor | None = None, name: str = "") -> None:
        object.__setattr__(self, "_parent", parent)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_values", {})

    def write(self, value: Any) -> None:
        """Set the value of this place; a dict adds to the fields that have one already."""
        if isinstance(value, Mapping) and isinstance(self._values, dict):
            for name, item in value.items():
                self[name].write(item)
        elif self._parent is None:
            raise BindError(f"write: {in_words(value)} is no dict of values by name.")
        else:
            object.__setattr__(self, "_values", value)

    def find_field(self, name: str) -> Cursor:
        """Return the place of a field."""
        return self[name]

    def __getitem__(self, name: Any) -> Cursor:
        if not isinstance(name, str):
            raise BindError(f"write: {in_words(name)} is no name of a uniform or field.")
        if not isinstance(self._values, dict):
            raise BindError(f"write: '{self._name}' was given {in_words(self._values)}, and has no field '{name}'.")
        return self._values.setdefault(name, Cursor(self, name))

    def __setitem__(self, name: Any, value: Any) -> None:
        self[name].write(value)

    def __getattr__(self, name: str) -> Cursor:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name].write(value)


def values_of(cursor: Cursor) -> Any:
    """Return what was written at a place: a value, or a dict of the fields."""
    found = cursor._values
    if not isinstance(found, dict):
        return found
    return {name: values_of(inner) for name, inner in found.items()}
