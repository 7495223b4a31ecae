"""Four texels at once, samples by gradients, and atomic operations on texels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._textures import blended, faces, sampled
from tests.depth import needs, one_device

pytestmark = needs("textures")

SLANG = """
float4 red(Texture2D<float4> t, SamplerState s, float2 at) { return t.GatherRed(s, at); }
float4 blue(Texture2D<float4> t, SamplerState s, float2 at) { return t.GatherBlue(s, at, int2(1, -2)); }
float4 layer(Texture2DArray<float> t, SamplerState s, float3 at) { return t.Gather(s, at); }
int4 whole(Texture2D<int> t, SamplerState s, float2 at) { return t.Gather(s, at); }
float4 apart(Texture2D<float4> t, SamplerState s, float2 at)
{
    return t.GatherGreen(s, at, int2(1, 0), int2(-2, 3), int2(0, -1), int2(0, 0));
}
float4 cube(TextureCube<float4> t, SamplerState s, float3 at) { return t.GatherAlpha(s, at); }
float4 level(TextureCube<float4> t, SamplerState s, float3 at, float level) { return t.SampleLevel(s, at, level); }
float4 turn(TextureCube<float4> t, SamplerState s, float3 at, float3 dx, float3 dy)
{
    return t.SampleGrad(s, at, dx, dy);
}
float4 slope(Texture2D<float4> t, SamplerState s, float2 at, float2 dx, float2 dy)
{
    return t.SampleGrad(s, at, dx, dy);
}
"""
ATOMIC = """
void add(RWTexture2D<uint> t, int2 at, uint x) { InterlockedAdd(t[at], x); }
int least(RWTexture2DArray<int> t, int3 at, int x) { int old; InterlockedMin(t[at], x, old); return old; }
uint first(RWTexture1D<uint> t, int at, uint x)
{
    uint old;
    InterlockedCompareExchange(t[at], 0, x, old);
    return old;
}
void most(RWTexture3D<uint> t, int3 at, uint x) { InterlockedMax(t[at], x); }
float4 part(RWTexture2D<float4> t, int2 at) { t[at].y += 1; return t[at]; }
"""
RNG = np.random.default_rng(17)
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """Functions that only read."""
    return spy.Module.load_from_source(device, "test_gathers", SLANG)


@pytest.fixture(scope="module")
def atomic(device: spy.Device) -> spy.Module:
    """Functions that change texels."""
    return spy.Module.load_from_source(device, "test_gathers_atomic", ATOMIC)


def around(texels: Array, at: Array, wrap: str, offset: tuple[int, int] = (0, 0)) -> Array:
    """The four texels around places, in the order of Vulkan 1.3, "Texel Gathering"."""
    height, width = texels.shape
    low = np.floor(at * [width, height] - 0.5).astype(int) + offset

    def index(i: Array, n: int) -> Array:
        return np.clip(i, 0, n - 1) if wrap == "clamp" else i % n

    x, y = ([index(low[:, k] + j, (width, height)[k]) for j in (0, 1)] for k in (0, 1))
    return np.stack([texels[y[1], x[0]], texels[y[1], x[1]], texels[y[0], x[1]], texels[y[0], x[0]]], -1)


@needs("gathers of texels")
@pytest.mark.parametrize("wrap", ["repeat", "clamp"])
def test_planes(device: spy.Device, module: spy.Module, wrap: str) -> None:
    texels = RNG.random((6, 9, 4)).astype(np.float32)
    texture, how = spy.Texture.from_numpy(device, texels), {"wrap": wrap}
    at = (RNG.integers(-9, 18, (80, 2)) + RNG.uniform(0.1, 0.9, (80, 2))) / [9, 6]
    at = at.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(module.red(texture, how, at)), around(texels[..., 0], at, wrap))
    found = np.asarray(module.blue(texture, how, at))
    np.testing.assert_array_equal(found, around(texels[..., 2], at, wrap, (1, -2)))


@needs("gathers of texels")
def test_bytes_layers_and_whole_numbers(device: spy.Device, module: spy.Module) -> None:
    how, at = {"filter": "nearest", "mip": "nearest"}, RNG.uniform(0, 1, (40, 2)).astype(np.float32)
    texels = RNG.integers(0, 256, (5, 6, 4)).astype(np.uint8)
    found = np.asarray(module.red(spy.Texture.from_numpy(device, texels), {}, at))
    np.testing.assert_allclose(found, around(texels[..., 0] / 255, at, "repeat"), atol=1e-7)
    numbers = RNG.integers(-(2**31), 2**31, (5, 6), dtype=np.int32)
    found = np.asarray(module.whole(spy.Texture.from_numpy(device, numbers), how, at))
    np.testing.assert_array_equal(found, around(numbers, at, "repeat"))
    layers = RNG.random((3, 5, 6)).astype(np.float32)
    of = RNG.integers(0, 3, 40)
    texture = spy.Texture.from_numpy(device, layers, type="2d_array")
    found = np.asarray(module.layer(texture, {}, np.concatenate([at, of[:, None]], 1).astype(np.float32)))
    wanted = np.stack([around(layers[k], at[j : j + 1], "repeat")[0] for j, k in enumerate(of)])
    np.testing.assert_array_equal(found, wanted)


@needs("gathers of texels")
def test_gradients_choose_the_level(device: spy.Device, module: spy.Module) -> None:
    """A step of 2^k texels along either axis is level k; hardware may compute it to 8 bits."""
    texture = spy.Texture.from_numpy(device, RNG.random((16, 16, 4)).astype(np.float32), mips=True)
    levels = [texture.to_numpy(k).astype(np.float64) for k in range(texture.mip_count)]
    at, level = RNG.uniform(0, 1, (60, 2)).astype(np.float32), RNG.integers(-2, 6, 60)
    steps = np.zeros((2, 60, 2), np.float32)
    steps[np.arange(60) % 2, np.arange(60), np.arange(60) // 2 % 2] = 2.0**level / 16
    found = np.asarray(module.slope(texture, {"mip": "linear"}, at, *steps))
    wanted = sampled(levels, at.astype(np.float64), level.astype(np.float64))
    np.testing.assert_allclose(found, wanted, atol=blended(device, axes=3))


@needs("gathers of texels")
def test_four_offsets(device: spy.Device, module: spy.Module) -> None:
    texels = RNG.random((6, 9, 4)).astype(np.float32)
    at = ((RNG.integers(0, 9, (50, 2)) + RNG.uniform(0.1, 0.9, (50, 2))) / [9, 6]).astype(np.float32)
    found = np.asarray(module.apart(spy.Texture.from_numpy(device, texels), {"wrap": "clamp"}, at))
    offsets = [(1, 0), (-2, 3), (0, -1), (0, 0)]
    wanted = np.stack([around(texels[..., 1], at, "clamp", offset)[:, 3] for offset in offsets], -1)
    np.testing.assert_array_equal(found, wanted)


@needs("gathers of texels")
def test_cubes(device: spy.Device, module: spy.Module) -> None:
    """Inside of faces: what lies beyond an edge is what samples blend there."""
    size, ways = 8, RNG.normal(size=(300, 3)).astype(np.float32)
    texels = RNG.random((6, size, size, 4)).astype(np.float32)
    texture = spy.Texture.from_numpy(device, texels, type="cube", mips=True)
    face, place = faces(ways)
    inner = ((place * size > 0.6) & (place * size < size - 0.6)).all(-1)
    inner &= (np.abs(place * size - 0.5 - np.round(place * size - 0.5)) > 1e-3).all(-1)
    found = np.asarray(module.cube(texture, {}, ways))[inner]
    parts = zip(face[inner], place[inner], strict=True)
    wanted = np.stack([around(texels[k, ..., 3], at[None], "clamp")[0] for k, at in parts])
    np.testing.assert_array_equal(found, wanted)
    # A step across the face of 2^k texels. What lies along the direction moves nothing.
    level = RNG.integers(-1, 4, 300)
    ways[:, 0], ways[:, 1:] = 2, RNG.uniform(-1.5, 1.5, (300, 2))
    steps = np.zeros((2, 300, 3), np.float32)
    steps[np.arange(300) % 2, np.arange(300), 1 + np.arange(300) // 2 % 2] = 2 * 2.0**level / (size / 2)
    steps[0] += 0.25 * ways * (np.arange(300) % 3 == 0)[:, None]
    found = np.asarray(module.turn(texture, {}, ways, *steps))
    wanted = np.asarray(module.level(texture, {}, ways, level.astype(np.float32)))
    np.testing.assert_allclose(found, wanted, atol=blended(device, axes=3, least=1e-5))


@needs("texels in lanes")
def test_atomic_operations(device: spy.Device, atomic: spy.Module) -> None:
    """Texels that are not there stay away from others."""
    at, x = RNG.integers(-2, 9, (3000, 2)).astype(np.int32), RNG.integers(0, 100, 3000).astype(np.uint32)
    texture = spy.Texture.from_numpy(device, np.zeros((5, 7), np.uint32))
    atomic.add(texture, at, x)
    inside = ((at >= 0) & (at < [7, 5])).all(-1)
    wanted = np.zeros((5, 7), np.uint32)
    np.add.at(wanted, tuple(at[inside, ::-1].T), x[inside])
    np.testing.assert_array_equal(np.asarray(texture).reshape(5, 7), wanted)
    layers = spy.Texture.from_numpy(device, np.full((2, 5, 7), 1000, np.int32), type="2d_array")
    at3, y = RNG.integers(0, [7, 5, 2], (500, 3)).astype(np.int32), RNG.integers(-100, 100, 500).astype(np.int32)
    old = np.asarray(atomic.least(layers, at3, y))
    lowest = np.full((2, 5, 7), 1000)
    np.minimum.at(lowest, tuple(at3[:, ::-1].T), y)
    np.testing.assert_array_equal(np.asarray(layers).reshape(2, 5, 7), lowest)
    assert (old > y).sum() >= (lowest < 1000).sum()


@needs("texels in lanes")
def test_lines_and_volumes_by_atomic_operations(device: spy.Device, atomic: spy.Module) -> None:
    line = spy.Texture.from_numpy(device, np.zeros(6, np.uint32), type="1d")
    at = RNG.integers(0, 6, 200).astype(np.int32)
    x = np.arange(1, 201, dtype=np.uint32)
    old = np.asarray(atomic.first(line, at, x))
    held = np.asarray(line).reshape(6)
    np.testing.assert_array_equal(old, np.where(held[at] == x, 0, held[at]))
    assert all(at[k - 1] == place for place, k in enumerate(held.tolist()) if k)
    volume = spy.Texture.from_numpy(device, np.zeros((2, 3, 4), np.uint32), type="3d")
    at3 = RNG.integers(0, [4, 3, 2], (300, 3)).astype(np.int32)
    y = RNG.integers(0, 1000, 300).astype(np.uint32)
    atomic.most(volume, at3, y)
    wanted = np.zeros((2, 3, 4), np.uint32)
    np.maximum.at(wanted, tuple(at3[:, ::-1].T), y)
    np.testing.assert_array_equal(np.asarray(volume).reshape(2, 3, 4), wanted)


@needs("texels in lanes")
def test_a_component_changes_alone(device: spy.Device, atomic: spy.Module) -> None:
    texels = RNG.random((3, 4, 4)).astype(np.float32)
    texture = spy.Texture.from_numpy(device, texels)
    found = np.asarray(atomic.part(texture, np.array([[1, 2], [3, 0]], np.int32)))
    texels[[2, 0], [1, 3], 1] += 1
    np.testing.assert_array_equal(found, texels[[2, 0], [1, 3]])
    np.testing.assert_array_equal(texture.to_numpy(), texels)


REFUSED = {
    "whole cube": ("TextureCube<uint4>", "Gather(s, float3(x))", "Gather of whole numbers in a cube"),
    "status": ("Texture2D<float4>", "SampleLevel(s, float2(x), 0, int2(0), status)", "a sparse texture"),
    "a clamp": (
        "Texture2D<float4>", "SampleGrad(s, float2(x), float2(x), float2(x), int2(1), 1.0)",
        "a level clamped by a call",
    ),
}  # fmt: skip


@one_device
@needs("texels in lanes")
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(device: spy.Device, name: str) -> None:
    kind, call, used = REFUSED[name]
    text = f"float f({kind} t, SamplerState s, float x) {{ uint status; return t.{call}.x; }}"
    module = spy.Module.load_from_source(device, f"gathers_{name.replace(' ', '_')}", text)
    type_ = "cube" if "Cube" in kind else "2d"
    dtype = np.uint32 if "uint" in kind else np.float32
    texels = np.ones((6, 4, 4, 4) if type_ == "cube" else (4, 4, 4), dtype)
    texture = spy.Texture.from_numpy(device, texels, type=type_)
    with pytest.raises(spy.UnsupportedError, match=f"^the function uses {used}, which this device does not have"):
        module.f(texture, {"filter": "nearest", "mip": "nearest"}, 0.5)
