"""Parameter: how values of one Slang type reach a kernel, as numbers in its argument block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from slangpy_rt.core.errors import UnsupportedError


class Member(NamedTuple):
    """A member of the argument block.

    Attributes
    ----------
    storage : str
        Its Slang scalar: ``"uint"``.
    repeat : int
        How many of them in a row; 0 for one that is no array.
    code : str
        What ``struct`` calls one.
    """

    storage: str
    repeat: int
    code: str


class Parameter(ABC):
    """How values of one Slang type reach a kernel.

    Attributes
    ----------
    type_name : str
        The type as Slang text names it.
    members : tuple of Member
        The numbers that a value becomes.
    addresses : tuple of int
        Which of these numbers are addresses of tensors.
    differentiable : bool
        Whether Slang's derivatives take a ``DifferentialPair`` of it.
    """

    type_name: str
    members: tuple[Member, ...]
    addresses: tuple[int, ...] = ()
    differentiable: bool = False

    @property
    def count(self) -> int:
        """How many numbers a value becomes."""
        return sum(member.repeat or 1 for member in self.members)

    @abstractmethod
    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        """Return the Slang statements that set a variable from members of the block, which come in order."""

    @abstractmethod
    def read(self, source: str) -> list[str]:
        """Return a Slang expression for each number that a variable's value becomes."""

    def value(self, numbers: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        """Return the Python value that a host function returns as these numbers; tensors are found by their handles.

        Raises
        ------
        UnsupportedError
            If host functions cannot return the type.
        """
        raise UnsupportedError(
            f"values of type '{self.type_name.replace('_spy_', '')}' cannot be returned to Python."
        )

    @abstractmethod
    def pack(self, path: str, value: Any, block: list[Any], tensors: list[tuple[int, Any]]) -> None:
        """Append a value's numbers to the block.

        Parameters
        ----------
        path : str
            What messages call the value: ``"foo.A"``.
        block : list
            One number for each scalar of ``members``.
        tensors : list of (int, torch.Tensor)
            Receives each tensor, with the place in the block where its address belongs.

        Raises
        ------
        TypeError, ValueError, TensorError
            If the value does not fit.
        """
