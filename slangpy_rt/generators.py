"""Generators: arguments without data, whose values the kernel works out from the element's index.

A generator says what it computes and of which numbers; how that becomes text and block is decided in ``binding``
and ``plan``. None keeps a state: the same arguments give the same values on every device, in whatever order the
elements run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from slangpy_rt.errors import BindError
from slangpy_rt.types import SlangType

Shape = tuple[int, ...]

INTEGERS = frozenset({"int", "uint", "int64_t", "uint64_t"})
FLOATS = frozenset({"float", "double"})

# Random numbers start from this seed unless another is given; it is SlangPy's.
_SEED = 2640457667
_MAX_UINT = 2**32 - 1
_MAX_FLOAT = float(np.finfo(np.float32).max)


class Generator(ABC):
    """An argument that is computed for each element of the call.

    Attributes
    ----------
    shape : tuple of int
        What it adds to the call's shape.
    indexed : bool
        Whether its text reads ``index``, the element's index in each dimension, or only ``i``, the flat one.
    """

    shape: Shape = ()
    indexed: ClassVar[bool] = True
    # The parameters that a repr shows, unless they have this value; each is kept under its name with "_" before.
    defaults: ClassVar[dict[str, Any]] = {}

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
    def check(self, where: str, type_: SlangType) -> None:
        """See whether a parameter can take it, in a call of any shape.

        Parameters
        ----------
        where : str
            Start of an error message.
        type_ : SlangType
            The parameter.

        Raises
        ------
        BindError
            If it cannot.
        """

    @abstractmethod
    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
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
        dims : tuple of int, optional
            The call dimension of each dimension of ``shape``; the last ones unless given.

        Raises
        ------
        BindError
            If the parameter cannot take it, or not in a call of that rank.
        """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        said = [(name, getattr(self, f"_{name}"), default) for name, default in self.defaults.items()]
        fields = ", ".join(f"{name}={value!r}" for name, value, default in said if value != default)
        return f"{type(self).__name__}({fields})"


class call_id(Generator):
    """Stands for the index of the current element in the call's shape.

    An ``int`` parameter takes it in calls of one dimension, ``int2`` in two, ``int3`` in three. As in textures,
    ``x`` counts the last dimension; ``int[2]`` counts as NumPy does, the first dimension first. A vector of one
    component more than the call has dimensions holds 0 there: ``int3`` is ``(x, y, 0)`` in two.

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
            raise BindError(f"call_id: dims is a number, not {dims!r}; grid({dims!r}) gives the call a shape.")
        self._dims = _dim("call_id", "dims", dims)

    def key(self) -> Any:
        return call_id, self._dims

    def scalars(self) -> tuple[str, ...]:
        return ()

    def values(self) -> tuple[Any, ...]:
        return ()

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
                f"the call has {rank or 'none'}."
            )
        scalar = _scalar(type_)
        return _vector_of(type_, ["0"] * spare + [f"{scalar}(index[{d}])" for d in range(rank)])


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
        self._dims = _dim("thread_id", "dims", dims)

    def key(self) -> Any:
        return thread_id, self._dims

    def scalars(self) -> tuple[str, ...]:
        return ()

    def values(self) -> tuple[Any, ...]:
        return ()

    def check(self, where: str, type_: SlangType) -> None:
        if type_.kind == "array":
            raise BindError(f"{where} is {self!r}; it takes a 'uint', 'uint2' or 'uint3' parameter, not an array.")
        components(where, type_, self, self._dims)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        self.check(where, type_)
        number = f"{_scalar(type_)}(i)"
        return f"{type_.name}({', '.join([number, *['0'] * (type_.shape[0] - 1)])})" if type_.shape else number


class grid(Generator):
    """An index like ``call_id``, which gives the call its shape.

    Parameters
    ----------
    shape : int or tuple of int
        The call's dimensions, the slowest first; -1 for one that another argument gives. One of 1 is stretched, as
        an array's is: its index stays the first.
    offset : int or tuple of int, optional
        The first index of each dimension, 0 unless given.
    stride : int or tuple of int, optional
        The step of each dimension, 1 unless given: element ``k`` has ``offset + k * stride``.

    Raises
    ------
    BindError
        If they are no whole numbers, or not as many of each.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        offset: int | tuple[int, ...] | None = None,
        stride: int | tuple[int, ...] | None = None,
    ) -> None:
        items = _whole(shape)
        if not items or min(items) < -1:
            raise BindError(f"grid: a shape is made of whole numbers of at least 0, or -1, not {shape!r}.")
        self.shape = tuple(1 if n == -1 else n for n in items)
        self._shape = items
        self._offset = _each("offset", 0 if offset is None else offset, items)
        self._stride = _each("stride", 1 if stride is None else stride, items)
        # Of a dimension that another argument gives, only the first index is known.
        ends = zip(self._offset, self._stride, self.shape, strict=True)
        self._bounds = _bounds([value for first, step, n in ends for value in (first, first + max(n - 1, 0) * step)])

    def key(self) -> Any:
        return grid, self._shape, self._bounds

    def scalars(self) -> tuple[str, ...]:
        return ("int",) * (2 * len(self.shape))

    def values(self) -> tuple[Any, ...]:
        return (*self._offset, *self._stride)

    def check(self, where: str, type_: SlangType) -> None:
        wanted, own = components(where, type_, self), len(self.shape)
        if wanted != own:
            raise BindError(f"{where} is {self!r} of {_count(own)}; '{type_.name}' counts {wanted}.")
        _check_bounds(where, type_, self, self._bounds)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        self.check(where, type_)
        own, scalar = len(self.shape), _scalar(type_)
        places = dims if dims is not None else range(rank - own, rank)
        # A dimension of 1 is stretched, as an array's is; one of -1 follows the call.
        steps = zip(values[:own], values[own:], places, self._shape, strict=True)
        return _vector_of(
            type_, [f"{scalar}({first})" if n == 1 else _step(scalar, first, step, d) for first, step, d, n in steps]
        )

    def __repr__(self) -> str:
        offset = f", offset={self._offset}" if any(self._offset) else ""
        stride = f", stride={self._stride}" if set(self._stride) != {1} else ""
        return f"grid(shape={self._shape}{offset}{stride})"


