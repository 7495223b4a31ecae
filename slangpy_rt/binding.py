"""Binding: one argument fitted to one parameter, every question of its own answered.

What arguments have to agree on among each other is decided in ``plan``; which function they are for in
``resolve``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.broadcast import contiguous
from slangpy_rt.dtypes import NUMPY_OF, Storage, convertible, scalar_type, storage
from slangpy_rt.errors import BindError, UnsupportedError
from slangpy_rt.feeds import (
    ArrayFeed,
    ConvertedFeed,
    EnumFeed,
    Feed,
    GeneratorFeed,
    HostCopyFeed,
    HostViewFeed,
    PartsFeed,
    RefFeed,
    SplatFeed,
    ValueFeed,
)
from slangpy_rt.generators import Generator, range_of
from slangpy_rt.layout import same_walk
from slangpy_rt.mapping import NO_MAP, Map
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.records import as_record, dtype_text, fields_of, host_record
from slangpy_rt.refs import ValueRef
from slangpy_rt.scope import Scope
from slangpy_rt.tensor import Tensor
from slangpy_rt.types import Param, SlangType

if TYPE_CHECKING:
    from slangpy_rt.device import Device

Shape = tuple[int, ...]

# How to get a value's parts, and the place, name and type of each.
Parts = tuple[Callable[[Any], Any], list[tuple[str, str, SlangType]]]

# Types that take a whole array, and how many generic arguments they have.
_CONTAINERS = {"Tensor": 2, "RWTensor": 2, "NDBuffer": 2, "StructuredBuffer": 1, "RWStructuredBuffer": 1}
_BYTES = ("ByteAddressBuffer", "RWByteAddressBuffer")

# Host values up to this many scalars travel in the argument block: two float4x4.
_MAX_VALUE_SCALARS = 32

# How well a value fits a parameter, best first; overloads are ranked by it.
EXACT, PROMOTED, CONVERTED, SPLAT = range(4)


@dataclass(frozen=True)
class Bound:
    """An argument with every question of its own answered.

    Attributes
    ----------
    mode : str
        ``"value"``, ``"array"`` (elementwise), ``"tensor"`` (whole), ``"pointer"``, ``"computed"`` or
        ``"parts"``.
    shape, strides : tuple of int
        Call dimensions of an array, strides in scalars; of a tensor those that it is not taken whole in.
    view : tuple of (tuple of int, tuple of int)
        Shape and strides of the tensor that one element of the call sees.
    host : str
        What kind of result it asks for: ``"tensor"``, ``"ndbuffer"``, ``"numpy"`` or ``""``.
    fit : int
        ``EXACT`` to ``SPLAT``.
    mapped : tuple of int or None
        The call dimension of each dimension of ``shape``, where the user said.
    generator : Generator or None
        Of a computed argument.
    parts : tuple of (str, Bound)
        Where in the parameter each part goes (``".x"``), and the part.
    """

    name: str
    type: SlangType
    scalar: str
    count: int
    access: str
    mode: str
    shape: Shape
    strides: Shape
    aligned: bool
    host: str
    feed: Feed
    fit: int = EXACT
    mapped: tuple[int, ...] | None = None
    record: SlangType | None = None
    generator: Generator | None = None
    parts: tuple[tuple[str, Bound], ...] = ()
    view: tuple[Shape, Shape] = ((), ())

    @property
    def leaves(self) -> tuple[Bound, ...]:
        """Itself, or the parts of its parts."""
        return tuple(leaf for _, part in self.parts for leaf in part.leaves) if self.mode == "parts" else (self,)

    @property
    def cost(self) -> tuple[int, int]:
        """How badly it fits: dimensions left to vectorize over, then conversions; worst leaf first."""
        fits = ((len(b.shape) if b.mode in ("array", "tensor") else 0, b.fit) for b in self.leaves)
        return max(fits, default=(0, EXACT))


def bind(where: str, scope: Scope, param: Param, value: Any, how: Map = NO_MAP) -> Bound:
    """Fit a value to a parameter.

    Parameters
    ----------
    where : str
        ``"add(float a, float b): argument 'a'"``, the start of every message.
    how : Map
        What the user said about it.

    Raises
    ------
    BindError
        If it does not fit.
    UnsupportedError
        If the parameter's type, or the device, has no way to take it.
    """
    stand_in = converter(type(value))
    if stand_in is not None:
        inner = bind(where, scope, param, stand_in(value), how)
        return replace(inner, feed=ConvertedFeed(stand_in, inner.feed, inner.access != "in"))
    if how.type is not None:
        type_ = how.type if isinstance(how.type, SlangType) else scope.named(f"{where}: map", how.type)
        if type_.name != param.type.name:
            if not _slang_converts(type_, param):
                raise BindError(
                    f"{where}: map says '{type_.name}', which Slang does not convert to '{param.type.name}'."
                )
            bound = bind(where, scope, replace(param, type=type_), value, replace(how, type=None))
            # An overload that takes the type itself fits better.
            return (
                bound
                if param.type.kind in ("generic", "interface")
                else replace(bound, fit=max(bound.fit, CONVERTED))
            )
    if param.type.kind == "interface":
        param = replace(param, type=_concrete(where, scope, param.type, value))
    param = replace(param, type=scope.struct(param.type))
    bound = _bind(where, scope, param, value, how)
    if how.fields and bound.mode != "parts":
        raise BindError(f"{where}: map names fields, but {describe(value)} is taken whole; give call dimensions.")
    if how.dims is None:
        return bound
    if bound.mode == "parts" and not how.dims and not any(leaf.shape for leaf in bound.leaves):
        return bound
    if bound.mode == "parts":
        raise BindError(
            f"{where}: map gives {how.dims} for a '{param.type.name}' whose fields are given one by one; "
            f"map those, as in {{'{bound.parts[0][0].strip('.')}': {how.dims}}}."
        )
    free = bound.shape
    if len(how.dims) != len(free):
        raise BindError(
            f"{where}: map gives {how.dims} for {len(how.dims)} dimension{'s' * (len(how.dims) != 1)}, but "
            f"{describe(value)} has {len(free)} beside those of '{param.type.name}'."
        )
    return _mapped(bound, how.dims)


def bind_whole(where: str, scope: Scope, param: Param, value: Any) -> Bound:
    """Fit a value to a parameter that is one for all elements: of a kernel that is dispatched, or a uniform.

    Raises
    ------
    BindError
        If it does not fit, or has dimensions that the parameter does not take.
    UnsupportedError
        If the parameter's type, or the device, has no way to take it.
    """
    bound = bind(where, scope, param, value)
    for leaf in bound.leaves:
        if leaf.mode == "computed":
            raise BindError(
                f"{where} is {describe(value)}, one value for each element; one for all is expected here."
            )
        if leaf.mode in ("array", "tensor") and leaf.shape:
            inner = where if leaf is bound else f"{where[:-1]}{leaf.name.removeprefix(param.name)}'"
            raise BindError(
                f"{inner} has shape {leaf.shape} beside the dimensions of '{leaf.type.name}'; "
                "one for all is expected here."
            )
    return bound


def _slang_converts(type_: SlangType, param: Param) -> bool:
    """Whether Slang makes a parameter's value of one of another type, unasked."""
    if param.type.kind in ("generic", "interface"):
        return True
    numbers = ("scalar", "vector", "matrix")
    if param.direction != "in" or type_.kind not in numbers or param.type.kind not in numbers:
        return False
    return type_.kind == "scalar" or type_.shape == param.type.shape


