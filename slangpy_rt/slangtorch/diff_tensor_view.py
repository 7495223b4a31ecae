"""DiffTensorViewParameter: a tensor's memory, and its gradient's, as a parameter of slang-torch's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.errors import TensorError
from slangpy_rt.slangtorch.parameter import BoundTensor, Parameter
from slangpy_rt.slangtorch.tensor_view import NONE, TensorView


class DiffTensorViewParameter(Parameter):
    """A ``DiffTensorView<T, A>``, which takes a tensor, a tuple (value, gradient), or Python's ``DiffTensorView``.

    Parameters
    ----------
    kind : SlangType
        The type.
    primal : TensorView
        The parameter for its values.
    wrapper : Parameter or None
        The parameter for ``A``, if that is a struct of the user's; None for ``AtomicAdd``.
    """

    is_pair = has_pairs = True
    schema = "Tensor"

    def __init__(self, kind: SlangType, primal: TensorView, wrapper: Parameter | None) -> None:
        self.type_name = kind.name
        self._primal = primal
        self._gradient = TensorView(_FLOATS)
        self.wrapper = wrapper
        self.keeps_gradients = wrapper is not None
        behind = wrapper or self._gradient
        self.members = (*primal.members, *behind.members)
        self.codes = (*primal.codes, *behind.codes)
        self.addresses = (*primal.addresses, *(len(primal.codes) + at for at in behind.addresses))

    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        lines = self._primal.assign(f"{target}.primal", members)
        if self.wrapper:
            return lines + self.wrapper.assign(f"{target}.diff", members)
        return lines + self._gradient.assign(f"{target}.diff.diff", members)

    def read(self, source: str) -> list[str]:
        behind = self.wrapper.read(f"{source}.diff") if self.wrapper else self._gradient.read(f"{source}.diff.diff")
        return [*self._primal.read(f"{source}.primal"), *behind]

    def replaced(self, value: Any, by: Callable[..., Any]) -> Any:
        return by(value) if isinstance(value, torch.Tensor) else value

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        gradient = None
        if isinstance(value, tuple):
            if not 1 <= len(value) <= 2:
                raise ValueError(f"{path}: a tuple of {len(value)}; give a tensor, (value,) or (value, gradient).")
            gradient = value[1] if len(value) == 2 else None
            value = value[0]
        elif not isinstance(value, torch.Tensor):
            raise ValueError(f"{path}: {in_words(value)}; give a tensor, (value, gradient) or a DiffTensorView.")
        geometry, layout, span = self._primal.geometry(path, value)
        tensors.append((len(block), value, layout))
        if self.wrapper:
            block += (0, geometry)
            if gradient is None:
                raise ValueError(f"{path}.grad: nothing was given; '{self.wrapper.type_name}' was expected.")
            self.wrapper.pack(f"{path}.grad", gradient, block, tensors)
            return
        if gradient is None:
            block += (0, geometry, *NONE)
            return
        behind, other, reach = self._gradient.geometry(path, gradient, ".grad")
        tensors.append((len(block) + 2, gradient, other))
        block += (0, geometry, 0, behind)
        if other[1] != layout[1]:
            raise TensorError(
                f"{path}.grad has shape {tuple(gradient.shape)}; it needs that of {path}, {tuple(value.shape)}."
            )
        if gradient.device != value.device:
            raise TensorError(f"{path}.grad is on {gradient.device}; {path} is on {value.device}.")
        first, second = value.data_ptr(), gradient.data_ptr()
        if first < second + reach and second < first + span:
            raise TensorError(f"{path}.grad lies in the memory of {path}; give it memory of its own.")


_FLOATS = SlangType("struct", "_spy_TensorView<float>", arguments=(SlangType("scalar", "float", "float"),))
