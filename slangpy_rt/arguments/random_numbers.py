"""Random numbers as arguments: hashes of each element's number, equal on every device. They keep no state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from slangpy_rt.arguments.computed import FLOATS, Generator, components, dim_of, scalar_of
from slangpy_rt.core.checks import flag
from slangpy_rt.core.conversion import is_number
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape, is_whole
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

# Random numbers start from this seed unless another is given; it is SlangPy's.
_SEED = 2640457667
_MAX_UINT = 2**32 - 1
_MAX_FLOAT = float(np.finfo(np.float32).max)


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
        self._dim = dim_of("wang_hash", "dim", dim)
        self._seed = _natural("wang_hash", "seed", seed)
        self._warmup = _natural("wang_hash", "warmup", warmup)
        self._hash_seed = flag("wang_hash", "hash_seed", hash_seed)

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
        return _filled(
            type_, f"_spy_wangHash<{scalar_of(type_)}, {count}>(uint(_spy_i), {values[0]}, {self._warmup})"
        )


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
        self._dim = dim_of("rand_float", "dim", dim)
        self._seed = _natural("rand_float", "seed", seed)
        self._warmup = _natural("rand_float", "warmup", warmup)
        self._hash_seed = flag("rand_float", "hash_seed", hash_seed)
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
        what = f"_spy_randFloat<{scalar_of(type_)}, {count}>"
        return _filled(type_, f"{what}(uint(_spy_i), {seed}, {self._warmup}, {', '.join(spread)})")


def _filled(type_: SlangType, array: str) -> str:
    """Return the text of as many numbers as a parameter takes, in its type."""
    if type_.kind == "array":
        return array
    return f"_spy_vectorOf({array})" if type_.shape else f"{array}[0]"


def _natural(function: str, name: str, value: Any) -> int:
    if not is_whole(value) or not 0 <= value <= _MAX_UINT:
        raise BindError(f"{function}: {name} is a whole number from 0 to {_MAX_UINT}, not {in_words(value)}.")
    return int(value)


def _float(name: str, value: Any) -> float:
    if not is_number(value) or not abs(value) <= _MAX_FLOAT:
        raise BindError(f"rand_float: {name} is a number that a 32-bit float holds, not {in_words(value)}.")
    return float(np.float32(value))


def _spread(low: float, high: float) -> tuple[float, float, float]:
    """Return the numbers that ``randFloat`` takes: the lowest value, the width, and the most that may be added.

    Raises
    ------
    BindError
        If there are no floats to choose from.
    """
    f4 = np.float32
    if not low < high or high - low > _MAX_FLOAT:
        raise BindError(
            f"rand_float: min {in_words(low)} and max {in_words(high)} are no range of 32-bit floats; "
            "min is less than max, and "
            f"max - min at most {_MAX_FLOAT:.7g}."
        )
    most = f4(high - low)
    # Rounding the sum must not reach max; after the first correction, a step or two down are enough.
    most = min(most, f4(float(np.nextafter(f4(high), f4(low))) - low))
    while f4(low) + most >= f4(high):
        most = np.nextafter(most, f4(0))
    return low, float(f4(high - low)), float(most)


def _hashed(x: int) -> int:
    """Return Thomas Wang's integer hash of 32 bits, as ``wangHash`` of the Slang module computes it."""
    x = (x ^ 61) ^ (x >> 16)
    x = x * 9 & _MAX_UINT
    x ^= x >> 4
    x = x * 0x27D4EB2D & _MAX_UINT
    return x ^ (x >> 15)
