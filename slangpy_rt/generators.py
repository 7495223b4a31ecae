"""Generators: arguments without data, whose values the kernel works out from the element's index.

A generator says what it computes; how that becomes text and block is decided in ``binding`` and ``plan``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from slangpy_rt.errors import BindError
from slangpy_rt.types import SlangType

Shape = tuple[int, ...]


class Generator(ABC):
    """An argument that is computed for each element of the call.

    Attributes
    ----------
    shape : tuple of int
        What it adds to the call's shape.
    """

    shape: Shape = ()

    @abstractmethod
    def key(self) -> Any:
        """Equal for generators which one prepared call can serve; ``values`` are no part of it."""

    @abstractmethod
    def scalars(self) -> tuple[str, ...]:
        """Slang scalar types of ``values``."""

    @abstractmethod
    def values(self) -> tuple[Any, ...]:
        """Numbers that travel with each call."""

    @abstractmethod
    def expression(self, where: str, type_: SlangType, values: Sequence[str], rank: int) -> str:
        """Slang text of one element.

        Parameters
        ----------
        where : str
            Start of an error message.
        type_ : SlangType
            The parameter.
        values : sequence of str
            What the text calls ``values``.
        rank : int
            Dimensions of the call.

        Raises
        ------
        BindError
            If the parameter cannot take it.
        """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name.strip('_')}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class call_id(Generator):
    """Stands for the index of the current element in the call's shape.

    An ``int`` parameter takes it in calls of one dimension, ``int2`` in two, ``int3`` in three. As in textures,
    ``x`` counts the last dimension; ``int[2]`` counts as NumPy does, the first dimension first.
    """

    def key(self) -> Any:
        return call_id

    def scalars(self) -> tuple[str, ...]:
        return ()

    def values(self) -> tuple[Any, ...]:
        return ()

    def expression(self, where: str, type_: SlangType, values: Sequence[str], rank: int) -> str:
        wanted = components(where, type_)
        if wanted != rank:
            raise BindError(
                f"{where} is call_id() for '{type_.name}', which counts {wanted} "
                f"dimension{'s' if wanted > 1 else ''}; the call has {rank}."
            )
        return vector_of(type_, [f"int(index[{d}])" for d in range(rank)])


class grid(Generator):
    """An index like ``call_id``, which gives the call its shape.

    Parameters
    ----------
    shape : int or tuple of int
        The call's dimensions, the slowest first; -1 for one that another argument gives.
    offset : int or tuple of int
        The first index of each dimension, 0 unless given.
    stride : int or tuple of int
        The step of each dimension, 1 unless given: element ``k`` has ``offset + k * stride``.
    """

    def __init__(
        self, shape: int | tuple[int, ...], offset: int | tuple[int, ...] = 0, stride: int | tuple[int, ...] = 1
    ) -> None:
        items = _whole("shape", shape)
        if not items or any(n < -1 for n in items):
            raise BindError(f"grid: a shape is made of whole numbers of at least 0, or -1, not {shape!r}.")
        self.shape = tuple(1 if n == -1 else n for n in items)
        self._shape = items
        self._offset = _each("offset", offset, items)
        self._stride = _each("stride", stride, items)

    def key(self) -> Any:
        return grid, self.shape

    def scalars(self) -> tuple[str, ...]:
        return ("int",) * (2 * len(self.shape))

    def values(self) -> tuple[Any, ...]:
        return (*self._offset, *self._stride)

    def expression(self, where: str, type_: SlangType, values: Sequence[str], rank: int) -> str:
        wanted, own = components(where, type_), len(self.shape)
        if wanted != own:
            raise BindError(
                f"{where} is {self!r} of {own} dimension{'s' if own > 1 else ''}; '{type_.name}' counts {wanted}."
            )
        first = rank - own
        ids = [f"{values[d]} + int(index[{first + d}]) * {values[own + d]}" for d in range(own)]
        return vector_of(type_, ids)

    def __repr__(self) -> str:
        return (
            f"grid(shape={self._shape})"
            if not any(self._offset) and set(self._stride) == {1}
            else (f"grid(shape={self._shape}, offset={self._offset}, stride={self._stride})")
        )


class range_of(Generator):
    """A Python ``range`` as an argument: one integer an element."""

    def __init__(self, values: range) -> None:
        self.shape = (len(values),)
        self._range = values

    def key(self) -> Any:
        return range, self.shape

    def scalars(self) -> tuple[str, ...]:
        return ("int", "int")

    def values(self) -> tuple[Any, ...]:
        return (self._range.start, self._range.step)

    def expression(self, where: str, type_: SlangType, values: Sequence[str], rank: int) -> str:
        if components(where, type_) != 1:
            raise BindError(f"{where} is {self._range!r}; it takes an 'int' parameter, not '{type_.name}'.")
        return vector_of(type_, [f"{values[0]} + int(index[{rank - 1}]) * {values[1]}"])


def components(where: str, type_: SlangType) -> int:
    """How many indices a parameter takes: 1 of ``int``, 2 of ``int2`` and ``int[2]``.

    Raises
    ------
    BindError
        If it takes none.
    """
    inner = type_.element if type_.kind == "array" else type_
    if (
        inner is None
        or inner.scalar not in ("int", "uint")
        or inner.kind not in ("scalar", "vector")
        or (type_.kind == "array" and inner.kind != "scalar")
    ):
        raise BindError(f"{where} is an index; it takes an 'int', 'int2', 'int3' parameter, not '{type_.name}'.")
    return type_.shape[0] if type_.shape else 1


def vector_of(type_: SlangType, items: Sequence[str]) -> str:
    """Indices, the first dimension first, as a parameter takes them: vectors count the last dimension in x."""
    if type_.kind == "array":
        return "{" + ", ".join(items) + "}"
    return f"{type_.name}({', '.join(reversed(items))})"


def _whole(name: str, value: Any) -> Shape:
    items = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not all(isinstance(n, (int, np.integer)) for n in items):
        raise BindError(f"grid: {name} is made of whole numbers, not {value!r}.")
    return tuple(int(n) for n in items)


def _each(name: str, value: Any, shape: Shape) -> Shape:
    items = _whole(name, value)
    if isinstance(value, (int, np.integer)):
        return items * len(shape)
    if len(items) != len(shape):
        raise BindError(f"grid: {name} {value!r} has {len(items)} numbers; the shape {shape} has {len(shape)}.")
    return items
