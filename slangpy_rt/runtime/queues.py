"""The order of work on several queues of a device: what touches the same buffer runs in the order of the program.

Buffers count as a whole. A launch waits for queues that wrote a buffer that it reads, and for queues that use a
buffer that it writes. While a device has one queue, calls do not come here.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer, Kernel, Queue, Recording
from slangpy_rt.core.interrupts import apart, noted
from slangpy_rt.runtime.lane import Lane

# Buffers of a recording, and for each whether the recording writes to it.
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
        # Owners of freed buffers whose memory the device may still use. ``keep_until_done`` takes them over.
        self.left_over: deque[Any] = deque()
        # Lanes without a Stream, to be used again; their work may still run.
        self.idle: deque[Lane] = deque()
        # Buffers on memory of other libraries, with the first address and the one behind the last.
        self._foreign: list[tuple[weakref.ref[Buffer], int, int]] = []

    def take(self, taken: list[Lane], make: Callable[[], Queue]) -> Lane:
        """Move an unused lane to a list, on a new queue if there is none, and return it.

        An interrupt finds the lane in ``idle`` or in the list, whose owner gives it back.
        """
        while True:
            try:
                return noted(taken, self.idle.popleft)
            except IndexError:
                apart(self._add_idle, make)

    def adopt(self, queue: Queue, temporary: bool = False) -> Lane:
        """Return the lane of a queue; ``temporary`` if its stream may be gone with the next call."""
        with self.lock:
            found = next((x for x in self.lanes if x.queue is queue), None)
            if found is None:
                found = Lane(queue, temporary)
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
        """Launch on a lane, after the work that the launch conflicts with."""
        with self.lock:
            self.order_use(lane, buffers, kernel.info.written)
            launch(kernel, groups, args, buffers)
            # Memory of another device has to be kept on the device's own queue too.
            if lane is not self.main or len(self.peers) > 1:
                lane.keep(buffers)

    def replay(self, lane: Lane, replay: Callable[[Recording], None], recording: Recording, touches: Touches) -> None:
        """Run a recording on a lane, after the work that the recording conflicts with."""
        with self.lock:
            self.order_use(lane, *touches)
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

    def share_foreign(self, buffer: Buffer, first: int, end: int) -> None:
        """Order work on a buffer with that on others that lie on the same memory of another library.

        Parameters
        ----------
        buffer : Buffer
            It can be referred to weakly.
        first, end : int
            The addresses of its first byte and of the one behind its last.
        """
        with self.lock:
            self._foreign = [item for item in self._foreign if item[0]() is not None]
            alive = [(other, low, high) for ref, low, high in self._foreign if (other := ref()) is not None]
            same = {id(x.uses): x for x, low, high in alive if max(low, first) < min(high, end)}
            uses = next((x.uses for x in same.values()), None)
            if len(same) > 1:
                # These buffers count as one from here on, and the device's own queue has waited for all work on them.
                self.order_use(self.main, tuple(same.values()), (True,) * len(same))
                for other, _, _ in alive:
                    if id(other.uses) in same:
                        other.uses = uses
            buffer.uses = uses or Uses(self.main, self.main.turn)
            self._foreign.append((weakref.ref(buffer), first, end))

    def order_use(self, lane: Lane, buffers: Sequence[Buffer], written: Sequence[bool]) -> None:
        """Let a lane wait for work that conflicts with its next work, and note that. The caller holds ``lock``."""
        if not lane.queue.deferred:
            return
        if self._last is not lane:
            self._last.mark_here()
            self._last = lane
        seen = lane.seen
        turn = lane.turn = lane.turn + 1
        # One wait for each lane, for the last of its turns that matters.
        behind: dict[Lane, int] = {}
        for buffer, writes in zip(buffers, written):  # noqa: B905 (the keyword costs 0.1 us)
            try:
                uses: Uses | None = buffer.uses
            except AttributeError:
                # A new buffer may have the memory of a freed one, which the device's own queue may still use.
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

    def release_stream(self, queue: Queue) -> None:
        """Mark the end of a foreign stream's work and use the stream no more: its library may destroy it."""
        with self.lock:
            lane = self.adopt(queue)
            lane.mark_here()
            lane.drop_done()
            if self._last is lane:
                self._last = self.main

    def close(self) -> None:
        """Drop all references to buffers, and those of other devices to this one: the device is closed."""
        with self.lock:
            for lane in self.lanes:
                lane.close()
            if self in self.peers:
                self.peers.remove(self)
            for peer in self.peers:
                for other in peer.lanes:
                    for lane in self.lanes:
                        other.seen.pop(lane, None)

    def keep_until_done(self, *used: Any) -> None:
        """Keep references until all work queued so far is done, on lanes that are not temporary."""
        with self.lock:
            while self.left_over:
                used = (*used, self.left_over.popleft())
            if used:
                for lane in self.lanes:
                    if not lane.temporary:
                        lane.keep_until_done(used)

    @property
    def holds(self) -> bool:
        """Whether any references are held until work is done."""
        return bool(self.left_over) or any(lane.holds for lane in self.lanes)

    def drop_done(self) -> None:
        """Drop references to buffers whose work is done."""
        with self.lock:
            self.keep_until_done()
            for lane in self.lanes:
                lane.drop_done()

    def _add_idle(self, make: Callable[[], Queue]) -> None:
        self.idle.append(self.adopt(make()))


class Uses:
    """Which lanes use a buffer: the last that wrote it, and those that read it since, each at a turn of its own."""

    __slots__ = ("readers", "writer", "written")

    def __init__(self, writer: Lane, written: int) -> None:
        self.writer = writer
        self.written = written
        self.readers: dict[Lane, int] = {}
