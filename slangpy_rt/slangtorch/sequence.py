"""SequenceParameter: an array as a parameter of slang-torch's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.parameter import BoundTensor, Parameter


class SequenceParameter(Parameter):
    """A ``T[N]``, which takes a tuple or a list of ``N`` values of ``T``."""

    def __init__(self, kind: SlangType, element: Parameter) -> None:
        self.type_name = kind.name
        self._count = kind.shape[0]
        self.element = element
        self.members = element.members * self._count
        self.codes = element.codes * self._count
        self.addresses = tuple(k * len(element.codes) + at for k in range(self._count) for at in element.addresses)
        self.differentiable = element.differentiable
        self.keeps_gradients, self.has_pairs = element.keeps_gradients, element.has_pairs

    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        return [line for k in range(self._count) for line in self.element.assign(f"{target}[{k}]", members)]

    def read(self, source: str) -> list[str]:
        return [text for k in range(self._count) for text in self.element.read(f"{source}[{k}]")]

    def value(self, values: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        return [self.element.value(values, tensors) for _ in range(self._count)]

    def replaced(self, value: Any, by: Callable[..., Any]) -> Any:
        fits = isinstance(value, (tuple, list)) and len(value) == self._count
        return [self.element.replaced(item, by) for item in value] if fits else value

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"{path}: {in_words(value)}; '{self.type_name}' takes a tuple or list of {self._count}.")
        if len(value) != self._count:
            raise ValueError(f"{path}: {len(value)} values; '{self.type_name}' takes {self._count}.")
        for k, item in enumerate(value):
            self.element.pack(f"{path}[{k}]", item, block, tensors)
