"""What these examples share: options, the moments that they show, and the strip of pictures that each writes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

HERE = Path(__file__).parent
GAP = 4  # white pixels between two pictures


def parse_options(about: str | None, steps: int, size: int) -> argparse.Namespace:
    """Read the options of the command line.

    Parameters
    ----------
    about : str
        What ``--help`` says.
    steps, size : int
        The defaults.

    Returns
    -------
    argparse.Namespace
        ``device``, ``steps``, ``size``, ``out``, and ``place``: the device of PyTorch's tensors.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or cuda")
    parser.add_argument("--steps", type=int, default=steps, help="how many steps")
    parser.add_argument("--size", type=int, default=size, help="rows and columns of each picture")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder for the picture")
    found = parser.parse_args()
    found.place = torch.device("cuda" if found.device == "cuda" else "cpu")
    return found


def moments(steps: int, *shares: float) -> list[int]:
    """The steps, from 0 on, at which so large shares of the way are done. A step may be there twice."""
    return [round(share * (steps - 1)) for share in shares]


def save_strip(file: Path, *rows: Sequence[torch.Tensor]) -> None:
    """Write pictures of one size beside each other as a PNG.

    Parameters
    ----------
    file : Path
        Its folder is made if it is not there.
    *rows : sequence of torch.Tensor
        As many pictures in each row, of shape ``(rows, columns, 3)``; 0 is black and 1 white.
    """
    height, width, _ = rows[0][0].shape
    strip = torch.ones(len(rows) * (height + GAP) - GAP, len(rows[0]) * (width + GAP) - GAP, 3)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            top, left = i * (height + GAP), j * (width + GAP)
            strip[top : top + height, left : left + width] = picture.detach().cpu()
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((strip.clamp(0, 1) * 255 + 0.5).to(torch.uint8).numpy()).save(file, optimize=True)


def say(options: argparse.Namespace, seconds: float, losses: Sequence[float]) -> None:
    """Print how long the steps took, and the loss of the first and of the last."""
    print(f"{options.device}: {options.steps} steps in {seconds:.1f} s, loss {losses[0]:.3e} to {losses[-1]:.3e}")
