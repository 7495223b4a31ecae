"""Binding: fits one argument to one parameter, and decides everything that depends on this argument alone.

``calls.build`` decides what depends on several arguments, and ``resolve`` which overload they are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import adapter_for_result, converter
from slangpy_rt.arguments.bind_array import (
    as_tensor,
    bind_array,
    bind_bytes,
    bind_pointer,
    check_native,
    check_scalar,
    check_scalars,
    element_of,
    stored_as,
)  # fmt: skip
from slangpy_rt.arguments.bind_texture import bind_resource, bind_texels
from slangpy_rt.arguments.bound import CONVERTED, SPLAT, Bound, number_fit, result_kind
from slangpy_rt.arguments.computed import Generator
from slangpy_rt.arguments.containers import as_struct, container, is_ours
from slangpy_rt.arguments.device_packers import ArrayPacker
from slangpy_rt.arguments.host_packers import HostViewPacker, RefPacker
from slangpy_rt.arguments.mapping import NO_MAP, Map
from slangpy_rt.arguments.nested_packers import ConvertedPacker, PartsPacker
from slangpy_rt.arguments.objects import check_object
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.arguments.sampled_textures import is_sampled_texture
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.struct_values import (
    PAIR,
    Parts,
    concrete,
    holds_one_array,
    one_part,
    parts_of,
    rows_of,
    structs_array,
)  # fmt: skip
from slangpy_rt.arguments.texture_types import is_resource
from slangpy_rt.arguments.value_packers import EnumPacker, GeneratorPacker, SplatPacker, ValuePacker  # fmt: skip
from slangpy_rt.arguments.wrapped import bind_wrapped, known, optional_item, tuple_items, tuple_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.conversion import (
    as_element,
    as_number,
    case_of,
    kind_of,
)  # fmt: skip
from slangpy_rt.core.dtypes import NUMPY_OF, Storage, scalar_type
from slangpy_rt.core.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.core.shapes import contiguous
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.textures.texture import Texture

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

_BYTES = ("ByteAddressBuffer", "RWByteAddressBuffer")


def bind(where: str, scope: Scope, param: Param, value: Any, how: Map = NO_MAP) -> Bound:
    """Fit a value to a parameter.

    Parameters
    ----------
    where : str
        ``"add(float a, float b): argument 'a'"``, the start of every message.
    how : Map
        The user's ``map`` of this argument.

    Raises
    ------
    BindError
        If it does not fit.
    UnsupportedError
        If the parameter's type, or the device, has no way to take it.
    """
    # Reflection has no fields of what these are.
    if param.type.kind == "struct" and not param.type.fields:
        wrapped = bind_wrapped(where, scope, param, value, how, bind)
        if wrapped is not None:
            return wrapped
    stand_in: Any = converter(type(value))
    adapter = stand_in if isinstance(stand_in, Adapter) else None
    if adapter is not None:
        whole = scope.struct(param.type)
        if container(whole) is None and holds_one_array(whole):
            return _bind_parts(where, scope, replace(param, type=whole), value, how, one_part(whole))
    if stand_in is not None:
        try:
            if param.direction != "in" and adapter is not None:
                adapter.check_writable(value)
            other = stand_in(value) if adapter is None else adapter.on(scope.device, value)
        except BindError as error:
            raise BindError(f"{where} is {error}") from None
        try:
            inner = bind(where, scope, param, other, how)
        except BindError as error:
            raise error if adapter is None else BindError(adapter.in_its_words(str(error), value, other)) from None
        packer = _stand_in_packer(where, scope.device, value, other, stand_in, inner)
        host = (adapter.result_kind(value) if adapter is not None else "") or inner.host
        return replace(inner, packer=packer, host=host)
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
        param = replace(param, type=concrete(where, scope, param.type, value))
    whole = scope.struct(param.type)
    if whole is not param.type:
        param = replace(param, type=whole)
    bound = _bind(where, scope, param, value, how)
    if how.fields and bound.mode != "parts":
        raise BindError(f"{where}: map names fields, but {in_words(value)} is taken whole; give call dimensions.")
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
            f"{in_words(value)} has {len(free)} beside those of '{param.type.name}'."
        )
    return _mapped(bound, how.dims)


def _stand_in_packer(where: str, device: DeviceCore, value: Any, other: Any, stand_in: Any, inner: Bound) -> Packer:
    """Return the packer of a value that ``other`` replaces; if need be, it converts the value at each call."""
    if not isinstance(stand_in, Adapter):
        return ConvertedPacker(stand_in, inner.packer, inner.access != "in")
    try:
        packer = stand_in.packer(device, value, inner.access)
    except BindError as error:
        raise BindError(f"{where} is {error}") from None
    if isinstance(inner.packer, ArrayPacker):
        assert packer is not None
        part = inner.access != "in" and inner.mapped is not None and len(set(inner.mapped)) < len(inner.mapped)
        return packer.partial() if part else packer
    if packer is not None and isinstance(inner.packer, HostViewPacker) and inner.packer.plain:
        return packer
    # Arrays on a GPU have returned above: a conversion at each call would not order the work on them.
    assert not isinstance(other, NDBuffer), inner
    return ConvertedPacker(partial(stand_in.on, device), inner.packer, inner.access != "in")


def bind_whole(where: str, scope: Scope, param: Param, value: Any) -> Bound:
    """Fit a value to a parameter that is the same for all elements: of a dispatched kernel, or a uniform.

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
                f"{where} is {in_words(value)}, one value for each element; one for all is expected here."
            )
        if leaf.mode in ("array", "tensor", "texel") and leaf.shape:
            inner = where if leaf is bound else f"{where[:-1]}{leaf.name.removeprefix(param.name)}'"
            raise BindError(
                f"{inner} has shape {leaf.shape} beside the dimensions of '{leaf.type.name}'; "
                "one for all is expected here."
            )
    return bound


