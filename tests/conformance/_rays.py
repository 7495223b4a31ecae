"""Rays against triangles in double precision by NumPy, each against each, and meshes for tests of rays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TEXT = """
import rays;
struct Camera { float3 eye; float scale; }
float4 trace(float3 origin, float3 direction, float2 limits, Scene scene)
{
    let hit = scene.trace(Ray(origin, direction, limits.x, limits.y));
    return float4(hit.t, hit.barycentrics, hit.isHit ? 1 : 0);
}
int3 numbers(float3 origin, float3 direction, float2 limits, Scene scene)
{
    let hit = scene.trace(Ray(origin, direction, limits.x, limits.y));
    return int3(hit.triangle, hit.instance, hit.isHit ? scene.face(hit).z : -1);
}
bool blocked(float3 origin, float3 direction, float2 limits, Scene scene)
{
    return scene.blocked(Ray(origin, direction, limits.x, limits.y));
}
struct Found : IDifferentiable { float3 position; float3 normal; float3 weights; float t; }
[Differentiable]
Found look(float3 origin, float3 direction, Scene scene)
{
    let ray = Ray(origin, direction);
    let surface = scene.at(scene.trace(ray), ray);
    Found found = { surface.position, surface.normal, surface.weights, surface.t };
    return found;
}
[Differentiable]
float score(float3 origin, float3 direction, float3 a, float3 b, float3 c, Scene scene)
{
    let found = look(origin, direction, scene);
    return dot(found.position, a) + dot(found.normal, b) + dot(found.weights, c) + 0.3 * found.t;
}
"""
LIMITS = (0.0, np.inf)


class Hits(NamedTuple):
    """What rays meet first: t, inf for nothing; weights of the corners; the triangle, -1 for none."""

    t: Array
    weights: Array
    triangle: Array
    margin: Array  # how far the nearest side, in weights, and the next triangle, in t, are


def brute(
    corners: Array, faces: Array, origin: Array, direction: Array, low: float = 0, high: float = np.inf
) -> Hits:
    """Each ray against each triangle, after Moeller and Trumbore."""
    a, b, c = (np.asarray(corners, np.float64)[faces[:, k]] for k in range(3))
    o, d = np.asarray(origin, np.float64)[:, None], np.asarray(direction, np.float64)[:, None]
    p, q = b - a, c - a
    with np.errstate(all="ignore"):
        h = np.cross(d, q)
        area = (p * h).sum(-1)
        s = o - a
        u = (s * h).sum(-1) / area
        k = np.cross(s, p[None])
        v = (d * k).sum(-1) / area
        t = (q * k).sum(-1) / area
        inside = np.minimum(np.minimum(u, v), 1 - u - v)
        near = (np.abs(inside) < 1e-4) & (t > low - 1e-4) & (t < high)
        is_in = (inside >= 0) & (t >= low) & (t <= high)
    ts = np.where(is_in, t, np.inf)
    first = ts.argmin(1)
    rows = np.arange(len(ts))
    found = np.isfinite(ts[rows, first])
    weights = np.stack([1 - u - v, u, v], -1)[rows, first]
    others = ts.copy()
    others[rows, first] = np.inf
    gap = np.where(found, others.min(1) - np.where(found, ts[rows, first], 0), 1.0)
    margin = np.where(near.any(1), 0.0, gap)
    return Hits(ts[rows, first], weights, np.where(found, first, -1), margin)


def soup(count: int, seed: int, size: float = 0.3) -> tuple[Array, Array]:
    """Triangles anywhere in a cube from -1 to 1."""
    random = np.random.default_rng(seed)
    middle = random.uniform(-1, 1, (count, 1, 3))
    corners = (middle + random.normal(0, size, (count, 3, 3))).reshape(-1, 3).astype(np.float32)
    return corners, np.arange(3 * count, dtype=np.int32).reshape(-1, 3)


def sphere(rows: int) -> tuple[Array, Array]:
    """A closed sphere of radius 1: corners that each are one, at the poles too."""
    v, u = np.meshgrid(np.pi * np.arange(1, rows) / rows, 2 * np.pi * np.arange(2 * rows) / (2 * rows), indexing="ij")
    ring = np.stack([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)], -1).reshape(-1, 3)
    corners = np.concatenate([ring, [[0, 0, 1], [0, 0, -1]]]).astype(np.float32)
    number = np.arange(len(ring)).reshape(rows - 1, -1)
    a, b = number[:-1], number[1:]
    c, d = np.roll(a, -1, 1), np.roll(b, -1, 1)
    faces = [np.stack(x, -1).reshape(-1, 3) for x in ((a, b, c), (c, b, d))]
    for ring_of, pole, turn in ((number[0], len(ring), 1), (number[-1], len(ring) + 1, -1)):
        faces.append(np.stack([np.full(len(ring_of), pole), ring_of, np.roll(ring_of, -1)][::turn], -1))
    return corners, np.concatenate(faces).astype(np.int32)


def rays(count: int, seed: int) -> tuple[Array, Array]:
    """Rays from around the cube towards places in it, with directions of all lengths."""
    random = np.random.default_rng(seed)
    origin = random.normal(size=(count, 3))
    origin *= 3 / np.linalg.norm(origin, axis=1, keepdims=True)
    direction = (random.uniform(-1, 1, (count, 3)) - origin) * random.uniform(0.1, 3, (count, 1))
    return origin.astype(np.float32), direction.astype(np.float32)
