"""Feed: how one argument's value reaches the kernel at every call, and comes back from it.

A feed was chosen for values of one signature; it decides nothing about types or shapes any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slangpy_rt.backends.base import Buffer


class Region(NamedTuple):
    """Memory outside of the device, or a value of Python's, by its address.

    Attributes
    ----------
    shape, strides : tuple of int
        Of an array, strides in bytes.
    nbytes : int
        Of one item.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int

    @property
    def span(self) -> tuple[int, int]:
        """The address of its first byte, and that behind its last."""
        low = high = self.address
        for n, stride in zip(self.shape, self.strides, strict=True):
            low, high = low + min((n - 1) * stride, 0), high + max((n - 1) * stride, 0)
        return low, high + self.nbytes


class Feed(ABC):
    """Moves one argument's value into the block of a call."""

    # How many buffers it adds, and whether ``bring_back`` has anything to do.
    buffers = 0
    returns = False
    # Whether what it adds holds for as long as the value lives, with nothing to move at each call.
    lasting = True
    # Whether the kernel works in memory of this call alone.
    private = False
    # How many places outside of the device it writes to after the call: what ``regions`` returns.
    brings = 0
    # For arrays of another library on a GPU: functions that return the handle of the stream on which that library
    # works on a value just now. Feeds with the same function have the same stream.
    streams: tuple[Callable[[Any], int], ...] = ()
    # Functions that find each of its arrays on the device in the value, None for the value itself. None instead of a
    # tuple if it adds anything but arrays' addresses and buffers, or has anything to do afterwards.
    finds: tuple[Callable[[Any], Any] | None, ...] | None = None
    # Whether ``bring_back`` reads memory that the host shares: the call waits for the kernel before it, once for all.
    waits = False
    # The class of prepared calls whose arguments all have such feeds, in the order of the values; None for any.
    call: Any = None

    @abstractmethod
    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        """Append what the block packs for this argument, and the buffers that the kernel touches."""

    def partial(self) -> Feed:
        """Return the feed for an array of which the kernel writes a part."""
        return self

    def regions(self, value: Any) -> list[Region]:
        """Return the memory that ``bring_back`` writes to."""
        return []

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:  # noqa: B027 - most have nothing to bring back
        """Bring back what the kernel wrote, given the buffers that ``pack`` added."""
