"""What goes over the pipes between this process and that of the compiler, and what its exit statuses mean.

Both are programs of one user, one started by the other, so values are pickled.
"""

from __future__ import annotations

import pickle
from typing import Any

# Too much of the processor's time; no use of it at all; no memory left.
SLOW, STUCK, NO_MEMORY = 80, 81, 82
_HEAD = 4


def send(stream: Any, value: Any) -> None:
    """Write a value behind its length; the stream may be one without a buffer."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    left = memoryview(len(data).to_bytes(_HEAD, "little") + data)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


def receive(stream: Any) -> Any:
    """Read a value; None at the end of the stream, as no side sends that."""
    head = _read(stream, _HEAD)
    data = _read(stream, int.from_bytes(head, "little")) if len(head) == _HEAD else b""
    return pickle.loads(data) if data else None


def _read(stream: Any, size: int) -> bytes:
    """So many bytes; none where the stream ends before."""
    data = bytearray()
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)
