"""The gradient of the gallery's room, whose paths are traced: shadows and bounces beside differences of pictures."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep

GALLERY = Path(__file__).parents[2] / "docs" / "examples" / "gallery"
SIZE, SAMPLES = [24, 24], 192
# How far the lamp is moved: a third of its glow.
STEP = 0.025


@deep
def test_the_gradient_is_that_of_pictures(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lamp's place and color, of the brightness of each quarter of the picture."""
    monkeypatch.setattr(sys, "path", [str(GALLERY), *sys.path])
    boxes = runpy.run_path(str(GALLERY / "room.py"))["boxes"]
    module: Any = spy.Module.load_from_file(device, GALLERY / "room.slang")
    items, colors = boxes()
    scene, paint = spy.Scene(device, items), spy.Tensor.from_numpy(device, colors, "float3")
    samples = SAMPLES if device.name == "cpu" else SAMPLES // 8
    grid = spy.grid((samples, *SIZE))
    place, color = (spy.Tensor.empty(device, (1, 1, 1), "float3").with_grads() for _ in range(2))
    lamp = {"place": place, "color": color}
    start = np.array([-0.9, 2.1, 1.2, 3.0, 2.0, 1.0])

    def put(values: Any) -> None:
        place.copy_from(values[:3].astype(np.float32).reshape(1, 1, 1, 3))
        color.copy_from(values[3:].astype(np.float32).reshape(1, 1, 1, 3))

    def quarters(values: Any, seed: int) -> Any:
        put(values)
        picture = module.render(grid, SIZE, seed, lamp, paint, scene).numpy().astype(np.float64).mean((0, 3))
        return picture.reshape(2, 12, 2, 12).mean((1, 3)).ravel()

    found = np.zeros((4, 6))
    put(start)
    for k in range(4):
        weights = np.zeros((2, 12, 2, 12), np.float32)
        weights[k // 2, :, k % 2] = 1 / (3 * 144 * samples)
        paths = spy.Tensor.empty(device, (samples, *SIZE), "float3").with_grads()
        paths.grad.copy_from(np.broadcast_to(weights.reshape(*SIZE, 1), (samples, *SIZE, 3)))
        place.grad.clear()
        color.grad.clear()
        module.render.bwds(grid, SIZE, 1, lamp, paint, scene, _result=paths)
        found[k] = np.concatenate([place.grad.numpy().ravel(), color.grad.numpy().ravel()])
    wanted = np.zeros((4, 6))
    for j in range(6):
        step = STEP * np.eye(6)[j]
        wanted[:, j] = (quarters(start + step, 1) - quarters(start - step, 1)) / (2 * STEP)
    # The color is a factor. Of the place, what is left is the noise of as many paths: 0.004 on the CPU.
    np.testing.assert_allclose(found[:, 3:], wanted[:, 3:], rtol=1e-3)
    assert np.abs(wanted[:, :3]).max() > 0.1
    np.testing.assert_allclose(found[:, :3], wanted[:, :3], rtol=0, atol=0.008 if device.name == "cpu" else 0.02)
