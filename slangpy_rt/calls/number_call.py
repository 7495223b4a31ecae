"""Number calls: prepared calls on numbers alone, whose result is a number, on devices with memory of their own.

The result lies in memory that host and device address, so that one wait is all that follows the launch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.arguments.host_packers import HostCopyPacker
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.backends.base import SharedBuffer
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.calls.result import Result

# The codes of ``struct`` by kind and size of NumPy's types.
_CODES = {
    "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I",
    "u8": "Q", "b1": "?",
}  # fmt: skip
_NUMBERS = frozenset({int, float, bool})
_CELL_BYTES = 8  # of the largest number


class NumberCall(PreparedCall):
    """A prepared call whose values go into the argument block as they are, if they are Python's own numbers."""

    __slots__ = ("_alloc_cell", "_cells", "_read", "_sync")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert self.make is not None
        self._read = struct.Struct(f"={_CODES[self.make().dtype.str[1:]]}").unpack_from
        self._alloc_cell: Callable[[int], SharedBuffer | None] = self.device.alloc_mapped
        # Those of all calls of the device, so that there are no more than threads that call at a time.
        self._cells: list[SharedBuffer] = self.device.once("cells of numbers", list)
        self._sync = self.device.backend.queue.sync

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run the call as ``PreparedCall.run`` does."""
        for value in values:
            if type(value) not in _NUMBERS:
                return super().run(values, launch)
        try:
            cell = self._cells.pop()
        except IndexError:
            found = self._alloc_cell(_CELL_BYTES)
            if found is None:
                return super().run(values, launch)
            cell = found
        try:
            packed = self.pack(*values, cell.address)
        except (struct.error, OverflowError):
            # It finds the words for the error.
            return super().run(values, launch)
        device = self.device
        (launch or device.launch)(self.kernel, self.groups, self.prefix + packed, (cell,))
        if device.plain:
            self._sync()
        else:
            device.synchronize()
        try:
            # One step of C: closing the device releases the view before its memory.
            number = self._read(cell.view)[0]
        except ValueError:
            device.check_open()
            raise
        # Not after an error or an interrupt: the device may still write to it.
        self._cells.append(cell)
        return number


def fits(packers: Sequence[Packer], outcome: Result) -> bool:
    """Tell whether a call that returns a value of Python's is one on numbers alone that returns a number."""
    if type(packers[-1]) is not HostCopyPacker or not all(packer.number for packer in packers[:-1]):
        return False
    sample = outcome.make() if outcome.make is not None else None
    return sample is not None and sample.shape == () and sample.dtype.str[1:] in _CODES
