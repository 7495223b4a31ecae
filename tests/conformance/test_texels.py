"""Textures texel by texel, as results, with samplers of their own, and what is refused of them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.images import Images
from slangpy_rt.core.formats import FORMATS
from tests.conformance._textures import blended, faces, sampled
from tests.depth import deep, needs, one_device
from tests.depth import sampled as sampled_cases

pytestmark = [sampled_cases(2), needs("textures")]

SLANG = """
float4 invert(float4 x) { return 1 - x; }
float4 blend(float4 a, float4 b, float t) { return a + t * (b - a); }
float4 ramp(int2 at) { return float4(at, 0, 1); }
float half_of(float x) { return x / 2; }
uint4 twice(uint4 x) { return 2 * x; }
float3 three(int2 at) { return 1; }
T same<T>(T x) { return x; }
[Differentiable] float4 scale(float4 x, float4 k) { return x * k; }
void brighten(float k, inout float4 x) { x *= k; }
void split(float4 x, out float4 low, out float4 high) { low = min(x, 0.5); high = max(x, 0.5); }
float4 look(Texture2D<float4> t, SamplerState s, float2 at) { return t.SampleLevel(s, at, 0); }
float4 own(Sampler2D<float4> t, float2 at) { return t.SampleLevel(at, 0); }
float4 cube(TextureCube<float4> t, SamplerState s, float3 at) { return t.SampleLevel(s, at, 0); }
float4 cubes(TextureCubeArray<float4> t, SamplerState s, float4 at) { return t.SampleLevel(s, at, 0); }
void copy(Texture2D<float4> a, RWTexture2D<float4> b, uint2 at) { b[at] = a[at]; }
void smaller(Texture2D<float4> a, RWTexture2D<float4> b, uint2 at) {
    b[at] = (a[2 * at] + a[2 * at + uint2(1, 0)] + a[2 * at + uint2(0, 1)] + a[2 * at + 1]) / 4;
}
uint4 whole(Texture2D<uint4> t, int2 at) { return t[at]; }
struct Material { Texture2D<float4> color; SamplerState how; float gain; };
float4 shade(Material m, float2 at) { return m.gain * m.color.SampleLevel(m.how, at, 0); }
float first(Tensor<float, 2> t) { return t[0, 0]; }
float4 either(float4 x) { return x; }
float4 either(Texture2D<float4> t) { return 2 * t[uint2(0)]; }
"""
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_texels", SLANG)


def image(*shape: int) -> Any:
    return RNG.random(shape, dtype=np.float32)


def images(device: spy.Device) -> Images:
    """The part of a device's backend that keeps textures."""
    assert isinstance(device.backend, Images)
    return device.backend


@needs(lambda case: ["loads of lines"] if case["type_"].startswith("1d") else [])
@sampled_cases(4)
@pytest.mark.parametrize(
    ("type_", "shape"),
    [("1d", (7,)), ("2d", (3, 5)), ("3d", (2, 3, 5)), ("1d_array", (3, 5)), ("2d_array", (2, 3, 5))],
)
def test_elementwise(device: spy.Device, module: spy.Module, type_: str, shape: tuple[int, ...]) -> None:
    texels = image(*shape, 4)
    texture = spy.Texture.from_numpy(device, texels, type=type_)
    found = module.invert(texture)
    assert isinstance(found, spy.Tensor) and found.shape == shape
    np.testing.assert_array_equal(found.to_numpy(), 1 - texels)
    module.brighten(0.5, texture)
    np.testing.assert_array_equal(module.invert(texture).to_numpy(), 1 - texels * np.float32(0.5))


