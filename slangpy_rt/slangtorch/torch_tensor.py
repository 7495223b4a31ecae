"""TorchTensorParameter: a tensor as a parameter or a result of slang-torch's host functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from slangpy_rt.slangtorch.errors import CopyNeeded, TensorError
from slangpy_rt.slangtorch.parameter import BoundTensor, Member
from slangpy_rt.slangtorch.tensor_view import GEOMETRY, GEOMETRY_CODE, RANK, TensorView, dtype_name


class TorchTensorParameter(TensorView):
    """A ``TorchTensor<T>``, which takes a tensor of the dtype of ``T``.

    A host function gets its sizes and strides, and a handle: 1 for the first tensor among the arguments. Tensors in
    host memory are converted if PyTorch can cast their dtype, tensors on a GPU never are.
    """

    members = (Member("uint", 0, "I"), *GEOMETRY)
    codes = ("I", GEOMETRY_CODE)
    addresses = ()

    def read(self, source: str) -> list[str]:
        sizes = [f"{source}._spy_{name}[{d}]" for name in ("sizes", "strides") for d in range(RANK)]
        return [f"{source}._spy_handle", f"{source}._spy_rank", *sizes]

    def value(self, values: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        handle = next(values)
        next(values)
        if handle not in tensors:
            raise TensorError(f"a '{self.shown}' that is returned was never allocated; give it a tensor.")
        return tensors[handle]

    def replaced(self, value: Any, by: Callable[..., Any]) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return by(value, self.dtypes[0]) if self._can_convert(value) else by(value)

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        if isinstance(value, torch.Tensor) and value.dtype not in self.dtypes:
            kind = CopyNeeded if self._can_convert(value) else TensorError
            raise kind(f"{path} is {dtype_name(value.dtype)}; '{self.shown}' needs {self.wanted()}.")
        geometry, layout, _ = self.geometry(path, value)
        tensors.append((len(block), value, layout))
        block += (len(tensors), geometry)

    def _can_convert(self, value: torch.Tensor) -> bool:
        """Tell whether a tensor has another dtype than its parameter, and a copy may have the parameter's."""
        if value.is_cuda or not self.dtypes or value.dtype in self.dtypes:
            return False
        return torch.can_cast(value.dtype, self.dtypes[0])
