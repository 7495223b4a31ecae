"""Copies of gradients: what threads add to in place of a gradient, and the kernels that add the copies to it.

Which gradients have copies, and how many, ``launch_geometry`` decides. Memory is zero whenever no call uses it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.base import Buffer, Dispatch, Kernel
from slangpy_rt.core.dtypes import scalar_type

if TYPE_CHECKING:
    from slangpy_rt.calls.launch_geometry import Copies

# The most copies that one thread adds up.
_MOST_ADDED = 256
# An address that no memory has.
_NOWHERE = 0x5A5A5A5A5A5A5A50


class GradientCopies:
    """The copies of the gradients of one prepared call, which launches through them.

    Parameters
    ----------
    copies : sequence of Copies
        The copies of each gradient.
    offsets : dict
        For each gradient, by its name in the block, where the argument block has its address.
    buffers : dict
        For each gradient, by its name in the block, the index of its buffer in a launch.

    Attributes
    ----------
    addresses : tuple of int
        The addresses of the first copies, in the order of the block.
    """

    def __init__(
        self, device: Any, copies: Sequence[Copies], offsets: dict[str, int], buffers: dict[str, int]
    ) -> None:
        # Of two threads that run this call at once, each has its terms added to its own gradients.
        self._lock = threading.RLock()
        self._device = device
        sizes = [c.count * c.length for c in copies]
        self._memory = NDBuffer(device, scalar_type("float"), (sum(sizes),))
        self._memory.clear()
        self._is_clear = True
        first = self._memory.address
        self.addresses = tuple(first + 4 * sum(sizes[:k]) for k in range(len(sizes)))
        self._sums = [
            (offsets[c.name], buffers[c.name], self._additions(c, address))
            for c, address in zip(copies, self.addresses, strict=True)
        ]

    @property
    def buffer(self) -> Buffer:
        """The memory of all copies."""
        return self._memory.buffer

    def launch(
        self,
        launch: Callable[..., None],
        kernel: Kernel,
        groups: tuple[int, int, int],
        args: bytes,
        buffers: Sequence[Buffer],
    ) -> None:
        """Launch the kernel by a function like ``Queue.launch``, and then the kernels that add up the copies."""
        with self._lock:
            if not self._is_clear:
                # An interrupt came between two launches.
                self._device.synchronize()
                self._memory.clear()
                self._device.synchronize()
            self._is_clear = False
            launch(kernel, groups, args, (*buffers, self.buffer))
            for dispatch in self.dispatches(args, buffers):
                launch(*dispatch)
            self._is_clear = True

    def dispatches(self, args: bytes, buffers: Sequence[Buffer]) -> tuple[Dispatch, ...]:
        """Return the dispatches that add the copies to the gradients of a launch with this block and buffers."""
        out: list[Dispatch] = []
        for offset, place, additions in self._sums:
            (gradient,) = struct.unpack_from("<Q", args, offset)
            out += additions(gradient, buffers[place])
        return tuple(out)

    def _additions(self, c: Copies, first: int) -> Callable[[int, Buffer], list[Dispatch]]:
        """Return the function that makes the dispatches for a gradient at an address in a buffer."""
        count, before = c.count, []
        if count > _MOST_ADDED:
            # Copies are first added to as many of them as each of these gets terms, or half as many.
            rows = 1 << (count.bit_length() // 2)
            size = rows * c.length
            ahead, _ = self._addition(size, first, self.buffer, first + 4 * size, size, count // rows - 1)
            before, count = [ahead], rows
        # Of this dispatch the address of the gradient and its buffer are replaced.
        last, at = self._addition(c.places, _NOWHERE, self._device.placeholder, first, c.length, count)

        def additions(gradient: int, buffer: Buffer) -> list[Dispatch]:
            args = last.args[:at] + struct.pack("<Q", gradient) + last.args[at + 8 :]
            return [*before, last._replace(args=args, buffers=(buffer, *last.buffers[1:]))]

        return additions

    def _addition(
        self, places: int, to: int, buffer: Buffer, first: int, apart: int, count: int
    ) -> tuple[Dispatch, int]:
        """Return the dispatch that adds copies to the floats at an address, and where its arguments have this."""
        device, kind = self._device, scalar_type("float")
        target = NDBuffer.of(layout_of(device, NDBuffer, kind, (places,), aligned=False), buffer, to)
        layout = layout_of(device, NDBuffer, kind, ((count - 1) * apart + places,), aligned=False)
        copies = NDBuffer.of(layout, self.buffer, first)
        commands = device.command_list()
        device.folds.add_copies.append_to(commands, range(places), target, copies, apart, count)
        dispatch: Dispatch = commands.calls[0].dispatch
        return dispatch, dispatch.args.index(struct.pack("<Q", to))
