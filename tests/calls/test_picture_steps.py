"""A picture of triangles takes few launches, and one that repeats an earlier one few steps of the host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._cuda_text import compiled_for_cuda
from tests.depth import deep

TEXT = """
struct Corner : IDifferentiable { float4 position; float3 color; }
[Differentiable]
Corner project(float4 at, float3 color, float2 shift)
{
    Corner c;
    c.position = at + float4(shift, 0, 0);
    c.color = color;
    return c;
}
[Differentiable] float4 shade(Corner c, float light) { return float4(c.color * light, 1); }
"""
# Corners; words and zeros; triangles; large ones; silhouettes; pixels; what silhouettes add.
DRAW, PLAIN = 7, 5
# Corners to pixels; what silhouettes add; gradients of pixels and of corners.
BWDS, PLAIN_BWDS = 9, 6
SIZE = (16, 16)


@pytest.fixture(scope="module")
def device() -> Iterator[spy.Device]:
    """A device that runs nothing."""
    with spy.Device("null") as opened:
        yield opened


@pytest.fixture(scope="module")
def given(device: spy.Device) -> dict[str, Any]:
    """The arguments of a picture."""
    kinds = {"at": ("float4", (5,)), "color": ("float3", (5,)), "shift": ("float2", (1,)), "light": ("float", (1, 1))}
    made = {name: spy.Tensor.zeros(device, shape, kind).with_grads() for name, (kind, shape) in kinds.items()}
    return {**made, "_faces": spy.Tensor.from_numpy(device, np.array([[0, 1, 2], [2, 3, 4]], np.int32))}


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    """Two functions that draw."""
    return spy.Module.load_from_source(device, "test_picture_steps", TEXT)


def counted(device: Any, call: Callable[[], Any]) -> tuple[int, int, int]:
    """How many launches a call makes, how many buffers, and how many Python functions it enters."""
    backend = device.backend
    for _ in range(3):
        call()
    launches, made = len(backend.launches), backend._made
    call()
    launches, made = len(backend.launches) - launches, backend._made - made
    entered = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return launches, made, entered


@pytest.mark.parametrize(("antialias", "draws", "propagates"), [(True, DRAW, BWDS), (False, PLAIN, PLAIN_BWDS)])
def test_launches_and_steps(
    device: spy.Device, module: Any, given: dict[str, Any], antialias: bool, draws: int, propagates: int
) -> None:
    draw = module.shade.raster(module.project, SIZE, antialias=antialias)
    into = spy.Tensor.zeros(device, SIZE, "float4").with_grads()
    launches, made, entered = counted(device, lambda: draw(**given, _result=into))
    assert (launches, made) == (draws, 2) and entered < 250, entered
    launches, made, entered = counted(device, lambda: draw.bwds(**given, _result=into))
    assert (launches, made) == (propagates, 2 + antialias) and entered < 350, entered
    commands = device.command_list()
    draw.append_to(commands, **given, _result=into)
    assert len(commands) == draws
    draw.bwds.append_to(commands, **given, _result=into)
    # The words and silhouettes of the same picture serve its gradients.
    assert len(commands) == draws + (4 if antialias else 3)
    draw.bwds.append_to(commands, **given | {"light": 2.0}, _result=into)
    assert len(commands) == draws + (4 if antialias else 3) + propagates


def test_triangles_of_the_host(device: spy.Device, module: Any, given: dict[str, Any]) -> None:
    """Their edges are found once."""
    draw = module.shade.raster(module.project, SIZE)
    faces = np.array([[0, 1, 2], [2, 3, 4]])
    launches, _, entered = counted(device, lambda: draw(**given | {"_faces": faces}))
    assert launches == DRAW and entered < 280, entered


@deep
def test_kernels_compile_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a picture and of its gradients, where nothing runs."""

    def calls(device: spy.Device, module: Any) -> None:
        kinds = {"at": ("float4", 5), "color": ("float3", 5), "shift": ("float2", 1), "light": ("float", (1, 1))}
        given = {name: spy.Tensor.zeros(device, shape, kind).with_grads() for name, (kind, shape) in kinds.items()}
        given["_faces"] = spy.Tensor.from_numpy(device, np.array([[0, 1, 2]], np.int32))
        for antialias in (True, False):
            draw = module.shade.raster(module.project, SIZE, antialias=antialias)
            for _ in range(3):
                draw.bwds(**given, _result=draw(**given).with_grads())

    assert compiled_for_cuda(TEXT, calls, monkeypatch) > 8
