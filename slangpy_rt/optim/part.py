"""Part: scalars of a parameter that one launch changes, with their gradient. It computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from slangpy_rt.arrays.tensor import Tensor, has_floats
from slangpy_rt.core.dtypes import BFLOAT16
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.overlap import Walk, repeats


class Part(NamedTuple):
    """An array of scalars of a parameter, and one of the same shape of its gradient.

    Attributes
    ----------
    values, gradient : Tensor
        Both are views.
    """

    values: Tensor
    gradient: Tensor

    @property
    def key(self) -> tuple[str, str, str]:
        """The scalars of the values and of the gradient, as functions take them, and those that are computed in."""
        held, gradient = _taken(self.values), _taken(self.gradient)
        return held, gradient, self.computed

    @property
    def computed(self) -> str:
        """The scalar type that a step computes in, and in which state is kept."""
        return "double" if _taken(self.values) == "double" else "float"

    def new_state(self) -> Tensor:
        """Return an array of zeros for the state of each scalar."""
        return Tensor.zeros(self.values.device, self.values.shape, self.computed)


def parts_of(where: str, parameter: Tensor) -> Iterator[Part]:
    """Yield the parts of a parameter: one, or one for each field of a struct that has a derivative.

    Raises
    ------
    BindError
        If the elements hold arrays of structs, or no floats.
    """
    gradient: Any = parameter.grad_out
    yield from _parts(where, parameter.detach(), gradient.detach())


def _parts(where: str, values: Tensor, gradient: Tensor) -> Iterator[Part]:
    element = values.dtype
    if element.kind == "struct":
        for field in element.fields:
            if has_floats(field.type) and not field.no_diff:
                yield from _parts(f"{where}[{field.name!r}]", values[field.name], gradient[field.name])
        return
    if values.layout.numpy_dtype.names is not None:
        raise BindError(f"{where}: {values.summary} holds arrays of structs; make a parameter of each of its fields.")
    if _repeats(values):
        told = "is broadcast" if 0 in values.layout.strides else "has elements that overlap each other"
        raise BindError(f"{where}: {values.summary} {told}; give the array that it was made from.")
    yield Part(values.flatten_dtype(), gradient.flatten_dtype())


def _repeats(values: Tensor) -> bool:
    """Tell whether two scalars share a byte."""
    layout = values.layout
    walk = Walk(tuple([s * layout.unit for s in layout.strides]), (), layout.numpy_dtype.itemsize)
    return bool(values.size) and not layout.contiguous and repeats(walk, layout.full_shape)


def _taken(array: Tensor) -> str:
    """Return the scalar type of the parameter that takes an array: functions have floats for bfloat16."""
    return "float" if array.dtype is BFLOAT16 else array.dtype.scalar
