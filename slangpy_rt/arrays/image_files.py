"""Images in files as arrays: ``load_image`` and ``save_image``. PNG, JPEG and others by Pillow, EXR by OpenEXR."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays import exr, png16
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.srgb import curved, decoded, encoded
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core import checks
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.dtypes import NUMPY_OF, cast
from slangpy_rt.core.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.core.regular_file import open_regular
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, a_device

Array = npt.NDArray[Any]
# Pillow's modes whose numbers are those of the file, and the largest number of each.
_MODES = {"L": 255, "LA": 255, "RGB": 255, "RGBA": 255, "I;16": 65535, "I;16B": 65535, "F": 1}
_COLORS = ("linear", "srgb", "raw")
_FLOATS = ("half", "float")
# Twice Pillow's MAX_IMAGE_PIXELS, from where Pillow refuses images. As float4 these are 2.9 GB.
MOST_PIXELS = 178_956_970
# Suffixes of files that Pillow writes, and how many channels their pixels may have.
_WRITTEN = {
    ".png": (1, 2, 3, 4), ".jpg": (1, 3), ".jpeg": (1, 3), ".bmp": (1, 3), ".tif": (1, 3, 4), ".tiff": (1, 3, 4),
    ".webp": (3, 4), ".tga": (1, 3, 4), ".exr": (1, 2, 3, 4),
}  # fmt: skip


@checks.short_traceback
def load_image(
    device: DeviceCore,
    path: str | os.PathLike[str],
    color: str = "linear",
    channels: int | None = None,
    dtype: str = "float",
    max_pixels: int | None = MOST_PIXELS,
) -> Tensor:
    """Load an image file into a Tensor with an element for each pixel, the top row first.

    Parameters
    ----------
    device : Device
        The device that the Tensor lies on.
    path : path
        A file that Pillow reads, of 8 or 16 bits, or an EXR file. A photograph is turned as its file says.
    color : str
        What the numbers are. ``"linear"``: light, in which computations are right; numbers of 8 and 16 bits go
        through the sRGB curve. ``"srgb"``: as screens take them; those of EXR files go through the curve. ``"raw"``:
        as the file has them, such as normals or masks. Numbers of 8 and 16 bits are divided by the largest; alpha
        never goes through a curve.
    channels : int, optional
        1 to 4; by default as many as the file has. A grey image becomes one of equal channels, a missing alpha is 1,
        and alpha is left out where it is not asked for. Colours do not become grey.
    dtype : str
        ``"float"`` or ``"half"``.
    max_pixels : int, optional
        The most pixels that the file may say it has, which is checked before memory is taken for them: a file of a
        few MB can name sizes that no memory holds. None is no limit. Pillow has a limit of its own for the files
        that it reads, twice ``PIL.Image.MAX_IMAGE_PIXELS``.

    Returns
    -------
    Tensor
        Of shape (height, width), and of ``float``, ``float2`` (grey and alpha), ``float3`` or ``float4``.

    Raises
    ------
    BindError
        If the file cannot be read, is no regular file, has more than ``max_pixels``, or an argument is of a wrong
        type or out of range.
    UnsupportedError
        If the package that reads such files is not installed.
    OutOfMemoryError
        If the host or the device has no memory for the pixels.
    """
    where = "load_image"
    device = a_device(where, device)
    file = checks.path(where, "path", path)
    _check_color(where, color)
    wanted = None if channels is None else checks.whole(where, "channels", channels, 1, 4)
    if not isinstance(dtype, str) or dtype not in _FLOATS:
        raise BindError(f"{where}: dtype is {in_words(dtype)}; 'float' or 'half' was expected.")
    most = None if max_pixels is None else checks.whole(where, "max_pixels", max_pixels, 1, 2**63 - 1)
    with checks.reading(where, file), open_regular(file) as opened:
        pixels, linear = _read(where, file, opened, most)
    if color != "raw" and linear != (color == "linear"):
        pixels = curved(pixels, decoded if color == "linear" else encoded)
    if wanted is not None:
        pixels = _with_channels(where, file, pixels, wanted)
    count = pixels.shape[-1]
    numbers = pixels[..., 0] if count == 1 else pixels
    element = dtype if count == 1 else f"{dtype}{count}"
    numbers = cast(f"{where}: {in_words(str(file))}", dtype, numbers, NUMPY_OF[dtype])
    loaded: Tensor = Tensor.from_numpy(device, numbers, element)
    return loaded


@checks.short_traceback
def save_image(path: str | os.PathLike[str], image: Any, color: str = "linear", bits: int = 8) -> None:
    """Save an array as an image file, whose format the path's suffix names.

    Parameters
    ----------
    path : path
        A path that ends in ``.png``, ``.jpg``, ``.bmp``, ``.tif``, ``.webp``, ``.tga`` or ``.exr``.
    image : Tensor, NDBuffer or numpy.ndarray
        Pixels, the top row first: of shape (height, width) and of numbers or vectors, or with a last dimension of 1
        to 4 channels. Floats go through the sRGB curve and are clipped to 0 to 1, but not in an EXR file, which holds
        linear light as float or half. Integers of 8 or 16 bits are written as they are.
    color : str
        What floats are: ``"linear"`` light, ``"srgb"``, or ``"raw"``, which goes through no curve.
    bits : int
        8, or 16 for PNG, for floats.

    Raises
    ------
    BindError
        If the array is no image, holds NaN where the file cannot, or the file cannot be written.
    ShapeError
        If its shape is that of no image; for one with channels first the message has the transposition.
    UnsupportedError
        If the package that writes such files is not installed.
    """
    where = "save_image"
    file = checks.path(where, "path", path)
    suffix = file.suffix.lower()
    if suffix not in _WRITTEN:
        raise BindError(f"{where}: path is {in_words(str(file))}; it has to end in one of {', '.join(_WRITTEN)}.")
    _check_color(where, color)
    if isinstance(bits, bool) or bits not in (8, 16) or (bits == 16 and suffix != ".png"):
        raise BindError(f"{where}: bits is {in_words(bits)}; 8 was expected, or 16 for a PNG file.")
    pixels = _pixels(where, image)
    if pixels.shape[-1] not in _WRITTEN[suffix]:
        taken = " or ".join(map(str, _WRITTEN[suffix]))
        raise ShapeError(
            f"{where}: image has {pixels.shape[-1]} channels; a {suffix} file has {taken}. Leave some out: "
            "image.to_numpy()[..., :3]."
        )
    try:
        if suffix == ".exr":
            if pixels.dtype.kind != "f":
                raise BindError(f"{where}: image holds {pixels.dtype}; an EXR file holds float or half.")
            light = curved(pixels, decoded) if color == "srgb" else pixels
            scalar = "half" if pixels.dtype == np.float16 else "float"
            exr.write(where, file, cast(f"{where}: image", scalar, light, NUMPY_OF[scalar]))
            return
        file.write_bytes(_encoded(where, _codes(where, pixels, color, bits), suffix))
    except (OSError, ValueError) as error:
        if isinstance(error, BindError):
            raise
        told = getattr(error, "strerror", None) or error
        raise BindError(f"{where}: cannot write {in_words(str(file))} ({told}); name another file.") from None


def _read(where: str, file: Path, opened: BinaryIO, most: int | None) -> tuple[Array, bool]:
    """Return a file's pixels as floats of shape (height, width, channels), and whether they are linear light.

    Raises
    ------
    ValueError
        If the file is damaged, or has more than ``most`` pixels.
    """
    start = opened.read(png16.START)
    opened.seek(0)
    if start[:4] == exr.MARK:
        return exr.read(where, file, most), True
    if png16.is_deep(start):
        return png16.read(opened, most) / np.float32(65535), False
    image = _pillow(where)
    from PIL import ImageOps, UnidentifiedImageError

    try:
        with image.open(opened) as found:
            png16.check_size(found.width, found.height, most)
            picture = ImageOps.exif_transpose(found)
            if picture.mode in ("1", "P", "PA"):
                alpha = "transparency" in picture.info or picture.mode == "PA"
                picture = picture.convert("L" if picture.mode == "1" else "RGBA" if alpha else "RGB")
            mode, pixels = picture.mode, np.asarray(picture)
    except UnidentifiedImageError:
        raise ValueError("it is no image that Pillow knows") from None
    except image.DecompressionBombError:
        raise ValueError(
            f"Pillow refuses its size; set PIL.Image.MAX_IMAGE_PIXELS, now {image.MAX_IMAGE_PIXELS}, if you trust it"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise what they like for damaged files
        raise ValueError(str(error).rstrip(".") or f"Pillow raised {type(error).__name__}") from None
    if mode not in _MODES:
        raise ValueError(
            f"its pixels are of Pillow's mode {mode!r}; convert it: PIL.Image.open(path).convert('RGB').save(...)"
        )
    pixels = pixels if pixels.ndim == 3 else pixels[..., None]
    return pixels.astype(np.float32) / np.float32(_MODES[mode]), mode == "F"


def _with_channels(where: str, file: Path, pixels: Array, wanted: int) -> Array:
    """Return an image with so many channels."""
    has_alpha = pixels.shape[-1] in (2, 4)
    colors, alpha = (pixels[..., :-1], pixels[..., -1:]) if has_alpha else (pixels, np.ones_like(pixels[..., :1]))
    count = 1 if wanted < 3 else 3
    if colors.shape[-1] > count:
        raise BindError(
            f"{where}: channels is {wanted}, and {in_words(str(file))} has colours; 3 or 4 was expected. Weigh them "
            "into grey yourself."
        )
    colors = np.broadcast_to(colors, (*pixels.shape[:2], count))
    return np.concatenate([colors, alpha], axis=-1) if wanted in (2, 4) else colors


def _pixels(where: str, image: Any) -> Array:
    """Return an image on the host, of shape (height, width, channels)."""
    if isinstance(image, NDBuffer):
        words = image.summary
        array = np.asarray(image.to_numpy())
    elif isinstance(image, np.ndarray) or hasattr(image, "__array__"):
        array = as_array(f"{where}: image", image)
        words = f"an array of shape {array.shape}"
    else:
        raise BindError(f"{where}: image is {in_words(image)}; a Tensor or an array of NumPy was expected.")
    if (
        array.dtype.kind not in "fu"
        or array.dtype.names is not None
        or array.dtype.itemsize > 2 + 6 * (array.dtype.kind == "f")
    ):
        raise BindError(
            f"{where}: image is {words} of {array.dtype}; float, half, double, uint8_t or uint16_t was expected."
        )
    shape = array.shape
    if len(shape) == 3 and shape[0] in (1, 3, 4) and shape[2] > 4:
        raise ShapeError(
            f"{where}: image is {words}, with channels first; move them to the end: "
            "numpy.moveaxis(image.to_numpy(), 0, -1)."
        )
    if len(shape) not in (2, 3) or (len(shape) == 3 and not 1 <= shape[2] <= 4) or 0 in shape:
        raise ShapeError(
            f"{where}: image is {words}; shape (height, width), or (height, width, channels) with 1 to 4 channels, "
            "was expected."
        )
    return array if len(shape) == 3 else array[..., None]


def _codes(where: str, pixels: Array, color: str, bits: int) -> Array:
    """Return pixels as the integers of a file."""
    if pixels.dtype.kind == "u":
        return pixels
    lost = ~(np.abs(pixels) <= np.inf) if pixels.dtype.kind == "f" else np.zeros(1, bool)
    if lost.any():
        place = tuple(int(k) for k in np.argwhere(lost)[0][:2])
        raise BindError(f"{where}: image holds NaN, first at {place}; an EXR file can hold it, others cannot.")
    clipped = np.clip(pixels.astype(np.float64), 0, 1)
    shown = curved(clipped, encoded) if color == "linear" else clipped
    most = 255 if bits == 8 else 65535
    return (shown * most + 0.5).astype(np.uint8 if bits == 8 else np.uint16)


def _encoded(where: str, codes: Array, suffix: str) -> bytes:
    """Return an image file of integers."""
    if codes.dtype == np.uint16:
        if suffix != ".png":
            raise BindError(f"{where}: image holds integers of 16 bits; a PNG file can hold them, a {suffix} cannot.")
        return png16.write(codes)
    image = _pillow(where)
    out = BytesIO()
    kind = image.registered_extensions()[suffix]
    options = {"quality": 95} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    picture = image.fromarray(np.ascontiguousarray(codes[..., 0] if codes.shape[-1] == 1 else codes))
    picture.save(out, kind, **options)
    return out.getvalue()


def _check_color(where: str, color: Any) -> None:
    if not isinstance(color, str) or color not in _COLORS:
        raise BindError(f"{where}: color is {in_words(color)}; 'linear', 'srgb' or 'raw' was expected.")


def _pillow(where: str) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            f"{where}: such files need the package Pillow; install it: pip install 'slangpy_rt[images]'."
        ) from None
    return Image
