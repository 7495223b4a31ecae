"""Element types: how Slang scalars, NumPy dtypes and Python types correspond.

Functions here take and return SlangTypes and NumPy dtypes; none of them looks at a device or a module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import SlangType, check_value
from slangpy_rt.core.wording import in_words, meant

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
# What arrays may hold where kernels read and write floats: Slang computes with it on few devices. Its scalar is that
# of its memory.
BFLOAT16 = SlangType("storage", "bfloat16", "uint16_t")
SLANG_OF = {dtype: name for name, dtype in NUMPY_OF.items()}
_ALIASES = {
    "int32_t": "int",
    "uint32_t": "uint",
    "float16_t": "half",
    "float32_t": "float",
    "float64_t": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint64": "uint64_t",
    "uint32": "uint",
    "float32": "float",
    "float64": "double",
    "float16": "half",
}
# The Slang types of Python's types.
PYTHON_TYPES = {float: "float", int: "int", bool: "bool"}
# What lies beyond becomes infinity, once rounded to a float (here up to 65520, the tie to even) and then to a half.
_HALF = 65519.99804687499
# ``vector<float, 3>`` and ``matrix<float, 2, 3>``, which Slang calls float3 and float2x3 as well.
_GENERIC = re.compile(
    r"(?:vector|matrix)\s*<\s*(?P<scalar>\w+)\s*,\s*(?P<rows>[1-4])\s*(?:,\s*(?P<columns>[1-4])\s*)?>$"
)
_NAME = re.compile(r"(?P<scalar>[a-z]+[0-9]*_t|[a-z]+)(?P<rows>[1-4])?(?:x(?P<columns>[1-4]))?$")


def scalar_type(name: str) -> SlangType:
    """Return the SlangType of a scalar by its canonical name."""
    return SlangType("scalar", name, name)


def is_own_bfloat16(type_: SlangType) -> bool:
    """Tell whether a type is the struct ``bfloat16`` of ``shaders/slangpy_rt.slang``, an element of whole arrays."""
    return type_.kind == "struct" and type_.name == BFLOAT16.name and [f.name for f in type_.fields] == ["_spy_bits"]


def _is_own_container(type_: SlangType) -> bool:
    """Tell whether a struct is one of ours that holds a whole array, such as ``Tensor<float, 2>``: an address."""
    return bool(type_.arguments) and type_.fields[0].name.startswith("_spy_")


def holds_own_container(type_: SlangType) -> bool:
    """Tell whether a struct has a field, or a field of a field, that holds a whole array."""
    if type_.kind == "array" and type_.element is not None:
        return holds_own_container(type_.element)
    if type_.kind != "struct" or not type_.fields:
        return False
    return _is_own_container(type_) or any(holds_own_container(field.type) for field in type_.fields)


def atomic_of(type_: SlangType) -> SlangType | None:
    """Return T of Slang's ``Atomic<T>``, which lies in memory as T does; None for any other type."""
    return type_.element if type_.kind == "atomic" else None


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Tell whether a NumPy dtype is the bfloat16 of the package ml_dtypes."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def slang_scalar(dtype: np.dtype[Any]) -> str | None:
    """Return the Slang scalar that a NumPy dtype holds, in either order of bytes; None if there is none."""
    # Some dtypes, such as those of strings, have no order of bytes to ask for.
    return SLANG_OF.get(dtype if dtype.isnative else dtype.newbyteorder("="))


