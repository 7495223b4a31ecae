"""Rays against triangles: a sphere and a knot, by software on each device, and by Embree on the CPU.

- "coherent": millions of rays a second that run in parallel, one for each pixel; distance, barycentrics and triangle.
- "random": the same from places all around, in directions all over the body.
- "blocked": random rays of which is asked only whether they meet anything.
- "build", "refit": milliseconds to make the hierarchy of a scene from arrays on the device, and to fit it to other
  places of corners, until it is done.

The cpu device has one thread, as Embree has in embreex, unless SLANGPY_RT_THREADS says otherwise. Embree's build is
that of a new scene with its first ray. Hits of each case are compared with Embree's before anything is timed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
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
    bodies = {"40k": sphere(142), "1M": (corners, faces)}
    for name in bench.devices:
        for case, body in list(bodies.items())[: 1 if bench.quick else None]:
            _measure(bench, name, case, body)
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
        module: Any = spy.Module.load_from_source(device, "rays_benchmark", TEXT)
        corners = spy.Tensor.from_numpy(device, body[0], "float3")
        faces = spy.Tensor.from_numpy(device, body[1])
        mesh = spy.Mesh(corners, faces)
        scene = spy.Scene(device, [mesh])
        embree = _embree(bench, name, body)
        on_gpu = name == "cuda" or (name == "vulkan" and "llvmpipe" not in bench.devices[name])
        width = 2048 if on_gpu else 1000 if name == "cpu" else 128
        for kind, (origin, direction) in _rays(width).items():
            given = [spy.Tensor.from_numpy(device, x, "float3") for x in (origin, direction)]
            found = spy.Tensor.empty(device, len(origin), "float4")
            dark = spy.Tensor.empty(device, len(origin), "int")

            def trace(given: Any = given, found: Any = found) -> None:
                module.trace(*given, scene, _result=found)

            def blocked(given: Any = given, dark: Any = dark) -> None:
                module.blocked(*given, scene, _result=dark)

            trace()
            _check(found.to_numpy(), embree, origin, direction)
            runs: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {kind: (trace, {})}
            if kind == "random":
                runs["blocked"] = blocked, {"query": "OCCLUDED"}
            for title, (run, how) in runs.items():
                run()
                samplers = {OURS: _rate(len(origin), whole(run, device.synchronize, 20 if on_gpu else 1))}
                if embree is not None and name == "cpu":

                    def peer(o: Array = origin, d: Array = direction, how: Any = how) -> None:
                        embree.run(o, d, **how)

                    samplers[PEER] = _rate(len(origin), whole(peer, lambda: None))
                bench.compare(
                    name, f"{title}, {case}", "M/s", samplers, 3 if name == "vulkan" and not on_gpu else None
                )
        steps = {
            "build": (lambda: spy.Scene(device, [mesh]), lambda: _embree(bench, name, body)),
            "refit": (scene.update, None),
        }
        for title, (run, other) in steps.items():
            run()
            samplers = {OURS: whole(run, device.synchronize, 1, 1e3)}
            if other is not None and embree is not None and name == "cpu":
                samplers[PEER] = whole(other, lambda: None, 1, 1e3)
            bench.compare(name, f"{title}, {case}", "ms", samplers, 3 if title == "build" and not on_gpu else None)


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


if __name__ == "__main__":
    sys.exit(main())
