"""The demo's pictures: the photograph that it starts from, and PNG files of its results.

It computes nothing but the sRGB curve, and downloads nothing: the photograph comes with scikit-image.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import skimage.data
from PIL import Image, ImageDraw, ImageFont

from slangpy_rt.core.errors import SlangPyRtError
from slangpy_rt.demo.reference import Array
from slangpy_rt.demo.steps import PASSES

_TILE = (640, 427)
_GAP = 12
_CAPTION = 44
_PAPER = (18, 19, 23)


def load_photograph() -> Array:
    """Return a photograph of a launch pad at dusk, in linear light: by SpaceX, in the public domain."""
    photograph: npt.NDArray[np.uint8] = skimage.data.rocket()  # type: ignore[no-untyped-call]
    encoded = photograph / np.float32(255)
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return np.ascontiguousarray(linear, np.float32)


def write_pictures(out: Path, pictures: dict[str, Array]) -> list[Path]:
    """Write each picture and the overview as PNG files.

    Raises
    ------
    SlangPyRtError
        If the disk refuses.
    """
    images = {name: Image.fromarray(_encode(picture)) for name, picture in pictures.items()}
    images["overview"] = _overview(images)
    files = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, image in images.items():
            files.append(out / f"{name}.png")
            image.save(files[-1])
    except OSError as error:
        raise SlangPyRtError(
            f"demo: cannot write pictures to {str(out)!r}; name a writable directory with --out.\n{error}"
        ) from error
    return files


def _encode(linear: Array) -> npt.NDArray[np.uint8]:
    """Return a picture in linear light as the bytes of an sRGB picture."""
    x: Array = np.clip(linear, 0, 1)
    curve: Array = np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)
    return np.rint(curve * 255).astype(np.uint8)


def _overview(images: dict[str, Image.Image]) -> Image.Image:
    """Put all pictures into one, with captions."""
    captions = {
        "photograph": "the photograph",
        "tone_curve": "tone curve",
        "colour_transform": "colour transform",
        "box_filter": f"3x3 box filter, {PASSES} passes",
        "render": "sphere tracing",
        "mandelbrot": "Mandelbrot set",
    }
    cell = (_TILE[0] + _GAP, _TILE[1] + _CAPTION)
    page = Image.new("RGB", (3 * cell[0] + _GAP, 2 * cell[1] + _GAP), _PAPER)
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(22)
    for k, (name, caption) in enumerate(captions.items()):
        if name in images:
            x, y = _GAP + k % 3 * cell[0], _GAP + k // 3 * cell[1]
            page.paste(_tile(images[name]), (x, y))
            draw.text((x + 2, y + _TILE[1] + 8), caption, (205, 207, 212), font)
    return page


def _tile(image: Image.Image) -> Image.Image:
    """Cut the middle of a picture to a tile's proportions and size."""
    width, height = image.size
    scale = max(_TILE[0] / width, _TILE[1] / height)
    w, h = _TILE[0] / scale, _TILE[1] / scale
    box = ((width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2)
    return image.resize(_TILE, Image.Resampling.LANCZOS, box)
