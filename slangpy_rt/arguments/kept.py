"""Arguments as they were at a call, for what happens later: repetitions of a bound call, and its derivative.

A prepared call knows the layouts of its values, and does not look at them again. ``kept`` copies what a program may
change afterwards: lists, dicts, objects with fields, memory and gradients of a tensor. ``copied`` also copies arrays
of the host and of other libraries. Neither copies arrays on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.computed import Generator
from slangpy_rt.arguments.stand_ins import PLAIN
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.conversion import by_protocol
from slangpy_rt.core.structs import fields_of


def kept(value: Any) -> Any:
    """Return a value that stays as it is, for an argument of the same signature.

    Arrays are the memory of now, with the gradients that they carry now. ValueRefs, which calls write to, and values
    without parts are returned as they are.
    """
    return rebuilt(value, kept)


def copied(value: Any) -> Any:
    """Return a value that stays as it is, for an argument that a derivative reads once more.

    Device arrays are returned with their memory of now, whose contents may change.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, (NDBuffer, Generator)):
        return rebuilt(value, copied)
    if isinstance(value, DiffPair):
        return DiffPair(copied(value.value), copied(value.grad))
    if isinstance(value, ValueRef):
        return ValueRef(copied(value.value))
    if isinstance(value, np.ndarray):
        return value.copy("K")
    stand_in = converter(type(value))
    if isinstance(stand_in, Adapter):
        return stand_in.copied(value)
    if stand_in is by_protocol:
        return np.array(by_protocol(value))
    return rebuilt(value, copied)


def rebuilt(value: Any, part: Callable[[Any], Any]) -> Any:
    """Return a value of the same parts, each replaced by what ``part`` returns."""
    if isinstance(value, NDBuffer):
        return value.__copy__()
    if isinstance(value, np.void):
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[part(item) for item in value])
    if isinstance(value, (list, tuple)):
        return tuple(map(part, value)) if isinstance(value, tuple) else list(map(part, value))
    fields = fields_of(value)
    return value if fields is None else {name: part(item) for name, item in fields.items()}