def bind_result(where: str, scope: Scope, type_: SlangType, value: Any, how: Map = NO_MAP) -> Bound:
    """Fit an array given as ``_result`` to the function's return type."""
    if not isinstance(value, (NDBuffer, np.ndarray)):
        raise BindError(f"{where}: pass a Tensor, an NDBuffer, a NumPy array, or one of their types, not {value!r}.")
    stored = _stored(where, scope.struct(type_))
    bound = _bind_array(where, scope.device, "_result", scope.struct(type_), stored, "out", value)
    if how.dims is not None and len(how.dims) != len(bound.shape):
        raise BindError(f"{where}: map gives {how.dims}; {describe(value)} has {len(bound.shape)} dimensions.")
    return bound if how.dims is None else _mapped(bound, how.dims)


def _mapped(bound: Bound, dims: tuple[int, ...]) -> Bound:
    """The argument along those call dimensions. A diagonal is not all of an array: the rest has to stay."""
    feed = bound.feed
    if len(set(dims)) < len(dims) and isinstance(feed, HostCopyFeed) and bound.access != "in":
        feed = feed.kept()
    return replace(bound, mapped=dims, feed=feed)


def converter(kind: type) -> Callable[[Any], Any] | None:
    """What turns values of a type into those they stand for, or None when they stand for themselves."""
    if kind is range:
        return range_of
    if hasattr(kind, "__slang_arg__"):
        return methodcaller("__slang_arg__")
    if hasattr(kind, "get_this"):
        return methodcaller("get_this")
    own = issubclass(kind, (np.ndarray, np.generic))
    return np.asarray if kind is memoryview or (hasattr(kind, "__array_interface__") and not own) else None


