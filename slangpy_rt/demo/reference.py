"""The demo's expected results, by NumPy: filters of a photograph, the Mandelbrot set, a rendered scene.

Everything is written independently of ``demo.slang`` and shares no text with it. It uses no device.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Points = npt.NDArray[np.float64]  # one number for each point, or a row of three

# Rec. 709 weights of brightness; saturation 1.2 around them, then a warmer white.
_WEIGHTS = np.array([0.2126, 0.7152, 0.0722])
GRADE = (np.diag([1.30, 1.0, 0.66]) @ (1.2 * np.eye(3) - 0.2 * np.outer(np.ones(3), _WEIGHTS))).astype(np.float32)
EXPOSURE = np.float32(2.6)
# The picture of the Mandelbrot set: its middle and its width in the plane, and the most iterations of a point.
CENTER = (-0.74364, 0.13183)
WIDTH = 0.014
LIMIT = 400


def reference_tone_curve(light: Array) -> Array:
    """Apply the tone curve."""
    x = light.astype(np.float64) * float(EXPOSURE)
    curve = (2.51 * x**2 + 0.03 * x) / (2.43 * x**2 + 0.59 * x + 0.14)
    return np.clip(curve, 0, 1).astype(np.float32)


def reference_color(color: Array) -> Array:
    """Apply the colour transform."""
    graded: Array = np.clip(np.einsum("rc,ijc->ijr", GRADE, color), 0, 1)
    return graded


def reference_box_filter(image: Array) -> Array:
    """Apply the box filter: add shifted copies of a padded image, and divide by the same sum of ones."""

    def shifted_sum(values: Points) -> Points:
        padded = np.pad(values, ((1, 1), (1, 1), (0, 0)))
        rows = padded[:-2] + padded[1:-1] + padded[2:]
        return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]

    ones = np.ones((*image.shape[:2], 1))
    return (shifted_sum(image.astype(np.float64)) / shifted_sum(ones)).astype(np.float32)


def reference_escape_time(size: int) -> Array:
    """Return the Mandelbrot set; NaN where the last bits of the arithmetic decide the answer.

    The derivative of an orbit by its point tells how much rounding errors grow. Near the set they grow without bound,
    and devices round differently, because some fuse a multiplication with an addition.
    """
    offsets = (np.arange(size, dtype=np.float32) + np.float32(0.5 - 0.5 * size)) * np.float32(WIDTH / size)
    across = (np.float32(CENTER[0]) + offsets).astype(np.float64)
    down = (np.float32(CENTER[1]) + offsets).astype(np.float64)
    out = np.full(size * size, LIMIT, np.float32)
    rows = 32  # 32 rows of 1024 keep the working set inside the processor's cache
    for first in range(0, size, rows):
        c = (across + 1j * down[first : first + rows, None]).ravel()
        where = np.arange(first * size, first * size + c.size)
        z, slope = np.zeros_like(c), np.zeros_like(c)
        for n in range(LIMIT):
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
    """Render the scene at one of ``every`` rows and columns. Points and directions are rows of three numbers."""
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


def _decided(z: npt.NDArray[np.complex128], slope: npt.NDArray[np.complex128]) -> npt.NDArray[np.bool_]:
    return np.abs(slope) * np.finfo(np.float32).eps / 2 < np.abs(z)


def _unit(v: Points) -> Points:
    unit: Points = v / np.linalg.norm(v, axis=-1, keepdims=True)
    return unit


def _pearls(p: Points) -> tuple[Points, Points]:
    """Return the distance to the ring of pearls, and the number of the nearest pearl, counted by angle."""
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