@lru_cache(maxsize=256)
def _named(name: str) -> SlangType | None:
    name = name.strip()
    name = _ALIASES.get(name, name)
    if name in NUMPY_OF:
        return scalar_type(name)
    if name == BFLOAT16.name:
        return BFLOAT16
    if generic := _GENERIC.match(name):
        inner_type = _named(generic["scalar"])
        sizes = "x".join(filter(None, (generic["rows"], generic["columns"])))
        known = (
            inner_type is not None
            and inner_type.kind == "scalar"
            and (generic["columns"] is None) == (name[0] == "v")
        )
        return _named(f"{inner_type.name}{sizes}") if known and inner_type else None
    if name.startswith("Array<") and name.endswith(">"):
        inner, _, size = name[len("Array<") : -1].rpartition(",")
        return _named(f"{inner}[{size.strip()}]") if inner.strip() else None
    if name.endswith("]"):
        inner, _, size = name[:-1].rpartition("[")
        element = _named(inner.strip())
        if element is None or element is BFLOAT16 or not size.isdigit() or not int(size):
            return None
        return SlangType("array", f"{element.name}[{size}]", shape=(int(size),), element=element)
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
    """Return the SlangType of a user's ``dtype`` argument: a Slang name, a SlangType, a NumPy dtype or a Python type.

    Raises
    ------
    BindError
        If it is none of these, or names a type that arrays cannot hold.
    """
    dtype = getattr(dtype, "slang_type", dtype)
    if isinstance(dtype, SlangType):
        found: SlangType | None = dtype
    elif isinstance(dtype, str):
        found = _named(str.__str__(dtype))
    elif isinstance(dtype, type) and dtype in PYTHON_TYPES:
        found = scalar_type(PYTHON_TYPES[dtype])
    else:
        found = None
        if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
            own = np.dtype(dtype)
            name = slang_scalar(own)
            found = scalar_type(name) if name else BFLOAT16 if is_bfloat16(own) else None
    if found is not None and holds_own_container(found):
        raise BindError(f"{where}: dtype '{found.name}' holds a whole array, which elements of arrays cannot.")
    if found is None or storage(found) is None:
        similar = isinstance(dtype, str) and dtype.rstrip("0123456789x") not in NUMPY_OF
        raise BindError(
            f"{where}: dtype {in_words(dtype)} is not an element type. Give a Slang name such as "
            "'float' or 'float3', "
            "a struct of a module (module.Pixel), a NumPy dtype, or float, int or bool."
            f"{meant(dtype, NUMPY_OF) if similar else ''}"
        )
    return found


def check_element(where: str, value: Any) -> SlangType:
    """Check a SlangType that comes from outside the process, as from a pickle, and return it.

    Raises
    ------
    BindError
        If it is no type of array elements that Slang has: a field has a value of another type, a number of components
        does not agree with the name, or an inner type is none.
    """
    try:
        check_value(value)
        known = isinstance(value, SlangType) and _is_consistent(value) and storage(value) is not None
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError):
        known = False
    if not known:
        raise BindError(f"{where}: the element type is damaged; expected a scalar, vector, matrix, array or struct.")
    checked: SlangType = value
    return checked


def _is_consistent(type_: SlangType) -> bool:
    """Tell whether the parts of an element type agree with each other."""
    if type_.kind in ("scalar", "vector", "matrix"):
        return type_ == _named(type_.name)
    if type_.kind == "enum":
        return type_.scalar in NUMPY_OF and not type_.shape
    if type_.kind == "array":
        return type_.element is not None and len(type_.shape) == 1 and _is_consistent(type_.element)
    return type_.kind == "struct" and all(f.name.isidentifier() and _is_consistent(f.type) for f in type_.fields)


@dataclass(frozen=True)
class Storage:
    """How arrays hold elements of a type: as NumPy would, scalars packed and the element's dimensions last.

    Structs keep the order of their fields, each scalar aligned to its own size, as NumPy's ``align=True`` and C
    have it; so they lie the same on every device, whatever a target's own rules are.

    Attributes
    ----------
    scalar : str
        Slang scalar that addresses and strides count: ``"float"``; ``"uint8_t"`` for structs.
    dims : tuple of int
        The element's own dimensions: ``(3,)`` of ``float3`` and of ``Pixel[3]``.
    dtype : numpy.dtype
        NumPy's type of one item; structured for structs.
    struct : SlangType or None
        The type of one item, if that is a struct.
    step : int
        Scalars from one item to the next.
    count : int
        Scalars of one element.
    """

    scalar: str
    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    struct: SlangType | None = None
    step: int = field(init=False, repr=False, compare=False)
    count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Attributes of a frozen value cannot be assigned.
        own = self.__dict__
        step = own["step"] = self.dtype.itemsize if self.struct else 1
        own["count"] = prod(self.dims) * step


@lru_cache(maxsize=256)
def _of_numbers(scalar: str, dims: tuple[int, ...]) -> Storage:
    return Storage(scalar, dims, NUMPY_OF[scalar])


def storage(type_: SlangType) -> Storage | None:
    """Return the Storage of a SlangType in arrays, or None if arrays cannot hold it."""
    if type_.kind in ("scalar", "vector", "matrix", "enum", "storage") and type_.scalar in NUMPY_OF:
        return _of_numbers(type_.scalar, type_.shape)
    if type_.kind == "array" and type_.element is not None and type_.shape[0] > 0:
        inner = storage(type_.element)
        # An enum is stored through its scalar, which arrays of enums cannot be.
        if inner is not None and type_.element.kind != "enum":
            return Storage(inner.scalar, type_.shape + inner.dims, inner.dtype, inner.struct)
    if type_.kind == "struct" and type_.fields and not is_own_bfloat16(type_) and not _is_own_container(type_):
        fields = [(f.name, storage(f.type)) for f in type_.fields]
        if all(s is not None for _, s in fields):
            dtype = np.dtype([(name, s.dtype, s.dims) for name, s in fields if s], align=True)
            return Storage("uint8_t", (), dtype, type_)
    return None