def describe(value: Any) -> str:
    """A value in a few words, for messages."""
    if isinstance(value, NDBuffer):
        return f"{'an' if value.summary[0] in 'AEINO' else 'a'} {value.summary}"
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        return f"a structured array with the fields {', '.join(value.dtype.names)} and shape {value.shape}"
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    # On one line, and without the address that objects have in their repr.
    text = re.sub(" at 0x[0-9A-Fa-f]+", "", " ".join(repr(value).split()))
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_plain_sequence(value: Any) -> bool:
    """Whether a list or tuple holds numbers only, nested or not."""
    return all(
        isinstance(v, (bool, int, float, np.generic)) or (isinstance(v, (list, tuple)) and is_plain_sequence(v))
        for v in value
    )


def _bind(where: str, scope: Scope, param: Param, value: Any, how: Map) -> Bound:
    type_, device = param.type, scope.device
    if isinstance(value, Generator):
        return _bind_generator(where, param, value)
    container = _container(type_)
    if container is not None:
        element, rank, writable = container
        element = scope.struct(element)
        access = "inout" if writable else "in"
        bound = _bind_array(where, device, param.name, element, _stored(where, element), access, value)
        if len(bound.shape) < rank:
            raise BindError(
                f"{where} has {len(bound.shape)} dimensions of '{element.name}'; '{type_.name}' takes {rank}."
            )
        if bound.record is not None:
            check_native(where, device, element, f"'{type_.name}'")
        return _as_tensor(bound, type_, rank)
    if type_.kind == "struct" and type_.name in _BYTES:
        return _bind_bytes(where, scope, param, value)
    if type_.kind == "pointer":
        return _bind_pointer(where, scope, param, value)
    if isinstance(value, ValueRef):
        return _bind_ref(where, scope, param, value)
    parts = _parts_of(where, param, value)
    if parts is not None:
        return _bind_parts(where, scope, param, value, how, *parts)
    stored = _stored(where, type_)
    if type_.kind == "struct" and isinstance(value, list):
        return _bind_records(where, scope, param, value, stored)
    if type_.kind == "enum" and isinstance(value, (str, Enum)):
        return _bind_enum(where, param, value)
    if isinstance(value, (NDBuffer, np.ndarray, list, tuple)):
        return _bind_array(where, device, param.name, type_, stored, param.direction, value)
    if param.direction != "in":
        raise BindError(
            f"{where} is '{param.direction}' and would be written to; pass an array or a ValueRef instead of "
            f"{value!r}."
        )
    return _bind_scalar(where, device, param.name, type_, stored, value)


def _bind_generator(where: str, param: Param, value: Generator) -> Bound:
    type_ = param.type
    if param.direction != "in":
        raise BindError(
            f"{where} is '{param.direction}' and would be written to; pass an array or a ValueRef instead of "
            f"{value!r}."
        )
    value.check(where, type_)
    shape = value.shape
    return Bound(
        param.name, type_, type_.scalar, 0, "in", "computed", shape, contiguous(shape), True, "", GeneratorFeed(),
        generator=value,
    )  # fmt: skip


