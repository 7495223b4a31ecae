"""Tensor: an NDBuffer with operators, which may carry gradients and is made as NumPy makes arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from slangpy_rt.arrays.layout import Laid, layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import Operators
from slangpy_rt.core.checks import no_memory, short_traceback, short_tracebacks, whole
from slangpy_rt.core.conversion import as_array, as_element, is_number
from slangpy_rt.core.dtypes import (
    BFLOAT16,
    NUMPY_OF,
    cast,
    element_type,
    is_bfloat16,
    scalar_type,
    slang_scalar,
    storage,
)
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.structs import scalar_count
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import a_device, another

if TYPE_CHECKING:
    from slangpy_rt.core.types import SlangType
    from slangpy_rt.runtime.core import DeviceCore

T = TypeVar("T", bound="Tensor")


class _Both:
    """A method that calls one function on the class and another on an instance."""

    def __init__(self, of_class: Any, of_instance: Any) -> None:
        self._of_class = of_class
        self._of_instance = of_instance
        self.__doc__ = of_class.__func__.__doc__

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self._of_class.__get__(None, owner)
        return self._of_instance.__get__(instance, owner)


@short_tracebacks("full", "zeros", "ones", "linspace", "arange", "broadcast_to", "with_grads", "point_to")
@short_tracebacks("copy_from")
class Tensor(Operators):
    """An array on a device. Make one with ``zeros``, ``ones``, ``full``, ``empty`` or ``from_numpy``."""

    __slots__ = ()

    @classmethod
    def empty(cls: type[T], device: DeviceCore, shape: int | Sequence[int], dtype: Any = "float") -> T:
        """Make a tensor with undefined contents."""
        return cls(device, dtype, shape)

    @classmethod
    def full(cls: type[T], device: DeviceCore, shape: int | Sequence[int], value: Any, dtype: Any = "float") -> T:
        """Make a tensor whose every element is ``value`` (broadcast over the element's dimensions)."""
        where = f"{cls.__name__}.full"
        element = element_type(where, dtype)
        number = scalar_type("float") if element is BFLOAT16 else element
        one = as_element(f"{where}: value", number, value, everywhere=True)
        full = as_shape(where, shape) + one.shape
        return cls._from_host(device, np.broadcast_to(one, full), element)

    @classmethod
    def zeros(cls: type[T], device: DeviceCore, shape: int | Sequence[int], dtype: Any = "float") -> T:
        """Make a tensor of zeros."""
        where = f"{cls.__name__}.zeros"
        tensor = cls(device, element_type(where, dtype), as_shape(where, shape))
        tensor.clear()
        return tensor

    @classmethod
    def ones(cls: type[T], device: DeviceCore, shape: int | Sequence[int], dtype: Any = "float") -> T:
        """Make a tensor of ones."""
        return cls.full(device, shape, 1, dtype)

    @classmethod
    def linspace(
        cls: type[T], device: DeviceCore, start: float, stop: float, num: int = 50, dtype: Any = "float"
    ) -> T:
        """Make a tensor of ``num`` evenly spaced values from ``start`` to ``stop``, both included."""
        where = f"{cls.__name__}.linspace"
        element = element_type(where, dtype)
        count = whole(where, "num", num, 0, 2**31 - 1)
        try:
            ends = float(start), float(stop)
        except (TypeError, ValueError, OverflowError):
            ends = (inf, inf)
        if not (is_number(start) and is_number(stop) and isfinite(ends[0]) and isfinite(ends[1])):
            raise BindError(f"{where}: {in_words((start, stop))} were given; two finite numbers were expected.")
        try:
            values = np.linspace(*ends, count)
        except MemoryError as error:
            raise no_memory(where, error) from None
        return cls._from_host(device, values, element)

    @classmethod
    def arange(cls: type[T], device: DeviceCore, *bounds: float, dtype: Any = None) -> T:
        """Make a tensor of evenly spaced values like ``numpy.arange``: ``int`` for whole bounds, else ``float``."""
        where = f"{cls.__name__}.arange"
        if not 1 <= len(bounds) <= 3 or not all(is_number(b) for b in bounds):
            raise BindError(
                f"{where}: {in_words(bounds)} are not one to three numbers: stop, start and stop, or with a step."
            )
        whole = all(isinstance(b, (int, np.integer)) for b in bounds)
        element = element_type(where, ("int" if whole else "float") if dtype is None else dtype)
        try:
            values = np.arange(*bounds)
        except MemoryError as error:
            raise no_memory(where, error) from None
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise BindError(f"{where}: {in_words(bounds)} make no array ({error}).") from None
        stored = storage(element)
        if whole and stored is not None and stored.struct is None and element is not BFLOAT16:
            values = cast(f"{where}: {in_words(bounds)}", element.name, values, stored.dtype, listed=True)
        return cls._from_host(device, values, element)

    @classmethod
    @short_traceback
    def _from_host(cls: type[T], device: DeviceCore, array: Any = None, dtype: Any = None) -> T:
        """Copy host data to a new tensor.

        Parameters
        ----------
        device : Device
            The device of the new tensor.
        array : array_like
            Any NumPy array, strided or not. Python floats and ints become ``float`` and ``int``.
        dtype : str, numpy dtype or type, optional
            Element type; a vector or matrix takes the trailing dimensions. By default the array's own type.

        Raises
        ------
        BindError
            If the data's dtype has no Slang type, or does not convert to ``dtype``.
        ShapeError
            If its trailing dimensions are not those of ``dtype``.
        """
        where = f"{cls.__name__}.from_numpy"
        device = a_device(where, device)
        source = as_array(f"{where}: data", array)
        listed = isinstance(array, (list, tuple, bool, int, float, range))
        if listed and dtype is None:
            kind = {"f": "float", "i": "int"}.get(source.dtype.kind)
            source = source if kind is None else cast(f"{where}: data", kind, source, NUMPY_OF[kind])
        if dtype is None and slang_scalar(source.dtype) is None and not is_bfloat16(source.dtype):
            hint = "name the struct: dtype=module.Name" if source.dtype.names else "convert the array first"
            raise BindError(f"{where}: dtype {source.dtype} has no Slang type; {hint}.")
        element = element_type(where, source.dtype if dtype is None else dtype)
        stored = storage(element)
        assert stored is not None, element
        inner = stored.dims
        if stored.struct and source.dtype.names is None:
            # Flat data: the last dimension holds a struct's scalars one after another.
            inner = (scalar_count(stored.dtype),)
        outer = source.shape[: source.ndim - len(inner)]
        if source.shape[len(outer) :] != inner:
            raise ShapeError(
                f"{where}: data of shape {source.shape} does not end in the dimensions {inner} of '{element.name}'."
            )
        if listed and stored.struct is None and source.dtype.kind in "iu" and element is not BFLOAT16:
            source = cast(f"{where}: data", element.name, source, stored.dtype, listed=True)
        tensor = cls(device, element, outer)
        tensor._fill(where, source)
        return tensor

    copy_from_numpy = NDBuffer.copy_from

    def copy_from(self, array: Any) -> None:
        """Fill the tensor from host data of the same shape, as an NDBuffer's ``copy_from``, or from a texture.

        Parameters
        ----------
        array : array_like or Texture
            Host data, or a texture on the same device of whose first level the tensor gets the numbers as the format
            stores them.

        Raises
        ------
        ShapeError
            If the shape differs.
        BindError
            If the data does not convert, or this is a non-contiguous view.
        """
        copy = getattr(array, "copy_to", None) if isinstance(array, Laid) else None
        if copy is not None:
            copy(self)
        else:
            super().copy_from(array)

    # SP#016 writes both: ``Tensor.numpy(device, array)`` makes a tensor, ``tensor.numpy()`` copies it to the host.
    if TYPE_CHECKING:

        @classmethod
        def from_numpy(cls: type[T], device: Any, array: Any = ..., dtype: Any = ...) -> T:  # type: ignore[override]
            """Make a tensor of host data; on an instance, fill it with host data."""
            ...
    else:
        # The name that Python's own errors and help() show.
        _from_host.__func__.__name__, _from_host.__func__.__qualname__ = "from_numpy", "Tensor.from_numpy"
        from_numpy = _Both(_from_host, NDBuffer.from_numpy)
    numpy: Any = _Both(_from_host, NDBuffer.to_numpy)

    @classmethod
    def empty_like(cls: type[T], other: NDBuffer) -> T:
        """Make a tensor of another's device, shape and element type, with undefined contents."""
        other = _model(f"{cls.__name__}.empty_like", other)
        return cls(other.device, other.dtype, other.shape)

    @classmethod
    def zeros_like(cls: type[T], other: NDBuffer) -> T:
        """Make a tensor of zeros of another's device, shape and element type."""
        other = _model(f"{cls.__name__}.zeros_like", other)
        return cls.zeros(other.device, other.shape, other.dtype)

    @classmethod
    def ones_like(cls: type[T], other: NDBuffer) -> T:
        """Make a tensor of ones of another's device, shape and element type."""
        other = _model(f"{cls.__name__}.ones_like", other)
        return cls.ones(other.device, other.shape, other.dtype)

    def broadcast_to(self: T, shape: int | Sequence[int]) -> T:
        """Return the same memory broadcast to a larger shape, to read from.

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
        wide = layout_of(layout.device, type(self), layout.element, new, strides + inner, layout.aligned)
        return self._seen(wide, self.address, lambda a: a.broadcast_to(new))

    def with_grads(self: T, grad_in: Tensor | None = None, grad_out: Tensor | None = None) -> T:
        """Return the same memory with gradients, for ``bwds`` and ``fwds``.

        Parameters
        ----------
        grad_in : Tensor, optional
            For ``bwds``, the gradient with respect to the values that a function writes here, which it reads; for
            ``fwds``, the tangent that it reads. It has this tensor's element type and shape; of bfloat16, floats will
            do.
        grad_out : Tensor, optional
            For ``bwds``, the gradient with respect to the values that a function reads here, which it adds to; for
            ``fwds``, the tangent that it writes. If neither is given, both are one new tensor of zeros. It has
            floats where this tensor has bfloat16, so that sums do not lose small terms.

        Returns
        -------
        Tensor
            A tensor that shares this one's memory. Calls that are no derivatives ignore its gradients.

        Raises
        ------
        BindError
            If a gradient is no tensor of the same device and element type, lies in this tensor's memory, or if the
            elements hold no float.
        ShapeError
            If its shape differs.
        """
        where = f"{type(self).__name__}.with_grads"
        if grad_in is None and grad_out is None and has_floats(self.layout.element):
            grad_in = grad_out = type(self).zeros(self.device, self.shape, gradient_type(self.layout.element))
        return self._with_checked(where, grad_in, grad_out)

    def _with_pickled(self: T, where: str, grad_in: Any, grad_out: Any) -> T:
        return self if grad_in is None and grad_out is None else self._with_checked(where, grad_in, grad_out)

    def _with_checked(self: T, where: str, grad_in: Any, grad_out: Any) -> T:
        if not has_floats(self.layout.element):
            raise BindError(f"{where}: {self.summary} holds no float, half or double, and has no gradient.")
        for name, grad in (("grad_in", grad_in), ("grad_out", grad_out)):
            if grad is not None:
                check_gradient(where, name, self, grad)
        return self._carrying(grad_in, grad_out)

    def detach(self: T) -> T:
        """Return the same memory without gradients."""
        layout = self.layout
        plain = layout_of(
            layout.device, type(self), layout.element, layout.shape, layout.strides, layout.aligned, own=layout.own
        )
        return type(self).of(plain, self.buffer, self.address)

    def point_to(self, target: Tensor) -> None:
        """Let this tensor be another one's memory from now on, as ``self = target`` would in all its variables.

        Its gradients stay. Calls that were bound or recorded with it before use the memory of then. No other thread
        may be using this tensor meanwhile.

        Parameters
        ----------
        target : Tensor
            A tensor of the same device, element type and shape.

        Raises
        ------
        BindError
            If ``target`` is no Tensor, or of another device or element type, or holds a gradient of this one.
        ShapeError
            If its shape differs.
        """
        where = f"{type(self).__name__}.point_to"
        if not isinstance(target, Tensor):
            raise BindError(f"{where}: target is {in_words(target)}; a Tensor was expected.")
        if target.device is not self.device:
            raise BindError(
                f"{where}: target is on {another(target.device, self.device)}; this tensor on {self.device!r}."
            )
        if target.dtype != self.dtype:
            raise BindError(f"{where}: target is a {target.summary}; '{self.dtype.name}' was expected, as here.")
        if target.shape != self.shape:
            raise ShapeError(f"{where}: target is a {target.summary}; shape {self.shape} was expected, as here.")
        new = target.detach()
        if self.layout.grads is not None:
            for name, grad in (("grad_in", self.grad_in), ("grad_out", self.grad_out)):
                if grad is not None:
                    check_gradient(where, name, new, grad)
            new = new._carrying(*self._grads)
            self._grads = new._grads
        self.layout, self.buffer, self.address = new.layout, new.buffer, new.address

    @property
    def grad_in(self) -> Tensor | None:
        """The gradient that derivatives read, or None."""
        return None if self.layout.grads is None else self._grads[0]  # type: ignore[return-value]

    @grad_in.setter
    def grad_in(self, grad: Tensor | None) -> None:
        self._take_gradients("grad_in", grad, self.grad_out)

    @property
    def grad_out(self) -> Tensor | None:
        """The gradient that derivatives write, or None."""
        return None if self.layout.grads is None else self._grads[1]  # type: ignore[return-value]

    @grad_out.setter
    def grad_out(self, grad: Tensor | None) -> None:
        self._take_gradients("grad_out", self.grad_in, grad)

    def _take_gradients(self, name: str, grad_in: Tensor | None, grad_out: Tensor | None) -> None:
        """Set both gradients in place, of which one was given by the name; None for none."""
        given = grad_in if name == "grad_in" else grad_out
        if given is not None and not isinstance(given, NDBuffer):
            raise BindError(f"{type(self).__name__}.{name}: {in_words(given)} was given; a tensor was expected.")
        old = self.grad_in if name == "grad_in" else self.grad_out
        # Another thread's call may have read this tensor's layout, and reads its gradients next.
        if old is not None and given is not None and old.layout is not given.layout:
            raise BindError(
                f"{type(self).__name__}.{name}: the gradient before is a {old.summary}, and this {given.summary} "
                f"lies in memory in another way; with_grads({name}=...) makes a tensor that has it."
            )
        if grad_in is None and grad_out is None:
            self.layout = self.detach().layout
            return
        new = self.with_grads(grad_in, grad_out)
        self.layout, self._grads = new.layout, new._grads

    @property
    def grad(self) -> Tensor:
        """The gradient: the one that derivatives write, if there is one, else the one that they read.

        Raises
        ------
        BindError
            If the tensor has no gradient; ``grad_out`` and ``grad_in`` are None then.
        """
        grad = self.grad_out if self.grad_out is not None else self.grad_in
        if grad is None:
            raise BindError(
                f"{type(self).__name__}.grad: this {self.summary} has no gradient. with_grads() returns a tensor of "
                "the same memory that has one; grad_out and grad_in are None where there is none."
            )
        return grad


def _model(where: str, other: Any) -> NDBuffer:
    """Return an array that a new one takes its device, shape and element type from; refuse any other value."""
    if not isinstance(other, NDBuffer):
        raise BindError(f"{where}: {in_words(other)} was given; a Tensor or an NDBuffer was expected.")
    return other


def check_gradient(where: str, name: str, array: NDBuffer, grad: Any) -> None:
    """Refuse a gradient that does not fit an array."""
    if not isinstance(grad, NDBuffer):
        what = f"an array of shape {grad.shape}" if isinstance(grad, np.ndarray) else in_words(grad)
        raise BindError(f"{where}: {name} is {what}; a tensor like this {array.summary} was expected.")
    if grad.device is not array.device:
        raise BindError(
            f"{where}: {name} is on {another(grad.device, array.device)}; this tensor on {array.device!r}."
        )
    element = gradient_type(array.dtype)
    if grad.dtype != element and not (name == "grad_in" and grad.dtype == array.dtype):
        why = "as of the tensor" if element == array.dtype else f"as gradients of '{array.dtype.name}' are"
        raise BindError(f"{where}: {name} is a {grad.summary}; '{element.name}' was expected, {why}.")
    if array.nbytes and array.is_contiguous and grad.is_contiguous and _overlap(grad, array):
        raise BindError(f"{where}: {name} lies in the tensor's own memory; give it memory of its own.")
    if grad.shape != array.shape:
        raise ShapeError(f"{where}: {name} is a {grad.summary}; shape {array.shape} was expected, as of the tensor.")


def gradient_type(element: SlangType) -> SlangType:
    """Return the element type of gradients that are added to; bfloat16 would lose small terms."""
    return scalar_type("float") if element is BFLOAT16 else element


def _overlap(a: NDBuffer, b: NDBuffer) -> bool:
    """Tell whether two contiguous arrays share memory."""
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def has_floats(type_: SlangType) -> bool:
    """Tell whether elements of a type hold a half, float, double or bfloat16, which may have gradients."""
    if type_.kind == "struct":
        return any(has_floats(f.type) for f in type_.fields)
    if type_.kind == "array" and type_.element is not None:
        return has_floats(type_.element)
    return type_ is BFLOAT16 or (type_.kind != "enum" and type_.scalar in ("half", "float", "double"))
