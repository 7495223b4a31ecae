"""Options: the settings that a function's modifiers have made so far, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slangpy_rt.arguments.mapping import NO_MAP, Map
from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words


@dataclass(frozen=True)
class Options:
    """How a function is called. Each modifier of ``Function`` makes a new Options.

    Attributes
    ----------
    maps, named_maps : tuple
        Maps of positional arguments, and of arguments by name.
    constants : tuple of (str, bool, int, float or tuple of these)
        Values of ``extern static const`` declarations.
    uniforms : tuple of str
        Global variables that ``set`` gives values to; each call passes the values.
    returns : str or type or None
        The kind of array that a new result is; ``_result`` overrides it.
    group : tuple of int
        Size of a thread group; several numbers are its size along the call's last dimensions. Empty for the default.
    conformances : tuple of (str, str, int)
        Interface, type and the number by which data names the type, for dynamic dispatch.
    derivative : str
        ``"backward"``, ``"forward"``, or ``""`` for the function itself.
    """

    maps: tuple[Map, ...] = ()
    named_maps: tuple[tuple[str, Map], ...] = ()
    constants: tuple[tuple[str, Any], ...] = ()
    uniforms: tuple[str, ...] = ()
    returns: Any = None
    group: tuple[int, ...] = ()
    conformances: tuple[tuple[str, str, int], ...] = ()
    derivative: str = ""

    def map_of(self, name: str, place: int, positional: int) -> Map:
        """Return the map of the parameter whose value is number ``place`` among the arguments."""
        for key, how in self.named_maps:
            if key == name:
                return how
        return self.maps[place] if 0 <= place < min(positional, len(self.maps)) else NO_MAP


NO_OPTIONS = Options()


def frozen_constant(where: str, value: Any) -> Any:
    """Return a constant's value as a number or a tuple of numbers, which are hashable and compare by value."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.ndim == 1 else value[()] if value.ndim == 0 else value
    items = value if isinstance(value, (list, tuple)) else (value,)
    if len(items) > 4 or not all(kind_of(v) in "biuf" for v in items):
        raise BindError(
            f"{where} is {in_words(value)}; a number, or a list of up to four for a vector, was expected."
        )
    return tuple([_number(v) for v in items]) if isinstance(value, (list, tuple)) else _number(value)


def _number(value: Any) -> Any:
    """Return a number as Python's own type: classes derived from that need not be hashable."""
    if isinstance(value, (bool, np.generic)):
        return value
    return float.__float__(value) if isinstance(value, float) else int.__int__(value)
