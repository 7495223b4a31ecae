"""Parameter: how values of one Slang type reach a kernel, as values of its argument block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from slangpy_rt.core.errors import UnsupportedError

# A tensor of a call: the place of its address among the values of the argument block, the tensor, and its
# (dtype, shape, strides) at the call, which are packed there.
BoundTensor = tuple[int, Any, tuple[Any, ...]]


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
        The numbers that a value becomes, as Slang sees them.
    codes : tuple of str
        What ``struct`` calls each value that ``pack`` appends: together they are the members' bytes.
    addresses : tuple of int
        Which of these values are addresses of tensors.
    differentiable : bool
        Whether Slang's derivatives take a ``DifferentialPair`` of it.
    schema : str
        What PyTorch's operators call it: ``"Tensor"``, ``"float"``; empty where they have none.
    is_pair : bool
        Whether it is a ``DiffTensorView``, which takes a tensor with its gradient.
    has_pairs : bool
        Whether it is one, or has one in it.
    keeps_gradients : bool
        Whether there is a ``DiffTensorView`` in it whose gradients go to a struct of the module's.
    """

    type_name: str
    members: tuple[Member, ...]
    codes: tuple[str, ...]
    addresses: tuple[int, ...] = ()
    differentiable: bool = False
    schema: str = ""
    is_pair: bool = False
    has_pairs: bool = False
    keeps_gradients: bool = False

    @abstractmethod
    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        """Return the Slang statements that set a variable from members of the block, which come in order."""

    @abstractmethod
    def read(self, source: str) -> list[str]:
        """Return a Slang expression for each number that a variable's value becomes."""

    def value(self, values: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        """Return what a host function returns as values of ``codes``; tensors are found by their handles.

        Raises
        ------
        UnsupportedError
            If host functions cannot return the type.
        """
        raise UnsupportedError(
            f"values of type '{self.type_name.replace('_spy_', '')}' cannot be returned to Python."
        )

    def replaced(self, value: Any, by: Callable[[Any], Any]) -> Any:
        """Return a value in which ``by`` of the tensor stands for the value of each ``DiffTensorView``.

        What does not fit stays as it is: ``pack`` says why.
        """
        return value

    @abstractmethod
    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        """Append a value to the argument block.

        Parameters
        ----------
        path : str
            What messages call the value: ``"foo.A"``.
        block : list
            Receives one value for each of ``codes``.
        tensors : list of BoundTensor
            Receives each tensor, with the place in the block where its address belongs.

        Raises
        ------
        TypeError, ValueError, TensorError
            If the value does not fit.
        """
