"""Element types: how Slang scalars, NumPy dtypes and Python types correspond.

A value here is a SlangType; nothing looks at a device or a module.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.errors import BindError
from slangpy_rt.types import SlangType

NUMPY_OF = {
    name: np.dtype(code)
    for name, code in {
        "bool": "?",
        "int8_t": "i1",
        "int16_t": "i2",
        "int": "i4",
        "int64_t": "i8",
        "uint8_t": "u1",
        "uint16_t": "u2",
        "uint": "u4",
        "uint64_t": "u8",
        "half": "f2",
        "float": "f4",
        "double": "f8",
    }.items()
}
SLANG_OF = {dtype: name for name, dtype in NUMPY_OF.items()}
_ALIASES = {
    "int32_t": "int",
    "uint32_t": "uint",
    "float16_t": "half",
    "float32_t": "float",
    "float64_t": "double",
    "int32": "int",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint32": "uint",
    "float32": "float",
    "float64": "double",
    "float16": "half",
}
_PYTHON = {float: "float", int: "int", bool: "bool"}
_NAME = re.compile(r"(?P<scalar>[a-z]+[0-9]*_t|[a-z]+)(?P<rows>[1-4])?(?:x(?P<columns>[1-4]))?$")


def scalar_type(name: str) -> SlangType:
    """The SlangType of a scalar by its canonical name."""
    return SlangType("scalar", name, name)


@lru_cache(maxsize=256)
def _named(name: str) -> SlangType | None:
    name = _ALIASES.get(name, name)
    if name in NUMPY_OF:
        return scalar_type(name)
    match = _NAME.match(name)
    if match is None:
        return None
    scalar = _ALIASES.get(match["scalar"], match["scalar"])
    if scalar not in NUMPY_OF or match["rows"] is None:
        return None
    if match["columns"]:
        shape = (int(match["rows"]), int(match["columns"]))
        return SlangType("matrix", name, scalar, shape)
    return SlangType("vector", name, scalar, (int(match["rows"]),))


def element_type(where: str, dtype: Any) -> SlangType:
    """What a user gives as ``dtype``: a Slang name, a SlangType, a NumPy dtype or a Python type.

    Raises
    ------
    BindError
        If it is none of these, or names a type that arrays cannot hold.
    """
    if isinstance(dtype, SlangType):
        found: SlangType | None = dtype
    elif isinstance(dtype, str):
        found = _named(dtype)
    elif dtype in _PYTHON:
        found = scalar_type(_PYTHON[dtype])
    else:
        try:
            name = SLANG_OF.get(np.dtype(dtype).newbyteorder("="))
        except TypeError:
            name = None
        found = scalar_type(name) if name else None
    if found is None or found.kind not in ("scalar", "vector", "matrix"):
        raise BindError(
            f"{where}: dtype {dtype!r} is not an element type. Give a Slang name such as 'float' or 'float3', "
            "a NumPy dtype, or float, int or bool."
        )
    return found


def flatten(type_: SlangType) -> tuple[str, tuple[int, ...]] | None:
    """Scalar and trailing dimensions of a type made of one kind of scalar, or None for any other.

    ``float3`` gives ``("float", (3,))``, ``float[4]`` ``("float", (4,))``.
    """
    if type_.kind in ("scalar", "vector", "matrix") and type_.scalar in NUMPY_OF:
        return type_.scalar, type_.shape
    if type_.kind == "array" and type_.element is not None and type_.shape[0] > 0:
        inner = flatten(type_.element)
        if inner is not None and not inner[1]:
            return inner[0], type_.shape
    return None


def convertible(source: npt.DTypeLike, target: npt.DTypeLike) -> bool:
    """Whether host data converts without a cast by the user: 'same_kind', and integers to floats."""
    a, b = np.dtype(source), np.dtype(target)
    return np.can_cast(a, b, "same_kind") or (a.kind in "iu" and b.kind == "f")
