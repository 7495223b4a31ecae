"""Messages over the pipes to and from a child process that compiles, and the exit statuses of that process.

Values are pickled, which is safe only because one of the two processes started the other, for the same user.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

# Exit statuses: a request took too much processor time; it waited without using any; there was no memory left.
SLOW, STUCK, NO_MEMORY = 80, 81, 82
# The size of a message's length in bytes.
_HEAD = 4


def send(stream: Any, value: Any) -> None:
    """Write a pickled value to a stream, preceded by its length.

    The stream may be unbuffered; ``write`` then may accept a part of the data only, and is called again.
    """
    packed = io.BytesIO()
    _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(value)
    data = packed.getvalue()
    left = memoryview(len(data).to_bytes(_HEAD, "little") + data)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


class _Pickler(pickle.Pickler):
    """A pickler that writes an instance of a subclass of ``str`` as ``str``, as the reader may lack the subclass."""

    def reducer_override(self, obj: Any) -> Any:
        return (str, (str.__str__(obj),)) if isinstance(obj, str) else NotImplemented


def receive(stream: Any) -> Any:
    """Return the next value of a stream, or None at its end; None itself is never sent."""
    head = _read(stream, _HEAD)
    data = _read(stream, int.from_bytes(head, "little")) if len(head) == _HEAD else b""
    return pickle.loads(data) if data else None


def _read(stream: Any, size: int) -> bytes:
    """Return the next `size` bytes of a stream, or no bytes if it ends before."""
    data = bytearray()
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)
