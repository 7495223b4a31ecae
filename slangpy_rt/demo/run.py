"""The demo: a photograph and two rendered pictures, on every device, each checked against NumPy.

Every check compares a device's result with an implementation written a second time here, which shares no
text with ``demo.slang``. This module needs the packages of the ``demo`` extra; it downloads nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import skimage.data
from PIL import Image, ImageDraw, ImageFont
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

import slangpy_rt as spy
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import SlangPyRtError, UnsupportedError

Array = npt.NDArray[np.float32]
Points = npt.NDArray[np.float64]  # one number, or rows of three, a point

# Rec. 709 weights of brightness; saturation 1.2 around them, then a warmer white.
_WEIGHTS = np.array([0.2126, 0.7152, 0.0722])
_GRADE = (np.diag([1.30, 1.0, 0.66]) @ (1.2 * np.eye(3) - 0.2 * np.outer(np.ones(3), _WEIGHTS))).astype(np.float32)
_EXPOSURE = np.float32(2.6)
_CENTER = (-0.74364, 0.13183)
_WIDTH = 0.014
_LIMIT = 400
_PASSES = 24  # one 3x3 pass hardly shows in a picture; so many blur by four pixels

# The render's reference looks at every fourth row and column: a whole megapixel takes NumPy seven seconds.
_EVERY = 4

# Warm runs of a step: the median of so many, or of as many as fit into this time.
_RUNS = 9
_SECONDS = 2.0

_TILE = (640, 427)
_GAP = 12
_CAPTION = 44
_PAPER = (18, 19, 23)


@dataclass(frozen=True)
class Step:
    """One function of ``demo.slang``, what it is called with and what it has to return.

    Attributes
    ----------
    inputs : tuple of ndarray
        Copied to the device before the clock starts.
    call : callable
        ``call(module, *tensors)`` runs it.
    expected : callable
        The same by NumPy; NaN where any result will do.
    every : int
        ``expected`` has every so many rows and columns.
    tolerance : float
        Largest error of a pixel that is right.
    stray : float
        Fraction of pixels that may be wrong, among those with an expected value.
    """

    name: str
    title: str
    inputs: tuple[Array, ...]
    call: Callable[..., spy.Tensor]
    expected: Callable[[], Array]
    tolerance: float
    stray: float = 0.0
    every: int = 1


@dataclass(frozen=True)
class Outcome:
    """A row of the table; times in milliseconds. ``fault`` says what is wrong, empty if nothing is."""

    device: str
    step: str
    cold: float = 0.0
    warm: float = 0.0
    pixels: int = 0
    error: str = ""
    fault: str = ""


def run(size: int, out: Path, names: Sequence[str] | None, console: Console | None = None) -> int:
    """Run the demo, print its table and write its pictures.

    Parameters
    ----------
    size : int
        Width and height of the rendered pictures in pixels.
    out : Path
        Directory for the pictures; made if it does not exist.
    names : sequence of str, optional
        Devices to run on; all that are there if None.

    Returns
    -------
    int
        0, or 1 if a result is wrong.

    Raises
    ------
    UnsupportedError
        If there is no device, or a named one cannot be opened.
    """
    console = console or Console()
    names = names or [info.type for info in spy.devices() if info.available]
    if not names:
        raise UnsupportedError(
            "demo: this machine has no device; `pip install ziglang` brings a compiler that turns its "
            "processor into one."
        )
    opened = [spy.Device(name) for name in names]
    outcomes: list[Outcome] = []
    pictures: dict[str, Array] = {}
    bar = Progress(TextColumn("{task.description}"), BarColumn(), console=console, transient=True)
    with bar as progress:
        photograph = load_photograph()
        steps = make_steps(photograph, size)
        task = progress.add_task("NumPy", total=len(steps) * (1 + len(opened)))
        expected = {}
        for step in steps:
            progress.update(task, description=f"NumPy: {step.title}")
            expected[step.name] = step.expected()
            progress.advance(task)
        for device in opened:
            with device:
                # Cold means compiled now: neither found in the cache nor left in it.
                device.cache = DiskCache(None, 0)
                module = spy.Module.load_from_file(device, Path(__file__).with_name("demo.slang"))
                for step in steps:
                    progress.update(task, description=f"{device.name}: {step.title}")
                    outcome, result = measure(device, module, step, expected[step.name])
                    outcomes.append(outcome)
                    if result is not None and not outcome.fault and step.name not in pictures:
                        pictures[step.name] = develop(module, step.name, result)
                    progress.advance(task)
    files = write_pictures(out, {"photograph": photograph, **pictures})
    console.print(table(outcomes))
    notes = [
        "cold: the first call, compilation included; warm: the median of the next; MP: megapixels",
        "a percentage: so many pixels are off by more than the number after it",
    ]
    for step in steps:
        undecided = np.isnan(expected[step.name]).mean()
        if undecided:
            notes.append(f"{step.title}: {undecided:.0%} of the pixels hang on rounding and are left out")
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)
    for device in opened:
        console.print(f"{device.name}: {device.info}", highlight=False, markup=False, soft_wrap=True)
    console.print("wrote " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    faults = [o for o in outcomes if o.fault]
    for o in faults:
        console.print(f"FAIL {o.device}, {o.step}: {o.fault}", highlight=False, markup=False, soft_wrap=True)
    return 1 if faults else 0


def make_steps(photograph: Array, size: int) -> list[Step]:
    """The steps on a photograph in linear light; each takes what NumPy made of the one before."""
    toned = reference_tone_curve(photograph)
    graded = reference_color(toned)
    pixels = spy.grid((size, size))
    return [
        Step(
            "tone_curve",
            "tone curve",
            (photograph,),
            lambda module, image: module.tone_curve(image, _EXPOSURE),
            lambda: toned,
            2e-6,
        ),
        Step(
            "colour_transform",
            "colour transform",
            (toned,),
            lambda module, image: module.transform_color(image, _GRADE),
            lambda: graded,
            2e-6,
        ),
        Step(
            "box_filter",
            "3x3 box filter",
            (graded,),
            lambda module, image: module.box_filter(image, spy.grid(image.shape[:2])),
            lambda: reference_box_filter(graded),
            2e-6,
        ),
        # A ray that just hits or just misses an edge may do the other under another order of rounding.
        Step(
            "render",
            "sphere tracing",
            (),
            lambda module: module.render(pixels, size),
            lambda: reference_render(size, _EVERY),
            1 / 255,
            0.005,
            _EVERY,
        ),
        Step(
            "mandelbrot",
            "Mandelbrot set",
            (),
            lambda module: module.escape_time(pixels, size, _CENTER, _WIDTH, _LIMIT),
            lambda: reference_escape_time(size),
            0.5,
            0.002,
        ),
    ]


def measure(device: spy.Device, module: spy.Module, step: Step, expected: Array) -> tuple[Outcome, spy.Tensor | None]:
    """Run a step cold, then warm, and check it; its result is None if it could not run."""
    try:
        tensors = [spy.Tensor.from_numpy(device, array) for array in step.inputs]
        device.synchronize()
        cold, result = _timed(device, module, step, tensors)
        times: list[float] = []
        while len(times) < _RUNS and sum(times) < _SECONDS * 1e3:
            times.append(_timed(device, module, step, tensors)[0])
        actual = result.to_numpy()
    except SlangPyRtError as error:
        return Outcome(device.name, step.title, fault=str(error)), None
    shape = actual.shape[:2]
    error_text, fault = check(step, actual[:: step.every, :: step.every], expected)
    warm = statistics.median(times)
    return Outcome(device.name, step.title, cold, warm, shape[0] * shape[1], error_text, fault), result


def check(step: Step, actual: npt.NDArray[Any], expected: Array) -> tuple[str, str]:
    """What to say of the error, and of what is wrong; the latter empty if nothing is."""
    if actual.shape != expected.shape:
        return "", f"the result has shape {actual.shape}; {expected.shape} was expected"
    error = np.abs(actual.astype(np.float64) - expected)
    error = error.reshape(*error.shape[:2], -1).max(axis=2)
    error = error[~np.isnan(expected.reshape(*error.shape, -1)).any(axis=2)]
    # Written so that NaN is wrong.
    wrong = np.count_nonzero(~(error <= step.tolerance)) / error.size
    text = f"{error.max():.1e}" if not step.stray else f"{wrong:.2%} > {step.tolerance:.1g}"
    if wrong <= step.stray:
        return text, ""
    return text, (
        f"{wrong:.2%} of the pixels differ from NumPy by more than {step.tolerance:.2g}, the largest by "
        f"{error.max():.3g}; at most {step.stray:.2%} may"
    )


def load_photograph() -> Array:
    """A launch pad at dusk, in linear light: a photograph by SpaceX, in the public domain."""
    photograph: npt.NDArray[np.uint8] = skimage.data.rocket()  # type: ignore[no-untyped-call]
    encoded = photograph / np.float32(255)
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return np.ascontiguousarray(linear, np.float32)


def reference_tone_curve(light: Array) -> Array:
    """The tone curve by NumPy."""
    x = light.astype(np.float64) * float(_EXPOSURE)
    curve = (2.51 * x**2 + 0.03 * x) / (2.43 * x**2 + 0.59 * x + 0.14)
    return np.clip(curve, 0, 1).astype(np.float32)


def reference_color(color: Array) -> Array:
    """The colour transform by NumPy."""
    graded: Array = np.clip(np.einsum("rc,ijc->ijr", _GRADE, color), 0, 1)
    return graded


def reference_box_filter(image: Array) -> Array:
    """The box filter by NumPy: shifted copies of a padded image, over as many ones."""

    def shifted_sum(values: Points) -> Points:
        padded = np.pad(values, ((1, 1), (1, 1), (0, 0)))
        rows = padded[:-2] + padded[1:-1] + padded[2:]
        return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]

    ones = np.ones((*image.shape[:2], 1))
    return (shifted_sum(image.astype(np.float64)) / shifted_sum(ones)).astype(np.float32)


def reference_escape_time(size: int) -> Array:
    """The Mandelbrot set by NumPy; NaN where the last bits of the arithmetic decide the answer.

    The derivative of an orbit by its point says how far rounding carries it: near the set it does so beyond
    bounds, and devices round differently, because some fuse a multiplication with an addition.
    """
    offsets = (np.arange(size, dtype=np.float32) + np.float32(0.5 - 0.5 * size)) * np.float32(_WIDTH / size)
    across = (np.float32(_CENTER[0]) + offsets).astype(np.float64)
    down = (np.float32(_CENTER[1]) + offsets).astype(np.float64)
    out = np.full(size * size, _LIMIT, np.float32)
    rows = 32  # 32 rows of 1024 keep the working set inside the processor's cache
    for first in range(0, size, rows):
        c = (across + 1j * down[first : first + rows, None]).ravel()
        where = np.arange(first * size, first * size + c.size)
        z, slope = np.zeros_like(c), np.zeros_like(c)
        for n in range(_LIMIT):
            slope = 2 * z * slope + 1
            z = z * z + c
            norm = z.real**2 + z.imag**2
            gone = norm > 1e4
            if gone.any():
                fate = n + 1 - np.log2(0.5 * np.log2(norm[gone]))
                out[where[gone]] = np.where(_decided(z[gone], slope[gone]), fate, np.nan)
                stay = ~gone
                z, slope, c, where = z[stay], slope[stay], c[stay], where[stay]
        out[where[~_decided(z, slope)]] = np.nan
    return out.reshape(size, size)


def reference_render(size: int, every: int) -> Array:
    """The scene by NumPy, at every so many rows and columns; points and directions are rows of three."""
    steps = (2 * (np.arange(0, size, every) + 0.5) - size) / size
    sx, sy = (grid.ravel() for grid in np.meshgrid(steps, steps))
    sun = _unit(np.array([-0.62, 0.55, 0.48]))
    eye = np.array([0.0, 2.35, 5.6])
    forward = _unit(np.array([0, 0.72, 0]) - eye)
    right = np.array([1.0, 0, 0])
    up = np.cross(right, forward)
    rays = _unit(forward + 0.52 * (sx[:, None] * right - sy[:, None] * up))
    out = _sky(rays, sun)
    t = np.zeros(len(rays))
    live = np.arange(len(rays))
    hit = np.zeros(len(rays), bool)
    for _ in range(128):
        d = _distance(eye + t[live, None] * rays[live])
        near = d < 2e-4 * t[live]
        hit[live[near]] = True
        t[live] += np.where(near, 0, d)
        live = live[~near & (t[live] < 40)]
    hit[live] = True  # out of steps, yet close to something
    t, rays = t[hit], rays[hit]
    p = eye + t[:, None] * rays
    normals = _normals(p)
    start = p + 4e-3 * normals
    lit = np.maximum(normals @ sun, 0) * _sunlight(start, sun)
    heights = 0.09 * np.arange(1, 6)
    closed = [h - _distance(p + h * normals) for h in heights]
    space = np.clip(1 - 1.3 * np.array([0.7**k for k in range(5)]) @ np.array(closed), 0, 1)
    above = 0.5 + 0.5 * normals[:, 1]
    light = np.outer(lit, [3.1, 2.5, 1.8])
    light += np.outer(space * above, [0.22, 0.30, 0.52]) + np.outer(space * (1 - above), [0.22, 0.14, 0.10])
    color = _albedo(p) * light
    facing = -np.sum(rays * normals, axis=1)
    mirrored = rays + 2 * facing[:, None] * normals
    fresnel = 0.04 + 0.5 * (1 - np.clip(facing, 0, 1)) ** 5
    color += (fresnel * space)[:, None] * _sky(mirrored, sun)
    color += np.outer(0.8 * lit * np.clip(mirrored @ sun, 0, 1) ** 60, [1.0, 0.85, 0.65])
    haze = np.exp(-0.0002 * t**3)[:, None]
    out[hit] = haze * color + (1 - haze) * out[hit]
    return out.reshape(len(steps), len(steps), 3).astype(np.float32)


def develop(module: spy.Module, name: str, result: spy.Tensor) -> Array:
    """A picture in linear light from a step's result."""
    if name == "render":
        result = module.tone_curve(result, 0.8)
    elif name == "mandelbrot":
        result = module.paint(result, _LIMIT)
    elif name == "box_filter":
        for _ in range(_PASSES - 1):
            result = module.box_filter(result, spy.grid(result.shape[:2]))
    picture: Array = result.to_numpy()
    return picture


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


