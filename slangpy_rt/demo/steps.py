"""The steps of the demo: the function of ``demo.slang`` that each calls, its arguments and the expected result.

It measures and checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import slangpy_rt as spy
from slangpy_rt.demo.reference import (
    CENTER,
    EXPOSURE,
    GRADE,
    LIMIT,
    WIDTH,
    Array,
    reference_box_filter,
    reference_color,
    reference_escape_time,
    reference_render,
    reference_tone_curve,
)

PASSES = 24  # one 3x3 pass is hardly visible in a picture; 24 of them blur by four pixels

# The render's reference has every fourth row and column: a whole megapixel takes NumPy seven seconds.
_EVERY = 4


@dataclass(frozen=True)
class Step:
    """One function of ``demo.slang``, the arguments of its call, and the result that it has to return.

    Attributes
    ----------
    inputs : tuple of ndarray
        Arrays that are copied to the device before the clock starts.
    call : callable
        ``call(module, *tensors)`` calls the function.
    expected : callable
        Returns the result that NumPy computes, with NaN where any value is accepted.
    every : int
        ``expected`` has one of ``every`` rows and columns.
    tolerance : float
        Largest error of a pixel that counts as right.
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


def make_steps(photograph: Array, size: int) -> list[Step]:
    """Return the steps for a photograph in linear light. A step's input is NumPy's result of the step before."""
    toned = reference_tone_curve(photograph)
    graded = reference_color(toned)
    pixels = spy.grid((size, size))
    return [
        Step(
            "tone_curve",
            "tone curve",
            (photograph,),
            lambda module, image: module.tone_curve(image, EXPOSURE),
            lambda: toned,
            2e-6,
        ),
        Step(
            "colour_transform",
            "colour transform",
            (toned,),
            lambda module, image: module.transform_color(image, GRADE),
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
        # A ray that just hits or just misses an edge may do the opposite with another order of rounding.
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
            lambda module: module.escape_time(pixels, size, CENTER, WIDTH, LIMIT),
            lambda: reference_escape_time(size),
            0.5,
            0.002,
        ),
    ]


def develop(module: spy.Module, name: str, result: spy.Tensor) -> Array:
    """Turn a step's result into a picture in linear light."""
    if name == "render":
        result = module.tone_curve(result, 0.8)
    elif name == "mandelbrot":
        result = module.paint(result, LIMIT)
    elif name == "box_filter":
        for _ in range(PASSES - 1):
            result = module.box_filter(result, spy.grid(result.shape[:2]))
    picture: Array = result.to_numpy()
    return picture
