"""PNG files of 16 bits and several channels, of which Pillow keeps 8 bits. Files that are interlaced are refused."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_MARK = b"\x89PNG\r\n\x1a\n"
# Channels by PNG's number for the kind of colour.
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
_KINDS = {channels: kind for kind, channels in _CHANNELS.items()}


def is_deep(data: bytes) -> bool:
    """Tell whether a file is a PNG of 16 bits and several channels."""
    return (
        data[:8] == _MARK and data[12:16] == b"IHDR" and len(data) > 26 and data[24] == 16 and data[25] in (2, 4, 6)
    )


def read(data: bytes) -> Array:
    """Return the pixels of a file for which ``is_deep`` holds, as uint16 of shape (height, width, channels).

    Raises
    ------
    ValueError
        If the file is damaged, interlaced, or names a transparent colour.
    """
    width, height, _, kind, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if interlaced:
        raise ValueError("it is an interlaced PNG of 16 bits; save it without interlacing")
    parts = dict[bytes, bytes]()
    at = 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        name, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        check = data[at + 8 + size : at + 12 + size]
        if check != zlib.crc32(name + content).to_bytes(4, "big"):
            raise ValueError("its check sums are wrong, so it is damaged")
        parts[name] = parts.get(name, b"") + content
        at += 12 + size
    if b"tRNS" in parts:
        raise ValueError("it names a transparent colour; save it with an alpha channel")
    pixel = 2 * _CHANNELS[kind]
    length = height * (1 + width * pixel)
    try:
        raw = zlib.decompressobj().decompress(parts.get(b"IDAT", b""), length)
    except zlib.error as error:
        raise ValueError(f"it is damaged ({error})") from None
    if len(raw) != length or not width or not height:
        raise ValueError("it is damaged: pixels are missing")
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * pixel)
    if rows[:, 0].max() > 4:
        raise ValueError("it is damaged: there is no such filter")
    found = _unfiltered(rows[:, 0], rows[:, 1:].reshape(height, width, pixel))
    return found.view(">u2").astype(np.uint16)


def write(pixels: Array) -> bytes:
    """Return a PNG file of pixels: uint16 of shape (height, width, channels)."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + 2 * width * channels), np.uint8)
    rows[:, 1:] = np.ascontiguousarray(pixels, ">u2").view(np.uint8).reshape(height, -1)
    # Differences from the row above, PNG's filter 2, take less space; the first row has zeros above it.
    rows[1:, 1:] -= rows[:-1, 1:].copy()
    rows[:, 0] = 2
    header = struct.pack(">IIBBBBB", width, height, 16, _KINDS[channels], 0, 0, 0)
    return _MARK + b"".join(
        len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
        for name, content in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    )


def _unfiltered(filters: Array, raw: Array) -> Array:
    """Return the bytes of pixels, given what each differs in from its neighbours at the left and above."""
    height, width, pixel = raw.shape
    # With a row and a column of zeros, which PNG assumes around an image.
    out = np.zeros((height + 1, width + 1, pixel), np.int16)
    # A pixel needs those at its left, above, and above at the left: diagonals are done one after the other.
    for d in range(height + width - 1):
        y = np.arange(max(0, d - width + 1), min(height, d + 1))
        x = d - y
        left, above, corner = out[y + 1, x], out[y, x + 1], out[y, x]
        kind = filters[y][:, None]
        away = [np.abs(above - corner), np.abs(left - corner), np.abs(left + above - 2 * corner)]
        nearest = np.where(
            (away[0] <= away[1]) & (away[0] <= away[2]), left, np.where(away[1] <= away[2], above, corner)
        )
        guess = np.choose(kind, [np.zeros_like(left), left, above, (left + above) >> 1, nearest])
        out[y + 1, x + 1] = (raw[y, x] + guess) & 255
    return np.ascontiguousarray(out[1:, 1:].astype(np.uint8))
