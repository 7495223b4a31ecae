"""Numbers: scalars, enums, vectors and matrices as parameters of slang-torch's kernels."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import torch

from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.parameter import BoundTensor, Member, Parameter

# Narrow scalars are passed as words: by value their size and alignment differ between targets.
_STORED = {
    "bool": "uint", "int8_t": "int", "int16_t": "int", "uint8_t": "uint", "uint16_t": "uint", "half": "float",
}  # fmt: skip
_CODES = {"int": "i", "uint": "I", "int64_t": "q", "uint64_t": "Q", "float": "f", "double": "d"}
_BITS = {"bool": 1, "int8_t": 8, "int16_t": 16, "int": 32, "int64_t": 64}
_FLOATS = ("half", "float", "double")
_LARGEST = int(sys.float_info.max)


class Numbers(Parameter):
    """A scalar, an enum, a vector or a matrix.

    A scalar takes a number, a vector a sequence of numbers, a matrix a sequence of rows; each also takes a tensor of
    its shape in host memory.
    """

    def __init__(self, kind: SlangType) -> None:
        self.type_name = kind.name
        self._scalar, self._shape = kind.scalar, kind.shape
        self.differentiable = kind.scalar in _FLOATS
        if not kind.shape:
            self.schema = "float" if self.differentiable else "bool" if kind.scalar == "bool" else "int"
        stored = _STORED.get(kind.scalar, kind.scalar)
        self.members = (Member(stored, prod(kind.shape) if kind.shape else 0, _CODES[stored]),)
        self.codes = (_CODES[stored],) * (prod(kind.shape) if kind.shape else 1)

    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        name = next(members)
        if not self._shape:
            return [f"{target} = {self._one(name)};"]
        parts = ", ".join(self._one(f"{name}[{k}]") for k in range(prod(self._shape)))
        return [f"{target} = {self.type_name}({parts});"]

    def _one(self, stored: str) -> str:
        if self._shape:
            return f"{stored} != 0" if self._scalar == "bool" else f"{self._scalar}({stored})"
        return f"{stored} != 0" if self._scalar == "bool" else f"{self.type_name}({stored})"

    def read(self, source: str) -> list[str]:
        stored = self.members[0].storage
        if len(self._shape) == 2:
            rows, columns = self._shape
            return [f"{stored}({source}[{r}][{c}])" for r in range(rows) for c in range(columns)]
        if self._shape:
            return [f"{stored}({source}[{k}])" for k in range(self._shape[0])]
        return [f"{stored}({source})"]

    def value(self, values: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        def one() -> Any:
            found = next(values)
            return bool(found) if self._scalar == "bool" else found

        if len(self._shape) == 2:
            return tuple(tuple(one() for _ in range(self._shape[1])) for _ in range(self._shape[0]))
        return tuple(one() for _ in range(self._shape[0])) if self._shape else one()

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        if isinstance(value, torch.Tensor) and not value.is_cuda:
            if value.is_meta or value.layout != torch.strided:
                raise TypeError(
                    f"{path}: {in_words(value)}; '{self.type_name}' takes numbers, or a tensor that holds them."
                )
            value = value.tolist()
        _flatten(path, value, self._shape, self._scalar, self.type_name, block)


def _flatten(path: str, value: Any, shape: tuple[int, ...], scalar: str, type_name: str, block: list[Any]) -> None:
    if shape:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"{path}: {in_words(value)}; '{type_name}' takes a tuple of {shape[0]}.")
        if len(value) != shape[0]:
            raise ValueError(f"{path}: {len(value)} values; '{type_name}' takes {shape[0]}.")
        for k, item in enumerate(value):
            _flatten(f"{path}[{k}]", item, shape[1:], scalar, type_name, block)
        return
    # NumPy's bool is no int and has no __index__, and its arrays have both methods, which raise errors of NumPy's.
    found = value.item() if isinstance(value, (np.generic, np.ndarray)) and not value.shape else value
    if scalar in _FLOATS:
        if isinstance(found, (str, np.ndarray)) or not hasattr(found, "__float__"):
            raise TypeError(f"{path}: {in_words(value)}; '{type_name}' takes numbers.")
        if isinstance(found, int) and abs(found) > _LARGEST:
            raise ValueError(f"{path}: {in_words(value)} is not in the range of '{type_name}'.")
        block.append(float(found))
        return
    if isinstance(found, (float, np.ndarray)) or not hasattr(found, "__index__"):
        raise TypeError(f"{path}: {in_words(value)}; '{type_name}' takes whole numbers.")
    whole = found.__index__()
    bits = _BITS[scalar.removeprefix("u") if scalar != "bool" else scalar]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if not scalar.startswith("u") else (0, (1 << bits) - 1)
    if scalar == "bool":
        low, high = 0, 1
    if not low <= whole <= high:
        raise ValueError(f"{path}: {in_words(whole)} is not in the range of '{scalar}', {low} to {high}.")
    block.append(whole)
