"""Scenes: instances, updates, gradients through them, files, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from tests.conformance._rays import TEXT, Array, brute, rays, soup

RNG = np.random.default_rng(11)


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_rays", TEXT)


def _found(module: Any, scene: Any, origin: Array, direction: Array) -> tuple[Array, Array]:
    given = (np.float32(origin), np.float32(direction), spy.float2(0, np.inf), scene)
    return module.trace(*given).to_numpy(), module.numbers(*given).to_numpy()


def _transforms(count: int, seed: int) -> list[Array]:
    """Turns, scales with mirrors and shears, and moves."""
    random = np.random.default_rng(seed)
    turns = [np.linalg.qr(random.normal(size=(3, 3)))[0] for _ in range(2 * count)]
    sizes = random.uniform(0.4, 1.2, (count, 3))
    return [
        np.concatenate([turns[k] * sizes[k] @ turns[count + k], random.uniform(-1, 1, (3, 1))], 1)
        for k in range(count)
    ]


def _moved(corners: Array, matrix: Array) -> Array:
    return corners @ matrix[:, :3].T + matrix[:, 3]


def _check(module: Any, scene: Any, bodies: list[tuple[Array, Array]], count: int = 200) -> None:
    """Compare with all triangles where they lie: `bodies` are corners and faces of each instance."""
    first = np.cumsum([0] + [len(c) for c, _ in bodies])
    corners = np.concatenate([c for c, _ in bodies])
    faces = np.concatenate([f + n for (_, f), n in zip(bodies, first, strict=False)])
    starts = np.cumsum([0] + [len(f) for _, f in bodies])
    origin, direction = rays(count, 12)
    wanted = brute(corners, faces, origin, direction)
    found, numbers = _found(module, scene, origin, direction)
    clear = wanted.margin > 1e-4
    assert clear.mean() > 0.8 and (wanted.triangle >= 0).sum() > count / 20
    instance = np.where(wanted.triangle >= 0, np.searchsorted(starts, wanted.triangle, side="right") - 1, -1)
    np.testing.assert_array_equal(numbers[clear, 1], instance[clear])
    np.testing.assert_array_equal(
        numbers[clear, 0], np.where(instance >= 0, wanted.triangle - starts[np.maximum(instance, 0)], -1)[clear]
    )
    hits = clear & (instance >= 0)
    np.testing.assert_allclose(found[hits, 0], wanted.t[hits], rtol=2e-5, atol=2e-5)
    # The same place by scene.at, from corners that are moved.
    look = module.look(origin, direction, scene)
    np.testing.assert_allclose(look["t"].to_numpy()[hits], wanted.t[hits], rtol=2e-5, atol=2e-5)
    weights = look["weights"].to_numpy()
    np.testing.assert_allclose(weights[hits], wanted.weights[hits], atol=2e-3)
    a, b, c = (corners[faces[wanted.triangle[hits]][:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    np.testing.assert_allclose(look["normal"].to_numpy()[hits], normal, atol=2e-3)
    missed = numbers[:, 0] < 0
    assert not weights[missed].any() and not look["position"].to_numpy()[missed].any()


def test_instances(device: spy.Device, module: spy.Module) -> None:
    a, b = soup(40, 13), soup(1, 14, 0.8)
    one, two = spy.Mesh(*a), spy.Mesh(*b)
    m = _transforms(5, 31)
    square = np.vstack([m[3], [0, 0, 0, 1]])
    scene = spy.Scene(device, [(one, m[0]), two, [two, m[1]], (one, m[2].tolist()), (two, square), (one, None)])
    assert scene.count == 3 * 40 + 3 and scene.meshes == [one, two]
    assert repr(scene) == f"<Scene of 123 triangles in 6 instances on {device!r}>"
    bodies = [
        (_moved(a[0], m[0]), a[1]), b, (_moved(b[0], m[1]), b[1]),
        (_moved(a[0], m[2]), a[1]), (_moved(b[0], m[3]), b[1]), a,
    ]  # fmt: skip
    _check(module, scene, bodies)
    # Of one instance with a transform, and of many that share a mesh.
    _check(module, spy.Scene(device, [(one, m[4])]), [(_moved(a[0], m[4]), a[1])])
    many = [np.hstack([0.2 * np.eye(3), RNG.uniform(-1, 1, (3, 1))]) for _ in range(50)]
    _check(module, spy.Scene(device, [(one, x) for x in many]), [(_moved(a[0], x), a[1]) for x in many])


def test_updates(device: spy.Device, module: spy.Module) -> None:
    corners, faces = soup(60, 15)
    own = corners.copy()
    place: Any = spy.Tensor.from_numpy(device, corners, "float3")
    in_place, copied = spy.Mesh(place, faces), spy.Mesh(own, faces)
    m = _transforms(3, 32)
    flat, both = spy.Scene(device, [in_place]), spy.Scene(device, [(in_place, m[0]), (copied, m[1])])
    for turn in range(3):
        moved = soup(60, 16 + turn)[0]
        place.copy_from(moved)
        own[:] = moved + np.float32(0.1)
        flat.update(rebuild=turn == 2)
        both.update(transforms=None if turn == 0 else [m[turn], m[0]], rebuild=turn == 2)
        _check(module, flat, [(moved, faces)])
        ways = (m[0], m[1]) if turn == 0 else (m[turn], m[0])
        _check(module, both, [(_moved(moved, ways[0]), faces), (_moved(own, ways[1]), faces)])
    # A command list finds what an update wrote.
    origin, direction = rays(100, 34)
    given = [spy.Tensor.from_numpy(device, x, "float3") for x in (origin, direction)]
    hosted = spy.Scene(device, [spy.Mesh(own, faces)])
    for scene in (flat, both, hosted):
        listed = spy.Tensor.zeros(device, 100, "float4")
        commands = device.command_list()
        module.trace.append_to(commands, *given, spy.float2(0, np.inf), scene, _result=listed)
        place.copy_from(soup(60, 40)[0])
        own[:] = soup(60, 41)[0]
        scene.update(None if scene is not both else [m[2], m[1]])
        commands.submit()
        np.testing.assert_array_equal(listed.to_numpy(), _found(module, scene, origin, direction)[0])
        place.copy_from(moved)
        own[:] = moved
        scene.update()
    flat.update([m[2]])
    _check(module, flat, [(_moved(moved, m[2]), faces)])
    flat.update([None])
    _check(module, flat, [(moved, faces)])
    # Other sizes.
    corners, faces = soup(30, 19)
    in_place.positions, in_place.faces = corners, faces
    with pytest.raises(spy.ShapeError) as caught:
        flat.update()
    assert str(caught.value) == (
        "Scene.update: a mesh had 180 corners and 60 triangles, and now has 90 and 30: update cannot; pass "
        "rebuild=True."
    )
    flat.update(rebuild=True)
    _check(module, flat, [(corners, faces)])


def _differences(corners: Array, face: Array, origin: Array, direction: Array, ways: Array) -> tuple[Array, ...]:
    """Central differences of `score` in double precision, with the triangle that was hit."""

    def score(x: Array) -> Array:
        a, b, c, o, d = (x[:, 3 * k : 3 * k + 3] for k in range(5))
        p, q = b - a, c - a
        n = np.cross(p, q)
        square = (n * n).sum(1)
        t = (n * (a - o)).sum(1) / (n * d).sum(1)
        at = o + t[:, None] * d
        second = (np.cross(at - a, q) * n).sum(1) / square
        third = (np.cross(p, at - a) * n).sum(1) / square
        weights = np.stack([1 - second - third, second, third], 1)
        unit = n / np.sqrt(square)[:, None]
        return (at * ways[:, 0]).sum(1) + (unit * ways[:, 1]).sum(1) + (weights * ways[:, 2]).sum(1) + 0.3 * t

    x = np.concatenate([*(corners[face[:, k]] for k in range(3)), origin, direction], 1).astype(np.float64)
    slopes = np.zeros_like(x)
    for k in range(15):
        step = np.zeros(15)
        step[k] = 1e-6
        slopes[:, k] = (score(x + step) - score(x - step)) / 2e-6
    total = np.zeros(corners.shape)
    for k in range(3):
        np.add.at(total, face[:, k], slopes[:, 3 * k : 3 * k + 3])
    return total, slopes[:, 9:12], slopes[:, 12:]


def _given(device: spy.Device, count: int) -> tuple[Array, Array, Array, Any]:
    origin, direction = rays(count, 21)
    ways = RNG.normal(size=(count, 3, 3)).astype(np.float32)
    tensors = [spy.Tensor.from_numpy(device, x, "float3") for x in (origin, direction, *ways.transpose(1, 0, 2))]
    return origin, direction, ways, [tensors[0].with_grads(), tensors[1].with_grads(), *tensors[2:]]


def _backward(module: Any, given: Any, scene: Any, count: int) -> Any:
    result = spy.Tensor.zeros(given[0].device, count).with_grads()
    result.grad.copy_from(np.ones(count, np.float32))
    module.score.bwds(*given, scene, _result=result)
    return result


def test_gradients(device: spy.Device, module: spy.Module) -> None:
    corners, faces = soup(12, 20, 0.9)
    place = spy.Tensor.from_numpy(device, corners, "float3").with_grads()
    scene = spy.Scene(device, [spy.Mesh(place, faces)])
    origin, direction, ways, given = _given(device, 100)
    _, numbers = _found(module, scene, origin, direction)
    hit = numbers[:, 0] >= 0
    assert hit.sum() > 30
    _backward(module, given, scene, 100)
    total, of_origin, of_direction = _differences(
        corners, faces[numbers[hit, 0]], origin[hit], direction[hit], ways[hit]
    )
    size = np.abs(total).max()
    np.testing.assert_allclose(place.grad.to_numpy(), total, rtol=1e-3, atol=1e-4 * size)
    for tensor, wanted in ((given[0], of_origin), (given[1], of_direction)):
        found = tensor.grad.to_numpy()
        np.testing.assert_allclose(found[hit], wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
        assert not found[~hit].any()
    # Forward: the same derivatives, times a way of the corners.
    change = RNG.normal(size=corners.shape).astype(np.float32)
    way = spy.Tensor.from_numpy(device, corners, "float3").with_grads(
        grad_in=spy.Tensor.from_numpy(device, change, "float3")
    )
    followed = module.score.fwds(*[x.detach() for x in given], spy.Scene(device, [spy.Mesh(way, faces)]))
    assert followed.grad.to_numpy().sum(dtype=np.float64) == pytest.approx((total * change).sum(), rel=1e-3)


def test_gradients_of_several_meshes(device: spy.Device, module: spy.Module) -> None:
    """Each mesh's positions get their part, at once by calls and by ``backward()`` after a command list."""
    bodies = [soup(6, 22, 0.9), soup(6, 23, 0.9), soup(6, 24, 0.9)]
    places: list[Any] = [spy.Tensor.from_numpy(device, c, "float3") for c, _ in bodies]
    places = [places[0].with_grads(), places[1], places[2].with_grads()]
    m = _transforms(2, 33)
    meshes = [spy.Mesh(place, faces) for place, (_, faces) in zip(places, bodies, strict=True)]
    scene = spy.Scene(device, [(meshes[0], m[0]), meshes[1], (meshes[2], m[1]), meshes[2]])
    origin, direction, ways, given = _given(device, 100)
    _, numbers = _found(module, scene, origin, direction)
    result = _backward(module, given, scene, 100)
    which, turns = [0, 1, 2, 2], [m[0], None, m[1], None]
    wanted = [np.zeros(c.shape) for c, _ in bodies]
    for k, (body, turn) in enumerate(zip(which, turns, strict=True)):
        rows = numbers[:, 1] == k
        assert rows.sum() > 3
        corners, faces = bodies[body]
        there = corners if turn is None else _moved(corners, turn)
        total, _, _ = _differences(there, faces[numbers[rows, 0]], origin[rows], direction[rows], ways[rows])
        wanted[body] += total if turn is None else total @ turn[:, :3]
    for k in (0, 2):
        size = np.abs(wanted[k]).max()
        np.testing.assert_allclose(places[k].grad.to_numpy(), wanted[k], rtol=2e-3, atol=3e-4 * size)
    once = [places[k].grad.to_numpy() for k in (0, 2)]
    commands = device.command_list()
    module.score.bwds.append_to(commands, *given, scene, _result=result)
    commands.submit()
    scene.backward()
    for k, before in zip((0, 2), once, strict=True):
        np.testing.assert_allclose(places[k].grad.to_numpy(), 2 * before, rtol=1e-3, atol=1e-4 * np.abs(before).max())


