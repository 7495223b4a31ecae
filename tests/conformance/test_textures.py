"""Textures as whole arguments: what functions read, sample and write of them, against NumPy in double precision."""

from __future__ import annotations

import fractions
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.core.formats import FORMATS
from tests.conformance._textures import blended, decoded, filled, sampled
from tests.depth import deep, every_device, needs
from tests.depth import sampled as some

pytestmark = [every_device, needs("textures")]

Array = npt.NDArray[Any]

SLANG = """
float4 look(Texture2D<float4> t, SamplerState s, float2 at, float level) { return t.SampleLevel(s, at, level); }
float4 moved(Texture2D<float4> t, SamplerState s, float2 at) { return t.SampleLevel(s, at, 0, int2(3, -2)); }
float4 line(Texture1D<float4> t, SamplerState s, float at, float level) { return t.SampleLevel(s, at, level); }
float4 volume(Texture3D<float4> t, SamplerState s, float3 at, float level) { return t.SampleLevel(s, at, level); }
float4 layer(Texture2DArray<float4> t, SamplerState s, float3 at, float level) { return t.SampleLevel(s, at, level); }
float4 lines(Texture1DArray<float4> t, SamplerState s, float2 at, float level) { return t.SampleLevel(s, at, level); }
float2 two(Texture2D<float2> t, SamplerState s, float2 at) { return t.SampleLevel(s, at, 0); }
float one(Texture2D<float> t, SamplerState s, float2 at) { return t.SampleLevel(s, at, 0); }
float4 load(Texture2D<float4> t, int3 at) { return t.Load(at); }
float4 plain(Texture2D<float4> t, uint2 at) { return t[at]; }
float4 shifted(Texture2D<float4> t, int3 at) { return t.Load(at, int2(1, -1)); }
uint4 whole(Texture2D<uint4> t, int2 at) { return t[at]; }
int4 signed_whole(Texture2D<int4> t, int2 at) { return t[at]; }
float4 voxel(Texture3D<float4> t, int4 at) { return t.Load(at); }
float4 page(Texture2DArray<float4> t, int4 at) { return t.Load(at); }
float4 dot(Texture1D<float4> t, int2 at) { return t.Load(at); }
uint3 sizes(Texture2D<float4> t, uint level) { uint w, h, n; t.GetDimensions(level, w, h, n); return uint3(w, h, n); }
uint2 size(Texture2D<float4> t) { uint w, h; t.GetDimensions(w, h); return uint2(w, h); }
uint3 extent(Texture3D<float4> t) { uint w, h, d; t.GetDimensions(w, h, d); return uint3(w, h, d); }
uint3 pages(Texture2DArray<float4> t) { uint w, h, n; t.GetDimensions(w, h, n); return uint3(w, h, n); }
uint3 cubes(TextureCubeArray<float4> t) { uint w, h, n; t.GetDimensions(w, h, n); return uint3(w, h, n); }
void put(RWTexture2D<float4> t, uint2 at, float4 x) { t[at] = x; }
void put2(RWTexture2D<float2> t, uint2 at, float2 x) { t[at] = x; }
void put1(RWTexture2D<float> t, uint2 at, float x) { t[at] = x; }
void put_whole(RWTexture2D<uint4> t, uint2 at, uint4 x) { t[at] = x; }
void put_page(RWTexture2DArray<float4> t, uint3 at, float4 x) { t[at] = x; }
void put_voxel(RWTexture3D<float4> t, uint3 at, float4 x) { t[at] = x; }
void put_dot(RWTexture1D<float4> t, uint at, float4 x) { t[at] = x; }
void add(RWTexture2D<float4> t, uint2 at, float4 x) { t[at] = t[at] * 2 + x; }
"""
WRAPS = ("repeat", "mirror", "clamp", "border")
RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_textures", SLANG)


def image(*shape: int) -> Array:
    return RNG.random(shape, dtype=np.float32)


