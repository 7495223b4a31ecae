"""Adapter: what the arrays of one other library are to a call. ``interop`` has one for each library or protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.errors import BindError

if TYPE_CHECKING:
    from slangpy_rt.arguments.feed import Feed


class Adapter(ABC):
    """Answers what a call has to know of another library's arrays.

    Each method takes an array of the library, but for those that make results.
    """

    # Whether one of its arrays may be given as ``_result``.
    takes_results = False

    @abstractmethod
    def signature(self, value: Any) -> Any:
        """Return a hashable value that is equal for arrays which one prepared call can serve."""

    @abstractmethod
    def __call__(self, value: Any) -> npt.NDArray[Any]:
        """Return the array's memory, of the host, as a NumPy array.

        Raises
        ------
        BindError
            If it has none that NumPy can see.
        """

    @abstractmethod
    def on(self, device: Any, value: Any) -> Any:
        """Return a NumPy array, or a Tensor of the device that the array lies on, in the same memory.

        Raises
        ------
        BindError
            If its memory cannot be had, or the device does not work there.
        """

    @abstractmethod
    def feed(self, device: Any, value: Any, access: str) -> Feed | None:
        """Return the feed of the array; None where what ``on`` returns has to be fed.

        Raises
        ------
        BindError
            If it would be written to and must not be.
        """

    def check_writable(self, value: Any) -> None:  # noqa: B027 - most arrays may be written to
        """Refuse an array that must not be changed, where it would be written to.

        Raises
        ------
        BindError
            If it must not be changed.
        """

    def result_kind(self, value: Any) -> str:
        """Return the kind of result that the array asks for; empty for that of what ``on`` returns."""
        return ""

    def result_maker(self, device: Any, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str) -> Callable[[], Any]:
        """Return a function that makes new arrays for a result.

        Parameters
        ----------
        kind : str
            What kind of result the arguments ask for.

        Raises
        ------
        UnsupportedError
            If the library has no such element type.
        """
        raise BindError(f"{type(self).__name__} makes no results.")

    def asks_for_autograd(self, value: Any) -> bool:
        """Return whether the library's automatic differentiation has to see a call on the array."""
        return False

    def call_for_autograd(self, function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """Return a prepared call that the library differentiates, for arguments of which one asks for that.

        Parameters
        ----------
        function : Function
            What is called.
        args, names
            Values by position and then by name, and the names of the latter.

        Raises
        ------
        BindError
            If the function or its arguments do not allow it.
        """
        raise BindError(f"{type(self).__name__} knows no automatic differentiation.")