def test_results(device: spy.Device, module: spy.Module) -> None:
    texels = image(3, 5, 4)
    texture = spy.Texture.from_numpy(device, texels)
    for asked in ("texture", spy.Texture):
        made = module.invert(texture, _result=asked)
        assert isinstance(made, spy.Texture) and made.format == "rgba32_float" and made.shape == (3, 5)
        np.testing.assert_array_equal(made.to_numpy(), 1 - texels)
    other = device.create_texture("rgba32_float", 5, 3)
    assert module.invert(texels, _result=other) is other
    np.testing.assert_array_equal(other.to_numpy(), 1 - texels)
    single = module.half_of(image(4, 6), _result="texture")
    assert single.format == "r32_float" and single.to_numpy().shape == (4, 6)
    assert module.twice(np.ones((2, 4), np.uint32), _result="texture").format == "rgba32_uint"
    volume = module.half_of(image(2, 3, 4), _result="texture")
    assert volume.type == "3d" and volume.to_numpy().shape == (2, 3, 4)
    grid = module.ramp(spy.grid((3, 5)), _result="texture").to_numpy()
    np.testing.assert_array_equal(grid[..., 0], np.arange(5) + np.zeros((3, 1)))
    np.testing.assert_array_equal(module.same(texture).to_numpy(), texels)


@needs("writes of narrow channels")
def test_results_are_converted(device: spy.Device, module: spy.Module) -> None:
    texels, small = image(3, 5, 4), device.create_texture("rgba8_unorm", 5, 3)
    assert module.invert(texels, _result=small) is small
    assert np.abs(small.to_numpy() / 255.0 - (1 - texels)).max() <= 0.51 / 255 + (device.name != "cpu") / 255


@one_device
def test_several_outputs_and_broadcasting(device: spy.Device, module: spy.Module) -> None:
    texels, other = image(3, 5, 4), image(3, 5, 4)
    a, b = spy.Texture.from_numpy(device, texels), spy.Texture.from_numpy(device, other)
    t = image(2, 3, 1)
    expected = texels + t[..., None] * (other - texels)
    np.testing.assert_allclose(module.blend(a, b, t), expected, atol=1e-6)
    np.testing.assert_allclose(module.blend(a, other, t), expected, atol=1e-6)
    row = spy.Texture.from_numpy(device, other[:1])
    expected = texels + np.float32(0.25) * (other[:1] - texels)
    np.testing.assert_allclose(module.blend(a, row, 0.25).to_numpy(), expected, atol=1e-6)
    narrow = "rgba16_float" if images(device).stores(FORMATS["rgba16_float"]) else "rgba32_float"
    low, high = device.create_texture("rgba32_float", 5, 3), device.create_texture(narrow, 5, 3)
    module.split(a, low, high)
    np.testing.assert_array_equal(low.to_numpy(), np.minimum(texels, 0.5))
    np.testing.assert_allclose(high.to_numpy(), np.maximum(texels, 0.5), rtol=2**-10)


@one_device
def test_maps(device: spy.Device, module: spy.Module) -> None:
    texels = image(4, 4, 4)
    texture = spy.Texture.from_numpy(device, texels)
    np.testing.assert_array_equal(module.invert.map((1, 0))(texture).to_numpy(), 1 - texels.swapaxes(0, 1))
    found = module.blend.map((0, 1), (2, 3), ())(texture, texture, 0.5).to_numpy()
    np.testing.assert_allclose(found, 0.5 * (texels[:, :, None, None] + texels[None, None]), atol=1e-6)
    assert not isinstance(found, spy.Tensor)


def test_gradients_of_other_arguments(device: spy.Device, module: spy.Module) -> None:
    texels = image(3, 5, 4)
    k = spy.Tensor.ones(device, (), "float4").with_grads()
    ones = spy.Tensor.ones(device, (3, 5), "float4")
    seed = spy.Tensor.empty(device, (3, 5), "float4").with_grads(grad_in=ones)
    module.scale.bwds(spy.Texture.from_numpy(device, texels), k, _result=seed)
    np.testing.assert_allclose(k.grad.to_numpy(), texels.sum((0, 1)), rtol=1e-5)


