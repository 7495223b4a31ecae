"""Recorder: what operations of arrays become a part of, in order that their gradients can be computed later.

``arithmetic/grad_tape.py`` has the one class that implements it, and ``RECORDER`` in ``arrays/operators.py`` is the
one of the block that is open. Nothing here computes anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Recorder(ABC):
    """Computes operations of arrays, and records those whose operands carry gradients.

    Operands, results and errors are those of the methods of the same name in ``arithmetic``.
    """

    @abstractmethod
    def binary(self, name: str, a: Any, b: Any, out: Any = None) -> Any:
        """Return the result of an operation of two operands."""

    @abstractmethod
    def unary(self, name: str, a: Any, into: Any = None) -> Any:
        """Return the result of an operation of one operand, of an element type."""

    @abstractmethod
    def where(self, condition: Any, a: Any, b: Any, out: Any = None) -> Any:
        """Return the elements of ``a`` where a condition is true, and those of ``b`` elsewhere."""

    @abstractmethod
    def write(self, value: Any, out: Any, name: str = "copy", converting: bool = True) -> None:
        """Write a value to an array."""

    @abstractmethod
    def clip(self, array: Any, low: Any, high: Any) -> Any:
        """Return the values of an array, moved to the nearest bound."""

    @abstractmethod
    def reduce(self, name: str, array: Any, axis: Any, keepdims: bool) -> Any:
        """Return the reduction of an array along axes."""

    @abstractmethod
    def selected(self, array: Any, mask: Any) -> Any:
        """Return the elements of an array at which a mask is true."""

    @abstractmethod
    def copy(self, array: Any, device: Any) -> Any:
        """Return a copy of an array on a device."""

    @abstractmethod
    def cumsum(self, array: Any, axis: Any) -> Any:
        """Return running sums."""

    @abstractmethod
    def sort(self, array: Any, axis: Any) -> Any:
        """Return the numbers along an axis in rising order."""

    @abstractmethod
    def call(
        self,
        function: Any,
        args: tuple[Any, ...],
        named: dict[str, Any],
        run: Callable[[], Any],
        also: tuple[Any, ...] = (),
    ) -> Any:
        """Return what ``run`` returns, as the result of a call of a function that has ``bwds``.

        Parameters
        ----------
        function : object
            ``function.bwds(*args, _result=result, **named)`` adds to the gradients of the arguments.
        args, named
            The arguments, with the gradients that they carry.
        run : callable
            Makes the result: a Tensor or a tuple of Tensors.
        also : tuple
            What ``bwds`` reads besides the arguments.
        """

    @abstractmethod
    def note(self, operands: tuple[Any, ...], results: tuple[Any, ...], propagate: Callable[[], None]) -> None:
        """Record what the caller has done already; nothing keeps it from changing the arrays' values.

        Parameters
        ----------
        operands, results : tuple of NDBuffer
            What it read and what it made, with the gradients that they carry.
        propagate : callable
            Adds the gradients of the results to those of the operands.
        """
