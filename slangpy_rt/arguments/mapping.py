"""Map: along which call dimensions an argument's dimensions run, and as which type it is bound (``Function.map``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slangpy_rt.core.checks import text
from slangpy_rt.core.dtypes import PYTHON_TYPES, SLANG_OF
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import MOST_DIMENSIONS
from slangpy_rt.core.types import SlangType, check_value
from slangpy_rt.core.wording import in_words


@dataclass(frozen=True)
class Map:
    """The user's ``map`` of one argument.

    Attributes
    ----------
    dims : tuple of int or None
        The call dimension of each dimension that is vectorized; None leaves it to broadcasting.
    type : SlangType, str or None
        The type as which the argument is bound; None for the parameter's.
    fields : tuple of (str, Map)
        Maps of the fields of a dict.
    """

    dims: tuple[int, ...] | None = None
    type: SlangType | str | None = None
    fields: tuple[tuple[str, Map], ...] = ()

    def field(self, name: str) -> Map:
        """Return the map of one field."""
        return dict(self.fields).get(name, NO_MAP)

    def __str__(self) -> str:
        if self.dims is not None:
            return repr(self.dims)
        return repr(self.type.name if isinstance(self.type, SlangType) else self.type)


NO_MAP = Map()


def is_map(value: Any) -> bool:
    """Tell whether a value is a Map as ``read_map`` makes it; values from outside the process may be others.

    Raises
    ------
    TypeError
        If it holds a Slang type that is damaged.
    """
    if not isinstance(value, Map) or not isinstance(value.fields, tuple):
        return False
    if isinstance(value.type, SlangType):
        check_value(value.type)
    dims = value.dims
    return (
        (dims is None or (isinstance(dims, tuple) and all(type(d) is int and 0 <= d < MOST_DIMENSIONS for d in dims)))
        and (value.type is None or isinstance(value.type, (str, SlangType)))
        and all(isinstance(name, str) and is_map(how) for name, how in value.fields)
    )


def read_map(where: str, value: Any, depth: int = 0) -> Map:
    """Return the Map of one argument from the value that a user gives to ``Function.map``.

    Parameters
    ----------
    where : str
        Start of an error message.
    value : tuple of int, int, type, str, SlangType or dict
        As documented at ``Function.map``.

    Raises
    ------
    BindError
        If it is none of these.
    """
    if value is None:
        return NO_MAP
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = (int(value),)
    if isinstance(value, tuple):
        if not all(isinstance(d, (int, np.integer)) and 0 <= d < MOST_DIMENSIONS for d in value):
            last = MOST_DIMENSIONS - 1
            raise BindError(
                f"{where}: {in_words(value)} is not a tuple of call dimensions, which count from 0 to {last}."
            )
        return Map(tuple(int(d) for d in value))
    if isinstance(value, Mapping):
        if depth == MOST_DIMENSIONS:
            raise BindError(f"{where}: {in_words(value)} holds dicts in dicts without an end.")
        for k in value:
            text(where, "a field's name", k)
        fields = tuple([(k, read_map(f"{where}.{k}", v, depth + 1)) for k, v in value.items() if k != "$type"])
        own = read_map(where, value["$type"], depth + 1).type if "$type" in value else None
        return Map(type=own, fields=fields)
    named = getattr(value, "slang_type", value)
    if isinstance(named, (SlangType, str)):
        return Map(type=text(where, "the type", named) if isinstance(named, str) else named)
    if isinstance(value, type) and value in PYTHON_TYPES:
        return Map(type=PYTHON_TYPES[value])
    try:
        if not isinstance(value, np.dtype) and not (isinstance(value, type) and issubclass(value, np.generic)):
            raise KeyError
        return Map(type=SLANG_OF[np.dtype(value)])
    except (KeyError, TypeError):
        raise BindError(
            f"{where}: {in_words(value)} says neither dimensions nor a type; give a tuple of call "
            "dimensions, such as (0,), "
            "a type or its name, such as 'float3', or a dict of these for fields."
        ) from None
