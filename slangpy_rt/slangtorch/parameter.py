"""Parameter: how values of one Slang type become entries of a kernel's argument block. It launches nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from slangpy_rt.core.errors import UnsupportedError

# A tensor of a call: the index of its address among the values of the argument block, the tensor, and its
# (dtype, shape, strides) at the call, which are packed behind the address.
BoundTensor = tuple[int, Any, tuple[Any, ...]]


class Member(NamedTuple):
    """A member of the argument block.

    Attributes
    ----------
    storage : str
        Its Slang scalar: ``"uint"``.
    repeat : int
        The length of an array; 0 for a single scalar.
    code : str
        The ``struct`` code of one scalar.
    """

    storage: str
    repeat: int
    code: str


class Parameter(ABC):
    """How values of one Slang type become entries of a kernel's argument block.

    Attributes
    ----------
    type_name : str
        The type as Slang text names it.
    members : tuple of Member
        The members of the argument block that hold a value.
    codes : tuple of str
        The ``struct`` code of each value that ``pack`` appends: together they have the members' bytes.
    addresses : tuple of int
        The indices of tensors' addresses among these values.
    differentiable : bool
        Whether Slang's derivatives take a ``DifferentialPair`` of it.
    schema : str
        The type in schemas of PyTorch's operators: ``"Tensor"``, ``"float"``; empty if they have none for it.
    is_pair : bool
        Whether it is a ``DiffTensorView``, which takes a tensor with its gradient.
    has_pairs : bool
        Whether it is or holds a ``DiffTensorView``.
    keeps_gradients : bool
        Whether it holds a ``DiffTensorView`` whose gradients go to a struct of the module.
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
        """Return the Slang statements that set a variable from the next ``members`` of the block."""

    @abstractmethod
    def read(self, source: str) -> list[str]:
        """Return a Slang expression for each number that a variable's value becomes."""

    def value(self, values: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        """Return a host function's result from values of ``codes``; tensors are found by their handles.

        Raises
        ------
        UnsupportedError
            If host functions cannot return the type.
        """
        raise UnsupportedError(
            f"values of type '{self.type_name.replace('_spy_', '')}' cannot be returned to Python."
        )

    def replaced(self, value: Any, by: Callable[..., Any]) -> Any:
        """Return a value in which ``by(tensor)`` is in the place of each tensor for a DiffTensorView or TorchTensor.

        A tensor for a TorchTensor of another dtype is replaced by ``by(tensor, dtype)``.

        Values that do not fit stay as they are: ``pack`` refuses them.
        """
        return value

    @abstractmethod
    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        """Append a value to the argument block.

        Parameters
        ----------
        path : str
            The value's name in messages: ``"foo.A"``.
        block : list
            Receives one value for each of ``codes``.
        tensors : list of BoundTensor
            Receives each tensor, with the index of its address in the block.

        Raises
        ------
        TypeError, ValueError, TensorError
            If the value does not fit.
        """