def table(outcomes: Sequence[Outcome]) -> Table:
    """The outcomes as a table."""
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("device")
    grid.add_column("step", no_wrap=True)
    for heading in ("cold ms", "warm ms", "MP/s", "max error"):
        grid.add_column(heading, justify="right")
    grid.add_column("check")
    last = ""
    for o in outcomes:
        if last and o.device != last:
            grid.add_section()
        name, last = "" if o.device == last else o.device, o.device
        verdict = "[red]FAIL[/red]" if o.fault else "[green]pass[/green]"
        speed = f"{o.pixels / o.warm / 1e3:,.1f}" if o.warm else ""
        times = (f"{o.cold:,.0f}", f"{o.warm:,.2f}") if o.warm else ("", "")
        grid.add_row(name, o.step, *times, speed, o.error, verdict)
    return grid


def _timed(
    device: spy.Device, module: spy.Module, step: Step, tensors: Sequence[spy.Tensor]
) -> tuple[float, spy.Tensor]:
    started = time.perf_counter()
    result = step.call(module, *tensors)
    device.synchronize()
    return (time.perf_counter() - started) * 1e3, result


def _decided(z: npt.NDArray[np.complex128], slope: npt.NDArray[np.complex128]) -> npt.NDArray[np.bool_]:
    return np.abs(slope) * np.finfo(np.float32).eps / 2 < np.abs(z)


