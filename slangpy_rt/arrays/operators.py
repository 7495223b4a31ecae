"""What Tensors have of NumPy's operators and methods. ``slangpy_rt.arithmetic`` computes them, on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from copy import deepcopy
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.checks import short_tracebacks, shortened
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, ShapeError, SlangPyRtError
from slangpy_rt.core.shapes import whole_numbers
from slangpy_rt.core.wording import in_words

if TYPE_CHECKING:
    from slangpy_rt.arrays.recording import Recorder

A = TypeVar("A", bound="Operators")
# The recorder of the block of ``grad_tape`` that is open here. It is no state of a device: a block is entered before
# its arrays, and so their devices, are known.
RECORDER: ContextVar[Recorder | None] = ContextVar("slangpy_rt.recorder", default=None)
# Modules above this package: they call functions, which take arrays. They are imported with the first operation.
_ELEMENTWISE = "slangpy_rt.arithmetic.elementwise"
_REDUCTIONS = "slangpy_rt.arithmetic.reductions"
_SELECTION = "slangpy_rt.arithmetic.selection"
_PRODUCTS = "slangpy_rt.linalg.matmul"


def _on_left(name: str) -> Callable[[A, Any], A]:
    def operator(self: Any, other: Any) -> Any:
        try:
            return _operations(self).binary(name, self, other)
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    return operator


def _on_right(name: str) -> Callable[[A, Any], A]:
    def operator(self: Any, other: Any) -> Any:
        try:
            return _operations(self).binary(name, other, self)
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    return operator


def _power(operator: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return an operator that refuses the third argument of Python's ``pow``."""

    def power(self: Any, other: Any, *modulus: Any) -> Any:
        if modulus and modulus[0] is not None:
            raise BindError("pow: there is no power with a modulus; write x ** y % n.")
        return operator(self, other)

    return power


def _in_place(name: str) -> Callable[[A, Any], A]:
    def operator(self: Any, other: Any) -> Any:
        try:
            return _operations(self).binary(name, self, other, self)
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    return operator


def _of_one(name: str) -> Callable[[A], A]:
    def operator(self: Any) -> Any:
        try:
            return _operations(self).unary(name, self)
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    return operator


