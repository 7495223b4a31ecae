"""Adapter: how a call uses the arrays of another library. ``interop`` has one for each library or protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.errors import BindError

if TYPE_CHECKING:
    from slangpy_rt.arguments.packer import Packer


class Adapter(ABC):
    """How a call uses the arrays of another library.

    Each method takes an array of the library, except ``result_maker`` and ``call_for_autograd``.
    """

    # Whether one of its arrays may be given as ``_result``.
    takes_results = False
    # Whether its arrays may be arguments of a Raster.
    draws = False

    @abstractmethod
    def signature(self, value: Any) -> Any:
        """Return a hashable value that is equal for arrays which one prepared call can serve."""

    @abstractmethod
    def __call__(self, value: Any) -> npt.NDArray[Any]:
        """Return a NumPy array in the same memory, for an array in host memory.

        Raises
        ------
        BindError
            If NumPy cannot use its memory.
        """

    @abstractmethod
    def on(self, device: Any, value: Any) -> Any:
        """Return an array in the same memory: a NumPy array in host memory, a Tensor on a GPU.

        Raises
        ------
        BindError
            If the memory cannot be shared, or the device cannot use it.
        """

    @abstractmethod
    def packer(self, device: Any, value: Any, access: str) -> Packer | None:
        """Return the packer of the array; None if the packer has to be that of the array that ``on`` returns.

        Raises
        ------
        BindError
            If a call with that access would write to an array that must not be changed.
        """

    @abstractmethod
    def copied(self, value: Any) -> Any:
        """Return an array of the same contents that nobody else changes: of the library, or of NumPy."""

    def in_its_words(self, message: str, value: Any, other: Any) -> str:
        """Return the message of an error that says of an array what ``on`` returned, in the words of its library."""
        return message

    def check_writable(self, value: Any) -> None:  # noqa: B027 - most arrays may be written to
        """Refuse an array that must not be changed; only called for arrays that a call would write to.

        Raises
        ------
        BindError
            If it must not be changed.
        """

    def result_kind(self, value: Any) -> str:
        """Return the kind of result of calls on the array; empty for the kind that the array of ``on`` gives."""
        return ""

    def result_maker(self, device: Any, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str) -> Callable[[], Any]:
        """Return a function that makes new arrays for a result.

        Parameters
        ----------
        kind : str
            The kind of result that the arguments give a call, by ``result_kind``.

        Raises
        ------
        UnsupportedError
            If the library has no such element type.
        """
        raise BindError(f"{type(self).__name__} makes no results.")

    def thread_state(self) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function whose context gives another thread the settings that the library keeps for this one."""
        return nullcontext

    def asks_for_autograd(self, value: Any) -> bool:
        """Return whether the library's automatic differentiation has to see a call on the array."""
        return False

    def call_for_autograd(self, function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """Return a prepared call that the library differentiates, for arguments of which one needs that.

        Parameters
        ----------
        function : Function
            The function that is called.
        args, names
            Values by position and then by name, and the names of the latter.

        Raises
        ------
        BindError
            If the function or its arguments do not allow it.
        """
        raise BindError(f"{type(self).__name__} knows no automatic differentiation.")

    def draw(self, raster: Any, faces: Any, named: dict[str, Any]) -> Any:
        """Draw a picture of triangles, of which one argument is an array of the library; only called if ``draws``.

        Parameters
        ----------
        raster : Raster
            Draws the picture.
        faces, named
            Its arguments.
        """
        raise BindError(f"{type(self).__name__} draws nothing.")

    def step(self, task: Any, faces: Any, named: dict[str, Any]) -> Any:
        """Call a step of drawing, of which one argument is an array of the library; only called if ``draws``.

        Parameters
        ----------
        task : Task
            The step and its settings.
        faces, named
            Its arguments.
        """
        raise BindError(f"{type(self).__name__} draws nothing.")
