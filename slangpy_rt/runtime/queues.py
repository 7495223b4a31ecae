"""The order of work on several queues of a device: what touches the same buffer runs in the order of the program.

Buffers count as a whole. A launch waits for queues that wrote what it reads, or use what it writes; nothing else is
waited for. While a device has but its own queue none of this is in the path of a call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer, Kernel, Mark, Queue, Recording

# Launches whose buffers are kept alive together, until a mark behind them is reached.
_TURN = 64
# Marks that a lane remembers: who waits for an earlier turn waits for the first of these.
_LEFT = 16
# Which of a launch's buffers a recording writes to, in one go.
Touches = tuple[tuple[Buffer, ...], tuple[bool, ...]]


class Order:
    """All queues of one device.

    Attributes
    ----------
    main : Lane
        The device's own queue.
    lock : threading.RLock
        Held from a look at the buffers until the work is queued.
    """

    def __init__(self, main: Queue) -> None:
        self.lock = threading.RLock()
        self.main = self._last = Lane(main)
        self.lanes: list[Lane] = [self.main]
        # Orders of devices that share memory, this one among them; they have one lock.
        self.peers: list[Order] = [self]
        # What was let go of while work that uses it may still run; held at the next look.
        self.orphans: deque[Any] = deque()
        # Lanes that nobody has a stream on any more; their work may still run.
        self.idle: deque[Lane] = deque()

    def lane(self, make: Callable[[], Queue]) -> Lane:
        """A lane that nobody uses, on a queue made for it if there is none."""
        try:
            return self.idle.popleft()
        except IndexError:
            return self.adopt(make())

    def adopt(self, queue: Queue, brief: bool = False) -> Lane:
        """The lane of a queue; ``brief`` if its stream may be gone with the next call."""
        with self.lock:
            found = next((x for x in self.lanes if x.queue is queue), None)
            if found is None:
                found = Lane(queue, brief)
                self.lanes.append(found)
            return found

    def launch(
        self,
        lane: Lane,
        launch: Callable[..., None],
        kernel: Kernel,
        groups: tuple[int, int, int],
        args: bytes,
        buffers: Sequence[Buffer],
    ) -> None:
        """Launch on a lane, after what it conflicts with."""
        with self.lock:
            self.touch(lane, buffers, kernel.info.written)
            launch(kernel, groups, args, buffers)
            # Memory of another device has to be kept on the device's own queue too.
            if lane is not self.main or len(self.peers) > 1:
                lane.keep(buffers)

    def replay(self, lane: Lane, replay: Callable[[Recording], None], recording: Recording, touches: Touches) -> None:
        """Run a recording on a lane, after what it conflicts with."""
        with self.lock:
            self.touch(lane, *touches)
            replay(recording)
            if lane is not self.main or len(self.peers) > 1:
                lane.keep(recording)

    def share(self, other: Order, mine: Buffer, theirs: Buffer) -> None:
        """Order work on a buffer of this device and on one of another device that is the same memory."""
        with self.lock, other.lock:
            peers = list(dict.fromkeys(self.peers + other.peers))
            for peer in peers:
                peer.lock, peer.peers = self.lock, peers
            try:
                uses = theirs.uses
            except AttributeError:
                uses = theirs.uses = Uses(other.main, other.main.turn)
            mine.uses = uses

    def touch(self, lane: Lane, buffers: Sequence[Buffer], written: Sequence[bool]) -> None:
        """Let a lane wait for what its next work conflicts with, and note that work. Only with ``lock``."""
        if not lane.queue.deferred:
            return
        if self._last is not lane:
            self._last.leave()
            self._last = lane
        seen = lane.seen
        turn = lane.turn = lane.turn + 1
        # One wait for each lane, for the last of its turns that matters.
        behind: dict[Lane, int] = {}
        for buffer, writes in zip(buffers, written):  # noqa: B905 (the keyword costs 0.1 us)
            try:
                uses: Uses | None = buffer.uses
            except AttributeError:
                # Its memory may be what the device's own queue had for another buffer, and still uses.
                uses = buffer.uses = Uses(self.main, self.main.turn)
            if uses is None:
                continue
            writer, readers = uses.writer, uses.readers
            if writer is not lane and seen.get(writer, -1) < uses.written:
                behind[writer] = max(uses.written, behind.get(writer, 0))
            if writes:
                for other, read in readers.items():
                    if other is not lane and seen.get(other, -1) < read:
                        behind[other] = max(read, behind.get(other, 0))
                readers.clear()
                uses.writer, uses.written = lane, turn
            else:
                readers[lane] = turn
        for other, until in behind.items():
            lane.wait(other, until)

    def part(self, queue: Queue) -> None:
        """Ask nothing of a queue any more, now that work is queued there: its stream may be gone the next time."""
        with self.lock:
            lane = self.adopt(queue)
            lane.leave()
            lane.settle()
            if self._last is lane:
                self._last = self.main

    def close(self) -> None:
        """Let go of all buffers: the device is closed."""
        with self.lock:
            for lane in self.lanes:
                lane.close()

    def hold(self, *used: Any) -> None:
        """Keep something until all is done that is queued by now, on queues that will still be there."""
        with self.lock:
            while self.orphans:
                used = (*used, self.orphans.popleft())
            if used:
                for lane in self.lanes:
                    if not lane.brief:
                        lane.hold(used)

    def settle(self) -> None:
        """Let go of buffers whose work is done."""
        with self.lock:
            self.hold()
            for lane in self.lanes:
                lane.settle()


class Lane:
    """A queue, and what has to be remembered of it.

    Attributes
    ----------
    turn : int
        How much was queued so far.
    seen : dict
        Up to which turn it has waited for others.
    brief : bool
        Whether its stream may be gone: nothing is asked of it but by a call.
    """

    def __init__(self, queue: Queue, brief: bool = False) -> None:
        self.queue = queue
        self.brief = brief
        self.turn = 0
        self.seen: dict[Lane, int] = {}
        # Marks where the program left it for another lane, so that nobody waits for more than he has to.
        self._left: deque[tuple[int, Mark]] = deque(maxlen=_LEFT)
        self._held: deque[tuple[Mark, list[Any]]] = deque()
        self._fresh: list[Any] = []

    def leave(self) -> None:
        """Mark where it is."""
        if self.queue.deferred and not (self._left and self._left[-1][0] == self.turn):
            self._left.append((self.turn, self.queue.mark()))

    def wait(self, other: Lane, turn: int) -> None:
        """Let what is queued from now on wait for what another lane had at a turn."""
        reached, mark = other._mark_behind(turn)
        self.queue.wait(mark)
        self.seen[other] = max(reached, self.seen.get(other, -1))

    def wait_all(self, other: Lane) -> None:
        """Let what is queued from now on wait for all that another lane has, by whomever."""
        self.queue.wait(other.queue.mark())
        self.seen[other] = other.turn

    def _mark_behind(self, turn: int) -> tuple[int, Mark]:
        for reached, mark in self._left:
            if reached >= turn:
                return reached, mark
        return self.turn, self.queue.mark()

    def keep(self, used: Any) -> None:
        """Keep what the work just queued uses until it is done."""
        if self.queue.deferred:
            self._fresh.append(used)
            if len(self._fresh) >= _TURN:
                self.settle()

    def hold(self, used: Any) -> None:
        """Keep something until all is done that is queued by now."""
        if self.queue.deferred:
            self._fresh.append(used)
            self.settle()

    def settle(self) -> None:
        """Let go of what is not in use any more."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._held.append((self.queue.mark(), fresh))
        while self._held and self._held[0][0].done:
            self._held.popleft()

    def close(self) -> None:
        """Let go of everything."""
        self._fresh = []
        self._held.clear()


class Uses:
    """Which lanes use a buffer: the last that wrote it, and those that read it since, each at a turn of its own."""

    __slots__ = ("readers", "writer", "written")

    def __init__(self, writer: Lane, written: int) -> None:
        self.writer = writer
        self.written = written
        self.readers: dict[Lane, int] = {}
