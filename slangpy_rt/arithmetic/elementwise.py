"""Operations of each element of Tensors: one Slang function for each operation and pair of scalar types."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.vectors import Vector
from slangpy_rt.arithmetic.promotion import check_kind, is_float, promoted, promoted_with
from slangpy_rt.arithmetic.texts import BITWISE, COMPARISONS, binary, unary
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.dtypes import (
    BFLOAT16,
    NUMPY_OF,
    PYTHON_TYPES,
    cast,
    element_type,
    is_bfloat16,
    scalar_type,
    slang_scalar,
)
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import another

# What messages call an assignment to elements.
_WRITE = "Tensor[...] = value"


class _Plan(NamedTuple):
    """How an operation of two kinds of operands is called.

    ``scalars`` says whether arrays of vectors are seen as arrays of scalars for the call; ``element`` is the result's
    type where the call cannot make the result by itself, and ``of`` the scalar type that it computes in.
    """

    function: Any
    of: str
    scalars: bool
    element: SlangType | None


class Elementwise:
    """The operations of one device.

    Parameters
    ----------
    device : Device
        The device on which they run.

    Attributes
    ----------
    device : Device
        The same.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._functions: dict[str, Any] = {}

    def binary(self, name: str, a: Any, b: Any, out: Tensor | None = None) -> Any:
        """Return the result of an operation of two operands; NotImplemented if one of them is no number or array.

        Parameters
        ----------
        name : str
            ``"add"``, ``"sub"``, ``"lt"``, ...: a name of ``texts.py``.
        a, b : Tensor, NDBuffer, numpy.ndarray, list or number
            The operands; one of them is an array on this device.
        out : Tensor, optional
            Is written in place of a new Tensor.

        Raises
        ------
        BindError
            If the operation is not defined for their elements, or ``out`` does not hold the result's.
        ShapeError
            If the shapes do not broadcast.
        """
        a, b = as_operand(self.device, name, a), as_operand(self.device, name, b)
        if a is None or b is None:
            return NotImplemented
        key = (name, _kind(a), _kind(b), None if out is None else out.layout.element)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._planned(name, a, b, out)
        if plan.element is None and not plan.scalars:
            try:
                return plan.function(a, b) if out is None else plan.function(a, b, _result=out)
            except (BindError, ShapeError):
                # These name a function of ours, which nobody has called.
                _check_together(self.device, name, a, b, out)
                raise
        if out is None:
            out = Tensor.empty(self.device, _broadcast(name, a, b), plan.element)
        if plan.scalars:
            dims = len(out.layout.full_shape) - len(out.shape)
            plan.function(as_scalars(a, dims), as_scalars(b, dims), _result=out.flatten_dtype())
        else:
            plan.function(a, b, _result=out)
        return out

    def where(self, condition: Any, a: Any, b: Any, out: Tensor | None = None) -> Any:
        """Return ``a``'s elements where a condition, an array of bools, is true, and ``b``'s elsewhere.

        Parameters and errors are those of ``binary``.
        """
        condition, a, b = (as_operand(self.device, "where", x) for x in (condition, a, b))
        if a is None or b is None or not hasattr(condition, "shape"):
            raise BindError(
                f"where: {in_words((condition, a, b))} were given; an array of bools and two arrays or numbers were "
                "expected."
            )
        plan = self._planned("where", a, b, out)
        element = plan.element or scalar_type(plan.of)
        if out is None:
            out = Tensor.empty(self.device, _broadcast("where", condition, a, b), element)
            wide = as_scalars
        else:
            # A mask selects the elements of an array that are written.
            wide = _written
            if hasattr(a, "shape"):
                _check_written(a, out)
        dims = len(out.layout.full_shape) - len(out.shape)
        flat = out.flatten_dtype() if dims else out
        plan.function(wide(a, dims), as_scalars(b, dims), as_scalars(condition, dims), _result=flat)
        return out

    def clip(self, a: NDBuffer, low: Any, high: Any) -> Any:
        """Return ``a``'s elements, moved to the nearest bound, a number or an array; None is no bound."""
        made: Any = a
        for name, bound in (("maximum", low), ("minimum", high)):
            if bound is not None:
                operand = as_operand(self.device, "clip", bound)
                if operand is None:
                    raise BindError(f"clip: a bound is {in_words(bound)}; a number or an array was expected.")
                _broadcast("clip", made, operand)
                made = self.binary(name, made, operand)
        return a.copy() if made is a else made

    def unary(self, name: str, a: NDBuffer, into: SlangType | None = None) -> Any:
        """Return the result of an operation of each scalar of an array, in a new Tensor of an element type."""
        element = a.layout.element
        scalar = scalar_of(name, element)
        if name == "invert" and is_float(scalar):
            raise BindError(f"~: {a.summary} holds floating-point numbers; integers or bools were expected.")
        if name == "neg" and scalar == "bool":
            raise BindError(f"-: {a.summary} holds bools; use ~ for their opposite.")
        into = element if into is None else into
        out = Tensor.empty(self.device, a.shape, into)
        self.write(a, out, name)
        return out

    def write(self, value: Any, out: Tensor, name: str = "copy", converting: bool = True) -> None:
        """Write an operation's results of a value, by default the value itself, to an array of any strides.

        ``converting`` allows to write floats to integers, and numbers to bools.
        """
        into = scalar_of(name, out.layout.element)
        source = as_operand(self.device, name, value)
        if source is None:
            raise BindError(f"{_WRITE}: {in_words(value)} was given; an array or a number was expected.")
        if name == "copy" and hasattr(source, "shape"):
            _check_written(source, out)
        kind = _kind(source)
        held = promoted_with(into, kind()) if isinstance(kind, type) else scalar_of(name, kind)
        if name == "copy" and not converting:
            check_kind(_WRITE, held, into)
        dims = len(out.layout.full_shape) - len(out.shape)
        flat = out.flatten_dtype() if dims else out
        self._function((name, held_as(held), held_as(into)))(_written(source, dims), _result=flat)

    def _planned(self, name: str, a: Any, b: Any, out: Tensor | None) -> _Plan:
        kinds = _kind(a), _kind(b)
        of = self._of_types(name, *kinds)
        into = "bool" if name in COMPARISONS else of
        wide = [k for k in kinds if isinstance(k, SlangType) and k.shape]
        if len({k.shape for k in wide}) > 1:
            raise BindError(f"{name}: '{wide[0].name}' and '{wide[1].name}' have elements of different shapes.")
        element = scalar_type(into) if into != "bfloat16" else BFLOAT16
        if wide:
            element = element_type(name, wide[0].name.replace(wide[0].scalar, into, 1))
        if out is not None:
            check_kind(f"{name} in place", into, scalar_of(name, out.layout.element))
            into = scalar_of(name, out.layout.element)
        given = [held_as(self._operand_type(x, of)) for x in (a, b)]
        function = self._function((name, *given, held_as(of), held_as(into)))
        return _Plan(function, of, bool(wide), element if wide or into == "bfloat16" else None)

    def _of_types(self, name: str, a: Any, b: Any) -> str:
        """Return the scalar type that an operation of two kinds of operands is computed in."""
        arrays = [scalar_of(name, k) for k in (a, b) if not isinstance(k, type)]
        if len(arrays) == 2:
            of = promoted(*arrays)
        else:
            number = next(k for k in (a, b) if isinstance(k, type))
            of = promoted_with(arrays[0], number())
        if name in BITWISE and is_float(of) and not any(map(is_float, arrays)) and len(arrays) == 2:
            raise BindError(
                f"{name}: no integer type has all numbers of '{arrays[0]}' and of '{arrays[1]}'; convert one: "
                f"x.astype('{arrays[1] if arrays[0].startswith('u') else arrays[0]}')."
            )
        if name in BITWISE and is_float(of):
            raise BindError(f"{name}: integers or bools were expected, and one operand has floating-point numbers.")
        if of == "bool" and name in ("sub", "floordiv", "mod", "pow", "lshift", "rshift"):
            raise BindError(
                f"{name}: both operands hold bools; convert one with astype('int'), or use ^ for differences."
            )
        return "float" if name == "truediv" and not is_float(of) else of

    def _operand_type(self, value: Any, of: str) -> str:
        """Return the scalar type of the parameter that takes an operand."""
        kind = _kind(value)
        return of if isinstance(kind, type) else scalar_of("", kind)

    def _function(self, key: tuple[str, ...]) -> Any:
        """Return the Slang function of an operation's name and types."""
        title = "_".join(key)
        found = self._functions.get(title)
        if found is None:
            text = unary(*key) if len(key) == 3 else binary(*key)
            module = Module.load_from_source(self.device, f"slangpy_rt_arithmetic_{title}", text)
            found = self._functions[title] = module[f"{key[0]}_"]
        return found


