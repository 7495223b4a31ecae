"""Indices as arguments: the element's index in the call, a grid that gives the call its shape, a Python ``range``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from slangpy_rt.arguments.computed import Generator, components, dim_of, scalar_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import MOST_DIMENSIONS, Shape, is_whole, whole_numbers
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

_LIMITS = {
    "int": (-(2**31), 2**31 - 1),
    "uint": (0, 2**32 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    "uint64_t": (0, 2**64 - 1),
}


class call_id(Generator):
    """Stands for the index of the current element in the call's shape.

    An ``int`` parameter takes it in calls of one dimension, ``int2`` in two, ``int3`` in three. As in textures,
    ``x`` counts the last dimension; ``int[2]`` counts as NumPy does, the first dimension first. A vector with one
    component more than the call has dimensions ends in 0: ``int3`` is ``(x, y, 0)`` in two dimensions.

    Parameters
    ----------
    dims : int
        How many numbers the parameter has to hold; -1 for as many as it does.

    Raises
    ------
    BindError
        If ``dims`` is no such number.
    """

    defaults: ClassVar[dict[str, Any]] = {"dims": -1}

    def __init__(self, dims: int = -1) -> None:
        if isinstance(dims, (tuple, list)):
            raise BindError(
                f"call_id: dims is a number, not {in_words(dims)}; grid({in_words(dims)}) gives the call a shape."
            )
        self._dims = dim_of("call_id", "dims", dims)

    def key(self) -> Any:
        return call_id, self._dims

    def check(self, where: str, type_: SlangType) -> None:
        components(where, type_, self, self._dims)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        wanted = components(where, type_, self, self._dims)
        spare = rank > 0 and wanted == rank + 1 and type_.kind == "vector"
        if wanted != rank and not spare:
            raise BindError(
                f"{where} is {self!r} for '{type_.name}', which counts {_count(wanted)}; "
                f"the call has {rank or 'none'}.{'' if rank else ' grid(shape) gives the call its own shape.'}"
            )
        scalar = scalar_of(type_)
        return _vector_of(type_, ["0"] * spare + [f"{scalar}(_spy_index[{d}])" for d in range(rank)])


class thread_id(Generator):
    """Stands for the number of the current element, counted in row-major order through the call's shape.

    It is the same in calls of any rank, for any ``group_size`` and on every device. ``uint`` takes the number,
    ``uint2`` and ``uint3`` hold it in ``x`` and 0 elsewhere. Use ``call_id`` for an index in each dimension.

    Parameters
    ----------
    dims : int
        How many numbers the parameter has to hold; -1 for as many as it does.

    Raises
    ------
    BindError
        If ``dims`` is no such number.
    """

    indexed: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Any]] = {"dims": -1}

    def __init__(self, dims: int = -1) -> None:
        self._dims = dim_of("thread_id", "dims", dims)

    def key(self) -> Any:
        return thread_id, self._dims

    def check(self, where: str, type_: SlangType) -> None:
        if type_.kind == "array":
            raise BindError(f"{where} is {self!r}; it takes a 'uint', 'uint2' or 'uint3' parameter, not an array.")
        components(where, type_, self, self._dims)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        self.check(where, type_)
        number = f"{scalar_of(type_)}(_spy_i)"
        return f"{type_.name}({', '.join([number, *['0'] * (type_.shape[0] - 1)])})" if type_.shape else number


class grid(Generator):
    """An index like ``call_id``, which gives the call its shape.

    Parameters
    ----------
    shape : int or tuple of int
        The call's dimensions, the slowest first; -1 for one that another argument gives. A dimension of 1 is
        broadcast, as an array's is: its index stays the first one.
    offset : int or tuple of int, optional
        The first index of each dimension, 0 unless given.
    stride : int or tuple of int, optional
        The step of each dimension, 1 unless given: element ``k`` has ``offset + k * stride``.

    Raises
    ------
    BindError
        If they are no whole numbers, or differ in length.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        offset: int | tuple[int, ...] | None = None,
        stride: int | tuple[int, ...] | None = None,
    ) -> None:
        items = whole_numbers(shape)
        if not items or min(items) < -1:
            raise BindError(f"grid: a shape is made of whole numbers of at least 0, or -1, not {in_words(shape)}.")
        if len(items) > MOST_DIMENSIONS:
            raise BindError(f"grid: {in_words(shape)} has more than {MOST_DIMENSIONS} dimensions.")
        self.shape = tuple(1 if n == -1 else n for n in items)
        self._shape = items
        self._offset = _each("offset", 0 if offset is None else offset, items)
        self._stride = _each("stride", 1 if stride is None else stride, items)
        # For a dimension that another argument gives, only the first index is known.
        ends = zip(self._offset, self._stride, self.shape, strict=True)
        self._fits = _fits([value for first, step, n in ends for value in (first, first + max(n - 1, 0) * step)])
        self._stored = _stored((*self._offset, *self._stride), self._fits)

    def key(self) -> Any:
        return grid, self._shape, self._fits, self._stored

    def scalars(self) -> tuple[str, ...]:
        return (self._stored,) * (2 * len(self.shape))

    def values(self) -> tuple[Any, ...]:
        return _as_stored((*self._offset, *self._stride), self._stored)

    def check(self, where: str, type_: SlangType) -> None:
        wanted, own = components(where, type_, self), len(self.shape)
        if wanted != own:
            raise BindError(f"{where} is {self!r} of {_count(own)}; '{type_.name}' counts {wanted}.")
        _check_fits(where, type_, self, self._fits)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        self.check(where, type_)
        own, scalar = len(self.shape), scalar_of(type_)
        places = dims if dims is not None else range(rank - own, rank)
        # A dimension of 1 is broadcast, as an array's is; one of -1 has the call's size.
        steps = zip(values[:own], values[own:], places, self._shape, strict=True)
        return _vector_of(
            type_, [f"{scalar}({first})" if n == 1 else _step(scalar, first, step, d) for first, step, d, n in steps]
        )

    def _part(self, shape: Shape, steps: Sequence[int], dims: Sequence[int]) -> grid:
        """Return the grid of a part of the call: of each ``steps`` elements along a dimension one.

        Parameters
        ----------
        shape, steps : sequence of int
            The part's size and its steps along each call dimension.
        dims : sequence of int
            The call dimension of each dimension of this grid.
        """
        sizes = [n if n in (-1, 1) else shape[d] for n, d in zip(self._shape, dims, strict=True)]
        strides = [s if n == 1 else s * steps[d] for n, s, d in zip(self._shape, self._stride, dims, strict=True)]
        return grid(tuple(sizes), self._offset, tuple(strides))

    def __repr__(self) -> str:
        offset = f", offset={self._offset}" if any(self._offset) else ""
        stride = f", stride={self._stride}" if set(self._stride) != {1} else ""
        return f"grid(shape={self._shape}{offset}{stride})"


