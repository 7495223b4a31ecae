"""The demo on every device there is, small; and that its checks notice wrong results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy

pytest.importorskip("skimage")
pytest.importorskip("PIL")
pytest.importorskip("rich")

from PIL import Image
from rich.console import Console

from slangpy_rt.demo import run as demo
from slangpy_rt.demo import steps
from slangpy_rt.demo.pictures import load_photograph, write_pictures
from slangpy_rt.demo.reference import (
    Array,
    reference_box_filter,
    reference_color,
    reference_escape_time,
    reference_tone_curve,
)
from slangpy_rt.demo.steps import make_steps
from slangpy_rt.tools.cli import main
from tests.depth import deep, one_in

SIZE = 64
DEVICES = [info.type for info in spy.devices() if info.available]
PICTURES = ["photograph", "tone_curve", "colour_transform", "box_filter", "render", "mandelbrot", "overview"]


@pytest.fixture(scope="module")
def photograph() -> Array:
    return load_photograph()


@deep
@pytest.mark.parametrize("name", one_in(max(1, len(DEVICES)), DEVICES))
def test_demo_on(name: str, tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    assert demo.run(SIZE, tmp_path / "out", [name], console) == 0
    text = console.export_text()
    assert text.count(" pass") == 5 and "FAIL" not in text
    assert sorted(p.stem for p in (tmp_path / "out").iterdir()) == sorted(PICTURES)
    for stem in PICTURES:
        with Image.open(tmp_path / "out" / f"{stem}.png") as image:
            # A blank picture has one colour.
            assert len(image.convert("RGB").resize((32, 32)).getcolors(1024) or ()) > 50, stem
            assert str(tmp_path / "out" / f"{stem}.png") in text


@deep
@pytest.mark.skipif(not DEVICES, reason="there is no device")
def test_a_wrong_result_fails_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "reference_escape_time", lambda size: np.roll(reference_escape_time(size), 1, axis=0))
    console = Console(record=True, width=120)
    assert demo.run(SIZE, tmp_path, DEVICES[-1:], console) == 1
    text = console.export_text()
    assert text.count(" pass") == 4 and f"FAIL {DEVICES[-1]}, Mandelbrot set: " in text


def test_check_notices_one_wrong_pixel(photograph: Array) -> None:
    step = make_steps(photograph, SIZE)[0]
    expected = step.expected()
    assert demo.check(step, expected, expected) == ("0.0e+00", "")
    for value in (1.5, np.nan):
        wrong = expected.copy()
        wrong[100, 200, 1] = value
        assert "of the pixels differ" in demo.check(step, wrong, expected)[1]
    assert "has shape" in demo.check(step, expected[:-1], expected)[1]


def test_check_allows_the_stated_fraction(photograph: Array) -> None:
    step = make_steps(photograph, SIZE)[4]
    expected = np.full((100, 100), 7, np.float32)
    expected[:50] = np.nan  # 5000 pixels count
    actual = np.full((100, 100), 7, np.float32)
    actual[:50] = 3
    actual[99, : round(5000 * step.stray)] = 9
    assert demo.check(step, actual, expected)[1] == ""
    actual[98, 0] = np.nan
    assert "of the pixels differ" in demo.check(step, actual, expected)[1]


def test_most_of_the_mandelbrot_picture_counts() -> None:
    # Were all of it left out, any device would pass.
    undecided = float(np.isnan(reference_escape_time(128)).mean())
    assert 0.05 < undecided < 0.2


def test_references_by_hand() -> None:
    light = np.array([[[0, 0.1, 1e6]]], np.float32)
    x = 0.1 * 2.6
    curve = (2.51 * x * x + 0.03 * x) / (2.43 * x * x + 0.59 * x + 0.14)
    np.testing.assert_allclose(reference_tone_curve(light), [[[0, curve, 1]]], rtol=1e-6)
    image = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    blurred = reference_box_filter(image)
    np.testing.assert_allclose(blurred[1, 1], image.mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(blurred[0, 0], image[:2, :2].mean(axis=(0, 1)), rtol=1e-6)
    grey = np.full((1, 1, 3), 0.5, np.float32)
    # Saturation leaves grey alone; what remains is the white balance.
    np.testing.assert_allclose(reference_color(grey), [[[0.65, 0.5, 0.33]]], rtol=1e-5)


def test_without_a_device_it_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(spy, "devices", list)
    assert main(["demo", "--size", "16", "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr() == (
        "",
        "demo: this machine has no device; `pip install llvmlite` brings a compiler that turns its "
        "processor into one.\n",
    )
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(spy.SlangPyRtError, match="name a writable directory with --out"):
        write_pictures(tmp_path / "file" / "out", {"photograph": np.zeros((4, 4, 3), np.float32)})
