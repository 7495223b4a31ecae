"""Command lists: calls recorded once and run together, as often as one likes.

The buffers that calls read and write decide which calls wait for which; the others may run at the same time. The
backend keeps and replays the list. Nothing runs before ``submit``, which does not check arguments again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.base import Buffer, Dispatch, Recording
from slangpy_rt.backends.extras import change, recording_of
from slangpy_rt.calls.callee import Callee
from slangpy_rt.core.checks import short_tracebacks, write_text
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import is_whole
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import a_device, another, but_of
from slangpy_rt.runtime.diagnostics import Launcher
from slangpy_rt.runtime.queues import Touches
from slangpy_rt.runtime.stream import Stream, lane_of

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class Call:
    """A recorded call.

    Attributes
    ----------
    title : str
        The function, and how it is called.
    dispatch : Dispatch or None
        The kernel's dispatch; None for a call without elements.
    result : Tensor, NDBuffer or None
        The array that the call writes its result to.
    function, prepared : Function or Kernel, PreparedCall or None
        What is called; no prepared call for a call that ``update`` cannot change.
    launcher : Launcher or None
        Makes the launch, if the kernel may print or checks its accesses.
    copies : tuple of Dispatch
        Dispatches that run first and copy arguments that share memory with arrays that the call writes.
    check : callable or None
        What the list calls once after its first run: a debug device checks derivatives so.
    behind : tuple of Dispatch
        Dispatches that run after the call's own, in this order, and belong to it.
    """

    __slots__ = ("behind", "check", "copies", "dispatch", "function", "launcher", "prepared", "result", "title")

    def __init__(
        self,
        title: str,
        dispatch: Dispatch | None,
        result: Any,
        function: Any,
        prepared: Any,
        launcher: Any,
        copies: tuple[Dispatch, ...] = (),
        check: Callable[[], None] | None = None,
        behind: tuple[Dispatch, ...] = (),
    ) -> None:
        self.title = title
        self.behind = behind
        self.dispatch = dispatch
        self.copies = copies
        self.result = result
        self.function = function
        self.prepared = prepared
        self.launcher: Launcher | None = launcher
        self.check = check


@short_tracebacks("__init__")
class CommandList:
    """Calls in the order of a program, to be submitted together; made by ``Device.command_list()``.

    A list can be submitted again and again: each time it reads what its arrays hold then, and the numbers that were
    recorded. It keeps the arrays alive. As a context manager it is submitted at the end of the block, unless that
    raised.
    """

    def __init__(self, device: DeviceCore) -> None:
        self.device: DeviceCore = a_device("CommandList", device)
        self.calls: list[Call] = []
        self._recording: Recording | None = None
        self._waits: tuple[tuple[int, ...], ...] = ()
        # Launchers and argument blocks of the calls that may print or check their accesses.
        self._launchers: list[tuple[Launcher, bytes]] = []
        self._touched: Touches | None = None

    def submit(self, stream: Stream | None = None) -> None:
        """Run the calls; the host does not wait for them.

        Parameters
        ----------
        stream : Stream, optional
            The stream to run on; the device's own queue unless given.

        Raises
        ------
        DeviceError
            If the device is closed or lost.
        OutOfBoundsError
            On a debug device, if a call reached outside of an array.
        GradientError
            On a debug device, if the derivatives of a function that the list calls contradict each other. The list
            has run then.
        """
        device = self.device
        if device.closed:
            device.check_open()
        recording = self._recording
        if recording is None:
            recording = self._recording = recording_of(device.backend, *self._steps())
            self._touched = None
            self._launchers = _launchers(self.calls)
            checks = [c.check for c in self.calls if c.check is not None]
            if checks:
                self.submit(stream)
                for check in checks:
                    check()
                return
        if device.plain and stream is None and not self._launchers:
            device.backend.queue.replay(recording)
            return
        lane = lane_of(device, "CommandList.submit", stream)
        if not self._launchers:
            device.replay(recording, self._touches, lane)
        else:
            Launcher.around(self._launchers, lambda: device.replay(recording, self._touches, lane))

    def append(self, other: CommandList) -> None:
        """Add the calls that another list holds now.

        Raises
        ------
        BindError
            If it is no list of this device.
        """
        if not isinstance(other, CommandList) or other.device is not self.device:
            raise BindError(
                f"CommandList.append: {in_words(other)} is no command list of {self.device!r}"
                f"{but_of(other, self.device)}."
            )
        for c in list(other.calls):
            add(
                self,
                Call(c.title, c.dispatch, c.result, c.function, c.prepared, c.launcher, c.copies, c.check, c.behind),
            )

    def copy(self, to: NDBuffer, source: NDBuffer) -> None:
        """Copy an array to another of the same size in bytes, both contiguous.

        Raises
        ------
        BindError
            If one is no contiguous array of this device, or they share a part of their memory.
        ShapeError
            If their sizes differ.
        """
        words = self._words("copy", to, source)
        if to.nbytes != source.nbytes:
            raise ShapeError(f"CommandList.copy: {source.summary} does not fill {to.summary}; their sizes differ.")
        if 0 < abs(to.address - source.address) < to.nbytes:
            # Elements are copied in no order: some would be overwritten before they are read.
            raise BindError(
                f"CommandList.copy: {source.summary} and {to.summary} share memory; copy to a third array first."
            )
        moves = self.device.moves.kernels
        if self._in_parts(to, source):
            first, begin = to.address % 4, source.address % 4
            moves.copyPart.append_to(self, range(words[0].shape[0]), *words, first, first + to.nbytes, begin - first)
        else:
            copy = moves.copy if words[0].dtype.scalar == "uint" else moves.copyByte
            copy.append_to(self, words[1], _result=words[0])

    def clear(self, array: NDBuffer) -> None:
        """Set all bytes of a contiguous array to zero.

        Raises
        ------
        BindError
            If it is no contiguous array of this device.
        """
        (words,) = self._words("clear", array)
        moves = self.device.moves.kernels
        if self._in_parts(array):
            first = array.address % 4
            moves.zeroPart.append_to(self, range(words.shape[0]), words, first, first + array.nbytes)
        else:
            (moves.zero if words.dtype.scalar == "uint" else moves.zeroByte).append_to(self, _result=words)

    def __reduce__(self) -> NoReturn:
        # A shallow copy would share the calls, but not the backend's recording of them.
        raise TypeError("CommandList: a list is not copied or pickled; append it to a new one: new.append(commands).")

    def update(self, place: int, /, *args: Any, _result: Any = None, **named: Any) -> None:
        """Give a recorded call other arguments of the same layouts; the list is not recorded again.

        The array that the call made for its result stays its result.

        Parameters
        ----------
        place : int
            Index of the call in the list; -1 is the last one.

        Raises
        ------
        BindError
            If there is no such call, or it would launch another kernel with these arguments.
        """
        if not is_whole(place) or not -len(self.calls) <= place < len(self.calls):
            raise BindError(
                f"CommandList.update: there is no call {in_words(place)}; the list has {len(self.calls)}."
            )
        place %= len(self.calls)
        old = self.calls[place]
        if old.prepared is None:
            raise BindError(f"CommandList.update: {old.title} was bound to its arguments before; append it anew.")
        function = Callee(old.function)
        new: Call = function.recorded(args, _result, named)
        if not new.prepared.is_like(old.prepared) or _shape(new) != _shape(old):
            raise BindError(
                f"CommandList.update: {old.title} has other layouts with these arguments; append it anew."
            )
        if new.result is not None and _result is None and "out" not in named:
            # Later calls and the caller use the array that the call made when it was recorded.
            into: Call = function.recorded(args, old.result, named)
            new = Call(
                new.title, into.dispatch, old.result, old.function, old.prepared, into.launcher, into.copies,
                behind=into.behind,
            )  # fmt: skip
        # ``waits`` takes 1 us for each call of the list, and depends on addresses alone.
        before = None if _addresses(new) == _addresses(old) else self.waits
        self.calls[place] = new
        if before is not None:
            self._waits = ()
            self._touched = None
        if (before is not None and before != self.waits) or any(c.copies or c.behind for c in (new, old)):
            self._recording = None
        elif self._recording is not None and new.dispatch is not None:
            ran = sum(len(c.copies) + (c.dispatch is not None) + len(c.behind) for c in self.calls[:place])
            change(self.device.backend, self._recording, ran, new.dispatch)
            if new.launcher is not None:
                self._launchers = _launchers(self.calls)

    @property
    def waits(self) -> tuple[tuple[int, ...], ...]:
        """For each call the indices of earlier calls that it waits for: both use a buffer that one of them writes."""
        if len(self._waits) != len(self.calls):
            self._waits = tuple(_hazards(self.calls))
        return self._waits

    def explain(self, path: str | Path | None = None) -> str:
        """Return a table of the calls and of those that each waits for, and draw them if a file is named.

        Parameters
        ----------
        path : path, optional
            SVG file to write: calls as boxes, those that may run at the same time side by side.
        """
        rows = [("call", "function", "waits for")]
        rows += [
            (str(k), c.title, ", ".join(map(str, waits)) or "nothing in the list")
            for k, (c, waits) in enumerate(zip(self.calls, self.waits, strict=True))
        ]
        widths = [max(len(row[k]) for row in rows) for k in range(3)]
        table = "\n".join("  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        if path is not None:
            write_text("CommandList.explain", path, _drawing([c.title for c in self.calls], self.waits))
        return f"{len(self.calls)} calls on {self.device.name}\n\n{table}"

    def __len__(self) -> int:
        return len(self.calls)

    def __enter__(self) -> CommandList:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.submit()

    def __repr__(self) -> str:
        return f"<CommandList of {len(self.calls)} calls on {self.device.name}>"

    def _steps(self) -> tuple[list[Dispatch], list[tuple[int, ...]]]:
        """Return all dispatches, and for each the indices of those that have to be done before it."""
        dispatches: list[Dispatch] = []
        waits: list[tuple[int, ...]] = []
        # The index of each call's last dispatch among all dispatches; its copies come before it.
        places: dict[int, int] = {}
        for k, (c, before) in enumerate(zip(self.calls, self.waits, strict=True)):
            if c.dispatch is None:
                continue
            first, earlier = len(dispatches), tuple(places[w] for w in before)
            dispatches += (*c.copies, c.dispatch, *c.behind)
            own = first + len(c.copies)
            waits += [*[earlier] * len(c.copies), (*earlier, *range(first, own))]
            # Each of these reads what the one before it wrote.
            waits += [(place,) for place in range(own, own + len(c.behind))]
            places[k] = own + len(c.behind)
        return dispatches, waits

    def _touches(self) -> Touches:
        """Return the buffers that the calls use, and for each whether a call writes to it."""
        if self._touched is None:
            found: dict[int, tuple[Buffer, bool]] = {}
            for buffer, writes in (touched for c in self.calls for touched in buffers_of(c)):
                found[id(buffer)] = buffer, writes or (id(buffer) in found and found[id(buffer)][1])
            self._touched = tuple(b for b, _ in found.values()), tuple(w for _, w in found.values())
        return self._touched

    def _words(self, method: str, *arrays: NDBuffer) -> list[NDBuffer]:
        """Return arrays over the same memory whose elements are words, or bytes where one is not made of words."""
        for array in arrays:
            if isinstance(array, NDBuffer) and array.device is not self.device:
                there = another(array.device, self.device)
                raise BindError(
                    f"CommandList.{method}: {array.summary} is on {there}; this list is of {self.device!r}."
                )
            if not isinstance(array, NDBuffer) or not array.is_contiguous:
                what = array.summary if isinstance(array, NDBuffer) else in_words(array)
                raise BindError(f"CommandList.{method}: {what} is no contiguous array of {self.device!r}.")
        parts = self._in_parts(*arrays)
        size = 4 if parts or _are_words(arrays) else 1
        kind = element_type(method, "uint" if size == 4 else "uint8_t")
        words = []
        for a in arrays:
            # Blocks of memory begin and end at whole words: the first and last word of an array are in its block.
            before, after = (a.address % 4, -(a.address + a.nbytes) % 4) if parts else (0, 0)
            address, count = a.address - before, (before + a.nbytes + after) // size
            layout = layout_of(self.device, NDBuffer, kind, (count,), None, address % 32 == 0)
            words.append(NDBuffer.of(layout, a.buffer, address))
        return words

    def _in_parts(self, *arrays: NDBuffer) -> bool:
        """Return whether arrays that begin or end inside a word are accessed by words, as the device has no bytes."""
        return "uint8_t" not in self.device.caps.scalars and not _are_words(arrays)


def add(commands: CommandList, call: Call) -> None:
    """Record a call at the end of a list, for functions and kernels: users see ``append_to``."""
    commands.calls.append(call)
    commands._recording = None


def _are_words(arrays: Sequence[NDBuffer]) -> bool:
    return all(n % 4 == 0 for a in arrays for n in (a.address, a.nbytes))


def _launchers(calls: Sequence[Call]) -> list[tuple[Launcher, bytes]]:
    return [(c.launcher, c.dispatch.args) for c in calls if c.launcher is not None and c.dispatch is not None]


def _hazards(calls: Sequence[Call]) -> Iterator[tuple[int, ...]]:
    """Yield for each call the indices of earlier calls that wrote a buffer it uses, or read a buffer it writes."""
    written: dict[int, int] = {}
    read: dict[int, list[int]] = {}
    for k, call in enumerate(calls):
        waits: set[int] = set()
        for buffer, writes in buffers_of(call):
            # Memory of another library has no known size: any two arrays there may be the same memory.
            key = buffer.address if buffer.nbytes else 0
            if key in written:
                waits.add(written[key])
            if writes:
                waits.update(read.pop(key, ()))
                written[key] = k
            else:
                read.setdefault(key, []).append(k)
        yield tuple(sorted(waits - {k}))


def buffers_of(call: Call) -> Iterator[tuple[Buffer, bool]]:
    """Yield each buffer that a call touches, its copies included, and whether it writes to that."""
    for d in (*call.copies, *((call.dispatch,) if call.dispatch is not None else ()), *call.behind):
        yield from zip(d.buffers, d.kernel.info.written, strict=True)


def _shape(call: Call) -> Any:
    """Return the kernel and the thread groups of a call, which no backend can change in a recording."""
    return None if call.dispatch is None else (id(call.dispatch.kernel), call.dispatch.groups)


def _addresses(call: Call) -> list[int]:
    """Return the addresses of the buffers that a call touches."""
    return [buffer.address for buffer, _ in buffers_of(call)]


def _drawing(titles: Sequence[str], waits: Sequence[tuple[int, ...]]) -> str:
    """Draw calls as boxes of an SVG file; a call is in the row below the last one that it waits for."""
    import html  # 1 ms, for drawings alone

    rows: list[int] = []
    for before in waits:
        rows.append(max((rows[w] + 1 for w in before), default=0))
    columns: dict[int, int] = {}
    places = []
    for row in rows:
        column = columns.get(row, 0)
        columns[row] = column + 1
        places.append((20 + column * 260, 20 + row * 70))
    width = max((x for x, _ in places), default=0) + 260
    height = max((y for _, y in places), default=0) + 60
    lines = []
    for before, (x, y) in zip(waits, places, strict=True):
        for w in before:
            fx, fy = places[w]
            lines.append(f'<line x1="{fx + 120}" y1="{fy + 34}" x2="{x + 120}" y2="{y}" stroke="#888"/>')
    for k, (title, (x, y)) in enumerate(zip(titles, places, strict=True)):
        title = title if len(title) <= 34 else f"{title[:33]}…"
        lines.append(f'<rect x="{x}" y="{y}" width="240" height="34" rx="5" fill="#e8f0f8" stroke="#30638e"/>')
        lines.append(f'<text x="{x + 8}" y="{y + 21}">{k}: {html.escape(title)}</text>')
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12">\n{body}\n</svg>\n'
    )
