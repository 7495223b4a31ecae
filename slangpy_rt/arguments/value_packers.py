"""Packers of values that are stored in the argument block itself: numbers, vectors, enums. They add no buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from slangpy_rt.arguments.packer import Packer
from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.dtypes import limits, span
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

_NUMBERS = frozenset({int, float, bool})
_WORDS = frozenset({"bool", "int", "uint", "int64_t", "uint64_t", "float", "double"})


class ValuePacker(Packer):
    """A scalar, vector or matrix: its scalars, in the block itself."""

    def __init__(self, where: str, type_: SlangType, scalar: str) -> None:
        self._where = where
        self._type = type_
        self._bounds = limits(scalar)
        # Packing refuses what is beyond these types.
        self.number = type(self) is ValuePacker and type_.kind == "scalar" and scalar in _WORDS

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        if type(value) in _NUMBERS:
            scalars: Sequence[Any] = (value,)
        elif type(value) is list and type(value[0]) in _NUMBERS:
            scalars = value
        else:
            scalars = np.asarray(value).ravel().tolist()
        if self._bounds is not None:
            self._check(scalars, *self._bounds)
        block += scalars

    def _check(self, scalars: Sequence[Any], low: float, high: float) -> None:
        for x in scalars:
            # A half holds NaN and infinity too.
            if not low <= x <= high and x == x and abs(x) != inf:
                text = in_words(x)
                raise BindError(
                    f"{self._where} is {text}, which does not fit '{self._type.name}' ({span(low, high)})."
                )


class SplatPacker(ValuePacker):
    """One number for every scalar of a vector or matrix, as Slang converts it."""

    def __init__(self, where: str, type_: SlangType, scalar: str, count: int) -> None:
        super().__init__(where, type_, scalar)
        self._count = count

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        number = value if type(value) in _NUMBERS else np.asarray(value).item()
        if self._bounds is not None:
            self._check([number], *self._bounds)
        block += [number] * self._count


class EnumPacker(Packer):
    """A case of an enum, by number, by name or as a Python enum."""

    def __init__(self, number: Callable[[Any], int]) -> None:
        self._number = number

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(self._number(value))


class GeneratorPacker(Packer):
    """A generator's numbers."""

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block += value.values()


class NoPacker(Packer):
    """A value that the kernel does not use: nothing is packed."""

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        pass
