"""Pictures of triangles, beside formulas of NumPy's and PyTorch's in double precision, and areas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.conformance._corners import CORNER
from tests.depth import deep, needs, one_device, sampled

pytestmark = [one_device, needs("uint64_t")]

Floats = npt.NDArray[np.float64]

TEXT = (
    CORNER
    + """
[Differentiable] float idOf(Corner c) { return c.id; }
[Differentiable] float2 uvOf(Corner c) { return c.uv; }
[Differentiable] float colorOf(Corner c, float color) { return color; }
[Differentiable] float3 waves(Corner c, float3 phase) { return sin(3 * c.uv.x + phase) * c.uv.y; }
"""
)


class Scene:
    """Triangles in double precision: which pixels they cover, where, and how far pixels are from edges."""

    def __init__(self, at: Floats, faces: npt.NDArray[Any], size: tuple[int, int]) -> None:
        rows, columns = size
        y, x = np.mgrid[:rows, :columns] + 0.5
        pixel = np.stack([x, y, np.ones_like(x)], axis=-1)
        place = np.stack([(at[:, 3] + at[:, 0]) / 2 * columns, (at[:, 3] - at[:, 1]) / 2 * rows, at[:, 3]], axis=-1)
        self.depth = np.full(size, np.inf)
        self.face = np.full(size, -1)
        self.weights = np.zeros((*size, 3))
        # The distance from the nearest edge of any triangle, in pixels.
        self.margin = np.full(size, np.inf)
        for k, face in enumerate(faces):
            a, b, c = place[face]
            lines = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)])
            sides = pixel @ lines.T * np.sign(np.dot(a, np.cross(b, c)))
            self.margin = np.minimum(self.margin, np.abs(sides / np.hypot(lines[:, 0], lines[:, 1])).min(axis=-1))
            with np.errstate(all="ignore"):
                depth = sides @ at[face, 2] / (sides @ at[face, 3])
            seen = (sides > 0).all(axis=-1) & (depth >= 0) & (depth <= 1) & (depth < self.depth)
            # Where two surfaces are at one depth, and at both ends of it, either may be seen.
            with np.errstate(invalid="ignore"):
                close = np.minimum(np.abs(depth - self.depth), np.minimum(np.abs(depth), np.abs(depth - 1))) < 1e-4
            self.margin[close & (sides > 0).all(axis=-1)] = 0
            self.depth[seen], self.face[seen] = depth[seen], k
            self.weights[seen] = (sides / sides.sum(axis=-1, keepdims=True))[seen]


def _triangles(seed: int, count: int) -> tuple[Floats, npt.NDArray[np.int32]]:
    """Random triangles, some of them large, behind the eye, or beside the picture."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(-1.2, 1.2, (count, 1, 2))
    w = rng.uniform(0.5, 2, (count, 3, 1)) * np.where(rng.random((count, 3, 1)) < 0.1, -1, 1)
    xy = (middle + rng.normal(size=(count, 3, 2)) * rng.choice([0.05, 0.3, 1], (count, 1, 1))) * w
    z = rng.uniform(-0.1, 1.1, (count, 3, 1)) * w
    at = np.concatenate([xy, z, w], axis=-1).astype(np.float32).astype(np.float64)
    return at.reshape(-1, 4), np.arange(3 * count, dtype=np.int32).reshape(-1, 3)


def _draw(device: spy.Device, name: str, size: tuple[int, int], **options: Any) -> Any:
    module = spy.Module.load_from_source(device, "raster", TEXT)
    return module[name].raster(module.project, size, **options)