@needs("textures with samplers")
def test_samplers(device: spy.Device, module: spy.Module) -> None:
    texels, at = image(4, 6, 4), RNG.uniform(-1, 2, (100, 2)).astype(np.float32)
    # Hardware rounds places to 1 / 256 of a texel; near the middle between two, nearest is open.
    at += np.float32(0.01) * (np.abs(at * [6, 4] % 1 - 0.5) > 0.495)
    texture = spy.Texture.from_numpy(device, texels)
    close, paired = blended(device, least=2e-6), images(device).paired
    for options in ({"wrap": "mirror"}, {"filter": "nearest", "wrap": "clamp"}, {"wrap": ["repeat", "border"]}):
        named = {k: v for k, v in options.items() if k != "filter"}
        expected = sampled([texels], at, np.zeros(100), options.get("filter", "linear"), **named)  # type: ignore[arg-type]
        sampler = device.create_sampler(**options)  # type: ignore[arg-type]
        for found in (
            module.look(texture, sampler, at),
            module.look(texture, options, at),
            module.own(texture.with_sampler(sampler), at),
            module.own(texture.with_sampler(options), at),
            module.look(texture.with_sampler(sampler if paired else {}), sampler, at),
            module.shade({"color": texture, "how": sampler, "gain": 1.0}, at),
        ):
            np.testing.assert_allclose(found, expected, atol=close if "filter" not in options else 2e-6)
        if paired:
            with pytest.raises(spy.UnsupportedError, match=r"holds its own sampler.*texture\.with_sampler\(s\)"):
                module.look(texture.with_sampler({}), sampler, at)
    assert module.look(texture, {"anisotropy": 16}, at).shape == (100, 4)
    # Two textures with samplers of their own in calls of one signature.
    for wrap in ("clamp", "mirror", "clamp"):
        expected = sampled([texels], at, np.zeros(100), wrap=wrap)
        np.testing.assert_allclose(module.own(texture.with_sampler({"wrap": wrap}), at), expected, atol=close)


def test_cubes(device: spy.Device, module: spy.Module) -> None:
    texels = image(6, 8, 8, 4)
    texture = spy.Texture.from_numpy(device, texels, type="cube")
    directions = RNG.normal(size=(500, 3)).astype(np.float32)
    face, place = faces(directions)
    for filter, margin in (("nearest", 0.0), ("linear", 1 / 16)):
        # Near the edges, linear filters reach over to other faces: see below.
        inside = ((place > margin) & (place < 1 - margin)).all(1)
        if filter == "nearest":
            inside &= (np.abs(place * 8 - np.rint(place * 8)) > 4e-3).all(1)
        expected = np.zeros((500, 4))
        for k in range(6):
            found = sampled([texels[k]], place, np.zeros(500), filter, wrap="clamp")
            expected[face == k] = found[face == k]
        got = module.cube(texture, device.create_sampler(filter), directions)
        close = blended(device, axes=2 * (filter == "linear"))
        np.testing.assert_allclose(got[inside], expected[inside], atol=close)
    several = spy.Texture.from_numpy(device, np.concatenate([texels[::-1], texels]), type="cube_array")
    assert several.array_length == 2 and several.type == "cube_array"
    second = np.concatenate([directions, np.ones((500, 1), np.float32)], -1)
    got = module.cubes(several, device.create_sampler(), second)
    np.testing.assert_array_equal(got, module.cube(texture, device.create_sampler(), directions))


def test_cubes_have_no_seams(device: spy.Device, module: spy.Module) -> None:
    """Across each edge and around each corner, linear filters give a continuous function."""
    texture = spy.Texture.from_numpy(device, image(6, 4, 4, 4), type="cube")
    sampler = device.create_sampler()
    along = RNG.uniform(-1, 1, 200).astype(np.float32)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        for one in (-1, 1):
            for two in (-1, 1):
                near = np.zeros((2, 200, 3), np.float32)
                near[..., 3 - a - b] = along
                near[0, :, a], near[0, :, b] = one, two * (1 - 1e-5)
                near[1, :, a], near[1, :, b] = one * (1 - 1e-5), two
                found = module.cube(texture, sampler, near)
                # Both sides have rounded weights.
                np.testing.assert_allclose(found[0], found[1], atol=blended(device, axes=4, least=1e-3))


@needs("levels apart")
def test_a_level_from_the_one_before(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, image(8, 8, 4), mips=True)
    expected = [texture.to_numpy(k) for k in range(4)]
    for k in range(1, 4):
        texture.copy_from(np.zeros_like(expected[k]), mip=k)
    for k in range(1, 4):
        y, x = np.indices((8 >> k, 8 >> k)).astype(np.uint32)
        module.smaller(texture.mip(k - 1), texture.mip(k), np.stack([x, y], -1))
        np.testing.assert_allclose(texture.to_numpy(k), expected[k], atol=1e-6)


