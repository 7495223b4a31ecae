"""What rays meet: beside double precision by NumPy, beside Embree, and where triangles are of odd kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._cuda_text import compiled_for_cuda
from tests.conformance._rays import LIMITS, TEXT, Array, brute, rays, soup, sphere
from tests.depth import deep, one_in


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_rays", TEXT)


def _traced(module: Any, scene: Any, origin: Array, direction: Array, limits: Any = LIMITS) -> tuple[Array, Array]:
    """t, second and third weight, and whether there is a hit; triangle, instance and third corner."""
    given = (np.asarray(origin, np.float32), np.asarray(direction, np.float32), spy.float2(*limits), scene)
    return module.trace(*given).to_numpy(), module.numbers(*given).to_numpy()


def _check(module: Any, scene: Any, corners: Array, faces: Array, origin: Array, direction: Array) -> Array:
    """The hits are NumPy's, but where a side or another triangle is near; return which rays were compared."""
    found, numbers = _traced(module, scene, origin, direction)
    wanted = brute(corners, faces, origin, direction)
    clear = wanted.margin > 1e-4
    assert clear.mean() > 0.8
    is_hit = wanted.triangle >= 0
    np.testing.assert_array_equal(found[clear, 3], is_hit[clear])
    np.testing.assert_array_equal(numbers[clear, 0], wanted.triangle[clear])
    hits = clear & is_hit
    np.testing.assert_allclose(found[hits, 0], wanted.t[hits], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[hits, 1:3], wanted.weights[hits, 1:], atol=2e-3)
    np.testing.assert_array_equal(numbers[hits, 2], faces[wanted.triangle[hits], 2])
    assert (found[clear & ~is_hit, 0] == np.inf).all()
    blocked = module.blocked(np.float32(origin), np.float32(direction), spy.float2(*LIMITS), scene)
    np.testing.assert_array_equal(np.asarray(blocked), found[:, 3] != 0)
    return hits


@pytest.mark.parametrize("count", one_in(3, [200, 1, 9]))
def test_hits_are_those_of_numpy(device: spy.Device, module: spy.Module, count: int) -> None:
    corners, faces = soup(count, 1, 1.0 if count == 1 else 0.3)
    origin, direction = rays(200, 2)
    scene = spy.Scene(device, [spy.Mesh(corners, faces)])
    assert scene.count == count
    hits = _check(module, scene, corners, faces, origin, direction)
    assert hits.sum() > (0 if count == 1 else 20)


def test_hits_of_many_triangles(device: spy.Device, module: spy.Module) -> None:
    corners, faces = soup(3000, 3, 0.05)
    origin, direction = rays(300, 4)
    assert (
        _check(module, spy.Scene(device, [spy.Mesh(corners, faces)]), corners, faces, origin, direction).sum() > 100
    )


def test_hits_are_those_of_embree() -> None:
    scenes = pytest.importorskip("embreex.rtcore_scene", reason="embreex has no wheel for this machine")
    from embreex.mesh_construction import TriangleMesh

    corners, faces = sphere(100)
    device = spy.Device("cpu")
    module: Any = spy.Module.load_from_source(device, "test_rays", TEXT)
    origin, direction = rays(20_000, 5)
    found, numbers = _traced(module, spy.Scene(device, [spy.Mesh(corners, faces)]), origin, direction)
    theirs = scenes.EmbreeScene()
    TriangleMesh(theirs, corners[faces])
    wanted = theirs.run(origin, direction, output=1)
    is_hit = wanted["primID"] >= 0
    np.testing.assert_array_equal(found[:, 3] != 0, is_hit)
    np.testing.assert_allclose(found[is_hit, 0], wanted["tfar"][is_hit], rtol=1e-5)
    assert (numbers[is_hit, 0] == wanted["primID"][is_hit]).mean() > 0.999  # but on sides of triangles


def test_a_sphere(device: spy.Device, module: spy.Module) -> None:
    """Of many triangles, near the sphere of which its distance is known."""
    corners, faces = sphere(64)
    place = np.random.default_rng(6).uniform(-0.6, 0.6, (256, 2))
    origin = np.concatenate([place, np.full((256, 1), -3.0)], 1)
    found, _ = _traced(module, spy.Scene(device, [spy.Mesh(corners, faces)]), origin, [[0, 0, 2.0]])
    wanted = (3 - np.sqrt(1 - (place**2).sum(1))) / 2
    np.testing.assert_allclose(found[:, 0], wanted, atol=1e-3)