@pytest.mark.parametrize("seed", range(6))
@sampled(12)
def test_what_is_seen(device: spy.Device, seed: int) -> None:
    size = (45, 61)
    at, faces = _triangles(seed, 60)
    scene = Scene(at, faces, size)
    ids = np.repeat(np.arange(60, dtype=np.int32), 3)
    uv = np.random.default_rng(seed).normal(size=(180, 2)).astype(np.float32)
    given = {"at": at.astype(np.float32), "uv": uv, "id": ids, "_faces": faces}
    clear = scene.margin > 0.01
    assert clear.mean() > 0.9 and len(np.unique(scene.face[clear])) > 15
    found = _draw(device, "idOf", size, background=-1, antialias=False)(**given)
    np.testing.assert_array_equal(found[clear], scene.face[clear])
    uvs = _draw(device, "uvOf", size, background=(7, 8), antialias=False)(**given)
    wanted = np.einsum("yxc,yxcn->yxn", scene.weights, uv.astype(np.float64)[faces[scene.face]])
    wanted[scene.face < 0] = 7, 8
    np.testing.assert_allclose(uvs[clear], wanted[clear], rtol=1e-3, atol=2e-3)


def test_triangles_of_all_sizes(device: spy.Device) -> None:
    """From less than a pixel to twice the picture, many of them cut by its sides."""
    size, count = (90, 130), 240
    rng = np.random.default_rng(7)
    long = 0.5 * 200 ** np.linspace(0, 1, count)[:, None, None]  # the smaller, the nearer
    place = rng.uniform(-10, [140, 100], (count, 1, 2)) + long * rng.normal(size=(count, 3, 2))
    w = rng.uniform(0.5, 2, (count, 3, 1))
    # In 256ths of a pixel, as corners are rounded to.
    place = np.round(place * 256) / 256
    depth = np.broadcast_to((np.arange(count)[:, None, None] + 0.5) / count, w.shape)
    xy = [2 * place[..., :1] / size[1] - 1, 1 - 2 * place[..., 1:] / size[0]]
    at = np.concatenate([*(x * w for x in xy), depth * w, w], -1).reshape(-1, 4)
    faces = np.arange(3 * count).reshape(-1, 3).astype(np.int32)
    scene = Scene(at, faces, size)
    given = {"at": at.astype(np.float32), "uv": np.zeros((3 * count, 2), np.float32), "_faces": faces}
    found = _draw(device, "idOf", size, background=-1, antialias=False)(
        **given, id=np.repeat(np.arange(count, dtype=np.int32), 3)
    )
    clear = scene.margin > 0.004
    assert clear.mean() > 0.9 and len(np.unique(scene.face[clear])) > 50
    np.testing.assert_array_equal(found[clear], scene.face[clear])


