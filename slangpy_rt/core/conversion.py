"""Conversion: the one place where host data becomes data of a Slang type, or is refused.

A number converts where its kind allows it (bool to whole number to float, never back) and where the type holds it.
Nothing is cut, wrapped or parsed in silence; one number for all of a vector or matrix is Slang's own conversion.
Arrays of other libraries that the host cannot read are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from math import inf, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.checks import is_callers, no_memory
from slangpy_rt.core.dtypes import NUMPY_OF, cast, is_bfloat16, limits, scalar_type, span, storage
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.structs import as_struct_array, fields_of
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import class_in_words, in_words

Array = npt.NDArray[Any]
# Finds the type that a dict's ``"_type"`` names. The first argument is the start of an error message.
Named = Callable[[str, str], SlangType]

# From here on a number rounds to infinity: half a unit of the last place beyond the largest finite number.
_BEYOND = {"float": 2**128 - 2**103, "double": 2**1024 - 2**970}
# Kinds of NumPy's dtypes that convert to each kind.
KINDS = {"f": "iufb", "i": "iub", "u": "iub", "b": "b"}
# The exceptions of DLPack's methods, and of NumPy where it cannot read a capsule.
DLPACK_ERRORS = (BufferError, RuntimeError, TypeError, ValueError)
_LIBRARIES = frozenset({"cupy", "jax", "jaxlib", "numba", "torch"})
_NUMBERS = (bool, int, float, np.generic)
# NumPy's limit of dimensions since 2.0. It ends the walk through a list that contains itself.
_DEEPEST = 64


def kind_of(value: Any) -> str:
    """Return a number's kind as in ``numpy.dtype.kind``, for Python numbers too; ``"O"`` for anything else."""
    if isinstance(value, np.generic):
        return "f" if is_bfloat16(value.dtype) else value.dtype.kind
    return next((k for base, k in ((bool, "b"), (int, "i"), (float, "f")) if isinstance(value, base)), "O")


def as_number(where: str, type_: SlangType, value: Any) -> Any:
    """Return one number of a scalar or enum type as a Python number.

    Raises
    ------
    BindError
        If the value is no number, of a kind that does not convert, or beyond the type's range.
    """
    if type_.kind == "enum" and isinstance(value, (str, Enum)):
        return case_of(where, type_, value)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.names is None:
        value = value[()]
    kind = kind_of(value)
    if kind not in KINDS[NUMPY_OF[type_.scalar].kind]:
        raise BindError(
            f"{where} is {in_words(value)} of type {type(value).__name__}, which does not convert to '{type_.name}'."
        )
    number = value.item() if isinstance(value, np.generic) else value
    bounds = limits(type_.scalar)
    if bounds is not None:
        if isinstance(number, float) and not isfinite(number):
            return number  # a half holds infinity and NaN too
        if not bounds[0] <= number <= bounds[1]:
            raise BindError(f"{where} is {in_words(value)}, which does not fit '{type_.name}' ({span(*bounds)}).")
    elif type_.scalar != "bool" and _BEYOND[type_.scalar] <= abs(number) < inf:
        raise BindError(f"{where} is {in_words(value)}, which does not fit '{type_.name}'.")
    return number


def case_of(where: str, type_: SlangType, value: Any) -> int:
    """Return the number of an enum's case, given by its name, or by a Python enum's name or value.

    Raises
    ------
    BindError
        If there is no such case.
    """
    if isinstance(value, Enum) and isinstance(value.value, (int, np.integer)) and not isinstance(value.value, bool):
        return int(as_number(where, scalar_type(type_.scalar), value.value))
    name = value.name if isinstance(value, Enum) else str.__str__(value)
    cases = dict(type_.cases)
    if name not in cases:
        raise BindError(f"{where} is {in_words(value)}; '{type_.name}' has {', '.join(cases) or 'no cases by name'}.")
    return cases[name]


def is_number(value: Any) -> bool:
    """Tell whether a value is a real number of Python or NumPy, and no bool."""
    return kind_of(value) in "iuf"