class range_of(Generator):
    """A Python ``range`` as an argument: one whole number an element, as many as ``len(range)``."""

    def __init__(self, values: range) -> None:
        self.shape = (len(values),)
        self._range = values
        self._bounds = _bounds([values[0], values[-1]] if values else [])

    def key(self) -> Any:
        return range, self.shape, self._bounds

    def scalars(self) -> tuple[str, ...]:
        return ("int", "int")

    def values(self) -> tuple[Any, ...]:
        return self._range.start, self._range.step if len(self._range) > 1 else 0

    def check(self, where: str, type_: SlangType) -> None:
        if components(where, type_, self) != 1 or type_.kind != "scalar":
            raise BindError(f"{where} is {self!r}; it takes an 'int' parameter, not '{type_.name}'.")
        _check_bounds(where, type_, self, self._bounds)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        self.check(where, type_)
        return _step(_scalar(type_), values[0], values[1], rank - 1 if dims is None else dims[0])

    def __repr__(self) -> str:
        return repr(self._range)


class wang_hash(Generator):
    """Random whole numbers: 32 bits that Thomas Wang's integer hash makes of each element's number and a seed.

    The numbers depend on ``thread_id``, the seed and the parameter's size alone. They repeat after 2**32 elements.

    Parameters
    ----------
    dim : int
        How many numbers the parameter has to hold; -1 for as many as it does.
    seed : int
        From 0 to 2**32 - 1. Another seed gives other numbers.
    warmup : int
        How often the element's number is hashed before the seed comes in, at least 0. More costs time.
    hash_seed : bool
        Whether the seed itself is hashed first, so that 1, 2, 3 give numbers that have nothing in common.

    Raises
    ------
    BindError
        If one of them is no such number.
    """

    indexed: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Any]] = {"dim": -1, "seed": _SEED, "warmup": 0, "hash_seed": True}

    def __init__(self, dim: int = -1, seed: int = _SEED, warmup: int = 0, hash_seed: bool = True) -> None:
        self._dim = _dim("wang_hash", "dim", dim)
        self._seed = _natural("wang_hash", "seed", seed)
        self._warmup = _natural("wang_hash", "warmup", warmup)
        self._hash_seed = bool(hash_seed)

    def key(self) -> Any:
        return wang_hash, self._dim, self._warmup

    def scalars(self) -> tuple[str, ...]:
        return ("uint",)

    def values(self) -> tuple[Any, ...]:
        return (_hashed(self._seed) if self._hash_seed else self._seed,)

    def check(self, where: str, type_: SlangType) -> None:
        components(where, type_, self, self._dim)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        count = components(where, type_, self, self._dim)
        return _filled(type_, f"wangHash<{_scalar(type_)}, {count}>(uint(i), {values[0]}, {self._warmup})")


