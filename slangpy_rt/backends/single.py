"""Single: the launch of one kernel as a list of commands of its own, which is recorded once and submitted often."""

from __future__ import annotations

from typing import Any

from slangpy_rt.backends.submission import Submission

# What the argument block of a single may have, in bytes, and how many singles a queue has.
SINGLE_BYTES = 1024
SINGLES = 16
# The submissions that a kernel is launched alone in before it gets a single: recording takes as long as a launch.
FEW = 3
# The count of such submissions after a launch that its single did not fit.
MISFIT = -32


class Single:
    """A recorded list with one launch. Its argument block lies in the queue's mapped ring.

    Attributes
    ----------
    index : int
        Its number among the singles of its queue.
    command, pointer : Any
        The driver's object, and a pointer to it.
    start : int
        Where the argument block begins in the ring, in bytes.
    owner : object
        The description of the kernel that it launches; None while the list is not recorded.
    groups, args : tuple of int or None, bytes or None
        The thread groups and the argument block; None where they are not known.
    value : int
        Timeline value of the last submission that uses the block.
    sent : Submission or None
        The submission of the launch that is held; None before that was tried.
    recorded : list
        Has an item once the launch that is held was recorded in another list.
    """

    __slots__ = ("args", "command", "groups", "index", "owner", "pointer", "recorded", "sent", "start", "value")

    def __init__(self, index: int, command: Any, pointer: Any, start: int) -> None:
        self.index = index
        self.command = command
        self.pointer = pointer
        self.start = start
        self.owner: object = None
        self.groups: tuple[int, int, int] | None = None
        self.args: bytes | None = None
        self.value = 0
        self.sent: Submission | None = None
        self.recorded: list[Any] = []
