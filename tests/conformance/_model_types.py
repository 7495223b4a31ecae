"""Slang types and arguments as the model of a call sees them, and how they get to a device and back.

It knows nothing of kernels or layouts. No test is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import slangpy_rt as spy

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

# How well an argument fits, best first. Dimensions left to vectorize over come before these.
EXACT, PROMOTED, CONVERTED, SPLAT = range(4)


class Refused(Exception):
    """The argument does not fit the parameter: the library raises BindError."""


class Mismatch(Exception):
    """Shapes do not agree: the library raises ShapeError."""


class Unspecified(Exception):
    """The documents do not say."""


@dataclass(frozen=True)
class Type:
    """A Slang type.

    Attributes
    ----------
    kind : str
        ``"scalar"``, ``"vector"``, ``"matrix"``, ``"array"``, ``"struct"``, ``"enum"``, ``"tensor"`` or
        ``"pointer"``.
    dtype : numpy.dtype
        Of its scalars, structured for a struct; of a container those of its elements.
    dims : tuple of int
        Its own dimensions; of a container those of its elements.
    element : Type or None
        Of an array, a tensor or a pointer.
    rank : int
        Dimensions of a tensor.
    """

    name: str
    kind: str
    dtype: np.dtype[Any]
    dims: Shape = ()
    fields: tuple[tuple[str, Type], ...] = ()
    element: Type | None = None
    rank: int = 0
    cases: tuple[tuple[str, int], ...] = ()

    def __repr__(self) -> str:
        return self.name

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True)
class Data:
    """An array argument: what it is a view of, and how it looks at that.

    Attributes
    ----------
    on : str
        ``"numpy"``, ``"Tensor"`` or ``"NDBuffer"``.
    base : numpy.ndarray
        All that the view's memory holds.
    type : Type or None
        Element type, of an array on a device.
    views : tuple of (str, object)
        ``("index", key)``, ``("transpose", axes)`` or ``("broadcast", shape)``, in order.
    """

    on: str
    base: Array
    type: Type | None = None
    views: tuple[tuple[str, Any], ...] = ()

    def look(self, base: Any) -> Any:
        """The view of ``base``: of a host array with the element's dimensions, or of an array on a device."""
        inner = self.type.dims if self.type is not None and isinstance(base, np.ndarray) else ()
        for how, what in self.views:
            if how == "index":
                base = base[what]
            elif how == "transpose":
                base = base.transpose(what)
            elif isinstance(base, np.ndarray):
                wide = np.broadcast_to(base, what + inner)
                # NumPy lets nobody write to it. On a device that is for the call to find out.
                base = wide if self.type is None else np.lib.stride_tricks.as_strided(base, wide.shape, wide.strides)
            else:
                base = base.broadcast_to(what)
        return base

    @property
    def value(self) -> Array:
        """What it holds, the element's dimensions last."""
        return np.asarray(self.look(self.base))

    def __repr__(self) -> str:
        kind = self.on if self.type is None else f"{self.on}<{self.type.name}>"
        views = "".join(f" {how} {what}" for how, what in self.views)
        return f"{kind} {'' if self.type else self.base.dtype.str + ' '}{self.base.shape}{views}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True)
class Grid:
    """A ``grid(shape, offset, stride)``."""

    shape: Shape
    offset: Any = 0
    stride: Any = 1


@dataclass(frozen=True)
class CallId:
    """A ``call_id()``."""


@dataclass(frozen=True)
class Fit:
    """An argument as its parameter takes it.

    Attributes
    ----------
    shape : tuple of int
        Its call dimensions.
    values : numpy.ndarray or None
        Of ``shape`` and then the type's dimensions; None for what only the call knows.
    level : int
        ``EXACT`` to ``SPLAT``.
    """

    shape: Shape
    values: Array | None
    level: int = EXACT

    @property
    def cost(self) -> tuple[int, int]:
        """Less fits better."""
        return len(self.shape), self.level


def scalar(name: str, code: str) -> Type:
    """A scalar type."""
    return Type(name, "scalar", np.dtype(code))


def vector(element: Type, n: int) -> Type:
    """``float3`` of ``float`` and 3."""
    return Type(f"{element.name}{n}", "vector", element.dtype, (n,))


def matrix(element: Type, rows: int, columns: int) -> Type:
    """``float2x3`` of ``float``, 2 and 3."""
    return Type(f"{element.name}{rows}x{columns}", "matrix", element.dtype, (rows, columns))


def array(element: Type, n: int) -> Type:
    """``float[4]`` of ``float`` and 4."""
    return Type(f"{element.name}[{n}]", "array", element.dtype, (n, *element.dims), element=element)


def struct(name: str, **fields: Type) -> Type:
    """A struct, its scalars aligned as C aligns them."""
    dtype = np.dtype([(key, type_.dtype, type_.dims) for key, type_ in fields.items()], align=True)
    return Type(name, "struct", dtype, (), tuple(fields.items()))


def enum(name: str, **cases: int) -> Type:
    """An enum of int."""
    return Type(name, "enum", np.dtype("i4"), cases=tuple(cases.items()))


def tensor(element: Type, rank: int) -> Type:
    """``Tensor<float3, 2>`` of ``float3`` and 2."""
    return Type(f"Tensor<{element.name}, {rank}>", "tensor", element.dtype, element.dims, element=element, rank=rank)


def pointer(element: Type) -> Type:
    """``float*`` of ``float``."""
    return Type(f"{element.name}*", "pointer", element.dtype, element.dims, element=element)


def place(device: spy.Device, module: Any, value: Any) -> tuple[Any, Any]:
    """The argument itself, and what holds its memory: the copy of ``Data.base`` that it looks at."""
    if isinstance(value, Data):
        # A copy keeps what matters of the base: byte order, a field's place, Fortran's order.
        base: Any = value.base.copy(order="K")
        if value.type is not None:
            kind = getattr(spy, value.on)
            named = _of_module(module, value.type)
            shape = base.shape[: base.ndim - len(value.type.dims)]
            held = kind(device, named, shape)
            held.copy_from(base)
            base = held
        return value.look(base), base
    if isinstance(value, Grid):
        return spy.grid(value.shape, value.offset, value.stride), None
    if isinstance(value, CallId):
        return spy.call_id(), None
    if isinstance(value, Mapping):
        return {key: place(device, module, item)[0] for key, item in value.items()}, None
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(place(device, module, item)[0] for item in value), None
    return value, None


def same(actual: Any, expected: Array, ulps: int = 0) -> None:
    """Assert that values agree, field by field; floats within so many units in the last place."""
    if expected.dtype.names is not None:
        for name in expected.dtype.names:
            same(actual[name], expected[name], ulps)
        return
    actual = np.asarray(actual)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if ulps and expected.size:
        np.testing.assert_array_max_ulp(actual, expected, ulps)
    else:
        np.testing.assert_array_equal(actual, expected)


def host(result: Any) -> Any:
    """A result of any kind as NumPy values."""
    return result.to_numpy() if isinstance(result, spy.NDBuffer) else result


def _of_module(module: Any, type_: Type) -> Any:
    """What ``dtype`` is called: a name, or a struct of the module."""
    return getattr(module, type_.name) if type_.kind in ("struct", "enum") else type_.name


def count(shape: Shape) -> int:
    """Elements of a shape."""
    return prod(shape)
