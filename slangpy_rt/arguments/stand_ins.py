"""Stand-ins: arguments of a caller's own class whose ``__slang_arg__`` or ``get_this`` returns the value to pass.

The method is called once a call. Its value replaces the stand-in in everything that follows, and ``update_this`` gets
that same value after the call; so results reach a ``get_this`` that makes a new object each time. With a method
``gradient_of_this`` a stand-in gives the gradient of its value another form in ``value_and_grad``. Arrays of other
libraries are no stand-ins: adapters use them in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arrays.layout import Laid
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.wording import class_in_words, in_words

# A stand-in may stand for another one; this ends the search for one that stands for itself.
_DEEPEST = 32
# Types of values that hold no others.
PLAIN = frozenset({bool, int, float, str, type(None)})


class Asked(NamedTuple):
    """A stand-in whose method was called: its place among a call's values, the stand-in, and the method's value."""

    place: int
    value: Any
    meant: Any


def stands_in(kind: type) -> bool:
    """Return whether values of a type are stand-ins: whether it has ``__slang_arg__`` or ``get_this``."""
    return (hasattr(kind, "__slang_arg__") or hasattr(kind, "get_this")) and not issubclass(kind, type)


def meant_by(value: Any) -> Any:
    """Return the value that a stand-in stands for.

    Raises
    ------
    BindError
        If its attribute of that name is no method.
    """
    name = "__slang_arg__" if hasattr(type(value), "__slang_arg__") else "get_this"
    method = getattr(value, name)
    if not callable(method):
        raise BindError(f"{class_in_words(value)}, whose {name} is {in_words(method)}; a method was expected.")
    return method()


def ask(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Asked, ...]]:
    """Replace each stand-in among a call's values, or inside of them, by the value it stands for.

    Raises
    ------
    BindError
        If stand-ins stand for each other without an end.
    """
    asked: list[Asked] = []
    plain = tuple([_plain(value, place, asked, 0) for place, value in enumerate(values)])
    return (plain, tuple(asked)) if asked else (values, ())


def want_back(asked: tuple[Asked, ...]) -> tuple[Asked, ...]:
    """Return the stand-ins that have an ``update_this``."""
    return tuple([a for a in asked if hasattr(a.value, "update_this")])


def hand_back(asked: tuple[Asked, ...], written: set[int]) -> None:
    """Call ``update_this`` of the stand-ins at the places that a call has written."""
    for place, value, meant in asked:
        if place in written:
            value.update_this(meant)


def note_on(recorder: Any, asked: tuple[Asked, ...]) -> None:
    """Have ``update_this`` called once a tape has added to the gradients of a stand-in's value, as ``bwds`` does.

    Parameters
    ----------
    recorder : Recorder
        The tape, on which the call of these stand-ins is not recorded yet.
    """
    for _, value, meant in want_back(asked):
        arrays = tuple([array for array in arrays_in(meant) if array.layout.grads is not None])
        recorder.note(arrays, arrays, partial(value.update_this, meant))


def arrays_in(value: Any) -> Iterator[NDBuffer]:
    """Yield the device arrays in a value, those inside of stand-ins too."""
    return (array for array in memory_in(value) if isinstance(array, NDBuffer))


def memory_in(value: Any) -> Iterator[Any]:
    """Yield the device arrays and the textures in a value, those inside of stand-ins too."""
    kind = type(value)
    if isinstance(value, (NDBuffer, Laid)):
        # A Sampler has no memory.
        if isinstance(value, NDBuffer) or hasattr(value, "buffer"):
            yield value
    elif kind not in PLAIN and not isinstance(value, np.ndarray):
        if stands_in(kind):
            value = meant_by(value)
        elif isinstance(value, ValueRef):
            value = (value.value,)
        fields = fields_of(value)
        items = fields.values() if fields is not None else value if isinstance(value, (list, tuple)) else ()
        for item in items:
            yield from memory_in(item)


def _plain(value: Any, place: int, asked: list[Asked], depth: int) -> Any:
    kind: Any = type(value)
    sort = _sort(kind)
    if sort == "whole" or depth > _DEEPEST:  # ``bind`` refuses deeper values
        return value
    if sort == "stand-in":
        if depth == _DEEPEST:
            raise BindError(f"{in_words(value)} stands for another value, and that for the next, without an end.")
        try:
            method = value.__slang_arg__ if hasattr(kind, "__slang_arg__") else value.get_this
            if not callable(method):  # ``bind`` refuses it
                return value
            meant = method()
        except BindError:  # ``bind`` raises it again, with the argument's name
            return value
        asked.append(Asked(place, value, meant))
        return _plain(meant, place, asked, depth + 1)
    if sort == "sequence":
        if set(map(type, value)) <= PLAIN:
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
    """Return where stand-ins may be in values of a type."""
    if kind in PLAIN or issubclass(kind, (np.ndarray, np.generic)):
        return "whole"
    if stands_in(kind):
        return "stand-in"
    if kind is list or kind is tuple:
        return "sequence"
    if issubclass(kind, Mapping):
        return "mapping"
    return "fields" if hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__") else "whole"


def _same(value: Any, items: list[Any], place: int, asked: list[Asked], depth: int, make: Any) -> Any:
    """Return the value itself if it holds no stand-in, else a copy with the stand-ins replaced."""
    before = len(asked)
    new = [_plain(item, place, asked, depth + 1) for item in items]
    return make(new) if len(asked) > before else value