def as_element(
    where: str, type_: SlangType, value: Any, named: Named | None = None, everywhere: bool = False
) -> Array:
    """Return one element of a type as host arrays hold it, from a number, lists, a dict or another struct's value.

    Parameters
    ----------
    where : str
        Start of an error message.
    named : callable, optional
        Finds a type by its name, to compare a dict's ``"_type"`` with; without it ``"_type"`` is not compared.
    everywhere : bool
        Whether one number stands for every scalar, those of structs and of arrays included.

    Raises
    ------
    BindError
        If the value, or a part of it, does not fit.
    UnsupportedError
        If arrays have no elements of that type.
    """
    stored = storage(type_)
    if stored is None:
        raise UnsupportedError(f"{where}: values of type '{type_.name}' are not supported here.")
    out = np.zeros(stored.dims, stored.dtype)
    if everywhere and kind_of(value) != "O":
        _repeat(where, type_, out, value)
    else:
        _fill(where, type_, out, value, named)
    return out


def _repeat(where: str, type_: SlangType, out: Array, value: Any) -> None:
    """Set every scalar of an element to one number."""
    if type_.kind == "struct":
        for f in type_.fields:
            _repeat(f"{where}, field {f.name}", f.type, out[f.name], value)
    elif type_.kind == "array" and type_.element is not None:
        _repeat(where, type_.element, out, value)
    else:
        out[...] = as_number(where, type_ if type_.kind == "enum" else scalar_type(type_.scalar), value)


def _fill(where: str, type_: SlangType, out: Array, value: Any, named: Named | None) -> None:
    if type_.kind == "struct":
        _fill_struct(where, type_, out, value, named)
        return
    if type_.kind in ("scalar", "enum", "storage"):
        out[...] = as_number(where, type_, value)
        return
    fields = fields_of(value) if type_.kind == "vector" and not isinstance(value, (tuple, np.void)) else None
    if fields is not None:
        names = tuple("xyzw"[: type_.shape[0]])
        check_fields(where, type_.name, names, value, fields)
        value = [fields[name] for name in names]
    if isinstance(value, np.ndarray) and value.ndim:
        if value.shape != out.shape:
            raise BindError(f"{where} is {in_words(value)}; '{type_.name}' takes an array of shape {out.shape}.")
        out[...] = (
            as_struct_array(where, out.dtype, value)
            if out.dtype.names is not None
            else cast(where, type_.name, value, out.dtype)
        )
    elif isinstance(value, (list, tuple)):
        if len(value) != type_.shape[0]:
            raise BindError(f"{where} is {in_words(value)}; '{type_.name}' takes {type_.shape[0]} values.")
        inner = item_type(type_)
        for k, item in enumerate(value):
            _fill(f"{where}[{k}]", inner, out[k, ...], item, named)
    elif type_.kind == "array":
        raise BindError(
            f"{where} is {in_words(value)}; '{type_.name}' takes {type_.shape[0]} values in a list or an array."
        )
    else:
        # Slang converts a number to a vector in this way.
        out[...] = as_number(where, scalar_type(type_.scalar), value)


def _fill_struct(where: str, type_: SlangType, out: Array, value: Any, named: Named | None) -> None:
    if isinstance(value, (np.ndarray, np.void)) and value.dtype.names is not None:
        if value.shape != ():
            raise BindError(f"{where} is {in_words(value)}; one '{type_.name}' is expected.")
        out[...] = as_struct_array(where, out.dtype, np.asarray(value))
        return
    names = tuple(f.name for f in type_.fields)
    fields = fields_of(value)
    if fields is None:
        if not isinstance(value, (list, tuple)):
            raise BindError(
                f"{where} is {in_words(value)} of type {type(value).__name__}; one '{type_.name}' is expected, as a "
                f"dict of its fields: {', '.join(names)}."
            )
        if len(value) != len(names):
            raise BindError(
                f"{where} is {in_words(value)}; '{type_.name}' has {len(names)} fields: {', '.join(names)}."
            )
        fields = dict(zip(names, value, strict=True))
    else:
        check_type(where, type_, value, named)
        check_fields(where, type_.name, names, value, fields, {f.name for f in type_.fields if f.has_default})
        unknown = [f.name for f in type_.fields if f.name not in fields and f.default is None]
        if unknown:
            raise BindError(
                f"{where} lacks {', '.join(unknown)}, whose default is no number in Slang's text; give a value here."
            )
    for f in type_.fields:
        _fill(f"{where}.{f.name}", f.type, out[f.name], fields.get(f.name, f.default), named)