def test_no_ray_leaves_a_closed_mesh(device: spy.Device, module: spy.Module) -> None:
    """Rays to corners, middles of sides and places along sides, from a place where all is rounded."""
    corners, faces = sphere(12)
    random = np.random.default_rng(7)
    corners = (corners * random.uniform(0.5, 2, (len(corners), 1))).astype(np.float32)
    many = 400 if device.name != "cpu" else 40_000
    start = faces[random.integers(0, len(faces), many)]
    part = np.where(random.random((many, 1)) < 0.3, 0.0, random.random((many, 1)))
    part = np.where(random.random((many, 1)) < 0.2, 0.5, part)
    origin = random.uniform(-0.1, 0.1, (many, 3)).astype(np.float32)
    goal = corners[start[:, 0]] * (1 - part) + corners[start[:, 1]] * part
    found, _ = _traced(module, spy.Scene(device, [spy.Mesh(corners, faces)]), origin, goal - origin)
    assert found[:, 3].all()
    # Along the axes, through corners of a grid: no quotient of these is a number.
    flat = np.stack(np.meshgrid(range(9), range(9), [0.0]), -1).reshape(-1, 3)
    a = np.arange(81).reshape(9, 9)[:-1, :-1].ravel()
    squares = np.concatenate([np.stack([a, a + 1, a + 9], 1), np.stack([a + 1, a + 10, a + 9], 1)])
    for turn in range(3):
        grid = np.roll(flat, turn, 1)
        axis = np.roll([0, 0, 1.0], turn)
        scene = spy.Scene(device, [spy.Mesh(grid, squares)])
        found, _ = _traced(module, scene, grid - 2 * axis, axis[None])
        assert found[:, 3].all() and (found[:, 0] == 2).all()


@pytest.mark.parametrize(
    "case",
    one_in(3, [(1.0, 1.0, [1e3, -2e3, 5e2]), (1e-9, 1.0, [0, 0, 0]), (1e9, 1e-6, [0, 0, 0]), (1.0, 1e-20, [0, 0, 0]),
               (1.0, 1e20, [-7, 3e4, 0]), (1e-3, 1e3, [1, 1, 1])]),
)  # fmt: skip
def test_boxes_let_no_ray_of_any_size_through(device: spy.Device, module: spy.Module, case: Any) -> None:
    """Boxes lie in steps of their node's: whatever is rounded on the way to them, they are large enough."""
    size, length, place = case
    corners, faces = sphere(12)
    random = np.random.default_rng(17)
    corners = (corners * size * random.uniform(0.5, 2, (len(corners), 1)) + place).astype(np.float32)
    scene = spy.Scene(device, [spy.Mesh(corners, faces)])
    many = 400 if device.name != "cpu" else 20_000
    origin = np.float32(place)
    # To places inside of triangles, and along the axes.
    weights = random.dirichlet([1, 1, 1], many).astype(np.float32)
    goal = (corners[faces[random.integers(0, len(faces), many)]] * weights[..., None]).sum(1)
    direction = np.concatenate([(goal - origin) / size, np.eye(3), -np.eye(3)]) * length
    found, _ = _traced(module, scene, origin[None], direction)
    assert found[:, 3].all()
    # The same triangles from far away, and behind where the ray starts.
    far = np.float32(origin - 100 * direction / length * size)
    found, _ = _traced(module, scene, far, direction)
    assert found[:, 3].mean() > 0.99
    behind, _ = _traced(module, scene, origin[None], -direction, (-np.inf, 0))
    assert behind[:, 3].all() and (behind[:, 0] <= 0).all()


