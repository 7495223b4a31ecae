"""Lane: one queue of a device in the order that ``queues`` keeps. It decides nothing: ``Order`` says when to wait."""

from __future__ import annotations

from collections import deque
from typing import Any

from slangpy_rt.backends.base import Mark, Queue

# The number of launches whose buffers are kept alive together, until the mark behind the last is reached.
_TURN = 64
# The number of marks that a lane remembers. A wait for an earlier turn waits for the oldest of these.
_LEFT = 16


class Lane:
    """A queue of a device, with the marks and references that ``Order`` needs.

    Attributes
    ----------
    turn : int
        Number of pieces of work queued so far.
    seen : dict
        For each other lane, the turn that this one has waited for.
    closed : bool
        Whether its device is closed: all its work is done.
    temporary : bool
        Whether its stream may be destroyed by another library: only a call that names the stream uses it.
    """

    def __init__(self, queue: Queue, temporary: bool = False) -> None:
        self.queue = queue
        self.temporary = temporary
        self.turn = 0
        self.closed = False
        self.seen: dict[Lane, int] = {}
        # The latest marks, which are set where the program goes on with another lane.
        self._left: deque[tuple[int, Mark]] = deque(maxlen=_LEFT)
        self._held: deque[tuple[Mark, list[Any]]] = deque()
        self._fresh: list[Any] = []

    @property
    def holds(self) -> bool:
        """Whether it holds references until work is done."""
        return bool(self._fresh or self._held)

    def mark_here(self) -> None:
        """Put a mark at the end of the lane's work, so that other lanes wait for no more than that."""
        if self.queue.deferred and not (self._left and self._left[-1][0] == self.turn):
            self._left.append((self.turn, self.queue.mark()))

    def wait(self, other: Lane, turn: int) -> None:
        """Let work queued from now on wait for another lane's work up to a turn.

        Closing a device waits for its work, so that there is nothing to wait for on the lane of a closed one.
        """
        if other.closed:
            return
        reached, mark = other._mark_behind(turn)
        self.queue.wait(mark)
        self.seen[other] = max(reached, self.seen.get(other, -1))

    def wait_all(self, other: Lane) -> None:
        """Let work queued from now on wait for all work of another lane, other libraries' included."""
        self.queue.wait(other.queue.mark())
        self.seen[other] = other.turn

    def _mark_behind(self, turn: int) -> tuple[int, Mark]:
        for reached, mark in self._left:
            if reached >= turn:
                return reached, mark
        return self.turn, self.queue.mark()

    def keep(self, used: Any) -> None:
        """Keep the references of the work just queued until it is done; there is one mark for 64 launches."""
        if self.queue.deferred:
            self._fresh.append(used)
            if len(self._fresh) >= _TURN:
                self.drop_done()

    def keep_until_done(self, used: Any) -> None:
        """Keep a reference until all work queued so far is done."""
        if self.queue.deferred:
            self._fresh.append(used)
            self.drop_done()

    def drop_done(self) -> None:
        """Drop references to buffers whose work is done."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._held.append((self.queue.mark(), fresh))
        while self._held and self._held[0][0].done:
            self._held.popleft()

    def close(self) -> None:
        """Drop all references to buffers, marks and other lanes: the device is closed."""
        self.closed = True
        self._fresh = []
        self._held.clear()
        self._left.clear()
        self.seen.clear()
