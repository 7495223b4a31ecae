"""Output of kernels for the host: lines of ``printf``, and accesses outside of arrays on a debug device.

A device has one buffer for both, whose words shaders/diagnostics.slang describes. It is read when the host waits for
the device. Nothing here knows Slang or how a call was made. Lines for which it has no room are counted and lost.
"""

from __future__ import annotations

import re
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.backends.base import Backend, Buffer, Kernel
from slangpy_rt.core.errors import OutOfBoundsError, UnsupportedError

# The numbers of shaders/diagnostics.slang. Before the first record there is room for an access in 120 dimensions, and
# for an element of 32 bytes that nobody reads.
WORDS = 1 << 18
_FIRST = 256
_END, _LOST, _OUTSIDE, _WRITES, _ARRAY, _RANK, _INDEX = 0, 1, 2, 3, 4, 6, 8
# By the kind of a value: its format code in ``struct``, its bits, and its number of 32-bit words.
_KINDS = (("I", 32, 1), ("i", 32, 1), ("f", 32, 1), ("Q", 64, 2), ("q", 64, 2), ("d", 64, 2), ("I", 0, 1))

Launch = Callable[[Kernel, tuple[int, int, int], bytes, Sequence[Buffer]], None]


class Diagnostics:
    """The buffer of one device, allocated when a kernel first needs it.

    Attributes
    ----------
    pending : bool
        Whether a kernel that may write lines was launched since ``flush``. Whoever sets it to true holds ``lock``.
    lock : threading.RLock
        Held while lines are printed, and from a launch to ``flush`` where that follows at once.
    muted : weakref.WeakSet
        Objects for whose lifetime lines are dropped, those of all kernels.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._buffer: Buffer | None = None
        self._strings: dict[int, str] = {}
        self.pending = False
        self.lock = threading.RLock()
        self.muted: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def buffer(self) -> Buffer:
        """The buffer that kernels write their lines to.

        Raises
        ------
        OutOfMemoryError
            If the device has no memory for it.
        """
        with self.lock:
            if self._buffer is None:
                buffer = self._backend.alloc(4 * WORDS)
                self._reset(buffer)
                self._buffer = buffer
            return self._buffer

    def learn(self, strings: Sequence[tuple[int, str]]) -> None:
        """Add the strings that a kernel names by their hashes.

        Raises
        ------
        UnsupportedError
            If two different ones have the same hash.
        """
        for number, text in strings:
            known = self._strings.setdefault(number, text)
            if known != text:
                raise UnsupportedError(
                    f"printf: Slang gives the strings {known!r} and {text!r} the same number; change one of them."
                )

    def flush(self) -> Outside | None:
        """Wait for the kernels launched so far and print their lines on ``sys.stdout``.

        Returns
        -------
        Outside or None
            The first access outside of an array since the last look.
        """
        with self.lock:
            if not self.pending:
                return None
            self.pending = False
            # Kernels of other queues write to the buffer too.
            self._backend.sync_all()
            buffer = self.buffer
            head = np.empty(_FIRST, np.uint32)
            self._backend.download(buffer, 0, head.data)
            end, lost = min(int(head[_END]), WORDS), int(head[_LOST])
            outside = Outside(head) if head[_OUTSIDE] else None
            lines: list[str] = []
            if end > _FIRST:
                records = np.empty(end - _FIRST, np.uint32)
                self._backend.download(buffer, 4 * _FIRST, records.data)
                lines += _lines(records, self._strings)
            if lost:
                kept = f"a device keeps {4 * WORDS >> 20} MiB of them until it waits"
                lines.append(f"... {lost} more lines lost: {kept}\n")
            if lines or outside:
                self._reset(buffer)
            if lines and sys.stdout is not None and not self.muted:
                sys.stdout.write("".join(lines))
            return outside

    def _reset(self, buffer: Buffer) -> None:
        self._backend.upload(buffer, 0, np.array([_FIRST, 0, 0], np.uint32).data)


class Launcher:
    """Launches a kernel that may print or that checks its accesses.

    Parameters
    ----------
    title : str
        The function, for the message.
    arrays : tuple of Checked
        The arrays whose accesses are checked.
    wait : bool
        Whether to print at once, because nothing later waits for the device.
    """

    def __init__(
        self,
        diagnostics: Diagnostics,
        title: str,
        arrays: tuple[Checked, ...],
        wait: bool,
    ) -> None:
        self._diagnostics = diagnostics
        self._title = title
        self._arrays = arrays
        self._wait = wait

    def launch(
        self, launch: Launch, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]
    ) -> None:
        """Launch the kernel by a function with the parameters of ``Queue.launch``.

        Raises
        ------
        OutOfBoundsError
            If it checks and reached outside of an array.
        """
        diagnostics = self._diagnostics
        with diagnostics.lock:
            diagnostics.pending = True
            launch(kernel, groups, args, (*buffers, diagnostics.buffer))
            outside = diagnostics.flush() if self._wait or self._arrays else None
        if outside is not None:
            raise OutOfBoundsError(f"{self._title}: {self._describe(outside, args)}")

    def with_buffer(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Return buffers and that of the diagnostics, for a launch that does not come through ``launch``."""
        return (*buffers, self._diagnostics.buffer)

    @staticmethod
    def around(launchers: Sequence[tuple[Launcher, bytes]], work: Callable[[], None]) -> None:
        """Run a function that launches the kernels of several launchers, each with its arguments.

        Raises
        ------
        OutOfBoundsError
            As a call does.
        """
        first = launchers[0][0]
        diagnostics = first._diagnostics
        with diagnostics.lock:
            diagnostics.pending = True
            work()
            checks = any(launcher._arrays for launcher, _ in launchers)
            outside = diagnostics.flush() if first._wait or checks else None
        if outside is not None:
            found = next(((x, a) for x, a in launchers if x._same(outside, a)), launchers[0])
            raise OutOfBoundsError(f"{found[0]._title}: {found[0]._describe(outside, found[1])}")

    def _same(self, outside: Outside, args: bytes) -> list[str]:
        return [
            f"'{a.name}'"
            for a in self._arrays
            if a.shape[: len(outside.shape)] == outside.shape
            and a.first <= outside.address - struct.unpack_from("<Q", args, a.offset)[0] <= a.last
        ]

    def _describe(self, outside: Outside, args: bytes) -> str:
        same = self._same(outside, args)
        who = f"argument {' or '.join(same)}" if same else "an array made in the function,"
        more = f", one of {outside.count} such accesses" if outside.count > 1 else ""
        return (
            f"{who} of shape {outside.shape} was {'written' if outside.writes else 'read'} at {outside.index}, "
            f"which is outside{more}. Let the function compare its indices with the array's shape."
        )


