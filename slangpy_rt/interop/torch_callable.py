"""TorchCallable: what operators and modules of PyTorch are made of besides functions of a module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class TorchCallable(ABC):
    """A callable on PyTorch's tensors that PyTorch differentiates.

    Attributes
    ----------
    name : str
        What it is called.
    signature : str
        How it is called, in words.
    """

    name: str
    signature: str

    @property
    @abstractmethod
    def parameter_names(self) -> Sequence[str]:
        """What it takes, in order."""

    @abstractmethod
    def operator(self, name: str) -> Any:
        """Return an operator of PyTorch that is called so.

        Raises
        ------
        UnsupportedError
            If a parameter is of a type that PyTorch's operators do not take.
        """

    @abstractmethod
    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run it."""
