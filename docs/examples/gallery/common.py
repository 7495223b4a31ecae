"""What the examples of this folder share: options, a clock, and a picture of several parts in a row."""

from __future__ import annotations

import argparse
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
    parser.add_argument("--size", type=int, default=size, help="rows and columns of a picture")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    return parser.parse_args()


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


def save(file: Path, *parts: Any) -> None:
    """Write pictures side by side; numbers below 0 are black, above 1 white."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pictures = [np.asarray(part, np.float32) for part in parts]
    row = np.concatenate([p if p.ndim == 3 else np.repeat(p[..., None], 3, axis=2) for p in pictures], axis=1)
    Image.fromarray((np.clip(row, 0, 1) * 255 + 0.5).astype(np.uint8)).save(file, quality=85)


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
