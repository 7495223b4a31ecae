"""Pictures of triangles beside areas of bodies that hide each other, fans of triangles, and other devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._rays import sphere
from tests.depth import deep, needs, one_device

pytestmark = needs("uint64_t")
Floats = npt.NDArray[np.float64]
SIZE = (512, 512)
TEXT = """
struct Corner : IDifferentiable { float4 position; float shade; }
[Differentiable] Corner project(float4 at, float shade) { Corner c; c.position = at; c.shade = shade; return c; }
[Differentiable] float f(Corner c) { return c.shade; }
"""


def _drawn(
    device: spy.Device, place: Floats, depth: Floats, faces: npt.NDArray[Any], shade: Floats
) -> tuple[float, Floats]:
    """The sum of a picture of corners at places in pixels, and its slope in these places."""
    rows, columns = SIZE
    at = np.stack([2 * place[:, 0] / columns - 1, 1 - 2 * place[:, 1] / rows, depth, np.ones(len(place))], -1)
    corners = spy.Tensor.from_numpy(device, at.astype(np.float32), "float4").with_grads()
    module = spy.Module.load_from_source(device, "test_graphics_proof", TEXT)
    draw = module.f.raster(module.project, SIZE)
    given = {"at": corners, "shade": _tensor(device, shade), "_faces": faces.astype(np.int32)}
    picture = draw(**given).with_grads()
    picture.grad.copy_from(np.ones(SIZE, np.float32))
    draw.bwds(**given, _result=picture)
    slope = corners.grad.numpy()[:, :2] * [2 / columns, -2 / rows]
    return float(picture.numpy().sum(dtype=np.float64)), slope


def _tensor(device: spy.Device, shade: npt.NDArray[Any]) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, shade.astype(np.float32))


@deep
@one_device
@pytest.mark.parametrize(("around", "section"), [(64, 24), (240, 80)])
def test_a_torus(device: spy.Device, around: int, section: int) -> None:
    u, v = np.meshgrid(np.arange(around) / around, np.arange(section) / section, indexing="ij")
    u, v = 2 * np.pi * u.ravel(), 2 * np.pi * v.ravel()
    large, small = 150.0, 60.0
    far = large + small * np.cos(v)
    offset = np.stack([far * np.cos(u), far * np.sin(u)], -1)
    k = np.arange(around * section).reshape(around, section)
    a, b = k, np.roll(k, -1, 0)
    c, d = np.roll(a, -1, 1), np.roll(b, -1, 1)
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([b, d, c], -1).reshape(-1, 3)])
    total, slope = _drawn(
        device, offset + np.array([257.3, 255.6]), 0.5 + 0.001 * small * np.sin(v), faces, np.ones(len(u))
    )
    # Between two regular polygons, whose corners are those of the torus that are farthest out and farthest in.
    ring = around / 2 * np.sin(2 * np.pi / around)
    low, high = large - small, large + small
    area = ring * (high**2 - low**2)
    assert total == pytest.approx(area, rel=5e-4)
    assert (slope * offset).sum() == pytest.approx(2 * area, rel=0.005)
    # A thicker torus covers more on both sides: d/dr of ring * ((R + r)^2 - (R - r)^2).
    thick = np.cos(v)[:, None] * np.stack([np.cos(u), np.sin(u)], -1)
    assert (slope * thick).sum() == pytest.approx(ring * 4 * large, rel=0.005)
    assert np.abs(slope.sum(0)).max() < 0.005 * 4 * large


def _clipped(polygon: Floats, x: float) -> tuple[float, float]:
    """The area of a convex polygon where columns are below ``x``, and how long the cut is."""
    kept, cut = [], []
    for p, q in zip(polygon, np.roll(polygon, -1, 0), strict=True):
        if p[0] <= x:
            kept.append(p)
        if (p[0] <= x) != (q[0] <= x):
            cut.append(p + (q - p) * (x - p[0]) / (q[0] - p[0]))
            kept.append(cut[-1])
    a = np.array(kept)
    b = np.roll(a, -1, 0)
    return abs((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()) / 2, abs(cut[0][1] - cut[1][1])


@deep
@one_device
@pytest.mark.parametrize("count", [300, 3000])
def test_a_sphere_behind_a_wall(device: spy.Device, count: int) -> None:
    from scipy.spatial import ConvexHull

    k = np.arange(count) + 0.5
    z, turn = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    points = np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=-1)
    radius, wall = 180.0, 301.4
    offset = radius * points[:, :2]
    middle = np.array([250.3, 261.8])
    hull = middle + offset[ConvexHull(offset).vertices]
    edges = np.array([[wall, -20.0], [600, -20], [600, 560], [wall, 560]])
    place = np.concatenate([middle + offset, edges])
    depth = np.concatenate([0.6 + 0.3 * points[:, 2], np.full(4, 0.1)])
    faces = np.concatenate(
        [ConvexHull(points).simplices, [[count, count + 1, count + 2], [count, count + 2, count + 3]]]
    )
    total, slope = _drawn(device, place, depth, faces, np.repeat([1.0, 0.0], [count, 4]))
    area, chord = _clipped(hull, wall)
    assert total == pytest.approx(area, rel=5e-4)
    # The wall's edge uncovers as much as it is long, and hides as much of a sphere that moves to the right.
    assert slope[count:, 0].sum() == pytest.approx(chord, rel=0.005)
    assert slope[:count, 0].sum() == pytest.approx(-chord, rel=0.005)
    h = 1e-4
    larger, smaller = (_clipped(middle + (hull - middle) * s, wall)[0] for s in (1 + h, 1 - h))
    assert (slope[:count] * offset).sum() == pytest.approx((larger - smaller) / (2 * h), rel=0.005)


@one_device
@pytest.mark.parametrize("times", [1, pytest.param(50, marks=deep)])
def test_fans_have_each_pixel_once(device: spy.Device, times: int) -> None:
    rng = np.random.default_rng(0)
    pictures, rows = 2000, 16
    for _ in range(times):
        spokes = int(rng.integers(5, 12))
        angle = 2 * np.pi * (np.arange(spokes) + rng.uniform(-0.4, 0.4, (pictures, spokes))) / spokes
        far = rng.uniform(6, 60, (pictures, spokes))
        hub = rng.uniform(-1, 1, (pictures, 2))
        # Half of the hubs lie at centres of pixels or between four, where edges meet pixels.
        hub = np.where(rng.random((pictures, 1)) < 0.5, np.round(hub * rows) / rows, hub)
        rim = hub[:, None] + far[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)
        w = rng.uniform(0.3, 3, (pictures, spokes + 1))
        xy = np.concatenate([hub[:, None], rim], 1) * w[..., None]
        at = np.concatenate([xy, 0.5 * w[..., None], w[..., None]], -1).astype(np.float32)
        k = np.arange(spokes)
        faces = np.stack([0 * k, 1 + k, 1 + (k + 1) % spokes], -1).astype(np.int32)
        position = spy.Tensor.from_numpy(device, at, "float4")
        seen = spy.graphics.rasterize(position, faces, (rows, rows))
        assert (seen.numpy()[..., 3] > 0).all()
        assert not spy.graphics.rasterize(position, faces, (rows, rows), behind=seen).numpy().any()


@deep
def test_one_picture_on_all_devices() -> None:
    reasons = {d.type: d.reason for d in spy.devices()}
    names = [name for name in ("cpu", "vulkan", "cuda", "rhi-vulkan") if name in reasons and not reasons[name]]
    if len(names) < 2:
        pytest.skip("there is one device alone")
    rng = np.random.default_rng(3)
    # 60 triangles of which many hide each other; the greatest w is 3 times the least.
    w = rng.uniform(0.7, 2, (60, 3, 1))
    xy = (rng.uniform(-1, 1, (60, 1, 2)) + rng.normal(size=(60, 3, 2)) * 0.4) * w
    at = np.concatenate([xy, rng.uniform(0.1, 0.9, (60, 1, 1)) * w, w], -1).reshape(-1, 4).astype(np.float32)
    shade, faces = rng.random(180, np.float32), np.arange(180, dtype=np.int32).reshape(-1, 3)
    pictures, slopes = [], []
    for name in names:
        with spy.Device(name) as device:
            if "uint64_t" not in device.caps.scalars:
                continue
            module = spy.Module.load_from_source(device, "test_graphics_proof", TEXT)
            draw = module.f.raster(module.project, (64, 80))
            corners = spy.Tensor.from_numpy(device, at, "float4").with_grads()
            given = {"at": corners, "shade": _tensor(device, shade), "_faces": faces}
            picture = draw(**given).with_grads()
            picture.grad.copy_from(np.ones((64, 80), np.float32))
            draw.bwds(**given, _result=picture)
            pictures.append(picture.numpy())
            slopes.append(corners.grad.numpy())
    assert len(pictures) > 1 and pictures[0].std() > 0.1
    for picture, slope in zip(pictures[1:], slopes[1:], strict=True):
        # Places in 256ths of a pixel are rounded alike but for products that a device may fuse.
        off = np.abs(picture - pictures[0]) > 1e-5
        assert off.mean() < 2e-3
        np.testing.assert_allclose(slope, slopes[0], rtol=0.02, atol=0.02 * np.abs(slopes[0]).max())


RAYS = """
import rays;
float lit(int2 pixel, Scene scene, float3 lamp)
{
    let ray = Ray(float3((float2(pixel) + 0.5) / 24 - 1.5, -4), float3(0.1, 0.05, 1));
    let hit = scene.trace(ray);
    if (!hit.isHit)
        return 0;
    let surface = scene.at(hit, ray);
    let way = lamp - surface.position;
    if (scene.blocked(Ray(surface.position, way, 1e-3, 1)))
        return 0.1;
    return 0.1 + abs(dot(surface.normal, way)) / dot(way, way) + 0.01 * hit.instance;
}
"""


@deep
def test_one_picture_of_rays_on_all_devices() -> None:
    reasons = {d.type: d.reason for d in spy.devices()}
    names = [name for name in ("cpu", "vulkan", "cuda", "rhi-vulkan") if name in reasons and not reasons[name]]
    if len(names) < 2:
        pytest.skip("there is one device alone")
    corners, faces = sphere(24)
    far = np.eye(4)[:3] * [[1.5], [1.5], [0.2]] + [[0, 0, 0, 0.3], [0, 0, 0, 0.2], [0, 0, 0, 2]]
    pictures = []
    for name in names:
        with spy.Device(name) as device:
            mesh = spy.Mesh(corners, faces)
            scene = spy.Scene(device, [mesh, (mesh, 0.4 * np.eye(4)[:3]), (mesh, far)])
            module: Any = spy.Module.load_from_source(device, "test_rays_proof", RAYS)
            pictures.append(module.lit(spy.grid((72, 72)), scene, spy.float3(2, -1.5, -5)).to_numpy())
    # What is lit, what is in a shadow, and what is beside.
    assert all((abs(pictures[0] - level) < 1e-6).mean() > 0.05 for level in (0, 0.1))
    for picture in pictures[1:]:
        assert (np.abs(picture - pictures[0]) > 1e-5).mean() < 2e-3