def elementwise(array: NDBuffer) -> Elementwise:
    """Return the operations of an array's device."""
    device = array.layout.device
    return device.once("elementwise", lambda: Elementwise(device))


def as_operand(device: Any, name: str, value: Any) -> Any:
    """Return an operand as an array, or as a number; None if it is neither."""
    if isinstance(value, (NDBuffer, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item() if value.dtype.kind in "biuf" else None
    if isinstance(value, (list, tuple)):
        value = as_array(name, value)
        kind = {"f": "float", "i": "int"}.get(value.dtype.kind)
        value = value if kind is None else cast(name, kind, value, NUMPY_OF[kind])
    if isinstance(value, Vector):
        # One element, not numbers along the last dimension.
        return Tensor.from_numpy(device, value, type(value).__name__)
    if isinstance(value, np.ndarray):
        if slang_scalar(value.dtype) is None and not is_bfloat16(value.dtype):
            raise BindError(f"{name}: a NumPy array of dtype {value.dtype} has no Slang type; convert it first.")
        return value
    if type(value).__module__.partition(".")[0] == "torch":
        raise BindError(
            f"{name}: one operand is a Tensor, one PyTorch's; use tensor.torch() or Tensor.from_dlpack(device, it)."
        )
    return None


def _kind(operand: Any) -> Any:
    """Return what an operation depends on: an array's element type, or a number's Python type."""
    if isinstance(operand, NDBuffer):
        return operand.layout.element
    if isinstance(operand, np.ndarray):
        name = slang_scalar(operand.dtype)
        return BFLOAT16 if name is None else scalar_type(name)
    return type(operand) if type(operand) in PYTHON_TYPES else next(t for t in PYTHON_TYPES if isinstance(operand, t))


def scalar_of(name: str, element: SlangType) -> str:
    """Return the scalar type of an array's elements.

    Raises
    ------
    BindError
        If they are structs or arrays.
    """
    if element is BFLOAT16:
        return "bfloat16"
    if element.kind not in ("scalar", "vector", "matrix"):
        raise BindError(
            f"{name}: elements of type '{element.name}' have no arithmetic; write a Slang function, or see the array "
            "as scalars with flatten_dtype()."
        )
    return element.scalar


def held_as(scalar: str) -> str:
    """Return the type of a function's parameter for an array's scalars: functions have floats for bfloat16."""
    return "float" if scalar == "bfloat16" else scalar


def as_scalars(value: Any, dims: int) -> Any:
    """Return an operand as scalars with so many dimensions of an element behind its own."""
    if not dims or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, NDBuffer) and len(value.layout.full_shape) > len(value.shape):
        return value.flatten_dtype()
    return value[(..., *(None,) * dims)]


def _check_together(device: Any, name: str, a: Any, b: Any, out: Any) -> None:
    """Refuse operands of different devices, and of shapes that do not broadcast to each other and to the result's."""
    for x in (a, b):
        if isinstance(x, NDBuffer) and x.device is not device:
            raise BindError(
                f"{name}: one operand is {x.summary} on {another(x.device, device)}, the other is on {device!r}; "
                "tensor.to(device) copies one of them."
            )
    shape = _broadcast(name, a, b)
    if out is not None and shape != out.shape:
        raise ShapeError(f"{name} in place: operands of shape {shape} do not fit {out.summary}; write x = x + y.")


def _written(value: Any, dims: int) -> Any:
    """Return a value to write to scalars; host data has the dimensions of an element already, as in calls."""
    return value if isinstance(value, np.ndarray) else as_scalars(value, dims)


def _check_written(value: Any, out: Tensor) -> None:
    """Refuse an array of another device, or one that does not broadcast to the array it is written to."""
    shape, into = value.shape, out.shape
    if isinstance(value, NDBuffer):
        if value.device is not out.device:
            raise BindError(
                f"{_WRITE}: the value is {value.summary} on {another(value.device, out.device)}, and the array is on "
                f"{out.device!r}; tensor.to(device) copies the value."
            )
        if value.layout.element.shape not in ((), out.layout.element.shape):
            raise BindError(f"{_WRITE}: the value is {value.summary}, and the array is {out.summary}.")
    else:
        into = out.layout.full_shape
    missing = len(into) - len(shape)
    if missing < 0 or any(a not in (1, b) for a, b in zip(shape, into[missing:], strict=True)):
        inner = into[len(out.shape) :]
        ends = f", whose last dimensions are those of '{out.dtype.name}'" if inner else ""
        raise ShapeError(f"{_WRITE}: an array of shape {shape} does not broadcast to shape {into}{ends}.")


def _broadcast(name: str, *operands: Any) -> tuple[int, ...]:
    shapes = [() if isinstance(x, (bool, int, float)) else x.shape for x in operands]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast. They are matched from the right; two "
            "dimensions must be equal, or one of them 1."
        ) from None
