"""The examples run, for few steps on small pictures: what they learn comes nearer to what they are to learn."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.depth import deep, one_in

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
GAP = 4  # between two pictures of a strip


@deep
def test_learn_image(tmp_path: Path) -> None:
    said = _run(EXAMPLES / "learn_image.py", tmp_path, "--steps", "60", "--batch", "8192")
    found = re.search(r"60 steps of 8192 samples in .* PSNR ([0-9.]+) dB", said)
    # A picture of one colour, the mean, has 15.6 dB.
    assert found and float(found[1]) > 24, said
    for name, size in (("learn_image.png", (4 * 451, 300)), ("learn_image_loss.png", (640, 360))):
        with Image.open(tmp_path / name) as picture:
            assert picture.size == size


@deep
def test_fit_shape(tmp_path: Path) -> None:
    said = _run(EXAMPLES / "fit_shape.py", tmp_path, "--steps", "40", "--size", "64")
    found = re.search(r"40 steps in .* error ([0-9.]+) to ([0-9.]+)", said)
    assert found and float(found[1]) > 0.08 and float(found[2]) < 0.005, said
    with Image.open(tmp_path / "fit_shape.png") as picture:
        assert picture.size == (5 * 64, 64)


@deep
def test_dot(tmp_path: Path) -> None:
    """The tutorial of PyTriton: product and gradients agree with PyTorch's, however the operands lie."""
    command = [sys.executable, str(EXAMPLES / "dot.py"), "--device", "cpu", "--size", "70"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    found = [float(number) for number in re.findall(r"by (\S+) of the largest", said)]
    assert len(found) == 4 and max(found) < 1e-5, said


# Each takes 5 to 8 s with nothing in the cache, most of them to compile.
SLANG_TORCH = {  # steps, size, rows of pictures, and by how much the loss falls at least
    "bezier": (60, 48, 1, 20),
    "soft_rasterizer": (30, 32, 1, 3),
    "fwd_rasterizer": (8, 32, 2, 1e4),
    "brdf": (20, 32, 3, 10),
    "inline_mlp": (30, 32, 1, 5),
}


@deep
@pytest.mark.parametrize("name", one_in(5, SLANG_TORCH))
def test_slang_torch(name: str, tmp_path: Path) -> None:
    steps, size, rows, factor = SLANG_TORCH[name]
    said = _run(EXAMPLES / "slang_torch" / f"{name}.py", tmp_path, "--steps", str(steps), "--size", str(size))
    found = re.search(rf"cpu: {steps} steps in [0-9.]+ s, loss (\S+) to (\S+)", said)
    assert found and float(found[2]) < float(found[1]) / factor, said
    with Image.open(tmp_path / f"{name}.png") as opened:
        picture = np.asarray(opened, dtype=float)
    assert picture.shape == (rows * (size + GAP) - GAP, 5 * (size + GAP) - GAP, 3)
    # The first row: how it began, twice on its way, how it ended, and what it should have become.
    strip = [picture[:size, k * (size + GAP) :][:, :size] for k in range(5)]
    assert all(part.std() > 1 for part in strip[1:])
    distances = [float(np.abs(each - strip[4]).mean()) for each in strip]
    # A curve is drawn together with its control points, which the last picture has not.
    assert name == "bezier" or distances[3] < 0.7 * distances[0], distances


# Steps, size, parts of the picture, and what the program has to print.
GALLERY = {
    "nbody": (40, 48, 4, r"energy off by (0\.00\d+)"),
    "denoise": (3, 48, 3, r"PSNR (19|20)\.\d+ to (2[5-9]|3\d)\.\d+ dB"),
    "fractal": (2, 48, 2, r"2 pictures of 48 x 48 in [0-9.]+ s, mean 0\.2\d+"),
    "waves": (400, 96, 2, r"the brightest stripe has [2-9]\.\d+ of the mean"),
    "silhouette": (60, 64, 5, r"loss 0\.[0-9]+ to 0\.0[0-4]\d+, pose off by 0\.[0-2]"),
    "develop": (1, 48, 2, r"off NumPy by [1-9]\.\de-0[78], contrast 0\.0\d+ to 0\.[2-6]\d+"),
    "sdf_fit": (60, 48, 5, r"loss (0\.1\d+) to 0\.00\d+"),
    "plasma": (150, 48, 4, r"energy off by 0\.00[01]\d, density off NumPy by [1-9]\.\de-0[67]"),
    "floor": (8, 48, 3, r"PSNR 2[01]\.\d dB without levels, 3[123]\.\d dB with them"),
    "lamp": (40, 48, 4, r"loss 0\.0\d+ to 0\.00[01]\d+, lamp off by 0\.[01]\d+"),
    "room": (60, 48, 4, r"loss 0\.0[67]\d+ to 0\.000[0-2]\d+, lamp off by 0\.[01]\d+, color by 0\.0\d+"),
    "deblur": (60, 48, 3, r"PSNR (\d+\.\d+) to (\d+\.\d+) dB"),
    "earth": (3, 48, 3, r"PSNR 3\d\.\d dB beside"),
    "motorcycle": (4, 48, 3, r"7\d% of the right photograph PSNR 2[67]\.\d dB, 13\.\d dB by the left"),
    "airplane": (150, 64, 4, r"loss 0\.0[4-9]\d+ to 0\.0000\d+, pose off by 0\.0[0-2]"),
    "repaint": (40, 48, 4, r"loss 0\.0[3-9]\d+ to 0\.000\d+, a new side (\d+\.\d) dB .*, (\d+\.\d) dB with them"),
    "material": (30, 48, 4, r"loss 0\.0[5-9]\d+ to 0\.00[2-5]\d+, a new side 2\d\.\d dB"),
}
# Packages whose files they read; of a test environment the others are part.
FILES = {"earth": "pyvista", "airplane": "pyvista"}


@pytest.mark.parametrize("name", one_in(len(GALLERY), GALLERY))
def test_gallery(name: str, tmp_path: Path) -> None:
    steps, size, parts, wanted = GALLERY[name]
    if name in FILES and importlib.util.find_spec(FILES[name]) is None:
        pytest.skip(f"{FILES[name]} is not installed: pip install --no-deps -r tests/assets.txt")
    said = _run(EXAMPLES / "gallery" / f"{name}.py", tmp_path, "--steps", str(steps), "--size", str(size))
    found = re.search(wanted, said)
    assert found, said
    assert name not in ("deblur", "repaint") or float(found[2]) > float(found[1]) + 2, said
    with Image.open(tmp_path / f"{name}.jpg") as opened:
        picture = np.asarray(opened, dtype=float)
    assert picture.shape == (size, parts * size, 3)
    assert all(picture[:, k * size :][:, :size].std() > 5 for k in range(parts))


def test_every_example_of_the_gallery_is_tested_and_shown() -> None:
    page = (EXAMPLES.parent / "gallery.md").read_text(encoding="utf-8")
    names = {file.stem for file in (EXAMPLES / "gallery").glob("*.py")} - {"common"}
    assert names == set(GALLERY)
    assert all(f"`gallery/{name}.py`" in page and f"images/{name}.jpg" in page for name in names)
    assert all(f"slang_torch/{name}.py" in page for name in SLANG_TORCH)


def _run(file: Path, folder: Path, *options: str) -> str:
    """What an example prints, that runs on the CPU and writes into a folder."""
    command = [sys.executable, str(file), "--device", "cpu", *options, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
