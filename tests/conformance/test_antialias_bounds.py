"""Antialiasing of triangles smaller than a pixel and of random ones: bounds of colors, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt import graphics
from tests.depth import every_case, one_device, sampled

pytestmark = one_device

Array = npt.NDArray[Any]
SIZE = (12, 14)


def soup(count: int, scale: float, seed: int) -> tuple[Array, Array]:
    """Triangles of a size, in the picture's own units, at random places."""
    rng = np.random.default_rng(seed)
    at = rng.uniform(-0.8, 0.8, (count, 1, 2)) + scale * rng.normal(size=(count, 3, 2))
    depth = rng.uniform(0.1, 0.9, (count, 3, 1))
    corners = np.concatenate([at, depth, np.ones((count, 3, 1))], -1).reshape(-1, 4)
    return corners.astype(np.float32), np.arange(3 * count, dtype=np.int32).reshape(count, 3)


@sampled(2)
@pytest.mark.parametrize("scale", [0.012, 0.03, 0.06, 0.5])
def test_colors_stay_between_colors(device: spy.Device, scale: float) -> None:
    corners, faces = soup(2000 if scale < 0.02 else 120, scale, 4)
    position = spy.Tensor.from_numpy(device, corners, "float4")
    seen = graphics.rasterize(position, faces, SIZE)
    color = np.random.default_rng(5).random((*SIZE, 3), np.float32)
    found = graphics.antialias(spy.Tensor.from_numpy(device, color, "float3"), seen, position, faces).to_numpy()
    around = np.pad(color, ((1, 1), (1, 1), (0, 0)), mode="edge")
    every = np.stack([around[1 + y : 13 + y, 1 + x : 15 + x] for y, x in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))])
    assert (found >= every.min(0) - 1e-6).all() and (found <= every.max(0) + 1e-6).all()
    assert (found != color).any()


@sampled(2)
@pytest.mark.parametrize("half", [0.15, 0.3, 0.75])
def test_gradients_are_those_of_differences(device: spy.Device, half: float) -> None:
    """Squares, the parts of whose sides do not change as they move; those of small ones exceed a pixel."""
    rng = np.random.default_rng(6)
    rows, columns = SIZE
    centres = np.array([(x, y) for x in range(2, columns - 1, 4) for y in range(2, rows - 1, 4)], float) + 0.5
    centres += rng.uniform(-0.1, 0.1, centres.shape)
    around = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half
    at = (centres[:, None] + around) * (2 / columns, -2 / rows) + (-1, 1)
    corners = np.concatenate([at, np.full((*at.shape[:2], 1), 0.5), np.ones((*at.shape[:2], 1))], -1)
    corners = corners.reshape(-1, 4).astype(np.float32)
    first = 4 * np.arange(len(centres))
    faces = np.concatenate([first[:, None] + (0, 1, 2), first[:, None] + (0, 2, 3)]).astype(np.int32)
    color, weights = rng.random((*SIZE, 3), np.float32), rng.normal(size=(*SIZE, 3)).astype(np.float32)
    position = spy.Tensor.from_numpy(device, corners, "float4").with_grads()
    seen = graphics.rasterize(position.detach(), faces, SIZE)
    image = spy.Tensor.from_numpy(device, color, "float3").with_grads()
    result = graphics.antialias(image, seen, position, faces).with_grads()
    result.grad.copy_from(weights)
    graphics.antialias.bwds(image, seen, position, faces, _result=result)
    of_color, of_corners = image.grad.to_numpy(), position.grad.to_numpy()

    def drawn(moved: Array, changed: Array) -> Array:
        found = graphics.antialias(
            spy.Tensor.from_numpy(device, changed, "float3"),
            seen,
            spy.Tensor.from_numpy(device, moved, "float4"),
            faces,
        )
        return found.to_numpy().astype(np.float64) * weights

    way = rng.normal(size=color.shape).astype(np.float32)
    step = 2.0**-7
    change = (drawn(corners, color + np.float32(step) * way) - drawn(corners, color - np.float32(step) * way)).sum()
    assert (of_color * way).sum(dtype=np.float64) == pytest.approx(change / (2 * step), rel=2e-3, abs=2e-3)
    for axis, width in ((0, columns), (1, rows)):
        step = 0.01 * 2 / width
        ways = np.zeros_like(corners)
        ways[:, axis] = step
        change = drawn(corners + ways, color) - drawn(corners - ways, color)
        for k, (x, y) in enumerate(centres.astype(int)):
            near = change[y - 1 : y + 2, x - 1 : x + 2].sum() / (2 * step)
            assert of_corners[4 * k : 4 * k + 4, axis].sum() == pytest.approx(near, rel=5e-3, abs=5e-3)


@every_case
@pytest.mark.parametrize("half", [0.05, 0.2, 0.35])
def test_white_on_black_stays_between(device: spy.Device, half: float) -> None:
    """Strips thinner than a pixel, and dots: pixels with two, three and four silhouettes."""
    size, rectangles = (24, 24), []
    for k in range(2, 22, 3):
        rectangles += [
            (k + 0.5, 2.5, half, half),
            (k + 0.5, 7.5, half, 2 + half),
            (12.5, 11.5 + k / 2, 9 + half, half),
        ]
    corners = [(x + a * w, y + b * h) for x, y, w, h in rectangles for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    at = np.array(corners) / (12, -12) + (-1, 1)
    position = np.concatenate([at, np.full_like(at, 0.5)], -1).astype(np.float32)
    position[:, 3] = 1
    first = 4 * np.arange(len(rectangles))[:, None]
    faces = np.concatenate([first + np.array(three) for three in ((0, 1, 2), (0, 2, 3))]).astype(np.int32)
    given = spy.Tensor.from_numpy(device, position, "float4")
    seen = graphics.rasterize(given, faces, size)
    white = np.broadcast_to(seen.to_numpy()[..., 3:] > 0, (*size, 3)).astype(np.float32)
    found = graphics.antialias(spy.Tensor.from_numpy(device, white, "float3"), seen, given, faces).to_numpy()
    assert found.min() >= -1e-6 and found.max() <= 1 + 1e-6, (found.min(), found.max())
    # Ends, middles and dots have parts of 1, and less.
    assert len(np.unique(found[white > 0].round(3))) > 1
