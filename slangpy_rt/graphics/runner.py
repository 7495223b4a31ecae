"""Runner: how the steps of a picture run: at once, or later from a command list; and where their arrays lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from slangpy_rt.arrays.layout import Layout, layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.dtypes import element_type

# Shapes and element types by name.
Parts = Mapping[str, tuple[tuple[int, ...], Any]]
_ALIGNED = 256  # bytes; also a whole number of the elements that zeros are written as


class Room(NamedTuple):
    """Arrays of a picture's steps in one piece of memory, without contents.

    Attributes
    ----------
    zeros : Tensor
        The memory of the first of them as a flat array of uint4, which a step has to set to 0.
    arrays : dict
        The arrays by name.
    """

    zeros: Tensor
    arrays: dict[str, Tensor]


class Runner:
    """Calls functions at once, or records the calls in a command list.

    Parameters
    ----------
    commands : CommandList, optional
        The list to record in.
    stream : Stream, optional
        The stream to run on; the device's own queue unless given.
    """

    def __init__(self, commands: CommandList | None = None, stream: Any = None) -> None:
        self.commands = commands
        self.stream = stream

    def call(self, function: Any, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Call a function, and return its result."""
        if self.commands is not None:
            return function.append_to(self.commands, *args, _result=_result, **named)
        if self.stream is not None:
            function = function.stream(self.stream)
        return function(*args, _result=_result, **named)

    def room(self, device: Any, zeros: Parts, others: Parts) -> Room:
        """Return new arrays by name, each of a shape and an element type: those to become zeros, and others."""
        layouts: dict[str, tuple[Layout, int]] = {}
        end = filled = 0
        for parts in (zeros, others):
            for name, (shape, kind) in parts.items():
                layout = layout_of(device, Tensor, element_type("room", kind), shape, own=True)
                layouts[name] = layout, end
                end += -(-layout.nbytes // _ALIGNED) * _ALIGNED
            filled = end if parts is zeros else filled
        buffer = self.memory(device, end)
        flat = layout_of(device, Tensor, element_type("room", "uint4"), (filled // 16,))
        arrays = {name: Tensor.of(layout, buffer, buffer.address + at) for name, (layout, at) in layouts.items()}
        return Room(Tensor.of(flat, buffer, buffer.address), arrays)

    def memory(self, device: Any, nbytes: int) -> Any:
        """Return a new buffer."""
        return device.alloc(nbytes)

    def gradient_of(self, array: Tensor) -> Tensor:
        """Return an array that shares memory with another, with a gradient of zeros."""
        made = array.with_grads()
        if self.commands is not None:
            # It is zero now, and the list may be submitted again.
            self.commands.clear(made.grad)
        return made