def _bind_scalar(where: str, device: Device, name: str, type_: SlangType, stored: Storage, value: Any) -> Bound:
    scalar = stored.scalar
    # Of a subclass of int, such as an IntEnum, NumPy knows no dtype.
    kind = next((k for k in (bool, int, float) if isinstance(value, k)), type(value))
    source = value.dtype if isinstance(value, np.generic) else np.dtype(kind)
    # A Python number has no width of its own: 3 fits a uint8_t, 0.5 a half.
    kinds = {"f": "iufb", "i": "iub", "u": "iub", "b": "b"}[NUMPY_OF[scalar].kind]
    if source.kind not in kinds or stored.record:
        raise BindError(
            f"{where} is {describe(value)} of type {type(value).__name__}, which does not convert to '{type_.name}'."
        )
    if type_.kind == "array":
        raise BindError(f"{where} is {value!r}; '{type_.name}' takes {stored.dims[0]} values in a list or an array.")
    _check_scalar(where, device, scalar)
    # To overloads a Python int is an int, and a float a float.
    alike = source if isinstance(value, np.generic) else np.dtype({"b": "?", "i": "i4"}.get(source.kind, "f4"))
    fit = _fit(alike, NUMPY_OF[scalar])
    feed: Feed = ValueFeed(where, type_, scalar)
    if stored.count > 1:
        feed, fit = SplatFeed(where, type_, scalar, stored.count), SPLAT
    return Bound(name, type_, scalar, stored.count, "in", "value", (), (), True, "", feed, fit)


def _bind_enum(where: str, param: Param, value: Any) -> Bound:
    """A case by its name, or a Python enum by its value."""
    type_ = param.type
    cases = dict(type_.cases)

    def number(v: Any) -> int:
        if isinstance(v, Enum) and isinstance(v.value, (int, np.integer)):
            return int(v.value)
        name = v.name if isinstance(v, Enum) else v
        if name not in cases:
            raise BindError(f"{where} is {v!r}; '{type_.name}' has {', '.join(cases) or 'no cases by name'}.")
        return cases[name]

    number(value)
    feed = EnumFeed(number)
    return Bound(param.name, type_, type_.scalar, 1, "in", "value", (), (), True, "", feed)


def _bind_ref(where: str, scope: Scope, param: Param, value: ValueRef) -> Bound:
    stored = _stored(where, param.type)
    inner = bind(where, scope, replace(param, direction="in"), value.value) if param.direction != "out" else None
    if inner is not None and any(leaf.shape for leaf in inner.leaves):
        raise BindError(f"{where} is {value!r}; it takes one '{param.type.name}'.")
    if inner is not None and param.direction == "in":
        return replace(inner, feed=ConvertedFeed(lambda v: v.value, inner.feed, False))
    _check_scalar(where, scope.device, stored.scalar)
    feed = RefFeed(scope.device, stored.dtype, stored.dims, param.direction)
    return Bound(
        param.name, param.type, stored.scalar, stored.count, param.direction, "array", (), (), True, "", feed,
        record=stored.record,
    )  # fmt: skip


def _bind_pointer(where: str, scope: Scope, param: Param, value: Any) -> Bound:
    """An array's address, or a number that is one."""
    type_ = param.type
    assert type_.element is not None
    if isinstance(value, (bool, float)) or not isinstance(value, (NDBuffer, int, np.integer)):
        raise BindError(f"{where} is {describe(value)}; '{type_.name}' takes a Tensor, an NDBuffer or an address.")
    if not isinstance(value, NDBuffer):
        feed = ValueFeed(where, type_, "uint64_t")
        return Bound(param.name, type_, "pointer", 1, "in", "pointer", (), (), True, "", feed)
    element = scope.struct(type_.element)
    stored = _stored(where, element)
    bound = _bind_array(where, scope.device, param.name, element, stored, "inout", value)
    if not value.layout.contiguous:
        raise BindError(f"{where} is a non-contiguous view; '{type_.name}' takes elements that follow each other.")
    check_native(where, scope.device, element, f"'{type_.name}'")
    return replace(bound, type=type_, mode="pointer", shape=(), strides=())


def _bind_bytes(where: str, scope: Scope, param: Param, value: Any) -> Bound:
    """An array as bytes, whatever its elements are."""
    type_, device = param.type, scope.device
    access = "inout" if type_.name.startswith("RW") else "in"
    if isinstance(value, NDBuffer):
        if value.device is not device:
            raise BindError(f"{where} lives on {value.device!r}; the module runs on {device!r}.")
        dense, nbytes, host = value.is_contiguous, value.nbytes, "tensor" if isinstance(value, Tensor) else "ndbuffer"
        feed: Feed = ArrayFeed()
    elif isinstance(value, np.ndarray):
        dense, nbytes, host = value.flags.c_contiguous, value.nbytes, "numpy"
        if access != "in" and not value.flags.writeable:
            raise BindError(f"{where} is {describe(value)} and would be written to; pass a writable array.")
        shared = "zero_copy" in device.caps.features
        feed = HostViewFeed(device, np.asarray) if shared else HostCopyFeed(device, np.asarray, access, 0)
    else:
        raise BindError(f"{where} is {describe(value)}; '{type_.name}' takes a Tensor, an NDBuffer or a NumPy array.")
    if not dense:
        raise BindError(f"{where} is a non-contiguous view; '{type_.name}' takes bytes that follow each other.")
    view = (nbytes,), (1,)
    return Bound(param.name, type_, "uint8_t", 1, access, "tensor", (), (), True, host, feed, view=view)