def test_limits_of_a_ray(device: spy.Device, module: spy.Module) -> None:
    """Four parallel squares: tMin and tMax are inside, and only the nearest within them counts."""
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    corners = np.concatenate([np.insert(square, 2, z, axis=1) for z in range(4)])
    faces = np.concatenate([np.array([[0, 1, 2], [0, 2, 3]]) + 4 * k for k in range(4)])
    scene = spy.Scene(device, [spy.Mesh(corners, faces)])
    origin, direction = [[0.5, -0.25, -1.0]], [[0, 0, 2.0]]
    for limits, t in (
        ((0, np.inf), 0.5), ((0.5, 0.5), 0.5), ((0.51, 2), 1.0), ((0.6, 0.9), None), ((-1, 0.4), None),
        ((2.0, np.inf), 2.0), ((2.1, np.inf), None), ((1.0, 0.5), None), ((np.nan, 1), None), ((0, np.nan), None),
    ):  # fmt: skip
        found, numbers = _traced(module, scene, np.array(origin), np.array(direction), limits)
        blocked = bool(
            np.asarray(module.blocked(np.float32(origin), np.float32(direction), spy.float2(*limits), scene))
        )
        assert blocked == (t is not None) == bool(found[0, 3]), limits
        if t is None:
            assert numbers.tolist() == [[-1, -1, -1]] and (
                np.isnan(limits[1]) or found[0, 0] == np.float32(limits[1])
            )
        else:
            assert found[0, 0] == t and numbers[0, 0] // 2 == round(2 * t - 1)


@deep
def test_triangles_of_odd_kinds(device: spy.Device, module: spy.Module) -> None:
    """Corners that are nowhere or missing, triangles without an area, and the same triangle many times."""
    corners = np.array(
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [np.nan, 0, -1], [np.inf, 0, -1], [0.5, 0.5, -1]], np.float32
    )
    bad = [[0, 1, 3], [0, 1, 4], [0, 0, 0], [5, 5, 5], [0, 1, 1], [0, 1, 6], [-1, 1, 2]]
    origin, direction = np.array([[0.2, 0.3, -2.0], [0.9, 0.9, -2]]), np.array([[0, 0, 1.0]])
    for faces, wanted in (([*bad, [0, 1, 2]], 7), (bad, -1), ([[0, 1, 2]] * 100, 0), ([*bad, *[[2, 1, 0]] * 20], 7)):
        scene = spy.Scene(device, [spy.Mesh(corners, np.array(faces))])
        found, numbers = _traced(module, scene, origin, direction)
        assert numbers[:, 0].tolist() == [wanted, -1] and found[0, 3] == (wanted >= 0)
        assert wanted < 0 or found[0, 0] == 2
    # Far corners, and some that are too far; what lies near is found as before.
    for far, is_hit in ((1e16, True), (1e18, True), (1.1e18, False), (1e38, False)):
        corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [-1, -1, 5], [far, -1, 5], [-1, far, 5]], np.float32)
        scene = spy.Scene(device, [spy.Mesh(corners, np.array([[0, 1, 2], [3, 4, 5]]))])
        found, numbers = _traced(module, scene, np.array([[0.2, 0.3, -2.0], [0.9, 0.9, -2]]), np.array([[0, 0, 1.0]]))
        assert numbers[0, 0] == 0 and found[0, 0] == 2 and found[1, 3] == is_hit, far
        assert found[1, 0] == (7 if is_hit else np.inf)


def test_scenes_of_any_size(device: spy.Device, module: spy.Module) -> None:
    """The largest and the smallest scenes have the distances and weights that one of size 1 has."""
    corners, faces = soup(60, 41)
    origin, direction = rays(100, 42)
    wanted = brute(corners, faces, origin, direction)
    clear = wanted.margin > 1e-4
    hits = clear & (wanted.triangle >= 0)
    assert hits.sum() > 10
    for size in (1e-18, 1e-13, 1e13, 2e17):
        scene = spy.Scene(device, [spy.Mesh(corners * np.float32(size), faces)])
        for length in (size, 1.0):
            found, numbers = _traced(module, scene, origin * np.float32(size), direction * np.float32(length))
            np.testing.assert_array_equal(numbers[clear, 0], wanted.triangle[clear])
            np.testing.assert_allclose(found[hits, 0] * (length / size), wanted.t[hits], rtol=1e-4)
            np.testing.assert_allclose(found[hits, 1:3], wanted.weights[hits, 1:], atol=2e-3)


