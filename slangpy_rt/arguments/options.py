"""Options: what the modifiers of a function have said so far, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slangpy_rt.arguments.mapping import NO_MAP, Map


@dataclass(frozen=True)
class Options:
    """How a function is called. Each modifier of ``Function`` makes another value of this.

    Attributes
    ----------
    maps, named_maps : tuple
        Of positional arguments, and of arguments by name.
    constants : tuple of (str, bool, int, float or tuple of these)
        Values of ``extern static const`` declarations.
    uniforms : tuple of str
        Global variables that ``set`` gives values to; the values travel with each call.
    returns : str or type or None
        What a result comes as, unless ``_result`` says so.
    group : tuple of int
        Threads of a group; several count the call's last dimensions. Empty for the default.
    conformances : tuple of (str, str, int)
        Interface, type and number, for dynamic dispatch.
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
        """Return what the user said of a parameter whose value stands at that place among the arguments."""
        for key, how in self.named_maps:
            if key == name:
                return how
        return self.maps[place] if 0 <= place < min(positional, len(self.maps)) else NO_MAP


NO_OPTIONS = Options()
