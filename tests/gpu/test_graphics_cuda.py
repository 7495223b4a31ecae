"""Pictures of triangles, points with slopes, steps and cubes on tensors of a CUDA GPU, beside the same on the CPU.

``pytest -n0 -s tests/gpu/test_graphics_cuda.py`` prints a table last. It takes about two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from _torch_cuda import needs_cuda

import slangpy_rt as spy

pytestmark = needs_cuda
SIZE = (256, 256)
TEXT = """
import fragments;
import sampling;
struct Corner : IDifferentiable { float4 position; float2 uv; }
[Differentiable] Corner project(float4 at, float2 uv) { Corner c; c.position = at; c.uv = uv; return c; }
[Differentiable] float4 shade(Fragment<Corner> p, Image image)
{
    return image.sample(p.at.uv, p.dx.uv, p.dy.uv);
}
"""
ROWS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    print("\n" + "\n".join(ROWS))


def _body(count: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from scipy.spatial import ConvexHull

    k = np.arange(count) + 0.5
    z, turn = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    points = np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=-1)
    distance = 3 - points[:, 2]
    at = np.stack([2.1 * points[:, 0], 2.2 * points[:, 1], (distance - 1) * 1.25, distance], -1)
    uv = np.random.default_rng(0).random((count, 2))
    return at.astype(np.float32), uv.astype(np.float32), ConvexHull(points).simplices.astype(np.int32)


def _by_steps(place: str, device: spy.Device | None) -> tuple[list[torch.Tensor], torch.Tensor]:
    at, uv, faces = _body()
    photo = np.random.default_rng(1).random((64, 64, 3), np.float32)
    given = [torch.from_numpy(a).to(place).requires_grad_(True) for a in (at, uv, photo)]
    triangles = torch.from_numpy(faces).to(place)
    graphics = spy.graphics
    more: dict[str, Any] = {} if device is None else {"device": device}
    seen = graphics.rasterize(given[0], triangles, SIZE, **more)
    places = graphics.interpolate(given[1], seen, triangles, **more)
    level = torch.full(SIZE, 0.6, device=place)
    color = graphics.sample(given[2], places, level, **more) * (seen[..., 3:] > 0)
    picture = graphics.antialias(color, seen, given[0], triangles, **more)
    weights = torch.from_numpy(np.random.default_rng(2).normal(size=(*SIZE, 3)).astype(np.float32)).to(place)
    (picture * weights).sum().backward()
    return [x.grad.cpu() for x in given], picture.detach().cpu()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["cuda", "vulkan"])
def test_steps_of_tensors_on_a_gpu(kind: str) -> None:
    wanted, picture = _by_steps("cpu", None)
    with spy.Device(kind) as device:
        found, drawn = _by_steps("cuda", None if kind == "cuda" else device)
        started = time.perf_counter()
        for _ in range(10):
            _by_steps("cuda", None if kind == "cuda" else device)
        torch.cuda.synchronize()
        ROWS.append(f"steps, forward and backward, {kind}: {(time.perf_counter() - started) * 100:.2f} ms by calls")
    off = ((drawn - picture).abs() > 1e-4).float().mean().item()
    ROWS.append(f"steps, {kind}: {off:.3%} of numbers of the picture differ by more than 1e-4")
    assert off < 2e-3
    for a, b, name in zip(found, wanted, ("at", "uv", "photo"), strict=True):
        worst = ((a - b).abs().max() / b.abs().max()).item()
        ROWS.append(f"steps, {kind}: gradient of {name} {worst:.1e} off, of the largest")
        assert worst < 0.02


@pytest.mark.parametrize("kind", ["cuda", "vulkan"])
def test_slopes_and_levels(kind: str) -> None:
    at, uv, faces = _body()
    texels = np.random.default_rng(3).random((64, 64, 4), np.float32)
    pictures, gradients = [], []
    for name in ("cpu", kind):
        with spy.Device(name) as device:
            module: Any = spy.Module.load_from_source(device, "test_graphics_cuda", TEXT)
            image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4").with_grads(), mips=True)
            draw = module.shade.raster(module.project, SIZE)
            given = {
                "at": spy.Tensor.from_numpy(device, at, "float4").with_grads(),
                "uv": spy.Tensor.from_numpy(device, uv, "float2").with_grads(),
                "image": image, "_faces": faces,
            }  # fmt: skip
            picture = draw(**given).with_grads()
            picture.grad.copy_from(np.ones((*SIZE, 4), np.float32))
            draw.bwds(**given, _result=picture)
            image.backward()
            pictures.append(picture.numpy())
            gradients.append(image.texels.grad.numpy())
    off = (np.abs(pictures[1] - pictures[0]) > 2e-3).mean()
    worst = np.abs(gradients[1] - gradients[0]).max() / np.abs(gradients[0]).max()
    ROWS.append(f"slopes and levels, {kind}: {off:.3%} of numbers differ, gradients of texels {worst:.1e} off")
    assert off < 5e-3 and worst < 0.01