REFUSED: dict[str, tuple[Callable[[spy.Device, spy.Module, spy.Texture], Any], type[Exception], str]] = {
    "an array": (lambda d, m, t: m.look(np.zeros((2, 2, 4)), {}, [0, 0]), spy.BindError, "takes a Texture, as"),
    "a texture as a sampler": (lambda d, m, t: m.look(t, t, [0, 0]), spy.BindError, "'SamplerState' takes a Sampler"),
    "a wrong name": (lambda d, m, t: m.look(t, {"filtre": 1}, [0, 0]), spy.BindError, "Did you mean 'filter'"),
    "a wrong filter": (lambda d, m, t: m.look(t, {"filter": "cubic"}, [0, 0]), spy.BindError, "'linear', 'nearest'"),
    "a sampler missing": (lambda d, m, t: m.own(t, [0, 0]), spy.BindError, "pass texture.with_sampler"),
    "whole numbers": (lambda d, m, t: m.whole(t, [0, 0]), spy.BindError, "read as float; 'Texture2D<uint4>'"),
    "wrong dimensions": (
        lambda d, m, t: m.look(d.create_texture("rgba8_unorm", 4), {}, [0, 0]), spy.BindError, "take 'Texture1D'"
    ),
    "other channels": (lambda d, m, t: m.half_of(t), spy.BindError, "whose texels are 'float4'; 'float'"),
    "one texture twice": (lambda d, m, t: m.copy(t, t, [0, 0]), spy.ShapeError, "'b' and 'a' are one texture"),
    "written twice": (lambda d, m, t: m.split(t, t.mip(0), t.mip(0)), spy.ShapeError, "are one texture"),
    "turned into itself": (lambda d, m, t: m.invert.map((1, 0))(t, _result=t), spy.ShapeError, "are one texture"),
    "read only": (
        lambda d, m, t: m.invert(t, _result=d.create_texture("rgba32_float", 4, 4, usage="shader_resource")),
        spy.BindError, "make it with usage='unordered_access'",
    ),
    "the sRGB curve": (
        lambda d, m, t: m.invert(t, _result=d.create_texture("rgba8_unorm_srgb", 4, 4)),
        spy.BindError, "make it rgba8_unorm",
    ),
    "three channels": (
        lambda d, m, t: m.three(spy.grid((2, 2)), _result="texture"), spy.BindError, "not 'float3'"
    ),
    "no dimensions": (lambda d, m, t: m.half_of(1.0, _result="texture"), spy.BindError, "one to three dimensions"),
    "a small result": (
        lambda d, m, t: m.invert(t, _result=d.create_texture("rgba32_float", 1, 4)), spy.ShapeError, "(4, 1)"
    ),
    "a format": (lambda d, m, t: d.create_texture("rgba8_unrom", 4, 4), spy.BindError, "Did you mean 'rgba8_unorm'"),
    "no width": (lambda d, m, t: d.create_texture("r8_unorm", 0), spy.BindError, "from 1 to"),
    "a huge width": (lambda d, m, t: d.create_texture("r8_unorm", 2**31, 4), spy.BindError, "from 1 to"),
    "too many levels": (lambda d, m, t: d.create_texture("r8_unorm", 4, 4, mip_count=4), spy.BindError, "0 to 3"),
    "an oblong cube": (lambda d, m, t: d.create_texture("r8_unorm", 4, 5, type="cube"), spy.ShapeError, "six of"),
    "a depth": (lambda d, m, t: d.create_texture("r8_unorm", 4, 5, 6, type="2d"), spy.BindError, "has none"),
    "an unknown type": (lambda d, m, t: d.create_texture("r8_unorm", 4, 5, type="4d"), spy.BindError, "'cube_array'"),
    "a usage": (lambda d, m, t: d.create_texture("r8_unorm", 4, usage="all"), spy.BindError, "'shader_resource'"),
    "sRGB written": (
        lambda d, m, t: d.create_texture("rgba8_unorm_srgb", 4, usage="unordered_access"),
        spy.UnsupportedError, "use rgba8_unorm",
    ),
    "doubles": (lambda d, m, t: spy.Texture.from_numpy(d, np.zeros((2, 2))), spy.BindError, "array of float64"),
    "five channels": (
        lambda d, m, t: spy.Texture.from_numpy(d, np.zeros((2, 2, 5), np.float32)), spy.ShapeError, "1 to 4"
    ),
    "other numbers than the format's": (
        lambda d, m, t: spy.Texture.from_numpy(d, np.zeros((2, 2), np.float32), format="r8_unorm"),
        spy.BindError, "holds numbers of dtype uint8",
    ),
    "floats on the sRGB curve": (
        lambda d, m, t: spy.Texture.from_numpy(d, np.zeros((2, 2, 4), np.float32), srgb=True), spy.BindError, "uint8"
    ),
    "a level too many": (lambda d, m, t: t.to_numpy(mip=9), spy.BindError, "mip is 9; a whole number from 0 to 2"),
    "a layer too many": (lambda d, m, t: t.to_numpy(layer=1), spy.BindError, "layer is 1"),
    "other texels": (lambda d, m, t: t.copy_from(np.zeros((4, 4, 3), np.float32)), spy.ShapeError, "4 channels"),
    "levels of a level": (lambda d, m, t: t.mip(1).generate_mips(), spy.BindError, "view of one level"),
    "a Tensor's place": (
        lambda d, m, t: m.first(t), spy.BindError, "Copy the texels, tensor.copy_from(texture), and pass the Tensor."
    ),
    "an Image": (
        lambda d, m, t: m.look(spy.Image(spy.Tensor.zeros(d, (2, 2), "float4")), {}, [0, 0]),
        spy.BindError, "argument 't' is the value of a struct 'Image'; 'Texture2D<float4>' takes a Texture",
    ),
    "a result of no size": (
        lambda d, m, t: m.invert(np.zeros((0, 4, 4), np.float32), _result="texture"),
        spy.BindError, "_result='texture': height is 0; a whole number from 1 to 16384",
    ),
    "a misspelt result": (lambda d, m, t: m.invert(t, _result="texure"), spy.BindError, "'torch', not 'texure'"),
    "gradients": (lambda d, m, t: t.with_grads(), AttributeError, "sample a Tensor instead, spy.Image(tensor)"),
    "an empty one": (lambda d, m, t: spy.Texture(), spy.BindError, "Texture.from_numpy"),
    "limits turned around": (lambda d, m, t: d.create_sampler(min_level=3, max_level=2), spy.BindError, "smaller"),
    "anisotropy": (lambda d, m, t: d.create_sampler(anisotropy=17), spy.BindError, "from 1 to 16"),
    "a wrap": (lambda d, m, t: d.create_sampler(wrap=("repeat", "fold")), spy.BindError, "'repeat', 'mirror'"),
    "no bias": (lambda d, m, t: d.create_sampler(bias=float("nan")), spy.BindError, "a number was expected"),
}  # fmt: skip