def _sheet(cells: int, pixels: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """A sheet that covers the picture; its inner corners lie anywhere near their place, at several distances."""
    rng = np.random.default_rng(cells)
    y, x = np.mgrid[: cells + 1, : cells + 1] / cells * 2.5 - 1.25
    jitter = rng.uniform(-1, 1, (2, *x.shape)) * 0.25 / cells
    jitter[:, [0, -1]] = jitter[:, :, [0, -1]] = 0
    # Half of them lie at centres of pixels and at corners of pixels. No triangle turns over.
    at = np.stack([x, y]) + jitter
    at = np.where(rng.random(x.shape) < 0.5, np.round(pixels * at) / pixels, at)
    w = rng.uniform(0.5, 2, x.shape)
    corners = np.stack([at[0] * w, at[1] * w, 0.5 * w, w], axis=-1).reshape(-1, 4)
    k = np.arange((cells + 1) ** 2).reshape(cells + 1, cells + 1)
    a, b, c, d = k[:-1, :-1], k[:-1, 1:], k[1:, :-1], k[1:, 1:]
    halves = np.stack([np.stack([a, b, c], -1), np.stack([b, d, c], -1)], axis=2)
    return corners.astype(np.float32), halves.reshape(-1, 3).astype(np.int32)


@sampled(12)
@pytest.mark.parametrize("cells", [3, 24, pytest.param(317, marks=deep)])
def test_each_pixel_once(device: spy.Device, cells: int) -> None:
    # 317 cells have 100,000 corners, around each of which lie six triangles.
    size = (64, 64) if cells < 100 else (512, 512)
    corners, faces = _sheet(cells, size[0])
    uv, ids = np.zeros((len(corners), 2), np.float32), np.zeros(len(corners), np.int32)
    draw = _draw(device, "colorOf", size, antialias=False)
    rng = np.random.default_rng(0)
    for _ in range(3):
        part = rng.integers(0, 4, len(faces))
        # A pixel that two triangles had would be in two parts, most times, and one between two in none.
        masks = [draw(at=corners, uv=uv, id=ids, color=1.0, _faces=faces[part == k]) for k in range(4)]
        np.testing.assert_array_equal(sum(masks), np.ones(size))


def test_large_and_small_triangles(device: spy.Device) -> None:
    # A floor that begins behind the eye, in two triangles and in 800.
    pictures = []
    for cells in (1, 20):
        v, u = np.mgrid[: cells + 1, : cells + 1] / cells
        depth = 6 * v - 1
        at = np.stack([4 * u - 2, np.full_like(u, -0.4), depth * 0.15, depth], -1).reshape(-1, 4).astype(np.float32)
        k = np.arange((cells + 1) ** 2).reshape(cells + 1, cells + 1)
        a, b, c, d = (x.ravel() for x in (k[:-1, :-1], k[:-1, 1:], k[1:, :-1], k[1:, 1:]))
        faces = np.concatenate([np.stack([a, b, c], -1), np.stack([b, d, c], -1)]).astype(np.int32)
        uv = np.stack([u, v], -1).reshape(-1, 2).astype(np.float32)
        draw = _draw(device, "uvOf", (40, 48), background=-1, antialias=False)
        pictures.append(draw(at=at, uv=uv, id=np.zeros(len(at), np.int32), _faces=faces))
    assert 0.3 < (pictures[0][..., 0] >= 0).mean() < 0.6
    np.testing.assert_allclose(*pictures, atol=1e-4)


def _clip(place: npt.ArrayLike, size: tuple[int, int], depth: float) -> Floats:
    """Corners at places of a picture, columns and rows, in clip coordinates at some distance."""
    x, y = np.asarray(place, np.float64).T
    w = np.full(len(x), 1.7)
    return np.stack([(2 * x / size[1] - 1) * w, (1 - 2 * y / size[0]) * w, depth * w, w], axis=-1)


def test_gradients_of_colors(device: spy.Device) -> None:
    size = (30, 40)
    at, faces = _triangles(3, 12)
    at[:, 3] = np.abs(at[:, 3])
    scene = Scene(at, faces, size)
    rng = np.random.default_rng(1)
    uv, phase = rng.normal(size=(36, 2)).astype(np.float32), np.array([0.1, 1.0, 2.0], np.float32)
    # Pixels at edges are left out: their words differ.
    upstream = (rng.normal(size=(*size, 3)) * (scene.margin > 0.05)[..., None]).astype(np.float32)
    arrays = {
        "at": spy.Tensor.from_numpy(device, at.astype(np.float32), "float4").with_grads(),
        "uv": spy.Tensor.from_numpy(device, uv, "float2").with_grads(),
        "phase": spy.Tensor.from_numpy(device, phase[None], "float3").with_grads(),
    }
    draw = _draw(device, "waves", size, antialias=False)
    given = {**arrays, "id": np.zeros(36, np.int32), "_faces": faces}
    picture = draw(**given).with_grads()
    picture.grad.copy_from(upstream)
    draw.bwds(**given, _result=picture)
    leaves = [torch.tensor(np.asarray(x, np.float64), requires_grad=True) for x in (at, uv, phase)]
    t_at, t_uv, t_phase = leaves
    rows, columns = size
    seen = torch.from_numpy(scene.face.astype(np.int64))
    corner = torch.from_numpy(faces.astype(np.int64))[seen.clamp(min=0)]
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    pixel = torch.stack([x + 0.5, y + 0.5, torch.ones_like(x)], -1).double()
    place = torch.stack(
        [(t_at[:, 3] + t_at[:, 0]) / 2 * columns, (t_at[:, 3] - t_at[:, 1]) / 2 * rows, t_at[:, 3]], -1
    )
    a, b, c = (place[corner[..., k]] for k in range(3))
    sides = torch.stack([(torch.linalg.cross(p, q) * pixel).sum(-1) for p, q in ((b, c), (c, a), (a, b))], -1)
    weights = sides / sides.sum(-1, keepdim=True)
    between = (weights[..., None] * t_uv[corner]).sum(-2)
    color = torch.sin(3 * between[..., :1] + t_phase) * between[..., 1:]
    color = torch.where((seen >= 0)[..., None], color, 0)
    np.testing.assert_allclose(
        picture.to_numpy() * (upstream != 0), color.detach().numpy() * (upstream != 0), atol=2e-3
    )
    (color * torch.from_numpy(upstream)).sum().backward()
    for array, leaf in zip(arrays.values(), leaves, strict=True):
        wanted = leaf.grad.numpy()  # type: ignore[union-attr]
        found = array.grad.to_numpy().reshape(wanted.shape).astype(np.float64)
        # Depth has no part in colors.
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())