class range_of(Generator):
    """A Python ``range`` as an argument: one dimension of ``len(range)`` elements, each of them a whole number."""

    def __init__(self, values: range) -> None:
        try:
            self.shape = (len(values),)
        except OverflowError:
            raise BindError(f"{values}, which is longer than any call can be.") from None
        self._range = values
        self._fits = _fits([values[0], values[-1]] if values else [])
        self._numbers = (values.start if values else 0, values.step if len(values) > 1 else 0)
        self._stored = _stored(self._numbers, self._fits)

    def key(self) -> Any:
        return range, self.shape, self._fits, self._stored

    def scalars(self) -> tuple[str, ...]:
        return (self._stored, self._stored)

    def values(self) -> tuple[Any, ...]:
        return _as_stored(self._numbers, self._stored)

    def check(self, where: str, type_: SlangType) -> None:
        if components(where, type_, self) != 1 or type_.kind != "scalar":
            raise BindError(f"{where} is {self!r}; it takes an 'int' parameter, not '{type_.name}'.")
        _check_fits(where, type_, self, self._fits)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        self.check(where, type_)
        return _step(scalar_of(type_), values[0], values[1], rank - 1 if dims is None else dims[0])

    def _part(self, count: int, step: int) -> range_of:
        """Return ``count`` of its numbers, each ``step`` elements after the one before; all if it has one number."""
        numbers = self._range
        return self if len(numbers) < 2 else range_of(numbers[::step][:count])

    def __repr__(self) -> str:
        return repr(self._range)


def _vector_of(type_: SlangType, items: Sequence[str]) -> str:
    """Return the text of indices, given first dimension first, in a parameter's type: a vector's x is the last."""
    if type_.kind == "array":
        return f"Array<{scalar_of(type_)}, {len(items)}>({', '.join(items)})"
    return f"{type_.name}({', '.join(reversed(items))})" if type_.shape else items[0]


def _step(scalar: str, first: str, step: str, d: int) -> str:
    return f"{scalar}({first}) + {scalar}(_spy_index[{d}]) * {scalar}({step})"


def _count(dims: int) -> str:
    return f"{dims} dimension{'s' * (dims != 1)}"


def _fits(values: Sequence[int]) -> tuple[str, ...]:
    """Return the integer types that hold all values."""
    return tuple([scalar for scalar, (low, high) in _LIMITS.items() if all(low <= v <= high for v in values)])


def _stored(numbers: Sequence[int], fits: tuple[str, ...]) -> str:
    """Return the type in which a call passes first indices and steps: of 64 bits only where 32 are too few."""
    low, high = _LIMITS["int"]
    return "int" if "int" in fits and all(low <= n <= high for n in numbers) else "uint64_t"


def _as_stored(numbers: tuple[int, ...], stored: str) -> tuple[int, ...]:
    """Return numbers as the call passes them; kernels compute modulo a power of two, so that signs need no bit."""
    return numbers if stored == "int" else tuple([n % 2**64 for n in numbers])


def _check_fits(where: str, type_: SlangType, what: Generator, fits: tuple[str, ...]) -> None:
    scalar = scalar_of(type_)
    if scalar in fits:
        return
    if scalar[0] == "u" and fits and "uint64_t" not in fits:
        raise BindError(f"{where} is {what!r}, which has negative numbers; '{type_.name}' takes none.")
    (low, high), article = _LIMITS[scalar], "a" if scalar[0] == "u" else "an"
    raise BindError(f"{where} is {what!r}, whose numbers go beyond those of {article} '{scalar}', {low} to {high}.")


def _each(name: str, value: Any, shape: Shape) -> Shape:
    """Return a whole number for each dimension."""
    items = whole_numbers(value)
    if not items or not _fits(items):
        raise BindError(f"grid: {name} is made of whole numbers of at most 64 bits, not {in_words(value)}.")
    if is_whole(value):
        return items * len(shape)
    if len(items) != len(shape):
        raise BindError(
            f"grid: {name} {in_words(value)} has {len(items)} numbers; the shape {shape} has {len(shape)}."
        )
    return items