def scalars_of(dtype: np.dtype[Any]) -> frozenset[str]:
    """Return the Slang scalars that items of a dtype are made of."""
    fields = dtype.base.fields
    if fields is None:
        return frozenset({SLANG_OF[dtype.base]})
    return frozenset(scalar for field in fields.values() for scalar in scalars_of(field[0]))


def source_name(type_: SlangType) -> str:
    """Return a type as Slang source can write it anywhere: ``float[2][3]`` as ``Array<Array<float, 2>, 3>``."""
    if type_.kind == "array" and type_.element is not None:
        return f"Array<{source_name(type_.element)}, {type_.shape[0]}>"
    return type_.name


def convertible(source: npt.DTypeLike, target: npt.DTypeLike) -> bool:
    """Tell whether host data converts without a cast by the user: 'same_kind', and integers to floats."""
    a, b = np.dtype(source), np.dtype(target)
    return np.can_cast(a, b, "same_kind") or (a.kind in "iu" and b.kind == "f")


def limits(scalar: str) -> tuple[float, float] | None:
    """Return the least and the largest number that converts to a whole number or a half; None for other scalars."""
    dtype = NUMPY_OF[scalar]
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return int(bounds.min), int(bounds.max)
    # Packing refuses a number beyond a float; a half is packed as a float and narrowed on the device.
    return (-_HALF, _HALF) if scalar == "half" else None


def span(low: float, high: float) -> str:
    """Return the numbers from ``low`` to ``high`` in words."""
    return "-65504 to 65504" if high == _HALF else f"{low} to {high}"


# NumPy would make infinity of a number that is too large. A decorator takes 0.4 us less than a block.
@np.errstate(over="raise")
def _narrowed(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array as another dtype, in C order; FloatingPointError if a finite number becomes infinite."""
    return np.asarray(array, dtype, order="C")


@lru_cache(maxsize=256)
def _conversion(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[bool, bool]:
    """Tell whether one dtype converts to another, and whether a value may be beyond the range of the other."""
    # The largest whole number of 64 bits is far below the largest float, and beyond the largest half.
    in_range = source.kind in "iub" and target.kind == "f" and target.itemsize > 2
    return convertible(source, target), not in_range and not np.can_cast(source, target, "safe")


def cast(
    what: str, type_name: str, array: npt.NDArray[Any], dtype: np.dtype[Any], listed: bool = False
) -> npt.NDArray[Any]:
    """Return a host array as another dtype, in C order.

    Parameters
    ----------
    what : str
        What the array is, as the subject of a message: ``"Tensor.from_numpy: data"``.
    type_name : str
        The name of the dtype in messages, as the user wrote it.
    listed : bool
        Whether the array was a list: its whole numbers have no width and no sign of their own.

    Raises
    ------
    BindError
        If the dtype is of a kind that does not convert, or a number is beyond its range.
    """
    if array.dtype == dtype:
        return np.asarray(array, dtype, order="C")
    free = listed and (array.size == 0 or array.dtype.kind + dtype.kind in ("ii", "iu", "ui", "uu"))
    converts, may_lose = _conversion(array.dtype, dtype)
    if not free and not converts:
        raise BindError(
            f"{what} of dtype {array.dtype} does not convert to '{type_name}'. "
            f"Cast it yourself: array.astype(numpy.{dtype.name})."
        )
    if not may_lose:
        return np.asarray(array, dtype, order="C")
    if dtype.kind in "iu" and array.size:
        bounds = np.iinfo(dtype)
        for x in (array.min(), array.max()):
            if not bounds.min <= x <= bounds.max:
                raise BindError(f"{what} holds {x}, which does not fit '{type_name}' ({bounds.min} to {bounds.max}).")
    try:
        return _narrowed(array, dtype)
    except FloatingPointError:
        with np.errstate(over="ignore", invalid="ignore"):
            lost = ~np.isfinite(array.astype(dtype)) & np.isfinite(array)
        raise BindError(f"{what} holds {array[lost].flat[0]}, which does not fit '{type_name}'.") from None
