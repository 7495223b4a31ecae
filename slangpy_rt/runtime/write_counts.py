"""WriteCounts: how often buffers of a device were written to, for those who need to know that one was not.

Memory counts as a whole buffer. What other libraries write, and what a host writes through views of device memory, is
not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer, Kernel, Queue, Recording
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.runtime.observer import Observer


class WriteCounts(Observer):
    """Counts launches, copies and command lists that write to buffers; it observes the device while it counts any.

    Parameters
    ----------
    device : DeviceCore
        The device; ``counts_of`` makes one for each.
    """

    def __init__(self, device: DeviceCore) -> None:
        self._device = device
        # How many watch a buffer, and how many writes there were since the first of them came, by its identity.
        self._counts: dict[int, list[int]] = {}

    def watch(self, buffers: Sequence[Buffer]) -> tuple[int, ...]:
        """Count the writes to buffers, which the caller keeps alive, and return the counts so far."""
        with self._device.lock:
            if not self._counts:
                self._device.observe(self)
            for buffer in buffers:
                self._counts.setdefault(id(buffer), [0, 0])[0] += 1
            return self.so_far(buffers)

    def unwatch(self, buffers: Sequence[Buffer]) -> None:
        """Count the writes to buffers for one watcher less."""
        with self._device.lock:
            for buffer in buffers:
                found = self._counts[id(buffer)]
                found[0] -= 1
                if not found[0]:
                    del self._counts[id(buffer)]
            if not self._counts:
                self._device.unobserve(self)

    def so_far(self, buffers: Sequence[Buffer]) -> tuple[int, ...]:
        """Return how often watched buffers were written to."""
        return tuple([self._counts[id(buffer)][1] for buffer in buffers])

    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        self.writes("", [b for b, written in zip(rest[2], kernel.info.written, strict=False) if written])
        launch(kernel, *rest)

    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        replay(recording)

    def writes(self, what: str, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            found = self._counts.get(id(buffer))
            if found is not None:
                found[1] += 1


def counts_of(device: DeviceCore) -> WriteCounts:
    """Return the counts of a device."""
    return device.once("write counts", lambda: WriteCounts(device))