def _parts_of(where: str, param: Param, value: Any) -> Parts | None:
    """How to take a value apart for a parameter, or None for one that stays whole."""
    type_ = param.type
    # To what is no struct, a named tuple is a tuple.
    fields = fields_of(value) if type_.kind == "struct" or not isinstance(value, tuple) else None
    if fields is not None:
        return _named_parts(where, type_, value, fields)
    if not isinstance(value, (list, tuple)):
        return None
    if type_.kind == "struct" and isinstance(value, list) and value and all(fields_of(v) is not None for v in value):
        return None
    if type_.kind == "struct":
        if value and not type_.fields:  # of Slang's own, such as Tuple
            return None
        if len(value) != len(type_.fields):
            names = ", ".join(f.name for f in type_.fields)
            raise BindError(f"{where} is {describe(value)}; '{type_.name}' has {len(type_.fields)} fields: {names}.")
        return (lambda v: v), [(f".{f.name}", f.name, f.type) for f in type_.fields]
    whole = is_plain_sequence(value) or type_.kind not in ("vector", "matrix", "array")
    if whole and not (type_.kind == "array" and _holds_structs(type_)):
        return None
    if len(value) != type_.shape[0]:
        raise BindError(f"{where} is {describe(value)}; '{type_.name}' takes {type_.shape[0]} values.")
    inner = item_type(type_)
    return (lambda v: v), [(f"[{k}]", f"{k}", inner) for k in range(type_.shape[0])]


def _bind_records(where: str, scope: Scope, param: Param, value: list[Any], stored: Storage) -> Bound:
    """A list of structs' values, which makes a structured array."""
    for k, item in enumerate(value):
        _named_parts(f"{where}[{k}]", param.type, item, fields_of(item))

    def build(v: list[Any]) -> npt.NDArray[Any]:
        return np.stack([host_record(stored.dtype, (), item) for item in v])

    inner = bind(where, scope, param, build(value))
    return replace(inner, host="", feed=ConvertedFeed(build, inner.feed, False))


def _named_parts(where: str, type_: SlangType, value: Any, fields: Any) -> Parts:
    if type_.kind == "vector":
        wanted = [(name, scalar_type(type_.scalar)) for name in "xyzw"[: type_.shape[0]]]
    elif type_.kind == "struct":
        wanted = [(f.name, f.type) for f in type_.fields]
    else:
        raise BindError(f"{where} is {describe(value)}, a struct's value; '{type_.name}' was expected.")
    asked = fields.get("_type") if isinstance(value, dict) else None
    given = getattr(getattr(asked, "slang_type", asked), "name", asked)
    if asked is not None and given != type_.name:
        raise BindError(f"{where} has _type '{given}'; '{type_.name}' was expected.")
    names = [name for name, _ in wanted]
    missing = [name for name in names if name not in fields]
    extra = [str(name) for name in fields if name not in names and name != "_type"]
    if missing or extra:
        problem = (
            f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)}, which '{type_.name}' has not"
        )
        raise BindError(f"{where} {problem}; '{type_.name}' has {', '.join(names)}.")

    def parts(v: Any) -> list[Any]:
        found = fields_of(v)
        assert found is not None
        return [found[name] for name in names]

    # Calls with dicts are repeated, and this is four times as fast.
    quick = itemgetter(*names) if type(value) is dict and len(names) > 1 else parts
    return quick, [(f".{name}", name, kind) for name, kind in wanted]


