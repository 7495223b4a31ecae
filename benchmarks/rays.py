"""Rays against triangles: a sphere and a knot, by software on each device, and by Embree on the CPU.

- "coherent": millions of rays a second that run in parallel, one for each pixel; distance, barycentrics and triangle.
- "random": the same from places all around, in directions all over the body.
- "blocked": random rays of which is asked only whether they meet anything.
- "build", "refit": milliseconds to make the hierarchy of a scene from arrays on the device, and to fit it to other
  places of corners, until it is done.
- "25 x 40k", "1000 x 40k": the same of a scene of so many instances of the sphere, each turned, smaller and
  elsewhere; "refit" takes new transforms, and "one mesh" is a scene of all their triangles in one mesh.

The cpu device has one thread, as Embree has in embreex, unless SLANGPY_RT_THREADS says otherwise. Embree's build is
that of a new scene with its first ray. Hits of each case are compared with Embree's before anything is timed, and
those of instances with smooth spheres. embreex has no instances: it has the 25 as one mesh, and none of the 1000.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any

os.environ.setdefault("SLANGPY_RT_THREADS", "1")  # before the package reads it

import numpy as np
import numpy.typing as npt
from _common import OURS, Bench, whole
from raster import knot

import slangpy_rt as spy

TEXT = """
import rays;
float4 trace(float3 origin, float3 direction, Scene scene)
{
    let hit = scene.trace(Ray(origin, direction));
    return float4(hit.t, hit.barycentrics, asfloat(hit.triangle));
}
int blocked(float3 origin, float3 direction, Scene scene) { return scene.blocked(Ray(origin, direction)) ? 1 : 0; }
"""
PEER = "Embree, one thread"

Array = npt.NDArray[Any]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("rays", __doc__ or "")
    corners, _, faces = knot(5000, 100)
    ball = sphere(142)
    for name in bench.devices:
        for case, body in list({"40k": ball, "1M": (corners, faces)}.items())[: 1 if bench.quick else None]:
            _measure(bench, name, case, body)
        for count in (25, 1000)[: 1 if bench.quick else None]:
            _measure_instances(bench, name, ball, count)
        bench.save()
    return bench.finish()


def sphere(rows: int) -> tuple[Array, Array]:
    """A sphere of radius 1 of 2 * rows * rows triangles."""
    u, v = np.meshgrid(2 * np.pi * np.arange(rows + 1) / rows, np.pi * np.arange(rows + 1) / rows)
    corners = np.stack([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)], -1).reshape(-1, 3)
    a = np.arange(rows * (rows + 1)).reshape(rows, rows + 1)[:, :-1].ravel()
    b = a + rows + 1
    return corners.astype(np.float32), np.concatenate(
        [np.stack([a, a + 1, b], 1), np.stack([a + 1, b + 1, b], 1)]
    ).astype(np.int32)


def _rays(width: int) -> dict[str, tuple[Array, Array]]:
    """Origins and directions of as many rays as a square picture has pixels."""
    place = np.stack(np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, width)), -1).reshape(-1, 2)
    first = np.concatenate([place, np.full((len(place), 1), -3.0)], 1)
    random = np.random.default_rng(0)
    origin = random.normal(size=first.shape)
    origin *= 3 / np.linalg.norm(origin, axis=1, keepdims=True)
    goal = random.uniform(-1, 1, first.shape)
    pairs = {"coherent": (first, np.broadcast_to([0.0, 0, 1], first.shape)), "random": (origin, goal - origin)}
    return {name: (o.astype(np.float32), d.astype(np.float32)) for name, (o, d) in pairs.items()}


def _measure(bench: Bench, name: str, case: str, body: tuple[Array, Array]) -> None:
    with spy.Device(name) as device:
        mesh = _mesh(device, body)
        scene = spy.Scene(device, [mesh])
        embree = _embree(bench, name, body)
        rounds = _rounds(bench, name)

        def check(found: Array, origin: Array, direction: Array) -> None:
            _check(found, embree, origin, direction)

        _trace(bench, name, device, case, {OURS: scene}, embree, check)
        steps = {
            "build": (lambda: spy.Scene(device, [mesh]), lambda: _embree(bench, name, body)),
            "refit": (scene.update, None),
        }
        for title, (run, other) in steps.items():
            run()
            samplers = {OURS: whole(run, device.synchronize, 1, 1e3)}
            if other is not None and embree is not None and name == "cpu":
                samplers[PEER] = whole(other, lambda: None, 1, 1e3)
            bench.compare(name, f"{title}, {case}", "ms", samplers, rounds if title == "build" else None)


def _measure_instances(bench: Bench, name: str, ball: tuple[Array, Array], count: int) -> None:
    case = f"{count} x 40k"
    with spy.Device(name) as device:
        mesh = _mesh(device, ball)
        matrices = _transforms(count, 0)
        pairs = [(mesh, matrix) for matrix in matrices]
        scenes = {OURS: spy.Scene(device, pairs)}
        embree = None
        if count <= 25:
            flat = _flattened(ball, matrices)
            scenes["one mesh"] = spy.Scene(device, [_mesh(device, flat)])
            embree = _embree(bench, name, flat)

        def check(found: Array, origin: Array, direction: Array) -> None:
            if embree is not None:
                _check(found, embree, origin, direction)
            _check_spheres(found, matrices, origin, direction)

        _trace(bench, name, device, case, scenes, embree, check)
        moved, scene = cycle([list(_transforms(count, k)) for k in (1, 0)]), scenes[OURS]
        steps: dict[str, Callable[[], Any]] = {
            "build": lambda: spy.Scene(device, pairs),
            "refit": lambda: scene.update(next(moved)),
        }
        for title, run in steps.items():
            run()
            bench.compare(name, f"{title}, {case}", "ms", {OURS: whole(run, device.synchronize, 1, 1e3)})


def _trace(
    bench: Bench, name: str, device: spy.Device, case: str, scenes: dict[str, spy.Scene], embree: Any,
    check: Callable[[Array, Array, Array], None],
) -> None:  # fmt: skip
    """The rows of rays through scenes that show the same, by who."""
    module: Any = spy.Module.load_from_source(device, "rays_benchmark", TEXT)
    on_gpu = _is_gpu(bench, name)
    width = 2048 if on_gpu else 1000 if name == "cpu" else 128
    for kind, (origin, direction) in _rays(width).items():
        given = [spy.Tensor.from_numpy(device, x, "float3") for x in (origin, direction)]
        found = spy.Tensor.empty(device, len(origin), "float4")
        dark = spy.Tensor.empty(device, len(origin), "int")
        for scene in scenes.values():
            module.trace(*given, scene, _result=found)
            check(found.to_numpy(), origin, direction)
        queries: dict[str, tuple[Any, Any, dict[str, Any]]] = {kind: (module.trace, found, {})}
        if kind == "random":
            queries["blocked"] = module.blocked, dark, {"query": "OCCLUDED"}
        for title, (function, into, how) in queries.items():
            samplers = {}
            for who, scene in scenes.items():

                def run(function: Any = function, given: Any = given, scene: Any = scene, into: Any = into) -> None:
                    function(*given, scene, _result=into)

                run()
                samplers[who] = _rate(len(origin), whole(run, device.synchronize, 4 if on_gpu else 1))
            if embree is not None and name == "cpu":

                def peer(o: Array = origin, d: Array = direction, how: Any = how) -> None:
                    embree.run(o, d, **how)

                samplers[PEER] = _rate(len(origin), whole(peer, lambda: None))
            bench.compare(name, f"{title}, {case}", "M/s", samplers, 3 if name == "vulkan" and not on_gpu else None)


def _is_gpu(bench: Bench, name: str) -> bool:
    return name == "cuda" or (name == "vulkan" and "llvmpipe" not in bench.devices[name])


def _rounds(bench: Bench, name: str) -> int | None:
    return None if _is_gpu(bench, name) else 3


def _mesh(device: spy.Device, body: tuple[Array, Array]) -> spy.Mesh:
    return spy.Mesh(spy.Tensor.from_numpy(device, body[0], "float3"), spy.Tensor.from_numpy(device, body[1]))


def _transforms(count: int, seed: int) -> Array:
    """Matrices that turn a sphere at random, make it smaller and take it into the cube from -1 to 1."""
    random = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(random.normal(size=(count, 3, 3)))
    size = random.uniform(0.4, 0.8, count) / count ** (1 / 3)
    place = random.uniform(-1, 1, (count, 3, 1)) * (1 - size[:, None, None])
    return np.concatenate([turn * size[:, None, None], place], 2)


def _flattened(body: tuple[Array, Array], matrices: Array) -> tuple[Array, Array]:
    """One mesh of all instances of another."""
    corners, faces = body
    places = corners @ matrices[:, :, :3].swapaxes(1, 2) + matrices[:, None, :, 3]
    numbers = faces + np.arange(len(matrices))[:, None, None] * len(corners)
    return places.reshape(-1, 3).astype(np.float32), numbers.reshape(-1, 3).astype(np.int32)


def _rate(rays: int, seconds: Callable[[], float]) -> Callable[[], float]:
    return lambda: rays / seconds() / 1e6


def _embree(bench: Bench, name: str, body: tuple[Array, Array]) -> Any:
    """A scene of Embree's that is built; None where there is no wheel of it."""
    try:
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene
    except ImportError as error:
        bench.miss(name, PEER, str(error))
        return None
    scene = EmbreeScene()
    TriangleMesh(scene, body[0], body[1])
    scene.run(np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32))
    return scene


