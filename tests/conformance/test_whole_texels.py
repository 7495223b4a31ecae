"""Textures of whole numbers that functions look up by places: each place has the number of the nearest texel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._textures import faces
from tests.depth import needs, sampled

pytestmark = [sampled(6), needs("textures", "samples of whole numbers")]

SLANG = """
uint4 plane(Texture2D<uint4> t, SamplerState s, float2 at, float level) { return t.SampleLevel(s, at, level); }
uint4 own(Sampler2D<uint4> t, float2 at, float level) { return t.SampleLevel(at, level); }
int line(Texture1D<int> t, SamplerState s, float at) { return t.SampleLevel(s, at, 0); }
uint2 volume(Texture3D<uint2> t, SamplerState s, float3 at) { return t.SampleLevel(s, at, 0); }
int layers(Texture2DArray<int> t, SamplerState s, float3 at) { return t.SampleLevel(s, at, 0); }
uint cube(TextureCube<uint> t, SamplerState s, float3 at) { return t.SampleLevel(s, at, 0); }
uint read(Texture2D<uint> t, SamplerState s, int2 at) { return t[at]; }
float4 both(Texture2D<uint> t, Texture2D<float4> u, SamplerState s, float2 at)
{
    return u.SampleLevel(s, at, 0) + float(t[int2(0)]);
}
"""
NEAREST = {"filter": "nearest", "mip": "nearest"}
RNG = np.random.default_rng(11)
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_whole_texels", SLANG)


def numbers(*shape: int, dtype: Any = np.uint32) -> Array:
    """Numbers that use all bits, which floats do not hold."""
    return RNG.integers(0, 2**32, shape, dtype=np.uint32).view(dtype)


def texels_at(places: Array, sizes: tuple[int, ...]) -> list[Array]:
    """Indices of the texels at places inside, x first."""
    return [(places[:, k] * n).astype(int) for k, n in enumerate(sizes)]


def inside(count: int, *sizes: int) -> Array:
    """Places away from the edges between texels."""
    texels = np.stack([RNG.integers(0, n, count) for n in sizes], -1)
    return ((texels + RNG.uniform(0.1, 0.9, texels.shape)) / sizes).astype(np.float32)


@pytest.mark.parametrize("wrap", ["repeat", "mirror", "clamp"])
def test_planes(device: spy.Device, module: spy.Module, wrap: str) -> None:
    texture = spy.Texture.from_numpy(device, numbers(5, 7, 4), mips=True)
    for level in range(texture.mip_count):
        texels = texture.to_numpy(level)
        rows, columns = texels.shape[:2]
        at = inside(50, columns, rows)
        x, y = texels_at(at, (columns, rows))
        beyond = at + np.float32(1) if wrap == "repeat" else 2 - at if wrap == "mirror" else at
        found = module.plane(texture, {**NEAREST, "wrap": wrap}, beyond, float(level))
        np.testing.assert_array_equal(np.asarray(found), texels[y, x])
    corners = np.array([[-3, -3], [9, 9]], np.float32)
    found = np.asarray(module.plane(texture, {**NEAREST, "wrap": "clamp"}, corners, 0.0))
    np.testing.assert_array_equal(found, texture.to_numpy()[[0, -1], [0, -1]])


@needs("textures with samplers")
def test_textures_with_samplers(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, numbers(5, 7, 4))
    at = inside(50, 7, 5)
    x, y = texels_at(at, (7, 5))
    found = module.own(texture.with_sampler(NEAREST), at + np.float32(1), 0.0)
    np.testing.assert_array_equal(np.asarray(found), texture.to_numpy()[y, x])


def test_other_kinds(device: spy.Device, module: spy.Module) -> None:
    line, volume = numbers(9, dtype=np.int32), numbers(2, 3, 4, 2)
    at = inside(30, 9)
    found = module.line(spy.Texture.from_numpy(device, line, type="1d"), NEAREST, at[:, 0])
    np.testing.assert_array_equal(np.asarray(found), line[texels_at(at, (9,))[0]])
    at = inside(30, 4, 3, 2)
    x, y, z = texels_at(at, (4, 3, 2))
    found = module.volume(spy.Texture.from_numpy(device, volume, type="3d"), NEAREST, at)
    np.testing.assert_array_equal(np.asarray(found), volume[z, y, x])
    layers = numbers(3, 5, 6, dtype=np.int32)
    at = inside(30, 6, 5, 3)
    x, y, z = texels_at(at, (6, 5, 3))
    at[:, 2] = z
    found = module.layers(spy.Texture.from_numpy(device, layers, type="2d_array"), NEAREST, at)
    np.testing.assert_array_equal(np.asarray(found), layers[z, y, x])
    cube, ways = numbers(6, 8, 8), RNG.normal(size=(60, 3)).astype(np.float32)
    face, place = faces(ways)
    x, y = texels_at(place, (8, 8))
    found = module.cube(spy.Texture.from_numpy(device, cube, type="cube"), NEAREST, ways)
    np.testing.assert_array_equal(np.asarray(found), cube[face, y, x])


@pytest.mark.parametrize("how", [{}, {"filter": "nearest"}, {"mip": "nearest"}])
def test_samplers_that_blend_are_refused(device: spy.Device, module: spy.Module, how: dict[str, Any]) -> None:
    texture = spy.Texture.from_numpy(device, numbers(4, 4))
    four = spy.Texture.from_numpy(device, numbers(4, 4, 4))
    words = r"whole numbers, of which there are no means; pass filter='nearest' and mip='nearest'\.$"
    for sampler in (how, device.create_sampler(**how)):
        with pytest.raises(spy.BindError, match=rf"argument 's' is a sampler that blends, .* 't' .*{words}"):
            module.plane(four, sampler, np.zeros((2, 2), np.float32), 0.0)
        with pytest.raises(spy.BindError, match=rf"^Texture\.with_sampler: .*{words}"):
            four.with_sampler(sampler)
    assert module.read(texture, NEAREST, [1, 2]) == texture.to_numpy()[2, 1]


def test_a_sampler_for_another_texture_may_blend(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, np.full((2, 2), 3, np.uint32))
    colors = spy.Texture.from_numpy(device, np.array([[[0.0] * 4, [1.0] * 4]], np.float32))
    found = module.both(texture, colors, {}, np.array([[0.5, 0.5]], np.float32))
    np.testing.assert_allclose(np.asarray(found), [[3.5] * 4], atol=1 / 256)