@sampled_cases(2)
@pytest.mark.parametrize("size", [64, (8, 8)])
def test_methods_without_a_level(device: spy.Device, size: Any) -> None:
    module = spy.Module.load_from_source(
        device, "test_texels_sample",
        "float4 look(Texture2D<float4> t, SamplerState s, float2 at) { return t.Sample(s, at); }\n"
        "float4 unset(Texture2D<float4> t, float2 at) { Texture2D<float4> u; return t[uint2(0)] + u[uint2(at)]; }",
    )  # fmt: skip
    texture = spy.Texture.from_numpy(device, image(4, 4, 4))
    with pytest.raises((spy.UnsupportedError, spy.CompileError), match=r"SampleLevel\(sampler, at, level\)"):
        module.look.group_size(size)(texture, {}, np.zeros((8, 8, 2), np.float32))
    if device.name == "cpu":
        found = module.unset(texture, [0, 0])
        np.testing.assert_array_equal(np.asarray(found), texture.to_numpy()[0, 0])
        return
    with pytest.raises(spy.UnsupportedError, match=r"a texture( or a typed buffer)? that nothing has set"):
        module.unset(texture, [0, 0])


def test_modules_with_textures_of_their_own(device: spy.Device) -> None:
    """Slang puts the textures of arguments elsewhere if a module has global ones; only those are refused."""
    module = spy.Module.load_from_source(
        device, "test_texels_globals",
        "uniform Texture2D<float4> a;\nuniform SamplerState b;\nRWStructuredBuffer<float> c;\n"
        "float4 plain(Texture2D<float4> t, int2 at) { return t[at]; }\n"
        "float4 global(Texture2D<float4> t, int2 at) { return t[at] + a[at]; }\n"
        "void list(Texture2D<float4> t[2], SamplerState s) {}\n",
    )  # fmt: skip
    texels = image(4, 4, 4)
    texture = spy.Texture.from_numpy(device, texels)
    np.testing.assert_array_equal(np.asarray(module.plain(texture, [1, 2])), texels[2, 1])
    with pytest.raises(spy.UnsupportedError, match=r"nothing can fill|nothing has set"):
        module["global"](texture, [1, 2])
    with pytest.raises(spy.UnsupportedError, match="an array of textures or samplers"):
        module.list([texture, texture], {})