def _check(found: Array, embree: Any, origin: Array, direction: Array) -> None:
    if embree is None:
        return
    part = slice(None, None, max(len(origin) // 100_000, 1))
    wanted = embree.run(origin[part], direction[part], output=1)
    is_hit = np.isfinite(found[part, 0])
    both = is_hit & (wanted["primID"] >= 0)
    off = np.abs(found[part, 0][both] - wanted["tfar"][both])
    if (is_hit != (wanted["primID"] >= 0)).mean() > 1e-4 or not both.any() or off.max() > 1e-3:
        raise RuntimeError(f"hits differ from Embree's: {(is_hit != (wanted['primID'] >= 0)).mean()}, {off.max()}")


def _check_spheres(found: Array, matrices: Array, origin: Array, direction: Array) -> None:
    """Compare some hits with smooth spheres, from which triangles are a two thousandth of the radius off."""
    part = slice(None, None, max(len(origin) // 2000, 1))
    o, d, t = origin[part].astype(float), direction[part].astype(float), found[part, 0]
    size = np.linalg.norm(matrices[:, :, 0], axis=1)
    away = o[:, None] - matrices[None, :, :, 3]
    a, b = (d * d).sum(-1)[:, None], (away * d[:, None]).sum(-1)
    square = b * b - a * ((away * away).sum(-1) - size**2)
    nearest = np.where(square < 0, np.inf, (-b - np.sqrt(np.maximum(square, 0))) / a).min(1)
    both = np.isfinite(t) & np.isfinite(nearest)
    is_same = np.isfinite(t) == np.isfinite(nearest)
    is_same[both] = np.abs(t[both] - nearest[both]) < 1e-2 * size.min()
    if is_same.mean() < 0.95 or not both.any():
        raise RuntimeError(f"{1 - is_same.mean():.1%} of hits differ from those of smooth spheres")


if __name__ == "__main__":
    sys.exit(main())
