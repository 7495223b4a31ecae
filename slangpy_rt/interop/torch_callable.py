"""TorchCallable: the interface of callables, besides a module's functions, that PyTorch operators are made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

C = TypeVar("C", bound="TorchCallable")


class TorchCallable(ABC):
    """A callable on PyTorch's tensors that PyTorch differentiates.

    Attributes
    ----------
    name : str
        The callable's name.
    signature : str
        Its parameters and results, as text.
    """

    name: str
    signature: str

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self.name}: this callable is not pickled; save the state_dict() of the model that has it.")

    def __deepcopy__(self: C, memo: dict[int, Any]) -> C:
        return self

    @property
    @abstractmethod
    def parameter_names(self) -> Sequence[str]:
        """The names of its parameters, in order."""

    @abstractmethod
    def operator(self, name: str) -> Any:
        """Return a PyTorch operator of that name.

        Raises
        ------
        UnsupportedError
            If a parameter is of a type that PyTorch's operators do not take.
        """

    @abstractmethod
    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run it."""