@deep
def test_corners_that_are_no_numbers(device: spy.Device) -> None:
    size = (24, 24)
    at, faces = _triangles(5, 20)
    uv, ids = np.zeros((60, 2), np.float32), np.repeat(np.arange(20, dtype=np.int32), 3)
    draw = _draw(device, "idOf", size, background=-1)
    broken = at.astype(np.float32)
    for k, value in enumerate((np.nan, np.inf, -np.inf)):
        broken[3 * k, k % 2] = value
        broken[3 * (k + 3), 3] = value
    found = draw(at=broken, uv=uv, id=ids, _faces=faces)
    rest = draw(at=broken, uv=uv, id=ids, _faces=faces[6:])
    np.testing.assert_allclose(found, rest, rtol=1e-5)


def test_corners_that_are_far_away(device: spy.Device) -> None:
    """Their places on the picture are no integers of 32 bits."""
    size = (6, 8)
    draw = _draw(device, "colorOf", size)
    given: dict[str, Any] = {"uv": np.zeros((3, 2), np.float32), "id": np.zeros(3, np.int32), "color": 1.0}
    given["_faces"] = np.array([[0, 1, 2]])
    for far in (1e6, 1e9, 1e12, 1e18):
        around = np.array([[-far, -far, 0.5, 1], [far, -far, 0.5, 1], [0, far, 0.5, 1]], np.float32)
        np.testing.assert_array_equal(draw(at=around, **given), np.ones(size), err_msg=str(far))
        right = np.array([[0, -far, 0.5, 1], [far, 0, 0.5, 1], [0, far, 0.5, 1]], np.float32)
        np.testing.assert_array_equal(draw(at=right, **given), np.tile(np.arange(8) > 3, (6, 1)), err_msg=str(far))
    # Places of which no float has the square, and no float at all.
    for w in (1e-30, 1e-38, 1e-44):
        near = np.array([[-0.5, -0.5, 0.5, 1], [0.5, -0.5, 0.5, 1], [0.1, 1, 0, w]], np.float32)
        assert np.isfinite(draw(at=near, **given)).all(), w


@deep
def test_no_triangles(device: spy.Device) -> None:
    at, faces = _triangles(0, 1)
    uv, ids = np.zeros((3, 2), np.float32), np.zeros(3, np.int32)
    draw = _draw(device, "colorOf", (3, 5), background=0.5)
    none = draw(at=at.astype(np.float32), uv=uv, id=ids, color=1.0, _faces=faces[:0])
    np.testing.assert_array_equal(none, np.full((3, 5), 0.5))
    flat = draw(at=at.astype(np.float32), uv=uv, id=ids, color=1.0, _faces=np.array([[0, 0, 1], [2, 2, 2]]))
    np.testing.assert_array_equal(flat, none)


KINDS = """
struct Inner { float weight; half2 small; bool on; }
struct Corner { Inner inner; float2x2 m; uint kind; double exact; float4 position; }
Corner project(float4 at, float2 uv)
{
    Corner c;
    c.position = at;
    c.inner.weight = uv.x;
    c.inner.small = half2(uv);
    c.inner.on = uv.y > 0;
    c.m = float2x2(uv.x, uv.y, 1, 2);
    c.kind = uint(uv.x * 100);
    c.exact = uv.y;
    return c;
}
float4 f(Corner c) { return float4(c.inner.weight, c.m[0][1], float(c.inner.small.x), c.m[1][0] + float(c.exact)); }
float2 g(Corner c) { return float2(c.kind, c.inner.on ? 1 : 0); }
"""


