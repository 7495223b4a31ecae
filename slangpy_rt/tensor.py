"""Tensor: an NDBuffer with NumPy's ways of making one. Gradients join it later; arithmetic is Slang's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from slangpy_rt.dtypes import NUMPY_OF, SLANG_OF, element_type, storage
from slangpy_rt.errors import BindError, ShapeError
from slangpy_rt.ndbuffer import NDBuffer, as_shape
from slangpy_rt.records import scalar_count

if TYPE_CHECKING:
    from slangpy_rt.device import Device

T = TypeVar("T", bound="Tensor")


class _Both:
    """A method that is one thing on the class and another on an instance."""

    def __init__(self, of_class: Any, of_instance: Any) -> None:
        self._of_class = of_class
        self._of_instance = of_instance
        self.__doc__ = of_class.__func__.__doc__

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self._of_class.__get__(None, owner)
        return self._of_instance.__get__(instance, owner)


class Tensor(NDBuffer):
    """An array on a device. Make one with ``zeros``, ``ones``, ``full``, ``empty`` or ``from_numpy``."""

    __slots__ = ()

    @classmethod
    def empty(cls: type[T], device: Device, shape: int | Sequence[int], dtype: Any = "float") -> T:
        """A tensor with undefined contents."""
        return cls(device, dtype, shape)

    @classmethod
    def full(cls: type[T], device: Device, shape: int | Sequence[int], value: Any, dtype: Any = "float") -> T:
        """A tensor whose every element is ``value`` (broadcast over the element's dimensions)."""
        element = element_type(f"{cls.__name__}.full", dtype)
        stored = storage(element)
        assert stored is not None, element
        full = as_shape(f"{cls.__name__}.full", shape) + stored.dims
        try:
            host = np.full(full, value, stored.dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise BindError(f"{cls.__name__}.full: {value!r} does not fit '{element.name}' ({error}).") from None
        return cls._from_host(device, host, element)

    @classmethod
    def zeros(cls: type[T], device: Device, shape: int | Sequence[int], dtype: Any = "float") -> T:
        """A tensor of zeros."""
        return cls.full(device, shape, 0, dtype)

    @classmethod
    def ones(cls: type[T], device: Device, shape: int | Sequence[int], dtype: Any = "float") -> T:
        """A tensor of ones."""
        return cls.full(device, shape, 1, dtype)

    @classmethod
    def arange(cls: type[T], device: Device, *bounds: float, dtype: Any = None) -> T:
        """Evenly spaced values, as ``numpy.arange``; ``int`` for whole bounds, ``float`` for others."""
        whole = all(isinstance(b, (int, np.integer)) for b in bounds)
        element = element_type(f"{cls.__name__}.arange", dtype or ("int" if whole else "float"))
        values = np.arange(*bounds).astype(NUMPY_OF[element.scalar])
        return cls._from_host(device, values, element)

    @classmethod
    def _from_host(cls: type[T], device: Device, array: npt.ArrayLike, dtype: Any = None) -> T:
        """Copy host data to a new tensor.

        Parameters
        ----------
        device : Device
            Where it will live.
        array : array_like
            Any NumPy array, strided or not. Python floats and ints become ``float`` and ``int``.
        dtype : str, numpy dtype or type, optional
            Element type; a vector or matrix takes the trailing dimensions. By default the array's own.

        Raises
        ------
        BindError
            If the data's dtype has no Slang type, or does not convert to ``dtype``.
        ShapeError
            If its trailing dimensions are not those of ``dtype``.
        """
        where = f"{cls.__name__}.from_numpy"
        source = np.asarray(array)
        if not isinstance(array, (np.ndarray, np.generic)) and dtype is None:
            source = source.astype({"f": "f4", "i": "i4"}.get(source.dtype.kind, source.dtype))
        if dtype is None and source.dtype.newbyteorder("=") not in SLANG_OF:
            hint = "name the struct: dtype=module.Name" if source.dtype.names else "convert the array first"
            raise BindError(f"{where}: dtype {source.dtype} has no Slang type; {hint}.")
        element = element_type(where, source.dtype if dtype is None else dtype)
        stored = storage(element)
        assert stored is not None, element
        inner = stored.dims
        if stored.record and source.dtype.names is None:
            # Flat data: the last dimension holds a struct's scalars one after another.
            inner = (scalar_count(stored.dtype),)
        outer = source.shape[: source.ndim - len(inner)]
        if source.shape[len(outer) :] != inner:
            raise ShapeError(
                f"{where}: data of shape {source.shape} does not end in the dimensions {inner} of '{element.name}'."
            )
        tensor = cls(device, element, outer)
        tensor.copy_from(source)
        return tensor

    copy_from_numpy = NDBuffer.copy_from
    # On the class these make a tensor, on a tensor they are what they are on an NDBuffer; SP#016 writes both.
    from_numpy: Any = _Both(_from_host, NDBuffer.copy_from)
    numpy: Any = _Both(_from_host, NDBuffer.to_numpy)

    @classmethod
    def empty_like(cls: type[T], other: NDBuffer) -> T:
        """A tensor of the same device, shape and element type, with undefined contents."""
        return cls(other.device, other.dtype, other.shape)

    @classmethod
    def zeros_like(cls: type[T], other: NDBuffer) -> T:
        """A tensor of zeros of the same device, shape and element type."""
        return cls.zeros(other.device, other.shape, other.dtype)

    @classmethod
    def ones_like(cls: type[T], other: NDBuffer) -> T:
        """A tensor of ones of the same device, shape and element type."""
        return cls.ones(other.device, other.shape, other.dtype)

    def broadcast_to(self: T, shape: int | Sequence[int]) -> T:
        """The same memory stretched over a larger shape; to read from.

        Raises
        ------
        ShapeError
            If the shapes do not broadcast.
        """
        new = as_shape("Tensor.broadcast_to", shape)
        layout = self.layout
        missing = len(new) - len(layout.shape)
        if missing < 0 or any(a not in (1, b) for a, b in zip(layout.shape, new[missing:], strict=True)):
            raise ShapeError(f"Tensor.broadcast_to: {self.summary} does not broadcast to shape {new}.")
        outer = layout.strides[: len(layout.shape)]
        inner = layout.strides[len(layout.shape) :]
        strides = (0,) * missing + tuple(
            0 if size == 1 else stride for size, stride in zip(layout.shape, outer, strict=True)
        )
        wide = layout.device.layout(type(self), layout.element, new, strides + inner, layout.aligned)
        return type(self).of(wide, self.buffer, self.address)
