"""Pictures of triangles by other calls: batches, layers, tangents, command lists, tensors of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import deep, needs, one_device, sampled

pytestmark = [one_device, needs("uint64_t")]

Floats = npt.NDArray[np.float32]

TEXT = """
struct Corner : IDifferentiable { float4 position; float shade; }
[Differentiable] Corner project(float4 at, float shade, float2 shift)
{
    Corner c;
    c.position = at + float4(shift * at.w, 0, 0);
    c.shade = shade;
    return c;
}
[Differentiable] float one(Corner c, float light) { return c.shade * light; }
[Differentiable] float3 three(Corner c, float light) { return float3(c.shade, 1, 2) * light; }
"""
SIZE = (40, 48)
PLACE = np.array([[5.3, 31.2], [24.7, 3.9], [40.1, 28.3]])
# The area of the triangle at these places, in pixels.
AREA = abs(np.linalg.det([PLACE[1] - PLACE[0], PLACE[2] - PLACE[0]])) / 2


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "raster_calls", TEXT)


def _clip(place: npt.NDArray[Any], depth: float) -> Floats:
    x, y = place.T
    rows, columns = SIZE
    at = np.stack([2 * x / columns - 1, 1 - 2 * y / rows, np.full(len(x), depth), np.ones(len(x))], -1)
    return at.astype(np.float32)


def _given(device: spy.Device, gradient: bool = False) -> dict[str, Any]:
    """One triangle on the device, white, and a shift that may have a gradient."""
    shift = spy.Tensor.zeros(device, 1, "float2")
    return {
        "at": spy.Tensor.from_numpy(device, _clip(PLACE, 0.5), "float4"),
        "shade": spy.Tensor.from_numpy(device, np.ones(3, np.float32)),
        "shift": shift.with_grads() if gradient else shift,
        "light": 1.0,
        "_faces": spy.Tensor.from_numpy(device, np.array([[0, 1, 2]], np.int32)),
    }


def _slope(weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """How the weighted sum of pixels of the triangle changes with its shift, in clip coordinates.

    The weights are linear, so that the sum changes by their slope times the area.
    """
    rows, columns = SIZE
    dx, dy = (weights[1, 2] - weights[1, 1]), (weights[2, 1] - weights[1, 1])
    return AREA * np.array([dx * columns / 2, -dy * rows / 2])


WEIGHTS = np.mgrid[: SIZE[0], : SIZE[1]][1] * 0.02 + np.mgrid[: SIZE[0], : SIZE[1]][0] * 0.05


@deep
def test_several_pictures(device: spy.Device, module: spy.Module) -> None:
    shift = np.array([[0, 0], [0.25, 0], [0, -0.3]], np.float32)
    given = _given(device)
    given["shift"] = spy.Tensor.from_numpy(device, shift[:, None], "float2").with_grads()
    # One number for each picture, and one for each pixel.
    light = np.array([1, 0.5, 2], np.float32)
    given["light"] = spy.Tensor.from_numpy(device, light[:, None, None])
    draw = module.one.raster(module.project, SIZE)
    pictures = draw(**given)
    assert pictures.shape == (3, *SIZE)
    found = pictures.to_numpy()
    np.testing.assert_allclose(found.sum((1, 2), dtype=np.float64), AREA * light, rtol=2e-3)
    for k in range(3):
        rows, columns = np.nonzero(found[k])
        middle = np.array([columns.mean() + 0.5, rows.mean() + 0.5])
        wanted = PLACE.mean(0) + shift[k] * [SIZE[1] / 2, -SIZE[0] / 2]
        np.testing.assert_allclose(middle, wanted, atol=0.4)
    seen = pictures.with_grads()
    seen.grad.copy_from(np.broadcast_to(WEIGHTS, found.shape).astype(np.float32))
    draw.bwds(**given, _result=seen)
    slopes = given["shift"].grad.to_numpy()[:, 0]
    wanted = light[:, None] * _slope(WEIGHTS)
    np.testing.assert_allclose(slopes, wanted, atol=0.03 * np.abs(wanted).max())


def test_layers(device: spy.Device, module: spy.Module) -> None:
    # Four triangles behind each other, the second smaller; the nearest is not the first.
    depths, shades = [0.6, 0.2, 0.8, 0.4], np.array([3, 1, 4, 2], np.float32)
    places = [PLACE, PLACE * 0.5 + PLACE.mean(0) * 0.5, PLACE, PLACE]
    at = np.concatenate([_clip(place, depth) for place, depth in zip(places, depths, strict=True)])
    faces = np.arange(12, dtype=np.int32).reshape(4, 3)
    draw = module.one.raster(module.project, SIZE, background=9, antialias=False, layers=5)
    found = np.rint(draw(at=at, shade=np.repeat(shades, 3), shift=[0, 0], light=1.0, _faces=faces))
    assert found.shape == (5, *SIZE)
    large, small = found[2] != 9, found[0] == 1
    assert 0.9 * AREA < large.sum() < 1.1 * AREA and 0.2 * AREA < small.sum() < 0.3 * AREA
    assert large[small].all()
    np.testing.assert_array_equal(found[0], np.where(small, 1, np.where(large, 2, 9)))
    np.testing.assert_array_equal(found[1], np.where(small, 2, np.where(large, 3, 9)))
    np.testing.assert_array_equal(found[2], np.where(small, 3, np.where(large, 4, 9)))
    np.testing.assert_array_equal(found[3], np.where(small, 4, 9))
    np.testing.assert_array_equal(found[4], np.full(SIZE, 9))


@deep
def test_gradients_of_layers(device: spy.Device, module: spy.Module) -> None:
    at = np.concatenate([_clip(PLACE, 0.7), _clip(PLACE[:, ::1] + [0.3, 0.2], 0.2)])
    given = _given(device, gradient=True)
    given["at"] = spy.Tensor.from_numpy(device, at, "float4")
    given["shade"] = spy.Tensor.from_numpy(device, np.repeat([4.0, 1.0], 3).astype(np.float32))
    given["_faces"] = spy.Tensor.from_numpy(device, np.arange(6, dtype=np.int32).reshape(2, 3))
    draw = module.one.raster(module.project, SIZE, layers=1)
    picture = draw(**given).with_grads()
    picture.grad.copy_from(WEIGHTS[None].astype(np.float32))
    draw.bwds(**given, _result=picture)
    first = given["shift"].grad.to_numpy()[0]
    # The front one is what the first layer shows, but for a border of the one behind it.
    np.testing.assert_allclose(first, _slope(WEIGHTS), rtol=0.2)
    deeper = module.one.raster(module.project, SIZE, layers=2)
    both = deeper(**given)
    np.testing.assert_array_equal(both.to_numpy()[0], picture.to_numpy()[0])
    given["shift"].grad.clear()
    seen = both.with_grads()
    seen.grad.copy_from(np.stack([WEIGHTS, 0 * WEIGHTS]).astype(np.float32))
    deeper.bwds(**given, _result=seen)
    np.testing.assert_allclose(given["shift"].grad.to_numpy()[0], first, rtol=1e-5)


@sampled(6)
@pytest.mark.parametrize("antialias", [True, False])
def test_tangents(device: spy.Device, module: spy.Module, antialias: bool) -> None:
    given = _given(device)
    draw = module.three.raster(module.project, SIZE, antialias=antialias)
    plain = draw(**given).to_numpy()
    given["shade"] = given["shade"].with_grads(grad_in=spy.Tensor.full(device, 3, 0.5))
    given["light"] = spy.Tensor.from_numpy(device, np.full((1, 1), 1, np.float32))
    given["light"] = given["light"].with_grads(grad_in=spy.Tensor.full(device, (1, 1), 2))
    found = draw.fwds(**given)
    np.testing.assert_allclose(found.to_numpy(), plain, rtol=1e-4)
    # Colors are proportional to the light, and the first also to the shade.
    np.testing.assert_allclose(found.grad.to_numpy(), plain * [2.5, 2, 2], rtol=1e-4, atol=1e-5)
    given = _given(device)
    given["shift"] = given["shift"].with_grads(grad_in=spy.Tensor.from_numpy(device, [[1, 0]], "float2"))
    into = spy.Tensor.zeros(device, SIZE, "float3").with_grads()
    assert draw.fwds(**given, _result=into) is into
    moved = (into.grad.to_numpy()[..., 1] * WEIGHTS).sum()
    assert moved == (pytest.approx(_slope(WEIGHTS)[0], rel=0.03) if antialias else 0)


def test_command_lists(device: spy.Device, module: spy.Module) -> None:
    given = _given(device, gradient=True)
    draw = module.one.raster(module.project, SIZE)
    commands = device.command_list()
    picture = draw.append_to(commands, **given)
    picture = picture.with_grads()
    picture.grad.copy_from(WEIGHTS.astype(np.float32))
    assert draw.bwds.append_to(commands, **given, _result=picture) is None
    for times in (1, 2):
        commands.submit()
        assert picture.to_numpy().sum(dtype=np.float64) == pytest.approx(AREA, rel=2e-3)
        slope = given["shift"].grad.to_numpy()[0]
        np.testing.assert_allclose(slope, times * _slope(WEIGHTS), rtol=0.03)
    # The list reads what arrays hold when it is submitted, faces among them.
    given["shift"].copy_from(np.array([[0.1, 0]], np.float32))
    before = picture.to_numpy()
    commands.submit()
    assert np.nonzero(picture.to_numpy())[1].mean() > np.nonzero(before)[1].mean() + 1.5
    given["_faces"].copy_from(np.zeros((1, 3), np.int32))
    commands.submit()
    assert not picture.to_numpy().any()


@deep
def test_streams(device: spy.Device, module: spy.Module) -> None:
    stream = device.stream()
    given = _given(device, gradient=True)
    draw = module.one.raster(module.project, SIZE)
    picture = draw.stream(stream)(**given).with_grads()
    assert picture.to_numpy().sum(dtype=np.float64) == pytest.approx(AREA, rel=2e-3)
    picture.grad.copy_from(WEIGHTS.astype(np.float32))
    draw.bwds.stream(stream)(**given, _result=picture)
    draw.stream(stream).bwds(**given, _result=picture)
    np.testing.assert_allclose(given["shift"].grad.to_numpy()[0], 2 * _slope(WEIGHTS), rtol=0.03)
    with pytest.raises(spy.BindError, match="3 is no stream of"):
        draw.stream(3)
    with pytest.raises(spy.BindError, match=r"append_to: .stream is for calls"):
        draw.stream(stream).append_to(device.command_list(), **given)
    with pytest.raises(spy.BindError, match=r".stream is not for a torch tensor|.stream is not for .*Tensor"):
        draw.stream(stream)(**(given | {"shade": torch.ones(3)}))


PARTS = """
module raster_parts;
public struct Corner : IDifferentiable { public float4 position; public float shade; }
public struct Light { public float power; }
"""
WHOLE = """
import raster_parts;
Corner project(float4 at) { Corner c; c.position = at; c.shade = 2; return c; }
float shade(Corner c, Light light) { return c.shade * light.power; }
"""


def test_types_of_another_file(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "raster_parts.slang").write_text(PARTS, encoding="utf-8")
    (tmp_path / "raster_whole.slang").write_text(WHOLE, encoding="utf-8")
    module: Any = spy.Module.load_from_file(device, tmp_path / "raster_whole.slang")
    draw = module.shade.raster(module.project, SIZE, antialias=False)
    found = draw(at=_clip(PLACE, 0.5), light={"power": 1.5}, _faces=[[0, 1, 2]])
    assert set(np.unique(found.round(4))) == {0, 3}


def test_faces_that_change(device: spy.Device, module: spy.Module) -> None:
    at = np.concatenate([_clip(PLACE, 0.5), _clip(PLACE * 0.5, 0.3)])
    given = _given(device)
    given |= {"at": spy.Tensor.from_numpy(device, at, "float4"), "shade": spy.Tensor.ones(device, 6)}
    draw = module.one.raster(module.project, SIZE)
    assert draw(**given).sum() == pytest.approx(AREA, rel=2e-3)
    given["_faces"].copy_from(np.array([[3, 4, 5]], np.int32))
    assert draw(**given).sum() == pytest.approx(AREA / 4, rel=5e-3)
    # An array of vectors, and corners that there are not, which an array on the device may come to hold.
    given["_faces"] = spy.Tensor.from_numpy(device, np.array([[0, 1, 2], [3, 4, 5]], np.int32), "int3")
    total = draw(**given).sum()
    if device.debug:  # it reports such corners: see below
        return
    given["_faces"].copy_from(np.array([[0, 1, 2], [3, 4, 6]], np.int32))
    assert AREA * 0.99 < draw(**given).sum() < total
    given["_faces"].copy_from(np.array([[0, 1, 2], [-1, 4, 2**31 - 1]], np.int32))
    assert draw(**given).sum() == pytest.approx(AREA, rel=2e-3)


def test_edges_of_three_triangles(device: spy.Device, module: spy.Module) -> None:
    # Three sheets that meet in one edge, and one triangle twice: every border is one, and the picture stays right.
    a, b = np.array([24.2, 4.3]), np.array([23.1, 35.2])
    ends = np.array([[3.3, 20.1], [40.4, 12.3], [44.2, 30.9]])
    at = _clip(np.concatenate([[a, b], ends]), 0.5)
    at[2:, 2] = 0.2, 0.4, 0.6
    faces = np.array([[0, 1, 2], [0, 1, 3], [1, 0, 4], [0, 1, 3]], np.int32)
    draw = module.one.raster(module.project, SIZE)
    found = draw(at=at, shade=np.ones(5, np.float32), shift=[0, 0], light=1.0, _faces=faces)
    large = (3840, 4608)
    fine = module.one.raster(module.project, large, antialias=False)(
        at=at, shade=np.ones(5, np.float32), shift=[0, 0], light=1.0, _faces=faces
    )
    coarse = fine.reshape(SIZE[0], 96, SIZE[1], 96).mean((1, 3), dtype=np.float64)
    assert found.sum(dtype=np.float64) == pytest.approx(coarse.sum(), rel=3e-3)
    assert np.abs(found - coarse).max() < 0.5


def test_tensors_of_pytorch(device: spy.Device, module: spy.Module) -> None:
    shift = torch.zeros(1, 2, requires_grad=True)
    shade = torch.full((3,), 1.5, requires_grad=True)
    faces = torch.tensor([[0, 1, 2]])
    draw = module.three.raster(module.project, SIZE)
    given = {"at": torch.from_numpy(_clip(PLACE, 0.5)), "shade": shade, "shift": shift, "light": 2.0}
    picture = draw(**given, _faces=faces)
    assert picture.shape == (*SIZE, 3) and picture.dtype == torch.float32 and picture.requires_grad
    assert picture[..., 1].sum().item() == pytest.approx(2 * AREA, rel=2e-3)
    (picture[..., 0] * torch.from_numpy(WEIGHTS)).sum().backward()
    assert shift.grad is not None and shade.grad is not None
    np.testing.assert_allclose(shift.grad.numpy()[0], 3 * _slope(WEIGHTS), rtol=0.03)
    inner = AREA * (PLACE.mean(0) - 0.5) @ [0.02, 0.05] * 2
    assert shade.grad.sum().item() == pytest.approx(inner, rel=5e-3)
    with torch.no_grad():
        assert not draw(**given, _faces=faces).requires_grad
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad = torch.autograd.grad(draw(**given, _faces=faces).sum(), shift, create_graph=True)[0]
        grad.sum().backward()


@one_device
def test_what_is_refused(device: spy.Device, module: spy.Module) -> None:
    given = _given(device, gradient=True)
    draw = module.one.raster(module.project, SIZE)
    picture = draw(**given)
    with pytest.raises(spy.BindError, match=r"one.raster.bwds: _result is .*; a picture with a gradient"):
        draw.bwds(**given, _result=picture)
    with pytest.raises(spy.BindError, match=r"one.raster.fwds: no argument has a tangent"):
        draw.fwds(**_given(device))
    with pytest.raises(spy.BindError, match=r"array for the tangent"):
        draw.fwds(**given, _result=picture)
    with pytest.raises(spy.BindError, match=r"a derivative has no derivatives"):
        draw.bwds.fwds  # noqa: B018 - the property raises
    with pytest.raises(spy.ShapeError, match=r"Tensor<float> of shape \(40, 48\) was expected"):
        draw(**given, _result=spy.Tensor.zeros(device, (1, *SIZE)))
    with pytest.raises(spy.BindError, match=r"_faces\[0\] names corner 3; there are 3"):
        draw(**(given | {"_faces": spy.Tensor.from_numpy(device, np.array([[0, 1, 3]], np.int32))}))
    with pytest.raises(spy.BindError, match=r'astype\("int"\)'):
        draw(**(given | {"_faces": spy.Tensor.from_numpy(device, np.array([[0, 1, 2]], np.int64))}))
    with pytest.raises(spy.ShapeError, match=r"called over shape \(2, 1, 3\)"):
        draw(**(given | {"shift": spy.Tensor.zeros(device, (2, 1, 1), "float2")}))
    with pytest.raises(spy.BindError, match=r"_faces is a torch.Tensor, and no other argument is one"):
        draw(**(given | {"_faces": torch.tensor([[0, 1, 2]])}))
    with pytest.raises(spy.BindError, match=r"background is None; a number was expected, or 1 of them"):
        module.one.raster(module.project, SIZE, background=None)
    with pytest.raises(spy.BindError, match="layers"):
        module.one.raster(module.project, SIZE, layers=0)
    with pytest.raises(spy.BindError, match=r"_result is .*; the picture is a new one of the kind of"):
        draw(**(given | {"shade": torch.ones(3)}), _result=torch.zeros(SIZE))
    with pytest.raises(spy.BindError, match=r"one.raster: _faces is \[\[0, 1\], \[2\]\]"):
        draw(**(given | {"_faces": [[0, 1], [2]]}))
    assert draw(**(given | {"_faces": [[0, 1, 2]]})).shape == SIZE
    commands = device.command_list()
    with pytest.raises(spy.BindError, match=r"a command list does not take .at."):
        draw.append_to(commands, **(given | {"at": _clip(PLACE, 0.5)}))
    with pytest.raises(spy.BindError, match=r"one.raster: _result is 'numpy'; a Tensor or 'tensor' was expected"):
        draw.append_to(commands, **given, _result="numpy")
    with pytest.raises(spy.BindError, match=r"names corner"):
        draw.append_to(commands, **(given | {"_faces": np.array([[0, 1, 9]])}))
    assert len(commands) == 0
    with pytest.raises(spy.BindError, match=r"no command list of"):
        draw.append_to([], **given)  # type: ignore[arg-type]


@deep
def test_a_debug_device_names_corners_that_there_are_not(backend_name: str) -> None:
    with spy.Device(backend_name, debug=True) as device:
        module = spy.Module.load_from_source(device, "raster_calls", TEXT)
        given = _given(device)
        draw = module.one.raster(module.project, SIZE)
        assert draw(**given).sum() > 0
        given["_faces"].copy_from(np.array([[0, 1, 7]], np.int32))
        with pytest.raises(spy.OutOfBoundsError, match="7"):
            draw(**given)
            device.wait()