def test_tangents_that_meshes_lose(device: spy.Device, module: spy.Module) -> None:
    """After an update a scene has the tangents that its meshes have now."""
    (corners, faces), other = soup(12, 20, 0.9), soup(6, 3, 0.9)
    change = spy.Tensor.from_numpy(device, RNG.normal(size=corners.shape).astype(np.float32), "float3")
    positions: Any = spy.Tensor.from_numpy(device, corners, "float3")
    one, two = spy.Mesh(positions.with_grads(grad_in=change), faces), spy.Mesh(*other)
    scene = spy.Scene(device, [one, two])
    given = [x.detach() for x in _given(device, 60)[3]]
    assert np.abs(module.score.fwds(*given, scene).grad.to_numpy()).max() > 0.1
    one.positions = positions
    scene.update()
    assert not module.score.fwds(*given, scene).grad.to_numpy().any()


def test_positions_of_other_libraries(device: spy.Device, module: spy.Module) -> None:
    corners, faces = soup(20, 25)
    rows: Any = spy.Tensor.from_numpy(device, corners).with_grads()
    for mesh in (
        spy.Mesh(torch.from_numpy(corners), torch.from_numpy(faces)),
        spy.Mesh(corners.astype(np.float64), faces.astype(np.uint32)),
        spy.Mesh(corners.tolist(), faces.tolist()),
        spy.Mesh(rows, spy.Tensor.from_numpy(device, faces)),
        spy.Mesh(spy.Tensor.from_numpy(device, np.repeat(corners, 2, 0), "float3")[::2], faces[::-1][::-1]),
    ):
        assert repr(mesh) == "<Mesh of 20 triangles and 60 corners>"
        _check(module, spy.Scene(device, [mesh]), [(corners, faces)])
    # Rows of floats have a gradient, too.
    given = _given(device, 50)[3]
    _backward(module, given, spy.Scene(device, [spy.Mesh(rows, faces)]), 50)
    assert np.abs(rows.grad.to_numpy()).sum() > 1


