"""Frame: a list of commands of a queue, and its part of the ring. Nothing here calls a driver."""

from __future__ import annotations

from typing import Any

from slangpy_rt.backends.submission import Submission


class Frame:
    """A list of commands with its part of the ring.

    Attributes
    ----------
    index : int
        Its number, and that of its part of the ring.
    command, pointer, allocator : Any
        The driver's object, a pointer to it, and what its memory is from, if the driver tells these apart.
    value : int
        Timeline value of its last submission.
    leaving : bool
        Whether it is to be submitted, so that nothing more is recorded in it.
    begun, ended : list of int
        The driver's results of beginning and of ending it; empty before that.
    sent : Submission or None
        Its submission; None before that was tried.
    """

    __slots__ = ("allocator", "begun", "command", "ended", "index", "leaving", "pointer", "sent", "value")

    def __init__(self, index: int, command: Any, pointer: Any, allocator: Any = None) -> None:
        self.index = index
        self.command = command
        self.pointer = pointer
        self.allocator = allocator
        self.value = 0
        self.reset()

    def reset(self) -> None:
        """Reset the frame for another submission."""
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.sent: Submission | None = None
        self.leaving = False
