"""Messages over the pipes to and from the compiler's process, and the exit statuses of that process.

Values are pickled. That is safe between these two processes alone: one has started the other, for the same user.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

# Exit statuses: a request took too much processor time; it waited without using any; there was no memory left.
SLOW, STUCK, NO_MEMORY = 80, 81, 82
_HEAD = 4


def send(stream: Any, value: Any) -> None:
    """Write a value with its length before it; the stream may be unbuffered, and so write less than it is given."""
    packed = io.BytesIO()
    _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(value)
    data = packed.getvalue()
    left = memoryview(len(data).to_bytes(_HEAD, "little") + data)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


class _Pickler(pickle.Pickler):
    """A pickler that makes texts of classes derived from ``str`` plain: the other process knows no such class."""

    def reducer_override(self, obj: Any) -> Any:
        return (str, (str.__str__(obj),)) if isinstance(obj, str) else NotImplemented


def receive(stream: Any) -> Any:
    """Read a value; None at the end of the stream, because None is never sent."""
    head = _read(stream, _HEAD)
    data = _read(stream, int.from_bytes(head, "little")) if len(head) == _HEAD else b""
    return pickle.loads(data) if data else None


def _read(stream: Any, size: int) -> bytes:
    """Read ``size`` bytes; return none if the stream ends before."""
    data = bytearray()
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)
