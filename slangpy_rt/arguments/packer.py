"""Packer: how one argument's value is put into the block of a call, and comes back after the kernel.

A packer is chosen for values of one signature; it decides nothing about types or shapes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slangpy_rt.backends.base import Buffer


class Region(NamedTuple):
    """Host memory that a call writes: an array, or a Python object by its ``id``.

    Attributes
    ----------
    shape, strides : tuple of int
        Shape and strides of an array, strides in bytes.
    nbytes : int
        Bytes of one item.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int

    @property
    def span(self) -> tuple[int, int]:
        """The address of its first byte, and the address after its last byte."""
        low = high = self.address
        for n, stride in zip(self.shape, self.strides, strict=True):
            low, high = low + min((n - 1) * stride, 0), high + max((n - 1) * stride, 0)
        return low, high + self.nbytes


class Packer(ABC):
    """Moves one argument's value into the block of a call."""

    # How many buffers it adds, and whether ``bring_back`` has anything to do.
    buffers = 0
    returns = False
    # Whether the entries and buffers that ``pack`` adds stay valid while the value lives, so that no call moves data.
    lasting = True
    # Whether the kernel works in memory that only this call uses.
    private = False
    # Whether a number of Python's is its one entry in the block, as it is.
    number = False
    # How many places in host memory it writes to after the kernel; ``regions`` returns them.
    brings = 0
    # For arrays of another library on a GPU: functions that return the handle of the stream on which that library
    # works on a value just now. Packers with the same function have the same stream.
    streams: tuple[Callable[[Any], int], ...] = ()
    # For each of its device arrays, the function that finds the array in the value; None if the value is the array.
    # None instead of a tuple if it packs anything but arrays' addresses and buffers, or has to bring something back.
    finds: tuple[Callable[[Any], Any] | None, ...] | None = None
    # Whether ``bring_back`` reads memory shared with the host: the call then waits once for the kernel before it.
    waits = False
    # Whether the kernel gets sums in place of the gradient that it adds to.
    sums = False
    # The subclass of PreparedCall for calls whose arguments, in the order of the values, all have such packers.
    call: Any = None

    @abstractmethod
    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        """Append this argument's entries to the block, and the buffers that the kernel touches to ``buffers``."""

    def partial(self) -> Packer:
        """Return the packer for an array of which the kernel writes only a part: the rest keeps its values."""
        return self

    def regions(self, value: Any) -> list[Region]:
        """Return the memory that ``bring_back`` writes to."""
        return []

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:  # noqa: B027 - most have nothing to bring back
        """Copy the values that the kernel wrote back to the argument, from the buffers that ``pack`` added."""