def coordinates(n: int, dims: int, sizes: tuple[int, ...]) -> Array:
    """Places inside and outside of a texture, none near the middle between two texels, where nearest is open.

    Hardware rounds places to 1 / 256 of a texel.
    """
    at = RNG.uniform(-1.7, 2.6, (n, dims)).astype(np.float32)
    for k, size in enumerate(sizes):
        place = at[:, k] * size
        close = np.abs(place - np.rint(place)) < 4e-3
        at[close, k] += np.float32(0.01 / size)
    return at


@some(3)
@pytest.mark.parametrize("mip", ["none", "nearest", "linear"])
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("filter", ["nearest", "linear"])
def test_sampling(device: spy.Device, module: spy.Module, filter: str, wrap: str, mip: str) -> None:
    levels = [image(8, 16, 4), image(4, 8, 4), image(2, 4, 4), image(1, 2, 4), image(1, 1, 4)]
    texture = device.create_texture("rgba32_float", 16, 8, mip_count=0)
    for k, level in enumerate(levels):
        texture.copy_from(level, mip=k)
    sampler = device.create_sampler(filter, wrap, mip, border="white")
    at = coordinates(400, 2, (16, 8))
    lod = RNG.uniform(-1, 6, 400).astype(np.float32)
    lod[np.abs(lod % 1 - 0.5) < 4e-3] += np.float32(0.01)
    expected = sampled(levels, at, lod, filter, mip, wrap, "white")
    close = blended(device, axes=2 * (filter == "linear") + (mip == "linear"), least=2e-6)
    np.testing.assert_allclose(module.look(texture, sampler, at, lod), expected, atol=close)


@some(3)
@pytest.mark.parametrize("border", ["transparent", "black", "white"])
def test_borders_and_several_wraps(device: spy.Device, module: spy.Module, border: str) -> None:
    texels = image(5, 7, 4)
    texture = spy.Texture.from_numpy(device, texels)
    at, lod = coordinates(300, 2, (7, 5)), np.zeros(300, np.float32)
    for wraps in (("border", "repeat"), ("mirror", "border"), ("clamp", "mirror")):
        sampler = device.create_sampler("linear", wraps, border=border)
        expected = sampled([texels], at, lod, wrap=wraps, border=border)
        close = blended(device, least=2e-6)
        np.testing.assert_allclose(module.look(texture, sampler, at, 0.0), expected, atol=close)


@needs("offsets of texels")
@some(4)
@pytest.mark.parametrize("wrap", WRAPS)
def test_offsets(device: spy.Device, module: spy.Module, wrap: str) -> None:
    texels = image(4, 8, 4)
    texture, sampler = spy.Texture.from_numpy(device, texels), device.create_sampler("linear", wrap)
    at = coordinates(300, 2, (8, 4))
    expected = sampled([texels], at, np.zeros(300), wrap=wrap, offset=(3, -2))
    np.testing.assert_allclose(module.moved(texture, sampler, at), expected, atol=blended(device, least=2e-6))
    places = np.array([[2, 3, 0], [6, 1, 0]], np.int32)
    np.testing.assert_array_equal(module.shifted(texture, places), texels[[2, 0], [3, 7]])