def check_fields(
    where: str,
    type_name: str,
    names: Sequence[str],
    value: Any,
    fields: Mapping[str, Any],
    optional: Collection[str] = (),
) -> None:
    """Refuse a struct's value unless its fields are exactly the struct's; a mapping's key ``_type`` does not count.

    Parameters
    ----------
    optional : collection of str
        Names of fields that may be missing.

    Raises
    ------
    BindError
    """
    missing = [name for name in names if name not in fields and name not in optional]
    tagged = isinstance(value, Mapping)
    extra = [describe_name(name) for name in fields if name not in names and not (tagged and name == "_type")]
    if missing or extra:
        problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)}, which '{type_name}' has not"
        raise BindError(f"{where} {problem}; '{type_name}' has {', '.join(names) or 'no fields'}.")


def check_type(where: str, type_: SlangType, value: Any, named: Named | None) -> None:
    """Refuse a dict whose ``"_type"`` names another type, however that is spelled.

    Raises
    ------
    BindError
    """
    if named is None or not isinstance(value, Mapping):
        return
    asked = value.get("_type")
    if asked is None:
        return
    found = getattr(asked, "slang_type", asked)
    if isinstance(found, str):
        if found == type_.name:
            return
        try:
            found = named(where, found)
        except BindError:
            found = asked
    if not isinstance(found, SlangType) or found.name != type_.name:
        given = found.name if isinstance(found, SlangType) else describe_name(asked)
        raise BindError(f"{where} has _type '{given}'; '{type_.name}' was expected.")


def describe_name(name: Any) -> str:
    """Return a name that a user gave, as messages quote it."""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 80 else in_words(name)


def item_type(type_: SlangType) -> SlangType:
    """Return the type of ``x[0]`` for a vector, matrix or array type."""
    if type_.kind == "array":
        assert type_.element is not None
        return type_.element
    if type_.kind == "matrix":
        return SlangType("vector", f"{type_.scalar}{type_.shape[1]}", type_.scalar, type_.shape[1:])
    return scalar_type(type_.scalar)


def by_protocol(value: Any) -> Array:
    """Return an object with an array protocol of NumPy's, or a memoryview, as the array that it describes.

    Raises
    ------
    BindError
        If NumPy refuses the object's description. Errors of the object's own Python code pass through.
    """
    try:
        return np.asarray(value)
    except (OverflowError, TypeError, ValueError) as error:
        if is_callers(error):
            raise
        raise BindError(f"{class_in_words(value)}, and NumPy cannot read it ({error}).") from error


