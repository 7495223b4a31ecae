"""The examples of slang-torch beside formulas of PyTorch's in double precision: the same losses over 20 steps.

An example runs twice. The second time the functions below, which share no text with its Slang file, stand in for the
loaded module, and PyTorch differentiates them.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
from tests.depth import needs, sampled

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "slang_torch"
STEPS, SIZE = 20, 24


class Formula:
    """A kernel that a function of PyTorch's computes: ``function`` returns what is written to ``output``."""

    def __init__(self, output: str, function: Callable[..., Tensor], derivative: str = "") -> None:
        self._output, self._function, self._derivative = output, function, derivative

    @property
    def fwd(self) -> Formula:
        return Formula(self._output, self._function, "fwd")

    @property
    def bwd(self) -> Formula:
        return Formula(self._output, self._function, "bwd")

    def __call__(self, **given: Any) -> Any:
        return SimpleNamespace(launchRaw=lambda blockSize, gridSize: self._run(dict(given)))

    def _run(self, given: dict[str, Any]) -> None:
        output = given.pop(self._output)
        values: list[Tensor] = []
        others: list[Tensor] = []
        given = {name: _doubled(value, values, others) for name, value in given.items()}

        def function(*taken: Tensor) -> Tensor:
            waiting = iter(taken)
            return self._function(**{name: _filled(value, waiting) for name, value in given.items()})

        with torch.enable_grad():
            if not self._derivative:
                (output[0] if isinstance(output, tuple) else output).copy_(function(*values))
            elif self._derivative == "fwd":
                tangents = tuple(other.double().cpu() for other in others)
                found = torch.autograd.functional.jvp(function, tuple(values), tangents)
                for part, value in zip(output, found, strict=True):
                    part.copy_(value)
            else:
                leaves = [value.requires_grad_() for value in values]
                slopes = torch.autograd.grad(function(*leaves), leaves, output[1].double().cpu())
                for other, slope in zip(others, slopes, strict=True):
                    other.add_(slope.to(other.device))


class _Leaf:
    """The place of a value with a gradient or a tangent."""