@some(4)
@pytest.mark.parametrize("filter", ["nearest", "linear"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_lines_volumes_and_layers(device: spy.Device, module: spy.Module, filter: str, wrap: str) -> None:
    lod = np.zeros(300, np.float32)
    sampler = device.create_sampler(filter, wrap, border="black")
    for type_, function, texels, dims in (
        ("1d", module.line, image(9, 4), 1),
        ("3d", module.volume, image(4, 6, 8, 4), 3),
    ):
        texture = spy.Texture.from_numpy(device, texels, type=type_)
        at = coordinates(300, dims, texels.shape[-2::-1])
        expected = sampled([texels], at, lod, filter, wrap=wrap, border="black")
        given = at[:, 0] if dims == 1 else at
        close = blended(device, axes=dims * (filter == "linear"))
        np.testing.assert_allclose(function(texture, sampler, given, 0.0), expected, atol=close, err_msg=type_)
    for type_, function, texels, dims in (
        ("1d_array", module.lines, image(3, 8, 4), 1),
        ("2d_array", module.layer, image(5, 4, 8, 4), 2),
    ):
        texture = spy.Texture.from_numpy(device, texels, type=type_)
        at = coordinates(300, dims, texels.shape[-2:0:-1])
        # The nearest layer, and the first or last one beyond them.
        number = RNG.choice([-3.0, 0.4, 0.6, 1.0, 1.9, 2.2, 9.0], 300).astype(np.float32)
        layers = np.clip(np.rint(number), 0, len(texels) - 1).astype(int)
        expected = np.zeros((300, 4))
        for k, layer in enumerate(texels):
            every = sampled([layer], at, lod, filter, wrap=wrap, border="black")
            expected[layers == k] = every[layers == k]
        found = function(texture, sampler, np.column_stack([at, number]), 0.0)
        close = blended(device, axes=dims * (filter == "linear"))
        np.testing.assert_allclose(found, expected, atol=close, err_msg=type_)


def texels_of(format: str, *shape: int) -> Array:
    """Random texels as a format stores them."""
    found = FORMATS[format]
    if found.dtype.kind == "f":
        return RNG.uniform(-2, 2, (*shape, found.channels)).astype(found.dtype)
    info = np.iinfo(found.dtype)
    return RNG.integers(info.min, info.max, (*shape, found.channels), found.dtype, endpoint=True)


@some(4)
@pytest.mark.parametrize("format", FORMATS)
def test_formats_are_read(device: spy.Device, module: spy.Module, format: str) -> None:
    texels = texels_of(format, 5, 7)
    texture = spy.Texture.from_numpy(device, texels, format=format)
    assert texture.format == format and texture.shape == (5, 7) and texture.nbytes == texels.nbytes
    stored = texels[..., 0] if texels.shape[-1] == 1 else texels
    np.testing.assert_array_equal(texture.to_numpy(), stored)
    y, x = np.indices((5, 7)).astype(np.int32)
    at = np.stack([x, y], -1)
    if not FORMATS[format].filters:
        function = module.whole if "uint" in format else module.signed_whole
        found = function(texture, at)
        np.testing.assert_array_equal(found[..., : texels.shape[-1]], texels)
        assert (found[..., texels.shape[-1] :] == np.array([0, 0, 0, 1])[texels.shape[-1] :]).all()
        return
    expected = filled(decoded(texels, "srgb" in format))
    # Drivers may take 8 bits and more for the sRGB curve; Vulkan asks for less than 1 / 255.
    close = 3e-6 if "srgb" not in format else 1 / 255
    np.testing.assert_allclose(module.plain(texture, at.astype(np.uint32)), expected, atol=close)
    level = np.zeros((5, 7, 1), np.int32)
    np.testing.assert_allclose(module.load(texture, np.concatenate([at, level], -1)), expected, atol=close)
    # Eight bits may be blended by weights of eight bits in software, too. Texels of floats are from -2 to 2.
    span = 1.0 if "8_" in format else 4.0
    least = 3e-6 if "8_" not in format else 1 / 200
    places = coordinates(200, 2, (7, 5))
    sampler = device.create_sampler("linear", "clamp")
    looked = sampled([decoded(texels, "srgb" in format)], places, np.zeros(200), wrap="clamp")
    np.testing.assert_allclose(
        module.look(texture, sampler, places, 0.0), looked, atol=blended(device, span, least=least)
    )
    nearest = device.create_sampler("nearest", "repeat")
    looked = sampled([decoded(texels, "srgb" in format)], places, np.zeros(200), "nearest")
    np.testing.assert_allclose(module.look(texture, nearest, places, 0.0), looked, atol=close)
    if FORMATS[format].channels <= 2:
        found = module.two(texture, nearest, places)
        np.testing.assert_allclose(found, looked[:, :2], atol=close)
        np.testing.assert_allclose(module.one(texture, nearest, places), looked[:, 0], atol=close)


# There is one function for whole numbers; test_texture_kinds.py has the others.
WRITTEN = [
    name
    for name, found in FORMATS.items()
    if found.stores and (found.filters or (name.startswith("rgba") and name.endswith("uint")))
]


@needs(lambda case: ["writes of narrow channels"] if FORMATS[case["format"]].dtype.itemsize < 4 else [])
@some(4)
@pytest.mark.parametrize("format", WRITTEN)
def test_formats_are_written(device: spy.Device, module: spy.Module, format: str) -> None:
    found = FORMATS[format]
    texture = device.create_texture(format, 6, 4)
    y, x = np.indices((4, 6)).astype(np.uint32)
    at = np.stack([x, y], -1)
    if not found.filters:
        values = texels_of(format, 4, 6)
        module.put_whole(texture, at, values.astype(np.uint32))
        np.testing.assert_array_equal(texture.to_numpy(), values)
        return
    values = RNG.uniform(-0.2, 1.2, (4, 6, found.channels)).astype(np.float32)
    function = {1: module.put1, 2: module.put2, 4: module.put}[found.channels]
    function(texture, at, values[..., 0] if found.channels == 1 else values)
    if found.kind == "unorm":
        expected = np.rint(np.clip(values.astype(np.float64), 0, 1) * 255)
        assert np.abs(texture.to_numpy().reshape(values.shape) - expected).max() <= (0 if device.name == "cpu" else 1)
    else:
        # Vulkan leaves the rounding of halves to drivers; Mesa's rounds to zero.
        rounds = device.name != "cpu" and found.dtype == np.float16
        close, least = (2**-10, 2**-24) if rounds else (0, 0)
        stored = texture.to_numpy().reshape(values.shape)
        np.testing.assert_allclose(stored, values.astype(found.dtype), rtol=close, atol=least)


def test_writes_to_layers_lines_and_volumes(device: spy.Device, module: spy.Module) -> None:
    for type_, function, shape in (
        ("2d_array", module.put_page, (3, 4, 5)), ("3d", module.put_voxel, (3, 4, 5)), ("1d", module.put_dot, (6,))
    ):  # fmt: skip
        texture = spy.Texture.from_numpy(device, np.zeros((*shape, 4), np.float32), type=type_)
        values = image(*shape, 4)
        at = np.stack(np.indices(shape)[::-1], -1).astype(np.uint32)
        function(texture, at if len(shape) > 1 else at[..., 0], values)
        found = [texture.to_numpy(layer=k) for k in range(3)] if type_ == "2d_array" else texture.to_numpy()
        np.testing.assert_array_equal(np.array(found), values)


@deep
def test_reads_of_volumes_and_layers(device: spy.Device, module: spy.Module) -> None:
    for type_, function, shape in (("2d_array", module.page, (3, 4, 5)), ("3d", module.voxel, (3, 4, 5))):
        texels = image(*shape, 4)
        texture = spy.Texture.from_numpy(device, texels, type=type_)
        at = np.stack([*np.indices(shape)[::-1], np.zeros(shape)], -1).astype(np.int32)
        np.testing.assert_array_equal(function(texture, at), texels)


@needs("loads of lines")
@deep
def test_reads_of_lines(device: spy.Device, module: spy.Module) -> None:
    texels = image(9, 4)
    at = np.stack([np.arange(9), np.zeros(9)], -1).astype(np.int32)
    np.testing.assert_array_equal(module.dot(spy.Texture.from_numpy(device, texels, type="1d"), at), texels)


def test_sizes(device: spy.Device, module: spy.Module) -> None:
    texture = device.create_texture("rgba8_unorm", 20, 6, mip_count=3)
    assert list(module.size(texture)) == [20, 6]
    assert list(module.size(texture.mip(1))) == [10, 3]
    assert list(module.extent(device.create_texture("r8_unorm", 5, 6, 7))) == [5, 6, 7]
    assert list(module.pages(device.create_texture("r8_unorm", 5, 6, array_length=4))) == [5, 6, 4]
    assert list(module.cubes(device.create_texture("r8_unorm", 5, 5, array_length=3, type="cube_array"))) == [5, 5, 3]


@needs("sizes of levels")
def test_sizes_of_levels(device: spy.Device, module: spy.Module) -> None:
    texture = device.create_texture("rgba8_unorm", 20, 6, mip_count=3)
    assert [list(module.sizes(texture, k)) for k in range(3)] == [[20, 6, 3], [10, 3, 3], [5, 1, 3]]
    assert list(module.sizes(texture.mip(2), 0)) == [5, 1, 1]


def test_levels(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, image(8, 8, 4), mips=True)
    assert texture.mip_count == 4
    levels = [texture.to_numpy(mip=k) for k in range(4)]
    for k in range(1, 4):
        above = levels[k - 1].astype(np.float64)
        mean = above.reshape(8 >> k, 2, 8 >> k, 2, 4).mean((1, 3))
        np.testing.assert_allclose(levels[k], mean, atol=1e-6)
    at = np.array([[0, 0, 0], [1, 0, 1], [0, 1, 2], [0, 0, 3]], np.int32)
    np.testing.assert_array_equal(module.load(texture, at), [levels[z][y, x] for x, y, z in at])
    np.testing.assert_array_equal(module.load(texture.mip(2), np.array([1, 0, 0], np.int32)), levels[2][0, 1])


def test_writes_to_a_level(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, image(4, 4, 4), mips=True)
    before = [texture.to_numpy(mip=k) for k in range(3)]
    y, x = np.indices((2, 2)).astype(np.uint32)
    module.add(texture.mip(1), np.stack([x, y], -1), [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(texture.to_numpy(0), before[0])
    np.testing.assert_array_equal(texture.to_numpy(2), before[2])
    np.testing.assert_allclose(texture.to_numpy(1), before[1] * 2 + np.array([1, 2, 3, 4]), atol=1e-6)


@some(4)
@pytest.mark.parametrize("size", range(2, 10))
def test_levels_of_odd_sizes_are_means(device: spy.Device, size: int) -> None:
    # Each texel of the next level covers size / (size // 2) texels; so a level keeps the mean of the whole.
    texels = image(size, size + 1, 1)
    texture = spy.Texture.from_numpy(device, texels, mips=True)
    for k in range(texture.mip_count):
        assert texture.to_numpy(k).mean(dtype=np.float64) == pytest.approx(texels.mean(dtype=np.float64), abs=1e-6)


def test_levels_of_srgb_are_means_of_light(device: spy.Device) -> None:
    texels = np.zeros((2, 2, 4), np.uint8)
    texels[0, :, :3] = 255
    texels[..., 3] = [[0, 100], [100, 200]]
    texture = spy.Texture.from_numpy(device, texels, mips=True, srgb=True)
    # Half of the light is 188 on the curve (IEC 61966-2-1).
    assert texture.to_numpy(1).tolist() == [[[188, 188, 188, 100]]]


def test_three_channels_become_four(device: spy.Device) -> None:
    for texels, opaque in ((image(2, 3, 3), 1), (np.full((2, 3, 3), 7, np.uint8), 255)):
        found = spy.Texture.from_numpy(device, texels).to_numpy()
        np.testing.assert_array_equal(found[..., :3], texels)
        assert (found[..., 3] == opaque).all()


def test_far_and_odd_coordinates(device: spy.Device, module: spy.Module) -> None:
    """No coordinate ends the process; clamped ones far away give the texel at the edge."""
    texels = image(4, 4, 4)
    texture = spy.Texture.from_numpy(device, texels)
    far = np.array([[1e6, 0.5], [-1e6, 0.5]], np.float32)
    found = module.look(texture, device.create_sampler("nearest", "clamp"), far, 0.0)
    np.testing.assert_array_equal(found, texels[2, [3, 0]])
    odd = np.array([[np.nan, 0.5], [3e38, -3e38], [np.inf, -np.inf]], np.float32)
    for wrap in WRAPS:
        for level in (0.0, np.nan, np.inf, -np.inf):
            assert module.look(texture, device.create_sampler("linear", wrap), odd, level).shape == (3, 4)


def test_calls_in_command_lists(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, image(4, 4, 4))
    before = texture.to_numpy()
    y, x = np.indices((4, 4)).astype(np.uint32)
    at = spy.Tensor.from_numpy(device, np.stack([x, y], -1))
    out = spy.Tensor.empty(device, (4, 4), "float4")
    value = spy.Tensor.from_numpy(device, np.zeros(4, np.float32))
    commands = device.command_list()
    module.add.append_to(commands, texture, at, value)
    module.plain.append_to(commands, texture, at, _result=out)
    for k in range(3):
        commands.submit()
        np.testing.assert_array_equal(out.to_numpy(), before * 2 ** (k + 1))


def test_streams(device: spy.Device, module: spy.Module) -> None:
    texture = spy.Texture.from_numpy(device, image(64, 64, 4))
    before = texture.to_numpy()
    y, x = np.indices((64, 64)).astype(np.uint32)
    at = spy.Tensor.from_numpy(device, np.stack([x, y], -1))
    zero = spy.Tensor.from_numpy(device, np.zeros(4, np.float32))
    one, two = device.stream(), device.stream()
    for k in range(6):
        module.add.stream((one, two)[k % 2])(texture, at, zero)
    np.testing.assert_array_equal(texture.to_numpy(), before * 64)


@needs("textures")
@pytest.mark.parametrize("name", ["bias", "min_level", "max_level"])
def test_numbers_of_samplers_warn_of_nothing(device: spy.Device, name: str) -> None:
    """NumPy converts arrays of one element and complex numbers with warnings, by version; samplers refuse them."""
    wrong = [
        *(np.array([1.0], object), np.ones(1), np.ones((1, 1)), np.array(["3"]), np.complex64(1)),
        *(1j, "1", b"1", [1.0], None),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in wrong:
            with pytest.raises(spy.BindError, match=f"^create_sampler: {name} is .*; a number was expected"):
                device.create_sampler(**{name: value})
        for number in (1, 1.0, np.float32(1), np.array(1.0), np.array(1, object), fractions.Fraction(1)):
            assert device.create_sampler(**{name: number}).desc.blends


@needs("textures")
def test_levels_between_two(backend_name: str, device: spy.Device, module: spy.Module) -> None:
    """Of two equally near levels the CPU takes the larger image, as ceil(level + 0.5) - 1 of Vulkan has it."""
    levels = [np.full((8 >> k, 8 >> k, 4), k, np.float32) for k in range(4)]
    texture = device.create_texture("rgba32_float", 8, 8, mip_count=0)
    for k, level in enumerate(levels):
        texture.copy_from(level, mip=k)
    above, below = np.float32([0.51, 1.51, 2.51]), np.float32([0.49, 1.49, 2.49])
    for how, shift in (({}, 0.0), ({"bias": 1.0}, 1.0), ({"min_level": 0.0, "max_level": 2.5}, 0.0)):
        sampler = device.create_sampler("linear", "clamp", "nearest", **how)

        def seen(lod: Any, sampler: spy.Sampler = sampler) -> list[float]:
            found: list[float] = np.asarray(module.look(texture, sampler, (0.5, 0.5), lod))[..., 0].tolist()
            return found

        assert seen(np.float32([0.25, 1.25, 1.75]) - np.float32(shift)) == [0, 1, 2]
        if backend_name == "cpu":
            assert seen(np.float32([0.5, 1.5, 2.5]) - np.float32(shift)) == [0, 1, 2]
            if not shift:
                assert seen(below) == [0, 1, 2] and seen(above) == [1, 2, 2 if how else 3]


@needs("textures")
def test_wraps_of_each_axis(device: spy.Device) -> None:
    """One, two or three wraps; the last one applies to the axes that are not named."""
    text = "float look(Texture3D<float> t, SamplerState s, float3 at) { return t.SampleLevel(s, at, 0); }"
    look = spy.Module.load_from_source(device, "wraps_of_each_axis", text).look
    texels = image(3, 4, 5)
    texture = spy.Texture.from_numpy(device, texels, type="3d")
    index = {
        "repeat": lambda i, n: i % n,
        "clamp": lambda i, n: min(max(i, 0), n - 1),
        "mirror": lambda i, n: min(i % (2 * n), 2 * n - 1 - i % (2 * n)),
    }
    places = [(x, y, z) for x in (-2, 1, 6) for y in (-3, 2, 5) for z in (-1, 0, 4)]
    at = np.float32([((x + 0.5) / 5, (y + 0.5) / 4, (z + 0.5) / 3) for x, y, z in places])
    for wrap in ("mirror", ("repeat",), ("repeat", "clamp"), ("clamp", "mirror"), ("mirror", "clamp", "repeat")):
        named = (wrap,) if isinstance(wrap, str) else wrap
        ways = (*named, *[named[-1]] * 2)[:3]
        sampler = device.create_sampler("nearest", wrap)
        wanted = [texels[index[ways[2]](z, 3), index[ways[1]](y, 4), index[ways[0]](x, 5)] for x, y, z in places]
        np.testing.assert_allclose(look(texture, sampler, at), wanted, rtol=1e-6)


@every_device
def test_layers_whose_bytes_are_odd(device: spy.Device) -> None:
    """Layers, faces and levels of 3 and 15 bytes: none begins at a multiple of 16 behind the one before."""
    text = """
    uint4 layered(Texture2DArray<uint4> t, int4 at) { return t.Load(at); }
    uint4 lined(Texture1DArray<uint4> t, int3 at) { return t.Load(at); }
    uint4 solid(Texture3D<uint4> t, int4 at) { return t.Load(at); }
    """
    m = spy.Module.load_from_source(device, "odd_layers", text)
    rng = np.random.default_rng(2)
    for name, kind, shape in (
        ("layered", "2d_array", (3, 3, 5)), ("lined", "1d_array", (4, 3)), ("solid", "3d", (3, 3, 5)),
    ):  # fmt: skip
        for channels in (1, 4):
            texels = rng.integers(0, 256, (*shape, channels), np.uint8)
            format = {1: "r8_uint", 4: "rgba8_uint"}[channels]
            texture = spy.Texture.from_numpy(device, texels, type=kind, format=format, mips=True)
            for level in range(2):
                # Whole numbers keep one texel of each group; layers are not halved.
                first = 0 if kind == "3d" else 1
                for axis in range(first, len(shape)) if level else ():
                    texels = np.take(texels, np.arange(max(texels.shape[axis] // 2, 1)) * 2, axis)
                places = np.stack(np.meshgrid(*map(np.arange, texels.shape[:-1]), indexing="ij"), -1)[..., ::-1]
                at = np.concatenate([places, np.full((*places.shape[:-1], 1), level)], -1).astype(np.int32)
                found = np.asarray(m[name](texture, at))
                np.testing.assert_array_equal(found[..., :channels], texels, err_msg=f"{kind} {format} {level}")
