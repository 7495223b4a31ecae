"""Arguments of bound calls as they were when the call was bound.

A prepared call knows the layouts of its values, and does not look at them again. ``kept`` copies what a program may
change afterwards: lists, dicts, objects with fields, memory and gradients of a tensor. It copies no arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.structs import fields_of


def kept(value: Any) -> Any:
    """Return a value that stays as it is, for an argument of the same signature.

    Arrays are the memory of now, with the gradients that they carry now. ValueRefs, which calls write to, and values
    without parts are returned as they are.
    """
    if isinstance(value, NDBuffer):
        return value.__copy__()
    if isinstance(value, np.void):
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[kept(item) for item in value])
    if isinstance(value, (list, tuple)):
        return tuple(map(kept, value)) if isinstance(value, tuple) else list(map(kept, value))
    fields = fields_of(value)
    return value if fields is None else {name: kept(item) for name, item in fields.items()}
