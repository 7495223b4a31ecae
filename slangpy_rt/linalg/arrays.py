"""Arrays: what a product asks of the arrays of one library. It knows none of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

if TYPE_CHECKING:
    from slangpy_rt.calls.command_list import CommandList


class Arrays(ABC):
    """The arrays of one library."""

    # What messages call them.
    name: str
    # Whether command lists take them.
    recorded = False

    def is_array(self, value: Any) -> bool:
        """Return whether a value of a uniform is an array of this library, which a device may use where it lies."""
        return False

    def lasting(self, device: DeviceCore, array: Any) -> Any:
        """Return an array in the same place with which a launch is prepared, for a uniform; None if there is none."""
        return array

    @abstractmethod
    def view(self, array: Any) -> View:
        """Return an array's element type, shape and strides."""

    @abstractmethod
    def strided(self, array: Any, view: View, stored: str) -> Any:
        """Return an array of three dimensions in the same memory, of elements that are ``stored`` as that scalar."""

    @abstractmethod
    def empty(self, device: DeviceCore, shape: Shape, element: str, like: Any) -> Any:
        """Return a new array whose contents are not set, where ``like`` lies.

        Raises
        ------
        BindError
            If the library has no such elements.
        """

    @abstractmethod
    def copied(self, array: Any, commands: CommandList | None) -> Any:
        """Return an array of the same contents in other memory, copied now or when a list runs."""

    @abstractmethod
    def signature(self, array: Any) -> Any:
        """Return what products of arrays have in common that differ in nothing but contents and address.

        Raises
        ------
        AttributeError, TypeError, RuntimeError
            Perhaps, if it is no array of this library.
        """

    @abstractmethod
    def device(self, array: Any, given: DeviceCore | None) -> DeviceCore:
        """Return the device that the user gave for a product of this array, or else the one for such arrays."""

    @abstractmethod
    def launch(self, device: DeviceCore, array: Any) -> Callable[..., None]:
        """Return a function like ``Queue.launch``, of the queue that works on this array."""

    def buffers(self, arrays: Sequence[Any]) -> Sequence[Buffer]:
        """Return the buffers of arrays that lie in memory of the device's own."""
        return ()

    @abstractmethod
    def address(self, array: Any) -> int:
        """Return the address of the first element."""

    @abstractmethod
    def lies_on(self, device: DeviceCore, array: Any) -> bool:
        """Return whether a device's kernels use the array where it lies."""

    def captures(self) -> bool:
        """Return whether the library records launches now, to repeat them at any later time."""
        return False

    def check_place(self, device: DeviceCore, values: Mapping[str, Any]) -> None:  # noqa: B027 - host memory is anywhere
        """Refuse arrays that do not lie where the device reads them; ``values`` has them by name."""

    def check_writable(self, array: Any) -> None:  # noqa: B027 - most arrays may be written to
        """Refuse an array that must not be changed."""

    def records(self, values: Sequence[Any]) -> bool:
        """Return whether the library's automatic differentiation has to see a product of these arrays."""
        return False

    def differentiable(self, product: Any) -> Any:
        """Compute a product as an operation of the library's automatic differentiation."""
        raise BindError(f"matmul: {self.name} has no automatic differentiation.")

    @abstractmethod
    def element(self, where: str, dtype: Any) -> str:
        """Return the element type that a dtype means.

        Raises
        ------
        BindError
            If it means none.
        """