def _unit(v: Points) -> Points:
    unit: Points = v / np.linalg.norm(v, axis=-1, keepdims=True)
    return unit


def _pearls(p: Points) -> tuple[Points, Points]:
    """Distance to the ring of pearls, and the number of the nearest by angle."""
    sector = 2 * np.pi / 15
    number = np.floor(np.arctan2(p[:, 2], p[:, 0]) / sector + 0.5)
    middle = np.stack([2.05 * np.cos(number * sector), np.full(len(p), 0.3), 2.05 * np.sin(number * sector)], 1)
    return np.linalg.norm(p - middle, axis=1) - 0.3, number


def _jewel(p: Points) -> Points:
    # The torus' axis, and its distances along and across it.
    center, axis = np.array([0, 1.25, 0]), np.array([0, 0.6, 0.8])
    q = p - center
    along = q @ axis
    squared = np.sum(q * q, axis=1)
    across = np.sqrt(np.maximum(squared - along**2, 0))
    found: Points = np.minimum(np.hypot(across - 0.98, along) - 0.2, np.sqrt(squared) - 0.55)
    return found


def _distance(p: Points) -> Points:
    found: Points = np.minimum(p[:, 1], np.minimum(_pearls(p)[0], _jewel(p)))
    return found


def _normals(p: Points) -> Points:
    corners = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]])
    return _unit(np.stack([_distance(p + 1e-3 * corner) for corner in corners], 1) @ corners)


