"""Profiles: the device time of calls, as a table and as a trace file for Perfetto or ``chrome://tracing``.

The device's clock is read before and after each launch, so launches of one queue do not overlap here. A command list
is one row: what runs inside it is not taken apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from slangpy_rt.backends.base import Kernel, Mark, Queue, Recording
from slangpy_rt.core.checks import write_text
from slangpy_rt.core.errors import BindError
from slangpy_rt.runtime.core import LIVE, DeviceCore, a_device
from slangpy_rt.runtime.observer import Observer


class Work(NamedTuple):
    """One launch, or one submission of a list.

    Attributes
    ----------
    title : str
        The function.
    device, stream : str, int
        The name of its device with a description, and the number of its stream; 0 is the device's own queue.
    thread : int
        The identifier of the thread that queued it.
    queued, host : float
        When the host queued it, in seconds from the profile's beginning, and how many seconds that took.
    began, seconds : float
        When it began to run, and for how many seconds, by the device's clock.
    """

    title: str
    device: str
    stream: int
    thread: int
    queued: float
    host: float
    began: float
    seconds: float


class Row(NamedTuple):
    """All work of one title on one device.

    Attributes
    ----------
    calls : int
        The number of launches, or of submissions of lists with so many calls.
    seconds, least, most : float
        Seconds on the device: of all launches, of the shortest and of the longest.
    host : float
        Seconds that the host took to queue all launches.
    """

    title: str
    device: str
    calls: int
    seconds: float
    least: float
    most: float
    host: float


class Profile:
    """The work of the devices in a ``with`` block; made by ``profile()``.

    ``print(p)`` shows a table, ``p.rows`` has it as numbers, ``p.work`` every launch, and ``p.save(path)`` writes
    a trace for Perfetto or ``chrome://tracing``.

    Parameters
    ----------
    *devices : Device
        Which; none stands for all that are open.
    """

    def __init__(self, *devices: DeviceCore) -> None:
        self._asked = tuple([a_device("profile", device) for device in devices])
        self._watches: list[Watch] = []
        self._began = 0.0
        self.work: tuple[Work, ...] = ()

    def __enter__(self) -> Profile:
        devices = self._asked or tuple(d for d in LIVE if not d.closed)
        for device in devices:
            device.check_open()
            if any(isinstance(observer, Watch) for observer in device.observers):
                raise BindError(f"profile: {device!r} is being profiled already; end that profile first.")
        self._began = time.perf_counter()
        self.work = ()
        for device in devices:
            watch = Watch(device, self._began)
            self._watches.append(watch)
            device.observe(watch)
        return self

    def __exit__(self, *error: object) -> None:
        found: list[Work] = []
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.device.unobserve(watch)
        for watch in watches:
            if not watch.device.closed:
                found += watch.work()
        self.work = tuple(sorted(found, key=lambda w: w.queued))

    @property
    def rows(self) -> list[Row]:
        """A Row for each function and device, the longest time first."""
        groups: dict[tuple[str, str], list[Work]] = {}
        for w in self.work:
            groups.setdefault((w.title, w.device), []).append(w)
        rows = [
            Row(
                title, device, len(ws), sum(w.seconds for w in ws), min(w.seconds for w in ws),
                max(w.seconds for w in ws), sum(w.host for w in ws),
            )
            for (title, device), ws in groups.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda r: -r.seconds)

    def save(self, path: str | Path) -> None:
        """Write a trace, in the JSON that ``chrome://tracing`` and ui.perfetto.dev open.

        Each device is a process there, each of its streams a row; another process has what the host queued.
        """
        import json  # 1 ms, for traces alone

        names = sorted({w.device for w in self.work})
        threads = list(dict.fromkeys(w.thread for w in self.work))
        events: list[dict[str, Any]] = [_name("process_name", 0, 0, "host")]
        events += [_name("thread_name", 0, k, f"thread {k}") for k in range(len(threads))]
        for pid, name in enumerate(names, 1):
            events.append(_name("process_name", pid, 0, name))
            for stream in sorted({w.stream for w in self.work if w.device == name}):
                events.append(_name("thread_name", pid, stream, f"stream {stream}"))
        for w in self.work:
            pid, tid = names.index(w.device) + 1, threads.index(w.thread)
            events.append(_slice(w.title, 0, tid, w.queued, w.host))
            events.append(_slice(w.title, pid, w.stream, w.began, w.seconds))
        write_text("Profile.save", path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))

    def __str__(self) -> str:
        """Return the table, times in microseconds."""
        if self._watches:
            return "a profile that is being taken"
        head = ("function", "device", "calls", "total us", "mean us", "least us", "most us", "host us a call")
        lines: list[tuple[str, ...]] = [head]
        for r in self.rows:
            times = (r.seconds, r.seconds / r.calls, r.least, r.most, r.host / r.calls)
            lines.append((r.title, r.device, str(r.calls), *(f"{1e6 * t:,.1f}" for t in times)))
        widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
        return "\n".join(
            "  ".join(t.ljust(w) if k < 2 else t.rjust(w) for k, (t, w) in enumerate(zip(line, widths, strict=True)))
            for line in lines
        )

    __repr__ = __str__


class Watch(Observer):
    """The Observer that records one device's work during a profile."""

    def __init__(self, device: DeviceCore, began: float) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._taken: list[tuple[str, Queue, int, float, float, Mark, Mark]] = []
        # The device's clock beside the host's, read while the device has no work.
        device.backend.sync_all()
        self._zero = device.backend.queue.mark(timed=True)
        self._zero.sync()
        self._offset = time.perf_counter() - began
        self._began = began

    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        self._timed(queue, kernel.info.title, lambda: launch(kernel, *rest))

    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        self._timed(queue, f"command list of {len(recording.dispatches)} calls", lambda: replay(recording))

    def _timed(self, queue: Queue, title: str, work: Callable[[], None]) -> None:
        # The lock keeps other launches of the queue from coming between the two marks.
        with self._lock:
            first = queue.mark(timed=True)
            started = time.perf_counter()
            work()
            ended = time.perf_counter()
            last = queue.mark(timed=True)
            self._taken.append((title, queue, threading.get_ident(), started, ended, first, last))

    def work(self) -> list[Work]:
        """Wait for the launches and return them as Work."""
        device = self.device
        device.backend.sync_all()
        lanes = [lane.queue for lane in device.order.lanes]
        name = f"{device.name}: {device.info}"
        out = []
        for title, queue, thread, started, ended, first, last in self._taken:
            began = self._offset + first.since(self._zero)
            out.append(
                Work(
                    title, name, lanes.index(queue), thread, started - self._began, ended - started, began,
                    last.since(first),
                )
            )  # fmt: skip
        return out


def profile(*devices: DeviceCore) -> Profile:
    """Take a profile of the calls in a ``with`` block.

    Parameters
    ----------
    *devices : Device
        Which; none stands for all that are open.

    Returns
    -------
    Profile
        A context manager; after its end it has the figures.

    Examples
    --------
    ``with spy.profile() as p: ...`` and then ``print(p)`` or ``p.save("trace.json")``.
    """
    return Profile(*devices)


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(name: str, pid: int, tid: int, start: float, seconds: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": 1e6 * start, "dur": 1e6 * seconds, "cat": "call"}
