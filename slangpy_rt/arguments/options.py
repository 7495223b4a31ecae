"""Options: the settings that a function's modifiers have made so far, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from slangpy_rt.arguments.mapping import NO_MAP, Map, is_map
from slangpy_rt.core.checks import text
from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words

# The most threads of a thread group on every device.
MOST_THREADS = 1024


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


def check_options(where: str, options: Any) -> Options:
    """Check Options that come from outside the process, as from a pickle, and return them.

    Raises
    ------
    BindError
        If a setting is none that a modifier of ``Function`` makes.
    """
    try:
        if not isinstance(options, Options) or not _are_settings(options):
            raise TypeError
        for name, value in options.constants:
            text(where, "a constant's name", name)
            frozen_constant(f"{where}: constant '{name}'", value)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError) as error:
        if isinstance(error, BindError):
            raise
        raise BindError(f"{where}: the settings of a function are damaged. Write the pickle again.") from None
    return options


def _are_settings(options: Options) -> bool:
    tuples = (options.maps, options.named_maps, options.constants, options.uniforms, options.group)
    return (
        all(isinstance(items, tuple) for items in (*tuples, options.conformances))
        and all(map(is_map, options.maps))
        and all(isinstance(name, str) and is_map(how) for name, how in options.named_maps)
        and all(isinstance(name, str) for name in options.uniforms)
        and (options.returns is None or isinstance(options.returns, (str, type)))
        and all(type(n) is int and n > 0 for n in options.group)
        and (not options.group or (len(options.group) <= 3 and prod(options.group) <= MOST_THREADS))
        and all(
            isinstance(interface, str) and isinstance(struct, str) and type(number) is int and 0 <= number < 2**32
            for interface, struct, number in options.conformances
        )
        and options.derivative in ("", "backward", "forward")
    )


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