@needs("double", "half")
@deep
def test_kinds_of_fields(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "kinds", KINDS)
    size = (16, 16)
    at = _clip([[0, 0], [40, 0], [0, 40]], size, 0.5).astype(np.float32)
    uv = np.array([[0.5, 1], [1, -1], [0, 0.25]], np.float32)
    faces = np.array([[0, 1, 2]])
    y, x = np.mgrid[:16, :16] + 0.5
    weights = np.stack([1 - x / 40 - y / 40, x / 40, y / 40], -1)
    u, v = np.moveaxis(weights @ uv, -1, 0)
    found = module.f.raster(module.project, size)(at=at, uv=uv, _faces=faces)
    np.testing.assert_allclose(found, np.stack([u, v, u, 1 + v], -1), atol=2e-3)
    found = module.g.raster(module.project, size)(at=at, uv=uv, _faces=faces)
    np.testing.assert_array_equal(found, np.broadcast_to([50, 1], (16, 16, 2)))


NAMES = """
extern static const int power = 1;
uniform float dim;
struct Tensor2 : IDifferentiable { float4 position; float x; }
[Differentiable] Tensor2 project(float4 faces, float x) { Tensor2 t; t.position = faces; t.x = x; return t; }
[Differentiable] float shade(Tensor2 background, float shade, float size = 2)
{
    return dim * shade * size * pow(background.x, float(power));
}
struct Group { [Differentiable] static float shade(Tensor2 t) { return t.x; } }
"""


@deep
def test_names_constants_and_uniforms(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "names", NAMES)
    size = (4, 4)
    at = _clip([[0, 0], [9, 0], [0, 9]], size, 0.5).astype(np.float32)
    x, faces = np.full(3, 3, np.float32), np.array([[0, 1, 2]])
    shade = module.shade.set(dim=2.0).constants({"power": 2})
    draw = shade.raster(module.project, size)
    np.testing.assert_allclose(
        draw(faces=at, x=x, shade=0.5, _faces=faces), np.full(size, 2 * 0.5 * 2 * 9), rtol=1e-5
    )
    found = module.shade.set(dim=1.0).raster(module.project, size)(faces=at, x=x, shade=1.0, size=1.0, _faces=faces)
    np.testing.assert_allclose(found, np.full(size, 3), rtol=1e-5)
    found = module["Group.shade"].raster(module.project, size)(faces=at, x=x, _faces=faces)
    np.testing.assert_allclose(found, np.full(size, 3), rtol=1e-5)


DEFAULTS = """
static const float large = 4;
struct Corner : IDifferentiable { float4 position; }
[Differentiable] Corner project(float4 at, float4 more = float4(0)) { return { at + more }; }
[Differentiable] float shade(Corner c, float first, float second = large / 2, float3 third = float3(1, 2, 3))
{
    return first + 10 * second + 100 * third.z;
}
"""


def test_defaults(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "defaults", DEFAULTS)
    draw = module.shade.raster(module.project, (2, 2))
    given = {"at": _clip([[0, 0], [9, 0], [0, 9]], (2, 2), 0.5).astype(np.float32), "_faces": [[0, 1, 2]]}
    for more, wanted in (({}, 321), ({"second": 3.0}, 331), ({"second": 3.0, "third": [0, 0, 0]}, 31)):
        np.testing.assert_array_equal(draw(**given, first=1.0, **more), np.full((2, 2), wanted))
    with pytest.raises(spy.BindError, match=r"argument first missing"):
        draw(**given)
    with pytest.raises(spy.BindError, match=r"argument second missing; Slang fills in defaults from the right only"):
        draw(**given, first=1.0, third=[0, 0, 0])