def _bind_parts(
    where: str,
    scope: Scope,
    param: Param,
    value: Any,
    how: Map,
    parts: Callable[[Any], Any],
    places: list[tuple[str, str, SlangType]],
) -> Bound:
    names = [name for _, name, _ in places]
    for name, _ in how.fields:
        if name not in names:
            raise BindError(
                f"{where}: map names '{name}', which '{param.type.name}' has not; it has {', '.join(names)}."
            )
    bound = []
    for (place, name, type_), part in zip(places, parts(value), strict=True):
        inner = f"{where[:-1]}{place}'" if where.endswith("'") else f"{where}{place}"
        child = Param(f"{param.name}.{name}", type_, param.direction)
        bound.append((place, bind(inner, scope, child, part, how.field(name))))
    hosts = {b.host for _, b in bound}
    host = next((h for h in ("tensor", "ndbuffer", "numpy") if h in hosts), "")
    feed = PartsFeed(parts, [b.feed for _, b in bound])
    return Bound(
        param.name, param.type, "", 0, param.direction, "parts", (), (), True, host, feed, parts=tuple(bound)
    )  # fmt: skip


def _bind_array(
    where: str,
    device: Device,
    name: str,
    type_: SlangType,
    stored: Storage,
    access: str,
    value: Any,
) -> Bound:
    _check_scalar(where, device, stored.scalar)
    if not isinstance(value, NDBuffer):
        return _bind_host(where, device, name, type_, stored, access, value)
    layout, inner = value.layout, stored.dims
    if layout.device is not device:
        raise BindError(f"{where} lives on {layout.device!r}; the module runs on {device!r}.")
    if not _holds(layout.element, type_) or layout.numpy_dtype != stored.dtype:
        raise BindError(
            f"{where} is {describe(value)}; '{type_.name}' was expected, and device data is not converted. "
            f"Make it with dtype={_as_dtype(type_)}, or convert it on the host with from_numpy(...)."
        )
    outer = _split(where, type_, layout.full_shape, inner, value.summary)
    strides = layout.strides[: len(outer)]
    if not same_walk(inner, layout.strides[len(outer) :], stored.step):
        raise BindError(f"{where} is a view whose '{type_.name}' elements have gaps; copy it first.")
    host = "tensor" if isinstance(value, Tensor) else "ndbuffer"
    return Bound(
        name, type_, stored.scalar, stored.count, access, "array", outer, strides, layout.aligned, host, ArrayFeed(),
        record=stored.record,
    )  # fmt: skip


def _holds(element: SlangType, type_: SlangType) -> bool:
    """Whether an array of one type makes another one, its last dimensions being the other's own."""
    if element.name == type_.name or (type_.kind == "array" and type_.element and _holds(element, type_.element)):
        return True
    return element.kind in ("scalar", "enum") and element.scalar == type_.scalar


