"""What the examples of this folder share: options, a clock, files, and a picture of several parts in a row."""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import slangpy_rt as spy

HERE = Path(__file__).parent


def options(about: str | None, size: int, steps: int) -> argparse.Namespace:
    """Read ``--device``, ``--size``, ``--steps`` and ``--out``."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="automatic", help="cuda, vulkan, cpu, or the best there is")
    parser.add_argument("--size", type=whole_number, default=size, help="rows and columns of a picture")
    parser.add_argument("--steps", type=whole_number, default=steps)
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    return parser.parse_args()


def whole_number(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def load(device: spy.Device, name: str) -> Any:
    """Load a Slang file of this folder."""
    return spy.Module.load_from_file(device, HERE / f"{name}.slang")


def photograph(size: int) -> np.ndarray:
    """The middle of a photograph of Chelsea the cat, by Stéfan van der Walt, CC0; colors are between 0 and 1."""
    with Image.open(HERE.parent / "cat.jpg") as picture:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.convert("RGB").crop((left, top, left + side, top + side)).resize((size, size))
        return np.asarray(picture, np.float32) / 255


def asset(package: str, *parts: str) -> Path:
    """A file of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"This example reads {'/'.join(parts)} of {package}: pip install --no-deps {package}")
    return Path(found.submodule_search_locations[0], *parts)


def save(file: Path, *parts: Any) -> None:
    """Write pictures side by side, and print the file's name; numbers below 0 are black, above 1 white."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pictures = [np.asarray(part, np.float32) for part in parts]
    row = np.concatenate([p if p.ndim == 3 else np.repeat(p[..., None], 3, axis=2) for p in pictures], axis=1)
    Image.fromarray((np.clip(row, 0, 1) * 255 + 0.5).astype(np.uint8)).save(file, quality=85)
    print(f"wrote {file}")


def save_gif(file: Path, frames: list[np.ndarray], seconds: float = 0.08, colors: int = 64) -> None:
    """Write pictures that follow each other, without an end, and print the file's name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pictures = [Image.fromarray((np.clip(frame, 0, 1) * 255 + 0.5).astype(np.uint8)) for frame in frames]
    palette = pictures[0].quantize(colors)
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    first.save(file, save_all=True, append_images=others, duration=int(1000 * seconds), loop=0)
    print(f"wrote {file}")


class Clock:
    """Measures a block, and what the device was given in it."""

    def __init__(self, device: spy.Device) -> None:
        self.device = device
        self.seconds = 0.0

    def __enter__(self) -> Clock:
        self.device.synchronize()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.device.synchronize()
        self.seconds = time.perf_counter() - self._started