def _doubled(value: Any, values: list[Tensor], others: list[Tensor]) -> Any:
    """In double precision on the CPU; pairs are taken out.

    Examples draw random numbers where their tensors lie, so that both runs have them in one place.
    """
    if type(value) is tuple and len(value) == 2 and all(isinstance(part, Tensor) for part in value):
        values.append(value[0].detach().double().cpu())
        others.append(value[1])
        return _Leaf
    if isinstance(value, (tuple, list)):
        parts = [_doubled(part, values, others) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else parts
    if not isinstance(value, Tensor):
        return value
    return (value.double() if value.is_floating_point() else value).cpu()


def _filled(value: Any, waiting: Any) -> Any:
    if value is _Leaf:
        return next(waiting)
    if isinstance(value, (tuple, list)):
        parts = [_filled(part, waiting) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else parts
    return value


def _bezier(knots: Tensor) -> Tensor:
    count, points = len(knots), 512
    along = torch.arange(points, dtype=torch.float32) * count / points
    first = along.long().clamp(max=count - 1)
    t = (along - first).double()[:, None]
    start, end = knots[first], knots[(first + 1) % count]
    b, c = start[:, 0] + start[:, 1], end[:, 0] - end[:, 1]
    return (1 - t) ** 3 * start[:, 0] + 3 * t * (1 - t) ** 2 * b + 3 * t**2 * (1 - t) * c + t**3 * end[:, 0]


def _pixels(size: int) -> Tensor:
    axis = (torch.arange(size) + 0.5).double() / size
    return torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1)


def _shade(maps: Tensor, lights: Tensor, brightness: float) -> Tensor:
    uv = _pixels(SIZE)
    plane = 2.1 * (uv - 0.5) * torch.tensor([1.0, -1.0])
    height = 1 - (plane**2).sum(-1)
    normal = torch.cat([plane, height.clamp(min=0).sqrt()[..., None]], dim=-1)
    # Values between texels, as PyTorch's grid_sample has them.
    layers = torch.nn.functional.grid_sample(
        maps.permute(2, 0, 1)[None], 2 * uv[None] - 1, padding_mode="border", align_corners=False
    )[0].permute(1, 2, 0)
    color, alpha = layers[..., :3], layers[..., 3] ** 2
    eye = torch.tensor([0.0, 0.0, 1.0], dtype=torch.double)
    images = []
    for light in lights:
        half = torch.nn.functional.normalize(light + eye, dim=0)
        to_light, to_eye, to_half = normal @ light, normal @ eye, normal @ half
        lit = (height > 0) & (to_light > 0) & (to_eye > 0)
        # Where it is dark, values that give no infinite slopes.
        to_light, to_eye = (torch.where(lit, cosine, 0.5) for cosine in (to_light, to_eye))
        a2 = alpha**2
        density = a2 / torch.pi / (to_half**2 * (a2 - 1) + 1) ** 2
        smith = to_eye * (to_light**2 * (1 - a2) + a2).sqrt() + to_light * (to_eye**2 * (1 - a2) + a2).sqrt()
        mirrored = 0.04 + 0.96 * (1 - half @ eye) ** 5
        specular = mirrored * density * 0.5 / (smith + 1e-6)
        light_out = ((1 - mirrored) / torch.pi * color + specular[..., None]) * to_light[..., None]
        image = (brightness * torch.where(lit[..., None], light_out, 0) + 1e-4).sqrt()
        images.append(torch.where((height > 0)[..., None], image, 0))
    return torch.stack(images)


def _distance(a: Tensor, b: Tensor, point: Tensor) -> Tensor:
    """The distance from a line, with the sign of the side; y goes down."""
    along, offset = b - a, point - a
    return (along[0] * offset[..., 1] - along[1] * offset[..., 0]) / ((along**2).sum() + 1e-8).sqrt()


def _scene(scene: Any, softness: float) -> Tensor:
    corners, colors = scene
    point = _pixels(SIZE)
    picture = colors[0].expand(SIZE, SIZE, 3)
    for (a, b, c), color in zip(corners, colors[1:], strict=True):
        sign = -1 if _distance(a, b, c) < 0 else 1
        inside = sign * torch.stack([_distance(*edge, point) for edge in ((a, b), (b, c), (c, a))])
        covered = torch.sigmoid(inside / softness).prod(dim=0)
        covered = torch.where((inside > -8 * softness).all(dim=0), covered, 0)[..., None]
        picture = picture + covered * (color - picture)
    return picture


def _project(pose: Tensor, mesh: Any) -> Tensor:
    angle = ((pose[:3] ** 2).sum() + 1e-12).sqrt()
    x, y, z = pose[:3] / angle
    nothing = torch.zeros_like(x)
    cross = torch.stack([nothing, -z, y, z, nothing, -x, -y, x, nothing]).view(3, 3)
    # Rodrigues' formula as a matrix.
    turn = torch.eye(3).double() + angle.sin() * cross + (1 - angle.cos()) * (cross @ cross)
    v = mesh.vertices @ turn.T + pose[3:]
    return 0.5 + 1.5 * v[:, :2] * torch.tensor([1.0, -1.0]) / (5 - v[:, 2:])


def _paint(mesh: Any, corners: Tensor, softness: float) -> Tensor:
    point = _pixels(SIZE)
    background = torch.tensor([0.12, 0.13, 0.17]).double() * (1.4 - point[..., 1:])
    picture = background
    for face, color in zip(mesh.faces.long(), mesh.colors, strict=True):
        a, b, c = corners[face]
        height = -_distance(a, b, c) / softness
        edges = [-_distance(*edge, point) / softness for edge in ((a, b), (b, c), (c, a))]
        shown = (height > 0) & (torch.stack(edges) > -8).all(dim=0)
        covered = (1 - torch.exp(-(height**2) / 4)) * torch.sigmoid(torch.stack(edges)).prod(dim=0)
        picture = picture + torch.where(shown, covered, 0)[..., None] * (color - background)
    return picture


def _evaluate(grid: Any, network: Any, points: Tensor) -> Tensor:
    (features,), (layers,) = grid, network
    x = torch.nn.functional.grid_sample(
        features.permute(2, 0, 1)[None], points[None, None], padding_mode="border", align_corners=True
    )[0, :, 0].T
    for k, (weights, bias) in enumerate(layers):
        x = torch.nn.functional.linear(x, weights, bias)
        if k < len(layers) - 1:
            x = torch.nn.functional.leaky_relu(x, 0.1)
    return x[:, :3]


FORMULAS: Mapping[str, Mapping[str, Formula]] = {
    "bezier": {"trace": Formula("points", _bezier)},
    "brdf": {"shade": Formula("images", _shade)},
    "soft_rasterizer": {"paint": Formula("image", _scene)},
    "fwd_rasterizer": {"project": Formula("corners", _project), "paint": Formula("image", _paint)},
    "inline_mlp": {"evaluate": Formula("colors", _evaluate)},
}


@needs("pointers")
@pytest.mark.parametrize("name", FORMULAS)
@sampled(18)
def test_losses(name: str, device: spy.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _import("common", monkeypatch)
    example = _import(name, monkeypatch)
    options = {"steps": STEPS, "size": SIZE, "out": tmp_path}
    found: list[list[float]] = []
    monkeypatch.setattr(example, "say", lambda options, seconds, losses: found.append(losses))
    place = torch.device("cuda" if device.name == "cuda" else "cpu")
    monkeypatch.setattr(
        example, "parse_options", lambda *_, **__: argparse.Namespace(device=device, place=place, **options)
    )
    example.main()
    loaded = slangtorch.loadModule

    def stand_in(path: Path, **given: Any) -> Any:
        # The named tuples of the structs, and formulas in place of the kernels.
        return SimpleNamespace(**loaded(path, **given)._spy_items | FORMULAS[name])

    monkeypatch.setattr(slangtorch, "loadModule", stand_in)
    monkeypatch.setattr(
        example,
        "parse_options",
        lambda *_, **__: argparse.Namespace(device=device, place=place, **options),
    )
    example.main()
    ours, formula = found
    assert len(ours) == len(formula) == STEPS and formula[-1] < 0.9 * formula[0]
    assert ours == pytest.approx(formula, rel=1e-4, abs=1e-7)


def _import(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One of the examples' files as a module, for the time of a test."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