# The names of Slang's types and of the library's own parameters.
HIDING = """
struct Tensor { int a; }
struct int3 { int a; }
float max(float a, float b) { return a - b; }
struct Corner : IDifferentiable { float4 position; float2 faces; }
[Differentiable] Corner project(float4 self, float function) { return { self, float2(function, 1) }; }
[Differentiable] float shade(Corner c, float function, float half, float int2, no_diff float DiffTensor)
{
    return c.faces.x * function + half * int2 - no_diff max(DiffTensor, 1);
}
"""


def test_names_that_hide_others(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "hiding", HIDING)
    size = (4, 4)
    at = _clip([[0, 0], [9, 0], [0, 9]], size, 0.5).astype(np.float32)
    draw = module.shade.raster(module.project, size)
    half = spy.Tensor.from_numpy(device, np.array([[2]], np.float32)).with_grads()
    given = {"self": at, "function": 1.5, "half": half, "int2": 3.0, "DiffTensor": 5.0, "_faces": [[0, 1, 2]]}
    picture = draw(**given).with_grads()
    np.testing.assert_allclose(picture.numpy(), np.full(size, 2.25 + 6 - 4), rtol=1e-5)
    picture.grad.copy_from(np.ones(size, np.float32))
    draw.bwds(**given, _result=picture)
    assert half.grad.numpy() == pytest.approx(3 * 16)


@one_device
def test_an_edited_file(device: spy.Device, tmp_path: Path) -> None:
    import os
    import time

    path = tmp_path / "edited.slang"
    path.write_text(TEXT, encoding="utf-8")
    module = spy.Module.load_from_file(device, path)
    draw = module.colorOf.raster(module.project, (4, 4))
    given = {
        "at": _clip([[0, 0], [9, 0], [0, 9]], (4, 4), 0.5).astype(np.float32), "uv": np.zeros((3, 2), np.float32),
        "id": np.zeros(3, np.int32), "_faces": np.array([[0, 1, 2]]),
    }  # fmt: skip
    assert (draw(**given, color=2.0) == 2).all()
    path.write_text(TEXT.replace("{ return color; }", "{ return color * 3; }"), encoding="utf-8")
    os.utime(path, (time.time() + 5, time.time() + 5))
    time.sleep(0.05)
    assert (draw(**given, color=2.0) == 6).all()
    path.write_text(TEXT.replace("float colorOf(Corner c,", "float colorOf(float2 c,"), encoding="utf-8")
    os.utime(path, (time.time() + 9, time.time() + 9))
    time.sleep(0.05)
    with pytest.raises(spy.BindError, match="first parameter of float colorOf"):
        draw(**given, color=2.0)


def test_where_the_picture_goes(device: spy.Device) -> None:
    size = (5, 7)
    draw = _draw(device, "colorOf", size)
    at = _clip([[1.2, 1.1], [6.3, 0.4], [2.2, 4.9]], size, 0.5).astype(np.float32)
    given: dict[str, Any] = {
        "at": at, "uv": np.zeros((3, 2), np.float32), "id": np.zeros(3, np.int32), "color": 1.0,
        "_faces": np.array([[2, 1, 0]]),
    }  # fmt: skip
    first = draw(**given)
    assert isinstance(first, np.ndarray) and 0 < first.sum() < 35 and len(np.unique(first)) > 3
    into = spy.Tensor.zeros(device, size)
    assert draw(**given, _result=into) is into
    np.testing.assert_array_equal(into.to_numpy(), first)
    np.testing.assert_array_equal(draw(**given, _result="tensor").to_numpy(), first)
    given["_faces"] = spy.Tensor.from_numpy(device, given["_faces"].astype(np.int32))
    np.testing.assert_array_equal(draw(**given).to_numpy(), first)
    np.testing.assert_array_equal(draw(**given, _result="numpy"), first)
    # Triangles that a Tensor no longer holds are not drawn.
    given["_faces"].copy_from(np.zeros((1, 3), np.int32))
    assert not draw(**given, _result="numpy").any()
    # A color for each pixel.
    given |= {"_faces": np.array([[0, 1, 2]]), "color": np.arange(35, dtype=np.float32).reshape(size)}
    plain = _draw(device, "colorOf", size, antialias=False)(**given)
    assert set(np.unique(plain)) - {0} == set(np.flatnonzero(plain))
