"""Pictures of triangles that are drawn again: the prepared steps of an earlier picture run on other arguments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

TEXT = """
import sampling;
struct Corner : IDifferentiable { float4 position; float shade; }
[Differentiable]
Corner project(float4 at, float shade, float2 shift)
{
    Corner c;
    c.position = at + float4(shift * at.w, 0, 0);
    c.shade = shade;
    return c;
}
uniform float gain;
[Differentiable] float one(Corner c, float light) { return c.shade * light; }
[Differentiable] float gained(Corner c, float light) { return c.shade * light * gain; }
[Differentiable]
Corner raised(float4 at, float shade, float tint, float more = 0)
{
    Corner c;
    c.position = at;
    c.shade = shade - 10 * tint + more;
    return c;
}
[Differentiable] float lit(Corner c, float light = 1) { return c.shade * light; }
[Differentiable] float4 painted(Corner c, Image image) { return image.sample(float2(0.5), 0) * c.shade; }
"""
SIZE = (40, 48)
PLACE = np.array([[5.3, 31.2], [24.7, 3.9], [40.1, 28.3]])
PLACES = [PLACE, np.abs(np.array([SIZE[1], 0]) - PLACE)]  # and mirrored
WEIGHTS = np.mgrid[: SIZE[0], : SIZE[1]][1] * 0.02 + np.mgrid[: SIZE[0], : SIZE[1]][0] * 0.05
FACES = np.array([[0, 1, 2]], np.int32)
TIMES = range(4)  # the third picture is the first that repeats steps


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "raster_again", TEXT)


def _area(k: int) -> float:
    a, b, c = PLACES[k % 2]
    return float(abs(np.linalg.det([b - a, c - a])) / 2)


def _clip(k: int) -> npt.NDArray[np.float32]:
    x, y = PLACES[k % 2].T
    rows, columns = SIZE
    return np.stack([2 * x / columns - 1, 1 - 2 * y / rows, np.full(3, 0.5), np.ones(3)], -1).astype(np.float32)


def _slope(k: int) -> npt.NDArray[np.float64]:
    """How the sum of pixels times WEIGHTS, which are linear, changes with the shift of a triangle."""
    return _area(k) * np.array([0.02 * SIZE[1] / 2, -0.05 * SIZE[0] / 2])


def _given(device: spy.Device, k: int) -> dict[str, Any]:
    return {
        "at": spy.Tensor.from_numpy(device, _clip(k), "float4"),
        "shade": spy.Tensor.from_numpy(device, np.full(3, 1 + k, np.float32)),
        "shift": spy.Tensor.zeros(device, 1, "float2").with_grads(),
        "light": 0.5 * (k + 1),
        "_faces": spy.Tensor.from_numpy(device, FACES),
    }


@sampled(6)
@pytest.mark.parametrize("antialias", [True, False])
def test_other_arrays_and_numbers(device: spy.Device, module: spy.Module, antialias: bool) -> None:
    draw = module.one.raster(module.project, SIZE, antialias=antialias)
    pictures = []
    for k in TIMES:
        given = _given(device, k)
        pictures.append(draw(**given))
        seen = pictures[-1].with_grads()
        seen.grad.copy_from(WEIGHTS.astype(np.float32))
        draw.bwds(**given, _result=seen)
        slope = given["shift"].grad.to_numpy()[0] / ((1 + k) * 0.5 * (k + 1))
        np.testing.assert_allclose(slope, _slope(k) if antialias else 0, rtol=0.05, atol=1e-6)
    # Each picture has memory of its own.
    for k, picture in enumerate(pictures):
        wanted = _area(k) * (1 + k) * 0.5 * (k + 1)
        assert picture.to_numpy().sum(dtype=np.float64) == pytest.approx(wanted, rel=2e-3 if antialias else 3e-2)


@one_device
def test_names_of_arguments(device: spy.Device, module: spy.Module) -> None:
    """Pictures whose arguments are alike but for their names, their order, or which of them have their defaults."""
    draw = module.lit.raster(module.raised, SIZE)
    at, faces = spy.Tensor.from_numpy(device, _clip(0), "float4"), spy.Tensor.from_numpy(device, FACES)
    one, two = (spy.Tensor.full(device, 3, value).with_grads() for value in (200.0, 3.0))
    cases: list[tuple[dict[str, Any], float]] = [
        ({"shade": one, "tint": two}, 170), ({"tint": two, "shade": one}, 170), ({"tint": one, "shade": two}, -1997),
        ({"shade": two, "tint": one}, -1997), ({"shade": one, "tint": one}, -1800),
        ({"shade": one, "tint": two, "light": 2.0}, 340), ({"shade": one, "tint": two, "more": 2.0}, 172),
    ]  # fmt: skip
    for _ in TIMES:
        for k, (given, value) in enumerate(cases):
            picture = draw(at=at, _faces=faces, **given)
            assert picture.to_numpy().sum(dtype=np.float64) == pytest.approx(_area(0) * value, rel=2e-3)
            if k > 2:
                continue
            seen = picture.with_grads()
            seen.grad.copy_from(np.ones(SIZE, np.float32))
            one.grad.clear(), two.grad.clear()
            draw.bwds(at=at, _faces=faces, **given, _result=seen)
            for name, wanted in (("shade", _area(0)), ("tint", -10 * _area(0))):
                assert given[name].grad.to_numpy().sum(dtype=np.float64) == pytest.approx(wanted, rel=3e-2)


@one_device
def test_layouts_of_faces_and_results(device: spy.Device, module: spy.Module) -> None:
    """Pictures in arrays of equal shapes, which lie in memory in other ways."""
    draw, given = module.one.raster(module.project, SIZE, antialias=False), _given(device, 0)
    del given["_faces"]
    twice = np.concatenate([FACES, FACES + 1, FACES, FACES + 1])
    faces = [
        spy.Tensor.from_numpy(device, np.concatenate([FACES, FACES])),
        spy.Tensor.from_numpy(device, twice)[::2],
        spy.Tensor.from_numpy(device, np.ascontiguousarray(np.concatenate([FACES, FACES]).T)).T,
    ]
    results = [
        spy.Tensor.zeros(device, SIZE), spy.Tensor.zeros(device, (SIZE[0], 2 * SIZE[1]))[:, ::2],
        spy.Tensor.zeros(device, SIZE[::-1]).T, spy.Tensor.zeros(device, SIZE)[::-1],
    ]  # fmt: skip
    pictures = []
    for _ in TIMES:
        for k, result in enumerate(results):
            draw(**given, _faces=faces[k % 3], _result=result)
            pictures.append(result.to_numpy().copy())
            result[...] = -1.0
    assert pictures[0].sum(dtype=np.float64) == pytest.approx(_area(0) * 0.5, rel=3e-2)
    for picture in pictures:
        np.testing.assert_array_equal(picture, pictures[0])


@one_device
def test_faces_and_results(device: spy.Device, module: spy.Module) -> None:
    draw = module.one.raster(module.project, SIZE)
    both = np.concatenate([FACES, FACES[:, ::-1]])
    outer = spy.Tensor.zeros(device, (2, *SIZE))
    for k in TIMES:
        given = _given(device, 0)
        # Copies of host arrays, whose edges are found once, and arrays on the device; parts of an array as results.
        given["_faces"] = both[: 1 + k % 2] if k < 2 else given["_faces"]
        draw(**given, _result=outer[k % 2])
        assert outer.to_numpy()[k % 2].sum(dtype=np.float64) == pytest.approx(_area(0) * 0.5, rel=2e-3)
        outer.clear()
    given["_faces"].copy_from(np.zeros((1, 3), np.int32))
    assert not draw(**given).to_numpy().any()
    given["_faces"] = spy.Tensor.from_numpy(device, np.array([[0, 1, 3]], np.int32))
    with pytest.raises(spy.BindError, match=r"one.raster: _faces\[0\] names corner 3; there are 3"):
        draw(**given)
    with pytest.raises(spy.ShapeError, match=r"Tensor<float> of shape \(40, 48\) was expected"):
        draw(**_given(device, 0), _result=outer)


@one_device
def test_gradients_in_one_memory(device: spy.Device, module: spy.Module) -> None:
    """Steps that were prepared for gradients apart do not serve those that share memory."""
    draw = module.one.raster(module.project, SIZE, antialias=False)
    seen = spy.Tensor.zeros(device, SIZE).with_grads()
    seen.grad.copy_from(np.ones(SIZE, np.float32))
    sums = []
    for k in range(5):
        given = _given(device, 0)
        shade = given["shade"].with_grads()
        light = spy.Tensor.from_numpy(device, np.full((1, 1), 0.5, np.float32))
        first = shade.grad_out[:1] if k == 4 else spy.Tensor.zeros(device, 1)
        given |= {"shade": shade, "light": light.with_grads(grad_out=first.view((1, 1)))}
        draw.bwds(**given, _result=seen)
        apart = 0 if k == 4 else first.to_numpy().sum()
        sums.append(shade.grad.to_numpy().sum(dtype=np.float64) + apart)
    # Of shade the derivative is light, and of light it is shade.
    np.testing.assert_allclose(sums, _area(0) * 1.5, rtol=2e-2)


@deep
def test_uniforms_and_images(device: spy.Device, module: spy.Module) -> None:
    for gain in (1, 3):
        draw = module.gained.set(gain=gain).raster(module.project, SIZE)
        for k in TIMES:
            wanted = gain * _area(k) * (1 + k) * 0.5 * (k + 1)
            assert draw(**_given(device, k)).to_numpy().sum(dtype=np.float64) == pytest.approx(wanted, rel=2e-3)
    draw = module.painted.raster(module.project, SIZE, antialias=False)
    for k in TIMES:
        given = _given(device, 0)
        del given["light"]
        texels = spy.Tensor.full(device, (4, 4), k + 1.0, "float4").with_grads()
        given["image"] = spy.Image(texels)
        picture = draw(**given).with_grads()
        covered = np.count_nonzero(picture.to_numpy()[..., 0])
        assert picture.to_numpy().sum(dtype=np.float64) == pytest.approx(4 * (k + 1) * covered)
        picture.grad.copy_from(np.ones((*SIZE, 4), np.float32))
        draw.bwds(**given, _result=picture)
        assert texels.grad.to_numpy().sum(dtype=np.float64) == pytest.approx(4 * covered, rel=1e-5)


@one_device
def test_gradients_in_a_list(device: spy.Device, module: spy.Module) -> None:
    """They use what the picture found, but not where a call in between moves a corner."""
    draw = module.one.raster(module.project, SIZE)
    for moves in (False, True):
        given = _given(device, 0)
        # A triangle of half the area, about the same middle.
        smaller = _clip(0)
        smaller[:, :2] = smaller[:, :2].mean(0) + np.sqrt(0.5) * (smaller[:, :2] - smaller[:, :2].mean(0))
        moved = spy.Tensor.from_numpy(device, smaller, "float4")
        commands = device.command_list()
        seen = draw.append_to(commands, **given).with_grads()
        seen.grad.copy_from(WEIGHTS.astype(np.float32))
        if moves:
            commands.copy(given["at"], moved)
        before = len(commands)
        draw.bwds.append_to(commands, **given, _result=seen)
        # A CPU has its launches apart: it takes more of them.
        added, whole = len(commands) - before, before - moves
        assert added > whole if moves else added < whole
        commands.submit()
        wanted = _slope(0) * (0.25 if moves else 0.5)
        np.testing.assert_allclose(given["shift"].grad.to_numpy()[0], wanted, rtol=0.2 if moves else 0.05)
        assert seen.to_numpy().sum(dtype=np.float64) == pytest.approx(_area(0) * 0.5, rel=2e-3)


@deep
def test_streams_lists_and_tangents(device: spy.Device, module: spy.Module) -> None:
    draw, stream = module.one.raster(module.project, SIZE), device.stream()
    for k in TIMES:
        given = _given(device, k)
        commands = device.command_list()
        recorded = draw.append_to(commands, **given)
        commands.submit()
        found = [draw.stream(stream)(**given), recorded]
        given["light"] = spy.Tensor.full(device, (1, 1), given["light"])
        given["light"] = given["light"].with_grads(grad_in=spy.Tensor.full(device, (1, 1), 2))
        found.append(draw.fwds(**given))
        for picture in found:
            wanted = _area(k) * (1 + k) * 0.5 * (k + 1)
            assert picture.to_numpy().sum(dtype=np.float64) == pytest.approx(wanted, rel=2e-3)
        tangent = found[-1].grad.to_numpy().sum(dtype=np.float64)
        assert tangent == pytest.approx(2 * _area(k) * (1 + k), rel=2e-3)


@deep
def test_tensors_of_pytorch(device: spy.Device, module: spy.Module) -> None:
    draw = module.one.raster(module.project, SIZE)
    for k in TIMES:
        shift = torch.zeros(1, 2, requires_grad=True)
        at, faces = torch.from_numpy(_clip(k)), torch.from_numpy(FACES)
        picture = draw(at=at, shade=torch.full((3,), 1.0 + k), shift=shift, light=0.5, _faces=faces)
        assert picture.sum().item() == pytest.approx(_area(k) * (1 + k) * 0.5, rel=2e-3)
        (picture * torch.from_numpy(WEIGHTS).float()).sum().backward()
        assert shift.grad is not None
        np.testing.assert_allclose(shift.grad.numpy()[0], (1 + k) * 0.5 * _slope(k), rtol=0.05)


@deep
def test_edited_files(backend_name: str, tmp_path: Path) -> None:
    file = tmp_path / "raster_edited.slang"
    text = TEXT.replace("import sampling;", "").partition("[Differentiable] float4 painted")[0]
    file.write_text(text, encoding="utf-8")
    with spy.Device(backend_name, hot_reload=True) as device:
        module: Any = spy.Module.load_from_file(device, file)
        draw = module.one.raster(module.project, SIZE)
        given = _given(device, 0)
        for factor in (1, 3):
            if factor > 1:
                file.write_text(text.replace("shade * light;", f"shade * light * {factor};"), encoding="utf-8")
                time.sleep(0.1)
            for _ in TIMES:
                found = draw(**given).to_numpy().sum(dtype=np.float64)
                assert found == pytest.approx(factor * _area(0) * 0.5, rel=2e-3)
    with pytest.raises(spy.DeviceError, match="closed"):
        draw(**given)