@short_tracebacks("__matmul__", "__float__", "__int__", "__bool__", "astype", "to", "where", "clip")
@short_tracebacks("sum", "mean", "min", "max", "any", "all", "argmin", "argmax")
class Operators(NDBuffer):
    """Operators and methods of Tensors, with NumPy's names and broadcasting; results are new Tensors on the device.

    A Python number has the type of the array that it meets: ``half * 2.0`` is half, ``int * 2.0`` is float. Of two
    arrays, integers have NumPy's common type, and a floating-point type stays as it is beside integers. ``/`` of
    integers is float. Within a block of ``grad_tape`` operations of Tensors that carry gradients are recorded.
    """

    __slots__ = ()
    # NumPy's arrays leave an operator with a Tensor on its right to that Tensor.
    __array_priority__ = 1000
    # By identity, as PyTorch's, so that Tensors can be keys.
    __hash__ = object.__hash__

    __add__, __radd__, __iadd__ = _on_left("add"), _on_right("add"), _in_place("add")
    __sub__, __rsub__, __isub__ = _on_left("sub"), _on_right("sub"), _in_place("sub")
    __mul__, __rmul__, __imul__ = _on_left("mul"), _on_right("mul"), _in_place("mul")
    __truediv__, __rtruediv__, __itruediv__ = _on_left("truediv"), _on_right("truediv"), _in_place("truediv")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _on_left("floordiv"), _on_right("floordiv"), _in_place("floordiv")
    __mod__, __rmod__, __imod__ = _on_left("mod"), _on_right("mod"), _in_place("mod")
    __pow__, __rpow__, __ipow__ = _power(_on_left("pow")), _power(_on_right("pow")), _in_place("pow")
    __and__, __rand__, __iand__ = _on_left("and"), _on_right("and"), _in_place("and")
    __or__, __ror__, __ior__ = _on_left("or"), _on_right("or"), _in_place("or")
    __xor__, __rxor__, __ixor__ = _on_left("xor"), _on_right("xor"), _in_place("xor")
    __lshift__, __rlshift__, __ilshift__ = _on_left("lshift"), _on_right("lshift"), _in_place("lshift")
    __rshift__, __rrshift__, __irshift__ = _on_left("rshift"), _on_right("rshift"), _in_place("rshift")
    __lt__, __le__, __gt__, __ge__ = _on_left("lt"), _on_left("le"), _on_left("gt"), _on_left("ge")
    if TYPE_CHECKING:  # pyright takes the result of an assigned method for object's

        def __eq__(self: A, other: object) -> A: ...  # type: ignore[override]

        def __ne__(self: A, other: object) -> A: ...  # type: ignore[override]

    else:
        __eq__, __ne__ = _on_left("eq"), _on_left("ne")
    __neg__, __abs__, __invert__, __pos__ = _of_one("neg"), _of_one("abs"), _of_one("invert"), _of_one("copy")

    def __matmul__(self: A, other: Any) -> A:
        made: A = import_module(_PRODUCTS).matmul(self, other)
        return made

    def __getitem__(self: A, key: Any) -> A:
        """Return a view of a part, as of an NDBuffer, or for a mask of bools a new Tensor of the selected elements.

        Raises
        ------
        IndexError
            If an index is out of range, or is of another kind, or a mask has another shape than the array or its
            first dimensions.
        """
        try:
            if isinstance(key, NDBuffer) or _is_mask(key):
                made: A = (RECORDER.get() or import_module(_SELECTION)).selected(self, key)
                return made
            return super().__getitem__(key)
        except (SlangPyRtError, IndexError) as error:
            raise shortened(error) from error.__cause__

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write an array or a number to a part of this array: ``t[2:] = 0``, ``t[t < 0] = 0``.

        Raises
        ------
        IndexError
            If an index is out of range, or is neither one of a view nor a Tensor of bools of this array's shape.
        BindError
            If floats would be written to integers, or integers to bools.
        ShapeError
            If the value does not broadcast to that part, or this array is a broadcast view.
        """
        try:
            self._written(key, value)
        except (SlangPyRtError, IndexError) as error:
            raise shortened(error) from error.__cause__

    def _written(self, key: Any, value: Any) -> None:
        own: Any = self
        # Nothing overlaps in an empty array, to which PyTorch gives strides of 0.
        moves = zip(own.shape, own.layout.strides, strict=False)
        if 0 not in own.shape and any(n > 1 and step == 0 for n, step in moves):
            raise ShapeError(f"Tensor: {own.summary} is a broadcast view and would be written to; copy it first.")
        operations = _operations(self)
        if _is_mask(key):
            key = type(self)._from_host(self.device, key)  # type: ignore[attr-defined]
        if isinstance(key, NDBuffer):
            if key.dtype.name != "bool" or key.shape != self.shape:
                raise IndexError(f"Tensor: {key.summary} is no index of {self.summary}; bools of its shape are.")
            operations.where(key, value, self, self)
            return
        part: Any = self[key]
        if _has_arithmetic(part):
            operations.write(value, part, converting=False)
        else:
            part.copy_from(value.to_numpy() if isinstance(value, NDBuffer) else value)

    def item(self) -> Any:
        """Return the only scalar of the array as a Python number.

        Raises
        ------
        BindError
            If it has several scalars, or none.
        """
        layout = self.layout
        if prod(layout.full_shape) != 1 or layout.numpy_dtype.names is not None:
            raise BindError(f"Tensor.item: {self.summary} is not a single number; index it, or use tolist().")
        return self._shown().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        value = self.item()
        if isinstance(value, float):
            raise TypeError(f"{self.summary} is a floating-point number, and no index")
        return int(value)

    def __bool__(self) -> bool:
        if prod(self.layout.full_shape) != 1:
            raise BindError(f"{self.summary} is neither true nor false as a whole; use any(), all() or its size.")
        return bool(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers; a number for an array without dimensions."""
        return self._shown().tolist()

    def astype(self: A, dtype: Any) -> A:
        """Return a new Tensor with the values converted to another element type of the same dimensions.

        Floats lose their fraction when they become integers; those that the integer type cannot hold are undefined.
        """
        element = element_type("Tensor.astype", dtype)
        own = self.layout
        if element.kind in ("scalar", "storage") and own.element.shape:
            element = element_type("Tensor.astype", own.element.name.replace(own.element.scalar, element.name, 1))
        if element.shape != own.element.shape:
            raise BindError(
                f"Tensor.astype: {self.summary} does not become '{element.name}', which has another shape."
            )
        made: A = _operations(self).unary("copy", self, element)
        return made

    def copy(self: A) -> A:
        """Return a new contiguous Tensor with the same values and without gradients."""
        recorder = RECORDER.get()
        if recorder is not None:
            copied: A = recorder.copy(self, self.device)
            return copied
        made: Any = type(self)(self.device, self.dtype, self.shape)
        if _has_arithmetic(self):
            import_module(_ELEMENTWISE).elementwise(self).write(self, made)
        else:
            made.copy_from(self.to_numpy())
        result: A = made
        return result

    def __deepcopy__(self: A, memo: dict[int, Any]) -> A:
        """Return a copy whose gradients are copies too, one where they are one."""
        made: Any = self.copy()
        memo[id(self)] = made
        if self.layout.grads is not None:
            own: Any = self
            into = deepcopy(own.grad_in, memo)
            out = into if self.layout.grads.shared else deepcopy(own.grad_out, memo)
            made = memo[id(self)] = made.with_grads(into, out)
        result: A = made
        return result

    def reshape(self: A, *shape: Any) -> A:
        """Return the values, in row-major order, under another shape: a view, or a copy of a non-contiguous array.

        One size may be -1: it is computed from the others.

        Raises
        ------
        ShapeError
            If the number of elements differs.
        """
        sizes = whole_numbers(shape[0] if len(shape) == 1 else shape)
        if sizes is None:
            raise ShapeError(f"Tensor.reshape: {in_words(shape)} is no shape; whole numbers were expected.")
        known = prod(s for s in sizes if s != -1)
        if sizes.count(-1) == 1 and known and not self.size % known:
            sizes = tuple(self.size // known if s == -1 else s for s in sizes)
        if min(sizes, default=0) < 0 or prod(sizes) != self.size:
            raise ShapeError(f"Tensor.reshape: {self.summary} does not have the elements of shape {in_words(sizes)}.")
        source: Any = self if self.is_contiguous else self.copy()
        result: A = source.view(sizes)
        return result

    @property
    def T(self: A) -> A:
        """The same memory with the dimensions in reverse order."""
        own = self.layout
        rank = len(own.shape)
        strides = own.strides[:rank][::-1] + own.strides[rank:]
        turned = layout_of(own.device, type(self), own.element, own.shape[::-1], strides, own.aligned)
        result: Any = self._seen(turned, self.address, lambda a: a.T)
        found: A = result
        return found

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances from one element to the next in each dimension, in elements.

        Raises
        ------
        BindError
            If one is no whole number of elements, as in views of some arrays of structs.
        """
        own = self.layout
        scalars = prod(own.full_shape[len(own.shape) :])
        outer = own.strides[: len(own.shape)]
        if any(s % scalars for s in outer):
            raise BindError(f"Tensor.strides: {self.summary} has elements at distances of parts of an element.")
        return tuple(s // scalars for s in outer)

    def to(self: A, device: Any) -> A:
        """Return the array on another device: itself if it lies there, else a copy by way of the host."""
        recorder = RECORDER.get()
        if device is self.device:
            same: Any = self
        elif recorder is not None:
            same = recorder.copy(self, device)
        else:
            same = type(self)(device, self.dtype, self.shape)
            same.copy_from(self.to_numpy())
        result: A = same
        return result

    def where(self: A, condition: Any, other: Any) -> A:
        """Return a new Tensor of this array's values where ``condition`` is true, and of ``other``'s elsewhere."""
        made: A = _operations(self).where(condition, self, other)
        return made

    def clip(self: A, low: Any = None, high: Any = None) -> A:
        """Return a new Tensor of the values, moved to the nearest bound where they lie outside; NaN stays."""
        recorder = RECORDER.get()
        if recorder is not None:
            clipped: A = recorder.clip(self, low, high)
            return clipped
        made: A = import_module(_ELEMENTWISE).elementwise(self).clip(self, low, high)
        return made

    def sum(self: A, axis: int | Sequence[int] | None = None, keepdims: bool = False, **numpys: None) -> A:
        """Return the sums along axes, by default of all elements.

        Sums of integers are ``int64_t`` or ``uint64_t``; half and bfloat16 are added up in float and rounded once.

        Parameters
        ----------
        axis : int or tuple of int, optional
            The dimensions that are added up. Elements that are vectors keep their own.
        keepdims : bool
            Whether these dimensions stay, with size 1.
        **numpys : None
            What ``numpy.sum(tensor)`` passes: ``dtype`` and ``out``, which have to be None.
        """
        return self._reduced("sum", axis, keepdims, numpys)

    def mean(self: A, axis: int | Sequence[int] | None = None, keepdims: bool = False, **numpys: None) -> A:
        """Return the means along axes, as ``sum`` does; of integers they are float."""
        return self._reduced("mean", axis, keepdims, numpys)

    def min(self: A, axis: int | Sequence[int] | None = None, keepdims: bool = False, **numpys: None) -> A:
        """Return the least values along axes, as ``sum`` does; NaN where one is NaN."""
        return self._reduced("min", axis, keepdims, numpys)

    def max(self: A, axis: int | Sequence[int] | None = None, keepdims: bool = False, **numpys: None) -> A:
        """Return the largest values along axes, as ``sum`` does; NaN where one is NaN."""
        return self._reduced("max", axis, keepdims, numpys)

    def any(self: A, axis: int | Sequence[int] | None = None, keepdims: bool = False, **numpys: None) -> A:
        """Return whether a value along axes is not zero, as ``sum`` does; False where there is none."""
        _check_numpys("any", numpys)
        return _on_left("ne")(self, 0)._reduced("any", axis, keepdims)

    def all(self: A, axis: int | Sequence[int] | None = None, keepdims: bool = False, **numpys: None) -> A:
        """Return whether no value along axes is zero, as ``sum`` does; True where there is none."""
        _check_numpys("all", numpys)
        return _on_left("ne")(self, 0)._reduced("all", axis, keepdims)

    def argmin(self: A, axis: int | None = None) -> A:
        """Return the indices, of type ``int``, of the least values along an axis, by default among all elements.

        The first of equal values counts, and NaN is less than any number.
        """
        return self._reduced("argmin", axis, False)

    def argmax(self: A, axis: int | None = None) -> A:
        """Return the indices of the largest values, as ``argmin`` does."""
        return self._reduced("argmax", axis, False)

    def _reduced(self: A, name: str, axis: Any, keepdims: bool, numpys: Any = None) -> A:
        if numpys:
            _check_numpys(name, numpys)
        operations = RECORDER.get() or import_module(_REDUCTIONS).reductions(self)
        made: A = operations.reduce(name, self, axis, keepdims)
        return made


def _operations(array: Any) -> Any:
    """Return what computes an array's operations: those of its device, or the open block of a tape."""
    return RECORDER.get() or import_module(_ELEMENTWISE).elementwise(array)


def _check_numpys(name: str, given: dict[str, Any]) -> None:
    """Refuse parameters of a reduction but those that NumPy's function of that name passes unset."""
    for key, value in given.items():
        if key not in ("dtype", "out") or value is not None:
            raise BindError(f"Tensor.{name}: there is no parameter '{key}'; it has axis and keepdims.")


def _is_mask(key: Any) -> bool:
    """Tell whether an index is an array of NumPy that holds bools."""
    return isinstance(key, np.ndarray) and key.dtype == np.bool_


def _has_arithmetic(array: NDBuffer) -> bool:
    """Tell whether the elements are numbers, vectors or matrices; others are copied by way of the host."""
    return array.layout.element.kind in ("scalar", "vector", "matrix", "storage")
