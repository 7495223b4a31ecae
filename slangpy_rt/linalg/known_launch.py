"""KnownLaunch: a kernel's launch that is ready but for the addresses of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.dtypes import scalar_type
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

# Addresses from here on stand for the arrays when a launch is prepared: no device has them.
_MARK = 1 << 60


class KnownLaunch:
    """A launch of a kernel over arrays of known layouts.

    Attributes
    ----------
    kernel, groups
        The first arguments of ``Queue.launch``.

    Parameters
    ----------
    call : PreparedCall
        The launch.
    block : sequence
        The entries of its argument block, with ``mark(place)`` for the address at a place.
    places : int
        How many addresses ``arguments`` takes.
    """

    __slots__ = ("_numbers", "_pack", "_prefix", "_sources", "groups", "kernel")

    def __init__(self, call: PreparedCall, block: Sequence[Any], places: int) -> None:
        self.kernel, self.groups = call.kernel, call.groups
        self._prefix, self._pack = call.prefix, call.pack
        marked = [type(entry) is int and entry >= _MARK for entry in block]
        self._numbers = tuple([entry for entry, mark in zip(block, marked, strict=True) if not mark])
        numbers = iter(range(places, places + len(block)))
        # For each entry of the block, which of the addresses or of the numbers behind them it is.
        self._sources = tuple(
            [entry - _MARK if mark else next(numbers) for entry, mark in zip(block, marked, strict=True)]
        )

    def arguments(self, *addresses: int) -> bytes:
        """Return the argument block with these addresses, in the order of their places."""
        every = addresses + self._numbers
        return self._prefix + self._pack(*[every[k] for k in self._sources])


def mark(place: int) -> int:
    """Return an address that stands for the one at a place."""
    return _MARK + place


def marked(device: DeviceCore, place: int, view: View, stored: str) -> Tensor:
    """Return an array, stored as a scalar, that stands for one whose address is at a place."""
    layout = layout_of(device, Tensor, scalar_type(stored), view.shape, view.strides, False)
    return Tensor.of(layout, device.placeholder, mark(place))


def known_launch(kernel: Kernel, threads: Any, values: Sequence[Any], places: int) -> KnownLaunch | None:
    """Return the launch of a kernel on values with marks; None if it moves data, or is watched by diagnostics."""
    call, prepared = Callee(kernel).with_dispatch(threads, tuple(values), {})
    block = call.addresses(prepared)
    return None if block is None else KnownLaunch(call, block, places)