def _slang_converts(type_: SlangType, param: Param) -> bool:
    """Return whether Slang converts a value of that type to the parameter's, without a cast."""
    if param.type.kind in ("generic", "interface"):
        return True
    numbers = ("scalar", "vector", "matrix")
    if param.direction != "in" or type_.kind not in numbers or param.type.kind not in numbers:
        return False
    return type_.kind == "scalar" or type_.shape == param.type.shape


def bind_result(where: str, scope: Scope, type_: SlangType, value: Any, how: Map = NO_MAP) -> Bound:
    """Fit an array given as ``_result`` to the function's return type.

    Raises
    ------
    BindError
        If it is no array of that type on the device.
    """
    if type_.kind == "struct" and not type_.fields:
        items = tuple_items(scope, type_)
        if items:
            return _bind_results(where, scope, known(type_, items), value, how)
        if optional_item(scope, type_) is not None:
            raise BindError(f"{where}: results of type '{type_.name}' lie in no array; leave _result out.")
    adapter = adapter_for_result(value)
    if adapter is not None:
        try:
            other = adapter.on(scope.device, value)
            inner = bind_result(where, scope, type_, other, how)
        except BindError as error:
            if not str(error).startswith(where):
                raise BindError(f"{where} is {error}") from None
            raise BindError(adapter.in_its_words(str(error), value, other)) from None
        packer = _stand_in_packer(where, scope.device, value, other, adapter, inner)
        return replace(inner, packer=packer, host=adapter.result_kind(value))
    if not isinstance(value, (NDBuffer, np.ndarray, Texture)):
        raise BindError(
            f"{where}: pass a Tensor, an NDBuffer, a NumPy array, a Texture, one of their types, or one of 'numpy', "
            f"'tensor', 'ndbuffer', 'texture', 'torch', not {in_words(value)}."
        )
    element = scope.struct(type_)
    if isinstance(value, Texture):
        bound = bind_texels(where, scope.device, "_result", element, "out", value)
    else:
        bound = bind_array(where, scope.device, "_result", element, stored_as(where, element), "out", value)
    if how.dims is not None and len(how.dims) != len(bound.shape):
        raise BindError(f"{where}: map gives {how.dims}; {in_words(value)} has {len(bound.shape)} dimensions.")
    return bound if how.dims is None else _mapped(bound, how.dims)


def _bind_results(where: str, scope: Scope, type_: SlangType, value: Any, how: Map) -> Bound:
    """Fit a tuple of arrays given as ``_result`` to a function that returns a Tuple."""
    items: Any = type_.arguments
    if not isinstance(value, (list, tuple)) or len(value) != len(items):
        raise BindError(f"{where} is {in_words(value)}; a tuple of {len(items)} arrays was expected.")
    parts = [
        bind_result(f"{where}[{k}]", scope, t, v, how) for k, (t, v) in enumerate(zip(items, value, strict=True))
    ]
    return results_of(type_, parts)


def results_of(type_: SlangType, parts: Sequence[Bound]) -> Bound:
    """Return the results of a function that returns a Tuple as one."""
    named = [(f"._{k}", replace(part, name=f"_result._{k}")) for k, part in enumerate(parts)]
    return tuple_of("_result", type_, "out", tuple(named))