def test_rays_of_odd_kinds(device: spy.Device, module: spy.Module) -> None:
    """Rays that are nowhere, go nowhere, or start on a triangle."""
    scene = spy.Scene(device, [spy.Mesh(*sphere(6))])
    nan, inf = np.nan, np.inf
    origin = np.array([[nan, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [inf, 0, 0], [0, 0, 0]])
    direction = np.array([[1, 0, 0], [nan, 0, 0], [0, 0, 0], [0, inf, 0], [-1, 0, 0], [1e-30, 2e-30, 1e-30]])
    found, _ = _traced(module, scene, origin, direction)
    assert found[:, 3].tolist()[:3] == [0, 0, 0] and found[4, 3] == 0
    assert found[5, 3] == 1 and found[5, 0] == pytest.approx(0.4e30, rel=0.1)


@deep
def test_scenes_without_triangles(device: spy.Device, module: spy.Module) -> None:
    none = spy.Mesh(np.zeros((0, 3)), np.zeros((0, 3), int))
    full = spy.Mesh(*sphere(6))
    origin, direction = np.array([[0, 0, -3.0]]), np.array([[0.01, 0.02, 1.0]])
    for meshes, wanted in (
        ([], -1),
        ([none], -1),
        ([none, none], -1),
        ([none, full], 1),
        ([(none, None), full, none], 1),
    ):
        found, numbers = _traced(module, spy.Scene(device, meshes), origin, direction)
        assert numbers[0, 1] == wanted and found[0, 3] == (wanted >= 0)


@deep
def test_deep_hierarchies(device: spy.Device, module: spy.Module) -> None:
    """Triangles at powers of two, each alone in half of what is left, and many at one place."""
    x = 2.0 ** -np.arange(30)
    place = np.concatenate([np.stack([x, x * 0, x * 0], 1), np.zeros((500, 3))])
    size = np.concatenate([x, np.full(500, 1e-9)])[:, None] * 0.1
    corners = np.stack([place - size * [0, 1, 1], place + size * [0, 1, -1], place + size * [0, 0, 1]], 1).reshape(
        -1, 3
    )
    faces = np.arange(len(corners)).reshape(-1, 3)
    scene = spy.Scene(device, [spy.Mesh(corners, faces)])
    origin = np.stack([x * 1.01, x * 0, x * 0], 1)
    found, numbers = _traced(module, scene, origin, np.array([[-1.0, 0, 0]]))
    assert numbers[:, 0].tolist() == list(range(30))
    np.testing.assert_allclose(found[:, 0], np.float32(origin[:, 0]) - np.float32(x), rtol=1e-4)
    # The first of those at one place.
    found, numbers = _traced(module, scene, np.array([[-1e-6, 0, 0]]), np.array([[1.0, 0, 0]]))
    assert numbers[0, 0] == 30 and found[0, 0] == pytest.approx(1e-6)


@deep
def test_a_million_triangles() -> None:
    device = spy.Device("cpu")
    module: Any = spy.Module.load_from_source(device, "test_rays", TEXT)
    corners, faces = sphere(500)
    scene = spy.Scene(device, [spy.Mesh(corners, faces)])
    random = np.random.default_rng(8)
    goal = random.normal(size=(100_000, 3))
    goal /= np.linalg.norm(goal, axis=1, keepdims=True)
    found, _ = _traced(module, scene, np.zeros((1, 3)), goal)
    np.testing.assert_allclose(found[:, 0], 1, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "modify", "wanted"),
    [
        ("import rays;", lambda f: f, 64),
        ("import rays;", lambda f: f.group_size(128), 128),
        ("import rays; groupshared float s; void g() { GroupMemoryBarrierWithGroupSync(); }", lambda f: f, 64),
        ("", lambda f: f, 256),
    ],
)
def test_groups_of_functions_with_rays_are_small(text: str, modify: Any, wanted: int) -> None:
    with spy.Device("null") as device:
        module: Any = spy.Module.load_from_source(device, "test_groups", text + " float f(float a) { return a + 1; }")
        modify(module.f)(spy.Tensor.zeros(device, 300))
        assert device.backend.launches[-1][0].info.group_size == (wanted, 1, 1)


@deep
def test_kernels_compile_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that build hierarchies and those that trace rays, where nothing runs."""

    def calls(device: spy.Device, module: Any) -> None:
        corners, faces = soup(20, 9)
        mesh = spy.Mesh(corners, faces)
        scene = spy.Scene(device, [mesh, (mesh, np.eye(4))])
        origin, direction = (spy.Tensor.from_numpy(device, x, "float3") for x in rays(5, 9))
        module.trace(origin, direction, spy.float2(*LIMITS), scene)
        module.blocked(origin, direction, spy.float2(*LIMITS), scene)
        module.look(origin, direction, scene)

    assert compiled_for_cuda(TEXT, calls, monkeypatch) > 10
