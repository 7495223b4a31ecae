"""Live places: the parts of an argument that Slang differentiates, found in a bound argument and its value.

``bwds`` adds gradients to the same places (``gradients.py``). No gradient is made here: that is for the ``visit`` of
a caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.differentials import (
    active_fields,
    check_carried,
    differentiates,
    dropping_part,
)
from slangpy_rt.arguments.nested_packers import ConvertedPacker, PartsPacker
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.struct_values import PAIR
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.structs import fields_of

# Takes the start of messages, a place's argument, its value, and whether Slang differentiates it; returns another
# value of the same parameter, and the value's gradient, or None.
Visit = Callable[[str, Bound, Any, bool], tuple[Any, Any]]


def replaced(
    where: str, scope: Scope, bound: Bound, live: bool, value: Any, visit: Visit, dropping: str | None = None
) -> tuple[Any, Any]:
    """Return a value whose places are replaced by other ones, and the gradients of its places.

    Parameters
    ----------
    where : str
        ``"f: argument 'a'"``, the start of messages.
    bound : Bound
        The argument, as bound for the function itself.
    live : bool
        Whether the parameter is differentiated: it is not ``no_diff``.
    visit : callable
        Called for each place that has no parts.
    dropping : str, optional
        The struct that drops derivatives of the place, by ``dropping_struct``.

    Raises
    ------
    BindError
        If a field of such a struct carries a gradient.

    Returns
    -------
    value : Any
        Values with fields become dicts; lists and tuples stay what they are.
    gradients : Any
        A dict by field for a struct, a list or a tuple for lists and tuples, with None for items without a gradient;
        None if no place has one.
    """
    packer = bound.packer
    if bound.type.name.startswith(PAIR):
        return value, None
    if bound.mode == "tensor":
        head = bound.type.name.partition("<")[0]
        return visit(where, bound, value, head.endswith("DiffTensor") and container(bound.type) is not None)
    type_ = scope.struct(bound.type)
    live = live and differentiates(scope, type_)
    # A list of structs is converted to one array; arrays of other libraries are for ``visit``.
    whole = isinstance(value, _WHOLE) and not (bound.struct and isinstance(value, list))
    if isinstance(packer, ConvertedPacker) and not whole and not isinstance(converter(type(value)), Adapter):
        return replaced(
            where, scope, replace(bound, packer=packer.inner), live, packer.convert(value), visit, dropping
        )
    if bound.mode != "parts" or not isinstance(packer, PartsPacker):
        check_carried(where, dropping, value)
        return visit(where, bound, value, live)
    inside = active_fields(scope, type_) if live else None
    given, gradients = {}, {}
    for (place, part), item in zip(bound.parts, packer.parts(value), strict=True):
        name = place.strip(".")
        at = f"{where[:-1]}{place}'" if where.endswith("'") else f"{where}{place}"
        inner = live and (inside is None or name in inside)
        dropped = dropping_part(scope, type_, place, part.type, dropping)
        given[name], gradients[name] = replaced(at, scope, part, inner, item, visit, dropped)
    return _together(bound, value, given), _gathered(bound, value, gradients)


def writes_whole(bound: Bound) -> bool:
    """Return whether a function writes to whole arrays in an argument, whose gradients it would need."""
    places = [place for place in bound.places if place.mode == "tensor"]
    return any(place.access == "inout" and "DiffTensor<" in place.type.name for place in places)


def _together(bound: Bound, value: Any, given: dict[str, Any]) -> Any:
    """Return a value of other parts."""
    fields = fields_of(value)
    if fields is not None and any(name in fields for name in given):
        return {**fields, **{name: item for name, item in given.items() if name in fields}}
    if _is_sequence(bound, value):
        return type(value)(given.values()) if type(value) in (list, tuple) else list(given.values())
    return next(iter(given.values()), value) if len(given) == 1 else value


def _gathered(bound: Bound, value: Any, gradients: dict[str, Any]) -> Any:
    """Return the gradients of the parts of a value."""
    if all(gradient is None for gradient in gradients.values()):
        return None
    if _is_sequence(bound, value) and not bound.type.fields:
        return (list if isinstance(value, list) else tuple)(gradients.values())
    if fields_of(value) is None and not _is_sequence(bound, value):
        return next(iter(gradients.values()))
    return {name: gradient for name, gradient in gradients.items() if gradient is not None}


def _is_sequence(bound: Bound, value: Any) -> bool:
    """Return whether a value lists its parts; what an Optional holds is none."""
    return isinstance(value, (list, tuple)) and [place for place, _ in bound.parts] != [""]


_WHOLE = (NDBuffer, np.ndarray, list, tuple, DiffPair)
