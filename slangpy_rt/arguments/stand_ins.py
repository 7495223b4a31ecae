"""Stand-ins: arguments of a caller's own class that say what they stand for, by ``__slang_arg__`` or ``get_this``.

Each is asked once a call. What it says takes its place in everything that follows, and is what ``update_this`` gets
afterwards; so a ``get_this`` that makes a new object each time sees its results. Arrays of other libraries are no
stand-ins: they are looked at where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.wording import class_in_words, in_words

# A stand-in may stand for another one; one that stands for itself has no end.
_DEEPEST = 32
_PLAIN = frozenset({bool, int, float, str, type(None)})


class Asked(NamedTuple):
    """A stand-in that was asked: its place among a call's values, itself, and what it said."""

    place: int
    value: Any
    meant: Any


def stands_in(kind: type) -> bool:
    """Return whether values of a type say themselves what they stand for."""
    return (hasattr(kind, "__slang_arg__") or hasattr(kind, "get_this")) and not issubclass(kind, type)


def meant_by(value: Any) -> Any:
    """Return what a stand-in says that it stands for.

    Raises
    ------
    BindError
        If what it has under that name is no method.
    """
    name = "__slang_arg__" if hasattr(type(value), "__slang_arg__") else "get_this"
    method = getattr(value, name)
    if not callable(method):
        raise BindError(f"{class_in_words(value)}, whose {name} is {in_words(method)}; a method was expected.")
    return method()


def ask(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Asked, ...]]:
    """Replace each stand-in among a call's values, or inside of them, by what it stands for.

    Raises
    ------
    BindError
        If a stand-in leads to no other value.
    """
    asked: list[Asked] = []
    plain = tuple([_plain(value, place, asked, 0) for place, value in enumerate(values)])
    return (plain, tuple(asked)) if asked else (values, ())


def want_back(asked: tuple[Asked, ...]) -> tuple[Asked, ...]:
    """Return those that want to be told what a call made of what they stood for."""
    return tuple([a for a in asked if hasattr(a.value, "update_this")])


def hand_back(asked: tuple[Asked, ...], written: set[int]) -> None:
    """Tell stand-ins at those places what a call made of what they stood for."""
    for place, value, meant in asked:
        if place in written:
            value.update_this(meant)


def _plain(value: Any, place: int, asked: list[Asked], depth: int) -> Any:
    kind: Any = type(value)
    sort = _sort(kind)
    if sort == "whole" or depth > _DEEPEST:  # what is deeper is refused where it is bound
        return value
    if sort == "stand-in":
        if depth == _DEEPEST:
            raise BindError(f"{in_words(value)} stands for another value, and that for the next, without an end.")
        try:
            method = value.__slang_arg__ if hasattr(kind, "__slang_arg__") else value.get_this
            if not callable(method):  # which is refused where it is bound
                return value
            meant = method()
        except BindError:  # which is said again, with the argument's name, where it is bound
            return value
        asked.append(Asked(place, value, meant))
        return _plain(meant, place, asked, depth + 1)
    if sort == "sequence":
        if set(map(type, value)) <= _PLAIN:
            return value
        return _same(value, list(value), place, asked, depth, kind)
    if sort == "mapping":
        found = list(value.values())
        return _same(value, found, place, asked, depth, lambda new: dict(zip(value, new, strict=True)))
    fields = fields_of(value)
    if fields is None:
        return value
    names = list(fields)
    return _same(value, list(fields.values()), place, asked, depth, lambda new: dict(zip(names, new, strict=True)))


@lru_cache(maxsize=1024)
def _sort(kind: type) -> str:
    """Return where in values of a type stand-ins may be."""
    if kind in _PLAIN or issubclass(kind, (np.ndarray, np.generic)):
        return "whole"
    if stands_in(kind):
        return "stand-in"
    if kind is list or kind is tuple:
        return "sequence"
    if issubclass(kind, Mapping):
        return "mapping"
    return "fields" if hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__") else "whole"


def _same(value: Any, items: list[Any], place: int, asked: list[Asked], depth: int, make: Any) -> Any:
    """Return the value itself if nothing inside is a stand-in, else one made of what these stand for."""
    before = len(asked)
    new = [_plain(item, place, asked, depth + 1) for item in items]
    return make(new) if len(asked) > before else value