class rand_float(Generator):
    """Random floats in ``[min, max)``, evenly spread: ``min + (max - min) * u``, where ``u`` has 23 random bits.

    The bits are the low ones of ``wang_hash`` with the same ``dim``, ``seed``, ``warmup`` and ``hash_seed``. The
    floats are the same on every device, to the last bit.

    Parameters
    ----------
    min, max : float
        Rounded to 32-bit floats; ``min`` is less than ``max``.
    dim, seed, warmup, hash_seed
        As for ``wang_hash``.

    Raises
    ------
    BindError
        If one of them is no such number.
    """

    indexed: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Any]] = {"min": 0.0, "max": 1.0, **wang_hash.defaults}

    def __init__(
        self,
        min: float = 0.0,
        max: float = 1.0,
        dim: int = -1,
        seed: int = _SEED,
        warmup: int = 0,
        hash_seed: bool = True,
    ) -> None:
        self._min = _float("min", min)
        self._max = _float("max", max)
        self._dim = _dim("rand_float", "dim", dim)
        self._seed = _natural("rand_float", "seed", seed)
        self._warmup = _natural("rand_float", "warmup", warmup)
        self._hash_seed = bool(hash_seed)
        self._spread = _spread(self._min, self._max)

    def key(self) -> Any:
        return rand_float, self._dim, self._warmup

    def scalars(self) -> tuple[str, ...]:
        return ("uint", "float", "float", "float")

    def values(self) -> tuple[Any, ...]:
        return (_hashed(self._seed) if self._hash_seed else self._seed, *self._spread)

    def check(self, where: str, type_: SlangType) -> None:
        components(where, type_, self, self._dim, FLOATS)

    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        count = components(where, type_, self, self._dim, FLOATS)
        seed, *spread = values
        what = f"randFloat<{_scalar(type_)}, {count}>"
        return _filled(type_, f"{what}(uint(i), {seed}, {self._warmup}, {', '.join(spread)})")


def components(
    where: str,
    type_: SlangType,
    what: Generator | None = None,
    dim: int = -1,
    scalars: frozenset[str] = INTEGERS,
) -> int:
    """How many numbers a parameter takes: 1 of ``int``, 2 of ``int2`` and ``int[2]``.

    Raises
    ------
    BindError
        If it takes none of these scalars, or not ``dim`` of them.
    """
    inner = type_.element if type_.kind == "array" else type_
    if (
        inner is None
        or inner.scalar not in scalars
        or inner.kind not in ("scalar", "vector")
        or (type_.kind == "array" and (inner.kind != "scalar" or not type_.shape[0]))
    ):
        makes, takes = ("floats", "float") if scalars is FLOATS else ("whole numbers", "int")
        raise BindError(
            f"{where} is {what or call_id()!r}, which makes {makes}; it takes {'an' if takes == 'int' else 'a'} "
            f"'{takes}', '{takes}3' or '{takes}[4]' parameter, not '{type_.name}'."
        )
    count = type_.shape[0] if type_.shape else 1
    if dim not in (-1, count):
        raise BindError(f"{where} is {what!r}, which is {dim} number{'s' * (dim > 1)}; '{type_.name}' takes {count}.")
    return count


def _scalar(type_: SlangType) -> str:
    return type_.element.scalar if type_.element is not None else type_.scalar


def _vector_of(type_: SlangType, items: Sequence[str]) -> str:
    """Indices, the first dimension first, as a parameter takes them: vectors count the last dimension in x."""
    if type_.kind == "array":
        return f"Array<{_scalar(type_)}, {len(items)}>({', '.join(items)})"
    return f"{type_.name}({', '.join(reversed(items))})" if type_.shape else items[0]