class Checked(NamedTuple):
    """An array whose accesses are checked.

    Attributes
    ----------
    shape : tuple of int
        The shape of what one element of the call accesses. An access may have fewer dimensions, the first ones.
    offset : int
        Byte of the argument block at which its address is.
    first, last : int
        Bytes from this address to the first and to the last element's part of the array.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    first: int
    last: int


class Outside:
    """An access outside of an array.

    Attributes
    ----------
    count : int
        The number of accesses outside. The other attributes describe the first.
    writes : bool
        Whether it was a write.
    address : int
        The address of the array's first element.
    index, shape : tuple of int
        As in NumPy, the last dimension last.
    """

    def __init__(self, head: npt.NDArray[np.uint32]) -> None:
        rank = int(head[_RANK])
        self.count = int(head[_OUTSIDE])
        self.writes = bool(head[_WRITES])
        self.address = int(head[_ARRAY]) | int(head[_ARRAY + 1]) << 32
        self.index = tuple(head[_INDEX : _INDEX + rank].view(np.int32).tolist())
        self.shape = tuple(head[_INDEX + rank : _INDEX + 2 * rank].view(np.int32).tolist())


def format_line(text: str, values: Sequence[tuple[int | float | str, int]]) -> str:
    """Return a format text of C with its values filled in.

    Parameters
    ----------
    text : str
        ``%d %i %u %x %X %o %c %f %e %g %s %%`` with flags, width and precision. C's lengths, as in ``%ld``, are
        skipped, since the size of each value is known.
    values : sequence of (value, bits)
        Each value with its size in bits. ``%u``, ``%x``, ``%o`` and ``%c`` show the bits of a negative integer.

    Returns
    -------
    str
        The text. A conversion without a value stays as it is; values without a conversion are left out. A string is
        written whatever its conversion is, and a float whose conversion is of another type is written as by ``%g``.
    """
    rest = iter(values)

    def fill(match: re.Match[str]) -> str:
        options, kind = _WIDE.sub(_MOST, match[1]), match[2]
        if kind == "%":
            return "%"
        value, bits = next(rest, (None, 0))
        if value is None:
            return match[0]
        if isinstance(value, str):
            kind = "s"
        elif isinstance(value, float) and kind not in "eEfFgG":
            kind = "g"
        elif isinstance(value, int) and kind in "uxXoc":
            value %= 1 << (8 if kind == "c" else bits)
            kind = "d" if kind == "u" else kind
        filled: str = f"%{options}{kind}" % value
        return filled

    return _CONVERSION.sub(fill, text)


# C guarantees 4095 characters for one conversion; Python has no limit of a width such as %999999999d.
_MOST = "4095"
_WIDE = re.compile(r"[1-9]\d{4,}|[5-9]\d{3}|4[1-9]\d\d|409[6-9]")
_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d*)?)(?:hh|h|ll|l|L|z|j|t)?([diuxXofFeEgGcs%])")


def _lines(words: npt.NDArray[np.uint32], strings: dict[int, str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        size = int(words[at])
        if size < 2 or at + size > len(words):
            break  # this record had no room, nor had those behind it
        text = strings.get(int(words[at + 1]), "")
        yield format_line(text, list(_values(words[at + 2 : at + size], strings)))
        at += size


def _values(words: npt.NDArray[np.uint32], strings: dict[int, str]) -> Iterator[tuple[int | float | str, int]]:
    data, at = words.tobytes(), 0
    while at < len(data):
        kind = struct.unpack_from("<I", data, at)[0]
        code, bits, size = _KINDS[kind]
        value = struct.unpack_from(f"<{code}", data, at + 4)[0]
        yield (value, bits) if bits else (strings.get(value, ""), 0)
        at += 4 + 4 * size