@one_device
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(device: spy.Device, module: spy.Module, name: str) -> None:
    action, error, words = REFUSED[name]
    texels = image(4, 4, 4)
    texture = spy.Texture.from_numpy(device, texels, mips=True)
    for _ in range(2):
        with pytest.raises(error) as raised:
            action(device, module, texture)
        assert type(raised.value) is error and words in str(raised.value), raised.value
    np.testing.assert_array_equal(texture.to_numpy(), texels)


@one_device
def test_another_device(device: spy.Device, module: spy.Module) -> None:
    with spy.Device("cpu") as other:
        texture, sampler = spy.Texture.from_numpy(other, image(2, 2, 4)), other.create_sampler()
        own = spy.Texture.from_numpy(device, image(2, 2, 4))
        for action in (
            lambda: module.look(texture, {}, [0, 0]), lambda: module.look(own, sampler, [0, 0]),
            lambda: module.invert(texture), lambda: own.copy_from(texture), lambda: own.with_sampler(sampler),
        ):  # fmt: skip
            with pytest.raises(spy.BindError, match=r"is on|lies on|the sampler is of"):
                action()
    with pytest.raises(spy.DeviceError):
        texture.to_numpy()
    with pytest.raises(spy.DeviceError):
        other.create_sampler()
    with pytest.raises(spy.DeviceError):
        spy.Texture.from_numpy(other, image(2, 2))


@one_device
def test_overloads_prefer_the_whole(device: spy.Device, module: spy.Module) -> None:
    texels = image(2, 2, 4)
    found = module.either(spy.Texture.from_numpy(device, texels))
    np.testing.assert_array_equal(np.asarray(found), 2 * texels[0, 0])


def test_textures_are_freed(device: spy.Device, module: spy.Module) -> None:
    """Textures that are dropped while calls on them run: each call sees the right one."""
    out = spy.Tensor.empty(device, (100,), "float4")
    at = spy.Tensor.from_numpy(device, np.zeros((1, 2), np.float32))
    sampler = device.create_sampler()
    for k in range(100):
        texture = spy.Texture.from_numpy(device, np.full((4, 4, 4), k, np.float32))
        module.look(texture, sampler, at, _result=out[k : k + 1])
        del texture
    np.testing.assert_array_equal(out.to_numpy()[:, 0], np.arange(100))


@deep
def test_ten_thousand_in_flight(device: spy.Device, module: spy.Module) -> None:
    out = spy.Tensor.empty(device, (10000,), "float4")
    at = spy.Tensor.from_numpy(device, np.zeros((1, 2), np.float32))
    sampler = device.create_sampler()
    for k in range(10000):
        texture = spy.Texture.from_numpy(device, np.full((2, 2, 4), k, np.float32))
        module.look(texture, sampler, at, _result=out[k : k + 1])
    del texture
    gc.collect()
    np.testing.assert_array_equal(out.to_numpy()[:, 0], np.arange(10000))


def test_threads(device: spy.Device, module: spy.Module) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for k in range(20):
                texels = np.full((4, 4, 4), seed + k, np.float32)
                texture = spy.Texture.from_numpy(device, texels)
                np.testing.assert_array_equal(module.invert(texture).to_numpy(), 1 - texels)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
