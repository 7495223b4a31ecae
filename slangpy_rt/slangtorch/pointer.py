"""PointerParameter: the address of a tensor's first element as a parameter of slang-torch's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slangpy_rt.core.types import SlangType
from slangpy_rt.slangtorch.parameter import BoundTensor, Member
from slangpy_rt.slangtorch.tensor_view import TensorView


class PointerParameter(TensorView):
    """A ``T *``, which takes a tensor as ``TensorView<T>`` does, and nothing of its sizes and strides."""

    members = (Member("uint64_t", 0, "Q"),)
    codes = ("Q",)
    schema = ""

    def __init__(self, kind: SlangType) -> None:
        assert kind.element is not None
        super().__init__(SlangType(kind.kind, kind.name, arguments=(kind.element,)))

    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        return [f"{target} = ({self.type_name}){next(members)};"]

    def read(self, source: str) -> list[str]:
        return [f"uint64_t({source})"]

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        _, layout, _ = self.geometry(path, value)
        tensors.append((len(block), value, layout))
        block.append(0)
