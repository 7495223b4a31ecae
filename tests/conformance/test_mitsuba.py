"""Pictures of a scene with shadows beside those of Mitsuba 3: direct light, bounces, gradients of a lamp's place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._rays import Array, sphere
from tests.depth import deep

pytestmark = deep

TEXT = """
import rays;
float random(inout uint state)
{
    state = state * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return float((word >> 22u) ^ word) / 4294967296.0;
}
static const float PI = 3.14159265;
struct View { float3 eye; float3 right; float3 up; float3 forward; }
// A square of 1 by 1 whose middle is at place, shining down.
struct Square { float3 place; float3 radiance; }
[Differentiable]
float3 fromPoint(no_diff float3 at, no_diff float3 normal, float3 lamp, no_diff float3 intensity, no_diff Scene scene)
{
    let way = lamp - at;
    let square = dot(way, way);
    let facing = dot(normal, way) / sqrt(square) / square;
    if (scene.blocked(Ray(at, way, 1e-3, 0.999)))
        return 0;
    return max(facing, 0.0) * intensity;
}
float3 fromSquare(float3 at, float3 normal, Square lamp, inout uint state, Scene scene)
{
    let way = lamp.place + float3(random(state) - 0.5, 0, random(state) - 0.5) - at;
    let square = dot(way, way);
    let part = max(dot(normal, way), 0) * max(way.y, 0) / (square * square);
    if (part <= 0 || scene.blocked(Ray(at, way, 1e-3, 0.999)))
        return 0;
    return part * lamp.radiance;
}
Ray seen(int3 at, int size, View view, inout uint state)
{
    random(state);
    let x = 2 * (at.x + random(state)) / size - 1;
    let y = 1 - 2 * (at.y + random(state)) / size;
    return Ray(view.eye, view.forward + x * view.right + y * view.up);
}
float3 facing(Surface surface, Ray ray)
{
    return dot(surface.normal, ray.direction) > 0 ? -surface.normal : surface.normal;
}
float3 render(int3 at, int size, int bounces, View view, float3 point, float3 intensity, Square lamp,
    Tensor<float3, 1> paint, Scene scene)
{
    uint state = uint(at.x + size * (at.y + size * at.z)) * 9781u + 1u;
    var ray = seen(at, size, view, state);
    float3 through = 1;
    float3 sum = 0;
    for (int k = 0; k <= bounces; ++k)
    {
        let hit = scene.trace(ray);
        if (!hit.isHit)
            break;
        let surface = scene.at(hit, ray);
        let normal = facing(surface, ray);
        through *= paint[hit.instance];
        let direct = fromPoint(surface.position, normal, point, intensity, scene)
            + fromSquare(surface.position, normal, lamp, state, scene);
        sum += through * direct / PI;
        let z = 1 - 2 * random(state);
        let turn = 2 * PI * random(state);
        let flat = sqrt(max(1 - z * z, 0));
        ray = Ray(surface.position, normal + 0.9999 * float3(flat * cos(turn), flat * sin(turn), z), 1e-3, 1e30);
    }
    return sum;
}
struct Place { float3 at; float3 normal; float3 color; }
Place place(int3 at, int size, View view, Tensor<float3, 1> paint, Scene scene)
{
    uint state = uint(at.x + size * (at.y + size * at.z)) * 9781u + 1u;
    let ray = seen(at, size, view, state);
    let hit = scene.trace(ray);
    if (!hit.isHit)
        return { 0, 0, 0 };
    let surface = scene.at(hit, ray);
    return { surface.position, facing(surface, ray), paint[hit.instance] };
}
[Differentiable]
float3 lit(no_diff int3 at, no_diff int size, no_diff View view, float3 point, no_diff float3 intensity,
    no_diff Tensor<float3, 1> paint, no_diff Scene scene)
{
    let p = no_diff place(at, size, view, paint, scene);
    return p.color / PI * fromPoint(p.at, p.normal, point, intensity, scene);
}
"""
SIZE = 48
PAINT = np.array([[0.5, 0.5, 0.5], [0.7, 0.4, 0.2], [0.2, 0.3, 0.6], [0, 0, 0]], np.float32)
EYE, TARGET = np.array([0.5, 2.5, 6]), np.array([0, 0.7, 0])
POINT, INTENSITY = np.array([2.2, 3.5, 1.5], np.float32), np.array([20, 18, 14], np.float32)
SQUARE, RADIANCE = np.array([-1.5, 3, 1], np.float32), np.array([6, 7, 9], np.float32)
FIELD = 40.0  # degrees


def _meshes() -> list[tuple[Array, Array]]:
    """A floor, a ball above it, a wall behind both, and the square lamp, facing down."""
    ball, faces = sphere(48)
    square = np.array([[0, 1, 2], [0, 2, 3]])
    floor = np.array([[-5, 0, 5], [5, 0, 5], [5, 0, -5], [-5, 0, -5]])
    wall = np.array([[-5, 0, -2], [5, 0, -2], [5, 5, -2], [-5, 5, -2]])
    lamp = SQUARE + np.array([[-0.5, 0, -0.5], [0.5, 0, -0.5], [0.5, 0, 0.5], [-0.5, 0, 0.5]])
    made = ((floor, square), (ball + np.array([0, 1.2, 0]), faces), (wall, square), (lamp, square))
    return [(np.asarray(at, np.float32), np.asarray(f, np.int32)) for at, f in made]


def _view() -> dict[str, Any]:
    forward = (TARGET - EYE) / np.linalg.norm(TARGET - EYE)
    right = np.cross(forward, [0, 1, 0])
    right /= np.linalg.norm(right)
    wide = np.tan(np.radians(FIELD / 2))
    made = {"eye": EYE, "right": wide * right, "up": wide * np.cross(right, forward), "forward": forward}
    return {name: value.astype(np.float32) for name, value in made.items()}


def _theirs(
    mitsuba: Any, folder: Path, integrator: dict[str, Any], point: Array = POINT, chosen: Iterable[int] = range(4)
) -> Any:
    """The scene of Mitsuba with some of the meshes, which are read from files."""
    scene: dict[str, Any] = {
        "type": "scene",
        "integrator": integrator,
        "sensor": {
            "type": "perspective",
            "fov": FIELD,
            "to_world": mitsuba.ScalarTransform4f().look_at(list(EYE), list(TARGET), [0, 1, 0]),
            "film": {"type": "hdrfilm", "width": SIZE, "height": SIZE, "rfilter": {"type": "box"}},
        },
        "point": {"type": "point", "position": point.tolist(), "intensity": _rgb(INTENSITY)},
    }
    for k in chosen:
        corners, faces = _meshes()[k]
        lines = [f"v {x} {y} {z}" for x, y, z in corners.tolist()]
        lines += [f"f {a} {b} {c}" for a, b, c in (faces + 1).tolist()]
        (folder / f"{k}.obj").write_text("\n".join(lines))
        paint = {"type": "twosided", "bsdf": {"type": "diffuse", "reflectance": _rgb(PAINT[k])}}
        scene[f"mesh{k}"] = {"type": "obj", "filename": str(folder / f"{k}.obj"), "face_normals": True, "bsdf": paint}
    if "mesh3" in scene:
        scene["mesh3"]["emitter"] = {"type": "area", "radiance": _rgb(RADIANCE)}
    return mitsuba.load_dict(scene)


def _rgb(color: Array) -> dict[str, Any]:
    return {"type": "rgb", "value": [float(x) for x in color]}


def _mitsuba() -> Any:
    reason = "Mitsuba is not installed, whose wheels have 68 MB: pip install mitsuba"
    found = pytest.importorskip("mitsuba", reason=reason)
    # The variant that compiles nothing: others need a recent LLVM, and end the process where it is too old.
    found.set_variant("scalar_rgb")
    return found


@pytest.mark.parametrize("bounces", [0, 2])
def test_light_is_that_of_mitsuba(device: spy.Device, tmp_path: Path, bounces: int) -> None:
    mitsuba = _mitsuba()
    integrator = {"type": "path", "max_depth": bounces + 2, "rr_depth": 100, "hide_emitters": True}
    wanted = np.array(mitsuba.render(_theirs(mitsuba, tmp_path, integrator), spp=1024))[..., :3]
    scene = spy.Scene(device, [spy.Mesh(*mesh) for mesh in _meshes()])
    module = spy.Module.load_from_source(device, "test_mitsuba", TEXT)
    lamp = {"place": SQUARE, "radiance": RADIANCE}
    paint = spy.Tensor.from_numpy(device, PAINT, "float3")
    samples = 256 if device.name == "cpu" else 128
    found = module.render(
        spy.grid((samples, SIZE, SIZE)), SIZE, bounces, _view(), POINT, INTENSITY, lamp, paint, scene
    ).mean(0).to_numpy()  # fmt: skip
    # Shadows are there: some of the floor and of the wall gets a small part of what the rest does.
    assert found.mean(-1).min() < 0.15 * found.mean()
    assert found.mean() == pytest.approx(wanted.mean(), rel=0.005)
    np.testing.assert_allclose(found.mean((0, 1)), wanted.mean((0, 1)), rtol=0.01)
    # Means of 6 by 6 pixels: of a pixel, random numbers alone make a difference of some per cent.
    error = np.abs(_blocks(found) - _blocks(wanted)) / wanted.mean()
    assert error.mean() < 0.01 and error.max() < 0.08


def test_gradients_are_those_of_mitsuba(device: spy.Device, tmp_path: Path) -> None:
    """Of the place of a point lamp, without shadows, whose motion is not in them: beside differences of pictures."""
    mitsuba = _mitsuba()
    weights = np.random.default_rng(1).uniform(0, 1, (SIZE // 12, SIZE // 12, 3)).repeat(12, 0).repeat(12, 1)
    wanted = np.zeros(3)
    for k, step in np.ndindex(3, 2):
        place = POINT + np.eye(3)[k] * (0.02 if step else -0.02)
        theirs = _theirs(mitsuba, tmp_path, {"type": "path", "max_depth": 2}, place, (0, 2))
        # The same random numbers for both, so that they have no part in the difference.
        image = np.array(mitsuba.render(theirs, spp=16, seed=3))[..., :3]
        wanted[k] += (1 if step else -1) * (image * weights).sum(dtype=np.float64) / 0.04
    scene = spy.Scene(device, [spy.Mesh(*_meshes()[k]) for k in (0, 2)])
    module = spy.Module.load_from_source(device, "test_mitsuba", TEXT)
    paint = spy.Tensor.from_numpy(device, PAINT[[0, 2]], "float3")
    point = spy.Tensor.from_numpy(device, POINT.reshape(1, 1, 1, 3), "float3").with_grads()
    given = (spy.grid((16, SIZE, SIZE)), SIZE, _view(), point, INTENSITY, paint, scene)
    found = module.lit(*given).with_grads()
    found.grad.copy_from(np.broadcast_to(weights / 16, (16, SIZE, SIZE, 3)).astype(np.float32))
    module.lit.bwds(*given, _result=found)
    np.testing.assert_allclose(point.grad.to_numpy().ravel(), wanted, atol=0.01 * np.abs(wanted).max())


def _blocks(image: Array) -> Array:
    side = SIZE // 8
    found: Array = image.reshape(8, side, 8, side, 3).mean((1, 3))
    return found