def _sunlight(p: Points, sun: Points) -> Points:
    seen, t = np.ones(len(p)), np.full(len(p), 0.02)
    for _ in range(40):
        d = _distance(p + t[:, None] * sun)
        inside = t < 8
        seen = np.where(inside, np.minimum(seen, 9 * d / t), seen)
        t += np.where(inside, np.clip(d, 0.02, 0.4), 0)
    seen = np.clip(seen, 0, 1)
    return seen**2 * (3 - 2 * seen)


def _sky(rays: Points, sun: Points) -> Points:
    height = np.clip(2.6 * rays[:, 1:2] + 0.3, 0, 1)
    glow = np.clip(rays @ sun, 0, 1) ** 8
    horizon, zenith = np.array([0.74, 0.33, 0.20]), np.array([0.03, 0.07, 0.20])
    color: Points = (1 - height) * horizon + height * zenith + np.outer(glow, [0.9, 0.45, 0.15])
    return color


def _albedo(p: Points) -> Points:
    radius = np.hypot(p[:, 0], p[:, 2])
    ripple = 0.13 + 0.06 * np.cos(9 * radius) * np.exp(-0.02 * radius**2)
    color = np.outer(ripple, [1.0, 0.95, 0.92])
    ring, number = _pearls(p)
    hue = 0.36 + 0.33 * np.cos(2 * np.pi * (number[:, None] / 15 + np.array([0, 0.33, 0.67])))
    color[ring < 0.01] = hue[ring < 0.01]
    color[_jewel(p) < 0.01] = [0.72, 0.09, 0.04]
    return color


def _encode(linear: Array) -> npt.NDArray[np.uint8]:
    """Linear light as the bytes of an sRGB picture."""
    x: Array = np.clip(linear, 0, 1)
    curve: Array = np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)
    return np.rint(curve * 255).astype(np.uint8)


def _overview(images: dict[str, Image.Image]) -> Image.Image:
    """All pictures in one, with captions."""
    captions = {
        "photograph": "the photograph",
        "tone_curve": "tone curve",
        "colour_transform": "colour transform",
        "box_filter": f"3x3 box filter, {_PASSES} passes",
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
    """The middle of a picture in a tile's proportions and size."""
    width, height = image.size
    scale = max(_TILE[0] / width, _TILE[1] / height)
    w, h = _TILE[0] / scale, _TILE[1] / scale
    box = ((width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2)
    return image.resize(_TILE, Image.Resampling.LANCZOS, box)
