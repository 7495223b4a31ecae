"""OpenEXR files as NumPy arrays, by the package OpenEXR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.errors import UnsupportedError

Array = npt.NDArray[Any]

MARK = b"\x76\x2f\x31\x01"
# Names of an image's channels, in the order of the last dimension.
_NAMES = (("Y",), ("R", "G", "B"), ("R", "G", "B", "A"), ("Y", "A"))


def read(where: str, path: Path) -> Array:
    """Return the pixels of the data window as half or float, of shape (height, width, channels).

    Raises
    ------
    ValueError
        If the file is damaged, or its channels are no image's.
    UnsupportedError
        Without the package OpenEXR.
    """
    library = _library(where)
    try:
        with library.File(str(path), separate_channels=True) as file:
            found = {name: np.array(channel.pixels) for name, channel in file.channels().items()}
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    order = next((names for names in _NAMES if set(names) == set(found)), None)
    if order is None:
        raise ValueError(f"its channels are {', '.join(sorted(found))}; R, G and B, or Y, and A were expected")
    planes = [found[name] for name in order]
    if len({p.shape for p in planes}) > 1 or planes[0].dtype.kind != "f":
        raise ValueError("its channels are no floats of one size")
    # A layer of halves beside one of floats becomes float.
    return np.stack(planes, axis=-1)


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
