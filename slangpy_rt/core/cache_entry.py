"""One entry of the disk cache: its key, its bytes in a file, and whether that file may be trusted.

An entry is one file, ``<key>.bin``: magic, SHA-256 of all that follows, length of the header, header (JSON: key,
creation time, metadata), payload. Nothing in it is pickled or run.

Threats: entries become code in the process that reads them, so whoever can write the directory can run code. The
directory therefore belongs to the user alone, and an entry that is a link, has another owner or is writable by others
is a miss. The checksum finds damage, not forgery: a file that the user's own account forged with a valid checksum is
trusted, and so is an imported bundle. Windows keeps a user's cache private by inheritance, and modes are not checked
there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from slangpy_rt.core.errors import SlangPyRtError

Part: TypeAlias = "bytes | str | int | bool | tuple[Part, ...] | None"

_MAGIC = b"SPRTENT\x01"  # the last byte is the version of the format
_SUM_AT = len(_MAGIC)
_LENGTH_AT = _SUM_AT + hashlib.sha256().digest_size
_HEADER_AT = _LENGTH_AT + 4
# O_NOFOLLOW and O_CLOEXEC are missing on Windows, O_BINARY everywhere else.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _FLAGS
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
_HEX = frozenset("0123456789abcdef")


class Entry(NamedTuple):
    """The contents of a cache entry: ``meta`` as JSON returns it (tuples have become lists) and ``payload``."""

    meta: dict[str, Any]
    payload: bytes


class EntryInfo(NamedTuple):
    """An entry in a listing. Times are in seconds since the epoch; ``last_used`` is exact to an hour."""

    key: str
    kind: str
    nbytes: int
    created: float
    last_used: float
    meta: dict[str, Any]


class Found(NamedTuple):
    """A cache entry that was read: its time of creation, its contents, its file's bytes and its file's state."""

    created: float
    entry: Entry
    blob: bytes
    state: os.stat_result


def hashed(parts: tuple[Part, ...]) -> str:
    """Return the cache key of a sequence of parts, as ``DiskCache.key`` describes it."""
    out: list[bytes] = []
    _encode_part(parts, out)
    return hashlib.sha256(b"".join(out)).hexdigest()


def is_key(text: str) -> bool:
    """Tell whether a text has the form of a key."""
    return len(text) == 64 and _HEX.issuperset(text)


def encode(key: str, meta: dict[str, Any], payload: bytes) -> bytes:
    """Return the bytes of a cache file for an entry with the present time of creation."""
    header = json.dumps({"key": key, "created": time.time(), "meta": meta}).encode()
    body = len(header).to_bytes(4, "little") + header + payload
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(blob: bytes, key: str) -> tuple[float, Entry] | None:
    """Return creation time and entry from the bytes of a file; None unless they are a whole entry of this key."""
    if not blob.startswith(_MAGIC):
        return None
    if hashlib.sha256(memoryview(blob)[_LENGTH_AT:]).digest() != blob[_SUM_AT:_LENGTH_AT]:
        return None
    payload_at = _HEADER_AT + int.from_bytes(blob[_LENGTH_AT:_HEADER_AT], "little")
    try:
        header = json.loads(blob[_HEADER_AT:payload_at])
        created, meta = header["created"], header["meta"]
        if header["key"] == key and isinstance(created, float) and isinstance(meta, dict):
            return created, Entry(meta, blob[payload_at:])
    except (ValueError, TypeError, LookupError, RecursionError):
        pass  # a bundle may hold anything under a valid checksum
    return None


def read(path: str | Path, key: str) -> Found | None:
    """Read a cache entry from its file; None if the file is damaged or not trusted.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:  # from O_NOFOLLOW, for a link; EMFILE and others are no fault of the file's
            return None
        raise
    try:
        # Before fdopen, which raises for a directory and leaves the handle open.
        info = os.fstat(handle)
        if _untrusted(info):
            return None
        with os.fdopen(handle, "rb", 0, closefd=False) as file:
            blob = file.read()
    finally:
        os.close(handle)
    decoded = decode(blob, key)
    return decoded and Found(*decoded, blob, info)


def why_unsafe(directory: Path, info: os.stat_result) -> str:
    """Say why a path is no trusted directory: no directory, another user's, or writable by others; else empty."""
    name = f"the cache directory {str(directory)!r}"
    if not stat.S_ISDIR(info.st_mode):
        return f"{name} is a link or a file, not a directory; set SLANGPY_RT_CACHE_DIR to a private directory"
    if os.name != "nt" and info.st_uid != os.geteuid():
        return (
            f"{name} belongs to user {info.st_uid}, not to {os.geteuid()}, who runs this; "
            f"set SLANGPY_RT_CACHE_DIR to a directory of your own"
        )
    if os.name != "nt" and info.st_mode & 0o022:
        return (
            f"{name} is writable by others (mode {stat.S_IMODE(info.st_mode):04o}), who could run code "
            f"through it; empty it and set its mode to 0700"
        )
    return ""


def _untrusted(info: os.stat_result) -> bool:
    if not stat.S_ISREG(info.st_mode):
        return True
    return os.name != "nt" and (info.st_uid != os.geteuid() or bool(info.st_mode & 0o022))


def _encode_part(part: Part, out: list[bytes]) -> None:
    # The type and the length before each value make the code prefix-free: no two inputs have the same bytes.
    if part is None or isinstance(part, bool):
        out.append(b"%a;" % part)
        return
    if isinstance(part, tuple):
        out.append(b"t%d;" % len(part))
        for item in part:
            _encode_part(item, out)
        return
    if isinstance(part, str):
        tag, data = b"s", part.encode("utf-8", "surrogatepass")  # file names may hold lone surrogates
    elif isinstance(part, bytes):
        tag, data = b"b", part
    elif isinstance(part, int):
        tag, data = b"i", b"%x" % part  # in hexadecimal, because Python limits the digits of decimal texts
    else:
        raise SlangPyRtError(
            f"cache key: a part is of type {type(part).__name__}; expected bytes, str, int, bool, "
            f"None or a tuple of these. Convert it first."
        )
    out.append(b"%s%d;" % (tag, len(data)))
    out.append(data)