def as_array(what: str, value: Any) -> Array:
    """Return host data as a NumPy array: an array, a number, lists of these, or anything with an array protocol.

    Parameters
    ----------
    what : str
        What the data is, as the subject of a message: ``"Tensor.from_numpy: data"``.

    Raises
    ------
    BindError
        If it is none of these, or holds something else.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        # By an attribute of masked arrays, because importing numpy.ma for its class takes 15 ms.
        if hasattr(value, "mask"):
            raise BindError(f"{what} is a masked array, and Slang knows no masks; pass array.filled(value).")
        return np.asarray(value)
    if isinstance(value, (list, tuple, bool, int, float, range)):
        _check_numbers(what, value, "")
        try:
            array = _counted(what, value) if isinstance(value, range) else np.asarray(value)
        except ValueError as error:
            if is_callers(error):
                raise
            raise BindError(f"{what} is a list with rows of different lengths: {in_words(value)}.") from None
        if array.dtype.kind == "O":
            raise BindError(f"{what} holds whole numbers of more than 64 bits: {in_words(value)}.")
        return array
    kind = type(value)
    # PyTorch's own __array__ raises errors of many kinds.
    torch = _is_of_torch(kind)
    if torch and is_lazy(value):
        value = value.detach().resolve_conj().resolve_neg().clone()
    if not torch and any(hasattr(kind, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        try:
            return by_protocol(value)
        except BindError as error:
            raise BindError(f"{what} is {error}") from None
    if hasattr(kind, "__dlpack__"):
        try:
            return as_numpy(value)
        except BindError as error:
            raise BindError(f"{what} is {error}") from None
    if not isinstance(value, (bytes, bytearray)):
        try:
            return np.asarray(memoryview(value))
        except (TypeError, ValueError) as error:
            if is_callers(error):
                raise
    raise BindError(
        f"{what} is {in_words(value)} of type {kind.__name__}; a NumPy array, a number, nested lists of "
        "numbers or another library's array was expected."
    )


def _counted(what: str, values: range) -> Array:
    """Return the numbers of a range; an array of objects if they have more than 64 bits."""
    if not values:
        return np.zeros(0, np.int64)
    if max(values[0], values[-1]) >= 2**64 or min(values[0], values[-1]) < -(2**63):
        return np.zeros(0, object)
    if max(abs(values.start), abs(values.stop), abs(values.step)) >= 2**62:
        return np.asarray(values)
    # NumPy would make a list of the range first, which takes ten times the memory of the array.
    try:
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    except MemoryError as error:
        raise no_memory(what, error) from None


def as_numpy(value: Any) -> Array:
    """Return another library's array in host memory as a NumPy array of the same memory, by DLPack.

    Raises
    ------
    BindError
        If the other library does not export the array. The message is the second half of a sentence about the array.
    """
    if not hasattr(type(value), "__dlpack__"):
        raise BindError(f"{class_in_words(value)}, which has no __dlpack__ to share it as host memory.")
    check_memory(value)
    try:
        return np.from_dlpack(value)
    except DLPACK_ERRORS as error:
        if not is_refusal(value, error):
            raise
        if hasattr(value, "__array_interface__"):
            # NumPy's own protocol has negative strides.
            return np.asarray(value)
        raise BindError(f"{class_in_words(value)}, which DLPack cannot share as host memory ({error}).") from None


def check_memory(value: Any) -> None:
    """Refuse a tensor of PyTorch that negates or conjugates its memory as it reads it.

    PyTorch exports the memory of negated tensors and of zeros by DLPack without a word.

    Raises
    ------
    BindError
        If it is one. The message is the second half of a sentence about the tensor.
    """
    if is_lazy(value):
        raise BindError(
            f"{class_in_words(value)}, whose memory does not hold its values: it is negated, conjugated or set to "
            "zero as it is read. Pass tensor.resolve_conj().resolve_neg(), or tensor.clone() of zeros."
        )


def is_lazy(value: Any) -> bool:
    """Return whether the memory of a tensor of PyTorch does not hold its values; False for anything else."""
    return _is_of_torch(type(value)) and bool(value.is_neg() or value.is_conj() or value._is_zerotensor())


def _is_of_torch(kind: type) -> bool:
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__)


def is_refusal(value: Any, error: Exception) -> bool:
    """Tell whether a caught ``DLPACK_ERRORS`` exception refuses the export; others are errors of the array's class.

    BufferError is the protocol's word for that, wherever it comes from. Libraries raise errors of many kinds.
    """
    theirs = any(base.__module__.partition(".")[0] in _LIBRARIES for base in type(value).__mro__)
    return theirs or isinstance(error, BufferError) or not is_callers(error)


def _check_numbers(what: str, value: Any, place: str, depth: int = 0) -> None:
    """Refuse lists that hold anything but numbers and arrays."""
    if isinstance(value, range):
        return
    if isinstance(value, (list, tuple)):
        if depth == _DEEPEST:
            raise BindError(f"{what} is a list of more than {_DEEPEST} levels: {in_words(value)}.")
        if set(map(type, value)) <= _PLAIN:
            return
        for k, item in enumerate(value):
            _check_numbers(what, item, f"{place}[{k}]", depth + 1)
    elif not isinstance(value, (*_NUMBERS, np.ndarray)) or kind_of(value) not in "biuf" + "O" * isinstance(
        value, np.ndarray
    ):
        raise BindError(
            f"{what} holds {in_words(value)} of type {type(value).__name__}{place and f' at {place}'}; "
            "numbers were expected."
        )


_PLAIN = {bool, int, float}
