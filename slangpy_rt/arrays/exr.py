"""OpenEXR files as NumPy arrays, by the package OpenEXR."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.png16 import check_size
from slangpy_rt.core.errors import UnsupportedError

Array = npt.NDArray[Any]

MARK = b"\x76\x2f\x31\x01"
# Names of an image's channels, in the order of the last dimension.
_NAMES = (("Y",), ("R", "G", "B"), ("R", "G", "B", "A"), ("Y", "A"))


def read(where: str, path: Path, most: int | None = None) -> Array:
    """Return the pixels of the data window as half or float, of shape (height, width, channels).

    Raises
    ------
    ValueError
        If the file is damaged, its channels are no image's, or it has more than ``most`` pixels.
    MemoryError
        If there is none for the pixels.
    UnsupportedError
        Without the package OpenEXR.
    """
    library = _library(where)
    # The library takes the memory of every part when it opens a file, so the sizes are read first.
    with _damage_named(), library.File(str(path), header_only=True) as file:
        # They are gone when the file is closed.
        parts = [(_names(file.header(k)), _size(file.header(k))) for k in range(len(file.parts))]
    if len(parts) != 1:
        raise ValueError(f"it has {len(parts)} parts; one was expected")
    [(names, size)] = parts
    if names not in map(set, _NAMES):
        raise ValueError(f"its channels are {', '.join(sorted(names))}; R, G and B, or Y, and A were expected")
    check_size(*size, most)
    with _damage_named(), library.File(str(path), separate_channels=True) as file:
        found = {name: np.array(channel.pixels) for name, channel in file.channels().items()}
    planes = [found[name] for name in next(order for order in _NAMES if set(order) == names) if name in found]
    if len(planes) != len(names) or len({p.shape for p in planes}) > 1 or planes[0].dtype.kind != "f":
        raise ValueError("its channels are no floats of one size")
    # A layer of halves beside one of floats becomes float.
    return np.stack(planes, axis=-1)


@contextmanager
def _damage_named() -> Iterator[None]:
    """Make a ValueError of whatever the library raises for a damaged file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"it is damaged ({' '.join(str(error).split()).rstrip('.')})") from None


def _names(header: dict[str, Any]) -> set[str]:
    return {channel.name for channel in header["channels"]}


def _size(header: dict[str, Any]) -> tuple[int, int]:
    """Return width and height of the data window."""
    (left, top), (right, bottom) = (corner.tolist() for corner in header["dataWindow"])
    return right - left + 1, bottom - top + 1


def write(where: str, path: Path, pixels: Array) -> None:
    """Write half or float pixels of shape (height, width, channels) to a file, without loss.

    Raises
    ------
    ValueError
        If the file cannot be written.
    UnsupportedError
        Without the package OpenEXR.
    """
    library = _library(where)
    names = next(names for names in _NAMES if len(names) == pixels.shape[-1])
    planes = {name: np.ascontiguousarray(pixels[..., k]) for k, name in enumerate(names)}
    header = {"compression": library.ZIP_COMPRESSION, "type": library.scanlineimage}
    try:
        with library.File(header, planes) as file:
            file.write(str(path))
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _library(where: str) -> Any:
    try:
        import OpenEXR
    except ImportError:
        raise UnsupportedError(
            f"{where}: EXR files need the package OpenEXR; install it: pip install 'slangpy_rt[images]'."
        ) from None
    return OpenEXR