def _filled(type_: SlangType, array: str) -> str:
    """An array of as many numbers as the parameter takes, as it takes them."""
    if type_.kind == "array":
        return array
    return f"vectorOf({array})" if type_.shape else f"{array}[0]"


def _step(scalar: str, first: str, step: str, d: int) -> str:
    return f"{scalar}({first}) + {scalar}(index[{d}]) * {scalar}({step})"


def _count(dims: int) -> str:
    return f"{dims} dimension{'s' * (dims != 1)}"


def _bounds(values: Sequence[int]) -> str:
    """Which integers hold them: ``"uint"`` for every type, ``"int"`` for the signed ones, ``""`` for none."""
    if any(not -(2**31) <= v < 2**31 for v in values):
        return ""
    return "int" if any(v < 0 for v in values) else "uint"


def _check_bounds(where: str, type_: SlangType, what: Generator, bounds: str) -> None:
    if not bounds:
        raise BindError(f"{where} is {what!r}, whose numbers go beyond those of an 'int', {-(2**31)} to {2**31 - 1}.")
    if bounds == "int" and _scalar(type_).startswith("u"):
        raise BindError(f"{where} is {what!r}, which has negative numbers; '{type_.name}' takes none.")


def _is_whole(value: Any) -> bool:
    # To Python a bool is an int.
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _whole(value: Any) -> Shape:
    """One whole number or several; none if they are something else."""
    try:
        items = (value,) if _is_whole(value) else tuple(value)
    except TypeError:
        return ()
    return tuple(int(n) for n in items) if all(map(_is_whole, items)) else ()


def _each(name: str, value: Any, shape: Shape) -> Shape:
    """A whole number for each dimension."""
    items = _whole(value)
    if not items or not _bounds(items):
        raise BindError(f"grid: {name} is made of whole numbers that fit an 'int', not {value!r}.")
    if _is_whole(value):
        return items * len(shape)
    if len(items) != len(shape):
        raise BindError(f"grid: {name} {value!r} has {len(items)} numbers; the shape {shape} has {len(shape)}.")
    return items


def _dim(function: str, name: str, value: Any) -> int:
    if not _is_whole(value) or (value != -1 and value < 1):
        raise BindError(f"{function}: {name} is a whole number of at least 1, or -1, not {value!r}.")
    return int(value)


def _natural(function: str, name: str, value: Any) -> int:
    if not _is_whole(value) or not 0 <= value <= _MAX_UINT:
        raise BindError(f"{function}: {name} is a whole number from 0 to {_MAX_UINT}, not {value!r}.")
    return int(value)


def _float(name: str, value: Any) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating)) or not abs(float(value)) <= _MAX_FLOAT:
        raise BindError(f"rand_float: {name} is a number that a 32-bit float holds, not {value!r}.")
    return float(np.float32(value))


def _spread(low: float, high: float) -> tuple[float, float, float]:
    """What ``randFloat`` computes with: the lowest value, the width, and the most that may be added.

    Raises
    ------
    BindError
        If there are no floats to choose from.
    """
    f4 = np.float32
    if not low < high or high - low > _MAX_FLOAT:
        raise BindError(
            f"rand_float: min {low!r} and max {high!r} are no range of 32-bit floats; min is less than max, and "
            f"max - min at most {_MAX_FLOAT:.7g}."
        )
    most = f4(high - low)
    # Rounding the sum must not reach max; after the first, a step or two back are enough.
    most = min(most, f4(float(np.nextafter(f4(high), f4(low))) - low))
    while f4(low) + most >= f4(high):
        most = np.nextafter(most, f4(0))
    return low, float(f4(high - low)), float(most)


def _hashed(x: int) -> int:
    """Thomas Wang's integer hash of 32 bits, as ``wangHash`` of the Slang module computes it."""
    x = (x ^ 61) ^ (x >> 16)
    x = x * 9 & _MAX_UINT
    x ^= x >> 4
    x = x * 0x27D4EB2D & _MAX_UINT
    return x ^ (x >> 15)
