"""Six pictures around a place, sampled by directions: beside a sampler in doubles, and derivatives of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._textures import faces
from tests.depth import deep, every_device, one_device

pytestmark = one_device

Array = npt.NDArray[Any]
TEXT = """
import cubes;
[Differentiable] float4 look(ImageCube image, float3 way, float level) { return image.sample(way, level); }
[Differentiable] float3 three(ImageCube3 image, float3 way) { return image.sample(way); }
[Differentiable] float one(ImageCube1 image, float3 way) { return image.sample(way, 0); }
"""
# To the right and down on each face, by Vulkan 1.3, "Cube Map Face Selection".
RIGHT = np.array([[0, 0, -1], [0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [-1, 0, 0]])
DOWN = np.array([[0, -1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1], [0, -1, 0], [0, -1, 0]])
OUT = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_cubes", TEXT)


def _sampled(texels: Array, ways: Array) -> Array:
    """Bilinear samples of one level; texels beside a face are those that their directions meet."""
    size = texels.shape[1]
    face, place = faces(ways)
    at = place * size - 0.5
    low = np.floor(at).astype(int)
    part = at - low
    total = np.zeros((len(ways), *texels.shape[3:]))
    for k in range(4):
        texel = low + np.array([k & 1, k >> 1])
        # The middle of the texel, which may lie beside the face, as a direction.
        s, t = ((texel * 2 + 1) / size - 1).T
        way = OUT[face] + RIGHT[face] * s[:, None] + DOWN[face] * t[:, None]
        on, where = faces(way)
        x, y = np.clip((where * size).astype(int), 0, size - 1).T
        weight = np.where(k & 1, part[:, 0], 1 - part[:, 0]) * np.where(k & 2, part[:, 1], 1 - part[:, 1])
        total += weight.reshape(-1, *[1] * (texels.ndim - 3)) * texels[on, y, x]
    return total


def _ways(count: int, seed: int = 0) -> Array:
    """Directions of several lengths, of which none is near one where faces or texels meet in more ways than one."""
    rng = np.random.default_rng(seed)
    ways = rng.normal(size=(4 * count, 3))
    size = np.sort(np.abs(ways), axis=1)
    clear = (size[:, 2] - size[:, 1] > 0.01 * size[:, 2]) & (size[:, 2] > 0.1)
    return ways[clear][:count].astype(np.float32)


def test_sampling(device: spy.Device, module: Any) -> None:
    rng = np.random.default_rng(1)
    texels = rng.random((6, 8, 8, 4), np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4"), mips=True)
    assert image.levels == 4 and image.texels.shape == (6, 8, 8) and "6 x 8 x 8" in repr(image)
    ways = _ways(500)
    for level, size in enumerate((8, 4, 2, 1)):
        smaller = texels.astype(np.float64).reshape(6, size, 8 // size, size, 8 // size, 4).mean((2, 4))
        wanted = _sampled(smaller, ways.astype(np.float64))
        np.testing.assert_allclose(module.look(image, ways, float(level)), wanted, atol=5e-6)
    near, far = (module.look(image, ways, float(k)) for k in (1, 2))
    np.testing.assert_allclose(module.look(image, ways, 1.25), near * 0.75 + far * 0.25, atol=2e-6)
    three = spy.Image(spy.Tensor.from_numpy(device, texels[..., :3], "float3"))
    np.testing.assert_allclose(module.three(three, 7 * ways), _sampled(texels[..., :3], ways), atol=5e-6)
    nearest = spy.Image(spy.Tensor.from_numpy(device, texels[..., 0]), filter="nearest")
    face, place = faces(ways.astype(np.float64))
    clear = (np.abs(place * 8 - np.rint(place * 8)) > 1e-3).all(1)
    x, y = (place * 8).astype(int).T
    np.testing.assert_array_equal(module.one(nearest, ways)[clear], texels[face, y, x, 0][clear])


@deep
def test_there_is_no_jump_between_faces(device: spy.Device, module: Any) -> None:
    texels = np.random.default_rng(2).random((6, 4, 4), np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels))
    # On both sides of each edge, away from the corners.
    t = np.linspace(-0.7, 0.7, 29)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            ways = np.zeros((29, 3))
            ways[:, a], ways[:, b], ways[:, 3 - a - b] = *signs, t
            low, high = ways.copy(), ways.copy()
            low[:, a] *= 1 - 1e-4
            high[:, a] *= 1 + 1e-4
            sides = [module.one(image, w.astype(np.float32)) for w in (low, high)]
            np.testing.assert_allclose(*sides, atol=3e-3)


@deep
def test_gradients(device: spy.Device, module: Any) -> None:
    rng = np.random.default_rng(3)
    texels = rng.random((6, 4, 4, 3), np.float32)
    ways = _ways(200, 4)
    upstream = rng.normal(size=(200, 3)).astype(np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float3").with_grads())
    given = spy.Tensor.from_numpy(device, ways, "float3").with_grads()
    result = module.three(image, given).with_grads()
    result.grad.copy_from(upstream)
    module.three.bwds(image, given, _result=result)
    # Samples are linear in the texels.
    wanted = np.zeros(texels.shape)
    for index in np.ndindex(6, 4, 4):
        one = np.zeros((6, 4, 4))
        one[index] = 1
        wanted[index] = _sampled(one, ways.astype(np.float64)) @ upstream
    np.testing.assert_allclose(image.texels.grad.numpy(), wanted, atol=2e-5)
    slope = np.zeros((200, 3))
    exact, h = ways.astype(np.float64), 1e-5
    for k in range(3):
        ends = [_sampled(texels.astype(np.float64), exact + sign * h * np.eye(3)[k]) for sign in (1, -1)]
        slope[:, k] = ((ends[0] - ends[1]) / (2 * h) * upstream).sum(1)
    place = faces(exact)[1] * 4 - 0.5
    clear = (np.abs(place - np.rint(place)) > 1e-3).all(1)
    np.testing.assert_allclose(given.grad.numpy()[clear], slope[clear], rtol=2e-3, atol=2e-3)


@deep
def test_levels_have_gradients(device: spy.Device, module: Any) -> None:
    texels = np.random.default_rng(5).random((6, 3, 3, 4), np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4").with_grads(), mips=True)
    ways, level = _ways(50, 6), spy.Tensor.full(device, 50, 0.5).with_grads()
    result = module.look(image, ways, level).with_grads()
    result.grad.copy_from(np.ones((50, 4), np.float32))
    module.look.bwds(image, spy.Tensor.from_numpy(device, ways, "float3"), level, _result=result)
    image.backward()
    np.testing.assert_allclose(image.texels.grad.numpy().sum((0, 1, 2)), np.full(4, 50), rtol=1e-5)
    near, far = (module.look(image, ways, float(k), _result="numpy") for k in (0, 1))
    np.testing.assert_allclose(level.grad.numpy(), (far - near).sum(1), atol=1e-4)


def test_the_step(device: spy.Device) -> None:
    texels = np.random.default_rng(7).random((6, 4, 4, 3), np.float32)
    ways = _ways(40, 8)
    cube = spy.Tensor.from_numpy(device, texels, "float3")
    found = spy.graphics.sample(cube, ways)
    np.testing.assert_allclose(found.numpy(), _sampled(texels, ways), atol=5e-6)
    with pytest.raises(spy.BindError, match="uv has elements of float2; of float3 were expected"):
        spy.graphics.sample(cube, ways[:, :2])
    with pytest.raises(spy.ShapeError, match=r"\(6, n, n\) for a cube was expected"):
        spy.Image(spy.Tensor.zeros(device, (5, 4, 4)))


@every_device
@pytest.mark.parametrize("filter", ["nearest", "linear"])
def test_directions_that_are_no_numbers(device: spy.Device, module: Any, filter: str) -> None:
    """Nothing of a direction that meets no place goes to texels."""
    texels = np.random.default_rng(3).random((6, 4, 4, 4), np.float32)
    odd = [(np.nan, 1, 0), (0, 0, 0), (np.inf, np.inf, 0), (1, np.nan, np.nan), (-np.inf, 1, np.inf), (1, 0.2, 0.1)]
    tensor = spy.Tensor.from_numpy(device, texels, "float4").with_grads()
    cube, where = spy.Image(tensor, filter=filter), spy.Tensor.from_numpy(device, np.array(odd, np.float32), "float3")
    result = module.look(cube, where, 0.0).with_grads()
    result.grad.copy_from(np.ones((len(odd), 4), np.float32))
    module.look.bwds(cube, where, 0.0, _result=result)
    np.testing.assert_allclose(cube.texels.grad.to_numpy().sum(), 4, rtol=1e-5)