def test_pytorch_takes_gradients_through_a_scene(device: spy.Device, module: spy.Module) -> None:
    corners, faces = soup(12, 20, 0.9)
    scene = spy.Scene(device, [spy.Mesh(corners, faces)])
    origin, direction, ways, _ = _given(device, 60)
    _, numbers = _found(module, scene, origin, direction)
    hit = numbers[:, 0] >= 0
    start = torch.from_numpy(origin).requires_grad_(True)
    others = [torch.from_numpy(np.ascontiguousarray(x)) for x in (direction, *ways.transpose(1, 0, 2))]
    module.score(start, *others, scene).sum().backward()
    wanted = _differences(corners, faces[numbers[hit, 0]], origin[hit], direction[hit], ways[hit])[1]
    assert start.grad is not None and hit.sum() > 10
    np.testing.assert_allclose(start.grad.numpy()[hit], wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def _message(act: Any, kind: type[Exception] = spy.BindError) -> str:
    with pytest.raises(kind) as caught:
        act()
    return str(caught.value)


def test_errors() -> None:
    corners, faces = soup(2, 26)
    device = spy.Device("cpu")
    mesh = spy.Mesh(corners, faces)
    expected = "a Tensor of float3, or an array of numbers of shape (corners, 3), was expected."
    assert _message(lambda: spy.Mesh(corners[:, :2], faces), spy.ShapeError) == (
        "Mesh: positions has shape (6, 2); (corners, 3) was expected."
    )
    assert _message(lambda: spy.Mesh("cube", faces)).endswith(expected)
    assert _message(lambda: spy.Mesh(np.array(["a"]), faces)).endswith(expected)
    assert _message(lambda: spy.Mesh([[1, 2, 3], [1]], faces), spy.ShapeError).endswith(expected)
    assert _message(lambda: spy.Mesh(spy.Tensor.zeros(device, 4, "int3"), faces)).endswith(expected)
    numbers = "whole numbers of shape (triangles, 3) were expected."
    for bad in (faces.astype(float), "x", torch.zeros(2, 3), [[0, 1, 2], [0]], spy.Tensor.zeros(device, (2, 3))):
        message = _message(
            lambda bad=bad: spy.Mesh(corners, bad), spy.ShapeError if isinstance(bad, list) else spy.BindError
        )
        assert message.startswith("Mesh: faces is ") and message.endswith(numbers)
    assert "(triangles, 3) was expected" in _message(lambda: spy.Mesh(corners, faces[0]), spy.ShapeError)
    assert "pass both arrays, or a trimesh.Trimesh" in _message(lambda: spy.Mesh(corners))
    many = np.broadcast_to(np.int32(0), ((1 << 26) + 1, 3))
    assert _message(lambda: spy.Mesh(corners, many), spy.ShapeError) == (
        "Mesh: faces has 67108865 triangles; 67108864 at most can be in a mesh."
    )
    assert "a list of Mesh was expected" in _message(lambda: spy.Scene(device, mesh))
    assert _message(lambda: spy.Scene(device, [mesh, 3])).startswith("Scene: meshes[1] is ")
    for matrix, end in (
        (np.eye(3), "a matrix of 3 x 4 or 4 x 4 numbers, or None, was expected."),
        ("x", "a matrix of 3 x 4 or 4 x 4 numbers, or None, was expected."),
        (np.ones((4, 4)), "0, 0, 0, 1 was expected."),
        (np.zeros((3, 4)), "cannot be inverted."),
        (np.full((3, 4), np.nan), "that no float holds."),
        (np.eye(4)[:3] * 1e-39, "cannot be inverted."),
        (np.eye(4)[:3] * 1e39, "that no float holds."),
        (np.eye(4) * 1j, "of complex numbers; a matrix of 3 x 4 or 4 x 4 numbers, or None, was expected."),
    ):
        message = _message(lambda matrix=matrix: spy.Scene(device, [mesh, (mesh, matrix)]))
        assert message.startswith("Scene: meshes[1]: the transform ") and message.endswith(end)
    scene = spy.Scene(device, [mesh])
    assert _message(lambda: scene.update([None, None]), spy.ShapeError) == (
        "Scene.update: transforms has the length 2; one was expected for each of the scene's instances, of which "
        "there are 1."
    )
    assert _message(lambda: scene.update(transforms=3)) == "Scene.update: transforms is 3; a list was expected."
    assert "Scene.update: rebuild" in _message(lambda: scene.update(rebuild="yes"))
    other = spy.Device("cpu")
    there = spy.Mesh(spy.Tensor.from_numpy(other, corners, "float3"), faces)
    assert "the mesh has positions on" in _message(lambda: spy.Scene(device, [there]))
    there = spy.Mesh(corners, spy.Tensor.from_numpy(other, faces))
    assert "the mesh has faces on" in _message(lambda: spy.Scene(device, [there]))
    mesh.positions = there.positions.astype(np.float64)
    mesh.faces = there.faces
    before = scene.get_this()
    assert "the mesh has faces on" in _message(lambda: scene.update([np.eye(4)]))
    assert scene.get_this() is before and repr(scene).startswith("<Scene of 2 triangles on ")
    assert _message(lambda: spy.Scene("cpu", [mesh])) == (
        "Scene: device is 'cpu'; a Device was expected, as spy.Device('cpu') is."
    )
    wide = spy.Tensor.from_numpy(device, faces.astype(np.int64))
    assert _message(lambda: spy.Mesh(corners, wide)).endswith(
        'numbers of type int were expected, as astype("int") makes them.'
    )
    tracked = torch.from_numpy(corners).requires_grad_(True)
    assert _message(lambda: spy.Scene(device, [spy.Mesh(tracked, faces)])).startswith(
        "Scene: the mesh has as positions a torch tensor of"
    )
    twofold = spy.Mesh(torch.zeros(3, 3, dtype=torch.complex64), [[0, 1, 2]])
    assert _message(lambda: spy.Scene(device, [twofold])).startswith("Scene: the mesh has as positions ")
    assert repr(spy.Mesh([[0, 0, 1e300], [0, 1, 0], [1, 0, 0]], [[0, 1, 2]])) == "<Mesh of 1 triangle and 3 corners>"
    # Of several matrices the message names the first that is wrong.
    pair = spy.Scene(device, [spy.Mesh(corners, faces)] * 4)
    for third, fourth, said in (
        (np.zeros((3, 4)), np.zeros((3, 4)), "[2] makes"),
        (np.eye(4), np.ones((3, 4)), "[3] makes"),
    ):
        message = _message(lambda third=third, fourth=fourth: pair.update([np.eye(4), None, third, fourth]))
        assert message.startswith(f"Scene.update: transforms{said} all points lie in a plane")
    # No warning of NumPy's: they are errors in tests.
    assert spy.Scene(device, [spy.Mesh([[0, 0, 1e300], [0, 1, 0], [1, 0, 0]], [[0, 1, 2]])]).count == 1


def test_other_values_for_scenes(device: spy.Device, module: spy.Module) -> None:
    """What a newcomer passes in place of a Scene, or of an Image."""
    corners, faces = soup(2, 26)
    head = "int3 numbers(float3 origin, float3 direction, float2 limits, Scene scene): argument 'scene' is "
    rays_of = (np.zeros(3, np.float32), np.ones(3, np.float32), spy.float2(0, 1))
    for value, words in (
        (spy.Mesh(corners, faces), "<Mesh of 2 triangles and 6 corners>"), (None, "None"), ([], "[]"), ({}, "{}"),
        (spy.Tensor.zeros(device, 2), "a Tensor<float> of shape (2,)"),
    ):  # fmt: skip
        assert _message(lambda value=value: module.numbers(*rays_of, value)) == (
            f"{head}{words}; pass spy.Scene(device, [mesh])."
        )
    other = spy.Device("cpu")
    there = spy.Scene(other, [spy.Mesh(corners, faces)])
    message = _message(lambda: module.numbers(*rays_of, there))
    assert message.startswith(f"{head}on ") and message.endswith(f"; the module runs on {device!r}.")
    text = "import sampling; float3 tint(Image3 image, float2 uv) { return image.sample(uv); }"
    tint: Any = spy.Module.load_from_source(device, "test_tint", text)
    photo = np.ones((4, 5, 3), np.float32)
    for image, words in (
        (photo, "an array of dtype float32 and shape (4, 5, 3)"),
        (spy.Tensor.from_numpy(device, photo, "float3"), "a Tensor<float3> of shape (4, 5)"),
    ):
        assert _message(lambda image=image: tint.tint(image, spy.float2(0, 0))) == (
            f"float3 tint(Image3 image, float2 uv): argument 'image' is {words}; pass spy.Image(tensor), where the "
            "tensor holds elements of float3."
        )
    # Structs of the user's own keep their names.
    text = "struct Scene { float a; }\nstruct Image { Tensor<float, 1> texels; }\n"
    text += "float own(Scene s) { return s.a; }\nfloat first(Image i) { return i.texels[0]; }"
    named: Any = spy.Module.load_from_source(device, "test_own_scene", text)
    assert named.own([2.0]) == 2 and named.first(np.float32([3, 4])) == 3
