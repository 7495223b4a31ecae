"""Silhouettes of triangles, beside areas, and pictures with many times as many pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._corners import CORNER
from tests.depth import deep, needs, one_device, sampled

pytestmark = [one_device, needs("uint64_t")]

Floats = npt.NDArray[np.float64]

TEXT = (
    CORNER
    + """
[Differentiable] float f(Corner c) { return c.uv.x; }
"""
)


def _brightness(
    device: spy.Device, at: npt.NDArray[Any], faces: npt.NDArray[Any], colors: npt.NDArray[Any], size: tuple[int, int]
) -> tuple[float, Floats]:
    """The sum of a picture of triangles whose corners have colors, and its slope in the corners, in pixels."""
    corners = spy.Tensor.from_numpy(device, at.astype(np.float32), "float4").with_grads()
    uv = spy.Tensor.from_numpy(device, np.stack([colors, colors], -1).astype(np.float32), "float2")
    given = {"at": corners, "uv": uv, "id": np.zeros(len(at), np.int32), "_faces": faces.astype(np.int32)}
    module = spy.Module.load_from_source(device, "bright", TEXT)
    draw = module.f.raster(module.project, size)
    picture = draw(**given).with_grads()
    picture.grad.copy_from(np.ones(size, np.float32))
    draw.bwds(**given, _result=picture)
    slope = corners.grad.to_numpy()[:, :2] * at[:, 3:] * [2 / size[1], -2 / size[0]]
    return float(picture.to_numpy().sum(dtype=np.float64)), slope


def _clip(place: npt.ArrayLike, size: tuple[int, int], depth: float) -> Floats:
    """Corners at places of a picture, columns and rows, in clip coordinates at some distance."""
    x, y = np.asarray(place, np.float64).T
    w = np.full(len(x), 1.7)
    return np.stack([(2 * x / size[1] - 1) * w, (1 - 2 * y / size[0]) * w, depth * w, w], axis=-1)


def test_the_area_of_a_triangle(device: spy.Device) -> None:
    size = (480, 512)
    place = np.array([[61.3, 400.2], [300.7, 30.9], [470.1, 333.3]])
    total, slope = _brightness(device, _clip(place, size, 0.5), np.array([[0, 1, 2]]), np.ones(3), size)
    a, b, c = place
    area = abs(np.linalg.det([b - a, c - a])) / 2
    assert total == pytest.approx(area, rel=2e-4)
    # The area changes with a corner as half the opposite side does, turned by a right angle.
    for k in range(3):
        along = place[(k + 2) % 3] - place[(k + 1) % 3]
        wanted = np.array([-along[1], along[0]]) / 2 * np.sign(np.linalg.det([b - a, c - a]))
        np.testing.assert_allclose(slope[k], wanted, atol=0.005 * np.abs(along).max())


def _quad(x0: float, x1: float, y0: float, y1: float) -> Floats:
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])


QUAD = np.array([[0, 1, 2], [0, 2, 3]])


@deep
def test_what_is_behind_something_else_does_not_move(device: spy.Device) -> None:
    size = (96, 128)
    back = _clip(_quad(20.3, 80.6, 20.4, 70.2), size, 0.8)
    front = _clip(_quad(50.4, 110.7, 30.3, 90.1), size, 0.3)
    colors = np.repeat([0.25, 1.0], 4)
    total, slope = _brightness(device, np.concatenate([back, front]), np.concatenate([QUAD, QUAD + 4]), colors, size)
    hidden = (80.6 - 50.4) * (70.2 - 30.3)
    assert total == pytest.approx(0.25 * (60.3 * 49.8 - hidden) + 60.3 * 59.8, rel=1e-3)
    # The back one loses at its left side what it gains at the part of its right side that is seen.
    seen = 30.3 - 20.4
    assert slope[:4, 0].sum() == pytest.approx(0.25 * (seen - 49.8), abs=0.4)
    assert slope[:4, 1].sum() == pytest.approx(0.25 * ((50.4 - 20.3) - 60.3), abs=0.4)
    # Over the back one, the front one hides what it covers.
    assert slope[4:, 0].sum() == pytest.approx(0.25 * (70.2 - 30.3), abs=0.4)
    assert slope[4:, 1].sum() == pytest.approx(0.25 * (80.6 - 50.4), abs=0.4)


@sampled(12)
@pytest.mark.parametrize("count", [200, 2000, pytest.param(20_000, marks=deep)])
def test_the_area_of_a_sphere(device: spy.Device, count: int) -> None:
    from scipy.spatial import ConvexHull

    size = (512, 512)
    # Corners on a spiral from one pole to the other. Seen from afar, their hull covers the hull of what is seen.
    k = np.arange(count) + 0.5
    z, turn = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    points = np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=-1)
    faces = ConvexHull(points).simplices
    radius = 200.0
    at = np.concatenate([points * [radius / 256, radius / 256, 0.4], np.ones((len(points), 1))], axis=1)
    at[:, 2] += 0.5
    total, slope = _brightness(device, at, faces, np.ones(len(at)), size)
    area = ConvexHull(points[:, :2] * radius).volume
    assert total == pytest.approx(area, rel=2e-4)
    growth = (slope * points[:, :2] * [radius, -radius]).sum()
    assert growth == pytest.approx(2 * area, rel=0.005)
    assert np.abs(slope.sum(axis=0)).max() < 0.01 * 2 * radius


KNOT = """
struct Corner : IDifferentiable { float4 position; float2 uv; }
[Differentiable] Corner project(no_diff float3 at, no_diff float2 uv, float3 axis, float3 shift)
{
    let angle = sqrt(dot(axis, axis));
    let unit = axis / angle;
    let turn = cross(unit, at);
    let place = at + sin(angle) * turn + (1 - cos(angle)) * cross(unit, turn) + shift;
    Corner c;
    c.position = float4(2.4 * place.xy, (4 - place.z) * (10.0 / 9), 5 - place.z);
    c.uv = uv;
    return c;
}
[Differentiable] float one(Corner c) { return 1; }
float stripes(Corner c) { return 0.6 + 0.2 * c.uv.x + 0.2 * c.uv.y; }
"""
POSE = np.array([0.5, -0.7, 0.4, 0.2, -0.1, 0.3])


def _knot(
    around: int, section: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """A tube along a trefoil, in parts before itself."""
    t = 2 * np.pi * np.arange(around) / around
    middle = np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], 1) * 0.42
    along = np.roll(middle, -1, 0) - np.roll(middle, 1, 0)
    side = np.cross(along, [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(side, along)
    up /= np.linalg.norm(up, axis=1, keepdims=True)
    angle = 2 * np.pi * np.arange(section) / section
    ring = side[:, None] * np.cos(angle)[:, None] + up[:, None] * np.sin(angle)[:, None]
    corners = (middle[:, None] + 0.24 * ring).reshape(-1, 3)
    uv = np.stack(np.broadcast_arrays(np.cos(t)[:, None], np.sin(angle)[None]), -1).reshape(-1, 2)
    a = np.arange(around * section).reshape(around, section)
    b = np.roll(a, -1, 0)
    c, d = np.roll(a, -1, 1), np.roll(b, -1, 1)
    faces = np.concatenate([np.stack(x, -1).reshape(-1, 3) for x in ((a, b, c), (b, d, c))])
    return corners.astype(np.float32), uv.astype(np.float32), faces.astype(np.int32)


def _coarse(picture: npt.NDArray[Any], times: int) -> Floats:
    """The means of squares of so many pixels."""
    rows, columns = picture.shape
    return picture.reshape(rows // times, times, columns // times, times).mean((1, 3), dtype=np.float64)


def test_silhouettes_are_smooth(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "knot", KNOT)
    corners, uv, faces = _knot(240, 24)
    given = {
        "at": corners,
        "uv": uv,
        "_faces": faces,
        "axis": POSE[:3].astype(np.float32),
        "shift": POSE[3:].astype(np.float32),
    }
    rough, smooth, fine = (
        module.stripes.raster(module.project, size, antialias=antialias)(**given)
        for size, antialias in (((96, 96), False), ((96, 96), True), ((768, 768), False))
    )
    wanted = _coarse(fine, 8)
    assert np.sqrt(((smooth - wanted) ** 2).mean()) < 0.3 * np.sqrt(((rough - wanted) ** 2).mean())


@deep
@pytest.mark.parametrize(("size", "times", "bound"), [(96, 8, 0.06), pytest.param(512, 4, 0.02, marks=deep)])
def test_gradients_of_a_body_before_itself(device: spy.Device, size: int, times: int, bound: float) -> None:
    module = spy.Module.load_from_source(device, "knot", KNOT)
    corners, uv, faces = _knot(120, 16)
    y, x = np.mgrid[:size, :size] / size
    weights = (1 + np.sin(5 * x + 1) * np.cos(4 * y)).astype(np.float32)
    at = spy.Tensor.from_numpy(device, corners, "float3")
    axis, shift = (
        spy.Tensor.from_numpy(device, p[None].astype(np.float32), "float3").with_grads() for p in (POSE[:3], POSE[3:])
    )
    given = {
        "at": at,
        "uv": spy.Tensor.from_numpy(device, uv, "float2"),
        "axis": axis,
        "shift": shift,
        "_faces": faces,
    }
    draw = module.one.raster(module.project, (size, size))
    picture = draw(**given).with_grads()
    picture.grad.copy_from(weights)
    draw.bwds(**given, _result=picture)
    found = np.concatenate([axis.grad.to_numpy(), shift.grad.to_numpy()], axis=None)
    fine = module.one.raster(module.project, (size * times, size * times), antialias=False)

    def value(pose: Floats) -> float:
        parts = {"axis": pose[:3].astype(np.float32), "shift": pose[3:].astype(np.float32)}
        return float((_coarse(fine(**(given | parts), _result="numpy"), times) * weights).sum())

    wanted = [(value(POSE + step) - value(POSE - step)) / 0.02 for step in 0.01 * np.eye(6)]
    np.testing.assert_allclose(found, wanted, atol=bound * np.abs(wanted).max())