def _bind_host(
    where: str,
    device: Device,
    name: str,
    type_: SlangType,
    stored: Storage,
    access: str,
    value: Any,
) -> Bound:
    """Host data: an array, or a list or tuple that makes one."""
    scalar, inner, dtype = stored.scalar, stored.dims, stored.dtype
    is_array = isinstance(value, np.ndarray)
    # Not by its class: numpy.ma takes 15 ms to import.
    if is_array and hasattr(value, "mask"):
        raise BindError(f"{where} is a masked array, and Slang knows no masks; pass array.filled(value).")
    try:
        array = np.asarray(value)
    except ValueError:
        raise BindError(f"{where} is a list with rows of different lengths: {describe(value)}.") from None
    what = describe(value)
    convert: Callable[[Any], npt.NDArray[Any]]
    if stored.record and array.dtype.names is not None and access == "in" and array.dtype != dtype:
        as_record(where, dtype, array)

        def convert(v: Any) -> npt.NDArray[Any]:
            return as_record(where, dtype, v)
    else:
        _check_dtype(where, type_, dtype, access, array, is_array, what)

        def convert(v: Any) -> npt.NDArray[Any]:
            return np.ascontiguousarray(v, dtype)

    if access != "in" and not (is_array and array.flags.writeable):
        raise BindError(f"{where} is {what} and would be written to; pass a writable array.")
    outer = _split(where, type_, array.shape, inner, what)
    fit = _fit(_list_dtype(array.dtype) if not is_array else array.dtype, dtype)
    own_type = getattr(value, "slang_type", None)
    host = "numpy" if is_array and own_type is None else ""
    if not outer and access == "in" and stored.count <= _MAX_VALUE_SCALARS and not stored.record:
        feed: Feed = ValueFeed(where, type_, scalar)
        return Bound(name, type_, scalar, stored.count, access, "value", (), (), True, host, feed, fit)
    dense = contiguous(array.shape, stored.step)
    if "zero_copy" not in device.caps.features:
        feed = HostCopyFeed(device, convert, access)
        strides = dense[: len(outer)]
    else:
        unit = NUMPY_OF[scalar].itemsize
        # NumPy gives an empty array strides of 0.
        own = tuple(s // unit for s in array.strides) if array.size else dense
        usable = (
            is_array
            and array.dtype == dtype
            and array.dtype.isnative
            and array.flags.aligned
            and all(s % dtype.alignment == 0 for s in array.strides)
            and same_walk(inner, own[len(outer) :], stored.step)
        )
        strides = (own if usable else dense)[: len(outer)]
        if usable or access == "in":
            feed = HostViewFeed(device, np.asarray if usable else convert)
        else:
            # Elements with gaps inside, such as float3 in Fortran order: there and back again.
            feed = HostCopyFeed(device, convert, access)
    return Bound(
        name, type_, scalar, stored.count, access, "array", outer, strides, True, host, feed, fit,
        record=stored.record,
    )  # fmt: skip


def _check_dtype(
    where: str,
    type_: SlangType,
    dtype: np.dtype[Any],
    access: str,
    array: npt.NDArray[Any],
    is_array: bool,
    what: str,
) -> None:
    if access != "in":
        if array.dtype != dtype:
            name = dtype.name if dtype.names is None else dtype_text(dtype)
            raise BindError(
                f"{where} is {what}, which does not convert to '{type_.name}'; it must be an array of dtype {name}."
            )
        return
    if dtype.names is not None:
        fine = array.dtype == dtype
    else:
        fine = convertible(array.dtype, dtype) or (not is_array and _list_fits(array, dtype))
    if not fine:
        if dtype.names is not None:
            how = f"pass a structured array with the fields {', '.join(dtype.names)}"
        else:
            how = f"pass array.astype(numpy.{dtype.name})" if is_array else f"make it an array of dtype {dtype.name}"
        raise BindError(f"{where} is {what}, which does not convert to '{type_.name}'; {how}.")


def _as_tensor(bound: Bound, type_: SlangType, rank: int) -> Bound:
    """An array argument whose last dimensions are handed over whole; the call runs along those before them.

    A value becomes impossible, because a view needs an address.
    """
    if bound.mode != "array":
        raise BindError(f"argument '{bound.name}': '{type_.name}' takes an array with dimensions.")
    feed = bound.feed.whole() if isinstance(bound.feed, HostCopyFeed) else bound.feed
    outer = len(bound.shape) - rank
    return replace(
        bound, type=type_, mode="tensor", feed=feed, shape=bound.shape[:outer], strides=bound.strides[:outer],
        view=(bound.shape[outer:], bound.strides[outer:]),
    )  # fmt: skip


def _container(type_: SlangType) -> tuple[SlangType, int, bool] | None:
    """Element, rank and writability of a parameter that takes a whole array."""
    head = type_.name.partition("<")[0]
    if type_.kind != "struct" or len(type_.arguments) != _CONTAINERS.get(head):
        return None
    element, rank = (*type_.arguments, 1)[:2]
    assert isinstance(element, SlangType) and isinstance(rank, int), type_
    return element, rank, head not in ("Tensor", "StructuredBuffer")


def _stored(where: str, type_: SlangType) -> Storage:
    found = storage(type_)
    if found is None:
        raise UnsupportedError(
            f"{where}: parameters of type '{type_.name}' are not supported; scalars, vectors, matrices, arrays, "
            "enums, structs of these, pointers, Tensor, RWTensor, NDBuffer, (RW)StructuredBuffer and "
            "(RW)ByteAddressBuffer are."
        )
    return found


def _split(where: str, type_: SlangType, shape: Shape, inner: Shape, what: str) -> Shape:
    """The call dimensions of an array's shape, once the element's own are taken off its end."""
    outer = shape[: len(shape) - len(inner)] if len(inner) <= len(shape) else None
    if outer is None or shape[len(outer) :] != inner:
        raise BindError(
            f"{where} is {what}; '{type_.name}' needs the last dimension{'s' if len(inner) > 1 else ''} to be "
            f"{' x '.join(map(str, inner))}."
        )
    return outer


def _check_scalar(where: str, device: Device, scalar: str) -> None:
    if scalar not in device.caps.scalars:
        raise UnsupportedError(f"{where}: {device.info} has no '{scalar}' in memory.")


def _list_fits(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whole numbers in a list have no width: they fit an integer type that holds each of them."""
    if array.dtype.kind not in "iu" or dtype.kind not in "iu" or array.size == 0:
        return array.size == 0
    bounds = np.iinfo(dtype)
    return bool(bounds.min <= int(array.min()) and int(array.max()) <= bounds.max)


def _list_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Numbers in a list have no width: to overloads they are ints and floats."""
    return np.dtype({"i": "i4", "f": "f4"}.get(dtype.kind, dtype))


def _fit(source: np.dtype[Any], target: np.dtype[Any]) -> int:
    if source == target:
        return EXACT
    return PROMOTED if np.can_cast(source, target, "safe") else CONVERTED


def _concrete(where: str, scope: Scope, type_: SlangType, value: Any) -> SlangType:
    """The struct that a value brings for a parameter of an interface type."""
    if isinstance(value, NDBuffer):
        found: Any = value.dtype
    else:
        found = value.get("_type") if isinstance(value, dict) else None
        found = getattr(found, "slang_type", found)
        if isinstance(found, str):
            found = scope.named(where, found)
    if not isinstance(found, SlangType) or found.kind != "struct":
        raise BindError(
            f"{where} is {describe(value)}; '{type_.name}' is an interface: name the struct, as in "
            "{'_type': 'Name', ...}, or pass an array of structs."
        )
    if not scope.source.conforms(found.name, type_.name):
        raise BindError(f"{where} is a '{found.name}', which does not implement '{type_.name}'.")
    return found


def check_native(where: str, device: Device, element: SlangType, what: str) -> None:
    """Refuse structs that Slang, behind a pointer on this device, lays out otherwise than arrays do.

    Vulkan keeps a bool in 4 bytes; CUDA aligns vectors of 2 and 4 to their size (slang issues 3955, 8971, 12384),
    but those of half, half3 too, to 4 bytes.
    """
    for path, field in _scalars_of(element):
        odd = None
        if device.backend.target.format == "spirv" and field.scalar == "bool":
            odd = "4 bytes"
        if device.backend.target.format == "cuda" and field.shape:
            n, half = field.shape[-1], field.scalar == "half"
            if n in (2, 4) or half:
                odd = f"multiples of {4 if half else n * NUMPY_OF[field.scalar].itemsize} bytes"
        if odd:
            raise UnsupportedError(
                f"{where}: on {device.name}, {what} finds '{path}' of type '{field.name}' at {odd}, and arrays of "
                f"'{element.name}' keep it elsewhere; use scalars or vectors of 3, or pass the struct itself."
            )


def _scalars_of(type_: SlangType, path: str = "") -> list[tuple[str, SlangType]]:
    if type_.kind == "struct":
        return [pair for f in type_.fields for pair in _scalars_of(f.type, f"{path}.{f.name}".lstrip("."))]
    if type_.kind == "array" and type_.element is not None:
        return _scalars_of(type_.element, path)
    return [(path, type_)] if path else []


def item_type(type_: SlangType) -> SlangType:
    """What ``x[0]`` of a vector, matrix or array is."""
    if type_.kind == "array":
        assert type_.element is not None
        return type_.element
    if type_.kind == "matrix":
        return SlangType("vector", f"{type_.scalar}{type_.shape[1]}", type_.scalar, type_.shape[1:])
    return scalar_type(type_.scalar)


def _holds_structs(type_: SlangType) -> bool:
    while type_.kind == "array" and type_.element is not None:
        type_ = type_.element
    return type_.kind in ("struct", "enum")


def _as_dtype(type_: SlangType) -> str:
    return f"module.{type_.name}" if type_.kind == "struct" else repr(type_.name)


def result_kind(bound: Sequence[Bound]) -> str:
    """What kind of array the arguments ask for, or ``""``."""
    hosts = {b.host for b in bound}
    return next((k for k in ("tensor", "ndbuffer", "numpy") if k in hosts), "")
