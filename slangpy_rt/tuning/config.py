"""Config: one value for each choice of a tuned function. It does not know what the values are used for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from slangpy_rt.core.checks import table
from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words

# A search of more configurations takes minutes even if each is compiled and measured in 0.1 s.
MOST_CONFIGS = 1024


class Config(Mapping[str, Any]):
    """The values of one configuration by name; each name is an attribute too. It does not change.

    Parameters
    ----------
    values : mapping
        Numbers, text or tuples of numbers by name.

    Raises
    ------
    BindError
        If it is no mapping of such values by name.

    Examples
    --------
    >>> config = Config({"TILE": 16, "group_size": (8, 8)})
    >>> config["TILE"], config.TILE, config.d("TILE")
    (16, 16, 16)
    """

    __slots__ = ("_items", "_values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            raise BindError(f"Config: {in_words(values)} is no dict of values by name.")
        self._values = {
            name: value_of(f"Config: '{name}'", v) for name, v in table("Config", "values", values).items()
        }
        # Python takes 1, 1.0 and True as equal, and kernels do not.
        self._items = frozenset((name, type(v), v) for name, v in self._values.items())

    def d(self, name: str) -> Any:
        """Return a value by name, as PyTriton calls it."""
        return self[name]

    @property
    def text(self) -> str:
        """The names and values in one line: ``"TILE=16, group_size=(8, 8)"``."""
        return ", ".join(f"{name}={v!r}" for name, v in self._values.items()) or "no choices"

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise BindError(f"the configuration has no {in_words(name)}; it has {', '.join(self._values) or 'none'}.")
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"the configuration has no '{name}'; it has {', '.join(self._values) or 'none'}.")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        # What is no text may have no hash.
        return isinstance(name, str) and name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value by name, or another one if there is none of that name."""
        return self._values[name] if name in self else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._items == other._items

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Config({self.text})"


def product_of(where: str, choices: Mapping[str, Sequence[Any]]) -> tuple[Config, ...]:
    """Return all combinations of choices, in their order: the last choice changes first.

    Raises
    ------
    BindError
        If a list of choices is empty, or there are more than 1,024 combinations.
    """
    count = 1
    for name, values in choices.items():
        if not values:
            raise BindError(f"{where}: the list of choices of '{name}' is empty; give at least one value.")
        count *= len(values)
    check_count(where, count)
    found = (Config(dict(zip(choices, values, strict=True))) for values in product(*choices.values()))
    return tuple(dict.fromkeys(found))


def check_count(where: str, count: int) -> None:
    """Refuse more configurations than are searched.

    Raises
    ------
    BindError
        If there are more than 1,024.
    """
    if count > MOST_CONFIGS:
        raise BindError(
            f"{where}: the choices make {count:,} configurations; at most {MOST_CONFIGS:,} are searched. Shorten the "
            "lists, or give configurations with tune(configs=...)."
        )


def configs_from(where: str, given: Any) -> tuple[Config, ...]:
    """Return the configurations that a user gave as a list of mappings.

    Raises
    ------
    BindError
        If it is no list of mappings with equal names, is empty or too long, or a value is of another type.
    """
    if not isinstance(given, (list, tuple)) or not all(isinstance(c, Mapping) for c in given):
        raise BindError(f"{where}: configs is {in_words(given)}; a list of dicts of values by name was expected.")
    if not given:
        raise BindError(f"{where}: configs is empty; give at least one configuration.")
    check_count(where, len(given))
    for k, config in enumerate(given):
        if set(config) != set(given[0]):
            raise BindError(
                f"{where}: configs[{k}] has the names {sorted(map(str, config))}, and configs[0] "
                f"{sorted(map(str, given[0]))}; equal names were expected."
            )
        for name, value in config.items():
            if not isinstance(name, str):
                raise BindError(f"{where}: configs[{k}] has the name {in_words(name)}; text was expected.")
            value_of(f"{where}: configs[{k}]['{name}']", value)
    names = list(given[0])
    return tuple(dict.fromkeys(Config({n: value_of("", c[n]) for n in names}) for c in given))


def value_of(where: str, value: Any) -> Any:
    """Return a choice's value as a hashable one: lists of numbers become tuples.

    Raises
    ------
    BindError
        If it is no number, no text and no tuple of numbers.
    """
    if isinstance(value, (list, tuple)):
        if value and all(kind_of(v) in "biuf" for v in value):
            return tuple(map(_plain, value))
    elif isinstance(value, str):
        return str.__str__(value)
    elif kind_of(value) in "biuf":
        return _plain(value)
    raise BindError(f"{where} is {in_words(value)}; a number, text or a tuple of numbers was expected.")


def _plain(value: Any) -> Any:
    """Return a number as Python's own type: classes derived from that need not be hashable."""
    if isinstance(value, (bool, np.generic)):
        return value if isinstance(value, bool) else value.item()
    return float.__float__(value) if isinstance(value, float) else int.__int__(value)


def cdiv(a: int, b: int) -> int:
    """Return the number of blocks of ``b`` that hold ``a`` elements: the quotient, rounded up.

    Raises
    ------
    BindError
        If a number is not whole, or ``b`` is not positive.
    """
    if kind_of(a) not in "iu" or kind_of(b) not in "iu" or b < 1:
        raise BindError(f"cdiv: expected whole numbers, the second above 0; got {in_words(a)} and {in_words(b)}.")
    return -(-int(a) // int(b))
