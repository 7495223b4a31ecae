"""PNG files of 16 bits and several channels, of which Pillow keeps 8 bits. Files that are interlaced are refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_MARK = b"\x89PNG\r\n\x1a\n"
# Channels by PNG's number for the kind of colour.
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
_KINDS = {channels: kind for kind, channels in _CHANNELS.items()}


# Bytes of a file's beginning that say what it is: the mark, and the header's chunk up to its content's end.
START = 29
# Bytes that are read at once: chunks may name any length.
_PIECE = 1 << 20


def is_deep(start: bytes) -> bool:
    """Tell whether a file that begins so is a PNG of 16 bits and several channels."""
    return (
        len(start) == START
        and start[:8] == _MARK
        and start[12:16] == b"IHDR"
        and start[24] == 16
        and start[25] in (2, 4, 6)
    )


def check_size(width: int, height: int, most: int | None) -> None:
    """Refuse sizes of images above a limit.

    Raises
    ------
    ValueError
        If there are more pixels than ``most``; None is no limit.
    """
    many = width * height
    if most is not None and many > most:
        raise ValueError(
            f"it has {width} x {height} pixels, and the limit is {most}; pass max_pixels={many} if you trust it"
        )


def read(file: BinaryIO, most: int | None = None) -> Array:
    """Return the pixels of a file for which ``is_deep`` holds, as uint16 of shape (height, width, channels).

    The file's chunks are read and decompressed in pieces, so that it takes the memory of its pixels, whatever it says
    of the lengths of chunks.

    Raises
    ------
    ValueError
        If the file is damaged, interlaced, names a transparent colour, or has more than ``most`` pixels.
    """
    start = file.read(START)
    width, height, _, kind, packing, filtering, interlaced = struct.unpack(">IIBBBBB", start[16:])
    if interlaced:
        raise ValueError("it is an interlaced PNG of 16 bits; save it without interlacing")
    if packing or filtering or start[8:12] != b"\0\0\0\x0d" or not width or not height:
        raise ValueError("it is damaged: no PNG has such a header")
    check_size(width, height, most)
    pixel = 2 * _CHANNELS[kind]
    length = height * (1 + width * pixel)
    raw = bytearray()
    packed = zlib.decompressobj()
    file.seek(len(_MARK))
    for name, piece in _pieces(file):
        if name == b"tRNS":
            raise ValueError("it names a transparent colour; save it with an alpha channel")
        if name == b"IDAT" and len(raw) < length:
            try:
                raw += packed.decompress(piece, length - len(raw))
            except zlib.error as error:
                raise ValueError(f"it is damaged ({error})") from None
    if len(raw) != length:
        raise ValueError("it is damaged: pixels are missing")
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * pixel)
    if rows[:, 0].max() > 4:
        raise ValueError("it is damaged: there is no such filter")
    found = _unfiltered(rows[:, 0], rows[:, 1:].reshape(height, width, pixel))
    return found.view(">u2").astype(np.uint16)


def _pieces(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the contents of all chunks up to the last, as the chunk's name and a piece of at most 1 MiB."""
    name = b""
    while name != b"IEND":
        head = file.read(8)
        if len(head) < 8:
            raise ValueError("it is damaged: it breaks off")
        left, name = int.from_bytes(head[:4], "big"), head[4:]
        check = zlib.crc32(name)
        while True:
            piece = file.read(min(left, _PIECE))
            left -= len(piece)
            check = zlib.crc32(piece, check)
            if left and not piece:
                raise ValueError("it is damaged: it breaks off")
            if not left and file.read(4) != check.to_bytes(4, "big"):
                raise ValueError("its check sums are wrong, so it is damaged")
            yield name, piece
            if not left:
                break


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
    out = np.zeros((height + 1, width + 1, pixel), np.uint8)
    # A pixel needs those at its left, above, and above at the left: diagonals are done one after the other.
    for d in range(height + width - 1):
        y = np.arange(max(0, d - width + 1), min(height, d + 1))
        x = d - y
        left, above, corner = (part.astype(np.int16) for part in (out[y + 1, x], out[y, x + 1], out[y, x]))
        kind = filters[y][:, None]
        away = [np.abs(above - corner), np.abs(left - corner), np.abs(left + above - 2 * corner)]
        nearest = np.where(
            (away[0] <= away[1]) & (away[0] <= away[2]), left, np.where(away[1] <= away[2], above, corner)
        )
        guess = np.choose(kind, [np.zeros_like(left), left, above, (left + above) >> 1, nearest])
        out[y + 1, x + 1] = (raw[y, x] + guess) & 255
    return np.ascontiguousarray(out[1:, 1:])
