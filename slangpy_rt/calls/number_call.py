"""Number calls: prepared calls on numbers alone, whose result is a number, on devices with memory of their own.

The result lies in memory that host and device address, so that one wait is all that follows the launch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.arguments.feed import Feed
from slangpy_rt.arguments.host_feeds import HostCopyFeed
from slangpy_rt.backends.base import SharedBuffer
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.calls.result import Result

# The codes of ``struct`` by kind and size of NumPy's types.
_CODES = {
    "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I",
    "u8": "Q", "b1": "?",
}  # fmt: skip
_NUMBERS = frozenset({int, float, bool})


class NumberCall(PreparedCall):
    """A prepared call whose values go into the argument block as they are, if they are Python's own numbers."""

    __slots__ = ("_nbytes", "_read", "_shared")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert self.make is not None
        dtype = self.make().dtype
        self._nbytes = dtype.itemsize
        self._read = struct.Struct(f"={_CODES[dtype.str[1:]]}").unpack_from
        self._shared: Callable[[int], SharedBuffer | None] = self.device.alloc_mapped

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run the call as ``PreparedCall.run`` does."""
        for value in values:
            if type(value) not in _NUMBERS:
                return super().run(values, launch)
        shared = self._shared(self._nbytes)
        if shared is None:
            return super().run(values, launch)
        try:
            packed = self.pack(*values, shared.address)
        except (struct.error, OverflowError):
            # It finds the words for the error.
            return super().run(values, launch)
        device = self.device
        (launch or device.launch)(self.kernel, self.groups, self.prefix + packed, (shared,))
        if device.plain:
            device.backend.sync_all()
        else:
            device.synchronize()
        try:
            # One step of C: closing the device releases the view before its memory.
            return self._read(shared.view)[0]
        except ValueError:
            device.check_open()
            raise


def fits(feeds: Sequence[Feed], outcome: Result) -> bool:
    """Tell whether a call that returns a value of Python's is one on numbers alone that returns a number."""
    if type(feeds[-1]) is not HostCopyFeed or not all(feed.number for feed in feeds[:-1]):
        return False
    sample = outcome.make() if outcome.make is not None else None
    return sample is not None and sample.shape == () and sample.dtype.str[1:] in _CODES
