"""Options: the settings that a function's modifiers have made so far, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slangpy_rt.arguments.mapping import NO_MAP, Map


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
