"""Recorded: a picture in a command list, whose derivative in the same list uses what the picture found.

A list runs as a whole and in order, so that nothing but its own calls can change an array between the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.calls.command_list import Call, CommandList, buffers_of
from slangpy_rt.graphics.drawn import Found, parts


class Recorded(NamedTuple):
    """A picture that a command list draws.

    Attributes
    ----------
    found : Found
        What its steps found.
    values : Any
        What its arguments were, without their gradients.
    first : int
        The place of its first call in the list.
    calls : tuple of Call
        Its calls.
    read : frozenset of int
        The addresses of the buffers that its arguments lie in.
    """

    found: Found
    values: Any
    first: int
    calls: tuple[Call, ...]
    read: frozenset[int]

    def serves(self, commands: CommandList, values: Any) -> bool:
        """Return whether a derivative for these values, at the end of the list, finds what the picture found."""
        if self.values != values:
            return False
        calls = commands.calls[self.first :]
        if any(a is not b for a, b in zip(self.calls, calls, strict=False)) or len(calls) < len(self.calls):
            return False
        touched = (found for call in calls for found in buffers_of(call))
        # Memory of another library has no known size: any two arrays there may be the same memory.
        return not any(writes and (buffer.address in self.read or not buffer.nbytes) for buffer, writes in touched)


def recorded(commands: CommandList, first: int, found: Found, values: Any, arguments: list[Any]) -> Recorded | None:
    """Return the picture that a list draws by its calls from ``first`` on.

    Parameters
    ----------
    commands : CommandList
        The list.
    first : int
        The place of the picture's first call.
    found : Found
        What its steps found.
    values : Any
        What ``values_of`` returned for its arguments.
    arguments : list
        The arguments.

    Returns
    -------
    Recorded or None
        None if a derivative has to find all anew.
    """
    buffers = [array.buffer for array in parts(arguments)]
    if values is None or not all(buffer.nbytes for buffer in buffers):
        return None
    read = frozenset(buffer.address for buffer in buffers)
    return Recorded(found, values, first, tuple(commands.calls[first:]), read)


def values_of(age: object, faces: Any, named: dict[str, Any]) -> Any:
    """Return what arguments are, without gradients, for comparison; None if one of them cannot be compared.

    Parameters
    ----------
    age : object
        That of the module's text.
    faces, named : Any, dict
        The arguments.
    """
    found = {name: _value(value) for name, value in {"_faces": faces, **named}.items()}
    return None if None in found.values() else (age, found)


def _value(value: Any) -> Any:
    if isinstance(value, NDBuffer):
        layout = value.layout
        return layout.element.name, layout.shape, layout.strides, value.address
    if isinstance(value, (int, float)):
        return type(value), value
    return None