def _mapped(bound: Bound, dims: tuple[int, ...]) -> Bound:
    """Return the argument, its dimensions mapped to call dimensions.

    Two dimensions mapped to one call dimension are a diagonal; the rest of an array that is written keeps its values.
    """
    packer = bound.packer
    if len(set(dims)) < len(dims) and bound.access != "in":
        packer = packer.partial()
    return replace(bound, mapped=dims, packer=packer)


def _bind(where: str, scope: Scope, param: Param, value: Any, how: Map) -> Bound:
    type_, device = param.type, scope.device
    if isinstance(value, Generator):
        return _bind_generator(where, param, value)
    if type_.kind == "struct":
        check_object(where, type_, value)
    elif is_resource(type_):
        return bind_resource(where, device, param, value)
    if type_.kind == "array" and type_.element is not None and is_resource(type_.element):
        raise UnsupportedError(
            f"{where}: '{type_.name}' is an array of textures or samplers, which Vulkan does not take; declare one "
            "parameter for each, or a texture array such as Texture2DArray."
        )
    if isinstance(value, Texture) and not is_sampled_texture(scope, type_):
        return bind_texels(where, device, param.name, type_, param.direction, value)
    whole = container(type_)
    if whole is not None:
        element, rank, writable = whole
        if element.kind == "atomic":
            _check_atomic(where, type_, element)
        element = element_of(scope, element)
        access = "inout" if writable else "in"
        bound = bind_array(where, device, param.name, element, stored_as(where, element), access, value, whole=True)
        if len(bound.shape) < rank:
            raise BindError(
                f"{where} has {len(bound.shape)} dimensions of '{element.name}'; '{type_.name}' takes {rank}."
            )
        if bound.struct is not None:
            check_native(where, device, element, f"'{type_.name}'")
        if type_.name.startswith(("RW", "W")) and 0 not in bound.shape:
            inner = list(zip(bound.shape, bound.strides, strict=True))[len(bound.shape) - rank :]
            if any(n > 1 and step == 0 for n, step in inner):
                raise ShapeError(f"{where} is a broadcast view and would be written to; copy it first.")
        return as_tensor(where, bound, as_struct(type_), rank)
    if type_.kind == "struct" and type_.name in _BYTES and is_ours(type_):
        return bind_bytes(where, scope, param, value)
    if type_.kind == "pointer":
        return bind_pointer(where, scope, param, value)
    if isinstance(value, ValueRef) and not type_.name.startswith(PAIR):
        return _bind_ref(where, scope, param, value)
    parts = parts_of(where, scope, param, value)
    if parts is not None:
        return _bind_parts(where, scope, param, value, how, parts)
    stored = stored_as(where, type_)
    if type_.kind == "struct" and isinstance(value, list):
        return _bind_records(where, scope, param, value, stored)
    if isinstance(value, (NDBuffer, np.ndarray, list, tuple)):
        return bind_array(where, device, param.name, type_, stored, param.direction, value)
    if param.direction != "in":
        raise BindError(
            f"{where} is '{param.direction}' and would be written to; pass an array or a ValueRef instead of "
            f"{in_words(value)}."
        )
    if type_.kind == "enum" and isinstance(value, (str, Enum)):
        return _bind_enum(where, param, value)
    return _bind_scalar(where, device, param.name, type_, stored, value)


def _check_atomic(where: str, type_: SlangType, element: SlangType) -> None:
    """Refuse a whole array of ``Atomic<T>`` whose elements have none of its methods."""
    if type_.name.partition("<")[0] not in ("RWTensor", "NDBuffer", "RWStructuredBuffer"):
        raise UnsupportedError(
            f"{where}: elements of '{type_.name}' cannot be changed; declare a RWTensor, NDBuffer or "
            f"RWStructuredBuffer of '{element.name}', or leave Atomic out."
        )


def _bind_generator(where: str, param: Param, value: Generator) -> Bound:
    type_ = param.type
    if param.direction != "in":
        raise BindError(
            f"{where} is '{param.direction}' and would be written to; pass an array or a ValueRef instead of "
            f"{in_words(value)}."
        )
    value.check(where, type_)
    shape = value.shape
    return Bound(
        param.name, type_, type_.scalar, 0, "in", "computed", shape, contiguous(shape), True, "", GeneratorPacker(),
        generator=value,
    )  # fmt: skip


