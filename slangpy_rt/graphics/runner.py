"""Runner: how the steps of a picture run: at once, or later from a command list."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList


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
        self._stream = stream

    def call(self, function: Any, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Call a function, and return its result."""
        if self.commands is not None:
            return function.append_to(self.commands, *args, _result=_result, **named)
        if self._stream is not None:
            function = function.stream(self._stream)
        return function(*args, _result=_result, **named)

    def gradient_of(self, array: Tensor) -> Tensor:
        """Return an array that shares memory with another, with a gradient of zeros."""
        made = array.with_grads()
        if self.commands is not None:
            # It is zero now, and the list may be submitted again.
            self.commands.clear(made.grad)
        return made
