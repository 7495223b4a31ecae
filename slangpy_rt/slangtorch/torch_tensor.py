"""TorchTensorParameter: a tensor as a parameter or a result of slang-torch's host functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from slangpy_rt.slangtorch.errors import TensorError
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

    def replaced(self, value: Any, by: Callable[[Any], Any]) -> Any:
        return by(value) if isinstance(value, torch.Tensor) else value

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        if isinstance(value, torch.Tensor) and value.dtype not in self.dtypes:
            if value.is_cuda or not self.dtypes or not torch.can_cast(value.dtype, self.dtypes[0]):
                raise TensorError(f"{path} is {dtype_name(value.dtype)}; '{self.shown}' needs {self.wanted()}.")
            value = value.to(self.dtypes[0])
        geometry, layout, _ = self.geometry(path, value)
        tensors.append((len(block), value, layout))
        block += (len(tensors), geometry)