def _bind_scalar(where: str, device: DeviceCore, name: str, type_: SlangType, stored: Storage, value: Any) -> Bound:
    scalar = stored.scalar
    if stored.struct or kind_of(value) == "O":
        raise BindError(
            f"{where} is {in_words(value)} of type {type(value).__name__}, which does not convert to '{type_.name}'."
        )
    number = scalar_type(scalar)
    as_number(where, type_ if type_.kind in ("scalar", "enum") else replace(number, name=type_.name), value)
    if type_.kind == "array":
        raise BindError(
            f"{where} is {in_words(value)}; '{type_.name}' takes {stored.dims[0]} values in a list or an array."
        )
    check_scalar(where, device, scalar)
    fit, far = number_fit(value, NUMPY_OF[scalar])
    packer: Packer = ValuePacker(where, type_, scalar)
    if stored.count > 1:
        packer, fit = SplatPacker(where, type_, scalar, stored.count), SPLAT
    return Bound(name, type_, scalar, stored.count, "in", "value", (), (), True, "", packer, fit, far=far)


def _bind_enum(where: str, param: Param, value: Any) -> Bound:
    """Bind a case of an enum by its name, or a Python enum by its value."""
    type_ = param.type
    case_of(where, type_, value)
    packer = EnumPacker(lambda v: case_of(where, type_, v))
    return Bound(param.name, type_, type_.scalar, 1, "in", "value", (), (), True, "", packer)


def _bind_ref(where: str, scope: Scope, param: Param, value: ValueRef) -> Bound:
    stored = stored_as(where, param.type)
    inner = bind(where, scope, replace(param, direction="in"), value.value) if param.direction != "out" else None
    if inner is not None and any(leaf.shape for leaf in inner.leaves):
        raise BindError(f"{where} is {in_words(value)}; it takes one '{param.type.name}'.")
    if inner is not None and param.direction == "in":
        return replace(inner, packer=ConvertedPacker(lambda v: v.value, inner.packer, False))
    check_scalars(where, scope.device, stored)
    if inner is not None:
        as_element(where, param.type, value.value, scope.named)
    packer = RefPacker(where, scope.device, param.type, param.direction)
    return Bound(
        param.name, param.type, stored.scalar, stored.count, param.direction, "array", (), (), True, "", packer,
        struct=stored.struct,
    )  # fmt: skip


def _bind_records(where: str, scope: Scope, param: Param, value: list[Any], stored: Storage) -> Bound:
    """Bind a list of struct values, which each call converts to a structured array."""
    if param.direction != "in":
        raise BindError(
            f"{where} is {in_words(value)} and would be written to; pass a structured array, a Tensor or a dict of "
            "arrays."
        )
    shape = rows_of(where, value)

    def build(v: list[Any]) -> npt.NDArray[Any]:
        return structs_array(where, param.type, v, stored, shape)

    inner = bind(where, scope, param, structs_array(where, param.type, value, stored, shape, scope.named))
    return replace(inner, host="", packer=ConvertedPacker(build, inner.packer, False))


def _bind_parts(where: str, scope: Scope, param: Param, value: Any, how: Map, parts: Parts) -> Bound:
    names = [name for _, name, _ in parts.places]
    for name, _ in how.fields:
        if name not in names:
            has = ", ".join(names)
            raise BindError(f"{where}: map names '{name}', which '{param.type.name}' has not; it has {has}.")
    bound = []
    for (place, name, type_), part in zip(parts.places, parts.take(value), strict=True):
        inner = where if name[:5] == "_spy_" else f"{where[:-1]}{place}'" if where[-1:] == "'" else f"{where}{place}"
        kept = name in param.unchanged and not _has_two_gradients(part)
        child = Param(f"{param.name}.{name}", type_, "in" if kept else param.direction)
        bound.append((place, bind(inner, scope, child, part, how.field(name))))
    host = result_kind([b for _, b in bound])
    packer = PartsPacker(parts.take, [b.packer for _, b in bound])
    implied = parts.left_out + sum(b.implied for _, b in bound)
    return Bound(
        param.name, param.type, "", 0, param.direction, "parts", (), (), True, host, packer, parts=tuple(bound),
        implied=implied, initial=parts.initial,
    )  # fmt: skip


def _has_two_gradients(value: Any) -> bool:
    """Return whether a value, or a part of it, carries gradients of which a derivative reads one and writes another.

    Of a field that a method only reads, the one is passed on to the other, as of a field that it changes.
    """
    if isinstance(value, NDBuffer):
        return value.layout.grads is not None and not value.layout.grads.shared
    items = value if isinstance(value, (list, tuple)) else (fields_of(value) or {}).values()
    return any(map(_has_two_gradients, items))
